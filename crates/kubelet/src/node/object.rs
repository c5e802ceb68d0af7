//! The Node that stands for this machine.
use super::Facts;
use crate::admission::Amounts;
use crate::config::Config;
use crate::eviction::thresholds::{DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE, Signal};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints,
    NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus,
    NodeSwapStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The node leaves it to the control plane to attach volumes.
pub const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

pub fn node(config: &Config, facts: &Facts, port: Option<u16>, now: Timestamp) -> Node {
    let annotations = [(MANAGED.to_owned(), "true".to_owned())];
    Node {
        metadata: ObjectMeta {
            name: Some(config.node_name.clone()),
            labels: Some(labels(config)),
            annotations: Some(annotations.into()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: Some(config.taints.clone()).filter(|taints| !taints.is_empty()),
            provider_id: config.provider_id.clone(),
            ..NodeSpec::default()
        })
        .filter(|spec| *spec != NodeSpec::default()),
        status: Some(status(config, facts, port, None, now)),
    }
}

/// What the node registers with.
pub fn labels(config: &Config) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for prefix in ["kubernetes.io", "beta.kubernetes.io"] {
        labels.insert(format!("{prefix}/os"), "linux".to_owned());
        labels.insert(format!("{prefix}/arch"), architecture().to_owned());
    }
    labels.insert("kubernetes.io/hostname".to_owned(), config.node_name.clone());
    labels.extend(config.labels.iter().cloned());
    labels
}

