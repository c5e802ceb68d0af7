//! What becomes of a pod on a node that is played.
use ::client::source::Patch;
use ::client::{Keep, Object};
use api::codec::DecodeError;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The annotation that says what a pod does.
pub const DOES: &str = "hollow.skiff/does";

/// As much of a pod as matters.
#[derive(Debug, Default, PartialEq)]
pub struct Played {
    pub uid: String,
    pub node: String,
    pub ip: String,
    pub host_network: bool,
    phase: String,
    ready: bool,
    deleting: bool,
    /// Somebody waits for its end.
    is_held: bool,
    /// Since when it runs.
    started: Option<Timestamp>,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    restarts: i64,
    restart_policy: String,
    does: Does,
}

#[derive(Debug, Default, PartialEq)]
struct Does {
    exit: Option<i32>,
    after: Duration,
    /// `None`: never.
    ready_after: Option<Duration>,
}

impl Does {
    /// Words that nobody understands mean nothing.
    fn read(text: &str) -> Does {
        let mut does =
            Does { exit: None, after: Duration::ZERO, ready_after: Some(Duration::ZERO) };
        let span = |text: &str| {
            text.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok())
        };
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("exit", code)) => does.exit = code.parse().ok(),
                Some(("after", time)) => does.after = span(time).unwrap_or_default(),
                Some(("ready", time)) => does.ready_after = span(time),
                _ => {}
            }
        }
        does
    }
}

