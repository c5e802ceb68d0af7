//! One pod's place: the nodes that it may be on, the best of them, or why there is none.
use crate::cluster::{Cluster, Counted, NodeRow};
use crate::config::Profile;
use crate::extend::{Extenders, Nobody};
use crate::filter::{
    self, Constraints, Cycle, EXTENDER, FILTERS, Hopeless, Refusal, devices, volumes,
};
use crate::message::Unfit;
use crate::pod::PodInfo;
use crate::preemption::{self, Preemption};
use crate::queue::Refused;
use crate::{event, score};
use fastrand::Rng;
use futures_util::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::ResourceClaim;
use std::sync::Arc;

/// Nodes that are looked for at least, however many there are: upstream's.
const ENOUGH_NODES: usize = 100;
const ENOUGH_PERCENT: usize = 5;

pub struct Decider {
    pub cluster: Cluster,
    pub profiles: Vec<Arc<Profile>>,
    /// The node that is tried first next time, so that each has its turn.
    start: usize,
    random: Rng,
}

/// What was decided about a pod.
#[derive(Debug)]
pub enum Decision {
    /// It goes to this node, once its volumes are there.
    Place { node: Box<str>, plan: Plan },
    Refuse {
        message: String,
        /// A claim whose devices are to be given back, so that others may be found.
        free: Option<Arc<ResourceClaim>>,
        /// Who refused it, and what may change that ([`event`]).
        by: Refused,
        preemption: Preemption,
        /// Why each node was refused, by slot.
        refused: Vec<(usize, Refusal)>,
    },
    /// It could not be decided; that is not the pod's fault.
    Fail { message: String },
}

/// What has to be there before a pod may be on its node.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub volumes: volumes::Plan,
    pub devices: devices::Plan,
}

impl Decider {
    pub fn new(profiles: Vec<Arc<Profile>>, seed: u64) -> Decider {
        Decider { cluster: Cluster::default(), profiles, start: 0, random: Rng::with_seed(seed) }
    }

    pub fn profile(&self, scheduler_name: &str) -> Option<&Arc<Profile>> {
        self.profiles.iter().find(|profile| *profile.scheduler_name == *scheduler_name)
    }

    /// Decides with nobody else to ask, so that nothing is waited for.
    pub fn decide(&mut self, pod: &Arc<PodInfo>, now: Timestamp) -> Decision {
        let decided = self.decide_with(pod, now, &Nobody).now_or_never();
        decided.expect("nobody is waited for")
    }

