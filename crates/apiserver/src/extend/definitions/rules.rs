//! The rules that definitions give their objects themselves (`x-kubernetes-validations`).
use crate::extend::counts;
use crate::server::ApiServer;
use api::custom;
use api::field::{Error, ErrorList};
use api::kinds::Resource;
use cel::validations::{Rules, Said, Update, definition_faults};
use serde_json::Value;
use std::time::Instant;

/// What the definition's own rules have against an object, once the schema has been asked: `errors` is
/// what is known already. The old object is none when the new one comes to be.
pub fn said(
    api: &ApiServer,
    resource: &Resource,
    errors: &[Error],
    new: &Value,
    old: Option<&Value>,
) -> Said {
    let definition = resource.definition.as_ref();
    let Some((version, kept)) = definition
        .and_then(|definition| Some((&definition.version, definition.version.rules.as_ref()?)))
    else {
        return Said::default();
    };
    if let Some(error) = custom::unchecked(errors) {
        return Said { errors: vec![error], ..Said::default() };
    }
    let registry = &api.extend().counts;
    let compile = || {
        let begun = Instant::now();
        let rules = Rules::of(&version.openapi);
        counts::compiled(registry, begun.elapsed());
        rules
    };
    let Some(rules) = kept.get(compile).and_then(Option::as_ref) else { return Said::default() };
    let begun = Instant::now();
    let said = rules.said(&version.openapi, Update { new, old, ratchets: true });
    counts::evaluated(registry, begun.elapsed());
    said
}

/// What is wrong with the rules of a definition that is written.
pub fn faults(
    api: &ApiServer,
    resource: &Resource,
    errors: &[Error],
    new: &Value,
    old: Option<&Value>,
) -> ErrorList {
    if !super::are(resource) {
        return ErrorList::new();
    }
    let begun = Instant::now();
    let faults = definition_faults(new, old, errors);
    counts::compiled(&api.extend().counts, begun.elapsed());
    faults
}
