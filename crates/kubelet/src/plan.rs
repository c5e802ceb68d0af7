//! The decision: a pod that is wanted, what the runtime has of it, and the time → what to do next.
//!
//! It is pure and level-triggered. A plan holds what can be done now; when that is done the worker
//! looks again and asks for another, until there is nothing left to do. What has to wait says how
//! long. The behaviour is that of `computePodActions` in upstream's
//! `pkg/kubelet/kuberuntime/kuberuntime_manager.go`.
use crate::backoff::Backoff;
use crate::container::resources;
use crate::found::{Container as Found1, Found, State};
use crate::pod::{self, Role};
use crate::runtime::cri;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::{BTreeMap, BTreeSet};

/// What is looked at.
pub struct Look<'a> {
    pub pod: &'a Pod,
    pub found: &'a Found,
    pub probed: &'a Probed,
    pub backoff: &'a Backoff,
    /// It is deleted, evicted or refused: everything has to end.
    pub ending: bool,
    /// What limits depend on.
    pub enforcement: &'a resources::Enforcement,
    /// Containers that have processors for themselves.
    pub with_cpus: &'a BTreeSet<String>,
    pub now: Timestamp,
}

/// What probes say of containers, by their ids. What is not in here has not been asked yet.
#[derive(Debug, Clone, Default)]
pub struct Probed {
    pub ready: BTreeMap<String, bool>,
    pub started: BTreeMap<String, bool>,
    pub live: BTreeMap<String, bool>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// With its grace period; `why` is what the event says.
    Kill {
        id: String,
        name: String,
        why: Why,
    },
    /// Without grace, and away with it: all containers of the pod begin again.
    Remove {
        id: String,
        name: String,
    },
    StopSandbox {
        id: String,
    },
    CreateSandbox {
        attempt: u32,
    },
    /// Other limits for a container that goes on.
    Resize {
        id: String,
        limits: Box<cri::LinuxContainerResources>,
    },
    Start {
        container: Box<Container>,
        role: Role,
        restarts: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Ending,
    Changed,
    NotLive,
    NotStarted,
    Resized,
    Unknown,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// Containers that may not be started again yet.
    pub waits: Vec<Wait>,
    /// Nothing is left that runs, and nothing will be started any more.
    pub is_over: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Wait {
    pub container: String,
    pub role: Role,
    pub until: Timestamp,
    pub delay: SignedDuration,
}

pub fn plan(look: &Look<'_>) -> Plan {
    if look.ending || pod::is_terminal(look.pod) || is_finished(look.pod, look.found) {
        return end(look);
    }
    if restarts_all(look.pod, look.found) {
        return Plan::of(begin_again(look));
    }
    let Some(sandbox) = look.found.sandbox() else { return Plan::of(renew_sandbox(look)) };
    let mut plan = Plan::default();
    for older in look.found.sandboxes.iter().filter(|one| one.is_ready && one.id != sandbox.id) {
        plan.steps.push(Step::StopSandbox { id: older.id.clone() });
    }
    for container in pod::ephemeral(look.pod) {
        if look.found.latest(&container.name).is_none() {
            plan.start(&container, Role::Ephemeral, 0);
        }
    }
    if initialize(look, &mut plan) {
        for container in &pod::spec(look.pod).containers {
            keep_running(look, container, Role::Regular, &mut plan);
        }
    }
    plan
}

/// Whether a container ended in a way that lets all of them begin again.
pub fn restarts_all(pod: &Pod, found: &Found) -> bool {
    pod::containers(pod).any(|(_, container)| {
        let latest = found.latest(&container.name).filter(|one| one.state == State::Exited);
        latest.is_some_and(|one| pod::restarts_all(container, one.exit_code))
    })
}

/// Everything goes that the runtime has of the pod's containers; what caused it goes last, so that a
/// kubelet that is started again in between knows why. They start again when nothing is left.
fn begin_again(look: &Look<'_>) -> Vec<Step> {
    let of = |wanted: fn(Role) -> bool, causes: bool| {
        let containers = pod::containers(look.pod).filter(move |(role, _)| wanted(*role));
        containers.flat_map(move |(_, container)| {
            let own = look.found.containers.iter().filter(|one| one.name == container.name);
            let picked = own.filter(move |one| {
                let is_cause =
                    one.state == State::Exited && pod::restarts_all(container, one.exit_code);
                is_cause == causes
            });
            picked.map(|one| Step::Remove { id: one.id.clone(), name: one.name.clone() })
        })
    };
    let regular = |role| role == Role::Regular;
    let init = |role| role != Role::Regular;
    of(regular, false)
        .chain(of(init, false))
        .chain(of(regular, true))
        .chain(of(init, true))
        .collect()
}

/// Whether every container has ended for good, or an init container failed for good.
pub fn is_finished(pod: &Pod, found: &Found) -> bool {
    let ended = |container: &Container| {
        let latest = found.latest(&container.name)?;
        (latest.state == State::Exited).then_some(latest.exit_code)
    };
    let mut init = pod::containers(pod).filter(|(role, _)| *role == Role::Init);
    let failed = |container: &Container| {
        ended(container).is_some_and(|code| code != 0 && !restarts_init(pod, container, code))
    };
    if init.any(|(_, container)| failed(container)) {
        return true;
    }
    let regular = &pod::spec(pod).containers;
    !regular.is_empty()
        && regular.iter().all(|container| {
            ended(container).is_some_and(|code| {
                !pod::restarts(pod, container, code) && !changed(found, container)
            })
        })
}

/// `Always` means of an init container that it is tried again when it failed.
pub fn restarts_init(pod: &Pod, container: &Container, code: i32) -> bool {
    code != 0 && pod::restarts(pod, container, code)
}

fn changed(found: &Found, container: &Container) -> bool {
    let running = found.current(&container.name).filter(|one| one.state == State::Running);
    running.is_some_and(|one| one.hash != pod::hash(container))
}

fn renew_sandbox(look: &Look<'_>) -> Vec<Step> {
    let Some(last) = look.found.sandboxes.first() else {
        return vec![Step::CreateSandbox { attempt: 0 }];
    };
    // What is left in it has to end before others take its names and volumes.
    let mut steps = Vec::new();
    if look.found.running().any(|container| container.sandbox == last.id) {
        steps.push(Step::StopSandbox { id: last.id.clone() });
    }
    steps.push(Step::CreateSandbox { attempt: last.attempt + 1 });
    steps
}

/// Init containers, one after another; sidecars are kept running. True once the regular ones may
/// run.
fn initialize(look: &Look<'_>, plan: &mut Plan) -> bool {
    let regular = &pod::spec(look.pod).containers;
    let initialized = regular.iter().any(|one| look.found.current(&one.name).is_some());
    for container in pod::spec(look.pod).init_containers.iter().flatten() {
        match pod::init_role(container) {
            Role::Sidecar => {
                keep_running(look, container, Role::Sidecar, plan);
                let current = look.found.current(&container.name);
                let started = current.is_some_and(|one| is_started(look, container, one));
                if !initialized && !started {
                    return false;
                }
            }
            _ if initialized => {}
            role => {
                let current = look.found.current(&container.name);
                if current.is_some_and(|one| one.state == State::Exited && one.exit_code == 0) {
                    continue;
                }
                keep_running(look, container, role, plan);
                return false;
            }
        }
    }
    true
}

fn is_started(look: &Look<'_>, container: &Container, one: &Found1) -> bool {
    let probed = look.probed.started.get(&one.id).copied();
    one.state == State::Running && probed.unwrap_or(container.startup_probe.is_none())
}

fn keep_running(look: &Look<'_>, container: &Container, role: Role, plan: &mut Plan) {
    let next = look.found.latest(&container.name).map_or(0, |latest| latest.restarts + 1);
    let Some(one) = look.found.current(&container.name) else {
        // In a new sandbox everything begins again, except what has ended for good.
        let ended = look.found.latest(&container.name).filter(|one| one.state == State::Exited);
        let done = ended.is_some_and(|one| !pod::restarts(look.pod, container, one.exit_code));
        if role != Role::Regular || !done {
            plan.start(container, role, next);
        }
        return;
    };
    let kill = |why| Step::Kill { id: one.id.clone(), name: one.name.clone(), why };
    match one.state {
        State::Running => {
            let said = |answers: &BTreeMap<String, bool>| answers.get(&one.id).copied();
            if role != Role::Init && one.hash != pod::hash(container) {
                plan.steps.push(kill(Why::Changed));
                plan.start(container, role, next);
            } else if said(&look.probed.started) == Some(false)
                && said(&look.probed.live) == Some(false)
            {
                plan.steps.push(kill(Why::NotStarted));
            } else if said(&look.probed.live) == Some(false) {
                plan.steps.push(kill(Why::NotLive));
            } else {
                match resized(look, container, one) {
                    None => {}
                    Some((_, true)) => {
                        plan.steps.push(kill(Why::Resized));
                        plan.start(container, role, next);
                    }
                    Some((limits, false)) => {
                        let limits = Box::new(limits);
                        plan.steps.push(Step::Resize { id: one.id.clone(), limits });
                    }
                }
            }
        }
        State::Unknown => {
            plan.steps.push(kill(Why::Unknown));
            plan.start(container, role, next);
        }
        // Its start failed: another is made in its place.
        State::Created => wait_or_start(look, container, one, role, next, one.created_at, plan),
        State::Exited => {
            let again = match role {
                Role::Init => restarts_init(look.pod, container, one.exit_code),
                _ => pod::restarts(look.pod, container, one.exit_code),
            };
            if again {
                wait_or_start(look, container, one, role, next, one.finished_at, plan);
            }
        }
    }
}

/// The limits that a container is to have if it has others, and whether it has to be started again
/// for them.
fn resized(
    look: &Look<'_>,
    container: &Container,
    one: &Found1,
) -> Option<(cri::LinuxContainerResources, bool)> {
    let has = one.limits.as_ref()?;
    let mut wanted = resources::linux(look.pod, container, look.enforcement);
    if look.with_cpus.contains(&container.name) {
        wanted.cpu_quota = 0;
    }
    let cpu = |limits: &cri::LinuxContainerResources| (limits.cpu_shares, limits.cpu_quota.max(0));
    let changed = [
        ("cpu", cpu(has) != cpu(&wanted)),
        ("memory", has.memory_limit_in_bytes.max(0) != wanted.memory_limit_in_bytes),
    ];
    let policies = container.resize_policy.as_deref().unwrap_or_default();
    let restarts = |name: &str| {
        let mut own = policies.iter().filter(|policy| policy.resource_name == name);
        own.any(|policy| policy.restart_policy == "RestartContainer")
    };
    let changed: Vec<&str> = changed.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    let again = changed.iter().any(|name| restarts(name));
    // What is not limited any more is written as a limit that is none.
    let unlimited = |number: i64| if number == 0 { -1 } else { number };
    let limits = cri::LinuxContainerResources {
        cpu_quota: unlimited(wanted.cpu_quota),
        memory_limit_in_bytes: unlimited(wanted.memory_limit_in_bytes),
        ..wanted
    };
    (!changed.is_empty()).then_some((limits, again))
}

fn wait_or_start(
    look: &Look<'_>,
    container: &Container,
    one: &Found1,
    role: Role,
    restarts: u32,
    ended: i64,
    plan: &mut Plan,
) {
    let ended = Timestamp::from_nanosecond(ended.into()).unwrap_or(look.now);
    match look.backoff.waits(&backoff_key(&one.name, container), ended, look.now) {
        Some((until, delay)) => {
            plan.waits.push(Wait { container: container.name.clone(), role, until, delay });
        }
        None => plan.start(container, role, restarts),
    }
}

pub fn backoff_key(name: &str, container: &Container) -> String {
    format!("{name}_{}", pod::hash(container))
}

/// Regular containers end together, then sidecars, the last one first; then the sandbox.
fn end(look: &Look<'_>) -> Plan {
    let roles: BTreeMap<&str, Role> =
        pod::containers(look.pod).map(|(role, one)| (one.name.as_str(), role)).collect();
    let is_sidecar = |name: &str| roles.get(name) == Some(&Role::Sidecar);
    let kill =
        |one: &Found1| Step::Kill { id: one.id.clone(), name: one.name.clone(), why: Why::Ending };
    let lives = |one: &&Found1| matches!(one.state, State::Running | State::Unknown);
    let living = || look.found.containers.iter().filter(lives);
    let first: Vec<Step> = living().filter(|one| !is_sidecar(&one.name)).map(kill).collect();
    if !first.is_empty() {
        return Plan::of(first);
    }
    let sidecars = pod::containers(look.pod).filter(|(role, _)| *role == Role::Sidecar);
    let names: Vec<&str> = sidecars.map(|(_, container)| container.name.as_str()).collect();
    for name in names.into_iter().rev() {
        if let Some(one) = living().find(|one| one.name == name) {
            return Plan::of(vec![kill(one)]);
        }
    }
    let ready = look.found.sandboxes.iter().filter(|sandbox| sandbox.is_ready);
    let stops: Vec<Step> =
        ready.map(|sandbox| Step::StopSandbox { id: sandbox.id.clone() }).collect();
    Plan { is_over: stops.is_empty(), steps: stops, waits: Vec::new() }
}

impl Plan {
    /// Whether containers are to have other limits than they have.
    pub fn resizes(&self) -> bool {
        let resizes = |step: &Step| {
            matches!(step, Step::Resize { .. } | Step::Kill { why: Why::Resized, .. })
        };
        self.steps.iter().any(resizes)
    }

    fn of(steps: Vec<Step>) -> Plan {
        Plan { steps, ..Plan::default() }
    }

    fn start(&mut self, container: &Container, role: Role, restarts: u32) {
        self.steps.push(Step::Start { container: Box::new(container.clone()), role, restarts });
    }
}

impl Why {
    /// What the `Killing` event says.
    pub fn message(self, name: &str, role: Role) -> String {
        let container = match role {
            Role::Init | Role::Sidecar => "Init container",
            Role::Regular | Role::Ephemeral => "Container",
        };
        let ending = if role == Role::Regular { ", will be restarted" } else { "" };
        match self {
            Why::Ending => format!("Stopping container {name}"),
            Why::Changed => format!("{container} {name} definition changed{ending}"),
            Why::NotLive => format!("{container} {name} failed liveness probe{ending}"),
            Why::NotStarted => format!("{container} {name} failed startup probe{ending}"),
            Why::Resized => {
                format!("{container} {name} resize requires restart")
            }
            Why::Unknown => {
                format!("{container} is in \"Unknown\" state, try killing it before restart")
            }
        }
    }
}

#[cfg(test)]
mod tests;
