//! A kubelet whose API server is away, or whose Node somebody else makes.
use super::{Machine, one};
use client::Status;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn pods_live_on_while_the_api_server_is_away_for_ten_minutes() {
    let machine = Machine::start();
    machine.pod(one(json!({})));
    machine.pass(1).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    machine.runtime.calls();
    machine.world.refuse(|_| Some(Status::service_unavailable("connection refused")));
    machine.world.end_watches();
    machine.pass(300).await;
    assert_eq!(machine.runtime.calls(), "", "nothing is touched");
    // Whatever can be done without it is done.
    machine.runtime.exit("c", 1);
    machine.pass(300).await;
    assert_eq!(machine.runtime.calls(), "create c 1\nstart");
    assert_eq!(machine.shown(), "Running ready c running  restarts=0", "nobody can be told");
    machine.world.refuse_nothing();
    machine.pass(60).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=1");
    let lease = machine.world.get::<Lease>("kube-node-lease", "n1").unwrap();
    let renewed = lease.spec.as_ref().unwrap().renew_time.clone().unwrap();
    assert!(machine.context.now().duration_since(renewed.0).as_secs() <= 10);
    // What was asked for meanwhile is done now.
    let mut pod = Pod::clone(&machine.world.get::<Pod>("default", "web").unwrap());
    pod.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(machine.context.now()));
    pod.metadata.deletion_grace_period_seconds = Some(1);
    machine.world.put(&pod);
    machine.pass(5).await;
    assert_eq!(machine.shown(), "gone");
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_does_not_register_waits_for_its_node() {
    let machine = Machine::new();
    machine.run_kubelet_with(machine.context.clone(), |config| {
        config.registers = false;
        config.lease_duration = std::time::Duration::from_secs(80);
    });
    machine.pass(60).await;
    assert!(machine.world.get::<Node>("", "n1").is_none());
    let node = json!({ "metadata": { "name": "n1", "uid": "n", "labels": { "by": "hand" } } });
    machine.world.put::<Node>(&serde_json::from_value(node).unwrap());
    machine.pass(60).await;
    let node = machine.world.get::<Node>("", "n1").unwrap();
    assert_eq!(node.metadata.labels.as_ref().unwrap().len(), 1, "labels are its maker's");
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref()).unwrap();
    assert!(conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
    let lease = machine.world.get::<Lease>("kube-node-lease", "n1").unwrap();
    assert_eq!(lease.spec.as_ref().unwrap().lease_duration_seconds, Some(80));
}
