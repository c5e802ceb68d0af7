//! What there is: nodes as rows, with the pods on them, and what else decisions look at.
//!
//! It is changed one object at a time and never copied. Pods that were given a place are in it
//! at once (assumed), whether or not the API server has heard of that yet.
mod census;
mod owners;
pub mod storage;
mod terms;

pub use census::{Counted, NOWHERE, Topology};
pub use owners::{Owner, Owners};
pub use storage::Storage;
pub use terms::{Kind, Terms};

use crate::devices::Ledger;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::resources::Resources;
use api::object::Pairs;
use api::selector::label::Selector;
use census::Census;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Default)]
pub struct Cluster {
    rows: Vec<NodeRow>,
    slots: HashMap<Box<str>, usize>,
    /// Rows that nobody needs any more.
    free: Vec<usize>,
    /// Rows that have a node, in the order in which they are tried; zones take turns.
    order: Vec<usize>,
    is_ordered: bool,
    pods: HashMap<Box<str>, Placed>,
    /// Pods that wait until room is made for them, by node.
    nominated: HashMap<Box<str>, Vec<Arc<PodInfo>>>,
    /// What pods that are there say about others.
    pub terms: Terms,
    /// How many nodes have an image.
    images: HashMap<Box<str>, usize>,
    /// How many pods use a claim, by namespace and name.
    claims_in_use: HashMap<(Box<str>, Box<str>), usize>,
    census: Census,
    pub namespaces: HashMap<Box<str>, Arc<Labelled>>,
    pub owners: Owners,
    pub storage: Storage,
    pub devices: Ledger,
    pub budgets: BTreeMap<api::names::NamespacedName, Arc<crate::preemption::Budget>>,
}

/// What is kept of a namespace.
#[derive(Debug, PartialEq)]
pub struct Labelled {
    pub labels: Pairs,
}

/// One node and what is on it. A row may be there before its node is: pods of a node that is not
/// known, or no more, are counted where they are.
#[derive(Debug, Clone, Default)]
pub struct NodeRow {
    pub slot: usize,
    pub node: Arc<NodeInfo>,
    pub exists: bool,
    pub pods: Vec<Arc<PodInfo>>,
    pub requested: Resources,
    pub non_zero: [i64; 2],
}

#[derive(Debug, Clone)]
struct Placed {
    slot: usize,
    pod: Arc<PodInfo>,
    assumed: bool,
}

impl NodeRow {
    pub fn add(&mut self, pod: &Arc<PodInfo>) {
        self.requested.add(&pod.wishes.requests);
        for (sum, own) in self.non_zero.iter_mut().zip(pod.wishes.non_zero_placed) {
            *sum += own;
        }
        self.pods.push(pod.clone());
    }

    pub fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|pod| *pod.uid == *uid)?;
        let pod = self.pods.swap_remove(at);
        self.requested.subtract(&pod.wishes.requests);
        for (sum, own) in self.non_zero.iter_mut().zip(pod.wishes.non_zero_placed) {
            *sum -= own;
        }
        Some(pod)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.node.labels.get(key)
    }
}

impl Cluster {
    pub fn row(&self, slot: usize) -> &NodeRow {
        &self.rows[slot]
    }

    pub fn find(&self, node: &str) -> Option<&NodeRow> {
        let row = &self.rows[*self.slots.get(node)?];
        row.exists.then_some(row)
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.order().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows that have a node, in the order in which they are tried.
    pub fn order(&self) -> &[usize] {
        debug_assert!(self.is_ordered, "the cluster was changed and not settled");
        &self.order
    }

    /// All nodes' rows.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRow> {
        self.order().iter().map(|slot| &self.rows[*slot])
    }

    /// How many nodes have an image.
    pub fn nodes_with_image(&self, name: &str) -> usize {
        self.images.get(name).copied().unwrap_or(0)
    }

