//! Pods that make room, and a node that keeps some out.
use super::Machine;
use crate::config;
use crate::node::Facts;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::sync::Arc;

impl Machine {
    /// With a node of four processors.
    fn of_four() -> Machine {
        let machine = Machine::new();
        let facts = |root: &std::path::Path| Facts { cpus: 4, ..Facts::read(root) };
        machine.run_kubelet_with(machine.context.clone(), |config| {
            config.machine = config::Machine(Arc::new(facts));
        });
        machine
    }

    fn important(&self, name: &str, cpu: &str, priority: i32, tolerations: Value) {
        let container = json!({ "name": "c", "image": "image:1",
            "resources": { "requests": { "cpu": cpu } } });
        let pod = json!({ "metadata": { "name": name, "namespace": "default", "uid": name },
            "spec": { "nodeName": "n1", "priority": priority, "tolerations": tolerations,
                "terminationGracePeriodSeconds": 5, "containers": [container] } });
        self.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
    }

    fn status_of(&self, name: &str) -> Value {
        json!(self.world.get::<Pod>("default", name).unwrap().status)
    }
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_gets_room() {
    let machine = Machine::of_four();
    machine.important("small", "500m", 0, json!([]));
    machine.important("large", "3", 0, json!([]));
    machine.pass(2).await;
    machine.important("other", "2", 100, json!([]));
    machine.important("critical", "2", 2_000_000_000, json!([]));
    machine.pass(20).await;
    let phase = |name: &str| machine.status_of(name)["phase"].as_str().unwrap().to_owned();
    assert_eq!([phase("small"), phase("critical")], ["Running", "Running"]);
    let large = machine.status_of("large");
    assert_eq!(
        [&large["phase"], &large["reason"], &large["message"]],
        ["Failed", "Preempting", "Preempted in order to admit critical pod"]
    );
    let conditions = large["conditions"].as_array().unwrap();
    let disrupted = conditions.iter().find(|one| one["type"] == "DisruptionTarget").unwrap();
    assert_eq!(
        [&disrupted["reason"], &disrupted["message"]],
        ["TerminationByKubelet", "Pod was preempted by Kubelet to accommodate a critical pod."]
    );
    // Who is only more important than others is refused: the scheduler makes room for those.
    assert_eq!(machine.status_of("other")["reason"], "OutOfcpu");
    let told = machine.events();
    let count = told.iter().filter(|event| event.starts_with("Preempting ")).count();
    assert_eq!(count, 1, "{told:?}");
    // What all of the node is too little for ends nobody.
    machine.important("huge", "100", 2_000_000_000, json!([]));
    machine.pass(2).await;
    assert_eq!(machine.status_of("huge")["reason"], "UnexpectedAdmissionError");
    assert_eq!(phase("small"), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_ends_pods_keeps_new_ones_out() {
    let machine = Machine::of_four();
    machine.pass(5).await;
    let mut node = Node::clone(&machine.world.get::<Node>("", "n1").unwrap());
    let taints = json!([{ "key": "broken", "effect": "NoExecute" }]);
    node.spec.get_or_insert_default().taints = serde_json::from_value(taints).unwrap();
    machine.world.put(&node);
    machine.pass(1).await;
    machine.important("plain", "10m", 0, json!([]));
    machine.important("hardy", "10m", 0, json!([{ "key": "broken", "operator": "Exists" }]));
    machine.pass(2).await;
    assert_eq!(machine.status_of("plain")["reason"], "TaintToleration");
    assert_eq!(machine.status_of("hardy")["phase"], "Running");
}
