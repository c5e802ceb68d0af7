//! Others write a pod's status too.
use super::{Machine, one};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

impl Machine {
    /// Somebody else changes the pod's status.
    fn meddle(&self, change: impl FnOnce(&mut Value)) {
        let mut pod = json!(*self.world.get::<Pod>("default", "web").unwrap());
        change(&mut pod["status"]);
        self.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_is_set_later_makes_a_pod_ready() {
    let machine = Machine::start();
    let mut spec = one(json!({}));
    spec["readinessGates"] = json!([{ "conditionType": "example.com/lb" }]);
    machine.pod(spec);
    machine.pass(2).await;
    assert_eq!(machine.shown(), "Running c running  restarts=0");
    let set = |status: &'static str| {
        move |told: &mut Value| {
            let all = told["conditions"].as_array_mut().unwrap();
            all.retain(|one| one["type"] != "example.com/lb");
            all.push(json!({ "type": "example.com/lb", "status": status }));
        }
    };
    machine.meddle(set("True"));
    machine.pass(2).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    machine.meddle(set("False"));
    machine.pass(2).await;
    assert_eq!(machine.shown(), "Running c running  restarts=0");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_somebody_wrote_over_is_repaired_once() {
    let machine = Machine::start();
    machine.pod(one(json!({})));
    machine.pass(2).await;
    let before = machine.world.get::<Pod>("default", "web").unwrap().status.clone();
    machine.world.written();
    machine.meddle(|status| {
        status["phase"] = "Pending".into();
        status["containerStatuses"][0]["ready"] = false.into();
        status["resourceClaimStatuses"] = json!([{ "name": "theirs" }]);
    });
    machine.pass(300).await;
    let after = machine.world.get::<Pod>("default", "web").unwrap().status.clone().unwrap();
    assert_eq!(after.resource_claim_statuses.as_ref().map(Vec::len), Some(1));
    let after = k8s_openapi::api::core::v1::PodStatus { resource_claim_statuses: None, ..after };
    assert_eq!(Some(after), before);
    let written = machine.world.written();
    let of_pods = written.iter().filter(|line| line.contains("pods/status")).count();
    assert_eq!(of_pods, 1, "{written:?}");
}