    /// What is kept, by upstream's words.
    pub fn sizes(&self) -> [(&'static str, usize); 3] {
        let assumed = self.pods.values().filter(|placed| placed.assumed).count();
        let nodes = self.rows.iter().filter(|row| row.exists).count();
        [("nodes", nodes), ("pods", self.pods.len()), ("assumed_pods", assumed)]
    }

    pub fn is_claim_in_use(&self, namespace: &str, name: &str) -> bool {
        self.claims_in_use.contains_key(&(namespace.into(), name.into()))
    }

    pub fn namespace_labels(&self, name: &str) -> Option<&Pairs> {
        self.namespaces.get(name).map(|namespace| &namespace.labels)
    }

    /// Makes what is worked out late: call it after changes, before decisions.
    pub fn settle(&mut self) {
        if !self.is_ordered {
            self.is_ordered = true;
            self.order = in_turns(&self.rows);
        }
    }

    /// What a pod will ask about, so that it is kept up to date from now on.
    pub fn expect(&mut self, namespace: &str, selectors: &[&Selector], counts: Counted) {
        if !selectors.is_empty() {
            self.census.expect(&self.rows, namespace, selectors, counts);
        }
    }

    /// How many pods of a namespace a selector selects, by slot. An empty selector counts nothing,
    /// as upstream has it (`countPodsMatchSelector`).
    pub fn count(&self, namespace: &str, selector: &Selector) -> Arc<Vec<u32>> {
        if selector.is_everything() {
            return Arc::new(vec![0; self.rows.len()]);
        }
        self.census.count(&self.rows, namespace, selector, Counted::Staying)
    }

    /// The same with those on their way out, and whatever the selector is.
    pub fn count_all(&self, namespace: &str, selector: &Selector) -> Arc<Vec<u32>> {
        self.census.count(&self.rows, namespace, selector, Counted::All)
    }

    /// Which value of a label each row has.
    pub fn topology(&self, key: &str) -> Arc<Topology> {
        self.census.topology(&self.rows, key)
    }

    pub fn set_node(&mut self, node: Arc<NodeInfo>) {
        let slot = self.slot(&node.name);
        self.count_images(slot, false);
        let row = &mut self.rows[slot];
        let moved = !row.exists || row.node.zone() != node.zone();
        if !row.exists || row.node.labels != node.labels {
            self.census.nodes_changed();
        }
        row.node = node;
        row.exists = true;
        self.is_ordered &= !moved;
        self.count_images(slot, true);
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.slots.get(name).copied() else { return };
        self.count_images(slot, false);
        let row = &mut self.rows[slot];
        row.exists = false;
        row.node = Arc::new(NodeInfo { name: name.into(), ..NodeInfo::default() });
        self.is_ordered = false;
        self.census.nodes_changed();
        self.release(slot);
    }

    /// A row without a node and without pods is for the next node.
    fn release(&mut self, slot: usize) {
        let row = &self.rows[slot];
        if !row.exists && row.pods.is_empty() && self.slots.remove(&row.node.name).is_some() {
            self.free.push(slot);
        }
    }

    fn count_images(&mut self, slot: usize, more: bool) {
        let row = &self.rows[slot];
        if !row.exists {
            return;
        }
        for (name, _) in &row.node.images {
            if more {
                *self.images.entry(name.clone()).or_default() += 1;
            } else {
                lessen(&mut self.images, name.clone());
            }
        }
    }

    fn slot(&mut self, name: &str) -> usize {
        if let Some(slot) = self.slots.get(name) {
            return *slot;
        }
        let slot = self.free.pop().unwrap_or(self.rows.len());
        let node = Arc::new(NodeInfo { name: name.into(), ..NodeInfo::default() });
        let row = NodeRow { slot, node, ..NodeRow::default() };
        match self.rows.get_mut(slot) {
            Some(free) => *free = row,
            None => {
                self.rows.push(row);
                self.census.row_added();
            }
        }
        self.slots.insert(name.into(), slot);
        slot
    }

    pub fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(uid).map(|placed| &placed.pod)
    }

    pub fn is_assumed(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|placed| placed.assumed)
    }

    /// The pod is where it says it is: as the API server tells, or as we decided (`assumed`).
    pub fn place(&mut self, pod: Arc<PodInfo>, assumed: bool) {
        self.forget(&pod.uid);
        self.unnominate(&pod.uid);
        let slot = self.slot(&pod.node);
        for claim in pod.wishes.claims.iter().filter(|claim| !claim.is_ephemeral) {
            let key = ((*pod.key.namespace).into(), claim.name.clone());
            *self.claims_in_use.entry(key).or_default() += 1;
        }
        self.census.pod_changed(slot, &pod, true);
        self.rows[slot].add(&pod);
        self.terms.pod_changed(slot, &pod, true);
        self.pods.insert(pod.uid.clone(), Placed { slot, pod, assumed });
    }

    /// The pod is nowhere any more.
    pub fn forget(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let Placed { slot, .. } = self.pods.remove(uid)?;
        let pod = self.rows[slot].remove(uid)?;
        for claim in pod.wishes.claims.iter().filter(|claim| !claim.is_ephemeral) {
            let key = ((*pod.key.namespace).into(), claim.name.clone());
            lessen(&mut self.claims_in_use, key);
        }
        self.census.pod_changed(slot, &pod, false);
        self.terms.pod_changed(slot, &pod, false);
        self.release(slot);
        Some(pod)
    }

    /// Room is made for the pod on a node; an empty name takes that back.
    pub fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.unnominate(&pod.uid);
        if !node.is_empty() {
            self.nominated.entry(node.into()).or_default().push(pod);
        }
    }

    pub fn unnominate(&mut self, uid: &str) {
        self.nominated.retain(|_, pods| {
            pods.retain(|pod| *pod.uid != *uid);
            !pods.is_empty()
        });
    }

    /// Pods that wait for room on a node.
    pub fn nominated(&self, node: &str) -> &[Arc<PodInfo>] {
        self.nominated.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn has_nominated(&self) -> bool {
        !self.nominated.is_empty()
    }
}

