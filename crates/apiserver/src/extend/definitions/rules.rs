//! The rules that definitions give their objects themselves (`x-kubernetes-validations`).
use api::custom;
use api::field::{Error, ErrorList};
use api::kinds::Resource;
use cel::validations::{Rules, Said, Update, definition_faults};
use serde_json::Value;

/// What the definition's own rules have against an object, once the schema has been asked: `errors` is
/// what is known already. The old object is none when the new one comes to be.
pub fn said(resource: &Resource, errors: &[Error], new: &Value, old: Option<&Value>) -> Said {
    let definition = resource.definition.as_ref();
    let Some((version, kept)) = definition
        .and_then(|definition| Some((&definition.version, definition.version.rules.as_ref()?)))
    else {
        return Said::default();
    };
    if let Some(error) = custom::unchecked(errors) {
        return Said { errors: vec![error], ..Said::default() };
    }
    let rules = kept.get(|| Rules::of(&version.openapi)).and_then(Option::as_ref);
    let update = Update { new, old, ratchets: true };
    rules.map_or_else(Said::default, |rules| rules.said(&version.openapi, update))
}

/// What is wrong with the rules of a definition that is written.
pub fn faults(
    resource: &Resource,
    errors: &[Error],
    new: &Value,
    old: Option<&Value>,
) -> ErrorList {
    match super::are(resource) {
        true => definition_faults(new, old, errors),
        false => ErrorList::new(),
    }
}
