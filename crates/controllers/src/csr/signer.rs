//! What each signer signs, and how.
use super::{Asked, renamed};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use rcgen::{
    CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose as Extended, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The cluster's CA, PEM.
#[derive(Clone)]
pub struct Authority {
    pub certificate: String,
    pub key: String,
}

/// A key is not for logs.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// How long certificates usually live, in seconds; and the least that they can be asked for.
const LIFETIME: i64 = 365 * 24 * 60 * 60;
const SHORTEST: i64 = 10 * 60;
/// Certificates are valid a little before they are made, for clocks that are behind.
const BACKDATE: i64 = 5 * 60;

/// Whose key signs what, and for how long.
#[derive(Debug, Clone)]
pub struct Signers {
    /// Those that have a CA of their own, by the names of signers.
    pub own: BTreeMap<&'static str, Authority>,
    /// Of all others; without one they sign nothing.
    pub authority: Option<Authority>,
    /// How long certificates live unless they are asked for less, in seconds.
    pub lifetime: i64,
}

impl Default for Signers {
    fn default() -> Signers {
        Signers { own: BTreeMap::new(), authority: None, lifetime: LIFETIME }
    }
}

impl Signers {
    pub fn of(&self, signer: &str) -> Option<&Authority> {
        self.own.get(signer).or(self.authority.as_ref())
    }
}

/// The certificate as PEM, or why the signer does not sign this; none if it is no signer of ours.
pub fn sign(
    spec: &CertificateSigningRequestSpec,
    mut request: Asked,
    (authority, lifetime): (&Authority, i64),
    now: Timestamp,
) -> Option<Result<String, String>> {
    let usages: Vec<&str> = spec.usages.iter().flatten().map(String::as_str).collect();
    let checked = match spec.signer_name.as_str() {
        CLIENT => client_usages(&usages),
        KUBELET_CLIENT => kubelet_client(&request, &usages),
        KUBELET_SERVING => kubelet_serving(&request, &usages),
        _ => return None,
    };
    if let Err(cause) = checked {
        return Some(Err(cause));
    }
    let asked = spec.expiration_seconds.map_or(lifetime, i64::from);
    let asked = asked.max(SHORTEST).min(lifetime);
    let params = &mut request.params.params;
    params.distinguished_name = DistinguishedName::new();
    let now = now.as_second();
    set_validity(params, now - BACKDATE, now - BACKDATE + asked);
    // What has no sort that is checked is not signed.
    params.subject_alt_names.retain(|name| sort_of(name) != "other");
    // Whatever the request says of itself: it is no CA, and is for what it was approved for.
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = usages.iter().filter_map(|usage| key_usage(usage)).collect();
    params.extended_key_usages = usages.iter().filter_map(|usage| extended_usage(usage)).collect();
    params.use_authority_key_identifier_extension = true;
    let issued = || {
        let key = KeyPair::from_pem(&authority.key).map_err(|error| error.to_string())?;
        let issuer = Issuer::from_ca_cert_pem(&authority.certificate, key)
            .map_err(|error| error.to_string())?;
        let made = request.params.signed_by(&issuer).map_err(|error| error.to_string())?;
        renamed::for_subject(made.der(), &request.subject, issuer.key())
    };
    let signed: Result<String, String> = issued();
    match signed {
        Ok(pem) => Some(Ok(pem)),
        // The CA's trouble is not the request's: it waits.
        Err(error) => {
            tracing::error!(error, "the cluster's CA cannot sign");
            None
        }
    }
}

/// Valid between these seconds of the epoch.
fn set_validity(params: &mut CertificateParams, start: i64, end: i64) {
    let at =
        |second: i64| date_time_ymd(1970, 1, 1) + Duration::from_secs(second.max(0).unsigned_abs());
    (params.not_before, params.not_after) = (at(start), at(end));
}

fn key_usage(usage: &str) -> Option<KeyUsagePurpose> {
    Some(match usage {
        "digital signature" | "signing" => KeyUsagePurpose::DigitalSignature,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        _ => return None,
    })
}

fn extended_usage(usage: &str) -> Option<Extended> {
    Some(match usage {
        "server auth" => Extended::ServerAuth,
        "client auth" => Extended::ClientAuth,
        _ => return None,
    })
}

fn client_usages(usages: &[&str]) -> Result<(), String> {
    let known = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|usage| !known.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    match usages.contains(&"client auth") {
        true => Ok(()),
        false => Err("missing required usage for client certificate: client auth".into()),
    }
}

/// Exactly these, of which "key encipherment" is for RSA keys.
fn usages_are(usages: &[&str], purpose: &str) -> Result<(), String> {
    let known = [purpose, "digital signature", "key encipherment"];
    let fits = usages.iter().all(|usage| known.contains(usage))
        && known[..2].iter().all(|usage| usages.contains(usage));
    let mut sorted = known;
    sorted.sort_unstable();
    if fits { Ok(()) } else { Err(format!("usages did not match [{}]", sorted.join(" "))) }
}

fn is_of_nodes(request: &Asked) -> Result<(), String> {
    match request.subject.organizations == ["system:nodes"] {
        true => Ok(()),
        false => Err("subject organization is not system:nodes".into()),
    }
}

fn names_a_node(request: &Asked) -> Result<(), String> {
    match request.subject.common_name.starts_with("system:node:") {
        true => Ok(()),
        false => Err("subject common name does not begin with system:node:".into()),
    }
}

/// Refuses other names of these sorts.
fn no_other_names(request: &Asked, sorts: &[&str]) -> Result<(), String> {
    let names = &request.params.params.subject_alt_names;
    match sorts.iter().find(|sort| names.iter().any(|name| sort_of(name) == **sort)) {
        Some(sort) => Err(format!("{sort} subjectAltNames are not allowed")),
        None => Ok(()),
    }
}

fn sort_of(name: &SanType) -> &'static str {
    match name {
        SanType::DnsName(_) => "DNS",
        SanType::Rfc822Name(_) => "Email",
        SanType::IpAddress(_) => "IP",
        SanType::URI(_) => "URI",
        _ => "other",
    }
}