#[derive(Debug, PartialEq)]
pub enum Step {
    Nothing,
    Later(Duration),
    Say(Phase),
    Remove,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Phase {
    Running { ready: bool, restarts: i64 },
    Ended { code: i32 },
}

/// What comes next for a pod that is bound to one of ours.
pub fn decide(pod: &Played, now: Timestamp) -> Step {
    let is_over = matches!(&*pod.phase, "Succeeded" | "Failed");
    if pod.deleting {
        // Who holds it wants to see its end, before it goes.
        return if pod.is_held && !is_over {
            Step::Say(Phase::Ended { code: 143 })
        } else {
            Step::Remove
        };
    }
    if is_over {
        return Step::Nothing;
    }
    let ran = match (&*pod.phase, pod.started) {
        ("Running", Some(started)) => Some(now.duration_since(started)),
        _ => None,
    };
    let ran = ran.map(|ran| Duration::try_from(ran).unwrap_or_default());
    let does = &pod.does;
    if let Some(code) = does.exit {
        let restarts =
            pod.restart_policy == "Always" || (pod.restart_policy == "OnFailure" && code != 0);
        let is_due =
            ran.is_some_and(|ran| ran >= does.after) || (does.after.is_zero() && !restarts);
        return match (is_due, ran) {
            (true, _) if restarts => {
                Step::Say(Phase::Running { ready: false, restarts: pod.restarts + 1 })
            }
            (true, _) => Step::Say(Phase::Ended { code }),
            (false, Some(ran)) => Step::Later(does.after - ran),
            (false, None) => Step::Say(Phase::Running { ready: true, restarts: 0 }),
        };
    }
    match (ran, does.ready_after) {
        (None, ready) => {
            Step::Say(Phase::Running { ready: ready == Some(Duration::ZERO), restarts: 0 })
        }
        (Some(ran), Some(due)) if !pod.ready && ran < due => Step::Later(due - ran),
        (Some(_), Some(_)) if !pod.ready => Step::Say(Phase::Running { ready: true, restarts: 0 }),
        _ => Step::Nothing,
    }
}

/// The status that a kubelet would report, as a patch of this very pod.
pub fn status(pod: &Played, phase: Phase, now: Timestamp, ip: &str, host: &str) -> Patch {
    let now = format!("{now:.0}");
    let condition = |type_: &str, status: bool, reason: &str| {
        let status = if status { "True" } else { "False" };
        json!({ "type": type_, "status": status, "lastTransitionTime": now,
            "reason": if reason.is_empty() { Value::Null } else { reason.into() } })
    };
    let started = pod.started.map_or_else(|| now.clone(), |started| format!("{started:.0}"));
    let (name, ready, restarts, reason, state) = match phase {
        Phase::Running { ready, restarts } => {
            // One that was started again runs since then.
            let since = if restarts > 0 { &now } else { &started };
            (
                "Running",
                ready,
                restarts,
                "ContainersNotReady",
                json!({ "running": { "startedAt": since } }),
            )
        }
        Phase::Ended { code } => {
            let state = json!({ "terminated": { "exitCode": code, "startedAt": started, "finishedAt": now,
                "reason": if code == 0 { "Completed" } else { "Error" } } });
            let (name, reason) =
                if code == 0 { ("Succeeded", "PodCompleted") } else { ("Failed", "PodFailed") };
            (name, false, pod.restarts, reason, state)
        }
    };
    let reason = if ready { "" } else { reason };
    let container = |container: &Container, state: &Value, ready: bool, restarts: i64| {
        json!({ "name": container.name, "image": container.image, "imageID": container.image,
            "containerID": format!("hollow://{}/{}", pod.uid, container.name),
            "ready": ready, "started": ready, "restartCount": restarts, "state": state })
    };
    let over = json!({ "terminated": { "exitCode": 0, "startedAt": started, "finishedAt": started,
        "reason": "Completed" } });
    let mut status = json!({
        "phase": name, "podIP": ip, "podIPs": [{ "ip": ip }], "hostIP": host, "hostIPs": [{ "ip": host }],
        "startTime": started,
        "conditions": [
            condition("PodReadyToStartContainers", name == "Running", ""),
            condition("Initialized", true, if name == "Succeeded" { reason } else { "" }),
            condition("Ready", ready, reason), condition("ContainersReady", ready, reason),
        ],
        "containerStatuses":
            pod.containers.iter().map(|each| container(each, &state, ready, restarts)).collect::<Vec<_>>() });
    if !pod.init_containers.is_empty() {
        let each = pod.init_containers.iter().map(|each| container(each, &over, true, 0));
        status["initContainerStatuses"] = each.collect();
    }
    Patch::Strategic(json!({ "metadata": { "uid": pod.uid }, "status": status }))
}

impl Keep for Played {
    fn keep(object: &Arc<Object>) -> Result<Arc<Played>, DecodeError> {
        let read: Read = serde_json::from_slice(&object.json())
            .map_err(|error| DecodeError::Type(error.to_string()))?;
        Ok(Arc::new(read.played()))
    }
}

#[derive(Deserialize)]
struct Read {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    uid: String,
    annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
    finalizers: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    host_network: bool,
    restart_policy: String,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct Container {
    name: String,
    image: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    start_time: Option<Time>,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    restart_count: i64,
    #[serde(default)]
    state: State,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State {
    running: Option<Running>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Running {
    started_at: Option<Time>,
}

impl Read {
    fn played(self) -> Played {
        let Read { metadata, spec, status } = self;
        let mut conditions = status.conditions.iter();
        let mut states = status.container_statuses.iter();
        let running = states.find_map(|each| each.state.running.as_ref());
        // Of pods elsewhere, and of ones that are over, nothing is needed.
        let does = Does::read(metadata.annotations.get(DOES).map_or("", String::as_str));
        Played {
            uid: metadata.uid,
            node: spec.node_name,
            ip: status.pod_ip,
            host_network: spec.host_network,
            ready: conditions.any(|each| each.r#type == "Ready" && each.status == "True"),
            phase: status.phase,
            deleting: metadata.deletion_timestamp.is_some(),
            is_held: !metadata.finalizers.is_empty(),
            started: running
                .and_then(|running| running.started_at.clone())
                .or(status.start_time)
                .map(|time| time.0),
            containers: spec.containers,
            init_containers: spec.init_containers,
            restarts: status.container_statuses.iter().map(|each| each.restart_count).sum(),
            restart_policy: spec.restart_policy,
            does,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pod: &Value, expected: &Step) {
        let read: Read = serde_json::from_value(pod.clone()).expect("a pod");
        let now: Timestamp = "2026-01-01T12:00:10Z".parse().expect("a moment");
        assert_eq!(&decide(&read.played(), now), expected, "{pod}");
    }

    fn pod(does: &str, policy: &str, running: bool) -> Value {
        let mut pod = json!({ "metadata": { "uid": "u", "annotations": { DOES: does } },
            "spec": { "nodeName": "n", "restartPolicy": policy, "containers": [{ "name": "c" }] } });
        if running {
            pod["status"] = json!({ "phase": "Running", "startTime": "2026-01-01T12:00:00Z",
                "conditions": [{ "type": "Ready", "status": "True" }],
                "containerStatuses": [{ "restartCount": 1, "state": {
                    "running": { "startedAt": "2026-01-01T12:00:08Z" } } }] });
        }
        pod
    }

    #[test]
    fn a_bound_pod_runs_and_is_ready_when_it_says() {
        let running = |ready| Step::Say(Phase::Running { ready, restarts: 0 });
        check(&pod("", "Always", false), &running(true));
        check(&pod("", "Always", true), &Step::Nothing);
        check(&pod("ready=never", "Always", false), &running(false));
        let mut waiting = pod("ready=5s", "Always", true);
        waiting["status"]["conditions"] = json!([]);
        check(&waiting, &Step::Later(Duration::from_secs(3)));
        waiting["metadata"]["annotations"][DOES] = "ready=1s".into();
        check(&waiting, &running(true));
    }

    #[test]
    fn it_ends_as_it_says_or_starts_again_as_its_policy_says() {
        check(&pod("exit=0", "Never", false), &Step::Say(Phase::Ended { code: 0 }));
        check(&pod("exit=3 after=1s", "Never", true), &Step::Say(Phase::Ended { code: 3 }));
        check(&pod("exit=3 after=5s", "Never", true), &Step::Later(Duration::from_secs(3)));
        let again = Step::Say(Phase::Running { ready: false, restarts: 2 });
        check(&pod("exit=3 after=1s", "OnFailure", true), &again);
        check(&pod("exit=0 after=1s", "OnFailure", true), &Step::Say(Phase::Ended { code: 0 }));
    }

    #[test]
    fn one_that_is_deleted_goes_after_its_end_was_told_to_those_who_hold_it() {
        let mut pod = pod("", "Never", true);
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z".into();
        check(&pod, &Step::Remove);
        pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
        check(&pod, &Step::Say(Phase::Ended { code: 143 }));
        pod["status"]["phase"] = "Failed".into();
        check(&pod, &Step::Remove);
    }
}
