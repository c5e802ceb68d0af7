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
    let user = attributes.user.clone();
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

/// Who adds to the roots of a signer must be allowed to speak for it.
pub async fn attest(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !matches!(attributes.operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    let bundle = attributes.new_object();
    let signer = bundle["spec"]["signerName"].as_str().unwrap_or_default();
    if signer.is_empty()
        || attributes.only_owners_change()
        || may_for_signer(attributes, "attest", signer).await
    {
        return Ok(());
    }
    Err(attributes.forbidden(format!("user not permitted to attest for signerName {signer:?}")))
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
    if may_for_signer(attributes, verb, signer).await {
        return Ok(());
    }
    Err(attributes.forbidden(format!("user not permitted to {words} signerName {signer:?}")))
}

/// The right may be for one signer, or for all of its domain.
async fn may_for_signer(attributes: &Attributes<'_>, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let right = authz::Attributes::right(verb, GROUP, "signers", "", &name);
        if authz::decide(attributes.api, attributes.user, &right).await.allowed {
            return true;
        }
    }
    false
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
    let subject = subject(request)
        .map_err(|cause| attributes.forbidden(format!("failed to parse CSR: {cause}")))?;
    if subject.groups.iter().any(|group| group == "system:masters") {
        return Err(attributes.forbidden(format!(
            "use of {CLIENT_SIGNER} signer with system:masters group is not allowed"
        )));
    }
    Ok(())
}

/// Whom a certificate is asked for.
pub struct Subject {
    pub name: String,
    pub groups: Vec<String>,
}

/// The subject of the PKCS#10 request inside.
pub fn subject(request: &serde_json::Value) -> Result<Subject, &'static str> {
    const UNREADABLE: &str = "PEM block type must be CERTIFICATE REQUEST";
    let text = request["spec"]["request"].as_str().unwrap_or_default();
    let pem = base64::engine::general_purpose::STANDARD.decode(text).map_err(|_| UNREADABLE)?;
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem).map_err(|_| UNREADABLE)?;
    let (_, parsed) =
        X509CertificationRequest::from_der(&block.contents).map_err(|_| UNREADABLE)?;
    let subject = &parsed.certification_request_info.subject;
    let word = |entry: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        entry.as_str().unwrap_or_default().to_owned()
    };
    Ok(Subject {
        name: subject.iter_common_name().next().map(word).unwrap_or_default(),
        groups: subject.iter_organization().map(word).collect(),
    })
}
