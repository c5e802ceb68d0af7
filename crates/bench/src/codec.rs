//! How fast objects are decoded, encoded and patched: a typical pod of some 4 KB, one thread.
use crate::allocations;
use crate::report::Report;
use api::codec::object::{self, Encoding};
use api::codec::{json, protobuf};
use api::kinds::{self, Resource};
use api::patch;
use api::patch::apply::FieldManager;
use api::patch::apply::typed::View;
use api::patch::json_patch::{self, Limits};
use serde_json::Value;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

pub fn run(_: &[String], report: &mut Report) {
    let row = kinds::find_kind("v1", "Pod").expect("pods are in the registry");
    let ty = row.ty();
    let pod = json::decode(POD.as_bytes(), ty).expect("the sample decodes").value;
    let as_json = object::encode(&pod, Encoding::Json, ty);
    let as_protobuf = object::encode(&pod, Encoding::Protobuf, ty);
    let as_yaml = object::encode(&pod, Encoding::Yaml, ty);

    let mut measure = |name: &str, bytes: usize, work: &mut dyn FnMut()| {
        let (time, allocations) = time(work);
        let megabytes = bytes as f64 / 1e6 / time.as_secs_f64();
        let figures = [
            ("µs", time.as_secs_f64() * 1e6),
            ("MB/s", megabytes),
            ("allocations", allocations),
            ("bytes", bytes as f64),
        ];
        report.row(name, &figures);
    };
    measure("json → tree, strict", as_json.len(), &mut || {
        black_box(json::decode(&as_json, ty).expect("decodes"));
    });
    measure("json → serde_json tree, for scale", as_json.len(), &mut || {
        black_box(serde_json::from_slice::<Value>(&as_json).expect("decodes"));
    });
    measure("json → typed", as_json.len(), &mut || {
        black_box((row.typed.decode)(&as_json).expect("decodes"));
    });
    measure("tree → json", as_json.len(), &mut || {
        black_box(object::encode(&pod, Encoding::Json, ty));
    });
    measure("protobuf → tree", as_protobuf.len(), &mut || {
        black_box(protobuf::decode(&as_protobuf, ty).expect("decodes"));
    });
    measure("tree → protobuf", as_protobuf.len(), &mut || {
        black_box(protobuf::encode(&pod, ty));
    });
    measure("protobuf → json", as_protobuf.len(), &mut || {
        let tree = protobuf::decode(&as_protobuf, ty).expect("decodes");
        black_box(object::encode(&tree, Encoding::Json, ty));
    });
    measure("json → protobuf", as_json.len(), &mut || {
        let tree = json::decode(&as_json, ty).expect("decodes");
        black_box(protobuf::encode(&tree.value, ty));
    });
    measure("yaml → tree", as_yaml.len(), &mut || {
        black_box(object::decode(&as_yaml, Encoding::Yaml, ty).expect("decodes"));
    });

    let label = serde_json::json!({ "metadata": { "labels": { "color": "blue" } } });
    let image =
        serde_json::json!({ "spec": { "containers": [{ "name": "web", "image": "web:4" }] } });
    let operations = serde_json::json!([{ "op": "replace", "path": "/spec/containers/0/image", "value": "web:4" }]);
    measure("merge patch", as_json.len(), &mut || {
        let mut patched = pod.clone();
        patch::merge::apply(&mut patched, &label).expect("applies");
        black_box(patched);
    });
    measure("json patch", as_json.len(), &mut || {
        let limits = Limits::default();
        let patch = json_patch::Patch::decode(operations.clone(), &limits).expect("decodes");
        black_box(patch.apply(pod.clone(), &limits).expect("applies"));
    });
    measure("strategic merge patch", as_json.len(), &mut || {
        black_box(patch::strategic::merge(pod.clone(), image.clone(), ty).expect("applies"));
    });
    apply(&pod, row, as_json.len(), &mut measure);
}

/// Takes a name, the bytes that count, and the work.
type Measure<'a> = dyn FnMut(&str, usize, &mut dyn FnMut()) + 'a;

/// Server-side apply, and the ownership that every update has to work out.
fn apply(pod: &Value, row: &Resource, bytes: usize, measure: &mut Measure<'_>) {
    let now = jiff::Timestamp::UNIX_EPOCH;
    let types = |_: &str| Some(row.ty());
    let convert = |value: &Value, _: &str, _: &str| Ok(value.clone());
    let manager = FieldManager {
        api_version: "v1",
        kind: "Pod",
        subresource: "",
        types: &types,
        convert: &convert,
        reset: &BTreeMap::new(),
        view: View::Typed,
        unchecked: false,
    };
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "labels": { "color": "blue" } },
    });
    let mut changed = pod.clone();
    changed["status"]["phase"] = "Succeeded".into();
    measure("server-side apply", bytes, &mut || {
        black_box(manager.apply(pod, &config, "painter", false, now).expect("applies"));
    });
    measure("update's managed fields", bytes, &mut || {
        black_box(manager.update(pod, changed.clone(), "kubelet", now).expect("updates"));
    });
}

pub const POD: &str = include_str!("pod.json");

/// The time of one call, as the best of several rounds (noise only ever adds), and its
/// allocations.
pub fn time(work: &mut dyn FnMut()) -> (Duration, f64) {
    const ROUNDS: u32 = 7;
    const ROUND: Duration = Duration::from_millis(150);
    work();
    let before = allocations::count();
    work();
    let allocations = (allocations::count() - before) as f64;
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut calls = 0;
        while start.elapsed() < ROUND {
            for _ in 0..16 {
                work();
            }
            calls += 16;
        }
        best = best.min(start.elapsed() / calls);
    }
    (best, allocations)
}
