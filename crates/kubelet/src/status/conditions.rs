//! A pod's conditions, from the statuses of its containers.
use super::*;
use crate::plan;

pub(super) fn conditions(look: &Look<'_>, status: &PodStatus) -> Vec<PodCondition> {
    let old = pod::status(look.pod).conditions.as_deref().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    let done = match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => None,
    };
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
    let ready = match gates(look.pod, old) {
        Some(text) if containers.0 => (false, Some("ReadinessGatesNotReady"), Some(text)),
        _ => containers.clone(),
    };
    let sandbox = match sandbox_trouble(look, started) {
        None => (true, None, None),
        Some(why) => (false, Some("PodSandboxNotReady"), Some(why.to_owned())),
    };
    let rows = [
        ("PodReadyToStartContainers", sandbox),
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
    if pod::could_restart_all(look.pod) {
        let is = done.is_none() && plan::restarts_all(look.pod, look.found);
        let status = if is { "True" } else { "False" };
        let same = old.iter().find(|one| one.type_ == RESTARTING && one.status == status);
        let why = is.then_some(("RestartAllContainersStarted", RESTARTING_WHY));
        made.push(PodCondition {
            last_probe_time: None,
            last_transition_time: same
                .map_or(Some(Time(look.now)), |one| one.last_transition_time.clone()),
            message: why.map(|(_, message)| message.to_owned()),
            observed_generation: look.pod.metadata.generation,
            reason: why.map(|(reason, _)| reason).or(done).map(str::to_owned),
            status: status.to_owned(),
            type_: RESTARTING.to_owned(),
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
    if let Some(progress) = look.resizing {
        let same = old.iter().find(|one| one.type_ == RESIZING && one.status == "True");
        made.push(PodCondition {
            last_probe_time: None,
            last_transition_time: same
                .map_or(Some(Time(look.now)), |one| one.last_transition_time.clone()),
            message: progress.error.clone(),
            observed_generation: Some(progress.generation),
            reason: progress.error.is_some().then(|| "Error".to_owned()),
            status: "True".to_owned(),
            type_: RESIZING.to_owned(),
        });
    }
    let ended = look.found.running().next().is_none();
    if let Some(message) = look.disrupted.filter(|_| ended) {
        let same = old.iter().find(|one| one.type_ == DISRUPTION_TARGET);
        made.push(PodCondition {
            last_probe_time: None,
            last_transition_time: same
                .map_or(Some(Time(look.now)), |one| one.last_transition_time.clone()),
            message: Some(message.to_owned()),
            observed_generation: look.pod.metadata.generation,
            reason: Some("TerminationByKubelet".to_owned()),
            status: "True".to_owned(),
            type_: DISRUPTION_TARGET.to_owned(),
        });
        made.extend(
            old.iter()
                .filter(|one| is_foreign(&one.type_) && one.type_ != DISRUPTION_TARGET)
                .cloned(),
        );
        return made;
    }
    // Conditions of others stay.
    let foreign = old.iter().filter(|one| is_foreign(&one.type_));
    made.extend(foreign.cloned());
    made
}

/// Why another sandbox is needed, in upstream's words (`PodSandboxChanged` in `pkg/kubelet/kuberuntime/util`).
fn sandbox_trouble(look: &Look<'_>, started: bool) -> Option<&'static str> {
    let all = &look.found.sandboxes;
    let Some(latest) = all.first() else { return Some("no pod sandbox exists") };
    if all.iter().filter(|one| one.is_ready).count() > 1 {
        return Some("multiple pod sandboxes are ready and need to be reconciled");
    }
    if !latest.is_ready {
        return Some("pod sandbox is not ready");
    }
    let has_address = pod::uses_host_network(look.pod) || !latest.ips.is_empty() || started;
    (!has_address).then_some("pod sandbox has no IP address")
}

/// Which of the conditions that others set are not there yet.
fn gates(pod: &Pod, conditions: &[PodCondition]) -> Option<String> {
    let missing = pod::spec(pod).readiness_gates.iter().flatten().filter_map(|gate| {
        let name = &gate.condition_type;
        let known = conditions.iter().find(|one| one.type_ == *name);
        match known.map(|one| one.status.as_str()) {
            Some("True") => None,
            Some(status) => Some(format!(
                "the status of pod readiness gate {name:?} is not \"True\", but {status}"
            )),
            None => Some(format!(
                "corresponding condition of pod readiness gate {name:?} does not exist."
            )),
        }
    });
    let missing: Vec<String> = missing.collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

const DISRUPTION_TARGET: &str = "DisruptionTarget";
const RESIZE_PENDING: &str = "PodResizePending";
const RESIZING: &str = "PodResizeInProgress";
const RESTARTING: &str = "AllContainersRestarting";
const RESTARTING_WHY: &str = "container exited with restart policy rule";

pub(super) fn is_foreign(type_: &str) -> bool {
    const OURS: [&str; 8] = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
        RESIZE_PENDING,
        RESIZING,
        RESTARTING,
    ];
    !OURS.contains(&type_)
}
