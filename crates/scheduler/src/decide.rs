//! One pod's place: the nodes that it may be on, the best of them, or why there is none.
use crate::cluster::{Cluster, NodeRow};
use crate::filter::{self, Cycle, FILTERS, Hopeless, Refusal, volumes};
use crate::message::Unfit;
use crate::pod::PodInfo;
use crate::preemption::{self, Preemption};
use crate::{event, score};
use fastrand::Rng;
use jiff::Timestamp;
use std::sync::Arc;

/// Nodes that are looked for at least, however many there are: upstream's.
const ENOUGH_NODES: usize = 100;
const ENOUGH_PERCENT: usize = 5;

pub struct Decider {
    pub cluster: Cluster,
    /// The node that is tried first next time, so that each has its turn.
    start: usize,
    random: Rng,
}

/// What was decided about a pod.
#[derive(Debug)]
pub enum Decision {
    /// It goes to this node, once its volumes are there.
    Place { node: Box<str>, volumes: volumes::Plan },
    Refuse {
        message: String,
        /// What may change that ([`event`]).
        wakes: u32,
        preemption: Preemption,
    },
}

impl Decider {
    pub fn new(seed: u64) -> Decider {
        Decider { cluster: Cluster::default(), start: 0, random: Rng::with_seed(seed) }
    }

    pub fn decide(&mut self, pod: &Arc<PodInfo>, now: Timestamp) -> Decision {
        self.cluster.settle();
        let total = self.cluster.len();
        if total == 0 {
            let message = "no nodes available to schedule pods".to_owned();
            return Decision::Refuse {
                message,
                wakes: event::ANYTHING,
                preemption: Preemption::Clear,
            };
        }
        self.expect(pod);
        let cycle = match Cycle::new(&self.cluster, pod) {
            Ok(cycle) => cycle,
            Err(Hopeless { filter, message }) => {
                let mut unfit = Unfit::new(total);
                unfit.hopeless = message;
                let found = preemption::find(None, pod, &self.cluster, &[], &mut self.random, now);
                return refuse(unfit, filter::mask(filter), found);
            }
        };
        let search = self.search(&cycle);
        let Search { fitting, refused, absent, tried } = search;
        if let Some(node) = choose(&cycle, &fitting, &mut self.random) {
            // It was planned while the node was checked; nothing has changed since.
            let volumes = volumes::plan(&cycle, node).unwrap_or_default();
            let node = node.node.name.clone();
            self.start = (self.start + tried) % total;
            return Decision::Place { node, volumes };
        }
        let found =
            preemption::find(Some(&cycle), pod, &self.cluster, &refused, &mut self.random, now);
        let filters = refused.iter().fold(0, |all, (_, refusal)| all | 1 << refusal.filter);
        let mut unfit = Unfit::new(total);
        unfit.count(&refused);
        let filters = match absent {
            true => {
                unfit.absent("node(s) didn't satisfy plugin(s) [NodeAffinity]");
                filters | filter::mask("NodeAffinity")
            }
            false => filters,
        };
        self.start = (self.start + tried) % total;
        refuse(unfit, filters, found)
    }

    /// Tells the cluster which counts this pod, and others like it, will ask for.
    fn expect(&mut self, pod: &PodInfo) {
        let spread = &pod.wishes.spread;
        if !spread.is_empty() {
            let selectors: Vec<_> = spread.iter().map(|it| &it.selector).collect();
            self.cluster.expect(&pod.key.namespace, &selectors);
        } else if let Some(selector) = self.cluster.owners.selector(pod) {
            self.cluster.expect(&pod.key.namespace, &[&selector]);
        }
    }

    fn search<'a>(&self, cycle: &Cycle<'a>) -> Search<'a> {
        let mut search = Search::default();
        // Room was made for it there; nowhere else is likely to do.
        if let Some(row) = cycle.cluster.find(&cycle.pod.nominated)
            && cycle.check_with_nominated(row).is_ok()
        {
            search.fitting.push(row);
            return search;
        }
        let order = cycle.cluster.order();
        let named = filter::allowed(cycle.pod);
        let rows: Vec<&NodeRow> = match &named {
            Some(names) => names.iter().filter_map(|name| cycle.cluster.find(name)).collect(),
            None => Vec::new(),
        };
        search.absent = named.is_some() && rows.len() < order.len();
        let count = if named.is_some() { rows.len() } else { order.len() };
        let enough = enough(count);
        for at in 0..count {
            let row = match named {
                Some(_) => rows[at],
                None => cycle.cluster.row(order[(self.start + at) % count]),
            };
            search.tried += 1;
            match cycle.check_with_nominated(row) {
                Ok(()) => search.fitting.push(row),
                Err(refusal) => search.refused.push((row.slot, refusal)),
            }
            if search.fitting.len() >= enough {
                break;
            }
        }
        search
    }
}

#[derive(Default)]
struct Search<'a> {
    fitting: Vec<&'a NodeRow>,
    refused: Vec<(usize, Refusal)>,
    /// Some nodes were not asked, because the pod names others.
    absent: bool,
    tried: usize,
}

/// How many nodes that fit are enough to choose from (upstream's `numFeasibleNodesToFind`).
fn enough(nodes: usize) -> usize {
    if nodes < ENOUGH_NODES {
        return nodes;
    }
    let percent = 50usize.saturating_sub(nodes / 125).max(ENOUGH_PERCENT);
    (nodes * percent / 100).max(ENOUGH_NODES)
}

/// The best; one of them by chance if there are several.
fn choose<'a>(cycle: &Cycle<'_>, fitting: &[&'a NodeRow], random: &mut Rng) -> Option<&'a NodeRow> {
    if fitting.len() <= 1 {
        return fitting.first().copied();
    }
    let scores = score::score(cycle, fitting);
    let best = scores.iter().copied().max()?;
    let ties: Vec<usize> = (0..scores.len()).filter(|at| scores[*at] == best).collect();
    Some(fitting[ties[random.usize(..ties.len())]])
}

fn refuse(mut unfit: Unfit, filters: u32, found: preemption::Found) -> Decision {
    unfit.preemption = found.message;
    let wakes = match filters {
        0 => event::ANYTHING,
        filters => filter::wakes(filters),
    };
    debug_assert!(FILTERS.len() <= 32, "a mask has a bit for each");
    Decision::Refuse { message: unfit.to_string(), wakes, preemption: found.preemption }
}

#[cfg(test)]
mod tests {
    use super::enough;

    #[test]
    fn of_many_nodes_some_are_enough() {
        for (nodes, expected) in
            [(1, 1), (99, 99), (100, 100), (250, 120), (1000, 420), (5000, 500), (10_000, 500)]
        {
            assert_eq!(enough(nodes), expected, "{nodes}");
        }
    }
}
