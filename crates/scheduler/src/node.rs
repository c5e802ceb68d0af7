//! What the scheduler keeps of a node.
use crate::pod::normalized_image;
use crate::resources::{Resources, amount};
use crate::taints::Taint;
use api::codec::DecodeError;
use api::object::{Keep, Object, Pairs};
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;

/// Two that are equal are the same to every pod: heartbeats change nothing here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeInfo {
    pub name: Box<str>,
    pub labels: Pairs,
    pub taints: Box<[Taint]>,
    pub unschedulable: bool,
    pub allocatable: Resources,
    pub allowed_pods: i64,
    /// Names and sizes, sorted.
    pub images: Box<[(Box<str>, i64)]>,
    /// What it can do that not every node can.
    pub features: Box<[Box<str>]>,
}

impl NodeInfo {
    pub fn zone(&self) -> (&str, &str) {
        let label = |name: &str| self.labels.get(name).unwrap_or_default();
        (label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
    }

    pub fn image_size(&self, name: &str) -> Option<i64> {
        let at = self.images.binary_search_by(|(other, _)| (**other).cmp(name)).ok()?;
        Some(self.images[at].1)
    }
}

impl Keep for NodeInfo {
    fn keep(object: &Arc<Object>) -> Result<Arc<NodeInfo>, DecodeError> {
        let node = object.typed::<Node>()?;
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let pods = allocatable.and_then(|list| list.get("pods"));
        let images = status.iter().flat_map(|status| status.images.iter().flatten());
        let mut images: Vec<_> = images
            .flat_map(|image| {
                let size = image.size_bytes.unwrap_or(0);
                image.names.iter().flatten().map(move |name| (normalized_image(name), size))
            })
            .collect();
        images.sort_unstable();
        images.dedup_by(|a, b| a.0 == b.0);
        let taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        Ok(Arc::new(NodeInfo {
            name: object.name().into(),
            labels: object.metadata().labels.clone(),
            taints: taints.map(Taint::of).collect(),
            unschedulable: spec.is_some_and(|spec| spec.unschedulable == Some(true)),
            allocatable: allocatable.map(Resources::of).unwrap_or_default(),
            allowed_pods: pods.map_or(0, |quantity| amount("pods", quantity)),
            images: images.into(),
            features: status
                .iter()
                .flat_map(|status| status.declared_features.iter().flatten())
                .map(|name| name.as_str().into())
                .collect(),
        }))
    }
}