pub fn kubelet_client(request: &Asked, usages: &[&str]) -> Result<(), String> {
    is_of_nodes(request)?;
    no_other_names(request, &["DNS", "Email", "IP", "URI"])?;
    names_a_node(request)?;
    usages_are(usages, "client auth")
}

pub fn kubelet_serving(request: &Asked, usages: &[&str]) -> Result<(), String> {
    is_of_nodes(request)?;
    let names = &request.params.params.subject_alt_names;
    if !names.iter().any(|name| matches!(sort_of(name), "DNS" | "IP")) {
        return Err("DNS or IP subjectAltName is required".into());
    }
    no_other_names(request, &["Email", "URI"])?;
    usages_are(usages, "server auth")?;
    names_a_node(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::parse;
    use crate::csr::renamed::tests::request;
    use crate::testing::authority;
    use k8s_openapi::ByteString;
    use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
    use rcgen::DnType;

    const NAME: u8 = 3;
    const GROUP: u8 = 10;
    const UTF8: u8 = 12;
    const PRINTABLE: u8 = 19;
    const TELETEX: u8 = 20;
    const BMP: u8 = 30;
    const UNIVERSAL: u8 = 28;

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_be_bytes).collect()
    }

    fn asked(pem: String, signer: &str, usages: &[&str]) -> CertificateSigningRequest {
        CertificateSigningRequest {
            spec: CertificateSigningRequestSpec {
                request: ByteString(pem.into_bytes()),
                signer_name: signer.to_owned(),
                usages: Some(usages.iter().map(|usage| (*usage).to_owned()).collect()),
                expiration_seconds: Some(3600),
                ..CertificateSigningRequestSpec::default()
            },
            ..CertificateSigningRequest::default()
        }
    }

    /// Whether the CA signed it, by somebody else's reading.
    fn is_believed(der: &[u8]) -> bool {
        let ca = authority().certificate;
        let (_, ca) = x509_parser::pem::parse_x509_pem(ca.as_bytes()).expect("PEM");
        let ca = ca.parse_x509().expect("a certificate");
        let (_, read) = x509_parser::parse_x509_certificate(der).expect("a certificate");
        read.verify_signature(Some(ca.public_key())).is_ok()
    }

    #[test]
    fn certificates_live_as_long_as_was_asked_for_and_no_longer_than_the_signer_says() {
        let lives = |asked_for: Option<i32>, longest: i64| {
            let mut object = asked(request(&[(NAME, UTF8, b"a")]), CLIENT, &["client auth"]);
            object.spec.expiration_seconds = asked_for;
            let parsed = parse(&object).expect("a request");
            let signed = sign(&object.spec, parsed, (&authority(), longest), Timestamp::now());
            let pem = signed.expect("a signer").expect("signed");
            let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
            let validity = block.parse_x509().expect("a certificate").validity().clone();
            validity.not_after.timestamp() - validity.not_before.timestamp()
        };
        assert_eq!(lives(None, LIFETIME), LIFETIME);
        assert_eq!((lives(Some(3600), LIFETIME), lives(Some(1), LIFETIME)), (3600, SHORTEST));
        assert_eq!((lives(None, 7200), lives(Some(86_400), 7200)), (7200, 7200));
        // Who signs for less than the least that can be asked for signs for that.
        assert_eq!(lives(Some(3600), 60), 60);
    }

    #[test]
    fn a_signer_may_have_a_ca_of_its_own() {
        let of = |name: &str| Authority { certificate: name.to_owned(), key: String::new() };
        let mut signers = Signers { authority: Some(of("all")), ..Signers::default() };
        signers.own.insert(KUBELET_SERVING, of("serving"));
        let name =
            |signers: &Signers, signer| signers.of(signer).map(|one| one.certificate.clone());
        assert_eq!(name(&signers, KUBELET_SERVING).as_deref(), Some("serving"));
        assert_eq!(name(&signers, CLIENT).as_deref(), Some("all"));
        signers.authority = None;
        assert_eq!(name(&signers, CLIENT), None);
    }

    /// Whoever a request is taken to be for is whom the certificate is for: `api::x509` is what
    /// admission decides by, and the server that believes it later. `None`: it is not signed.
    fn check_subject(attributes: &[(u8, u8, &[u8])], expected: Option<(&str, &[&str])>) {
        let object = asked(request(attributes), CLIENT, &["client auth"]);
        let signed = parse(&object).map(|request| {
            let checked = request.subject.clone();
            let signed = sign(&object.spec, request, (&authority(), LIFETIME), Timestamp::now());
            let pem = signed.expect("a signer").expect("signed");
            let block = api::pem::blocks(pem.as_bytes()).next().expect("PEM");
            assert!(is_believed(&block.bytes));
            let read = api::x509::certificate(&block.bytes).expect("a certificate").subject;
            assert_eq!(
                (&read.common_name, &read.organizations),
                (&checked.common_name, &checked.organizations)
            );
            read
        });
        let signed = signed.filter(|subject| !subject.common_name.is_empty());
        let groups = signed.as_ref().map_or(&[][..], |subject| &subject.organizations);
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let found = signed.as_ref().map(|subject| (&*subject.common_name, &groups[..]));
        assert_eq!(found, expected, "{attributes:?}");
    }

    #[test]
    fn what_is_signed_is_what_was_checked() {
        let masters = wide("system:masters");
        check_subject(&[(NAME, UTF8, b"a"), (NAME, UTF8, b"b")], Some(("b", &[])));
        check_subject(
            &[
                (GROUP, UTF8, b"x"),
                (GROUP, UTF8, b"y"),
                (GROUP, PRINTABLE, b"z"),
                (NAME, UTF8, b"a"),
            ],
            Some(("a", &["x", "y", "z"])),
        );
        check_subject(
            &[(GROUP, BMP, &masters), (NAME, UTF8, b"a")],
            Some(("a", &["system:masters"])),
        );
        check_subject(
            &[(GROUP, TELETEX, b"system:masters"), (NAME, TELETEX, b"a")],
            Some(("a", &["system:masters"])),
        );
        // What is no text to Go is not there.
        let universal = b"\0\0\0o";
        check_subject(&[(GROUP, UNIVERSAL, universal), (NAME, UTF8, b"a")], Some(("a", &[])));
        check_subject(&[(NAME, UTF8, b"\xff")], None);
        check_subject(&[(GROUP, UTF8, b"x")], None);
    }

    /// `signer organization name [alternative name]; usage, usage`
    fn check(line: &str) -> Result<String, String> {
        let (words, usages) = line.split_once("; ").expect("usages");
        let words: Vec<&str> = words.split(' ').collect();
        let names: Vec<String> = words[3..].iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, words[1]);
        params.distinguished_name.push(DnType::CommonName, words[2]);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
        let usages: Vec<&str> = usages.split(", ").collect();
        let object = asked(pem, &format!("kubernetes.io/{}", words[0]), &usages);
        let request = parse(&object).expect("a request");
        let pem = sign(&object.spec, request, (&authority(), LIFETIME), Timestamp::now())
            .expect("a signer")?;
        let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
        let certificate = block.parse_x509().expect("a certificate");
        assert!(!certificate.is_ca(), "a request cannot make itself a CA");
        let validity = certificate.validity();
        assert_eq!(validity.not_after.timestamp() - validity.not_before.timestamp(), 3600);
        assert!(is_believed(&block.contents));
        Ok(certificate.subject().to_string())
    }

    #[test]
    fn a_signer_signs_what_it_is_for() {
        for (asked, subject) in [
            ("kube-apiserver-client dev jane; client auth", "O=dev, CN=jane"),
            (
                "kube-apiserver-client-kubelet system:nodes system:node:n1; digital signature, client auth",
                "O=system:nodes, CN=system:node:n1",
            ),
            (
                "kubelet-serving system:nodes system:node:n1 n1.example; digital signature, key encipherment, server auth",
                "O=system:nodes, CN=system:node:n1",
            ),
        ] {
            assert_eq!(check(asked).as_deref(), Ok(subject), "{asked}");
        }
    }

    #[test]
    fn and_nothing_else() {
        for (asked, cause) in [
            (
                "kube-apiserver-client dev jane; digital signature",
                "missing required usage for client certificate: client auth",
            ),
            (
                "kube-apiserver-client dev jane; client auth, server auth",
                "invalid usage for client certificate: server auth",
            ),
            (
                "kube-apiserver-client-kubelet dev system:node:n1; digital signature, client auth",
                "subject organization is not system:nodes",
            ),
            (
                "kube-apiserver-client-kubelet system:nodes jane; digital signature, client auth",
                "subject common name does not begin with system:node:",
            ),
            (
                "kube-apiserver-client-kubelet system:nodes system:node:n1 n1; digital signature, client auth",
                "DNS subjectAltNames are not allowed",
            ),
            (
                "kube-apiserver-client-kubelet system:nodes system:node:n1; client auth",
                "usages did not match [client auth digital signature key encipherment]",
            ),
            (
                "kubelet-serving system:nodes system:node:n1; digital signature, server auth",
                "DNS or IP subjectAltName is required",
            ),
        ] {
            assert_eq!(check(asked), Err(cause.to_owned()), "{asked}");
        }
    }
}
