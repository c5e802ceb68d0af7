//! The rules that definitions give their objects themselves (`x-kubernetes-validations`).
use api::custom;
use api::field::{Error, ErrorList};
use api::kinds::Resource;
use serde_json::Value;

/// What the definition's own rules have against an object, once the schema has been asked: `errors` is
/// what is known already. The old object is none when the new one comes to be.
///
/// The rules are expressions in CEL. Until they are compiled here, they are not asked.
pub fn faults(
    resource: &Resource,
    errors: &[Error],
    _new: &Value,
    _old: Option<&Value>,
) -> ErrorList {
    let Some(definition) = &resource.definition else { return ErrorList::new() };
    if !definition.version.has_rules {
        return ErrorList::new();
    }
    custom::unchecked(errors).into_iter().collect()
}
