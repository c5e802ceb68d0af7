//! One object in another version of its kind.
//!
//! v1.37 serves two resources in two versions: HorizontalPodAutoscaler (autoscaling/v1 and v2)
//! and Event (core and events.k8s.io). A conversion moves fields about in the tree and leaves the
//! canonical form to the target type's decoder. Nothing is lost: what the older autoscaler cannot
//! say travels in annotations, as upstream has it.
mod autoscaling;
mod event;
mod moves;

use crate::codec::object::TypeMeta;
use crate::codec::{DecodeError, json};
use crate::quote::Quoted;
use crate::schema::builtin;
use serde_json::{Map, Value};
use std::num::IntErrorKind;

#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    #[error("{kind} is not served as both {from} and {to}")]
    Unrelated { kind: String, from: String, to: String },
    #[error("failed to convert {kind} to {to}")]
    Broken { kind: String, to: String, source: DecodeError },
}

struct Conversion {
    kind: &'static str,
    from: &'static str,
    to: &'static str,
    convert: fn(&mut Map<String, Value>),
}

const CONVERSIONS: &[Conversion] = &[
    Conversion { kind: "Event", from: "v1", to: "events.k8s.io/v1", convert: event::from_core },
    Conversion { kind: "Event", from: "events.k8s.io/v1", to: "v1", convert: event::to_core },
    Conversion {
        kind: "HorizontalPodAutoscaler",
        from: "autoscaling/v1",
        to: "autoscaling/v2",
        convert: autoscaling::v1_to_v2,
    },
    Conversion {
        kind: "HorizontalPodAutoscaler",
        from: "autoscaling/v2",
        to: "autoscaling/v1",
        convert: autoscaling::v2_to_v1,
    },
];

/// The object as `api_version` has it. The object says itself what it is now.
pub fn convert(mut value: Value, api_version: &str) -> Result<Value, ConvertError> {
    let meta = TypeMeta::of(&value);
    if meta.api_version == api_version {
        return Ok(value);
    }
    let target = TypeMeta { api_version: api_version.to_owned(), kind: meta.kind.clone() };
    let row = CONVERSIONS
        .iter()
        .find(|row| row.kind == meta.kind && row.from == meta.api_version && row.to == api_version);
    let (Some(row), Some(ty), Value::Object(object)) = (row, target.type_in(builtin()), &mut value)
    else {
        let TypeMeta { api_version: from, kind } = meta;
        return Err(ConvertError::Unrelated { kind, from, to: target.api_version });
    };
    (row.convert)(object);
    target.write_into(&mut value);
    let decoded = json::canonicalize(value, ty).map_err(|source| ConvertError::Broken {
        kind: meta.kind,
        to: target.api_version,
        source,
    })?;
    Ok(decoded.value)
}

/// Why an object cannot be read into the form that all versions share, in Go's words.
pub fn unreadable(object: &Value) -> Option<String> {
    const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
    let text = object["metadata"]["annotations"][TEMPLATE_GENERATION].as_str()?;
    if object["kind"] != "DaemonSet" {
        return None;
    }
    let fault = match text.parse::<i64>().map_err(|error| *error.kind()) {
        Ok(_) => return None,
        Err(IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => "value out of range",
        Err(_) => "invalid syntax",
    };
    Some(format!("strconv.ParseInt: parsing {}: {fault}", Quoted(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::RESOURCES;
    use serde_json::json;

    #[test]
    fn every_version_converts_to_the_one_it_is_stored_in_and_back() {
        for resource in RESOURCES.iter().filter(|r| r.stored_as.is_some()) {
            let object = json!({"apiVersion": resource.api_version(), "kind": resource.kind});
            let stored = convert(object, &resource.storage_version()).unwrap();
            assert_eq!(stored["apiVersion"], resource.storage_version());
            assert_eq!(
                convert(stored, &resource.api_version()).unwrap()["apiVersion"],
                resource.api_version()
            );
        }
    }

    #[test]
    fn an_unrelated_version_is_an_error() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod"});
        let error = convert(pod, "v2").unwrap_err();
        assert_eq!(error.to_string(), "Pod is not served as both v1 and v2");
    }
}
