//! What is read of a pod again and again.
use crate::runtime::cri;
use api::names::NamespacedName;
use k8s_openapi::api::core::v1::{
    Container, EphemeralContainer, ObjectReference, Pod, PodSpec, PodStatus,
};

/// Static pods say here where they are from, and their mirrors of which pod they are.
pub const SOURCE: &str = "kubernetes.io/config.source";
pub const HASH: &str = "kubernetes.io/config.hash";
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// What part of a pod a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Init,
    /// An init container that goes on beside the others.
    Sidecar,
    Regular,
    Ephemeral,
}

impl Role {
    /// As metrics call it.
    pub fn metric(self) -> &'static str {
        match self {
            Role::Init | Role::Sidecar => "init_container",
            Role::Regular => "container",
            Role::Ephemeral => "ephemeral_container",
        }
    }
}

pub fn spec(pod: &Pod) -> &PodSpec {
    static NONE: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&NONE)
}

pub fn status(pod: &Pod) -> &PodStatus {
    static NONE: std::sync::LazyLock<PodStatus> = std::sync::LazyLock::new(PodStatus::default);
    pod.status.as_ref().unwrap_or(&NONE)
}

pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

pub fn key(pod: &Pod) -> NamespacedName {
    NamespacedName::new(namespace(pod), name(pod))
}

pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// `web_default(uid)`: how messages name a pod.
pub fn shown(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

pub fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

pub fn is_terminal(pod: &Pod) -> bool {
    matches!(status(pod).phase.as_deref(), Some("Succeeded" | "Failed"))
}

pub fn is_static(pod: &Pod) -> bool {
    annotation(pod, SOURCE).is_some_and(|source| source != "api")
}

pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, MIRROR).is_some()
}

pub fn uses_host_network(pod: &Pod) -> bool {
    spec(pod).host_network == Some(true)
}

/// How long it may take to end: as it was deleted with, or as it asks for.
pub fn grace(pod: &Pod) -> i64 {
    let deletion = pod.metadata.deletion_grace_period_seconds;
    deletion.or(spec(pod).termination_grace_period_seconds).unwrap_or(30)
}

pub fn init_role(container: &Container) -> Role {
    match container.restart_policy.as_deref() {
        Some("Always") => Role::Sidecar,
        _ => Role::Init,
    }
}

/// Every container in the order of the specification, init containers first.
pub fn containers(pod: &Pod) -> impl Iterator<Item = (Role, &Container)> {
    let spec = spec(pod);
    let init = spec.init_containers.iter().flatten().map(|one| (init_role(one), one));
    init.chain(spec.containers.iter().map(|one| (Role::Regular, one)))
}

pub fn ephemeral(pod: &Pod) -> impl Iterator<Item = Container> + '_ {
    spec(pod).ephemeral_containers.iter().flatten().map(as_container)
}

pub fn container(pod: &Pod, name: &str) -> Option<(Role, Container)> {
    let regular = containers(pod).find(|(_, one)| one.name == name);
    regular
        .map(|(role, one)| (role, one.clone()))
        .or_else(|| ephemeral(pod).find(|one| one.name == name).map(|one| (Role::Ephemeral, one)))
}

fn as_container(from: &EphemeralContainer) -> Container {
    let from = from.clone();
    Container {
        args: from.args,
        command: from.command,
        env: from.env,
        env_from: from.env_from,
        image: from.image,
        image_pull_policy: from.image_pull_policy,
        name: from.name,
        security_context: from.security_context,
        stdin: from.stdin,
        stdin_once: from.stdin_once,
        termination_message_path: from.termination_message_path,
        termination_message_policy: from.termination_message_policy,
        tty: from.tty,
        volume_mounts: from.volume_mounts,
        working_dir: from.working_dir,
        ..Container::default()
    }
}

/// What the container's rules say of its end with this code: the first that is about it.
fn rule(container: &Container, code: i32) -> Option<&str> {
    let mut rules = container.restart_policy_rules.iter().flatten();
    let about = rules.find(|rule| {
        let Some(codes) = &rule.exit_codes else { return false };
        let among = codes.values.as_ref().is_some_and(|values| values.contains(&code));
        among == (codes.operator == "In")
    });
    about.map(|rule| rule.action.as_str())
}

const RESTART_ALL: &str = "RestartAllContainers";

/// Whether the whole pod begins again after a container that ended with this code.
pub fn restarts_all(container: &Container, code: i32) -> bool {
    rule(container, code) == Some(RESTART_ALL)
}

/// Whether it can come to that.
pub fn could_restart_all(pod: &Pod) -> bool {
    let mut rules = containers(pod).flat_map(|(_, one)| one.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == RESTART_ALL)
}

/// Whether a container that ended with this code is to be started again.
pub fn restarts(pod: &Pod, container: &Container, code: i32) -> bool {
    if matches!(rule(container, code), Some("Restart" | RESTART_ALL)) {
        return true;
    }
    let policy = container.restart_policy.as_deref().or(spec(pod).restart_policy.as_deref());
    match policy.unwrap_or("Always") {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

/// Changes when a running container has to be replaced: with its name or its image. As upstream's, so that
/// either kubelet takes over the other's containers without touching them.
pub fn hash(container: &Container) -> String {
    api::hash::of_container(&container.name, container.image.as_deref().unwrap_or_default())
}

/// A reference for events; with the container that they are about.
pub fn reference(pod: &Pod, container: Option<(Role, &str)>) -> ObjectReference {
    let field_path = container.map(|(role, name)| {
        let list = match role {
            Role::Init | Role::Sidecar => "initContainers",
            Role::Regular => "containers",
            Role::Ephemeral => "ephemeralContainers",
        };
        format!("spec.{list}{{{name}}}")
    });
    ObjectReference { field_path, ..client::events::reference(pod) }
}

/// Whether something changed that the kubelet has to act on: not a status, except the conditions
/// that readiness gates wait for.
pub fn differs(old: &Pod, new: &Pod) -> bool {
    let (before, after) = (&old.metadata, &new.metadata);
    let gated = spec(new).readiness_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    old.spec != new.spec
        || before.labels != after.labels
        || before.annotations != after.annotations
        || before.deletion_timestamp != after.deletion_timestamp
        || before.deletion_grace_period_seconds != after.deletion_grace_period_seconds
        || (gated && status(old).conditions != status(new).conditions)
}

pub fn sandbox_metadata(pod: &Pod, attempt: u32) -> cri::PodSandboxMetadata {
    cri::PodSandboxMetadata {
        name: name(pod).to_owned(),
        uid: uid(pod).to_owned(),
        namespace: namespace(pod).to_owned(),
        attempt,
    }
}