    pub async fn decide_with(
        &mut self,
        pod: &Arc<PodInfo>,
        now: Timestamp,
        extenders: &dyn Extenders,
    ) -> Decision {
        self.cluster.settle();
        let total = self.cluster.len();
        let Some(profile) = self.profile(&pod.wishes.scheduler).cloned() else {
            let name = &pod.wishes.scheduler;
            let message = format!("profile not found for scheduler name {name:?}");
            return Decision::Fail { message };
        };
        if total == 0 {
            let message = "no nodes available to schedule pods".to_owned();
            return Decision::Refuse {
                message,
                by: Refused { wakes: event::ANYTHING, filters: 0 },
                preemption: Preemption::Clear,
                free: None,
                refused: Vec::new(),
            };
        }
        let constraints = Constraints::of(&self.cluster, &profile, pod);
        let selectors: Vec<_> = constraints.all.iter().map(|it| &it.selector).collect();
        self.cluster.expect(&pod.key.namespace, &selectors, Counted::Staying);
        for (namespace, selector) in filter::InterPod::counted(pod) {
            self.cluster.expect(namespace, &[selector], Counted::All);
        }
        for (namespace, selector) in score::counted(pod) {
            self.cluster.expect(namespace, &[selector], Counted::All);
        }
        let cycle = match Cycle::new(&self.cluster, &profile, pod, constraints.clone(), now) {
            Ok(cycle) => cycle,
            Err(Hopeless { filter, message, is_error: true }) => {
                let message = format!("running PreFilter plugin {filter:?}: {message}");
                return Decision::Fail { message };
            }
            Err(Hopeless { filter, message, .. }) => {
                let mut unfit = Unfit::new(total);
                unfit.hopeless = message;
                if is_unnoted(&profile, filter) {
                    let found = preemption::Found {
                        preemption: Preemption::Keep,
                        message: UNNOTED.to_owned(),
                    };
                    return refuse(unfit, filter::mask(filter), found, None, Vec::new());
                }
                let asked = preemption::Asked { cycle: None, refused: &[], extenders };
                let search =
                    preemption::find(asked, &profile, pod, &self.cluster, &mut self.random, now);
                return match search.await {
                    Ok(found) => refuse(unfit, filter::mask(filter), found, None, Vec::new()),
                    Err(message) => Decision::Fail { message },
                };
            }
        };
        let mut search = search(&cycle, self.start, extenders);
        if let Some(message) = search.error.take() {
            return Decision::Fail { message };
        }
        if extenders.filters(pod)
            && let Err(message) = search.extend(&cycle, extenders).await
        {
            return Decision::Fail { message };
        }
        let chosen = choose(&cycle, &search.fitting, &mut self.random, extenders).await;
        let Search { refused, absent, tried, extended, .. } = search;
        self.start = (self.start + tried) % total;
        if let Some(node) = chosen {
            // It was planned while the node was checked; nothing has changed since.
            let volumes = volumes::plan(&cycle, node).unwrap_or_default();
            let devices = devices::plan(&cycle, node).unwrap_or_default();
            let plan = Plan { volumes, devices };
            return Decision::Place { node: node.node.name.clone(), plan };
        }
        let free = match profile.frees_claims {
            true => cycle.devices.to_free(&self.cluster, pod, &refused),
            false => None,
        };
        let asked = preemption::Asked { cycle: Some(&cycle), refused: &refused, extenders };
        let found =
            preemption::find(asked, &profile, pod, &self.cluster, &mut self.random, now).await;
        let found = match found {
            Ok(found) => found,
            Err(message) => return Decision::Fail { message },
        };
        let filters = refused.iter().filter(|(_, refusal)| refusal.filter != EXTENDER);
        let mut filters = filters.fold(0, |all, (_, refusal)| all | 1 << refusal.filter);
        let mut unfit = Unfit::new(total);
        unfit.count(&refused);
        if absent {
            unfit.absent("node(s) didn't satisfy plugin(s) [NodeAffinity]");
            filters |= filter::mask("NodeAffinity");
        }
        // Nobody knows what would change an extender's mind.
        let filters = if extended { 0 } else { filters };
        refuse(unfit, filters, found, free, refused)
    }
}

fn search<'a>(cycle: &Cycle<'a>, start: usize, extenders: &dyn Extenders) -> Search<'a> {
    let mut search = Search::default();
    // Room was made for it there; nowhere else is likely to do.
    if let Some(row) = cycle.cluster.find(&cycle.pod.nominated)
        && cycle.check_with_nominated(row).is_ok()
    {
        search.fitting.push(row);
        return search;
    }
    let order = cycle.cluster.order();
    let is_asked = cycle.profile.pre_filters & filter::mask("NodeAffinity") != 0;
    let named = is_asked.then(|| filter::allowed(cycle.pod)).flatten();
    let rows: Vec<&NodeRow> = match &named {
        Some(names) => names.iter().filter_map(|name| cycle.cluster.find(name)).collect(),
        None => Vec::new(),
    };
    search.absent = named.is_some() && rows.len() < order.len();
    let count = if named.is_some() { rows.len() } else { order.len() };
    let is_compared = !cycle.profile.scores.is_empty() || extenders.prioritizes(cycle.pod);
    let enough = match is_compared || extenders.filters(cycle.pod) {
        true => enough(count, cycle.profile.percentage_of_nodes_to_score),
        false => 1,
    };
    for at in 0..count {
        let row = match named {
            Some(_) => rows[at],
            None => cycle.cluster.row(order[(start + at) % count]),
        };
        search.tried += 1;
        match cycle.check_with_nominated(row) {
            Ok(()) => search.fitting.push(row),
            Err(refusal) if refusal.is_error => {
                search.error = Some(refusal.failure());
                break;
            }
            Err(refusal) => search.refused.push((row.slot, refusal)),
        }
        if search.fitting.len() >= enough {
            break;
        }
    }
    search
}

#[derive(Default)]
struct Search<'a> {
    fitting: Vec<&'a NodeRow>,
    refused: Vec<(usize, Refusal)>,
    /// Some nodes were not asked, because the pod names others.
    absent: bool,
    tried: usize,
    /// Extenders took nodes away.
    extended: bool,
    /// Nothing can be decided.
    error: Option<String>,
}

