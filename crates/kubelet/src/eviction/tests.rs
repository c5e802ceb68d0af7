//! The whole kubelet on a machine that runs low, while time is paused.
use super::thresholds::Signal;
use crate::config::Machine as Eyes;
use crate::node::Facts;
use crate::tests::{Machine, one};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;

struct Low {
    machine: Machine,
    facts: Arc<Mutex<Facts>>,
}

const GI: u64 = 1 << 30;

impl Low {
    fn start() -> Low {
        let facts = Facts {
            cpus: 4,
            memory: 8 * GI,
            disk: 100 * GI,
            disk_available: 50 * GI,
            ..Facts::default()
        };
        let facts = Arc::new(Mutex::new(facts));
        let (machine, seen) = (Machine::new(), facts.clone());
        let runtime = machine.runtime.clone();
        machine.run_kubelet_with(machine.context.clone(), |config| {
            // This machine's disk is made up, and counts.
            config.eviction = super::Config::default();
            config
                .eviction
                .thresholds
                .retain(|one| matches!(one.signal, Signal::Memory | Signal::NodeFs));
            config.machine = Eyes(Arc::new(move |_| {
                let mut facts = seen.lock().clone();
                facts.memory_available = facts.memory - runtime.used();
                facts
            }));
        });
        Low { machine, facts }
    }

    fn pod(&self, name: &str, spec: Value) {
        let mut spec = spec;
        spec["nodeName"] = "n1".into();
        let metadata =
            json!({ "name": name, "namespace": "default", "uid": name, "generation": 1 });
        let pod = json!({ "metadata": metadata, "spec": spec });
        self.machine.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
    }

    /// `Failed Evicted MESSAGE [DisruptionTarget]`
    fn shown(&self, name: &str) -> String {
        let pod = self.machine.world.get::<Pod>("default", name).unwrap();
        let status = pod.status.clone().unwrap_or_default();
        let mut words = vec![status.phase.unwrap_or_default()];
        words.extend(status.reason);
        words.extend(status.message);
        let conditions = status.conditions.unwrap_or_default();
        let target = conditions.iter().find(|one| one.type_ == "DisruptionTarget");
        words.extend(target.map(|one| format!("[{}]", one.reason.as_ref().unwrap())));
        words.join(" ")
    }

    fn condition(&self, type_: &str) -> String {
        let node = self.machine.world.get::<Node>("", "n1").unwrap();
        let all = node.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        all.into_iter().find(|one| one.type_ == type_).unwrap().status
    }
}

#[tokio::test(start_paused = true)]
async fn low_memory_evicts_the_greediest_and_tells_the_node() {
    let low = Low::start();
    low.machine.pass(5).await;
    let asks = |memory: &str| one(json!({ "resources": { "requests": { "memory": memory } } }));
    low.pod("greedy", asks("10Mi"));
    low.pod("modest", asks("1Gi"));
    low.machine.pass(5).await;
    low.machine.runtime.uses("modest", GI / 2);
    assert_eq!(low.condition("MemoryPressure"), "False");
    low.machine.runtime.uses("greedy", 8 * GI - GI / 2 - (50 << 20));
    low.machine.pass(11).await;
    let message = "Failed Evicted The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ";
    assert!(low.shown("greedy").starts_with(message), "{}", low.shown("greedy"));
    assert!(low.shown("greedy").ends_with("[TerminationByKubelet]"), "{}", low.shown("greedy"));
    assert_eq!(low.condition("MemoryPressure"), "True");
    let events = low.machine.world.all::<Event>();
    let of_node =
        events.iter().find(|event| event.reason.as_deref() == Some("EvictionThresholdMet"));
    let note = of_node.unwrap().message.clone().unwrap();
    assert_eq!(note, "Attempting to reclaim memory");
    // The other stays: that was enough.
    low.machine.pass(60).await;
    assert_eq!(low.shown("modest"), "Running");
    // A pod that asks for nothing may not come yet.
    low.pod("late", one(json!({})));
    low.machine.pass(5).await;
    assert_eq!(
        low.shown("late"),
        "Failed Evicted Pod was rejected: The node had condition: [MemoryPressure]. "
    );
    low.machine.pass(300).await;
    assert_eq!(low.condition("MemoryPressure"), "False");
    low.pod("later", one(json!({})));
    low.machine.pass(5).await;
    assert_eq!(low.shown("later"), "Running");
}

#[tokio::test(start_paused = true)]
async fn critical_pods_stay() {
    let low = Low::start();
    low.machine.pass(5).await;
    let mut spec = one(json!({}));
    spec["priority"] = 2_000_000_000.into();
    low.pod("critical", spec);
    low.machine.pass(5).await;
    low.facts.lock().disk_available = GI;
    low.machine.pass(60).await;
    assert_eq!(low.shown("critical"), "Running");
    assert_eq!(low.condition("DiskPressure"), "True");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fills_its_empty_dir_goes() {
    let low = Low::start();
    low.machine.pass(5).await;
    let mut spec = one(json!({}));
    spec["volumes"] = json!([{ "name": "scratch", "emptyDir": { "sizeLimit": "1Mi" } }]);
    low.pod("web", spec);
    low.machine.pass(5).await;
    assert_eq!(low.shown("web"), "Running");
    let folder = low.machine.folder.path();
    let volume = folder.join("kubelet/pods/web/volumes/kubernetes.io~empty-dir/scratch");
    std::fs::write(volume.join("file"), vec![1u8; 2 << 20]).unwrap();
    low.machine.pass(12).await;
    assert_eq!(
        low.shown("web"),
        "Failed Evicted Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\". "
    );
    assert!(!volume.exists(), "what it wrote is gone");
}
