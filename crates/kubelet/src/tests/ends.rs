//! Pods that are to end while something is done for them.
use super::{Machine, one};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

impl Machine {
    /// A deleted pod can still be looked at.
    fn keep(&self) {
        let mut pod = Pod::clone(&self.world.get::<Pod>("default", "web").unwrap());
        pod.metadata.finalizers = Some(vec!["example.com/keep".to_owned()]);
        self.world.put(&pod);
    }

    fn delete_after(&self, grace: i64) {
        let mut pod = Pod::clone(&self.world.get::<Pod>("default", "web").unwrap());
        let now = Time(self.context.now());
        pod.metadata.deletion_timestamp.get_or_insert(now);
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        self.world.put(&pod);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_keeps_no_pod() {
    let machine = Machine::start();
    machine.runtime.exec_hangs(true);
    let hook = json!({ "postStart": { "exec": { "command": ["sleep"] } } });
    let mut spec = one(json!({ "lifecycle": hook }));
    let other = json!({ "name": "d", "image": "image:1" });
    spec["containers"].as_array_mut().unwrap().push(other);
    machine.pod(spec);
    machine.pass(60).await;
    assert_eq!(machine.runtime.calls(), "run sandbox web 0\ncreate c 0\nstart");
    machine.delete_after(5);
    machine.pass(2).await;
    assert_eq!(machine.shown(), "gone");
    let calls = machine.runtime.calls();
    assert!(calls.starts_with("stop container 5s\nstop sandbox"), "nothing is started: {calls}");
}

#[tokio::test(start_paused = true)]
async fn an_image_that_never_comes_keeps_no_pod() {
    let machine = Machine::start();
    machine.runtime.pulls_are_at(Some((1, 10)));
    machine.pod(one(json!({ "image": "slow:1" })));
    machine.pass(60).await;
    machine.delete_after(5);
    machine.pass(2).await;
    assert_eq!(machine.shown(), "gone");
}

#[tokio::test(start_paused = true)]
async fn less_grace_counts_while_a_hook_runs() {
    let machine = Machine::start();
    let hook = json!({ "preStop": { "sleep": { "seconds": 600 } } });
    let mut spec = one(json!({ "lifecycle": hook }));
    spec["terminationGracePeriodSeconds"] = 1000.into();
    machine.pod(spec);
    machine.pass(2).await;
    machine.delete_after(1000);
    machine.pass(10).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    machine.runtime.calls();
    machine.delete_after(15);
    machine.pass(4).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    machine.pass(3).await;
    assert_eq!(machine.shown(), "gone");
    assert!(machine.runtime.calls().starts_with("stop container 2s\n"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_tells_when_it_is_not_ready_any_more() {
    let machine = Machine::start();
    let probe =
        json!({ "exec": { "command": ["true"] }, "periodSeconds": 1, "failureThreshold": 1 });
    let hook = json!({ "preStop": { "sleep": { "seconds": 25 } } });
    machine.pod(one(json!({ "lifecycle": hook, "readinessProbe": probe, "livenessProbe": probe })));
    machine.pass(3).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    machine.keep();
    machine.delete_after(30);
    machine.pass(3).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    machine.runtime.exec_ends_with(1);
    machine.pass(3).await;
    assert_eq!(machine.shown(), "Running c running  restarts=0");
    let events = machine.events();
    let unhealthy = |kind: &str| events.iter().any(|one| one.contains(kind));
    assert!(unhealthy("Readiness probe failed"), "{events:?}");
    assert!(!unhealthy("Liveness probe failed"), "it does not matter any more: {events:?}");
    machine.pass(25).await;
    assert_eq!(machine.shown(), "Failed c terminated Error restarts=0");
}