/// The status, with the transitions of the last one kept.
pub fn status(
    config: &Config,
    facts: &Facts,
    port: Option<u16>,
    last: Option<&NodeStatus>,
    now: Timestamp,
) -> NodeStatus {
    let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
    NodeStatus {
        addresses: Some(
            (config.node_ips.iter().map(|ip| address("InternalIP", ip.to_string())))
                .chain([address("Hostname", config.node_name.clone())])
                .collect(),
        ),
        capacity: Some(shown(&capacity(config, facts))),
        allocatable: Some(shown(&allocatable(config, facts))),
        conditions: Some(conditions(facts, last, now)),
        volumes_in_use: Some(facts.volumes_in_use.clone()),
        images: Some(facts.images.iter().map(image).collect()),
        runtime_handlers: Some(facts.handlers.iter().map(handler).collect()),
        features: facts
            .strict_groups
            .map(|is| NodeFeatures { supplemental_groups_policy: Some(is) }),
        declared_features: Some(FEATURES.iter().map(|name| String::from(*name)).collect()),
        daemon_endpoints: port.map(|port| NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(port) }),
        }),
        node_info: Some(NodeSystemInfo {
            architecture: architecture().to_owned(),
            boot_id: facts.boot_id.clone(),
            container_runtime_version: facts.runtime.clone(),
            kernel_version: facts.kernel.clone(),
            kubelet_version: api::VERSION.to_owned(),
            machine_id: facts.machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: facts.os_image.clone(),
            system_uuid: facts.system_uuid.clone(),
            swap: (facts.swap > 0)
                .then(|| NodeSwapStatus { capacity: i64::try_from(facts.swap).ok() }),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// What not every kubelet can do, by upstream's names: the scheduler and the API server look here
/// before they let a pod ask for it.
const FEATURES: &[&str] = &[
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

fn image((names, bytes): &(Vec<String>, i64)) -> ContainerImage {
    ContainerImage { names: Some(names.clone()), size_bytes: Some(*bytes) }
}

fn handler((name, read_only, users): &(String, bool, bool)) -> NodeRuntimeHandler {
    NodeRuntimeHandler {
        name: Some(name.clone()),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(*read_only),
            user_namespaces: Some(*users),
        }),
    }
}

/// What the machine has.
pub fn capacity(config: &Config, facts: &Facts) -> Amounts {
    let number = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let rows = [
        ("cpu", number(facts.cpus as u64) * 1000),
        ("memory", number(facts.memory)),
        ("ephemeral-storage", number(facts.disk)),
        ("pods", config.max_pods.into()),
        ("hugepages-1Gi", 0),
        ("hugepages-2Mi", 0),
    ];
    let mut all: Amounts = rows.map(|(name, amount)| (name.to_owned(), amount)).into();
    all.extend(facts.hugepages.iter().map(|(name, bytes)| (name.clone(), number(*bytes))));
    all.extend(facts.devices.iter().map(|(name, (there, _))| (name.clone(), *there)));
    all
}

/// What pods may use together: what is not reserved for others.
pub fn without_reserved(config: &Config, facts: &Facts) -> Amounts {
    less(capacity(config, facts), &config.reserved)
}

/// What is left for pods to ask for: neither what is reserved nor what eviction keeps free.
pub fn allocatable(config: &Config, facts: &Facts) -> Amounts {
    let number = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let hard = config.eviction.thresholds.iter().filter(|one| one.is_hard());
    let kept = hard.filter_map(|one| match one.signal {
        Signal::Memory => Some(("memory".to_owned(), one.level.of(number(facts.memory)))),
        Signal::NodeFs => Some(("ephemeral-storage".to_owned(), one.level.of(number(facts.disk)))),
        _ => None,
    });
    // What is in huge pages is nobody's memory otherwise.
    let huge = facts.hugepages.values().map(|bytes| ("memory".to_owned(), number(*bytes)));
    let free: Vec<(String, i64)> = kept.chain(huge).collect();
    let mut left = less(without_reserved(config, facts), &free);
    left.extend(facts.devices.iter().map(|(name, (_, healthy))| (name.clone(), *healthy)));
    left
}

fn less(mut amounts: Amounts, taken: &[(String, i64)]) -> Amounts {
    for (name, amount) in taken {
        if let Some(left) = amounts.get_mut(name) {
            *left = (*left - amount).max(0);
        }
    }
    amounts
}

fn shown(amounts: &Amounts) -> BTreeMap<String, Quantity> {
    let text = |name: &str, amount: i64| match name {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        "memory" | "ephemeral-storage" => format!("{}Ki", amount / 1024),
        huge if huge.starts_with("hugepages-") => {
            api::quantity::Quantity::new(amount, api::quantity::Format::BinarySI).to_string()
        }
        _ => amount.to_string(),
    };
    amounts.iter().map(|(name, amount)| (name.clone(), Quantity(text(name, *amount)))).collect()
}

fn conditions(facts: &Facts, last: Option<&NodeStatus>, now: Timestamp) -> Vec<NodeCondition> {
    let pressure = |type_: &str, bad: (&str, &str), good: (&str, &str)| {
        let low = facts.pressures.contains(&type_);
        let (reason, message) = if low { bad } else { good };
        (type_.to_owned(), low, reason.to_owned(), message.to_owned())
    };
    let ready = match &facts.trouble[..] {
        [] => ("KubeletReady", "kubelet is posting ready status".to_owned()),
        [one] => ("KubeletNotReady", one.clone()),
        several => ("KubeletNotReady", format!("[{}]", several.join(", "))),
    };
    let rows = [
        pressure(
            MEMORY_PRESSURE,
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        pressure(
            DISK_PRESSURE,
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        pressure(
            PID_PRESSURE,
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ),
        ("Ready".to_owned(), facts.trouble.is_empty(), ready.0.to_owned(), ready.1),
    ];
    let old = |type_: &str| {
        let mut all = last?.conditions.iter().flatten();
        all.find(|condition| condition.type_ == type_)
    };
    let made = rows.into_iter().map(|(type_, is, reason, message)| {
        let status = if is { "True" } else { "False" };
        let same = old(&type_).filter(|old| old.status == status);
        let since = same.and_then(|old| old.last_transition_time.clone()).unwrap_or(Time(now));
        NodeCondition {
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(since),
            message: Some(message),
            reason: Some(reason),
            status: status.to_owned(),
            type_,
        }
    });
    made.collect()
}

/// What of a status is worth writing at once: all but heartbeats.
pub fn gist(status: &NodeStatus) -> Value {
    let mut status = status.clone();
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_heartbeat_time = None;
    }
    json!(status)
}

/// As a strategic patch: addresses are replaced, not merged by type.
pub fn patch(status: &NodeStatus) -> Value {
    let mut tree = json!(status);
    if let Some(addresses) = tree["addresses"].as_array_mut() {
        addresses.push(json!({ "$patch": "replace" }));
    }
    tree
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use std::net::Ipv4Addr;

    fn check(facts: Facts, expected: Expect) {
        let config = Config::new("n1", Ipv4Addr::LOCALHOST.into());
        let node = node(&config, &facts, None, Timestamp::UNIX_EPOCH);
        let status = node.status.unwrap();
        let mut text = String::new();
        for (name, amount) in status.allocatable.unwrap() {
            text += &format!("{name}={} ", amount.0);
        }
        for condition in status.conditions.unwrap() {
            text += &format!(
                "\n{}={} {}",
                condition.type_,
                condition.status,
                condition.message.unwrap()
            );
        }
        expected.assert_eq(&text);
    }

    fn good() -> Facts {
        let (gi, disk) = (1 << 30, 1000 << 30);
        Facts {
            cpus: 2,
            memory: 4 * gi,
            memory_available: gi,
            disk,
            disk_available: disk / 2,
            pids: 1000,
            ..Facts::default()
        }
    }

    #[test]
    fn a_good_machine_is_ready() {
        check(
            good(),
            expect![[r#"
                cpu=2 ephemeral-storage=943718400Ki hugepages-1Gi=0 hugepages-2Mi=0 memory=4091904Ki pods=110 
                MemoryPressure=False kubelet has sufficient memory available
                DiskPressure=False kubelet has no disk pressure
                PIDPressure=False kubelet has sufficient PID available
                Ready=True kubelet is posting ready status"#]],
        );
    }

    #[test]
    fn trouble_and_pressure_are_told() {
        let facts = Facts {
            pressures: vec![MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE],
            trouble: vec!["container runtime is down".to_owned()],
            ..good()
        };
        check(
            facts,
            expect![[r#"
                cpu=2 ephemeral-storage=943718400Ki hugepages-1Gi=0 hugepages-2Mi=0 memory=4091904Ki pods=110 
                MemoryPressure=True kubelet has insufficient memory available
                DiskPressure=True kubelet has disk pressure
                PIDPressure=True kubelet has insufficient PID available
                Ready=False container runtime is down"#]],
        );
    }

    #[test]
    fn a_condition_that_stays_keeps_its_time() {
        let config = Config::new("n1", Ipv4Addr::LOCALHOST.into());
        let first = status(&config, &good(), None, None, Timestamp::UNIX_EPOCH);
        let later = Timestamp::from_second(60).unwrap();
        let second = status(&config, &good(), None, Some(&first), later);
        let ready = &second.conditions.as_ref().unwrap()[3];
        assert_eq!(ready.last_transition_time, Some(Time(Timestamp::UNIX_EPOCH)));
        assert_eq!(ready.last_heartbeat_time, Some(Time(later)));
        assert_eq!(gist(&first), gist(&second));
    }
}
