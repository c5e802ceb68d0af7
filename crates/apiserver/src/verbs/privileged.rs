//! Administrators' access to devices, which the label of a namespace permits.
use super::Context;
use crate::state::{objects, peculiar};
use api::field::{Error, ErrorList, Path};
use api::kinds::find_kind;
use serde_json::Value;

const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Why a claim, or a template of one, may not have what it asks for. It comes before all other
/// faults of the object.
pub async fn faults(context: Context<'_>, new: &Value, old: Option<&Value>) -> ErrorList {
    let peculiar = peculiar::of(&context.call.resource);
    let Some(list) = (peculiar.admin_access)(context.part(), old.is_none()) else {
        return ErrorList::new();
    };
    if old.is_some_and(|old| asked(old, list).is_some()) {
        return ErrorList::new();
    }
    let Some(place) = asked(new, list) else { return ErrorList::new() };
    let namespaces = find_kind("v1", "Namespace").expect("in the registry");
    let namespace = objects::get(context.api, namespaces, "", &context.call.namespace).await;
    if namespace.is_ok_and(|found| found["metadata"]["labels"][LABEL] == "true") {
        return ErrorList::new();
    }
    // A template is told as its claims would be.
    let list = list.replacen("/spec/spec", "/spec", 1)[1..].replace('/', ".");
    let (list, detail) = (Path::new(&list), "label on the containing namespace");
    let detail = format!("admin access to devices requires the `{LABEL}: true` {detail}");
    vec![Error::forbidden(&list.index(place).child("adminAccess"), detail)]
}

/// The first that asks for it.
fn asked(claim: &Value, list: &str) -> Option<usize> {
    let items = claim.pointer(list).and_then(Value::as_array)?;
    items
        .iter()
        .position(|item| item["adminAccess"] == true || item["exactly"]["adminAccess"] == true)
}
