//! Objects of a definition under the name of another of its versions. Without a webhook nothing else
//! changes; one that has to be asked is asked beforehand (`extend::definitions`).
use api::custom::{self, Definition};
use api::status::Status;
use serde_json::Value;

/// A stored object in the version of its row.
pub fn read(object: Value, definition: &Definition) -> Result<Value, String> {
    custom::read(object, definition, &|object, to| match definition.family.converts_by_webhook() {
        true => Err(unasked(definition)),
        false => Ok(custom::renamed(object, to)),
    })
}

/// An object in the version that it is stored in, if no webhook has to be asked.
pub fn to_store(object: Value, definition: &Definition, version: &str) -> Result<Value, Status> {
    match definition.family.converts_by_webhook() {
        true => Err(Status::internal_error(unasked(definition))),
        false => convert(object, definition, version),
    }
}

fn unasked(definition: &Definition) -> String {
    format!("the conversion webhook of {} was not asked", definition.family.name)
}

/// An object under another version's name: what others are shown that are not told of its content.
pub fn convert(object: Value, definition: &Definition, api_version: &str) -> Result<Value, Status> {
    match definition.family.version(api_version) {
        Some(to) => Ok(custom::renamed(object, to)),
        None => Err(Status::internal_error(format!(
            "{} has no version {api_version}",
            definition.family.name
        ))),
    }
}
