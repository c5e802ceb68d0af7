//! What our plugins say about pods in clusters, one JSON object per line in and out, so that another
//! scheduler can be asked the same and compared:
//!
//!     cargo run -p scheduler --example placements -- cases.jsonl > ours.jsonl
//!
//! A case is `{"nodes": […], "pods": […], "namespaces": […], "services": […], "replicaSets": […],
//! "pod": …}`; the answer names what stopped the pod, why nodes were refused, and every plugin's scores.
use api::object::{Keep, Object};
use jiff::Timestamp;
use scheduler::{Configuration, Engine};
use serde_json::{Value, json};
use std::io::BufRead;
use std::sync::Arc;

fn kept<K: Keep>(tree: &Value) -> Arc<K> {
    let object = Arc::new(Object::from_tree(tree).expect("an object"));
    K::keep(&object).expect("an object of its kind")
}

fn main() {
    let path = std::env::args().nth(1).expect("a file of cases");
    let file = std::fs::File::open(&path).expect("a file of cases");
    for line in std::io::BufReader::new(file).lines() {
        let case: Value = serde_json::from_str(&line.expect("a line")).expect("a case");
        println!("{}", answer(&case));
    }
}

fn answer(case: &Value) -> Value {
    let mut engine = Engine::new(&Configuration::default(), 1);
    let now = Timestamp::UNIX_EPOCH;
    let list = |name: &str| case[name].as_array().cloned().unwrap_or_default();
    for namespace in list("namespaces") {
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        engine.namespace(&name, Some(&kept(&namespace)), now);
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
    let found = engine.decider.judge(&kept(&case["pod"]), now);
    let mut refused: Vec<_> = found.refused;
    refused.sort();
    let refused = refused.into_iter().map(|(node, reasons, helps)| {
        (node.to_string(), json!({ "reasons": reasons, "resolvable": helps }))
    });
    let scores = found.scores.into_iter().map(|(plugin, scores)| {
        let scores = scores.into_iter().map(|(node, score)| (node.to_string(), json!(score)));
        (plugin.to_owned(), Value::Object(scores.collect()))
    });
    json!({
        "hopeless": found.hopeless,
        "message": found.message,
        "refused": Value::Object(refused.collect()),
        "scores": Value::Object(scores.collect()),
    })
}
