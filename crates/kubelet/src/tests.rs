//! The whole kubelet on a runtime and an API in memory, while time is paused.
mod agents;
mod authors;
mod away;
mod ends;
mod locals;
mod preempts;
mod probed;
mod resizes;

use crate::config::Config;
use crate::eviction::thresholds::Signal;
use crate::fake::Fake;
use crate::testing::until;
use crate::worker::Kubelet;
use client::events::{Recorder, Reporter};
use client::testing::World;
use client::{Context, Informers};
use expect_test::{Expect, expect};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{AttachedVolume, ConfigMap, Event, Node, Pod, Secret, Service};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub struct Machine {
    pub world: World,
    pub runtime: Fake,
    pub context: Context,
    pub folder: tempfile::TempDir,
}

impl Machine {
    fn start() -> Machine {
        let machine = Machine::new();
        machine.run_kubelet(machine.context.clone());
        machine
    }

    /// Without a kubelet.
    pub fn new() -> Machine {
        let context = Context::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        let world = World::new(&context);
        let runtime = Fake::new(&context, &["image:1"]);
        let folder = tempfile::tempdir().unwrap();
        Machine { world, runtime, context, folder }
    }

    fn run_kubelet(&self, context: Context) {
        self.run_kubelet_with(context, |_| {});
    }

    /// The answer ends when the kubelet has: only then may the next one of the same node begin.
    pub fn run_kubelet_with(
        &self,
        context: Context,
        change: impl FnOnce(&mut Config),
    ) -> tokio::task::JoinHandle<()> {
        let mut config = Config::new("n1", "10.1.1.1".parse().unwrap());
        config.root = self.folder.path().join("kubelet");
        config.cgroups_per_qos = false;
        config.log_root = self.folder.path().join("logs");
        // What this machine is short of is no concern of these tests.
        config.eviction.thresholds.retain(|one| one.signal == Signal::Memory);
        change(&mut config);
        std::fs::create_dir_all(&config.root).unwrap();
        let runtime = std::sync::Arc::new(self.runtime.clone());
        let run = Box::pin(crate::run(config, self.world.source(), context, runtime));
        tokio::spawn(async move { drop(run.await) })
    }

    /// One that does nothing by itself, beside the one that runs.
    pub fn kubelet(&self) -> Arc<Kubelet> {
        let mut config = Config::new("n1", "10.1.1.1".parse().unwrap());
        config.root = self.folder.path().join("kubelet");
        let (context, client) = (self.context.clone(), self.world.client());
        let informers = Informers::new(&context, self.world.source());
        let recorder = Recorder::core(&context, client.clone(), Reporter::new("kubelet", "n1"));
        Kubelet::new(
            Arc::new(config),
            context,
            client,
            Arc::new(self.runtime.clone()),
            recorder,
            informers.of::<Pod>(),
            informers.of::<Service>(),
            informers.of::<Node>(),
            "fake".to_owned(),
        )
    }

    pub fn pod(&self, spec: Value) {
        let mut spec = spec;
        spec["nodeName"] = "n1".into();
        let pod = json!({ "metadata": { "name": "web", "namespace": "default", "uid": "u1", "generation": 1 }, "spec": spec });
        self.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
    }

    pub async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// What the node's status says it uses.
    pub fn in_use(&self) -> Vec<String> {
        let status = self.world.get::<Node>("", "n1").and_then(|node| node.status.clone());
        status.and_then(|status| status.volumes_in_use).unwrap_or_default()
    }

    /// Once the node says that it uses a volume, the control plane says that it has it.
    pub async fn attach(&self, volume: &str) {
        until("the volume is in use", || self.in_use().iter().any(|name| name == volume)).await;
        let mut node = Node::clone(&self.world.get::<Node>("", "n1").unwrap());
        let attached = AttachedVolume { name: volume.to_owned(), device_path: String::new() };
        node.status.get_or_insert_default().volumes_attached = Some(vec![attached]);
        self.world.put(&node);
    }

