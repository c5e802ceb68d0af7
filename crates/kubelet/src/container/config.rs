//! The configuration that a container is made of.
use super::expand::expand;
use super::security::Filters;
use super::{resources, security};
use crate::found;
use crate::pod::{self, Role};
use crate::runtime::cri;
use crate::users;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::HashMap;

pub struct Parts<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    pub role: Role,
    pub restarts: u32,
    pub image_ref: String,
    pub image_user: security::ImageUser,
    pub environment: Vec<(String, String)>,
    pub mounts: Vec<cri::Mount>,
    pub devices: Vec<cri::Device>,
    /// The id of the container that an ephemeral one looks into.
    pub target: Option<String>,
    pub enforcement: &'a resources::Enforcement,
    /// The pod's own users, if it has some.
    pub users: Option<users::Map>,
    /// It has processors for itself, which nobody has to ration.
    pub has_cpus: bool,
    pub filters: Filters<'a>,
}

pub fn config(parts: Parts<'_>) -> Result<cri::ContainerConfig, String> {
    let Parts { pod, container, role, restarts, .. } = parts;
    let known: HashMap<&str, &str> =
        parts.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expanded = |words: &Option<Vec<String>>| {
        let value = |name: &str| known.get(name).map(|value| String::from(*value));
        words.iter().flatten().map(|word| expand(word, value)).collect::<Vec<_>>()
    };
    let mut limits = resources::linux(pod, container, parts.enforcement);
    if parts.has_cpus {
        limits.cpu_quota = -1;
    }
    let mut mounts = parts.mounts;
    users::map_mounts(&mut mounts, parts.users);
    let linux = cri::LinuxContainerConfig {
        resources: Some(limits),
        security_context: Some(security::linux(
            pod,
            container,
            role,
            parts.target.as_deref(),
            &parts.image_user,
            parts.users,
            parts.filters,
        )?),
    };
    Ok(cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: container.name.clone(), attempt: restarts }),
        image: Some(cri::ImageSpec {
            image: parts.image_ref,
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..cri::ImageSpec::default()
        }),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        labels: labels(pod, container),
        annotations: annotations(pod, container, restarts),
        log_path: format!("{}/{restarts}.log", container.name),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        envs: parts
            .environment
            .into_iter()
            .map(|(key, value)| cri::KeyValue { key, value: value.into_bytes() })
            .collect(),
        mounts,
        devices: parts.devices,
        linux: Some(linux),
        stop_signal: stop_signal(container).into(),
        ..cri::ContainerConfig::default()
    })
}

/// The one that the container asks for, else its image's.
fn stop_signal(container: &Container) -> cri::Signal {
    let asked = container.lifecycle.as_ref().and_then(|all| all.stop_signal.as_deref());
    let named = asked.and_then(|name| {
        // `SIGRTMIN+1` is `SIGNAL_SIGRTMINPLUS1` there.
        let name = name.replace('+', "PLUS").replace('-', "MINUS");
        cri::Signal::from_str_name(&format!("SIGNAL_{name}"))
    });
    named.unwrap_or(cri::Signal::RuntimeDefault)
}

fn labels(pod: &Pod, container: &Container) -> HashMap<String, String> {
    let rows = [
        (found::POD_NAME, pod::name(pod)),
        (found::POD_NAMESPACE, pod::namespace(pod)),
        (found::POD_UID, pod::uid(pod)),
        (found::CONTAINER_NAME, &container.name),
    ];
    rows.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn annotations(pod: &Pod, container: &Container, restarts: u32) -> HashMap<String, String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut all = HashMap::from([
        (found::HASH.to_owned(), pod::hash(container)),
        (found::RESTART_COUNT.to_owned(), restarts.to_string()),
        (found::MESSAGE_PATH.to_owned(), text(&container.termination_message_path)),
        (found::MESSAGE_POLICY.to_owned(), text(&container.termination_message_policy)),
    ]);
    let mut add = |key: &str, value: Option<String>| {
        all.extend(value.map(|value| (key.to_owned(), value)));
    };
    let seconds = |seconds: Option<i64>| seconds.map(|seconds| seconds.to_string());
    add(found::DELETION_GRACE, seconds(pod.metadata.deletion_grace_period_seconds));
    add(found::TERMINATION_GRACE, seconds(pod::spec(pod).termination_grace_period_seconds));
    let hook = container.lifecycle.as_ref().and_then(|all| all.pre_stop.as_ref());
    add(found::PRE_STOP, hook.and_then(|hook| serde_json::to_string(hook).ok()));
    let ports = container.ports.as_ref().filter(|ports| !ports.is_empty());
    add(found::PORTS, ports.and_then(|ports| serde_json::to_string(ports).ok()));
    all
}
