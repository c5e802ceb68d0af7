//! Admission: what a write has to pass beside its kind's own rules, because it looks at other
//! objects or at who is asking.
//!
//! Plugins are rows of [`plugins::PLUGINS`], in upstream's order. Each may first admit the request,
//! and change its object on the way; once the kind's rules have had their say, each may refuse the
//! outcome. A row names the kinds that it is about, so that all others pay nothing for it.
//!
//! ```text
//!  flags, configuration file ─► Chain: the rows that run, and what they were told
//!  Attributes ─► admit (may change) ─► rules ─► validate (may refuse) ─► Notes: warnings, charges
//! ```
//! A plugin reads other objects and the user; it writes nothing itself (but for the one that makes
//! namespaces). What has to be written with the object, a quota's usage, it leaves in the notes for
//! the object's own transaction.
mod always_pull_images;
mod anti_affinity;
mod attributes;
pub(crate) mod certificates;
mod chain;
mod claim_resize;
mod configuration;
mod default_class;
mod default_toleration_seconds;
mod deny;
pub mod device_selectors;
mod durations;
mod event_rate_limit;
mod extended_resource_toleration;
mod external_ips;
mod image_policy;
mod limit_ranger;
pub mod manifests;
mod namespace;
mod namespace_lifecycle;
mod node_declared_features;
mod node_restriction;
mod owner_references;
mod plugins;
mod pod_node_selector;
mod pod_resize;
mod pod_security;
mod pod_toleration_restriction;
mod pod_topology_labels;
pub mod policy;
mod priority;
mod rbac_escalation;
mod reinvocation;
mod resource_quota;
mod runtime_class;
mod service_account;
mod storage_object_in_use_protection;
mod stream;
mod taint_nodes_by_condition;
pub mod webhook;

pub use attributes::{Attributes, Notes, Operation};
pub use chain::Chain;
pub use configuration::Error;
pub use default_toleration_seconds::TolerationSeconds;
pub use namespace::namespaces;
use plugins::Plugin;
pub use reinvocation::Reinvocation;

use crate::asked::Context;
use crate::call::Call;
use crate::guard::authn::User;
use crate::server::ApiServer;
use api::quota::list as resource_list;
use api::status::Status;
use durations::{Asked, Step};
use serde_json::Value;
use std::collections::HashSet;
use std::time::Instant;

/// Lets every plugin have a say before the kind's rules; a second time if one of the cluster's users
/// changed what others had seen.
pub async fn admit(mut attributes: Attributes<'_>) -> Result<Notes, Status> {
    let begun = Instant::now();
    let outcome = admit_rounds(&mut attributes).await;
    let asked = asked(Step::Admit, &attributes, &outcome);
    attributes.api.admission().durations.of_step(asked, begun.elapsed());
    outcome?;
    let mut notes = attributes.notes;
    let mut told = HashSet::new();
    notes.warnings.retain(|warning| told.insert(warning.clone()));
    Ok(notes)
}

async fn admit_rounds(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    ask(Step::Admit, attributes).await?;
    if attributes.reinvocation.wanted {
        attributes.reinvocation.is_again = true;
        ask(Step::Admit, attributes).await?;
    }
    Ok(())
}

/// One plugin after the other, up to the first that refuses.
async fn ask(step: Step, attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let chain = attributes.api.admission();
    let hook = match step {
        Step::Admit => |plugin: &Plugin| plugin.admit,
        Step::Validate => |plugin: &Plugin| plugin.validate,
    };
    for (index, plugin, hook) in chain.rows(&attributes.call.resource, hook) {
        tracing::trace!(plugin, ?step);
        let begun = Instant::now();
        let outcome = hook(&mut *attributes).await;
        chain.durations.of_plugin(index, asked(step, attributes, &outcome), begun.elapsed());
        outcome.inspect_err(|_| attributes.remark())?;
    }
    Ok(())
}

fn asked(step: Step, attributes: &Attributes<'_>, outcome: &Result<(), Status>) -> Asked {
    Asked { step, operation: attributes.operation, rejected: outcome.is_err() }
}

/// Lets every plugin refuse the outcome.
pub async fn validate(mut attributes: Attributes<'_>) -> Result<Notes, Status> {
    let begun = Instant::now();
    let outcome = ask(Step::Validate, &mut attributes).await;
    let asked = asked(Step::Validate, &attributes, &outcome);
    attributes.api.admission().durations.of_step(asked, begun.elapsed());
    outcome?;
    Ok(attributes.notes)
}

/// Both halves for what is not stored: a review, a binding, an eviction, a token's request.
pub async fn pass(context: Context<'_>, object: &mut Value) -> Result<Vec<String>, Status> {
    let operation = Operation::Create;
    let admitted = admit(Attributes::new(context, operation, Some(object), None)).await?;
    let judged = validate(Attributes::new(context, operation, Some(object), None)).await?;
    Ok([admitted.warnings, judged.warnings].concat())
}

/// Both halves for a stream to a pod, service or node.
pub async fn connect(api: &ApiServer, call: &Call, user: &User, query: &str) -> Result<(), Status> {
    let mut options = stream::options(call, query);
    admit(Attributes::of_stream(api, call, user, &mut options)).await?;
    validate(Attributes::of_stream(api, call, user, &mut options)).await?;
    Ok(())
}

/// Adds to a list that may not be there yet.
fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(all) => all.push(item),
        none => *none = Value::Array(vec![item]),
    }
}

/// The items of a list that may not be there.
fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A text that may not be there.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A fault as upstream sends one that it gave no reason.
fn plain(message: String) -> Status {
    Status { message, code: 500, ..Status::default() }
}

/// Several faults in one text, as Go's aggregate prints them: each once.
fn joined(messages: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for message in messages {
        if !distinct.contains(&message.as_str()) {
            distinct.push(message);
        }
    }
    match distinct[..] {
        [one] => one.to_owned(),
        _ => format!("[{}]", distinct.join(", ")),
    }
}