impl Search<'_> {
    /// Leaves the nodes that extenders leave.
    async fn extend(&mut self, cycle: &Cycle<'_>, extenders: &dyn Extenders) -> Result<(), String> {
        if self.fitting.is_empty() {
            return Ok(());
        }
        let names = self.fitting.iter().map(|row| row.node.name.clone()).collect();
        let verdicts = extenders.filter(cycle.pod, names).await?;
        let before = self.fitting.len();
        self.fitting.retain(|row| verdicts.fitting.contains(&row.node.name));
        self.extended = self.fitting.len() != before;
        for failed in verdicts.failed {
            let Some(row) = cycle.cluster.find(&failed.node) else { continue };
            let refusal = Refusal {
                filter: EXTENDER,
                reasons: [failed.reason.into()].into_iter().collect(),
                preemption_helps: failed.preemption_helps,
                is_error: false,
            };
            self.refused.push((row.slot, refusal));
        }
        Ok(())
    }
}

/// How many nodes that fit are enough to choose from (upstream's `numFeasibleNodesToFind`).
fn enough(nodes: usize, percentage: usize) -> usize {
    if nodes < ENOUGH_NODES {
        return nodes;
    }
    let percentage = match percentage {
        0 => 50usize.saturating_sub(nodes / 125).max(ENOUGH_PERCENT),
        percentage => percentage,
    };
    (nodes * percentage / 100).max(ENOUGH_NODES)
}

/// The best; one of them by chance if there are several.
async fn choose<'a>(
    cycle: &Cycle<'_>,
    fitting: &[&'a NodeRow],
    random: &mut Rng,
    extenders: &dyn Extenders,
) -> Option<&'a NodeRow> {
    if fitting.len() <= 1 {
        return fitting.first().copied();
    }
    let mut scores = score::score(cycle, fitting);
    if extenders.prioritizes(cycle.pod) {
        let names = fitting.iter().map(|row| row.node.name.clone()).collect();
        let more = extenders.prioritize(cycle.pod, names).await;
        for (score, row) in scores.iter_mut().zip(fitting) {
            *score += more.get(&row.node.name).copied().unwrap_or(0);
        }
    }
    let best = scores.iter().copied().max()?;
    let ties = scores.iter().filter(|score| **score == best).count();
    let mut left = random.usize(..ties);
    let at = scores.iter().position(|score| {
        let is_it = *score == best && left == 0;
        left -= usize::from(*score == best && left > 0);
        is_it
    });
    at.map(|at| fitting[at])
}

/// What upstream's `DynamicResources` says once a pod was stopped before its turn came: it looks for what it
/// would have noted of the pod, and for its error nobody else is asked what could be done.
const UNNOTED: &str = "not found";

fn is_unnoted(profile: &Profile, stopped_by: &str) -> bool {
    let row = |name: &str| FILTERS.iter().position(|filter| filter.name == name);
    profile.frees_claims && row(stopped_by) < row("DynamicResources")
}

/// Said where devices were given back that nobody could use.
const FREED: &str = "deallocation of ResourceClaim completed";

fn refuse(
    mut unfit: Unfit,
    filters: u32,
    found: preemption::Found,
    free: Option<Arc<ResourceClaim>>,
    refused: Vec<(usize, Refusal)>,
) -> Decision {
    let freed = free.as_ref().map(|_| FREED.to_owned());
    let said = freed.into_iter().chain([found.message]).filter(|text| !text.is_empty());
    unfit.preemption = said.collect::<Vec<_>>().join(", ");
    let wakes = match filters {
        0 => event::ANYTHING,
        filters => filter::wakes(filter::hints::judges(filters)),
    };
    debug_assert!(FILTERS.len() <= 32, "a mask has a bit for each");
    let (message, preemption) = (unfit.to_string(), found.preemption);
    Decision::Refuse { message, by: Refused { wakes, filters }, preemption, free, refused }
}

