//! ResourceQuota: how much of everything a namespace may have.
//!
//! ```text
//!  evaluator: kind ─► which resources it uses, how much, in which scopes
//!  decide:    quotas, object (and what it was) ─► new usage of each quota, or a refusal
//!  this:      the new usage becomes part of the object's own transaction
//! ```
//! A quota's status is written together with the object that it is charged for, and only if it is
//! still the one that was read. So usage is exact whoever writes at the same time, and what fails
//! charges nothing. Within one server those who charge the same namespace take turns: otherwise all
//! but one of them would have to begin again, every time.
//!
//! What goes is given back by the quota controller, which counts anew.
mod configuration;
mod decide;
mod devices;
mod evaluator;

pub use configuration::{Configuration, configure};

use super::{Attributes, Operation, plain};
use crate::state::objects;
use crate::state::stored;
use api::kinds::{Resource, find_kind};
use api::quota::{pods, scope};
use api::status::Status;
use decide::{Refusal, Request, decide};
use evaluator::Evaluator;
use jiff::Timestamp;
use serde_json::json;
use store::cache::At;

/// Questions, which are not stored, and events, which nobody ever counted.
const IGNORED: &[(&str, &str)] = &[
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

fn quotas() -> &'static Resource {
    find_kind("v1", "ResourceQuota").expect("quotas are in the registry")
}

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let (api, call) = (attributes.api, attributes.call);
    let place = (call.resource.group, call.resource.plural);
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if !writes || call.namespace.is_empty() || IGNORED.contains(&place) {
        return Ok(());
    }
    let mut evaluator = Evaluator::of(&call.resource);
    if !evaluator.handles(attributes) {
        return Ok(());
    }
    let settings = &api.admission().settings.resource_quota;
    // Most namespaces have no quota; to find that out, nobody waits.
    let seen = objects::stored(api, quotas(), &call.namespace, At::Any).await?;
    if seen.is_empty() && settings.limited.is_empty() {
        return Ok(());
    }
    evaluator.look_around(attributes).await?;
    let turn = settings.turns.take(&call.namespace).await;
    let stored = objects::stored(api, quotas(), &call.namespace, At::Latest).await?;
    let mut read = Vec::with_capacity(stored.len());
    for quota in &stored {
        read.push(stored::decode(quota, quotas())?);
    }
    let request = Request {
        object: attributes.new_object(),
        old: attributes.old,
        part: attributes.part(),
        resource: place,
    };
    let usages = match decide(&evaluator, &read, &request, &settings.limited, Timestamp::now()) {
        Ok(usages) => usages,
        Err(Refusal::Forbidden(cause)) => return Err(attributes.forbidden(cause)),
        Err(Refusal::Plain(cause)) => return Err(plain(cause)),
    };
    if attributes.dry_run() {
        return Ok(());
    }
    for ((quota, mut object), used) in stored.iter().zip(read).zip(usages) {
        let Some(used) = used else { continue };
        object["status"]["used"] =
            used.iter().map(|(name, amount)| (name.clone(), json!(amount))).collect();
        attributes.notes.claims.change(quota, stored::encode(&object, quotas())?);
    }
    attributes.notes.claims.hold(turn);
    Ok(())
}
