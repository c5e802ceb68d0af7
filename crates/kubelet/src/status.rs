//! What the API is told of a pod: a pure function of the pod, what the runtime has of it, what
//! probes say, and why containers wait. The rules are those of `pkg/kubelet/kubelet_pods.go` and
//! `pkg/kubelet/status/generate.go` upstream.
use crate::found::{Container as Found1, Found, State};
use crate::plan::Probed;
use crate::pod::{self, Role};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, ContainerUser, HostIP, LinuxContainerUser, Pod,
    PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

pub struct Look<'a> {
    pub pod: &'a Pod,
    pub found: &'a Found,
    pub probed: &'a Probed,
    /// Why containers do not run: reason and message.
    pub waiting: &'a BTreeMap<String, (String, String)>,
    /// Why the pod as a whole was refused or ended: reason and message.
    pub failed: Option<&'a (String, String)>,
    /// Why the pod cannot be given what it asks for now.
    pub resize_pending: Option<&'a (String, String)>,
    pub host_ip: IpAddr,
    /// `skiff`: how containers' ids begin.
    pub runtime_name: &'a str,
    pub now: Timestamp,
}

pub fn generate(look: &Look<'_>) -> PodStatus {
    let old = pod::status(look.pod);
    if let Some(status) = refused(look, old) {
        return status;
    }
    let init: Vec<_> = statuses(look, |role| matches!(role, Role::Init | Role::Sidecar));
    let regular: Vec<_> = statuses(look, |role| role == Role::Regular);
    let ephemeral: Vec<_> =
        pod::ephemeral(look.pod).map(|one| container_status(look, &one, Role::Ephemeral)).collect();
    let phase = phase_of(look, &init, &regular);
    let start_time = old.start_time.clone().unwrap_or(Time(look.now));
    let ips: Vec<String> = match pod::uses_host_network(look.pod) {
        true => vec![look.host_ip.to_string()],
        false => look.found.sandboxes.first().map(|one| one.ips.clone()).unwrap_or_default(),
    };
    let given = |list: Vec<_>| (!list.is_empty()).then_some(list);
    let mut status = PodStatus {
        phase: Some(phase.to_owned()),
        reason: look.failed.map(|(reason, _)| reason.clone()).or_else(|| old.reason.clone()),
        message: look.failed.map(|(_, message)| message.clone()).or_else(|| old.message.clone()),
        start_time: Some(start_time),
        host_ip: Some(look.host_ip.to_string()),
        host_ips: Some(vec![HostIP { ip: look.host_ip.to_string() }]),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect()),
        qos_class: Some(api::rules::qos_class(&json!(look.pod.spec)).to_owned()),
        init_container_statuses: given(init),
        container_statuses: given(regular),
        ephemeral_container_statuses: given(ephemeral),
        observed_generation: look.pod.metadata.generation,
        ..old.clone()
    };
    status.conditions = Some(conditions(look, &status));
    status
}

/// Of a pod that was refused, now or by the kubelet before, nothing is told but that.
fn refused(look: &Look<'_>, old: &PodStatus) -> Option<PodStatus> {
    let was_refused = pod::is_terminal(look.pod) && old.container_statuses.is_none();
    if !look.found.sandboxes.is_empty() || !(look.failed.is_some() || was_refused) {
        return None;
    }
    let Some((reason, message)) = look.failed else { return Some(old.clone()) };
    Some(PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some(reason.clone()),
        message: Some(message.clone()),
        start_time: Some(old.start_time.clone().unwrap_or(Time(look.now))),
        qos_class: Some(api::rules::qos_class(&json!(look.pod.spec)).to_owned()),
        observed_generation: look.pod.metadata.generation,
        ..old.clone()
    })
}

fn statuses(look: &Look<'_>, wanted: impl Fn(Role) -> bool) -> Vec<ContainerStatus> {
    let all = pod::containers(look.pod).filter(|(role, _)| wanted(*role));
    let mut made: Vec<_> = all.map(|(role, one)| container_status(look, one, role)).collect();
    // Regular ones are sorted by name, init containers stay in order: upstream's habit.
    if made.iter().all(|one| pod::spec(look.pod).containers.iter().any(|c| c.name == one.name)) {
        made.sort_by(|a, b| a.name.cmp(&b.name));
    }
    made
}

