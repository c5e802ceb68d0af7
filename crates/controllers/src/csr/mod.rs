//! Requests for certificates: approved, signed, and cleared away.
//!
//! ```text
//!  CertificateSigningRequest ─► approving: may its maker have it? ─► Approved
//!                  Approved  ─► signing: is it what the signer is for? ─► certificate, or Failed
//! ```
pub mod approving;
pub mod cleaner;
pub mod pod_certificates;
mod renamed;
mod signer;
pub mod signing;

pub use signer::{Authority, CLIENT, KUBELET_CLIENT, KUBELET_SERVING, Signers};

use api::x509::{self, Subject};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rcgen::CertificateSigningRequestParams;

/// What is asked for. The subject is not that of the parameters, which keep one text of each type and
/// of those not all: what is decided about here is what is signed.
struct Asked {
    subject: Subject,
    params: CertificateSigningRequestParams,
}

/// The request inside, its signature checked.
fn parse(request: &CertificateSigningRequest) -> Option<Asked> {
    let block = api::pem::blocks(&request.spec.request.0).next()?;
    let read = x509::request(&block.bytes).ok()?;
    let params = CertificateSigningRequestParams::from_der(&read.der.as_slice().into()).ok()?;
    Some(Asked { subject: read.subject, params })
}

fn usages(request: &CertificateSigningRequest) -> Vec<&str> {
    request.spec.usages.iter().flatten().map(String::as_str).collect()
}

fn has(request: &CertificateSigningRequest, kind: &str) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Whether everything has been said about it.
fn is_over(request: &CertificateSigningRequest) -> bool {
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    certificate.is_some_and(|certificate| !certificate.0.is_empty())
        || has(request, "Denied")
        || has(request, "Failed")
}

/// The request with a condition more.
fn with_condition(
    request: &CertificateSigningRequest,
    (kind, reason): (&str, &str),
    message: String,
    now: Timestamp,
) -> CertificateSigningRequest {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut told = request.clone();
    let conditions = &mut told.status.get_or_insert_default().conditions;
    conditions.get_or_insert_default().push(CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    });
    told
}
