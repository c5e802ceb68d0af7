//! What is known of nodes and pods: the last two looks at each node, and the labels that lists are
//! selected by.
use crate::sample::{ContainerKey, Sample};
use crate::usage::{Usage, between};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};

#[derive(Default)]
pub struct World {
    nodes: RwLock<HashMap<String, [Option<Sample>; 2]>>,
}

impl World {
    /// The next look at a node; the one before the last is forgotten.
    pub fn saw(&self, node: &str, sample: Sample) {
        let mut nodes = self.nodes.write();
        let kept = nodes.entry(node.to_owned()).or_default();
        kept.swap(0, 1);
        kept[1] = Some(sample);
    }

    pub fn forget(&self, node: &str) {
        self.nodes.write().remove(node);
    }

    /// Whether anything can be told yet.
    pub fn is_ready(&self) -> bool {
        self.nodes.read().values().any(|kept| kept[1].is_some())
    }

    pub fn node(&self, name: &str) -> Option<Usage> {
        let nodes = self.nodes.read();
        let [before, after] = nodes.get(name)?;
        let before = before.as_ref().and_then(|sample| sample.node.as_ref());
        between(before, after.as_ref()?.node.as_ref()?)
    }

    /// A pod's containers with what each uses; nothing while one of them cannot be told, for the sum would
    /// be wrong.
    pub fn pod(&self, node: &str, namespace: &str, name: &str) -> Option<BTreeMap<String, Usage>> {
        let nodes = self.nodes.read();
        let [before, after] = nodes.get(node)?;
        let first: ContainerKey = (namespace.to_owned(), name.to_owned(), String::new());
        let mut found = BTreeMap::new();
        for (key, point) in after.as_ref()?.containers.range(first..) {
            if key.0 != namespace || key.1 != name {
                break;
            }
            let earlier = before.as_ref().and_then(|sample| sample.containers.get(key));
            found.insert(key.2.clone(), between(earlier, point)?);
        }
        (!found.is_empty()).then_some(found)
    }
}
