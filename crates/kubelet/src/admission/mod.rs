//! Whether a pod may run here: what the scheduler made sure of is checked again, for a pod may name
//! its node itself, and others may have come first. A pod that is refused has failed
//! (`pkg/kubelet/lifecycle`).
mod preemption;
mod requests;
mod sysctls;

pub use preemption::victims;
pub use requests::{Amounts, amounts, limits, requests, sum_of_limits};
pub use sysctls::parse as sysctl;

use crate::pod;
use k8s_openapi::api::core::v1::{Container, Pod, Taint};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a pod is refused: what its status and an event say.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(reason: &str, message: impl Into<String>) -> Refusal {
        Refusal { reason: reason.to_owned(), message: message.into() }
    }

    fn predicate(name: &str, why: &str) -> Refusal {
        Refusal::new(name, format!("Predicate {name} failed: {why}"))
    }

    /// There is too little of something: others may make room.
    pub fn is_of_room(&self) -> bool {
        self.reason.starts_with(OUT_OF)
    }

    /// Labels may have changed since they were read.
    pub fn is_of_labels(&self) -> bool {
        self.reason == AFFINITY
    }
}

const AFFINITY: &str = "NodeAffinity";
const OUT_OF: &str = "OutOf";

/// What a pod is held against.
pub struct Place<'a> {
    pub node_name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub allocatable: &'a Amounts,
    /// Pods that have been admitted and have not ended.
    pub others: &'a [Arc<Pod>],
    pub has_app_armor: bool,
    /// The runtime can keep an image's groups from a container.
    pub has_strict_groups: bool,
    /// The node's.
    pub taints: &'a [Taint],
    /// Settings of the kernel that pods may have besides the safe ones.
    pub sysctls: &'a [String],
}

pub fn admit(pod: &Pod, place: &Place<'_>) -> Result<(), Refusal> {
    supported(pod, place)?;
    sysctls::admit(pod, place.sysctls)?;
    fits(pod, place.allocatable, place.others)?;
    besides_room(pod, place)
}

/// Whether a pod may run here if there is room for it.
pub fn besides_room(pod: &Pod, place: &Place<'_>) -> Result<(), Refusal> {
    if !api::placement::is_selected(pod::spec(pod), place.labels, place.node_name) {
        let why = "node(s) didn't match Pod's node affinity/selector";
        return Err(Refusal::predicate(AFFINITY, why));
    }
    let taken = place.others.iter().flat_map(|other| ports(other)).collect::<Vec<_>>();
    if ports(pod).any(|port| taken.iter().any(|other| port.conflicts(other))) {
        let why = "node(s) didn't have free ports for the requested pod ports";
        return Err(Refusal::predicate("NodePorts", why));
    }
    if !pod::is_static(pod) && !tolerates(pod, place.taints) {
        let why = "node(s) had taints that the pod didn't tolerate";
        return Err(Refusal::predicate("TaintToleration", why));
    }
    Ok(())
}

/// Taints that keep pods from being scheduled do not matter to one that names its node.
fn tolerates(pod: &Pod, taints: &[Taint]) -> bool {
    let all = pod::spec(pod).tolerations.as_deref().unwrap_or_default();
    let mut ending = taints.iter().filter(|taint| taint.effect == "NoExecute");
    ending.all(|taint| all.iter().any(|one| api::placement::tolerates(one, taint)))
}

pub fn wants_strict_groups(pod: &Pod) -> bool {
    let context = pod::spec(pod).security_context.as_ref();
    let policy = context.and_then(|all| all.supplemental_groups_policy.as_deref());
    policy == Some("Strict")
}

/// A pod that asks for what is not here fails and says why, rather than run without it.
fn supported(pod: &Pod, place: &Place<'_>) -> Result<(), Refusal> {
    let spec = pod::spec(pod);
    let os = spec.os.as_ref().map_or("linux", |os| os.name.as_str());
    let selected = spec.node_selector.as_ref().and_then(|all| all.get("kubernetes.io/os"));
    if selected.is_some_and(|os| Some(os) != place.labels.get("kubernetes.io/os")) {
        let text = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Err(Refusal::new("PodOSSelectorNodeLabelDoesNotMatch", text));
    }
    if os != "linux" {
        let text = "Failed to admit pod as the OS field doesn't match node OS";
        return Err(Refusal::new("PodOSNotSupported", text));
    }
    if !place.has_strict_groups && wants_strict_groups(pod) {
        let text = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return Err(Refusal::new("SupplementalGroupsPolicyNotSupported", text));
    }
    if !place.has_app_armor && wants_app_armor(pod) {
        let text = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        return Err(Refusal::new("AppArmor", text));
    }
    Ok(())
}

