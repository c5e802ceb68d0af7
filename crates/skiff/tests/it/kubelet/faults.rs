//! A kubelet with its runtime that is killed without warning while pods come and go: what runs is not
//! touched, what was to go goes, nothing is left behind.
//!
//! `FAULT_ROUNDS` says how often it is killed, `FAULT_PODS` how many pods are there at most; the defaults
//! suit CI.
use super::Node;
use crate::cluster::Cluster;
use client::https::{Config, Https};
use client::source::{Collection, Delete};
use client::{ApiResource, Client, Context};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAMESPACE: &str = "default";
const PATIENCE: Duration = Duration::from_secs(90);

/// A pod that ends by itself, or one that does not.
fn pod(name: &str, ends: bool) -> Value {
    let does = if ends { "true" } else { "trap 'exit 0' TERM; sleep 1000000 & wait" };
    json!({ "metadata": { "name": name }, "spec": {
        "nodeName": "node", "restartPolicy": if ends { "Never" } else { "Always" },
        "terminationGracePeriodSeconds": 1,
        "initContainers": [{ "name": "first", "image": "localhost/busybox:1",
            "command": ["sh", "-c", "echo x >> /data/begun"],
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }],
        "containers": [{ "name": "main", "image": "localhost/busybox:1",
            "command": ["sh", "-c", does],
            "volumeMounts": [{ "name": "data", "mountPath": "/data" },
                { "name": "told", "mountPath": "/told" }] }],
        "volumes": [{ "name": "data", "emptyDir": { "medium": "Memory" } },
            { "name": "told", "configMap": { "name": "told" } }] } })
}

struct Bed {
    client: Client,
    context: Context,
}

impl Bed {
    async fn pods(&self) -> BTreeMap<String, Arc<Pod>> {
        let of = Collection::all(ApiResource::of::<Pod>()).in_namespace(NAMESPACE);
        let list = self.client.list(of).await.expect("pods");
        let typed = list.items.iter().map(|object| object.typed::<Pod>().expect("a pod"));
        typed.map(|pod| (pod.metadata.name.clone().unwrap_or_default(), pod)).collect()
    }

    async fn create(&self, pod: Value) {
        let made = self.client.create_in(ApiResource::of::<Pod>(), NAMESPACE, pod).await;
        made.unwrap_or_else(|status| panic!("{}", status.message));
    }
}

/// The container that a pod runs, and how often it was started, if it is to run for ever.
fn runs(pod: &Pod) -> Option<String> {
    let policy = pod.spec.as_ref()?.restart_policy.as_deref();
    let status = pod.status.as_ref().filter(|_| policy == Some("Always"))?;
    let main = status.container_statuses.as_ref()?.first()?;
    main.state.as_ref()?.running.as_ref()?;
    Some(format!("{} {}", main.container_id.as_ref()?, main.restart_count))
}

/// What names a pod that is gone: mounts, control groups, folders.
fn is_left(cluster: &Cluster, uid: &str) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(mount) = mounts.lines().find(|line| line.contains(uid)) {
        return Some(format!("the mount {mount}"));
    }
    super::is_left(cluster, uid).then(|| format!("a folder, a log or a control group of {uid}"))
}

/// Processes that work for this cluster's runtime, besides the kubelet.
fn workers(cluster: &Cluster) -> Vec<String> {
    let folder = cluster.folder.path().join("run").display().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&folder) && !line.contains(" kubelet ")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_kubelet_killed_at_any_moment_leaves_pods_alone_and_nothing_behind() {
    let asked = |name: &str, usual: usize| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let (rounds, most) = (asked("FAULT_ROUNDS", 12), asked("FAULT_PODS", 10));
    let cluster = Cluster::start().with_default_account();
    cluster.kubectl("create configmap told --from-literal=word=one");
    cluster.kubectl("create configmap kube-root-ca.crt --from-literal=ca.crt=none");
    let mut node = Node::start(&cluster).until_ready();
    node.import_busybox();
    let context = Context::new();
    let config = Config::from_kubeconfig(&cluster.kubeconfig(), None).expect("a kubeconfig");
    let source = Arc::new(Https::new(&context, config).expect("a good config"));
    let bed = Bed { client: Client::new(source), context: context.clone() };
    let mut running: BTreeMap<String, String> = BTreeMap::new();
    let mut gone: Vec<String> = Vec::new();
    for round in 0..rounds {
        let pods = bed.pods().await;
        for (name, pod) in &pods {
            let Some(now) = runs(pod).filter(|_| pod.metadata.deletion_timestamp.is_none()) else {
                continue;
            };
            let before = running.entry(name.clone()).or_insert_with(|| now.clone());
            assert_eq!(*before, now, "round {round}: {name} was started again");
        }
        let made = 1 + bed.context.number() % 3;
        for one in 0..made {
            bed.create(pod(&format!("p{round}-{one}"), bed.context.number().is_multiple_of(3)))
                .await;
        }
        let surplus = (pods.len() + made as usize).saturating_sub(most);
        for (name, pod) in pods.iter().take(surplus.max(bed.context.number() as usize % 3)) {
            running.remove(name);
            gone.extend(pod.metadata.uid.clone());
            let _ = bed.client.delete::<Pod>(NAMESPACE, name, Delete::default()).await;
        }
        // A moment like any other: none is to be waited for.
        bed.context.sleep(Duration::from_millis(bed.context.number() % 600)).await;
        tokio::task::block_in_place(|| node.crash_and_restart());
    }
    let begun = Instant::now();
    let settled = |pods: &BTreeMap<String, Arc<Pod>>| {
        pods.values().all(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let ends = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
            let wanted = if ends == Some("Never") { "Succeeded" } else { "Running" };
            pod.metadata.deletion_timestamp.is_none() && phase == Some(wanted)
        })
    };
    let pods = loop {
        let pods = bed.pods().await;
        if settled(&pods) {
            break pods;
        }
        let phases: Vec<String> =
            pods.iter().map(|(name, pod)| format!("{name}: {:?}", pod.status)).collect();
        assert!(begun.elapsed() < PATIENCE, "{}", phases.join("\n"));
        bed.context.sleep(Duration::from_millis(50)).await;
    };
    for (name, before) in &running {
        let now = pods.get(name).and_then(|pod| runs(pod));
        assert_eq!(now.as_ref(), Some(before), "{name} was started again");
    }
    for (name, pod) in &pods {
        gone.extend(pod.metadata.uid.clone());
        bed.client.delete::<Pod>(NAMESPACE, name, Delete::default()).await.expect("it goes");
    }
    let begun = Instant::now();
    loop {
        let pods = bed.pods().await.len();
        let left = gone.iter().find_map(|uid| is_left(&cluster, uid));
        let workers = workers(&cluster);
        if pods == 0 && left.is_none() && workers.is_empty() {
            break;
        }
        let what = format!("{pods} pods, {left:?}, {workers:?}");
        assert!(begun.elapsed() < PATIENCE, "left after all pods were deleted: {what}");
        bed.context.sleep(Duration::from_millis(50)).await;
    }
    context.stop();
}
