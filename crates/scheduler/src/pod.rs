//! What the scheduler keeps of a pod: its wishes, compiled once per version.
use crate::devices::PodClaim;
use crate::devices::extended::{self, Asking};
use crate::devices::ledger::Source;
use crate::disks::{self, Disk};
use crate::resources::{self, Resources};
use crate::selectors::{NodeTerm, PodTerm, selector};
use crate::taints::Toleration;
use api::codec::DecodeError;
use api::names::NamespacedName;
use api::object::{Keep, Object, Pairs};
use api::selector::label::{Requirement, Selector};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Affinity, ObjectReference, Pod, PodCondition, PodResourceClaim, PodSpec,
    TopologySpreadConstraint,
};
use std::sync::Arc;

/// Everything a decision asks of a pod, whether it waits or runs.
#[derive(Debug, Clone)]
pub struct PodInfo {
    pub key: NamespacedName,
    pub uid: Box<str>,
    pub revision: u64,
    pub generation: i64,
    pub labels: Pairs,
    pub created: Option<Timestamp>,
    pub started: Option<Timestamp>,
    pub deleting: bool,
    /// Where it runs; empty: nowhere yet.
    pub node: Box<str>,
    /// Where room was made for it; empty: nowhere.
    pub nominated: Box<str>,
    /// What its `PodScheduled` condition says.
    pub told: Option<Told>,
    /// It goes because another pod needs its place.
    pub preempted: bool,
    /// The pod group that it is of.
    pub group: Option<Box<str>>,
    /// Its controller: kind and name.
    pub owner: Option<(Box<str>, Box<str>)>,
    /// Claims of devices, as far as they are made.
    pub device_claims: Box<[PodClaim]>,
    pub wishes: Wishes,
}

/// What a pod wants. Pods of one shape have equal wishes, whatever they are called.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wishes {
    pub scheduler: Box<str>,
    pub gated: bool,
    pub priority: i32,
    pub never_preempts: bool,
    pub requests: Resources,
    /// Processor and memory as nodes are compared by.
    pub non_zero: [i64; 2],
    /// The same once it is there.
    pub non_zero_placed: [i64; 2],
    pub ports: Box<[HostPort]>,
    pub tolerations: Box<[Toleration]>,
    pub node_selector: Box<[(Box<str>, Box<str>)]>,
    /// Alternatives; `None`: any node will do.
    pub node_terms: Option<Box<[NodeTerm]>>,
    pub preferred_nodes: Box<[(i64, NodeTerm)]>,
    pub affinity: Box<[PodTerm]>,
    pub anti_affinity: Box<[PodTerm]>,
    /// By weight; what is to be far away has a negative one.
    pub preferred_pods: Box<[(i64, PodTerm)]>,
    pub spread: Arc<[Spread]>,
    pub claims: Box<[ClaimName]>,
    /// Disks that it names itself.
    pub disks: Box<[Disk]>,
    pub images: Box<[Box<str>]>,
    /// Containers, if any asks for resources that devices may stand for.
    pub containers: Box<[Asking]>,
    /// What its node has to declare that it can do.
    pub features: Box<[&'static str]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub status: Box<str>,
    pub reason: Box<str>,
    pub message: Box<str>,
    pub generation: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    pub ip: Box<str>,
    pub protocol: Box<str>,
    pub port: i32,
}

/// How evenly pods like this one are to be spread.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    pub is_hard: bool,
    pub max_skew: i64,
    pub topology_key: Box<str>,
    pub selector: Selector,
    pub min_domains: i64,
    pub honors_affinity: bool,
    pub honors_taints: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimName {
    pub name: Box<str>,
    /// Made for this pod alone, by the ephemeral volume controller.
    pub is_ephemeral: bool,
}

impl PodInfo {
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(self.key.namespace.to_string()),
            name: Some(self.key.name.to_string()),
            uid: Some(self.uid.to_string()),
            resource_version: Some(self.revision.to_string()),
            field_path: None,
        }
    }

    /// The same pod on that node.
    #[must_use]
    pub fn on(&self, node: &str) -> PodInfo {
        PodInfo { node: node.into(), ..self.clone() }
    }

    pub fn has_anti_affinity(&self) -> bool {
        !self.wishes.anti_affinity.is_empty()
    }

    /// It has anything to say about other pods.
    pub fn has_affinity(&self) -> bool {
        let Wishes { affinity, anti_affinity, preferred_pods, .. } = &self.wishes;
        !affinity.is_empty() || !anti_affinity.is_empty() || !preferred_pods.is_empty()
    }
}

