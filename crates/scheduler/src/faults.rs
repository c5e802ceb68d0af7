//! Faults, many at once and bounded: the API server loses bindings and answers, schedulers die between a
//! decision and its binding, nodes come and go. Somebody who knows nothing of schedulers reads what is
//! left: no pod is bound twice, no node has more than it can hold, and everything that fits is placed.
use crate::testing::tree;
use crate::{Config, run};
use api::quantity::Quantity;
use client::testing::World;
use client::{ApiResource, Context, Status};
use k8s_openapi::api::core::v1::{Node, Pod};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NODES: usize = 40;
const PODS: usize = 300;
/// Pods that a node of ours holds: four processors, half of one each.
const ROOM: usize = 8;

fn put(world: &World, line: &str) {
    let (kind, mut tree) = tree(line);
    let resource = match kind.as_str() {
        "pod" => ApiResource::of::<Pod>(),
        _ => ApiResource::of::<Node>(),
    };
    if !resource.is_namespaced() {
        tree["metadata"].as_object_mut().expect("metadata").remove("namespace");
    }
    world.put_tree(&resource, tree);
}

/// Reads pods and nodes, and knows nothing else.
fn check(world: &World) -> usize {
    let mut used: HashMap<String, i64> = HashMap::new();
    let mut bound = 0;
    for pod in world.all::<Pod>() {
        let spec = pod.spec.clone().unwrap_or_default();
        let Some(node) = spec.node_name else { continue };
        bound += 1;
        let requests = spec.containers[0].resources.clone().unwrap_or_default().requests;
        let cpu = requests.unwrap_or_default()["cpu"].0.clone();
        *used.entry(node).or_default() += Quantity::parse(&cpu).expect("an amount").milli_value();
    }
    for (node, used) in used {
        assert!(used <= 4000, "{node} has {used} of 4000");
    }
    bound
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_nothing_is_bound_twice_and_no_node_holds_too_much() {
    for seed in 0..6 {
        one(seed).await;
    }
}

async fn one(seed: u64) {
    let start = "2026-01-01T12:00:00Z".parse().expect("a moment");
    let outside = Context::simulated(start, seed);
    let world = World::new(&outside);
    for node in 0..NODES {
        put(&world, &format!("node n{node} cpu=4"));
    }
    let bound: Arc<Mutex<HashSet<String>>> = Arc::default();
    let (seen, mut random) = (bound.clone(), fastrand::Rng::with_seed(seed));
    world.refuse(move |line| {
        let pod = line.strip_prefix("create pods/binding ")?;
        // One in ten is lost on its way. A pod that has a node does not get another: the server's word.
        let is_lost = random.u8(..10) == 0;
        if is_lost {
            return Some(Status::service_unavailable("the server is away"));
        }
        let is_first = seen.lock().expect("a lock").insert(pod.to_owned());
        (!is_first).then(|| Status::bad_request("it is bound already"))
    });
    let mut random = fastrand::Rng::with_seed(seed);
    let mut scheduler = begin(&world, seed, 0);
    for pod in 0..PODS {
        put(&world, &format!("pod p{pod} cpu=500m"));
        match random.u8(..40) {
            // It dies with whatever it had decided and not yet written, and another begins.
            0 => {
                scheduler.0.abort();
                scheduler = begin(&world, seed, pod as u64 + 1);
            }
            1 => {
                let node = random.usize(..NODES);
                world.remove::<Node>("", &format!("n{node}"));
                tokio::time::sleep(Duration::from_millis(random.u64(..50))).await;
                put(&world, &format!("node n{node} cpu=4"));
            }
            2..10 => tokio::time::sleep(Duration::from_millis(random.u64(..20))).await,
            _ => {}
        }
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    let placed = check(&world);
    assert_eq!(placed, PODS.min(NODES * ROOM), "seed {seed}: everything that fits has a node");
    assert_eq!(bound.lock().expect("a lock").len(), placed, "seed {seed}: each was bound once");
}

struct Running(tokio::task::AbortHandle);

fn begin(world: &World, seed: u64, life: u64) -> Running {
    let start = "2026-01-01T12:00:00Z".parse().expect("a moment");
    let context = Context::simulated(start, seed * 1000 + life);
    let source = world.source();
    let task = tokio::spawn(async move { run(&context, source, Config::new("here")).await });
    Running(task.abort_handle())
}
