//! What the API is told of a pod: a pure function of the pod, what the runtime has of it, what
//! probes say, and why containers wait. The rules are those of `pkg/kubelet/kubelet_pods.go` and
//! `pkg/kubelet/status/generate.go` upstream.
mod conditions;
mod remembered;
mod told;

pub use remembered::remembered;
pub use told::{Told, hearsay, in_api, is_overwritten, known};

use crate::found::{Container as Found1, Found, State};
use crate::plan::{self, Probed};
use crate::pod::{self, Role};
use crate::worker::Progress;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, ContainerUser, HostIP, LinuxContainerUser, Pod,
    PodCondition, PodIP, PodStatus, ResourceRequirements, VolumeMount, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
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
    /// It was evicted for the sake of the node: the message of `DisruptionTarget`.
    pub disrupted: Option<&'a str>,
    /// Why the pod cannot be given what it asks for now.
    pub resize_pending: Option<&'a (String, String)>,
    /// What the pod has been given and does not have yet.
    pub resizing: Option<&'a Progress>,
    /// The node's; the first is what it is known by.
    pub host_ips: &'a [IpAddr],
    /// `skiff`: how containers' ids begin.
    pub runtime_name: &'a str,
    pub now: Timestamp,
}

pub fn generate(look: &Look<'_>) -> PodStatus {
    let old = pod::status(look.pod);
    if let Some(status) = refused(look, old) {
        return status;
    }
    // Of a pod that has ended the runtime may have nothing left: what was told stays told.
    if pod::is_terminal(look.pod) && look.found.containers.is_empty() {
        return old.clone();
    }
    let init: Vec<_> = statuses(look, |role| matches!(role, Role::Init | Role::Sidecar));
    let regular: Vec<_> = statuses(look, |role| role == Role::Regular);
    let ephemeral: Vec<_> =
        pod::ephemeral(look.pod).map(|one| container_status(look, &one, Role::Ephemeral)).collect();
    let phase = phase_of(look, &init, &regular);
    // Whoever replaces a pod that failed may count on its containers having ended.
    let is_ending = look.failed.is_some() && look.found.running().next().is_some();
    let failed = look.failed.filter(|_| !is_ending);
    let start_time = old.start_time.clone().unwrap_or(Time(look.now));
    let ips: Vec<String> = match pod::uses_host_network(look.pod) {
        true => look.host_ips.iter().map(ToString::to_string).collect(),
        false => look.found.sandboxes.first().map(|one| one.ips.clone()).unwrap_or_default(),
    };
    let given = |list: Vec<_>| (!list.is_empty()).then_some(list);
    let mut status = PodStatus {
        phase: Some(phase.to_owned()),
        reason: failed.map(|(reason, _)| reason.clone()).or_else(|| old.reason.clone()),
        message: failed.map(|(_, message)| message.clone()).or_else(|| old.message.clone()),
        start_time: Some(start_time),
        host_ip: look.host_ips.first().map(ToString::to_string),
        host_ips: Some(look.host_ips.iter().map(|ip| HostIP { ip: ip.to_string() }).collect()),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect()),
        qos_class: Some(api::rules::qos_class(&json!(look.pod.spec)).to_owned()),
        init_container_statuses: given(init),
        container_statuses: given(regular),
        ephemeral_container_statuses: given(ephemeral),
        observed_generation: look.pod.metadata.generation,
        // What the pod as a whole has been given.
        resources: pod::spec(look.pod).resources.clone(),
        allocated_resources: pod::spec(look.pod).resources.as_ref().and_then(given_to_pod),
        ..old.clone()
    };
    status.conditions = Some(conditions::conditions(look, &status));
    status
}

