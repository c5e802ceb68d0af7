//! What probes said, and when they ask.
use super::{Machine, one};
use client::Context;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_was_started_again_believes_what_was_told_of_probes() {
    let machine = Machine::start();
    let probe = json!({ "exec": { "command": ["true"] }, "periodSeconds": 1 });
    machine.pod(one(json!({ "readinessProbe": probe, "startupProbe": probe })));
    machine.pass(5).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    machine.context.stop();
    machine.pass(1).await;
    // No probe is answered for now.
    machine.runtime.exec_hangs(true);
    machine.world.written();
    machine.run_kubelet(Context::simulated(machine.context.now(), 2));
    machine.pass(20).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    let written = machine.world.written();
    assert!(!written.iter().any(|line| line.contains("pods/status")), "{written:?}");
    machine.runtime.exec_ends_with(1);
    machine.runtime.exec_hangs(false);
    machine.pass(10).await;
    assert_eq!(machine.shown(), "Running c running  restarts=0");
}

#[tokio::test(start_paused = true)]
async fn the_first_probes_delay_counts_from_the_containers_start() {
    let machine = Machine::start();
    let probe = json!({ "exec": { "command": ["true"] }, "initialDelaySeconds": 60 });
    machine.pod(one(json!({ "readinessProbe": probe })));
    machine.pass(50).await;
    assert_eq!(machine.shown(), "Running c running  restarts=0");
    machine.context.stop();
    machine.pass(1).await;
    machine.run_kubelet(Context::simulated(machine.context.now(), 2));
    machine.pass(5).await;
    assert_eq!(machine.shown(), "Running c running  restarts=0");
    machine.pass(6).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_fails_says_nothing_of_its_containers() {
    let machine = Machine::start();
    let probe =
        json!({ "exec": { "command": ["true"] }, "periodSeconds": 1, "failureThreshold": 1 });
    machine.pod(one(json!({ "readinessProbe": probe, "livenessProbe": probe })));
    machine.pass(3).await;
    machine.runtime.exec_fails(true);
    machine.pass(20).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    let told = "Unhealthy Readiness probe errored and resulted in unknown state: \
                rpc error: code = Unavailable desc = it is busy";
    assert!(machine.events().iter().any(|event| event == told), "{:?}", machine.events());
}
