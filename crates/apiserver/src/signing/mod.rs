//! The cluster's own signers: certificate signing requests are approved and signed, as upstream's
//! controller manager does.
//!
//! ```text
//!  CertificateSigningRequest ─► approver: may its maker have it? ─► Approved
//!                  Approved  ─► signer: is it what the signer is for? ─► certificate, or Failed
//! ```
//! It follows the requests in the store and writes their status. It is here, and not among the
//! controllers, until there is a crate of them: it needs nothing of the server but objects and
//! decisions.
mod approver;
mod renamed;
mod signer;

use crate::following::{Change, follow};
use crate::objects;
use crate::resources::ApiServer;
use crate::tls::Pair;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use api::x509::{self, Subject};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::CertificateSigningRequestParams;
use serde_json::{Value, json};
use std::sync::Arc;
use store::KeyValue;
use store::cache::Item;

/// Approves and signs with this CA, as long as the server runs.
pub async fn start(api: &ApiServer, authority: Pair) -> Result<(), Status> {
    let resource = find_kind("certificates.k8s.io/v1", "CertificateSigningRequest")
        .expect("requests are in the registry");
    let (server, authority) = (api.clone(), Arc::new(authority));
    follow(api, &[resource], move |change| {
        let changed: Vec<_> = match change {
            Change::Item(_, Item::Initial(objects)) => objects,
            Change::Item(_, Item::Events(batch)) => {
                batch.events.iter().filter(|e| !e.is_delete()).map(|e| e.kv.clone()).collect()
            }
            Change::Item(_, Item::InitialEnd(_)) | Change::Anew => Vec::new(),
        };
        let (api, authority) = (server.clone(), authority.clone());
        async move {
            for stored in changed {
                if let Err(error) = handle(&api, resource, &stored, &authority).await {
                    tracing::warn!(%error, key = ?stored.key, "a request for a certificate failed");
                }
            }
        }
    })
    .await
}

async fn handle(
    api: &ApiServer,
    resource: &Resource,
    stored: &KeyValue,
    authority: &Pair,
) -> Result<(), Status> {
    let Ok(object) = serde_json::from_slice::<Value>(&stored.value) else { return Ok(()) };
    if object["status"]["certificate"].is_string()
        || has(&object, "Denied")
        || has(&object, "Failed")
    {
        return Ok(());
    }
    let Some(request) = parse(&object) else { return Ok(()) };
    let now = Timestamp::now();
    let outcome = if has(&object, "Approved") {
        match signer::sign(&object["spec"], request, authority, now) {
            None => return Ok(()),
            Some(Ok(pem)) => Outcome::Certificate(STANDARD.encode(pem)),
            Some(Err(cause)) => Outcome::Condition(condition("Failed", cause, now)),
        }
    } else {
        match approver::approve(api, &object["spec"], &request).await {
            None => return Ok(()),
            Some(message) => Outcome::Condition(condition("Approved", message, now)),
        }
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let written = objects::modify(api, resource, ("", name), false, |object| {
        outcome.apply(&mut object["status"]);
        Ok(())
    });
    written.await.map(drop)
}

/// What is written into a request's status.
enum Outcome {
    Certificate(String),
    Condition(Value),
}

impl Outcome {
    fn apply(&self, status: &mut Value) {
        match self {
            Outcome::Certificate(certificate) => status["certificate"] = certificate.clone().into(),
            Outcome::Condition(condition) => match &mut status["conditions"] {
                Value::Array(all) if all.iter().any(|old| old["type"] == condition["type"]) => {}
                Value::Array(all) => all.push(condition.clone()),
                none => *none = json!([condition]),
            },
        }
    }
}

fn condition(kind: &str, message: String, now: Timestamp) -> Value {
    let reason = if kind == "Approved" { "AutoApproved" } else { "SignerValidationFailure" };
    let now = api::time::format(now.as_second());
    json!({ "type": kind, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now })
}

fn has(request: &Value, kind: &str) -> bool {
    let conditions = request["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == kind && c["status"] == "True")
}

/// The request inside, its signature checked.
fn parse(object: &Value) -> Option<Asked> {
    let read = x509::request_in(object["spec"]["request"].as_str()?).ok()?;
    let params = CertificateSigningRequestParams::from_der(&read.der.as_slice().into()).ok()?;
    Some(Asked { subject: read.subject, params })
}

/// What is asked for. The subject is not that of the parameters, which keep one text of each type and
/// of those not all: what is decided about here is what is signed.
pub struct Asked {
    pub subject: Subject,
    pub params: CertificateSigningRequestParams,
}