/// Upstream's older way to ask, by container.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

fn wants_app_armor(pod: &Pod) -> bool {
    let whole = pod::spec(pod).security_context.as_ref();
    let whole = whole.and_then(|all| all.app_armor_profile.as_ref());
    let own = |one: &Container| {
        let context = one.security_context.as_ref();
        let profile = context.and_then(|own| own.app_armor_profile.as_ref()).or(whole);
        profile.is_some_and(|profile| profile.type_ != "Unconfined")
    };
    let annotations = pod.metadata.annotations.iter().flatten();
    let mut asked = annotations.filter(|(key, _)| key.starts_with(APP_ARMOR));
    pod::containers(pod).any(|(_, one)| own(one))
        || asked.any(|(_, profile)| !profile.is_empty() && profile != "unconfined")
}

/// What a pod asks for and the others have not left.
#[derive(Debug, Clone, PartialEq)]
pub struct Shortage {
    pub resource: String,
    pub requested: i64,
    pub used: i64,
    pub capacity: i64,
}

impl Shortage {
    pub fn missing(&self) -> i64 {
        self.requested - (self.capacity - self.used)
    }
}

/// Whether what the pod asks for is what the others left.
pub fn fits(pod: &Pod, allocatable: &Amounts, others: &[Arc<Pod>]) -> Result<(), Refusal> {
    let Some(first) = shortages(pod, allocatable, others).into_iter().next() else { return Ok(()) };
    let Shortage { resource, requested, used, capacity } = first;
    let message = format!(
        "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    );
    Err(Refusal::new(&format!("{OUT_OF}{resource}"), message))
}

/// Pods, processors, memory, and the rest by name.
pub fn shortages(pod: &Pod, allocatable: &Amounts, others: &[Arc<Pod>]) -> Vec<Shortage> {
    let wanted = requests(pod);
    let mut used = Amounts::new();
    for other in others {
        for (name, amount) in requests(other) {
            *used.entry(name).or_default() += amount;
        }
    }
    used.insert("pods".to_owned(), i64::try_from(others.len()).unwrap_or(i64::MAX));
    let first = ["pods", "cpu", "memory", "ephemeral-storage"];
    let rest = wanted.keys().map(String::as_str).filter(|name| !first.contains(name));
    let all = first.into_iter().chain(rest).filter_map(|name| {
        let requested = if name == "pods" { 1 } else { wanted.get(name).copied().unwrap_or(0) };
        // What a node does not know somebody else counts.
        let capacity = allocatable.get(name).copied()?;
        let used = used.get(name).copied().unwrap_or(0);
        let resource = name.to_owned();
        (requested > 0 && requested > capacity - used).then_some(Shortage {
            resource,
            requested,
            used,
            capacity,
        })
    });
    all.collect()
}

/// A port of the host.
struct HostPort<'a> {
    ip: &'a str,
    protocol: &'a str,
    port: i32,
}

impl HostPort<'_> {
    fn conflicts(&self, other: &HostPort<'_>) -> bool {
        let any = |ip: &str| matches!(ip, "" | "0.0.0.0");
        (self.port, self.protocol) == (other.port, other.protocol)
            && (any(self.ip) || any(other.ip) || self.ip == other.ip)
    }
}

