//! The objects that a binding gives its policy as parameters.
use super::compiled::shown;
use crate::extend::definitions;
use crate::server::ApiServer;
use crate::state::{objects, stored};
use api::kinds::{Resource, ResourceRef, Scope};
use api::selector::label::Selector;
use api::status::Status;
use k8s_openapi::api::admissionregistration::v1::{ParamKind, ParamRef};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::KeyValue;
use store::cache::At;

/// The resource of a policy's parameters.
pub fn resource(api: &ApiServer, kind: &ParamKind) -> Result<ResourceRef, String> {
    let version = kind.api_version.as_deref().unwrap_or_default();
    let registry = api.registry();
    let found = registry.find_kind(version, kind.kind.as_deref().unwrap_or_default());
    found.cloned().ok_or_else(|| {
        format!("failed to find resource referenced by paramKind: '{}'", shown(kind))
    })
}

/// The parameters to evaluate with, one after the other: null where there are none to be had, nothing
/// where they are missing and that is allowed.
pub async fn collect(
    api: &ApiServer,
    kind: Option<&ParamKind>,
    reference: Option<&ParamRef>,
    namespace: &str,
) -> Result<Vec<Value>, String> {
    let (Some(kind), Some(reference)) = (kind, reference) else { return Ok(vec![Value::Null]) };
    let resource = &*resource(api, kind)?;
    let given = reference.namespace.as_deref().unwrap_or_default();
    let place = match (resource.scope, given) {
        (Scope::Cluster, "") => "",
        (Scope::Cluster, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
                .to_owned());
        }
        (Scope::Namespaced, "") if namespace.is_empty() => {
            return Err("cannot use namespaced paramRef in policy binding that matches \
                        cluster-scoped resources"
                .to_owned());
        }
        (Scope::Namespaced, "") => namespace,
        (Scope::Namespaced, given) => given,
    };
    let found = match (reference.name.as_deref().unwrap_or_default(), &reference.selector) {
        ("", None) => return Err("one of name or selector must be provided".to_owned()),
        ("", Some(selector)) => {
            let selector =
                Selector::from_label_selector(Some(selector)).map_err(|error| error.to_string())?;
            let mut all = list(api, resource, place).await.map_err(|status| status.message)?;
            all.retain(|object| selector.matches(&labels(object)));
            all
        }
        (name, _) => match get(api, resource, place, name).await {
            Ok(object) => vec![object],
            Err(status) if status.code == 404 => Vec::new(),
            Err(status) => return Err(status.message),
        },
    };
    if found.is_empty() && reference.parameter_not_found_action.as_deref() == Some("Deny") {
        return Err(
            "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()
        );
    }
    Ok(found)
}

async fn list(api: &ApiServer, resource: &Resource, namespace: &str) -> Result<Vec<Value>, Status> {
    let found = objects::stored(api, resource, namespace, At::Latest).await?;
    let found = definitions::converted(api, resource, found).await?;
    let read = |stored: &Arc<KeyValue>| {
        api.unreadable().skip(stored, resource, stored::decode(stored, resource))
    };
    Ok(found.iter().filter_map(read).collect())
}

async fn get(
    api: &ApiServer,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Value, Status> {
    stored::decode(&*definitions::current(api, resource, namespace, name).await?, resource)
}

fn labels(object: &Value) -> BTreeMap<String, String> {
    let labels = object["metadata"]["labels"].as_object();
    let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(pair).collect()
}
