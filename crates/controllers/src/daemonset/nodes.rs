//! Which nodes a daemon's pod may be on, and the pod for one of them.
use super::{GENERATION, TEMPLATE_GENERATION, View};
use crate::history::REVISION;
use crate::pods;
use api::placement::{is_selected, tolerates};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};

pub struct Fit {
    pub should_run: bool,
    /// One that is there goes on.
    pub may_stay: bool,
}

/// Taints that daemons do not mind, with what they do: a daemon is what mends a node.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
const OF_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

fn spec(set: &DaemonSet) -> PodSpec {
    set.spec.template.spec.clone().unwrap_or_default()
}

fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let more = (spec.host_network == Some(true)).then_some(OF_HOST_NETWORK);
    for (key, effect) in TOLERATED.into_iter().chain(more) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    all
}

pub fn fit(set: &DaemonSet, node: &Node) -> Fit {
    let spec = spec(set);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let named = spec.node_name.as_deref().filter(|wanted| !wanted.is_empty());
    if named.is_some_and(|wanted| wanted != name) || !is_selected(&spec, &labels, name) {
        return Fit { should_run: false, may_stay: false };
    }
    let tolerations = tolerations(&spec);
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let minded = |taint: &&Taint| !tolerations.iter().any(|one| tolerates(one, taint));
    let minded: Vec<&str> = taints.filter(minded).map(|taint| &*taint.effect).collect();
    Fit {
        should_run: !minded.iter().any(|effect| ["NoSchedule", "NoExecute"].contains(effect)),
        may_stay: !minded.contains(&"NoExecute"),
    }
}

/// The node a pod is on, or else is meant for.
pub fn meant_for(pod: &Pod) -> Option<String> {
    if !pods::node(pod).is_empty() {
        return Some(pods::node(pod).to_owned());
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().flat_map(|t| t.match_fields.iter().flatten());
    let named = |one: &&NodeSelectorRequirement| one.key == "metadata.name" && one.operator == "In";
    fields.into_iter().find(named)?.values.as_ref()?.first().cloned()
}

/// The scheduler puts it where it is meant for.
pub fn new_pod(view: &View<'_>, node: &str) -> Pod {
    let mut pod = pods::from_template(&view.set.spec.template, view.set);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION.to_owned(), view.hash.to_owned());
    let annotations = view.set.metadata.annotations.as_ref();
    if let Some(generation) = annotations.and_then(|all| all.get(GENERATION)) {
        labels.insert(TEMPLATE_GENERATION.to_owned(), generation.clone());
    }
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(tolerations(spec));
    let only = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![only]), ..NodeSelectorTerm::default() };
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    pod
}
