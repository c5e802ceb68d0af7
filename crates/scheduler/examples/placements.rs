//! What our plugins say about pods in clusters, one JSON object per line in and out, so that another
//! scheduler can be asked the same and compared (`conformance/placements` asks upstream's):
//!
//!     cargo run -p scheduler --example placements -- cases.jsonl > ours.jsonl
//!
//! A case is `{"nodes": […], "pods": […], "claims": […], …, "pod": …}`, a list for each kind that decisions
//! look at; the answer names what stopped the pod, why nodes were refused, every plugin's scores, the devices
//! that claims would get, and who would have to go where nothing fits.
use api::names::NamespacedName;
use api::object::{Keep, Object};
use jiff::Timestamp;
use scheduler::{Configuration, Engine};
use serde_json::{Value, json};
use std::io::BufRead;
use std::sync::Arc;

fn kept<K: Keep>(tree: &Value) -> Arc<K> {
    let object = Arc::new(Object::from_tree(tree).expect("an object"));
    K::keep(&object).unwrap_or_else(|error| panic!("{error}: {tree}"))
}

fn main() {
    let path = std::env::args().nth(1).expect("a file of cases");
    let file = std::fs::File::open(&path).expect("a file of cases");
    for line in std::io::BufReader::new(file).lines() {
        let case: Value = serde_json::from_str(&line.expect("a line")).expect("a case");
        println!("{}", answer(&case));
    }
}

fn name(object: &Value) -> Arc<str> {
    object["metadata"]["name"].as_str().unwrap_or_default().into()
}

fn key(object: &Value) -> NamespacedName {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    NamespacedName::new(namespace, &name(object))
}

/// The cluster of a case.
fn engine(case: &Value, now: Timestamp) -> Engine {
    let mut engine = Engine::new(&Configuration::default(), 1);
    let list = |name: &str| case[name].as_array().cloned().unwrap_or_default();
    for namespace in list("namespaces") {
        engine.namespace(&name(&namespace), Some(&kept(&namespace)), now);
    }
    for node in list("nodes") {
        engine.node(None, Some(&kept(&node)), now);
    }
    for pod in list("pods") {
        engine.pod(None, Some(&kept(&pod)), now);
    }
    for owner in list("services").iter().chain(&list("replicaSets")) {
        engine.owner(None, Some(&kept(owner)));
    }
    for claim in list("deviceClaims") {
        engine.device_claim(&key(&claim), Some(kept(&claim)), now);
    }
    let cluster = &mut engine.decider.cluster;
    for budget in list("budgets") {
        cluster.budgets.insert(key(&budget), kept(&budget));
    }
    let storage = &mut cluster.storage;
    for claim in list("claims") {
        storage.set_claim(&key(&claim), Some(kept(&claim)));
    }
    for volume in list("volumes") {
        storage.set_volume(&name(&volume), Some(kept(&volume)));
    }
    for class in list("storageClasses") {
        storage.classes.insert(name(&class), kept(&class));
    }
    for node in list("csiNodes") {
        storage.csi_nodes.insert(name(&node), kept(&node));
    }
    for driver in list("csiDrivers") {
        storage.csi_drivers.insert(name(&driver), kept(&driver));
    }
    for capacity in list("capacities") {
        storage.capacities.insert(key(&capacity), kept(&capacity));
    }
    for attachment in list("attachments") {
        storage.set_attachment(name(&attachment), None, Some(kept(&attachment)));
    }
    let devices = &mut cluster.devices;
    for slice in list("slices") {
        devices.set_slice(name(&slice), Some(kept(&slice)));
    }
    for class in list("deviceClasses") {
        devices.classes.insert(name(&class), kept(&class));
    }
    for rule in list("taintRules") {
        devices.rules.insert(name(&rule), kept(&rule));
    }
    engine
}

fn answer(case: &Value) -> Value {
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a moment");
    let found = engine(case, now).decider.judge(&kept(&case["pod"]), now);
    let refused = found.refused.into_iter().map(|(node, reasons, helps)| {
        (node.to_string(), json!({ "reasons": reasons, "resolvable": helps }))
    });
    let scores = found.scores.into_iter().map(|(plugin, scores)| {
        let scores = scores.into_iter().map(|(node, score)| (node.to_string(), json!(score)));
        (plugin.to_owned(), Value::Object(scores.collect()))
    });
    let failed = found.failed.into_iter().map(|(node, text)| (node.to_string(), json!(text)));
    let devices = found.devices.into_iter().map(|(node, names)| (node.to_string(), json!(names)));
    let victims = found.victims.into_iter().map(|(node, pods, violations)| {
        (node.to_string(), json!({ "pods": pods, "violations": violations }))
    });
    json!({
        "hopeless": found.hopeless,
        "error": found.error,
        "failed": Value::Object(failed.collect()),
        "message": found.message,
        "refused": Value::Object(refused.collect()),
        "scores": Value::Object(scores.collect()),
        "devices": Value::Object(devices.collect()),
        "victims": Value::Object(victims.collect()),
        "best": found.best,
    })
}
