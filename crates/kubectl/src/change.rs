//! The patch from what an object is to what it shall be: strategic for built-in kinds, whose lists
//! have keys, and a plain merge for others.
use crate::failure::{Failure, Outcome};
use api::patch::{merge_diff, strategic};
use client::ApiResource;
use client::source::Patch;
use serde_json::Value;

pub fn patch(of: &ApiResource, from: &Value, to: &Value) -> Outcome<Patch> {
    match of.row {
        Some(row) => strategic::two_way(from, to, row.ty())
            .map(Patch::Strategic)
            .map_err(|error| Failure::Plain(error.to_string())),
        None => merge(from, to),
    }
}

pub fn merge(from: &Value, to: &Value) -> Outcome<Patch> {
    merge_diff::two_way(from, to)
        .map(Patch::Merge)
        .map_err(|error| Failure::Plain(error.to_string()))
}

pub fn is_empty(patch: &Patch) -> bool {
    patch.value().as_object().is_some_and(serde_json::Map::is_empty)
}

/// The path to a pod's spec in a workload, or in the pod itself.
pub fn pod_spec(object: &mut Value) -> Option<&mut Value> {
    let pointer = match object["kind"].as_str()? {
        "Pod" => "/spec",
        "CronJob" => "/spec/jobTemplate/spec/template/spec",
        _ => "/spec/template/spec",
    };
    object.pointer_mut(pointer).filter(|spec| spec.is_object())
}
