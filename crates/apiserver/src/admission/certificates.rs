//! Certificate signing requests: who asks is written down, and who decides must be allowed to for
//! that signer.
use super::{Attributes, Operation};
use crate::authz;
use api::status::Status;
use base64::Engine as _;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

const GROUP: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The request says who made it, whatever the client wrote there.
pub async fn requester(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.is(GROUP, "CertificateSigningRequest") || attributes.is_part() {
        return Ok(());
    }
    let user = attributes.context.received.user.clone();
    let old = attributes.old;
    let Some(request) = attributes.object.as_deref_mut() else { return Ok(()) };
    if let Some(old) = old {
        request["spec"] = old["spec"].clone();
        return Ok(());
    }
    request["spec"]["username"] = user.name.clone().into();
    request["spec"]["uid"] = user.uid.clone().into();
    request["spec"]["groups"] = serde_json::json!(user.groups);
    request["spec"]["extra"] = serde_json::json!(user.extra);
    Ok(())
}

pub async fn approval(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    may(attributes, "approval", "approve", "approve requests with").await
}

pub async fn signing(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let certificate = |object: Option<&serde_json::Value>| {
        object.and_then(|object| object["status"].get("certificate").cloned())
    };
    if certificate(attributes.object.as_deref()) == certificate(attributes.old) {
        return Ok(());
    }
    may(attributes, "status", "sign", "sign requests with").await
}

async fn may(
    attributes: &Attributes<'_>,
    part: &str,
    verb: &str,
    words: &str,
) -> Result<(), Status> {
    if !attributes.is(GROUP, "CertificateSigningRequest") || !attributes.is_sub(part) {
        return Ok(());
    }
    let Some(old) = attributes.old else { return Ok(()) };
    let signer = old["spec"]["signerName"].as_str().unwrap_or_default();
    let domain = signer.split('/').next().unwrap_or_default();
    let (api, user) = (attributes.context.api, &attributes.context.received.user);
    // The right may be for one signer, or for all of its domain.
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let right = authz::Attributes::right(verb, GROUP, "signers", "", &name);
        if authz::decide(api, user, &right).await.allowed {
            return Ok(());
        }
    }
    Err(attributes.forbidden(format!("user not permitted to {words} signerName {signer:?}")))
}

/// Nobody becomes a superuser by asking for a certificate.
pub async fn subject_restriction(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.is(GROUP, "CertificateSigningRequest")
        || attributes.is_part()
        || attributes.operation != Operation::Create
    {
        return Ok(());
    }
    let Some(request) = attributes.object.as_deref() else { return Ok(()) };
    if request["spec"]["signerName"] != CLIENT_SIGNER {
        return Ok(());
    }
    let unreadable =
        || attributes.forbidden("failed to parse CSR: PEM block type must be CERTIFICATE REQUEST");
    let text = request["spec"]["request"].as_str().unwrap_or_default();
    let pem = base64::engine::general_purpose::STANDARD.decode(text).map_err(|_| unreadable())?;
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem).map_err(|_| unreadable())?;
    let (_, parsed) =
        X509CertificationRequest::from_der(&block.contents).map_err(|_| unreadable())?;
    let subject = &parsed.certification_request_info.subject;
    if subject.iter_organization().any(|group| group.as_str() == Ok("system:masters")) {
        return Err(attributes.forbidden(format!(
            "use of {CLIENT_SIGNER} signer with system:masters group is not allowed"
        )));
    }
    Ok(())
}