fn ports(pod: &Pod) -> impl Iterator<Item = HostPort<'_>> {
    let all = pod::containers(pod).flat_map(|(_, one)| one.ports.iter().flatten());
    all.filter_map(|port| {
        Some(HostPort {
            ip: port.host_ip.as_deref().unwrap_or_default(),
            protocol: port.protocol.as_deref().unwrap_or("TCP"),
            port: port.host_port.filter(|port| *port > 0)?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Arc<Pod> {
        let mut spec = spec;
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{ "name": "c" }]);
        }
        Arc::new(serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap())
    }

    fn asks(requests: Value) -> Value {
        json!({ "containers": [{ "name": "c", "resources": { "requests": requests } }] })
    }

    fn check(spec: Value, others: &[Value], expected: &str) {
        let labels = [("kubernetes.io/os", "linux"), ("disk", "ssd")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let allocatable = [("cpu", 2000), ("memory", 1 << 30), ("pods", 3), ("hugepages-2Mi", 0)];
        let allocatable = allocatable.map(|(name, amount)| (name.to_owned(), amount)).into();
        let others: Vec<_> = others.iter().map(|spec| pod(spec.clone())).collect();
        let taints = json!([{ "key": "down", "effect": "NoExecute" }, { "key": "new", "effect": "NoSchedule" }]);
        let taints: Vec<Taint> = match spec.get("tolerations") {
            Some(_) => serde_json::from_value(taints).unwrap(),
            None => Vec::new(),
        };
        let place = Place {
            sysctls: &[],
            node_name: "n1",
            labels: &labels,
            allocatable: &allocatable,
            others: &others,
            has_app_armor: false,
            has_strict_groups: false,
            taints: &taints,
        };
        let said = match admit(&pod(spec), &place) {
            Ok(()) => String::new(),
            Err(refusal) => format!("{}: {}", refusal.reason, refusal.message),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn a_pod_has_to_fit_beside_the_others() {
        check(asks(json!({ "cpu": "2" })), &[], "");
        check(asks(json!({ "example.com/gpu": "1" })), &[], "");
        check(
            asks(json!({ "cpu": "1500m" })),
            &[asks(json!({ "cpu": "1" }))],
            "OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000",
        );
        check(
            asks(json!({ "memory": "2Gi" })),
            &[],
            "OutOfmemory: Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
        );
        check(
            json!({}),
            &[json!({}), json!({}), json!({})],
            "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
        );
        check(
            asks(json!({ "hugepages-2Mi": "2Mi" })),
            &[],
            "OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
        );
    }

    #[test]
    fn labels_have_to_match() {
        let no = "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        check(json!({ "nodeSelector": { "disk": "ssd" } }), &[], "");
        check(json!({ "nodeSelector": { "disk": "tape" } }), &[], no);
        check(
            json!({ "nodeSelector": { "kubernetes.io/os": "windows" } }),
            &[],
            "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        );
    }

    #[test]
    fn a_port_of_the_host_is_one_pods() {
        let with = |ip: &str, protocol: &str| json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 1, "hostPort": 80, "hostIP": ip, "protocol": protocol }] }] });
        let no = "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        check(with("", "TCP"), &[with("127.0.0.1", "TCP")], no);
        check(with("10.0.0.1", "TCP"), &[with("127.0.0.1", "TCP")], "");
        check(with("", "UDP"), &[with("", "TCP")], "");
    }

    #[test]
    fn what_is_not_here_is_refused() {
        let profile =
            |kind: &str| json!({ "securityContext": { "appArmorProfile": { "type": kind } } });
        check(
            profile("RuntimeDefault"),
            &[],
            "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host",
        );
        check(profile("Unconfined"), &[], "");
        check(json!({ "hostUsers": false }), &[], "");
        let groups =
            |policy: &str| json!({ "securityContext": { "supplementalGroupsPolicy": policy } });
        check(groups("Merge"), &[], "");
        check(
            groups("Strict"),
            &[],
            "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node",
        );
    }

    #[test]
    fn a_taint_that_ends_pods_keeps_them_out() {
        let no = "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
        let with = |key: &str| json!({ "tolerations": [{ "key": key, "operator": "Exists" }] });
        check(with("new"), &[], no);
        check(with("down"), &[], "");
        let mut pod = Pod::clone(&pod(json!({})));
        let taint = Taint { key: "down".into(), effect: "NoExecute".into(), ..Taint::default() };
        assert!(!tolerates(&pod, std::slice::from_ref(&taint)));
        pod.metadata.annotations =
            Some([("kubernetes.io/config.source".into(), "file".into())].into());
        let place = Place {
            sysctls: &[],
            node_name: "n1",
            labels: &BTreeMap::new(),
            allocatable: &Amounts::new(),
            others: &[],
            has_app_armor: false,
            has_strict_groups: false,
            taints: &[taint],
        };
        assert_eq!(admit(&pod, &place), Ok(()), "who made it did so on the machine itself");
    }
}
