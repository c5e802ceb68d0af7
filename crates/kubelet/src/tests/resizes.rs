//! Resources that change while pods run.
use super::Machine;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

impl Machine {
    /// A pod of a name that asks for so many processors.
    fn asks(&self, name: &str, cpu: &str) {
        let container = json!({ "name": "c", "image": "image:1",
            "resources": { "requests": { "cpu": cpu } } });
        let known = self.world.get::<Pod>("default", name);
        let status = known.map_or(Value::Null, |pod| json!(pod.status));
        let pod = json!({ "metadata": { "name": name, "namespace": "default", "uid": name },
            "spec": { "nodeName": "n1", "containers": [container] }, "status": status });
        self.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
    }

    fn phase_of(&self, name: &str) -> String {
        let pod = self.world.get::<Pod>("default", name).unwrap();
        let status = pod.status.clone().unwrap_or_default();
        [status.phase, status.reason].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_more_keeps_it_from_nobody() {
    let machine = Machine::start();
    machine.pass(5).await;
    machine.asks("first", "10m");
    machine.pass(2).await;
    // Never to be had, then not now.
    machine.asks("first", "9999");
    machine.pass(2).await;
    machine.asks("second", "10m");
    machine.pass(2).await;
    assert_eq!(
        (machine.phase_of("first"), machine.phase_of("second")),
        ("Running".into(), "Running".into())
    );
}
