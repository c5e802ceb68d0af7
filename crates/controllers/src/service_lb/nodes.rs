//! The nodes that a balancer leads to.
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeMap;
use std::sync::Arc;

/// By name, what the cloud calls each.
pub type Hosts = BTreeMap<String, String>;

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The autoscaler of clusters says so before it deletes one.
const GOING: &str = "ToBeDeletedByClusterAutoscaler";
/// Names that an event shows.
const SHOWN: usize = 20;

pub struct Nodes(Vec<Arc<Node>>);

pub fn hosts(nodes: &[Arc<Node>]) -> Nodes {
    Nodes(nodes.iter().filter(|node| host(node).is_some()).cloned().collect())
}

/// What of a node matters to balancers; `None`: nothing is led to it. Whether it is ready is for the
/// balancer's own checks to find out.
pub fn host(node: &Node) -> Option<String> {
    let labels = node.metadata.labels.as_ref();
    let is_excluded = labels.and_then(|labels| labels.get(EXCLUDED)).is_some_and(|value| {
        // What is no truth value excludes as well.
        !matches!(&**value, "0" | "f" | "F" | "false" | "False" | "FALSE")
    });
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let is_going = taints.iter().any(|taint| taint.key == GOING);
    let is_out = is_excluded || is_going || node.metadata.deletion_timestamp.is_some();
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
    (!is_out).then_some(id)
}

impl Nodes {
    pub fn names(&self) -> Hosts {
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        self.0.iter().map(|node| (name(node), host(node).unwrap_or_default())).collect()
    }

    pub fn shown(&self) -> String {
        let names = self.names();
        let mut shown: Vec<String> = names.keys().take(SHOWN).cloned().collect();
        if names.len() > SHOWN {
            shown.push(format!("<{} more>", names.len() - SHOWN));
        }
        shown.join(" ")
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn all(self) -> Vec<Arc<Node>> {
        self.0
    }
}
