//! Admission: what a write has to pass beside its kind's own rules, because it looks at other
//! objects or at who is asking.
//!
//! Plugins are rows of [`PLUGINS`], in upstream's order. Each may first admit the request, and
//! change its object on the way; once the kind's rules have had their say, each may refuse the
//! outcome. Webhooks and policies of the cluster's users have their place at the end of each half.
mod namespace_lifecycle;
mod rbac_escalation;

use crate::verbs::Context;
use api::status::Status;
use serde_json::Value;
use std::pin::Pin;

/// What is about to happen.
pub struct Attributes<'a> {
    pub context: Context<'a>,
    pub operation: Operation,
    /// As it shall be; none when it goes.
    pub object: Option<&'a mut Value>,
    /// As it is; none when it is new.
    pub old: Option<&'a Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

type Outcome<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;
type Hook = for<'a> fn(&'a mut Attributes<'_>) -> Outcome<'a>;

struct Plugin {
    /// Upstream's name, as its flags spell it.
    name: &'static str,
    admit: Option<Hook>,
    validate: Option<Hook>,
}

static PLUGINS: &[Plugin] = &[
    Plugin {
        name: "NamespaceLifecycle",
        admit: Some(|attributes| Box::pin(namespace_lifecycle::admit(attributes))),
        validate: None,
    },
    Plugin {
        name: "RBACEscalation",
        admit: None,
        validate: Some(|attributes| Box::pin(rbac_escalation::validate(attributes))),
    },
];

/// Lets every plugin have a say before the kind's rules.
pub async fn admit(mut attributes: Attributes<'_>) -> Result<(), Status> {
    for (name, admit) in PLUGINS.iter().filter_map(|plugin| Some((plugin.name, plugin.admit?))) {
        tracing::trace!(plugin = name, "admit");
        admit(&mut attributes).await?;
    }
    Ok(())
}

/// Lets every plugin refuse the outcome.
pub async fn validate(mut attributes: Attributes<'_>) -> Result<(), Status> {
    for (name, check) in PLUGINS.iter().filter_map(|plugin| Some((plugin.name, plugin.validate?))) {
        tracing::trace!(plugin = name, "validate");
        check(&mut attributes).await?;
    }
    Ok(())
}
