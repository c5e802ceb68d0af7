//! The scheduler in a world in memory.
mod extenders;

use crate::testing::tree;
use crate::{Config, run};
use client::testing::World;
use client::{ApiResource, Context};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::json;
use std::time::Duration;

async fn world(text: &str) -> (Context, World) {
    world_with(text, Config::new("here")).await
}

async fn world_with(text: &str, config: Config) -> (Context, World) {
    let context = Context::simulated("2026-01-01T12:00:00Z".parse().expect("a moment"), 1);
    let world = World::new(&context);
    put(&world, text);
    let (source, running) = (world.source(), context.clone());
    tokio::spawn(async move { run(&running, source, config).await });
    rest().await;
    (context, world)
}

/// The clock is paused: this passes when everybody else waits.
async fn rest() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn put(world: &World, text: &str) {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (kind, mut tree) = tree(line);
        let resource = match kind.as_str() {
            "pod" => ApiResource::of::<Pod>(),
            "node" => ApiResource::of::<Node>(),
            "claim" => ApiResource::of::<PersistentVolumeClaim>(),
            "volume" => ApiResource::of::<PersistentVolume>(),
            "class" => ApiResource::of::<StorageClass>(),
            "slice" => ApiResource::of::<ResourceSlice>(),
            "deviceclass" => ApiResource::of::<DeviceClass>(),
            "deviceclaim" => ApiResource::of::<ResourceClaim>(),
            other => panic!("{other} is no kind of a test's line"),
        };
        if !resource.is_namespaced() {
            tree["metadata"].as_object_mut().expect("metadata").remove("namespace");
        }
        world.put_tree(&resource, tree);
    }
}

fn node_of(world: &World, pod: &str) -> String {
    let pod = world.get::<Pod>("default", pod).expect("a pod");
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

/// The pod's `PodScheduled` condition: reason and message.
fn condition(world: &World, pod: &str) -> String {
    let pod = world.get::<Pod>("default", pod).expect("a pod");
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let found = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
    found.map_or(String::new(), |condition| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{} {}: {}", condition.status, text(&condition.reason), text(&condition.message))
    })
}

/// What people were told: reason, object and note of each event.
fn events(world: &World) -> Vec<String> {
    let line = |event: &Event| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let about = event.regarding.clone().unwrap_or_default();
        format!("{} {}: {}", text(&event.reason), text(&about.name), text(&event.note))
    };
    let mut lines: Vec<_> = world.all::<Event>().iter().map(|event| line(event)).collect();
    lines.sort();
    lines
}

#[tokio::test(start_paused = true)]
async fn pods_get_nodes_and_events_say_so() {
    let (_, world) = world("node a\nnode b\npod p cpu=1\npod q spec.schedulerName=other").await;
    let node = node_of(&world, "p");
    assert!(["a", "b"].contains(&node.as_str()), "{node}");
    assert_eq!(node_of(&world, "q"), "", "it is somebody else's");
    let expected = format!("Scheduled p: Successfully assigned default/p to {node}");
    assert_eq!(events(&world), [expected]);
    let event = world.all::<Event>()[0].clone();
    assert_eq!(event.action.as_deref(), Some("Binding"));
    assert_eq!(event.reporting_controller.as_deref(), Some("default-scheduler"));
    assert_eq!(event.reporting_instance.as_deref(), Some("default-scheduler-here"));
}

