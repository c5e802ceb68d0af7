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

/// The API server itself may be a static pod.
#[tokio::test(start_paused = true)]
async fn static_pods_run_before_the_api_server_has_ever_answered() {
    let machine = Machine::new();
    let folder = machine.folder.path().join("manifests");
    std::fs::create_dir(&folder).unwrap();
    let write = |image: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: api}}\nspec: {{containers: [{{name: c, image: {image}}}]}}\n"
        );
        std::fs::write(folder.join("api.yaml"), text).unwrap();
    };
    write("image:1");
    machine.world.refuse(|_| Some(Status::service_unavailable("connection refused")));
    let context = machine.context.part();
    let begin = |context: &client::Context| {
        machine.run_kubelet_with(context.clone(), |config| config.manifests = Some(folder.clone()))
    };
    let first = begin(&context);
    machine.pass(30).await;
    assert_eq!(machine.runtime.calls(), "run sandbox api-n1 0\ncreate c 0\nstart");
    machine.runtime.exit("c", 1);
    machine.pass(30).await;
    assert_eq!(machine.runtime.calls(), "create c 1\nstart");
    // What another source wants is not known yet: the next kubelet leaves it alone.
    context.stop();
    first.await.unwrap();
    std::fs::remove_file(folder.join("api.yaml")).unwrap();
    let context = machine.context.part();
    begin(&context);
    machine.pass(300).await;
    assert_eq!(machine.runtime.calls(), "");
    write("image:1");
    machine.pass(60).await;
    assert_eq!(machine.runtime.calls(), "", "it runs already");
    machine.world.refuse_nothing();
    machine.pass(120).await;
    let mirror = machine.world.get::<Pod>("default", "api-n1").expect("a mirror");
    assert_eq!(mirror.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
    // Another manifest is another pod, and begins when the one before has gone.
    write("image:1, args: [more]");
    machine.pass(120).await;
    let calls = machine.runtime.calls();
    let at = |what: &str| calls.find(what).unwrap_or_else(|| panic!("no {what}: {calls}"));
    assert!(at("remove sandbox") < at("run sandbox api-n1 0"), "{calls}");
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