fn lessen<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let std::collections::hash_map::Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// One node of each zone, then the next of each, so that whoever looks at some nodes only sees
/// all zones.
fn in_turns(rows: &[NodeRow]) -> Vec<usize> {
    let mut zones: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.exists) {
        zones.entry(row.node.zone()).or_default().push(row.slot);
    }
    let longest = zones.values().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .flat_map(|turn| zones.values().filter_map(move |zone| zone.get(turn).copied()))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::{engine, node, pod};
    use api::selector::label::Selector;

    #[test]
    fn zones_take_turns() {
        let mut cluster =
            engine("node a zone=x\nnode b zone=x\nnode c zone=y\nnode d").decider.cluster;
        cluster.settle();
        let names: Vec<_> = cluster.nodes().map(|row| row.node.name.to_string()).collect();
        assert_eq!(names, ["d", "a", "c", "b"]);
    }

    #[test]
    fn pods_are_counted_where_they_are_even_before_their_node_is_known() {
        let mut cluster = engine("pod x node=a cpu=1").decider.cluster;
        cluster.settle();
        assert!(cluster.is_empty() && cluster.find("a").is_none());
        cluster.set_node(node("a"));
        cluster.settle();
        assert_eq!(cluster.find("a").map(|row| row.requested.milli_cpu), Some(1000));
        // The node goes and comes back while its pod is still there.
        cluster.remove_node("a");
        cluster.set_node(node("a"));
        assert_eq!(cluster.find("a").map(|row| row.pods.len()), Some(1));
        cluster.forget("x-uid");
        assert_eq!(cluster.find("a").map(|row| row.requested.milli_cpu), Some(0));
    }

    #[test]
    fn rows_of_nodes_that_are_gone_are_used_again() {
        let mut cluster = engine("").decider.cluster;
        for index in 0..100 {
            cluster.set_node(node(&format!("n{index}")));
            cluster.place(pod(&format!("p{index} node=n{index}")), false);
            cluster.remove_node(&format!("n{index}"));
            cluster.forget(&format!("p{index}-uid"));
        }
        assert_eq!(cluster.rows.len(), 1);
    }

    #[test]
    fn counts_are_the_same_whether_they_are_kept_or_made() {
        let mut cluster = engine("node a zone=x\nnode b zone=y").decider.cluster;
        let web = Selector::parse("app=web").expect("a selector");
        cluster.expect("default", &[&web], super::Counted::Staying);
        let sum = |cluster: &super::Cluster| -> [u32; 2] {
            let kept = cluster.count("default", &web);
            let (census, counts) = (super::Census::default(), super::Counted::Staying);
            let made = census.count(&cluster.rows, "default", &web, counts);
            assert_eq!(kept, made);
            [kept[0], kept[1]]
        };
        cluster.place(pod("1 node=a labels.app=web"), true);
        cluster.place(pod("2 node=b labels.app=web"), true);
        cluster.place(pod("3 node=b labels.app=db"), true);
        assert_eq!(sum(&cluster), [1, 1]);
        // It is seen elsewhere, another is on its way out, a third changes its labels.
        cluster.place(pod("1 node=b labels.app=web"), false);
        cluster.place(pod("2 node=b labels.app=web going"), false);
        cluster.place(pod("3 node=b labels.app=web"), false);
        assert_eq!(sum(&cluster), [0, 2]);
        cluster.forget("1-uid");
        cluster.set_node(node("c"));
        assert_eq!(sum(&cluster), [0, 1]);
    }
}
