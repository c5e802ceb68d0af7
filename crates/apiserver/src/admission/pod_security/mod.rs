//! Pod Security: how much a namespace lets its pods do to their node.
//!
//! ```text
//!  policy:  a namespace's labels and the defaults ─► Policy: enforce, audit, warn (level, version)
//!  checks:  one row per check ─► evaluate(level, version, pod) ─► violations
//!  this:    pods are refused, templates warned about; a namespace that grows stricter hears which
//!           of its pods would not be let in again
//! ```
//! Policy and checks are pure.
mod checks;
mod configuration;
mod namespaces;
mod policy;

pub use configuration::{Configuration, configure};

use super::{Attributes, Operation, items, namespace, text};
use api::status::Status;
use checks::Violations;
use policy::{Level, LevelVersion, Policy};
use serde_json::Value;

pub const KINDS: &[(&str, &str)] = &[
    ("", "Pod"),
    ("", "Namespace"),
    ("", "ReplicationController"),
    ("", "PodTemplate"),
    ("apps", "ReplicaSet"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "Job"),
    ("batch", "CronJob"),
];

/// What goes to the audit log begins with this.
const PREFIX: &str = "pod-security.kubernetes.io/";
/// Subresources that change nothing a level is about.
const IGNORED: &[&str] =
    &["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !matches!(attributes.operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    match attributes.call.resource.built_in() {
        ("", "Namespace") if !attributes.is_part() => namespaces::validate(attributes).await,
        ("", "Namespace") => Ok(()),
        ("", "Pod") if IGNORED.contains(&attributes.part()) => Ok(()),
        ("", "Pod") => validate_pod(attributes, true).await,
        _ if attributes.is_part() => Ok(()),
        _ => validate_pod(attributes, false).await,
    }
}

/// A pod is refused; a template is only remarked on, since its pods come later.
async fn validate_pod(attributes: &mut Attributes<'_>, enforce: bool) -> Result<(), Status> {
    let settings = &attributes.api.admission().settings.pod_security;
    let exempt = |reason: &str| attributes.annotate(&format!("{PREFIX}exempt"), reason);
    if settings.namespaces.contains(&attributes.call.namespace) {
        exempt("namespace");
        return Ok(());
    }
    if settings.usernames.contains(&attributes.user.name) {
        exempt("user");
        return Ok(());
    }
    let place = &attributes.call.namespace;
    let namespace = match namespace::of(attributes).await {
        Ok(namespace) => namespace,
        Err(status) => {
            let text = format!("failed to lookup namespace {place:?}");
            attributes.annotate(&format!("{PREFIX}error"), format!("{text}: {}", status.message));
            return if enforce { Err(Status::internal_error(text)) } else { Ok(()) };
        }
    };
    let (policy, errors) = settings.defaults.of_labels(&namespace["metadata"]["labels"]);
    let idle = |level: Level| level == Level::Privileged;
    let quiet = idle(policy.audit.level) && idle(policy.warn.level);
    if errors.is_empty() && quiet && (!enforce || idle(policy.enforce.level)) {
        if enforce {
            attributes.annotate(&format!("{PREFIX}enforce-policy"), "privileged:latest");
        }
        return Ok(());
    }
    let object = attributes.new_object();
    let Some(pod) = template(object, attributes.call.resource.built_in().1) else { return Ok(()) };
    if enforce && attributes.old.is_some_and(|old| !is_significant(object, old)) {
        return Ok(());
    }
    if settings.runtime_classes.iter().any(|class| pod["spec"]["runtimeClassName"] == *class) {
        exempt("runtimeClass");
        return Ok(());
    }
    if !errors.is_empty() {
        let text = api::field::aggregate(&errors).unwrap_or_default();
        attributes.annotate(&format!("{PREFIX}error"), format!("Failed to parse policy: {text}"));
    }
    judge(attributes, &pod.clone(), policy, enforce)
}

fn judge(
    attributes: &mut Attributes<'_>,
    pod: &Value,
    policy: Policy,
    enforce: bool,
) -> Result<(), Status> {
    let shown = |mode: LevelVersion, found: &Violations| {
        format!("PodSecurity {:?}: {}", mode.to_string(), found.details())
    };
    let mut refused = None;
    if enforce {
        attributes.annotate(&format!("{PREFIX}enforce-policy"), policy.enforce.to_string());
        let found = checks::evaluate(policy.enforce, pod);
        if !found.is_empty() {
            refused = Some(format!("violates {}", shown(policy.enforce, &found)));
        }
    }
    let found = checks::evaluate(policy.audit, pod);
    if !found.is_empty() {
        let text = format!("would violate {}", shown(policy.audit, &found));
        attributes.annotate(&format!("{PREFIX}audit-violations"), text);
    }
    if let Some(cause) = refused {
        return Err(attributes.forbidden_by_name(cause));
    }
    let found = checks::evaluate(policy.warn, pod);
    if !found.is_empty() {
        attributes.warn(format!("would violate {}", shown(policy.warn, &found)));
    }
    Ok(())
}

/// The pod that an object is or makes.
fn template<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    match kind {
        "Pod" => Some(object),
        "PodTemplate" => object.get("template"),
        "CronJob" => object["spec"]["jobTemplate"]["spec"].get("template"),
        _ => object["spec"].get("template"),
    }
}

/// Whether an update brings new containers or images; all else was judged before.
fn is_significant(pod: &Value, old: &Value) -> bool {
    let list = |pod: &Value, name: &str| items(&pod["spec"][name]).to_vec();
    let changed = |name: &str| {
        let (new, old) = (list(pod, name), list(old, name));
        new.len() != old.len()
            || new.iter().zip(&old).any(|(new, old)| new["image"] != old["image"])
    };
    let name = "ephemeralContainers";
    let known = list(old, name);
    changed("containers")
        || changed("initContainers")
        || list(pod, name).iter().any(|new| {
            !known.iter().any(|old| old["name"] == new["name"] && old["image"] == new["image"])
        })
}

impl Attributes<'_> {
    /// A refusal with the name of the request alone.
    fn forbidden_by_name(&self, cause: String) -> Status {
        let name = match self.call.name.as_str() {
            "" => text(&self.new_object()["metadata"]["name"]),
            name => name,
        };
        Status::forbidden(self.call.resource.group_resource(), name, cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_new_images_are_judged_again() {
        let pod = |image: &str, extra: Value| {
            json!({"spec": {
            "containers": [{"name": "a", "image": image}], "ephemeralContainers": extra}})
        };
        let old = pod("x", json!([]));
        assert!(!is_significant(&pod("x", json!([])), &old));
        assert!(is_significant(&pod("y", json!([])), &old));
        assert!(is_significant(&pod("x", json!([{"name": "d", "image": "z"}])), &old));
    }
}
