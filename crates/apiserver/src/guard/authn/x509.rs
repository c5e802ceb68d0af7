//! Client certificates: the common name is the user, its organizations are its groups.
use super::User;
use api::x509::Subject;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The user that a certificate names. TLS has already checked who signed it, and when it is valid.
pub fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let subject = subject(certificate)?;
    let mut groups = subject.organizations;
    groups.push("system:authenticated".into());
    let digest = Sha256::digest(certificate.as_ref());
    let id = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let extra = BTreeMap::from([(
        "authentication.kubernetes.io/credential-id".to_owned(),
        vec![format!("X509SHA256={id}")],
    )]);
    Some(User { name: subject.common_name, groups, extra, ..User::default() })
}

/// The name that a certificate is for.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    subject(certificate).map(|subject| subject.common_name)
}

/// Whom a certificate is for; one that has no name, or cannot be read, is for nobody.
fn subject(certificate: &CertificateDer<'_>) -> Option<Subject> {
    let subject = api::x509::certificate(certificate).ok()?.subject;
    (!subject.common_name.is_empty()).then_some(subject)
}

/// The last second that a certificate is valid in.
pub fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    #[test]
    fn the_subject_is_the_user() {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::OrganizationName, "dev");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let user = user_of(certificate.der()).expect("a user");
        assert_eq!(user.name, "jane");
        assert_eq!(user.groups, ["dev", "system:authenticated"]);
        let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
        assert!(id.starts_with("X509SHA256=") && id.len() == 75, "{id}");
    }

    #[test]
    fn a_certificate_without_a_name_is_nobody() {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let certificate = params.self_signed(&key).expect("a certificate");
        assert_eq!(user_of(certificate.der()), None);
        assert_eq!(user_of(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
