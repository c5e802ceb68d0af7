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
//! A plugin reads other objects and the user; it writes nothing itself. What has to be written with
//! the object (a quota's usage) it leaves in the notes, for the object's own transaction.
mod always_pull_images;
mod annotations;
mod anti_affinity;
mod certificates;
mod chain;
mod claim_resize;
mod configuration;
mod default_class;
mod default_toleration_seconds;
mod deny;
mod event_rate_limit;
mod extended_resource_toleration;
mod external_ips;
mod image_policy;
mod limit_ranger;
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
mod priority;
mod rbac_escalation;
mod resource_list;
mod resource_quota;
mod runtime_class;
mod service_account;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;

pub use annotations::Annotations;
pub use chain::Chain;
pub use configuration::Error;

use crate::allocation::Claims;
use crate::authn::User;
use crate::request::Call;
use crate::resources::ApiServer;
use crate::verbs::Context;
use api::status::Status;
use serde_json::Value;

/// What is about to happen.
pub struct Attributes<'a> {
    pub api: &'a ApiServer,
    pub call: &'a Call,
    pub user: &'a User,
    pub operation: Operation,
    /// As it shall be; none when it goes.
    pub object: Option<&'a mut Value>,
    /// As it is; none when it is new.
    pub old: Option<&'a Value>,
    annotations: Option<&'a Annotations>,
    notes: Notes,
}

/// What a plugin has to say beside yes and no.
#[derive(Default)]
pub struct Notes {
    pub warnings: Vec<String>,
    /// What is to be written in the object's own transaction.
    pub claims: Claims,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// As upstream prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

impl<'a> Attributes<'a> {
    pub fn new(
        context: Context<'a>,
        operation: Operation,
        object: Option<&'a mut Value>,
        old: Option<&'a Value>,
    ) -> Self {
        Attributes {
            api: context.api,
            call: context.call,
            user: &context.received.user,
            operation,
            object,
            old,
            annotations: Some(&context.received.annotations),
            notes: Notes::default(),
        }
    }

    pub fn is(&self, group: &str, kind: &str) -> bool {
        let resource = self.call.resource;
        resource.kind == kind && resource.group == group
    }

    /// Whether it is about a subresource only.
    pub fn is_part(&self) -> bool {
        self.call.subresource.is_some()
    }

    pub fn is_sub(&self, name: &str) -> bool {
        self.part() == name
    }

    /// The subresource; empty for the object itself.
    pub fn part(&self) -> &'static str {
        self.call.subresource.map_or("", |subresource| subresource.name)
    }

    /// Whether the object itself comes to be.
    pub fn creates(&self) -> bool {
        self.operation == Operation::Create && !self.is_part()
    }

    /// Whether the object itself is written, new or old.
    pub fn writes(&self) -> bool {
        matches!(self.operation, Operation::Create | Operation::Update) && !self.is_part()
    }

    /// The object as it shall be; nothing when it goes.
    pub fn new_object(&self) -> &Value {
        self.object.as_deref().unwrap_or(&Value::Null)
    }

    pub fn dry_run(&self) -> bool {
        self.call.query.dry_run().unwrap_or(false)
    }

    pub fn warn(&mut self, warning: impl Into<String>) {
        self.notes.warnings.push(warning.into());
    }

    /// Leaves a word for the audit log.
    pub fn annotate(&self, key: &str, value: impl Into<String>) {
        if let Some(annotations) = self.annotations {
            annotations.add(key, value.into());
        }
    }

    /// The name as refusals give it: the path's, else what the object is or will be called.
    pub fn name(&self) -> String {
        let field = |name: &str| {
            let name = self.object.as_deref()?["metadata"][name].as_str()?.to_owned();
            Some(name).filter(|name| !name.is_empty())
        };
        let name = Some(self.call.name.clone()).filter(|name| !name.is_empty());
        let name = name.or_else(|| field("name")).or_else(|| field("generateName"));
        name.unwrap_or_else(|| "Unknown".into())
    }

    /// Whether an update touches only what the garbage collector works with: that needs no rights
    /// beyond its own.
    pub fn only_owners_change(&self) -> bool {
        let rest = |object: &Value| {
            let mut object = object.clone();
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                    metadata.remove(field);
                }
            }
            object
        };
        self.old.is_some_and(|old| rest(old) == rest(self.new_object()))
    }

    /// A refusal that names the object.
    pub fn forbidden(&self, cause: impl std::fmt::Display) -> Status {
        Status::forbidden(self.call.resource.group_resource(), &self.name(), cause)
    }
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

/// Lets every plugin have a say before the kind's rules.
pub async fn admit(mut attributes: Attributes<'_>) -> Result<Notes, Status> {
    let chain = attributes.api.admission();
    for (plugin, admit) in chain.rows(attributes.call.resource, |plugin| plugin.admit) {
        tracing::trace!(plugin, "admit");
        admit(&mut attributes).await?;
    }
    Ok(attributes.notes)
}

/// Lets every plugin refuse the outcome.
pub async fn validate(mut attributes: Attributes<'_>) -> Result<Notes, Status> {
    let chain = attributes.api.admission();
    for (plugin, validate) in chain.rows(attributes.call.resource, |plugin| plugin.validate) {
        tracing::trace!(plugin, "validate");
        validate(&mut attributes).await?;
    }
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
pub async fn connect(api: &ApiServer, call: &Call, user: &User) -> Result<(), Status> {
    let operation = Operation::Connect;
    let attributes = || Attributes {
        api,
        call,
        user,
        operation,
        object: None,
        old: None,
        annotations: None,
        notes: Notes::default(),
    };
    admit(attributes()).await?;
    validate(attributes()).await?;
    Ok(())
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