impl Keep for PodInfo {
    fn keep(object: &Arc<Object>) -> Result<Arc<PodInfo>, DecodeError> {
        let pod = object.typed::<Pod>()?;
        let metadata = object.metadata();
        let status = pod.status.as_ref();
        let conditions = || status.iter().flat_map(|status| status.conditions.iter().flatten());
        let told = conditions().find(|it| it.type_ == "PodScheduled").map(told);
        let preempted = conditions().any(|it| {
            it.type_ == "DisruptionTarget"
                && it.status == "True"
                && it.reason.as_deref() == Some("PreemptionByScheduler")
        });
        let owner =
            metadata.controller().map(|it| (it.kind.as_str().into(), it.name.as_str().into()));
        let nominated = status.and_then(|status| status.nominated_node_name.as_deref());
        let spec = pod.spec.as_ref();
        let node = spec.and_then(|spec| spec.node_name.as_deref());
        Ok(Arc::new(PodInfo {
            key: NamespacedName::of(object),
            uid: metadata.uid.clone(),
            revision: object.revision(),
            generation: metadata.generation,
            labels: metadata.labels.clone(),
            created: metadata.creation_timestamp,
            started: status.and_then(|status| status.start_time.as_ref()).map(|time| time.0),
            deleting: object.is_deleting(),
            node: node.unwrap_or_default().into(),
            nominated: nominated.unwrap_or_default().into(),
            told,
            preempted,
            group: spec
                .and_then(|spec| spec.scheduling_group.as_ref()?.pod_group_name.as_deref())
                .map(Into::into),
            owner,
            device_claims: spec.map(|spec| device_claims(&pod, spec)).unwrap_or_default(),
            wishes: spec.map(|spec| wishes(&pod, spec, object)).unwrap_or_default(),
        }))
    }
}

fn told(condition: &PodCondition) -> Told {
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    Told {
        status: condition.status.as_str().into(),
        reason: text(&condition.reason),
        message: text(&condition.message),
        generation: condition.observed_generation.unwrap_or_default(),
    }
}

fn wishes(pod: &Pod, spec: &PodSpec, object: &Object) -> Wishes {
    let affinity = spec.affinity.as_ref();
    let [near, far] = pod_terms(affinity, object.namespace());
    let preferred = near.preferred.into_iter().chain(far.preferred);
    let selector = spec.node_selector.iter().flatten();
    let node = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        node.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    let preferred_nodes = node
        .and_then(|node| node.preferred_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default();
    let spread = spec.topology_spread_constraints.iter().flatten();
    Wishes {
        scheduler: spec.scheduler_name.as_deref().unwrap_or("default-scheduler").into(),
        gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
        priority: spec.priority.unwrap_or(0),
        never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        requests: resources::requests(pod),
        non_zero: resources::non_zero_requests(pod),
        non_zero_placed: resources::non_zero_placed(pod),
        ports: ports(spec),
        tolerations: spec.tolerations.iter().flatten().map(Toleration::of).collect(),
        node_selector: selector
            .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
            .collect(),
        node_terms: required
            .map(|required| required.node_selector_terms.iter().map(NodeTerm::of).collect()),
        preferred_nodes: preferred_nodes
            .iter()
            .map(|it| (i64::from(it.weight), NodeTerm::of(&it.preference)))
            .collect(),
        affinity: near.required.into(),
        anti_affinity: far.required.into(),
        preferred_pods: preferred.collect(),
        spread: spread.map(|it| spread_of(it, &object.metadata().labels)).collect(),
        claims: claims(spec, object.name()),
        disks: disks::disks(spec),
        images: images(spec),
        containers: extended::asking(spec),
        features: features(spec),
    }
}

#[derive(Default)]
struct Terms {
    required: Vec<PodTerm>,
    preferred: Vec<(i64, PodTerm)>,
}

fn pod_terms(affinity: Option<&Affinity>, namespace: &str) -> [Terms; 2] {
    let mut terms = [Terms::default(), Terms::default()];
    let Some(affinity) = affinity else { return terms };
    let of = |term: &_| PodTerm::of(term, namespace);
    if let Some(near) = &affinity.pod_affinity {
        let required = near.required_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = near.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        terms[0].required = required.map(of).collect();
        terms[0].preferred =
            preferred.map(|it| (i64::from(it.weight), of(&it.pod_affinity_term))).collect();
    }
    if let Some(far) = &affinity.pod_anti_affinity {
        let required = far.required_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = far.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        terms[1].required = required.map(of).collect();
        terms[1].preferred =
            preferred.map(|it| (-i64::from(it.weight), of(&it.pod_affinity_term))).collect();
    }
    terms
}

fn spread_of(constraint: &TopologySpreadConstraint, labels: &Pairs) -> Spread {
    let keys = constraint.match_label_keys.iter().flatten();
    let own = keys.filter_map(|key| Some(Requirement::equals(key, labels.get(key)?)));
    let honors = |policy: &Option<String>, usual: bool| match policy {
        Some(policy) => policy == "Honor",
        None => usual,
    };
    Spread {
        is_hard: constraint.when_unsatisfiable == "DoNotSchedule",
        max_skew: i64::from(constraint.max_skew),
        topology_key: constraint.topology_key.as_str().into(),
        selector: selector(constraint.label_selector.as_ref()).and(own),
        min_domains: i64::from(constraint.min_domains.unwrap_or(1)),
        honors_affinity: honors(&constraint.node_affinity_policy, true),
        honors_taints: honors(&constraint.node_taints_policy, false),
    }
}

/// Ports of the node itself. Sidecars have them too; init containers that end do not hold any.
fn ports(spec: &PodSpec) -> Box<[HostPort]> {
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|it| it.ports.iter().flatten());
    let held = ports.filter_map(|port| {
        let number = port.host_port.filter(|port| *port > 0)?;
        let ip = port.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0");
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        Some(HostPort { ip: ip.into(), protocol: protocol.into(), port: number })
    });
    held.collect()
}

