//! Certificate signing requests: who asks is written down, and who decides must be allowed to for
//! that signer.
use super::{Attributes, Operation};
use crate::guard::authz;
use api::status::Status;
use api::x509::Subject;

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

/// Whoever says that a request is signed, or that it cannot be, speaks for its signer.
pub async fn signing(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let said = |object: &serde_json::Value| {
        ["certificate", "conditions"].map(|field| object["status"].get(field).cloned())
    };
    if attributes.old.map(said) == attributes.object.as_deref().map(said) {
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
    if subject.organizations.iter().any(|group| group == "system:masters") {
        return Err(attributes.forbidden(format!(
            "use of {CLIENT_SIGNER} signer with system:masters group is not allowed"
        )));
    }
    Ok(())
}

/// Whom a certificate is asked for, as the signer reads it.
pub fn subject(request: &serde_json::Value) -> Result<Subject, &'static str> {
    let text = request["spec"]["request"].as_str().unwrap_or_default();
    api::x509::request_in(text).map(|request| request.subject)
}