fn container_status(look: &Look<'_>, container: &Container, role: Role) -> ContainerStatus {
    let latest = look.found.latest(&container.name);
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        started: Some(false),
        state: Some(waiting(look)),
        last_state: Some(ContainerState::default()),
        ..ContainerStatus::default()
    };
    if let Some((reason, message)) = look.waiting.get(&container.name) {
        status.state = Some(waits(reason, message));
    }
    let Some(latest) = latest else { return status };
    let before = look.found.previous(&container.name);
    let ended = |one: Option<&Found1>| {
        let one = one.filter(|one| one.state == State::Exited);
        one.map(|one| state_of(look, one)).unwrap_or_default()
    };
    status.restart_count = i32::try_from(latest.restarts).unwrap_or(i32::MAX);
    status.container_id = Some(container_id(look, latest));
    status.image_id.clone_from(&latest.image_id);
    // The pod is told of here with what it has been given.
    let given = container.resources.clone().filter(|_| role != Role::Ephemeral);
    status.allocated_resources = given.as_ref().and_then(|all| all.requests.clone());
    status.resources = given.filter(|_| latest.state == State::Running);
    if !latest.image.is_empty() {
        status.image.clone_from(&latest.image);
    }
    let waits = look.waiting.contains_key(&container.name) && latest.state != State::Running;
    match latest.state {
        _ if waits => status.last_state = Some(ended(Some(latest))),
        State::Running | State::Exited => {
            status.state = Some(state_of(look, latest));
            status.last_state = Some(ended(before));
        }
        State::Created | State::Unknown => status.last_state = Some(ended(before)),
    }
    if latest.state == State::Running {
        let probed = |answers: &BTreeMap<String, bool>| answers.get(&latest.id).copied();
        let started = probed(&look.probed.started).unwrap_or(container.startup_probe.is_none());
        status.started = Some(started);
        let ready = probed(&look.probed.ready).unwrap_or(container.readiness_probe.is_none());
        status.ready = started && ready && role != Role::Init;
    }
    if role == Role::Init && latest.state == State::Exited {
        status.ready = latest.exit_code == 0 && !waits;
    }
    status.user = latest.user.clone().map(|(uid, gid, groups)| ContainerUser {
        linux: Some(LinuxContainerUser { uid, gid, supplemental_groups: Some(groups) }),
    });
    status.resources.clone_from(&container.resources);
    status.allocated_resources = container.resources.as_ref().and_then(|all| all.requests.clone());
    status
}

fn waiting(look: &Look<'_>) -> ContainerState {
    let has_init = !pod::spec(look.pod).init_containers.as_deref().unwrap_or_default().is_empty();
    waits(if has_init { "PodInitializing" } else { "ContainerCreating" }, "")
}