impl HostPort {
    /// All addresses of a node include each of them.
    pub fn conflicts(&self, other: &HostPort) -> bool {
        const ALL: &str = "0.0.0.0";
        let same_address = self.ip == other.ip || *self.ip == *ALL || *other.ip == *ALL;
        self.port == other.port && self.protocol == other.protocol && same_address
    }
}

/// What a node has to declare for the pod (`component-helpers/nodedeclaredfeatures/features`).
fn features(spec: &PodSpec) -> Box<[&'static str]> {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut rules = containers.flat_map(|it| it.restart_policy_rules.iter().flatten());
    let restarts_all = rules.any(|rule| rule.action == "RestartAllContainers");
    let is_split = spec.host_network == Some(true) && spec.host_users == Some(false);
    let all = [
        ("RestartAllContainersOnContainerExits", restarts_all),
        ("UserNamespacesHostNetworkSupport", is_split),
    ];
    all.into_iter().filter(|(_, needed)| *needed).map(|(name, _)| name).collect()
}

fn device_claims(pod: &Pod, spec: &PodSpec) -> Box<[PodClaim]> {
    let made = |name: &str| {
        let status = pod.status.as_ref()?.resource_claim_statuses.as_ref()?;
        status.iter().find(|it| it.name == name)
    };
    let claim = |claim: &PodResourceClaim| {
        let source = match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
            (Some(name), _) => Source::Named(name.as_str().into()),
            (None, None) => Source::Unknown,
            (None, Some(_)) => match made(&claim.name) {
                None => Source::NotYet,
                Some(status) => match &status.resource_claim_name {
                    Some(name) => Source::Made(name.as_str().into()),
                    None => Source::NotNeeded,
                },
            },
        };
        PodClaim { name: claim.name.as_str().into(), source }
    };
    spec.resource_claims.iter().flatten().map(claim).collect()
}

fn claims(spec: &PodSpec, pod: &str) -> Box<[ClaimName]> {
    let volumes = spec.volumes.iter().flatten();
    let claims = volumes.filter_map(|volume| {
        if let Some(claim) = &volume.persistent_volume_claim {
            return Some(ClaimName { name: claim.claim_name.as_str().into(), is_ephemeral: false });
        }
        volume.ephemeral.as_ref()?;
        let name = format!("{pod}-{}", volume.name).into();
        Some(ClaimName { name, is_ephemeral: true })
    });
    // A claim that two volumes of the pod name gets one volume.
    let mut once: Vec<ClaimName> = Vec::new();
    for claim in claims {
        if !once.contains(&claim) {
            once.push(claim);
        }
    }
    once.into()
}

fn images(spec: &PodSpec) -> Box<[Box<str>]> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref());
    let of_volumes = volumes.map(|image| image.reference.as_deref().unwrap_or_default());
    let names = containers.map(|it| it.image.as_deref().unwrap_or_default()).chain(of_volumes);
    names.map(normalized_image).collect()
}

/// With a tag, as nodes name what they have.
pub fn normalized_image(name: &str) -> Box<str> {
    let has_tag = match (name.rfind(':'), name.rfind('/')) {
        (Some(colon), Some(slash)) => colon > slash,
        (colon, _) => colon.is_some(),
    };
    if has_tag { name.into() } else { format!("{name}:latest").into() }
}