    /// `Running ready c running`
    fn shown(&self) -> String {
        let Some(pod) = self.world.get::<Pod>("default", "web") else { return "gone".to_owned() };
        let status = json!(pod.status);
        let mut text = status["phase"].as_str().unwrap_or("unseen").to_owned();
        let ready = status["conditions"].as_array().into_iter().flatten();
        let mut ready = ready.filter(|one| one["type"] == "Ready" && one["status"] == "True");
        text += if ready.next().is_some() { " ready" } else { "" };
        for one in status["containerStatuses"].as_array().into_iter().flatten() {
            let (state, inner) = one["state"].as_object().unwrap().iter().next().unwrap();
            let reason = inner["reason"].as_str().unwrap_or_default();
            text += &format!(
                " {} {state} {reason} restarts={}",
                one["name"].as_str().unwrap(),
                one["restartCount"]
            );
        }
        text
    }

    fn check_events(&self, expected: Expect) {
        expected.assert_eq(&self.events().join("\n"));
    }

    /// Of pods, in the order in which they were written.
    fn events(&self) -> Vec<String> {
        let events = self.world.all::<Event>();
        let mut events: Vec<_> = events
            .iter()
            .filter(|event| event.involved_object.kind.as_deref() == Some("Pod"))
            .collect();
        events.sort_by_key(|event| {
            event.metadata.resource_version.as_ref().map(|text| text.parse::<u64>().unwrap())
        });
        let lines = events.iter().map(|event| {
            format!("{} {}", event.reason.as_ref().unwrap(), event.message.as_ref().unwrap())
        });
        lines.collect()
    }
}

