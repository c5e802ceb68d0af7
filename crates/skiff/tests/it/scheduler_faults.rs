//! Schedulers that are killed without warning between a decision and its binding: no pod is bound twice, no
//! node has more than it can hold, and nobody is forgotten.
//!
//! Two at a time fight for the lease. `FAULT_ROUNDS` says how often one of them is killed; the default suits
//! CI.
use crate::apiserver::Running;
use crate::cluster::Cluster;
use api::quantity::Quantity;
use client::https::{Config, Https};
use client::source::{Collection, Event, WatchFrom};
use client::{ApiResource, Client, Context, Source};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::hollow;

const NODES: usize = 20;
const PODS_A_ROUND: usize = 20;
/// A node's processors; each pod wants one. There is room for all pods but little more.
const CPU: usize = 10;
const PATIENCE: Duration = Duration::from_secs(90);

/// One that fights for the lease. It ends if it loses the lease, as upstream's does.
fn scheduler(cluster: &Cluster) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skiff"));
    command.args(["scheduler", "--secure-port=0", "--kubeconfig"]).arg(cluster.kubeconfig());
    command.args([
        "--leader-elect-lease-duration=2s",
        "--leader-elect-renew-deadline=1500ms",
        "--leader-elect-retry-period=300ms",
    ]);
    command.stderr(Stdio::null());
    Running(command.spawn().expect("it starts"))
}

/// Which nodes each pod was ever seen on, by somebody who only watches.
type Seen = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

async fn look(source: Arc<dyn Source>, seen: Seen) {
    let of = Collection::all(ApiResource::of::<Pod>()).in_namespace("default");
    let from = WatchFrom { revision: 0, initial_events: true, timeout: None };
    let mut watch = source.watch(of, from).await.expect("a watch");
    while let Some(event) = watch.next().await {
        let event = event.unwrap_or_else(|status| panic!("{}", status.message));
        let (Event::Added(object) | Event::Modified(object)) = event else { continue };
        let pod = object.typed::<Pod>().expect("a pod");
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let (Some(name), Some(node)) = (pod.metadata.name.clone(), node) else { continue };
        let mut seen = seen.lock().expect("a lock");
        let nodes = seen.entry(name).or_default();
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn schedulers_killed_at_any_moment_bind_nothing_twice_and_fill_no_node_too_much() {
    let rounds: usize =
        std::env::var("FAULT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let cluster = Cluster::start().with_default_account();
    let context = Context::new();
    let config = Config::from_kubeconfig(&cluster.kubeconfig(), None).expect("a kubeconfig");
    let source = Arc::new(Https::new(&context, config).expect("a good config"));
    let nodes =
        hollow::Options { nodes: NODES, cpu: CPU.to_string(), ..hollow::Options::default() };
    hollow::start(&context, source.clone(), nodes).await.expect("nodes");
    let seen = Seen::default();
    let looking = tokio::spawn(look(source.clone(), seen.clone()));
    let client = Client::new(source);
    let mut schedulers = [scheduler(&cluster), scheduler(&cluster)];
    let mut made = 0;
    for _ in 0..rounds {
        for _ in 0..PODS_A_ROUND {
            let pod = json!({ "metadata": { "name": format!("p{made}") }, "spec": {
                "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i",
                    "resources": { "requests": { "cpu": "1" } } }] } });
            let created = client.create_in(ApiResource::of::<Pod>(), "default", pod).await;
            created.unwrap_or_else(|status| panic!("{}", status.message));
            made += 1;
        }
        // A moment like any other: none is to be waited for.
        context.sleep(Duration::from_millis(context.number() % 300)).await;
        let one = context.number() as usize % 2;
        let _ = schedulers[one].0.kill();
        schedulers[one].0.wait().expect("it has ended");
        schedulers[one] = scheduler(&cluster);
    }
    let begun = Instant::now();
    let pods = loop {
        let of = Collection::all(ApiResource::of::<Pod>()).in_namespace("default");
        let list = client.list(of).await.expect("a list");
        let pods: Vec<Arc<Pod>> =
            list.items.iter().map(|object| object.typed::<Pod>().expect("a pod")).collect();
        let has_node =
            |pod: &&Arc<Pod>| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let placed = pods.iter().filter(has_node).count();
        if placed == made {
            break pods;
        }
        assert!(begun.elapsed() < PATIENCE, "{placed} of {made} pods have a node");
        for one in &mut schedulers {
            if one.0.try_wait().expect("a child of ours").is_some() {
                *one = scheduler(&cluster);
            }
        }
        context.sleep(Duration::from_millis(100)).await;
    };
    let mut used: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        let spec = pod.spec.as_ref().expect("a spec");
        let requests = spec.containers[0].resources.as_ref().and_then(|it| it.requests.as_ref());
        let cpu = requests.and_then(|it| it.get("cpu")).expect("it wants a processor");
        let cpu = Quantity::parse(&cpu.0).expect("an amount").value();
        *used.entry(spec.node_name.clone().expect("a node")).or_default() += cpu;
    }
    for (node, used) in used {
        assert!(used <= CPU as i64, "{node} has {used} of {CPU}");
    }
    looking.abort();
    for (pod, nodes) in &*seen.lock().expect("a lock") {
        assert_eq!(nodes.len(), 1, "{pod} was on {nodes:?}");
    }
    context.stop();
}
