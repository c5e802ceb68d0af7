//! Whether a policy or a binding is about a request.
use super::input::namespace_of;
use crate::admission::{Attributes, Operation, namespaces};
use crate::state::objects;
use api::kinds::{Resource, ResourceRef};
use api::rules::REVIEWS;
use api::selector::label::Selector;
use api::status::Status;
use k8s_openapi::api::admissionregistration::v1::{MatchResources, NamedRuleWithOperations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;
use std::collections::BTreeMap;
use tokio::sync::OnceCell;

/// What policies that are stored never see: themselves, so that none can stop its own removal.
const POLICIES: &[&str] = &[
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// Who among the policies may see a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Nobody,
    /// Those of manifests alone.
    Manifests,
    All,
}

impl Seen {
    pub fn of(resource: &Resource) -> Seen {
        if REVIEWS.contains(&(resource.group, resource.plural)) {
            Seen::Nobody
        } else if resource.group == "admissionregistration.k8s.io"
            && POLICIES.contains(&resource.plural)
        {
            Seen::Manifests
        } else {
            Seen::All
        }
    }

    /// Whether it may be seen by a policy that is of a manifest, or is not.
    pub fn by(self, is_manifest: bool) -> bool {
        self == Seen::All || (self == Seen::Manifests && is_manifest)
    }
}

/// The namespace that a request is in, read when the first policy wants to know: one that is gone is in
/// nobody's way before.
#[derive(Default)]
pub struct Place(OnceCell<Value>);

impl Place {
    /// Null for what is in none.
    pub async fn namespace(&self, attributes: &Attributes<'_>) -> Result<&Value, Status> {
        self.0.get_or_try_init(|| namespace(attributes)).await
    }
}

async fn namespace(attributes: &Attributes<'_>) -> Result<Value, Status> {
    let name = namespace_of(attributes);
    if name.is_empty() || attributes.is("", "Namespace") {
        return Ok(Value::Null);
    }
    match objects::get(attributes.api, namespaces(), "", name).await {
        Ok(namespace) => Ok(namespace),
        // What is left of a namespace that is gone may go too.
        Err(_) if attributes.operation == Operation::Delete => Ok(Value::Null),
        Err(status) => Err(status),
    }
}

/// The resource as which the request matches; none if it does not.
pub async fn matches(
    matched: &MatchResources,
    attributes: &Attributes<'_>,
    place: &Place,
) -> Result<Option<ResourceRef>, String> {
    let resource = &attributes.call.resource;
    let selector = matched.namespace_selector.as_ref();
    let in_namespace = selects_namespace(selector, attributes, place).await;
    if in_namespace == Ok(false) {
        return Ok(None);
    }
    let on_object = selects_object(matched.object_selector.as_ref(), attributes);
    if on_object == Ok(false) {
        return Ok(None);
    }
    let exact = matched.match_policy.as_deref() == Some("Exact");
    let excluded = matched.exclude_resource_rules.as_deref().unwrap_or_default();
    if any_rule(excluded, attributes, resource, exact).is_some() {
        return Ok(None);
    }
    let rules = matched.resource_rules.as_deref().unwrap_or_default();
    let found = match rules.is_empty() {
        true => Some(resource.clone()),
        false => any_rule(rules, attributes, resource, exact),
    };
    if found.is_some() {
        // That a selector is wrong matters only for what the policy is about.
        in_namespace?;
        on_object?;
    }
    Ok(found)
}

fn any_rule(
    rules: &[NamedRuleWithOperations],
    attributes: &Attributes<'_>,
    resource: &ResourceRef,
    exact: bool,
) -> Option<ResourceRef> {
    let named = |rule: &NamedRuleWithOperations| {
        let names = rule.resource_names.as_deref().unwrap_or_default();
        let name = match attributes.call.name.as_str() {
            "" => attributes.new_object()["metadata"]["name"].as_str().unwrap_or_default(),
            name => name,
        };
        names.is_empty() || names.iter().any(|known| known == name)
    };
    let fits = |resource: &Resource| {
        rules.iter().any(|rule| rule_fits(rule, attributes, resource) && named(rule))
    };
    if fits(resource) {
        return Some(resource.clone());
    }
    if exact || rules.is_empty() {
        return None;
    }
    attributes.api.registry().others(resource).find(|other| fits(other)).cloned()
}

fn rule_fits(
    rule: &NamedRuleWithOperations,
    attributes: &Attributes<'_>,
    resource: &Resource,
) -> bool {
    let has = |list: &Option<Vec<String>>, wanted: &str| {
        list.iter().flatten().any(|item| item == "*" || item == wanted)
    };
    let part = attributes.part();
    let on = rule.resources.iter().flatten().any(|pattern| {
        let (name, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
        (name == "*" || name == resource.plural) && (sub == part || sub == "*")
    });
    let namespaced = !attributes.is("", "Namespace") && !namespace_of(attributes).is_empty();
    let scope = match rule.scope.as_deref() {
        Some("Namespaced") => namespaced,
        Some("Cluster") => !namespaced,
        _ => true,
    };
    scope
        && on
        && has(&rule.operations, attributes.operation.as_str())
        && has(&rule.api_groups, resource.group)
        && has(&rule.api_versions, resource.version)
}

fn parsed(selector: Option<&LabelSelector>) -> Result<Selector, String> {
    match selector {
        None => Ok(Selector::everything()),
        Some(selector) => {
            Selector::from_label_selector(Some(selector)).map_err(|error| error.to_string())
        }
    }
}

fn labels(object: &Value) -> BTreeMap<String, String> {
    let labels = object["metadata"]["labels"].as_object();
    let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(pair).collect()
}

async fn selects_namespace(
    selector: Option<&LabelSelector>,
    attributes: &Attributes<'_>,
    place: &Place,
) -> Result<bool, String> {
    let selector = parsed(selector)?;
    if selector.is_everything() {
        return Ok(true);
    }
    if attributes.is("", "Namespace") {
        let object = match attributes.operation {
            Operation::Delete => attributes.old.unwrap_or(&Value::Null),
            _ => attributes.new_object(),
        };
        return Ok(selector.matches(&labels(object)));
    }
    let namespace = place.namespace(attributes).await.map_err(unknown)?;
    // What is in no namespace cannot be left out by one.
    Ok(namespace.is_null() || selector.matches(&labels(namespace)))
}

fn unknown(status: Status) -> String {
    match status.is_not_found() {
        true => status.message,
        false => Status::internal_error(status.message).message,
    }
}

fn selects_object(
    selector: Option<&LabelSelector>,
    attributes: &Attributes<'_>,
) -> Result<bool, String> {
    let selector = parsed(selector)?;
    let selects = |object: &Value| object.is_object() && selector.matches(&labels(object));
    Ok(selector.is_everything()
        || selects(attributes.new_object())
        || attributes.old.is_some_and(selects))
}
