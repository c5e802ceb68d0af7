//! Admission: what a write has to pass beside its kind's own rules, because it looks at other
//! objects or at who is asking.
//!
//! Plugins are rows of [`PLUGINS`], in upstream's order. Each may first admit the request, and
//! change its object on the way; once the kind's rules have had their say, each may refuse the
//! outcome. Webhooks and policies of the cluster's users have their place at the end of each half.
mod certificates;
mod claim_resize;
mod default_class;
mod default_toleration_seconds;
mod namespace_lifecycle;
mod priority;
mod rbac_escalation;
mod runtime_class;
mod service_account;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;

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

/// `row!(Name, admit: function, validate: function)`, either of which may be missing.
macro_rules! row {
    ($name:literal $(, admit: $admit:path)? $(, validate: $validate:path)?) => {{
        #[allow(unused_mut, unused_assignments)]
        const PLUGIN: Plugin = {
            let mut plugin = Plugin { name: $name, admit: None, validate: None };
            $(plugin.admit = Some(|attributes| Box::pin($admit(attributes)));)?
            $(plugin.validate = Some(|attributes| Box::pin($validate(attributes)));)?
            plugin
        };
        PLUGIN
    }};
}

#[rustfmt::skip]
static PLUGINS: &[Plugin] = &[
    row!("NamespaceLifecycle", admit: namespace_lifecycle::admit),
    row!("ServiceAccount", admit: service_account::admit),
    row!("TaintNodesByCondition", admit: taint_nodes_by_condition::admit),
    row!("Priority", admit: priority::admit, validate: priority::validate),
    row!("DefaultTolerationSeconds", admit: default_toleration_seconds::admit),
    row!("DefaultStorageClass", admit: default_class::storage),
    row!("StorageObjectInUseProtection", admit: storage_object_in_use_protection::admit),
    row!("PersistentVolumeClaimResize", validate: claim_resize::validate),
    row!("RuntimeClass", admit: runtime_class::admit, validate: runtime_class::validate),
    row!("CertificateApproval", validate: certificates::approval),
    row!("CertificateSigning", validate: certificates::signing),
    row!("CertificateSubjectRestriction", validate: certificates::subject_restriction),
    row!("DefaultIngressClass", admit: default_class::ingress),
    // Part of how upstream stores these kinds: no flag switches them off.
    row!("CertificateRequester", admit: certificates::requester),
    row!("RBACEscalation", validate: rbac_escalation::validate),
];

/// Adds to a list that may not be there yet.
fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(all) => all.push(item),
        none => *none = Value::Array(vec![item]),
    }
}

impl Attributes<'_> {
    pub fn is(&self, group: &str, kind: &str) -> bool {
        let resource = self.context.call.resource;
        resource.kind == kind && resource.group == group
    }

    /// Whether it is about a subresource only.
    pub fn is_part(&self) -> bool {
        self.context.call.subresource.is_some()
    }

    pub fn is_sub(&self, name: &str) -> bool {
        self.context.call.subresource.is_some_and(|subresource| subresource.name == name)
    }

    /// A refusal that names the object.
    pub fn forbidden(&self, cause: impl std::fmt::Display) -> Status {
        let call = self.context.call;
        let field = |name: &str| {
            let object = self.object.as_deref()?;
            Some(object["metadata"][name].as_str()?.to_owned()).filter(|name| !name.is_empty())
        };
        let name = Some(call.name.clone()).filter(|name| !name.is_empty());
        let name = name.or_else(|| field("name")).or_else(|| field("generateName"));
        let name = name.unwrap_or_else(|| "Unknown".into());
        Status::forbidden(call.resource.group_resource(), &name, cause)
    }
}

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
