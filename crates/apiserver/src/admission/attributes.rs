//! What a plugin is asked about.
use super::Reinvocation;
use crate::asked::Context;
use crate::asked::Received;
use crate::call::{Call, WriteOptions};
use crate::guard::authn::User;
use crate::server::ApiServer;
use crate::state::allocation::Claims;
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
    /// What a deletion's client said about it; of other requests the query does.
    pub options: Option<Value>,
    pub reinvocation: Reinvocation,
    /// None for a stream, of which nothing has been read yet.
    received: Option<&'a Received>,
    pub notes: Notes,
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
            options: None,
            reinvocation: Reinvocation::default(),
            received: Some(context.received),
            notes: Notes::default(),
        }
    }

    /// Of a stream: nothing of it has been read, and its object is what its query asks for.
    pub fn of_stream(
        api: &'a ApiServer,
        call: &'a Call,
        user: &'a User,
        options: &'a mut Value,
    ) -> Self {
        Attributes {
            api,
            call,
            user,
            operation: Operation::Connect,
            object: Some(options),
            old: None,
            options: None,
            reinvocation: Reinvocation::default(),
            received: None,
            notes: Notes::default(),
        }
    }

    /// The same with what a deletion's client said about it.
    pub fn with_options(mut self, options: Value) -> Self {
        self.options = Some(options);
        self
    }

    /// The same with what was remarked before: that is told even if a plugin refuses.
    pub fn after(mut self, warnings: Vec<String>) -> Self {
        self.notes.warnings = warnings;
        self
    }

    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.call.resource.is(group, kind)
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
        let said = self.options.as_ref().map_or(&Value::Null, |options| &options["dryRun"]);
        said.as_array().is_some_and(|words| !words.is_empty()) || self.call.is_dry_run()
    }

    /// How a write is to be done, as the object that it is (`CreateOptions` and the like) with all that its
    /// client said; nothing of a stream.
    pub fn write_options(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let options = self.call.write_options();
        let written = WriteOptions { dry_run: self.dry_run(), ..options.clone() }.tree(kind);
        with_given(written, self.options.as_ref())
    }

    pub fn warn(&mut self, warning: impl Into<String>) {
        self.notes.warnings.push(warning.into());
    }

    /// Leaves a word for the audit log.
    pub fn annotate(&self, key: &str, value: impl Into<String>) {
        if let Some(record) = self.received.and_then(|received| received.audit.as_ref()) {
            record.annotate(key, value);
        }
    }

    /// Leaves a word that quotes the object: only where the log has the object itself.
    pub fn annotate_request(&self, key: &str, value: impl FnOnce() -> String) {
        if let Some(record) = self.received.and_then(|received| received.audit.as_ref())
            && record.has_request_object()
        {
            record.annotate(key, value());
        }
    }

    /// What was remarked is told with the refusal.
    pub fn remark(&self) {
        if let Some(received) = self.received {
            received.remark(&self.notes.warnings);
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

/// What the query says, and what the client gave as an object of its own beside it.
fn with_given(mut options: Value, given: Option<&Value>) -> Value {
    for (field, value) in given.and_then(Value::as_object).into_iter().flatten() {
        options[field] = value.clone();
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_client_says_of_a_deletion_is_in_its_options() {
        let check = |given: Value, expected: Value| {
            let written = WriteOptions::NONE.tree("DeleteOptions");
            assert_eq!(with_given(written, Some(&given)), expected);
        };
        let (kind, version) = ("DeleteOptions", "meta.k8s.io/v1");
        check(json!({}), json!({ "kind": kind, "apiVersion": version }));
        check(
            json!({ "gracePeriodSeconds": 0, "propagationPolicy": "Orphan",
                "preconditions": { "uid": "u" } }),
            json!({ "kind": kind, "apiVersion": version, "gracePeriodSeconds": 0,
                "propagationPolicy": "Orphan", "preconditions": { "uid": "u" } }),
        );
    }
}