fn waits(reason: &str, message: &str) -> ContainerState {
    let message = (!message.is_empty()).then(|| message.to_owned());
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn state_of(look: &Look<'_>, one: &Found1) -> ContainerState {
    let time = |nanos: i64| {
        let second = nanos.div_euclid(1_000_000_000);
        Timestamp::from_second(second).ok().filter(|_| nanos > 0).map(Time)
    };
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    if one.state == State::Running {
        let running = ContainerStateRunning { started_at: time(one.started_at) };
        return ContainerState { running: Some(running), ..ContainerState::default() };
    }
    let reason = match (one.reason.as_str(), one.exit_code) {
        ("", 0) => "Completed",
        ("", _) => "Error",
        (reason, _) => reason,
    };
    let terminated = ContainerStateTerminated {
        container_id: Some(container_id(look, one)),
        exit_code: one.exit_code,
        started_at: time(one.started_at),
        finished_at: time(one.finished_at),
        reason: Some(reason.to_owned()),
        message: text(&one.message),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

fn container_id(look: &Look<'_>, one: &Found1) -> String {
    format!("{}://{}", look.runtime_name, one.id)
}

fn phase_of(
    look: &Look<'_>,
    init: &[ContainerStatus],
    regular: &[ContainerStatus],
) -> &'static str {
    if let Some(phase) = pod::status(look.pod).phase.as_deref() {
        // What has ended stays ended.
        match phase {
            "Failed" => return "Failed",
            "Succeeded" => return "Succeeded",
            _ => {}
        }
    }
    if look.failed.is_some() {
        return "Failed";
    }
    let code = |status: &ContainerStatus| {
        status.state.as_ref()?.terminated.as_ref().map(|ended| ended.exit_code)
    };
    let is_running = |status: &ContainerStatus| {
        status.state.as_ref().is_some_and(|state| state.running.is_some())
    };
    let stopped_before = |status: &ContainerStatus| {
        status.last_state.as_ref().is_some_and(|state| state.terminated.is_some())
    };
    let spec = pod::spec(look.pod);
    let initialized = regular.iter().any(|status| status.container_id.is_some());
    for status in init {
        let wanted = spec.init_containers.iter().flatten().find(|one| one.name == status.name);
        let Some(wanted) = wanted else { continue };
        match pod::init_role(wanted) {
            Role::Sidecar if initialized || status.started == Some(true) => {}
            Role::Sidecar => return "Pending",
            _ => match code(status) {
                Some(0) => {}
                Some(code) if !pod::restarts(look.pod, wanted, code) => return "Failed",
                _ if initialized => {}
                _ => return "Pending",
            },
        }
    }
    let running = regular.iter().filter(|status| is_running(status)).count();
    let ended: Vec<_> = regular.iter().filter(|one| code(one).is_some()).collect();
    let again = |status: &&ContainerStatus| {
        let wanted = spec.containers.iter().find(|one| one.name == status.name);
        wanted.is_some_and(|one| pod::restarts(look.pod, one, code(status).unwrap_or(1)))
    };
    let crashed =
        regular.iter().filter(|one| code(one).is_none() && !is_running(one) && stopped_before(one));
    let stopped = ended.len() + crashed.clone().count();
    if running + stopped < regular.len() {
        return "Pending";
    }
    if running > 0 || crashed.count() > 0 || ended.iter().any(again) {
        return "Running";
    }
    match ended.iter().all(|status| code(status) == Some(0)) {
        true if !ended.is_empty() => "Succeeded",
        _ if ended.is_empty() => "Pending",
        _ => "Failed",
    }
}

fn conditions(look: &Look<'_>, status: &PodStatus) -> Vec<PodCondition> {
    let old = pod::status(look.pod).conditions.as_deref().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    let done = match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => None,
    };
    let spec = pod::spec(look.pod);
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    let regular = status.container_statuses.as_deref().unwrap_or_default();
    let started = regular.iter().any(|one| one.container_id.is_some());
    let sidecar = |name: &str| {
        let mut sidecars = pod::containers(look.pod).filter(|(role, _)| *role == Role::Sidecar);
        sidecars.any(|(_, one)| one.name == name)
    };
    let is_done = |one: &&ContainerStatus| match sidecar(&one.name) {
        true => one.started == Some(true) || started,
        false => one.ready || started,
    };
    let names = |list: Vec<&ContainerStatus>| {
        list.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let incomplete: Vec<_> = init.iter().filter(|one| !is_done(one)).collect();
    let sidecars = init.iter().filter(|one| sidecar(&one.name));
    let unready: Vec<_> = sidecars.chain(regular).filter(|one| !one.ready).collect();
    let initialized = match (incomplete.is_empty(), phase) {
        (_, "Succeeded") => (true, Some("PodCompleted"), None),
        (true, _) => (true, None, None),
        (false, _) => {
            let text = format!("containers with incomplete status: [{}]", names(incomplete));
            (false, Some("ContainersNotInitialized"), Some(text))
        }
    };
    let containers = match (done, unready.is_empty()) {
        (Some(reason), _) => (false, Some(reason), None),
        (None, true) => (true, None, None),
        (None, false) => {
            let text = format!("containers with unready status: [{}]", names(unready));
            (false, Some("ContainersNotReady"), Some(text))
        }
    };
    let is_true = |type_: &str| old.iter().any(|one| one.type_ == type_ && one.status == "True");
    let gates = spec.readiness_gates.iter().flatten();
    let missing: Vec<_> = gates.filter(|gate| !is_true(&gate.condition_type)).collect();
    let ready = match (containers.0, missing.first()) {
        (true, Some(gate)) => {
            let text = format!(
                "corresponding condition of pod readiness gate \"{}\" does not exist.",
                gate.condition_type
            );
            (false, Some("ReadinessGatesNotReady"), Some(text))
        }
        _ => containers.clone(),
    };
    let sandbox = look
        .found
        .sandbox()
        .is_some_and(|one| pod::uses_host_network(look.pod) || !one.ips.is_empty() || started);
    let rows = [
        ("PodReadyToStartContainers", (sandbox, None, None)),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", containers),
        ("PodScheduled", (true, None, None)),
    ];
    let mut made: Vec<PodCondition> = Vec::new();
    for (type_, (is, reason, message)) in rows {
        let status = if is { "True" } else { "False" };
        let before = old.iter().find(|one| one.type_ == type_);
        let same = before.filter(|one| one.status == status);
        // The scheduler wrote this one.
        if let Some(same) = same.filter(|_| type_ == "PodScheduled") {
            made.push(same.clone());
            continue;
        }
        made.push(PodCondition {
            last_probe_time: None,
            last_transition_time: same
                .map_or(Some(Time(look.now)), |one| one.last_transition_time.clone()),
            message,
            observed_generation: look.pod.metadata.generation,
            reason: reason.map(str::to_owned),
            status: status.to_owned(),
            type_: type_.to_owned(),
        });
    }
    if let Some((reason, message)) = look.resize_pending {
        let same = old.iter().find(|one| one.type_ == RESIZE_PENDING && one.status == "True");
        made.push(PodCondition {
            last_probe_time: None,
            last_transition_time: same
                .map_or(Some(Time(look.now)), |one| one.last_transition_time.clone()),
            message: Some(message.clone()),
            observed_generation: look.pod.metadata.generation,
            reason: Some(reason.clone()),
            status: "True".to_owned(),
            type_: RESIZE_PENDING.to_owned(),
        });
    }
    // Conditions of others stay.
    let foreign = old.iter().filter(|one| is_foreign(&one.type_));
    made.extend(foreign.cloned());
    made
}

const RESIZE_PENDING: &str = "PodResizePending";

fn is_foreign(type_: &str) -> bool {
    const OURS: [&str; 6] = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
        RESIZE_PENDING,
    ];
    !OURS.contains(&type_)
}

/// The change from one status to another as a strategic patch; `None` if there is none.
pub fn patch(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    let (old, new) = (json!(old), json!(new));
    let mut change = serde_json::Map::new();
    let (old, new) = (old.as_object()?, new.as_object()?);
    for (field, value) in new {
        if old.get(field) != Some(value) {
            let mut value = value.clone();
            // These lists are merged by their addresses otherwise, and would keep old ones.
            if let (true, Some(list)) =
                (["podIPs", "hostIPs"].contains(&field.as_str()), value.as_array_mut())
            {
                list.push(json!({ "$patch": "replace" }));
            }
            if field == "conditions" {
                forget_what_went(old.get(field), &mut value);
            }
            change.insert(field.clone(), value);
        }
    }
    for field in old.keys().filter(|field| !new.contains_key(*field)) {
        change.insert(field.clone(), Value::Null);
    }
    let patch = json!({ "metadata": { "uid": uid }, "status": change });
    (!change.is_empty()).then_some(patch)
}

/// Conditions are merged by their types: what one no longer says has to be unsaid, and one that is
/// no more taken away.
fn forget_what_went(old: Option<&Value>, new: &mut Value) {
    let before = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for condition in new.as_array_mut().into_iter().flatten() {
        let same = before.iter().find(|old| old["type"] == condition["type"]);
        for (name, _) in same.and_then(Value::as_object).into_iter().flatten() {
            if condition.get(name).is_none() {
                condition[name.as_str()] = Value::Null;
            }
        }
    }
    let Some(list) = new.as_array_mut() else { return };
    let gone = before.iter().filter(|old| !list.iter().any(|new| new["type"] == old["type"]));
    let gone: Vec<Value> =
        gone.map(|old| json!({ "$patch": "delete", "type": old["type"] })).collect();
    list.extend(gone);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use expect_test::{Expect, expect};

    fn check(world: &str, waiting: &[(&str, &str)], expected: Expect) {
        let world = testing::world(world);
        let waiting = waiting
            .iter()
            .map(|(name, reason)| (String::from(*name), (String::from(*reason), "why".to_owned())));
        let look = Look {
            pod: &world.pod,
            found: &world.found,
            probed: &world.probed,
            waiting: &waiting.collect(),
            failed: None,
            resize_pending: None,
            host_ip: "10.1.1.1".parse().unwrap(),
            runtime_name: "skiff",
            now: testing::at(world.now),
        };
        let status = generate(&look);
        let mut text = status.phase.unwrap();
        for condition in status.conditions.unwrap() {
            if condition.status == "True" {
                text += &format!(" {}", condition.type_);
            }
        }
        let all = status.init_container_statuses.into_iter().chain(status.container_statuses);
        for one in all.flatten() {
            let show = |state: Option<ContainerState>| match state.unwrap_or_default() {
                ContainerState { running: Some(_), .. } => "running".to_owned(),
                ContainerState { waiting: Some(waiting), .. } => waiting.reason.unwrap(),
                ContainerState { terminated: Some(end), .. } => {
                    format!("{}={}", end.reason.unwrap(), end.exit_code)
                }
                _ => "-".to_owned(),
            };
            text += &format!(
                "\n{} {} last {} restarts {}",
                one.name,
                show(one.state),
                show(one.last_state),
                one.restart_count
            );
            text += if one.ready { " ready" } else { "" };
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn a_new_pod_is_pending() {
        check(
            "container web",
            &[],
            expect![[r#"
                Pending Initialized PodScheduled
                web ContainerCreating last - restarts 0"#]],
        );
    }

    #[test]
    fn init_containers_hold_it_back() {
        check(
            "init a\ncontainer web\nsandbox s0 ready\nfound a s0 running",
            &[],
            expect![[r#"
                Pending PodReadyToStartContainers PodScheduled
                a running last - restarts 0
                web PodInitializing last - restarts 0"#]],
        );
        check(
            "pod restart=Never\ninit a\ncontainer web\nsandbox s0 not\nfound a s0 exited=1",
            &[],
            expect![[r#"
                Failed PodScheduled
                a Error=1 last - restarts 0
                web PodInitializing last - restarts 0"#]],
        );
    }

    #[test]
    fn a_running_pod_is_ready_when_its_probes_say_so() {
        check(
            "container web\nsandbox s0 ready\nfound web s0 running",
            &[],
            expect![[r#"
                Running PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled
                web running last - restarts 0 ready"#]],
        );
        check(
            "container web readiness\nsandbox s0 ready\nfound web s0 running",
            &[],
            expect![[r#"
                Running PodReadyToStartContainers Initialized PodScheduled
                web running last - restarts 0"#]],
        );
        check(
            "container web readiness\nsandbox s0 ready\nfound web s0 running ready",
            &[],
            expect![[r#"
                Running PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled
                web running last - restarts 0 ready"#]],
        );
    }

    #[test]
    fn what_crashes_is_running_and_says_how_it_ended() {
        check(
            "container web\nsandbox s0 ready\nfound web s0 exited=2\nfound web s0 exited=3",
            &[("web", "CrashLoopBackOff")],
            expect![[r#"
                Running PodReadyToStartContainers Initialized PodScheduled
                web CrashLoopBackOff last Error=3 restarts 1"#]],
        );
        check(
            "container web\nsandbox s0 ready\nfound web s0 exited=2\nfound web s0 running",
            &[],
            expect![[r#"
                Running PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled
                web running last Error=2 restarts 1 ready"#]],
        );
    }

    #[test]
    fn what_has_ended_succeeded_or_failed() {
        check(
            "pod restart=Never\ncontainer a\ncontainer b\nsandbox s0 not\nfound a s0 exited=0\nfound b s0 exited=0",
            &[],
            expect![[r#"
                Succeeded Initialized PodScheduled
                a Completed=0 last - restarts 0
                b Completed=0 last - restarts 0"#]],
        );
        check(
            "pod restart=Never\ncontainer a\ncontainer b\nsandbox s0 not\nfound a s0 exited=0\nfound b s0 exited=9",
            &[],
            expect![[r#"
                Failed Initialized PodScheduled
                a Completed=0 last - restarts 0
                b Error=9 last - restarts 0"#]],
        );
    }

    #[test]
    fn a_patch_holds_what_changed_and_takes_away_what_is_gone() {
        let old = PodStatus {
            pod_ip: Some("1".into()),
            reason: Some("r".into()),
            ..PodStatus::default()
        };
        let new = PodStatus {
            pod_ip: Some("2".into()),
            pod_ips: Some(vec![PodIP { ip: "2".into() }]),
            ..PodStatus::default()
        };
        let patch = patch("u", &old, &new).unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"uid": "u"}, "status": {
                "podIP": "2", "podIPs": [{"ip": "2"}, {"$patch": "replace"}], "reason": null}})
        );
        assert_eq!(super::patch("u", &new, &new), None);
    }

    #[test]
    fn what_a_condition_no_longer_says_is_unsaid() {
        let status = |reason: Option<&str>| PodStatus {
            conditions: Some(vec![PodCondition {
                type_: "Ready".to_owned(),
                status: if reason.is_some() { "False" } else { "True" }.to_owned(),
                reason: reason.map(str::to_owned),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        };
        let patch = patch("u", &status(Some("ContainersNotReady")), &status(None)).unwrap();
        let expected = json!([{ "type": "Ready", "status": "True", "reason": null }]);
        assert_eq!(patch["status"]["conditions"], expected);
    }
}
