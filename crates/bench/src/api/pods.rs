//! Creating pods, and what share of it the rules take: the kind with the most of them.
use super::load::{Call, name};
use super::place::Place;
use crate::codec;
use api::codec::json;
use api::kinds;
use api::rules::defaults;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use std::hint::black_box;
use testkit::client::JSON;

/// A pod that nobody has scheduled yet, as a controller would create it.
fn pod(name: &str) -> Value {
    let sample: Value = serde_json::from_str(codec::POD).expect("the sample is JSON");
    let mut spec =
        json!({ "automountServiceAccountToken": false, "serviceAccountName": "default" });
    for field in ["containers", "initContainers", "volumes", "affinity", "securityContext"] {
        if let Some(value) = sample["spec"].get(field) {
            spec[field] = value.clone();
        }
    }
    let metadata = &sample["metadata"];
    let (labels, annotations) = (&metadata["labels"], &metadata["annotations"]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": labels, "annotations": annotations },
        "spec": spec,
    })
}

pub fn create(place: &Place) -> impl Fn(usize) -> Call + Send + Sync + use<> {
    let (path, sample) = (place.pods.clone(), pod("NAME").to_string());
    move |number| Call {
        method: Method::POST,
        path: path.clone(),
        accept: JSON,
        body: Bytes::from(sample.replace("NAME", &name(number))),
    }
}

/// Microseconds that the rules take of one such creation: preparing and validating, on the decoded
/// object with its defaults, in this process.
pub fn rules() -> f64 {
    let row = kinds::find_kind("v1", "Pod").expect("pods are in the registry");
    let mut pod =
        json::canonicalize(pod("object-000000"), row.ty()).expect("the sample fits").value;
    pod["metadata"]["namespace"] = "bench".into();
    pod["metadata"]["uid"] = "5f0c7e1e-3f0e-4d8b-9c43-0a6f6d0c7b11".into();
    pod["metadata"]["creationTimestamp"] = "2026-03-01T12:00:00Z".into();
    defaults::set(&mut pod, row.ty());
    let (copying, _) = codec::time(&mut || {
        black_box(pod.clone());
    });
    let (all, _) = codec::time(&mut || {
        let mut pod = pod.clone();
        (row.rules.prepare_create)(row, &mut pod);
        let verdict = (row.rules.validate_create)(row, &pod).expect("sound metadata");
        assert!(verdict.errors.is_empty(), "the sample is valid: {:?}", verdict.errors);
        black_box(verdict);
    });
    (all.saturating_sub(copying)).as_secs_f64() * 1e6
}
