//! How fast objects are decoded, encoded and patched: a typical pod of some 4 KB, one thread.
use crate::allocations;
use crate::report::Report;
use api::codec::object::{self, Encoding};
use api::codec::{json, protobuf};
use api::kinds;
use serde_json::Value;
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
        let figures =
            [("µs", time.as_secs_f64() * 1e6), ("MB/s", megabytes), ("allocations", allocations), ("bytes", bytes as f64)];
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
    patches(&pod, as_json.len(), &mut measure);
}

/// The time of one call, as the best of several rounds (noise only ever adds), and its
/// allocations.
fn time(work: &mut dyn FnMut()) -> (Duration, f64) {
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

include!("pod.rs");