/// Everything that plugins say about a pod, node by node: to be compared with what another scheduler's
/// say of the same cluster (`examples/placements.rs`).
#[derive(Debug, Default)]
pub struct Judgement {
    /// What stopped it before any node was asked.
    pub hopeless: Option<String>,
    /// Nodes, why not, and whether it would help to take other pods away.
    pub refused: Vec<(Box<str>, Vec<String>, bool)>,
    /// By plugin: nodes and their scores, with weights.
    pub scores: Vec<(&'static str, NodeScores)>,
    /// By node that fits: devices that claims would get.
    pub devices: Vec<(Box<str>, Vec<String>)>,
    /// By node: who would have to go, and how many of them their budgets would rather keep.
    pub victims: Vec<(Box<str>, Vec<String>, usize)>,
    /// Nodes on any of which room would be made.
    pub best: Vec<Box<str>>,
    pub message: String,
    /// Nothing can be decided.
    pub error: String,
    /// The same for what was found out about a node: any of these is what is said.
    pub failed: Vec<(Box<str>, String)>,
}

/// Nodes and their scores.
pub type NodeScores = Vec<(Box<str>, i64)>;

impl Decider {
    pub fn judge(&mut self, pod: &Arc<PodInfo>, now: Timestamp) -> Judgement {
        self.cluster.settle();
        let mut found = Judgement::default();
        let Some(profile) = self.profile(&pod.wishes.scheduler).cloned() else { return found };
        let constraints = Constraints::of(&self.cluster, &profile, pod);
        let cycle = match Cycle::new(&self.cluster, &profile, pod, constraints, now) {
            Ok(cycle) => cycle,
            Err(Hopeless { filter, message, is_error: true }) => {
                found.error = format!("running PreFilter plugin {filter:?}: {message}");
                return found;
            }
            Err(hopeless) => {
                let mut unfit = Unfit::new(self.cluster.len());
                unfit.hopeless = hopeless.message.clone();
                found.hopeless = Some(hopeless.message);
                let asked = preemption::Asked { cycle: None, refused: &[], extenders: &Nobody };
                unfit.preemption = match is_unnoted(&profile, hopeless.filter) {
                    true => UNNOTED.to_owned(),
                    false => nobody_goes(asked, &profile, pod, &self.cluster, now),
                };
                found.message = unfit.to_string();
                return found;
            }
        };
        let mut fitting = Vec::new();
        let named = filter::allowed(pod);
        let (mut refused, mut unfit) = (Vec::new(), Unfit::new(self.cluster.len()));
        for row in cycle.cluster.nodes() {
            if named.as_ref().is_some_and(|names| !names.contains(&&*row.node.name)) {
                continue;
            }
            match cycle.check_with_nominated(row) {
                Ok(()) => fitting.push(row),
                Err(refusal) if refusal.is_error => {
                    found.failed.push((row.node.name.clone(), refusal.failure()));
                }
                Err(refusal) => {
                    let reasons = refusal.reasons.iter().map(ToString::to_string).collect();
                    let helps = refusal.preemption_helps;
                    found.refused.push((row.node.name.clone(), reasons, helps));
                    refused.push((row.slot, refusal));
                }
            }
        }
        if !found.failed.is_empty() {
            return found;
        }
        if fitting.is_empty() {
            unfit.count(&refused);
            if named.is_some() {
                unfit.absent("node(s) didn't satisfy plugin(s) [NodeAffinity]");
            }
            let asked =
                preemption::Asked { cycle: Some(&cycle), refused: &refused, extenders: &Nobody };
            (found.victims, found.best) = preemption::judge(&asked, &profile, pod, now);
            if found.victims.is_empty() {
                let free = cycle.devices.to_free(&self.cluster, pod, &refused);
                let freed = free.filter(|_| profile.frees_claims).map(|_| FREED.to_owned());
                let said = nobody_goes(asked, &profile, pod, &self.cluster, now);
                let said = freed.into_iter().chain([said]).filter(|text| !text.is_empty());
                unfit.preemption = said.collect::<Vec<_>>().join(", ");
            }
            found.message = unfit.to_string();
        }
        for row in &fitting {
            let Ok(plan) = devices::plan(&cycle, row) else { continue };
            if plan.is_empty() {
                continue;
            }
            found.devices.push((row.node.name.clone(), plan.devices()));
        }
        for (plugin, scores) in score::by_plugin(&cycle, &fitting) {
            let names = fitting.iter().map(|row| row.node.name.clone());
            found.scores.push((plugin, names.zip(scores).collect()));
        }
        found
    }
}

/// What is said of the attempt to make room where there is nobody whose going would help.
fn nobody_goes(
    asked: preemption::Asked<'_, '_>,
    profile: &Profile,
    pod: &Arc<PodInfo>,
    cluster: &Cluster,
    now: Timestamp,
) -> String {
    let mut random = Rng::with_seed(1);
    let found = preemption::find(asked, profile, pod, cluster, &mut random, now).now_or_never();
    match found.expect("nobody is waited for") {
        Ok(found) => found.message,
        Err(message) => message,
    }
}

#[cfg(test)]
mod tests {
    use super::enough;

    #[test]
    fn of_many_nodes_some_are_enough() {
        for (nodes, expected) in
            [(1, 1), (99, 99), (100, 100), (250, 120), (1000, 420), (5000, 500), (10_000, 500)]
        {
            assert_eq!(enough(nodes, 0), expected, "{nodes}");
        }
        assert_eq!((enough(1000, 30), enough(1000, 100)), (300, 1000));
    }
}