/// An API that serves PodGroups, from the group to the bindings.
#[tokio::test(start_paused = true)]
async fn pods_of_a_group_are_bound_together_or_not_at_all() {
    let mut config = Config::new("here");
    config.configuration.gangs = true;
    let gang = "pod a cpu=1 group=g\npod b cpu=1 group=g\npod c cpu=1 group=g";
    let (_, world) = world_with(&format!("node n cpu=2\n{gang}"), config).await;
    let nodes = |world: &World| ["a", "b", "c"].map(|pod| node_of(world, pod));
    let nowhere = [""; 3].map(str::to_owned);
    // There is no group yet, then there is no room for all.
    assert_eq!(nodes(&world), nowhere);
    let scope = api::kinds::Scope::Namespaced;
    let groups =
        ApiResource::custom("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", scope);
    let group = json!({ "metadata": { "name": "g", "namespace": "default" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": 3 } } } });
    world.put_tree(&groups, group);
    rest().await;
    assert_eq!(nodes(&world), nowhere);
    assert_eq!(condition(&world, "a"), "False Unschedulable: pod group is unschedulable");
    // What it cannot use is not kept from others.
    put(&world, "pod other cpu=2");
    rest().await;
    assert_eq!(node_of(&world, "other"), "n");
    put(&world, "node m cpu=3");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(nodes(&world), ["m"; 3].map(str::to_owned));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_fit_says_why_and_a_new_node_wakes_it() {
    let (_, world) = world("node a cpu=1\npod p cpu=2").await;
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(condition(&world, "p"), format!("False Unschedulable: {message}"));
    assert_eq!(events(&world), [format!("FailedScheduling p: {message}")]);
    // What was told is not told again, and heartbeats wake nobody.
    world.written();
    put(&world, "node a cpu=1 status.conditions=[]");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(world.written(), Vec::<String>::new());
    put(&world, "node b cpu=2");
    rest().await;
    assert_eq!(node_of(&world, "p"), "b");
}

#[tokio::test(start_paused = true)]
async fn where_a_pod_goes_is_told_while_it_waits_for_its_volumes() {
    let (_, world) = world(
        "node a\nclass s mode=WaitForFirstConsumer provisioner=x\nclaim c class=s size=1Gi\npod p claim=c",
    )
    .await;
    let nominated = || {
        let pod = world.get::<Pod>("default", "p").expect("a pod");
        pod.status.as_ref().and_then(|status| status.nominated_node_name.clone())
    };
    assert_eq!((node_of(&world, "p"), nominated().as_deref()), (String::new(), Some("a")));
    // Whoever provides takes the node away: it cannot be done there.
    put(&world, "claim c class=s size=1Gi");
    rest().await;
    assert!(condition(&world, "p").contains("provisioning failed for PVC"));
    assert_eq!(nominated(), None);
}

#[tokio::test(start_paused = true)]
async fn what_upstream_counts_is_counted() {
    let registry = std::sync::Arc::new(client::Registry::default());
    let start = "2026-01-01T12:00:00Z".parse().expect("a moment");
    let context = Context::simulated(start, 1).with_metrics(registry.clone());
    let world = World::new(&context);
    put(&world, "node a cpu=1\npod p cpu=1\npod q cpu=2\npod r gated");
    let source = world.source();
    tokio::spawn(async move { run(&context, source, Config::new("here")).await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    let text = registry.text();
    let profile = r#"profile="default-scheduler""#;
    for line in [
        format!("scheduler_schedule_attempts_total{{{profile},result=\"scheduled\"}} 1"),
        format!("scheduler_schedule_attempts_total{{{profile},result=\"unschedulable\"}} 1"),
        format!("scheduler_scheduling_attempt_duration_seconds_count{{{profile},result=\"scheduled\"}} 1"),
        "scheduler_pod_scheduling_attempts_count 1".to_owned(),
        r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 1"#.to_owned(),
        r#"scheduler_pending_pods{queue="active"} 0"#.to_owned(),
        r#"scheduler_pending_pods{queue="unschedulable"} 1"#.to_owned(),
        r#"scheduler_pending_pods{queue="gated"} 1"#.to_owned(),
        r#"scheduler_queue_incoming_pods_total{event="PodAdd",queue="active"} 2"#.to_owned(),
        r#"scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"} 1"#.to_owned(),
        format!("scheduler_unschedulable_pods{{plugin=\"NodeResourcesFit\",{profile}}} 1"),
        r#"scheduler_cache_size{type="nodes"} 1"#.to_owned(),
        r#"scheduler_cache_size{type="assumed_pods"} 0"#.to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_pod_takes_another_does_not_get() {
    let (_, world) = world("node a cpu=3").await;
    // Watches are late: only what was assumed keeps pods apart.
    put(&world, "pod 1 cpu=1\npod 2 cpu=1\npod 3 cpu=1\npod 4 cpu=1\npod 5 cpu=1");
    rest().await;
    let placed = ["1", "2", "3", "4", "5"].map(|name| node_of(&world, name));
    assert_eq!(placed.iter().filter(|node| !node.is_empty()).count(), 3, "{placed:?}");
    // A pod that goes makes room for one that waits.
    let gone = ["1", "2", "3", "4", "5"].iter().find(|name| !node_of(&world, name).is_empty());
    world.remove::<Pod>("default", gone.expect("a pod with a node"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let pods = world.all::<Pod>();
    let with_node = pods
        .iter()
        .filter(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some());
    assert_eq!(with_node.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_fails_is_tried_again() {
    let (_, world) = world("node a cpu=1").await;
    let mut failures = 1;
    world.refuse(move |line| {
        let fails = line == "create pods/binding default/p" && failures > 0;
        failures -= i32::from(fails);
        fails.then(|| client::Status::service_unavailable("down"))
    });
    put(&world, "pod p cpu=1");
    rest().await;
    assert_eq!(
        condition(&world, "p"),
        "False SchedulerError: running Bind plugin \"DefaultBinder\": down"
    );
    assert_eq!(node_of(&world, "p"), "");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(node_of(&world, "p"), "a");
}

#[tokio::test(start_paused = true)]
async fn a_gated_pod_waits_for_its_gate() {
    let (_, world) = world("node a\npod p gated").await;
    assert_eq!((node_of(&world, "p").as_str(), events(&world).len()), ("", 0));
    put(&world, "pod p");
    rest().await;
    assert_eq!(node_of(&world, "p"), "a");
}

#[tokio::test(start_paused = true)]
async fn less_important_pods_go_for_an_important_one() {
    let (_, world) = world("node a cpu=2\npod low cpu=2 node=a priority=1").await;
    world.written();
    put(&world, "pod high cpu=2 priority=10");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(world.get::<Pod>("default", "low").is_none());
    assert_eq!(node_of(&world, "high"), "a");
    let written: Vec<_> =
        world.written().into_iter().filter(|line| !line.contains("events")).collect();
    assert_eq!(
        written,
        [
            "patch pods/status default/high",
            "patch pods/status default/low",
            "delete pods default/low",
            "create pods/binding default/high",
        ]
    );
    let uid = "high-uid";
    let told = events(&world);
    assert!(told.contains(&format!("Preempted low: Preempted by pod {uid} on node a")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_until_its_volume_is_provided() {
    let text = "node a
        class s mode=WaitForFirstConsumer provisioner=e.com/d
        claim c class=s size=1Gi
        pod p claim=c";
    let (_, world) = world(text).await;
    let claim = world.get::<PersistentVolumeClaim>("default", "c").expect("a claim");
    let annotations = claim.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("volume.kubernetes.io/selected-node"), Some(&"a".to_owned()));
    assert_eq!(node_of(&world, "p"), "");
    let patch = json!({ "metadata": { "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
        "spec": { "volumeName": "v" } });
    let patch = client::source::Patch::Merge(patch);
    world.client().patch::<PersistentVolumeClaim>("default", "c", patch).await.expect("patched");
    rest().await;
    assert_eq!(node_of(&world, "p"), "a");
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_its_context() {
    let (context, world) = world("node a").await;
    context.stop();
    rest().await;
    put(&world, "pod p");
    rest().await;
    assert_eq!(node_of(&world, "p"), "");
}

#[tokio::test(start_paused = true)]
async fn devices_are_written_before_the_pod_is_bound() {
    let text = r#"node a
        slice pa node=a devices=[{"name":"d0"}]
        deviceclass gpu
        deviceclaim c requests=[{"name":"r","exactly":{"deviceClassName":"gpu"}}]"#;
    let (_, world) = world(text).await;
    world.written();
    put(&world, r#"pod p devices=[{"name":"gpu","resourceClaimName":"c"}]"#);
    rest().await;
    assert_eq!(node_of(&world, "p"), "a");
    let written: Vec<_> =
        world.written().into_iter().filter(|line| !line.contains("events")).collect();
    assert_eq!(
        written,
        [
            "patch pods/status default/p",
            "update resourceclaims.resource.k8s.io default/c",
            "update resourceclaims.resource.k8s.io/status default/c",
            "create pods/binding default/p",
        ]
    );
    let claim = world.get::<ResourceClaim>("default", "c").expect("a claim");
    let status = claim.status.clone().unwrap_or_default();
    let allocation = status.allocation.unwrap_or_default();
    assert_eq!(crate::devices::results(&allocation)[0].device, "d0");
    assert_eq!(status.reserved_for.unwrap_or_default()[0].uid, "p-uid");
    // The only device is taken; the next pod waits, and gets it when the claim goes.
    put(
        &world,
        r#"deviceclaim e requests=[{"name":"r","exactly":{"deviceClassName":"gpu"}}]
        pod q devices=[{"name":"gpu","resourceClaimName":"e"}]"#,
    );
    rest().await;
    let told = condition(&world, "q");
    assert!(told.contains("1 cannot allocate all claims"), "{told}");
    world.remove::<ResourceClaim>("default", "c");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(node_of(&world, "q"), "a");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_claim_is_not_made_yet_is_not_tried() {
    let text = r#"node a
        slice pa node=a devices=[{"name":"d0"}]
        deviceclass gpu
        pod p devices=[{"name":"gpu","resourceClaimTemplateName":"t"}]"#;
    let (_, world) = world(text).await;
    assert_eq!(events(&world), Vec::<String>::new());
    put(
        &world,
        r#"deviceclaim c requests=[{"name":"r","exactly":{"deviceClassName":"gpu"}}] metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"p-uid","controller":true}]
        pod p devices=[{"name":"gpu","resourceClaimTemplateName":"t"}] status.resourceClaimStatuses=[{"name":"gpu","resourceClaimName":"c"}]"#,
    );
    rest().await;
    assert_eq!(node_of(&world, "p"), "a");
}

#[tokio::test(start_paused = true)]
async fn profiles_have_names_of_their_own() {
    let context = Context::simulated("2026-01-01T12:00:00Z".parse().expect("a moment"), 1);
    let world = World::new(&context);
    put(
        &world,
        "node a labels.tier=slow\nnode b\npod p spec.schedulerName=picky\npod q spec.schedulerName=nobodys",
    );
    let file = "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: picky
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: tier, operator: In, values: [slow]}]}]
";
    let configuration = crate::Configuration::read(file.as_bytes()).expect("a configuration");
    let config = Config { configuration, ..Config::new("here") };
    let source = world.source();
    tokio::spawn(async move { run(&context, source, config).await });
    rest().await;
    assert_eq!((node_of(&world, "p").as_str(), node_of(&world, "q").as_str()), ("a", ""));
    let event = world.all::<Event>()[0].clone();
    assert_eq!(event.reporting_controller.as_deref(), Some("picky"));
}