fn given_to_pod(whole: &ResourceRequirements) -> Option<BTreeMap<String, Quantity>> {
    whole.requests.clone()
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

/// Whether one that has ended is started another time.
fn is_tried_again(look: &Look<'_>, container: &Container, role: Role, ended: &Found1) -> bool {
    match role {
        Role::Ephemeral => false,
        Role::Init => plan::restarts_init(look.pod, container, ended.exit_code),
        _ => {
            pod::restarts(look.pod, container, ended.exit_code)
                || plan::restarts_all(look.pod, look.found)
        }
    }
}

fn container_status(look: &Look<'_>, container: &Container, role: Role) -> ContainerStatus {
    let latest = look.found.latest(&container.name);
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        started: Some(false),
        state: Some(waiting(look)),
        last_state: Some(ContainerState::default()),
        volume_mounts: volume_mounts(container),
        ..ContainerStatus::default()
    };
    if let Some((reason, message)) = look.waiting.get(&container.name) {
        status.state = Some(waits(reason, message));
    }
    let Some(latest) = latest else {
        if let Some((count, ended)) = began_again(look, &container.name, None) {
            status.restart_count = count;
            status.last_state = Some(ended);
        }
        return status;
    };
    let before = look.found.previous(&container.name);
    let ended = |one: Option<&Found1>| {
        let one = one.filter(|one| one.state == State::Exited);
        let known = one.map(|one| state_of(look, one));
        let told = || began_again(look, &container.name, Some(latest)).map(|(_, ended)| ended);
        known.or_else(told).unwrap_or_default()
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
    // One that could not be started, and is not tried again, waits for nothing: it has ended
    // (`ShouldContainerBeRestarted` in `pkg/kubelet/container/helpers.go`).
    let is_over = latest.state == State::Exited && !is_tried_again(look, container, role, latest);
    let waits =
        look.waiting.contains_key(&container.name) && latest.state != State::Running && !is_over;
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

/// Of a container whose predecessors went because all of its pod began again: how often it has been
/// started when it runs next, and how it ended, as far as that was told.
fn began_again(
    look: &Look<'_>,
    name: &str,
    latest: Option<&Found1>,
) -> Option<(i32, ContainerState)> {
    if !pod::could_restart_all(look.pod) {
        return None;
    }
    let told = pod::status(look.pod);
    let lists = [&told.init_container_statuses, &told.container_statuses];
    let old = lists.into_iter().flatten().flatten().find(|one| one.name == name)?;
    let last = old.last_state.clone().filter(|state| state.terminated.is_some());
    let id = latest.map(|latest| container_id(look, latest));
    if id.is_some() && id == old.container_id {
        return last.map(|last| (old.restart_count, last));
    }
    let state = old.state.clone().unwrap_or_default();
    if state.waiting.is_some() {
        return last.map(|last| (old.restart_count, last));
    }
    let ended = state.terminated.unwrap_or_else(|| ContainerStateTerminated {
        exit_code: 137,
        reason: Some("RestartingAllContainers".to_owned()),
        message: Some("The container is removed because RestartAllContainers in place".to_owned()),
        ..ContainerStateTerminated::default()
    });
    let ended = ContainerState { terminated: Some(ended), ..ContainerState::default() };
    Some((old.restart_count + 1, ended))
}

fn waiting(look: &Look<'_>) -> ContainerState {
    let has_init = !pod::spec(look.pod).init_containers.as_deref().unwrap_or_default().is_empty();
    waits(if has_init { "PodInitializing" } else { "ContainerCreating" }, "")
}

/// What a container sees of its volumes, and how.
fn volume_mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let all = container.volume_mounts.as_deref().filter(|all| !all.is_empty())?;
    let one = |mount: &VolumeMount| VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: mount.read_only,
        recursive_read_only: (mount.read_only == Some(true)).then(|| {
            match mount.recursive_read_only.as_deref() {
                // The runtime does it or refuses to start the container.
                Some("Enabled" | "IfPossible") => "Enabled",
                _ => "Disabled",
            }
            .to_owned()
        }),
        ..VolumeMountStatus::default()
    };
    Some(all.iter().map(one).collect())
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
    if look.failed.is_some() && look.found.running().next().is_none() {
        return "Failed";
    }
    let phase = begun_phase(look, init, regular);
    let is_over = pod::is_deleting(look.pod) && look.found.running().next().is_none();
    if !is_over || pod::is_static(look.pod) || !matches!(phase, "Pending" | "Running") {
        return phase;
    }
    // Nothing of it begins again, and whoever keeps it by a finalizer waits for how it ended.
    let is_success = |status: &ContainerStatus| {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.exit_code == 0)
    };
    if regular.iter().all(is_success) { "Succeeded" } else { "Failed" }
}

/// The phase of a pod that has not failed as a whole.
fn begun_phase(
    look: &Look<'_>,
    init: &[ContainerStatus],
    regular: &[ContainerStatus],
) -> &'static str {
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
    // What ran before all began again had been initialized, too.
    let initialized =
        regular.iter().any(|status| status.container_id.is_some() || stopped_before(status));
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

/// The change from one status to another as a strategic patch; `None` if there is none.
pub fn patch(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    let (old, new) = (json!(old), json!(new));
    let mut change = serde_json::Map::new();
    let (old, new) = (old.as_object()?, new.as_object()?);
    for (field, value) in new {
        if bare(old.get(field)) != bare(Some(value)) {
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
    for (field, value) in old.iter().filter(|(field, _)| !new.contains_key(*field)) {
        if bare(Some(value)).is_some() {
            change.insert(field.clone(), Value::Null);
        }
    }
    let patch = json!({ "metadata": { "uid": uid }, "status": change });
    (!change.is_empty()).then_some(patch)
}

/// A value without what says nothing, which API servers leave out, and with conditions in one order: what differs
/// in nothing else is not written again and again.
fn bare(value: Option<&Value>) -> Option<Value> {
    match value? {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(list) => {
            let mut list: Vec<Value> = list.iter().filter_map(|one| bare(Some(one))).collect();
            if list.iter().all(|one| one["type"].is_string()) {
                list.sort_by(|a, b| a["type"].as_str().cmp(&b["type"].as_str()));
            }
            (!list.is_empty()).then_some(Value::Array(list))
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields: serde_json::Map<String, Value> = fields
                .filter_map(|(name, value)| Some((name.clone(), bare(Some(value))?)))
                .collect();
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        other => Some(other.clone()),
    }
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
mod tests;