pub fn one(extra: Value) -> Value {
    let mut container = json!({ "name": "c", "image": "image:1" });
    container.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({ "containers": [container], "restartPolicy": "Always" })
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_time_is_over_fails() {
    let machine = Machine::start();
    machine.pass(5).await;
    let mut spec = one(json!({}));
    spec["activeDeadlineSeconds"] = 20.into();
    spec["terminationGracePeriodSeconds"] = 1.into();
    machine.pod(spec);
    machine.pass(15).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    machine.pass(10).await;
    assert!(machine.shown().starts_with("Failed c terminated"), "{}", machine.shown());
    let pod = machine.world.get::<Pod>("default", "web").unwrap();
    assert_eq!(pod.status.as_ref().unwrap().reason.as_deref(), Some("DeadlineExceeded"));
    let told = "DeadlineExceeded Pod was active on the node longer than the specified deadline";
    assert!(machine.events().iter().any(|event| event == told), "{:?}", machine.events());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_fit_fails_and_runs_nothing() {
    let machine = Machine::start();
    machine.pass(5).await;
    machine.pod(one(json!({ "resources": { "requests": { "cpu": "9999" } } })));
    machine.pass(5).await;
    assert_eq!(machine.shown(), "Failed");
    let pod = machine.world.get::<Pod>("default", "web").unwrap();
    let status = pod.status.as_ref().unwrap();
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    let message = status.message.as_deref().unwrap();
    let begin = "Pod was rejected: Node didn't have enough resource: cpu, requested: 9999000, used: 0, capacity: ";
    assert!(message.starts_with(begin), "{message}");
    assert_eq!(machine.runtime.calls(), "");
}

#[tokio::test(start_paused = true)]
async fn labels_that_were_set_later_count() {
    let machine = Machine::start();
    machine.pass(5).await;
    let mut node = (*machine.world.get::<Node>("", "n1").unwrap()).clone();
    node.metadata.labels.get_or_insert_default().insert("disk".to_owned(), "ssd".to_owned());
    machine.world.put(&node);
    let mut spec = one(json!({}));
    spec["nodeSelector"] = json!({ "disk": "ssd" });
    machine.pod(spec);
    machine.pass(5).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
}

#[tokio::test(start_paused = true)]
async fn the_node_registers_and_renews_its_lease() {
    let machine = Machine::start();
    machine.pass(25).await;
    let node = machine.world.get::<Node>("", "n1").unwrap();
    let status = node.status.as_ref().unwrap();
    let ready =
        status.conditions.as_ref().unwrap().iter().find(|one| one.type_ == "Ready").unwrap();
    assert_eq!(ready.status, "True", "{ready:?}");
    assert_eq!(status.node_info.as_ref().unwrap().container_runtime_version, "fake://1");
    let events = machine.world.all::<Event>();
    let mut told: Vec<&str> = events
        .iter()
        .filter(|event| event.involved_object.kind.as_deref() == Some("Node"))
        .map(|event| event.reason.as_deref().unwrap())
        .collect();
    told.sort_unstable();
    // Of events of one instant the API takes one: they have one name, which no other clock gives them.
    assert_eq!(told, ["NodeHasSufficientMemory", "Starting"]);
    let lease = machine.world.get::<Lease>("kube-node-lease", "n1").unwrap();
    let renewed = lease.spec.as_ref().unwrap().renew_time.clone().unwrap();
    assert!(machine.context.now().duration_since(renewed.0).as_secs() <= 10);
}

#[tokio::test(start_paused = true)]
async fn a_pod_runs_is_deleted_and_nothing_is_left() {
    let machine = Machine::start();
    machine.pod(one(json!({})));
    machine.pass(1).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    expect![[r#"
        run sandbox web 0
        create c 0
        start"#]]
    .assert_eq(&machine.runtime.calls());
    let mut pod = (*machine.world.get::<Pod>("default", "web").unwrap()).clone();
    pod.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(machine.context.now()));
    pod.metadata.deletion_grace_period_seconds = Some(5);
    machine.world.put(&pod);
    machine.pass(5).await;
    assert_eq!(machine.shown(), "gone");
    expect![[r#"
        stop container 5s
        stop sandbox
        stop sandbox
        remove container
        remove sandbox"#]]
    .assert_eq(&machine.runtime.calls());
    assert!(!machine.folder.path().join("kubelet/pods/u1").exists());
    assert!(std::fs::read_dir(machine.folder.path().join("logs")).unwrap().next().is_none());
    machine.check_events(expect![[r#"
        Pulled Container image "image:1" already present on machine and can be accessed by the pod
        Created Container created
        Started Container started
        Killing Stopping container c"#]]);
}

#[tokio::test(start_paused = true)]
async fn what_crashes_is_started_again_later_and_later() {
    let machine = Machine::start();
    machine.pod(one(json!({})));
    machine.pass(1).await;
    machine.runtime.exit("c", 1);
    machine.pass(1).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=1");
    machine.runtime.exit("c", 1);
    machine.pass(1).await;
    assert_eq!(machine.shown(), "Running c waiting CrashLoopBackOff restarts=1");
    machine.pass(10).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=2");
}

#[tokio::test(start_paused = true)]
async fn a_job_ends() {
    let machine = Machine::start();
    let mut spec = one(json!({}));
    spec["restartPolicy"] = "Never".into();
    machine.pod(spec);
    machine.pass(1).await;
    machine.runtime.exit("c", 0);
    machine.pass(1).await;
    assert_eq!(machine.shown(), "Succeeded c terminated Completed restarts=0");
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_not_to_be_had_is_told_and_tried_again() {
    let machine = Machine::start();
    machine.pod(one(json!({ "image": "none:1" })));
    machine.pass(2).await;
    assert_eq!(machine.shown(), "Pending c waiting ImagePullBackOff restarts=0");
    // Two events of one moment have one name while time stands still: the first two have their own.
    let events = machine.events();
    assert_eq!(events[0], "Pulling Pulling image \"none:1\"");
    let failed =
        "Failed to pull image \"none:1\": rpc error: code = Unimplemented desc = no registry";
    assert_eq!(events[1], format!("Failed {failed}"));
    machine.pass(60).await;
    let pulls = machine.runtime.calls().lines().filter(|line| line.starts_with("pull")).count();
    assert!((2..=4).contains(&pulls), "{pulls}");
}

#[tokio::test(start_paused = true)]
async fn a_pull_tells_how_far_it_is_and_whose_the_image_is() {
    let machine = Machine::start();
    let config = json!({ "auths": { "docker.io": { "username": "known", "password": "p" } } });
    let secret = json!({ "metadata": { "name": "s", "namespace": "default", "uid": "s1" },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {}, "data": { ".dockerconfigjson": base64(&config.to_string()) } });
    machine.world.put::<Secret>(&serde_json::from_value(secret).unwrap());
    machine.runtime.pulls_are_at(Some((5, 10)));
    let mut spec = one(json!({ "image": "slow:1" }));
    spec["imagePullSecrets"] = json!([{ "name": "s" }]);
    machine.pod(spec);
    machine.pass(3).await;
    let told = |field: &str| {
        let pod = machine.world.get::<Pod>("default", "web").unwrap();
        let status = json!(pod.status.as_ref().unwrap().container_statuses);
        status[0]["state"]["waiting"][field].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(told("reason"), "ContainerCreating");
    assert_eq!(told("message"), "Pulling image \"slow:1\": 5 of 10 bytes");
    machine.runtime.pulls_are_at(None);
    machine.pass(2).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    assert!(machine.runtime.calls().contains("pull slow:1 as known"));
    // Somebody else, who has no secret, does not get it.
    let mut spec = one(json!({ "image": "slow:1", "imagePullPolicy": "Never" }));
    spec["nodeName"] = "n1".into();
    let pod = json!({ "metadata": { "name": "thief", "namespace": "default", "uid": "u2" }, "spec": spec });
    machine.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
    machine.pass(2).await;
    let pod = machine.world.get::<Pod>("default", "thief").unwrap();
    let status = json!(pod.status.as_ref().unwrap().container_statuses);
    assert_eq!(status[0]["state"]["waiting"]["reason"], "ErrImageNeverPull");
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[tokio::test(start_paused = true)]
async fn a_config_map_that_is_missing_is_waited_for_and_then_seen() {
    let machine = Machine::start();
    let reference =
        json!({ "name": "A", "valueFrom": { "configMapKeyRef": { "name": "cm", "key": "k" } } });
    machine.pod(one(json!({ "env": [reference] })));
    machine.pass(1).await;
    assert_eq!(machine.shown(), "Pending c waiting CreateContainerConfigError restarts=0");
    let map = json!({ "metadata": { "name": "cm", "namespace": "default" }, "data": { "k": "v" } });
    machine.world.put::<ConfigMap>(&serde_json::from_value(map).unwrap());
    machine.pass(11).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    assert!(machine.runtime.environment("c").contains(&"A=v".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn probes_make_ready_and_kill() {
    let machine = Machine::start();
    let probe =
        json!({ "exec": { "command": ["true"] }, "periodSeconds": 1, "failureThreshold": 3 });
    machine.pod(one(json!({ "readinessProbe": probe, "livenessProbe": probe })));
    machine.pass(3).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    machine.runtime.exec_ends_with(1);
    machine.pass(3).await;
    machine.runtime.exec_ends_with(0);
    machine.pass(4).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=1");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_not_supported_is_told() {
    let machine = Machine::start();
    let mut spec = one(json!({}));
    spec["volumes"] = json!([{ "name": "v", "fc": { "targetWWNs": ["w"], "lun": 0 } }]);
    machine.pod(spec);
    machine.pass(1).await;
    assert_eq!(machine.shown(), "Pending c waiting ContainerCreating restarts=0");
    machine.check_events(expect![[r#"
        FailedMount volume "v" is of kind fc, which this kubelet does not support"#]]);
}

#[tokio::test(start_paused = true)]
async fn another_kubelet_takes_up_what_runs_and_ends_what_nobody_wants() {
    let machine = Machine::start();
    machine.pod(one(json!({})));
    machine.pass(1).await;
    machine.runtime.calls();
    machine.context.stop();
    machine.pass(1).await;
    let next = Context::simulated(machine.context.now(), 2);
    machine.run_kubelet(next.clone());
    machine.pass(1).await;
    assert_eq!(
        (machine.shown().as_str(), machine.runtime.calls().as_str()),
        ("Running ready c running  restarts=0", "")
    );
    next.stop();
    machine.pass(1).await;
    machine.world.remove::<Pod>("default", "web");
    machine.run_kubelet(Context::simulated(machine.context.now(), 3));
    machine.pass(1).await;
    expect![[r#"
        stop container 30s
        stop sandbox
        remove container
        remove sandbox"#]]
    .assert_eq(&machine.runtime.calls());
}

#[tokio::test(start_paused = true)]
async fn all_containers_begin_again_when_a_rule_says_so() {
    let machine = Machine::start();
    let rules = json!([{ "action": "RestartAllContainers",
        "exitCodes": { "operator": "In", "values": [42] } }]);
    let mut spec = one(json!({ "restartPolicy": "Never", "restartPolicyRules": rules }));
    let other = json!({ "name": "d", "image": "image:1" });
    spec["containers"].as_array_mut().unwrap().push(other);
    spec["initContainers"] = json!([{ "name": "i", "image": "image:1" }]);
    spec["restartPolicy"] = "Never".into();
    machine.pod(spec);
    machine.pass(1).await;
    machine.runtime.exit("i", 0);
    machine.pass(1).await;
    let logs = machine.folder.path().join("logs/default_web_u1");
    for name in ["c", "d", "i"] {
        std::fs::write(logs.join(name).join("0.log"), "").unwrap();
    }
    machine.runtime.calls();
    machine.runtime.exit("c", 42);
    machine.pass(1).await;
    expect![[r#"
        stop container 0s
        remove container
        stop container 0s
        remove container
        stop container 0s
        remove container
        create i 1
        start"#]]
    .assert_eq(&machine.runtime.calls());
    assert_eq!(
        machine.shown(),
        "Running c waiting PodInitializing restarts=1 d waiting PodInitializing restarts=1"
    );
    machine.runtime.exit("i", 0);
    machine.pass(1).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=1 d running  restarts=1");
    let pod = machine.world.get::<Pod>("default", "web").unwrap();
    let status = json!(pod.status);
    let last = &status["containerStatuses"];
    assert_eq!(last[0]["lastState"]["terminated"]["exitCode"], 42);
    assert_eq!(last[1]["lastState"]["terminated"]["reason"], "RestartingAllContainers");
    let restarting = status["conditions"].as_array().unwrap().iter();
    let mut restarting = restarting.filter(|one| one["type"] == "AllContainersRestarting");
    assert_eq!(restarting.next().unwrap()["status"], "False");
    // Any other end is the end.
    machine.runtime.exit("d", 0);
    machine.runtime.exit("c", 1);
    machine.pass(1).await;
    assert!(machine.shown().starts_with("Failed"), "{}", machine.shown());
}

#[tokio::test(start_paused = true)]
async fn variables_come_from_a_file_that_an_init_container_left() {
    let machine = Machine::start();
    let key = json!({ "volumeName": "v", "path": "env", "key": "COLOR" });
    let mut spec = one(json!({ "env": [{ "name": "A", "valueFrom": { "fileKeyRef": key } }] }));
    spec["volumes"] = json!([{ "name": "v", "emptyDir": {} }]);
    spec["initContainers"] = json!([{ "name": "i", "image": "image:1" }]);
    machine.pod(spec);
    machine.pass(1).await;
    let volume = "kubelet/pods/u1/volumes/kubernetes.io~empty-dir/v/env";
    std::fs::write(machine.folder.path().join(volume), "COLOR='red'\n").unwrap();
    machine.runtime.exit("i", 0);
    machine.pass(1).await;
    assert!(machine.runtime.environment("c").contains(&"A=red".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_mirror_of_nothing_does_no_harm_to_other_pods() {
    let machine = Machine::start();
    machine.pod(one(json!({})));
    let mirror = json!({
        "metadata": { "name": "m", "namespace": "default", "annotations": { "kubernetes.io/config.mirror": "x" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "image:1" }] }
    });
    machine.world.put::<Pod>(&serde_json::from_value(mirror).unwrap());
    machine.pass(3).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    assert!(machine.folder.path().join("kubelet/pods/u1/etc-hosts").exists());
}
