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
        let generation = known.as_ref().and_then(|pod| pod.metadata.generation).unwrap_or(0) + 1;
        let status = known.map_or(Value::Null, |pod| json!(pod.status));
        let metadata =
            json!({ "name": name, "namespace": "default", "uid": name, "generation": generation });
        let pod = json!({ "metadata": metadata,
            "spec": { "nodeName": "n1", "containers": [container] }, "status": status });
        self.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
    }

    /// Conditions of a resize, and what the container has: `PodResizePending Deferred 2: 10m`
    fn resize_of(&self, name: &str) -> String {
        let pod = self.world.get::<Pod>("default", name).unwrap();
        let status = json!(pod.status);
        let conditions = status["conditions"].as_array().unwrap().iter();
        let resizes = conditions.filter(|one| one["type"].as_str().unwrap().contains("Resize"));
        let shown = resizes.map(|one| {
            let reason = one["reason"].as_str().unwrap_or_default();
            format!("{} {reason} {}: ", one["type"].as_str().unwrap(), one["observedGeneration"])
        });
        let has = &status["containerStatuses"][0]["resources"]["requests"]["cpu"];
        shown.collect::<String>() + has.as_str().unwrap()
    }

    /// Those about resizes, without what is asked for.
    fn resize_events(&self) -> Vec<String> {
        let of_resizes = self.events().into_iter().filter(|event| event.starts_with("Resize"));
        let shown = of_resizes.map(|event| {
            let (head, json) = event.split_once(": ").unwrap();
            let told: Value = serde_json::from_str(json).unwrap();
            assert_eq!(told["containers"][0]["name"], "c");
            let error = told["error"].as_str().unwrap_or_default();
            format!("{head} {} {error}", told["generation"]).trim_end().to_owned()
        });
        shown.collect()
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

#[tokio::test(start_paused = true)]
async fn a_resize_is_told_from_its_beginning_to_its_end() {
    let machine = Machine::start();
    machine.pass(5).await;
    machine.asks("web", "10m");
    machine.pass(2).await;
    assert_eq!(machine.resize_of("web"), "10m");
    machine.asks("web", "20m");
    machine.pass(2).await;
    assert_eq!(machine.resize_of("web"), "20m");
    let told = ["ResizeStarted Pod resize started 2", "ResizeCompleted Pod resize completed 2"];
    assert_eq!(machine.resize_events(), told);
    assert!(machine.runtime.calls().contains("resize"));
    // The runtime refuses, and later does not.
    machine.runtime.resize_fails(true);
    machine.asks("web", "30m");
    machine.pass(35).await;
    assert_eq!(machine.resize_of("web"), "PodResizeInProgress Error 3: 30m");
    machine.runtime.resize_fails(false);
    machine.pass(15).await;
    assert_eq!(machine.resize_of("web"), "30m");
    let told = machine.resize_events();
    let told: Vec<&str> = told[2..].iter().map(String::as_str).collect();
    let expected = [
        "ResizeStarted Pod resize started 3",
        "ResizeError Pod resize error 3 rpc error: code = Unimplemented desc = resources",
        "ResizeCompleted Pod resize completed 3",
    ];
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn a_resize_that_does_not_fit_is_told_once_and_outlives_the_kubelet() {
    let machine = Machine::new();
    let first = machine.context.part();
    let kubelet = machine.run_kubelet_with(first.clone(), |_| {});
    machine.pass(5).await;
    machine.asks("web", "10m");
    machine.pass(2).await;
    machine.asks("web", "9999");
    machine.pass(130).await;
    assert_eq!(machine.resize_of("web"), "PodResizePending Deferred 2: 10m");
    let told = machine.resize_events();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with(
            "ResizeDeferred Pod resize OutOfcpu 2 Node didn't have enough resource: cpu, \
             requested: 9999000, used: 0, capacity: "
        ),
        "{told:?}"
    );
    first.stop();
    kubelet.await.unwrap();
    let file = machine.folder.path().join("kubelet/allocated_pods_state");
    assert!(std::fs::read_to_string(file).unwrap().contains("10m"));
    // Whoever lost what the API said of it takes it for what it was.
    let mut pod = Pod::clone(&machine.world.get::<Pod>("default", "web").unwrap());
    pod.status.as_mut().unwrap().container_statuses = None;
    machine.world.put::<Pod>(&pod);
    machine.run_kubelet_with(machine.context.part(), |_| {});
    machine.pass(10).await;
    assert_eq!(machine.resize_of("web"), "PodResizePending Deferred 2: 10m");
    assert_eq!(machine.resize_events().len(), 1);
}

impl Machine {
    /// A container and its pod that may use so much memory.
    fn may_use(&self, container: &str, whole: Option<&str>) {
        let known = self.world.get::<Pod>("default", "web");
        let generation = known.as_ref().and_then(|pod| pod.metadata.generation).unwrap_or(0) + 1;
        let status = known.map_or(Value::Null, |pod| json!(pod.status));
        let limits = |memory: &str| json!({ "limits": { "memory": memory } });
        let container = json!({ "name": "c", "image": "image:1", "resources": limits(container) });
        let mut spec = json!({ "nodeName": "n1", "containers": [container] });
        if let Some(whole) = whole {
            spec["resources"] = limits(whole);
        }
        let pod = json!({ "metadata": { "name": "web", "namespace": "default", "uid": "u1",
            "generation": generation }, "spec": spec, "status": status });
        self.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
    }

    fn error_of_resize(&self) -> Option<String> {
        let pod = self.world.get::<Pod>("default", "web").unwrap();
        let status = pod.status.clone().unwrap_or_default();
        let mut all = status.conditions.unwrap_or_default().into_iter();
        all.find(|one| one.type_ == "PodResizeInProgress").and_then(|one| one.message)
    }
}

#[tokio::test(start_paused = true)]
async fn memory_that_is_used_is_not_taken_away() {
    let machine = Machine::start();
    machine.pass(5).await;
    machine.may_use("100Mi", None);
    machine.pass(2).await;
    machine.runtime.uses("u1", 60 << 20);
    machine.runtime.calls();
    machine.may_use("50Mi", None);
    machine.pass(2).await;
    let limit = "memory limit (52428800) below current usage (62914560)";
    let both =
        format!("[attempting to set pod {limit}, attempting to set container \"c\" {limit}]");
    assert_eq!(machine.error_of_resize(), Some(format!("cannot decrease memory limits: {both}")));
    assert!(!machine.runtime.calls().contains("resize"));
    machine.runtime.uses("u1", 40 << 20);
    machine.pass(15).await;
    assert_eq!(machine.error_of_resize(), None);
    assert!(machine.runtime.calls().contains("resize"));
}

#[tokio::test(start_paused = true)]
async fn memory_that_a_pod_uses_is_not_taken_away() {
    let machine = Machine::start();
    machine.pass(5).await;
    machine.may_use("50Mi", Some("100Mi"));
    machine.pass(2).await;
    machine.runtime.uses("u1", 45 << 20);
    machine.may_use("50Mi", Some("45Mi"));
    machine.pass(2).await;
    let why = "cannot decrease memory limits: attempting to set pod memory limit (47185920) below \
               current usage (47185920)";
    assert_eq!(machine.error_of_resize().as_deref(), Some(why));
    machine.runtime.uses("u1", 30 << 20);
    machine.pass(70).await;
    assert_eq!(machine.error_of_resize(), None);
}
