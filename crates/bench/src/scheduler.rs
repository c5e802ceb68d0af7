//! How fast the scheduler decides: one thread, nothing but decisions.
//!
//! A pod is queued, decided about, assumed, and seen again as bound; the API server's part is left
//! out. Upstream's benchmark of the same size (`scheduler_perf`, 5,000 nodes) is the comparison.
use crate::report::Report;
use ::scheduler::{Configuration, Engine, NodeInfo, Owner, PodInfo, Task};
use api::object::{Keep, Object};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Numbers of nodes, unless others are given.
const NODES: [usize; 4] = [500, 5000, 20_000, 100_000];
const ZONES: usize = 3;
const PODS: usize = 10_000;
const ZONE: &str = "topology.kubernetes.io/zone";

pub struct Shape {
    pub name: &'static str,
    pub pods: usize,
    /// What is peculiar about its pods.
    pub spec: fn() -> Value,
    pub has_owner: bool,
    /// Pods that fit nowhere and were there first.
    pub in_the_way: usize,
}

pub const PLAIN: Shape =
    Shape { name: "pods alone", pods: PODS, spec: || json!({}), has_owner: false, in_the_way: 0 };

pub const SHAPES: &[Shape] = &[
    PLAIN,
    Shape { name: "of a ReplicaSet", has_owner: true, ..PLAIN },
    Shape { name: "with node affinity", spec: near_node, ..PLAIN },
    Shape { name: "spread over zones", spec: spread, has_owner: true, ..PLAIN },
    Shape { name: "near each other", pods: 2000, spec: near, has_owner: true, ..PLAIN },
    Shape { name: "apart from each other", pods: 400, spec: apart, has_owner: true, ..PLAIN },
    Shape { name: "behind 5,000 that fit nowhere", in_the_way: 5000, ..PLAIN },
];

fn near_node() -> Value {
    json!({ "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{
            "matchExpressions": [{ "key": ZONE, "operator": "In",
                "values": ["zone-0", "zone-1"] }] }] } } } })
}

fn spread() -> Value {
    json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } } }] })
}

fn term(key: &str) -> Value {
    json!([{ "topologyKey": key, "labelSelector": { "matchLabels": { "app": "web" } } }])
}

fn near() -> Value {
    json!({ "affinity": { "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": term(ZONE) } } })
}

fn apart() -> Value {
    json!({ "affinity": { "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": term("kubernetes.io/hostname") } } })
}

pub fn run(arguments: &[String], report: &mut Report) {
    let given: Vec<usize> = arguments.iter().filter_map(|word| word.parse().ok()).collect();
    let sizes = if given.is_empty() { NODES.to_vec() } else { given };
    for nodes in sizes {
        for shape in SHAPES {
            one(nodes, shape, report);
        }
    }
}

fn one(nodes: usize, shape: &Shape, report: &mut Report) {
    let mut engine = Engine::new(&Configuration::default(), 1);
    let now = Timestamp::now();
    for index in 0..nodes {
        engine.node(None, Some(&node(index)), now);
    }
    engine.owner(None, Some(&replica_set()));
    for index in 0..shape.in_the_way {
        engine.pod(None, Some(&huge(index)), now);
    }
    while engine.next(now).is_some() {}
    let pods: Vec<Arc<PodInfo>> = (0..shape.pods).map(|index| pod(shape, index)).collect();
    for pod in &pods {
        engine.pod(None, Some(pod), now);
    }
    let mut micros: Vec<f64> = Vec::with_capacity(shape.pods);
    let begun = Instant::now();
    loop {
        let started = Instant::now();
        let Some(tasks) = engine.next(now) else { break };
        for task in tasks {
            let Task::Bind { pod, node, .. } = task else { panic!("{task:?}") };
            engine.pod(Some(&pod), Some(&Arc::new(pod.on(&node))), now);
        }
        micros.push(started.elapsed().as_secs_f64() * 1e6);
    }
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!(micros.len(), shape.pods, "each pod has a node");
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| micros[(micros.len() as f64 * share) as usize];
    report.row(
        format!("{nodes} nodes, {} {}", shape.pods, shape.name),
        &[("pods/s", shape.pods as f64 / seconds), ("p50 µs", at(0.5)), ("p99 µs", at(0.99))],
    );
}

fn kept<K: Keep>(tree: &Value) -> Arc<K> {
    let object = Arc::new(Object::from_tree(tree).expect("an object"));
    K::keep(&object).expect("an object of its kind")
}

fn node(index: usize) -> Arc<NodeInfo> {
    let name = format!("node-{index}");
    kept(&json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name,
            ZONE: format!("zone-{}", index % ZONES) } },
        "status": { "allocatable": { "cpu": "4", "memory": "32Gi", "pods": "110" } },
    }))
}

fn replica_set() -> Arc<Owner> {
    kept(&json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": { "selector": { "matchLabels": { "app": "web" } } },
    }))
}

fn pod(shape: &Shape, index: usize) -> Arc<PodInfo> {
    let mut spec = (shape.spec)();
    spec["containers"] = json!([{ "name": "c", "image": "web:1",
        "resources": { "requests": { "cpu": "100m", "memory": "500Mi" } } }]);
    let mut metadata = json!({ "name": format!("web-{index}"), "namespace": "default",
        "uid": format!("uid-{index}"), "labels": { "app": "web" } });
    if shape.has_owner {
        metadata["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "name": "web", "uid": "u", "controller": true }]);
    }
    kept(&json!({ "metadata": metadata, "spec": spec }))
}

fn huge(index: usize) -> Arc<PodInfo> {
    kept(&json!({
        "metadata": { "name": format!("huge-{index}"), "namespace": "default",
            "uid": format!("huge-{index}") },
        "spec": { "containers": [{ "name": "c", "image": "web:1",
            "resources": { "requests": { "cpu": "9" } } }] },
    }))
}
