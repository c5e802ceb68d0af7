//! Counts that decisions ask for again and again, kept up to date while they are asked for.
//!
//! Pods of one ReplicaSet all ask how many pods its selector selects on each node, and which zone
//! each node is in. To look at every pod of a cluster for each new one is what makes schedulers
//! slow; here a pod that comes or goes changes one number.
use super::NodeRow;
use crate::pod::PodInfo;
use api::selector::label::Selector;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts that are kept; the one that nobody asked for longest makes room.
const TALLIES: usize = 64;

/// The domain of a row without the label.
pub const NOWHERE: u32 = u32::MAX;

#[derive(Default)]
pub struct Census {
    tallies: Vec<Tally>,
    /// Made when first asked for.
    topologies: Mutex<Vec<Arc<Topology>>>,
    /// Counts questions.
    asked: u64,
}

struct Tally {
    namespace: Box<str>,
    selector: Selector,
    counts: Counted,
    by_slot: Arc<Vec<u32>>,
    asked: u64,
}

/// Whether pods on their way out count: to spreading they are gone, to neighbours they are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Staying,
    All,
}

/// The values of one label, as small numbers.
#[derive(Debug, Default)]
pub struct Topology {
    pub key: Box<str>,
    /// The domain of each slot.
    pub of_slot: Vec<u32>,
    /// How many domains there are.
    pub domains: usize,
}

impl Census {
    pub fn expect(
        &mut self,
        rows: &[NodeRow],
        namespace: &str,
        selectors: &[&Selector],
        counts: Counted,
    ) {
        self.asked += 1;
        for selector in selectors {
            let asked = self.asked;
            if let Some(tally) =
                self.tallies.iter_mut().find(|it| it.is(namespace, selector, counts))
            {
                tally.asked = asked;
                continue;
            }
            if self.tallies.len() >= TALLIES
                && let Some(oldest) = (0..TALLIES).min_by_key(|at| self.tallies[*at].asked)
            {
                self.tallies.swap_remove(oldest);
            }
            let by_slot = Arc::new(tally(rows, namespace, selector, counts));
            let selector = (*selector).clone();
            let namespace = namespace.into();
            self.tallies.push(Tally { namespace, selector, counts, by_slot, asked });
        }
    }

    pub fn count(
        &self,
        rows: &[NodeRow],
        namespace: &str,
        selector: &Selector,
        counts: Counted,
    ) -> Arc<Vec<u32>> {
        let kept = self.tallies.iter().find(|it| it.is(namespace, selector, counts));
        match kept {
            Some(kept) => kept.by_slot.clone(),
            None => Arc::new(tally(rows, namespace, selector, counts)),
        }
    }

    pub fn topology(&self, rows: &[NodeRow], key: &str) -> Arc<Topology> {
        let mut all = self.topologies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = all.iter().find(|topology| *topology.key == *key) {
            return kept.clone();
        }
        let made = Arc::new(Topology::of(rows, key));
        all.push(made.clone());
        made
    }

    pub fn pod_changed(&mut self, slot: usize, pod: &PodInfo, is_there: bool) {
        for tally in &mut self.tallies {
            if pod.deleting && tally.counts == Counted::Staying {
                continue;
            }
            if *tally.namespace == *pod.key.namespace && tally.selector.matches(&pod.labels) {
                // Nobody holds the counts between decisions, so this copies nothing.
                let count = &mut Arc::make_mut(&mut tally.by_slot)[slot];
                *count = if is_there { *count + 1 } else { count.saturating_sub(1) };
            }
        }
    }

    pub fn row_added(&mut self) {
        for tally in &mut self.tallies {
            Arc::make_mut(&mut tally.by_slot).push(0);
        }
        self.nodes_changed();
    }

    pub fn nodes_changed(&mut self) {
        self.topologies.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Tally {
    fn is(&self, namespace: &str, selector: &Selector, counts: Counted) -> bool {
        self.counts == counts && *self.namespace == *namespace && self.selector == *selector
    }
}

fn tally(rows: &[NodeRow], namespace: &str, selector: &Selector, counts: Counted) -> Vec<u32> {
    let is_counted = |pod: &&Arc<PodInfo>| {
        (counts == Counted::All || !pod.deleting)
            && *pod.key.namespace == *namespace
            && selector.matches(&pod.labels)
    };
    rows.iter().map(|row| row.pods.iter().filter(is_counted).count() as u32).collect()
}

impl Topology {
    fn of(rows: &[NodeRow], key: &str) -> Topology {
        let mut values: HashMap<&str, u32> = HashMap::new();
        let mut of_slot = Vec::with_capacity(rows.len());
        for row in rows {
            let value = row.node.labels.get(key).filter(|_| row.exists);
            let next = values.len() as u32;
            of_slot.push(value.map_or(NOWHERE, |value| *values.entry(value).or_insert(next)));
        }
        Topology { key: key.into(), of_slot, domains: values.len() }
    }
}
