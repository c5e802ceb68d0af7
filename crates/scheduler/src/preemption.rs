//! Room for a pod that fits nowhere: pods of less priority that have to go.
use crate::cluster::{Cluster, NodeRow};
use crate::config::Profile;
use crate::extend::{Extenders, Proposal};
use crate::filter::{Cycle, Refusal};
use crate::message::Unfit;
use crate::pod::PodInfo;
use api::codec::DecodeError;
use api::names::NamespacedName;
use api::object::{Keep, Object};
use api::selector::label::Selector;
use fastrand::Rng;
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What becomes of the node that room was made on for the pod.
#[derive(Debug, Default, PartialEq)]
pub enum Preemption {
    /// As it was: it still waits there.
    #[default]
    Keep,
    /// There is none.
    Clear,
    /// This one, once these pods are gone.
    Make { node: Box<str>, victims: Vec<Victim> },
}

/// A pod that has to go.
#[derive(Debug, Clone)]
pub struct Victim(pub Arc<PodInfo>);

impl PartialEq for Victim {
    fn eq(&self, other: &Victim) -> bool {
        self.0.uid == other.0.uid
    }
}

pub struct Found {
    pub preemption: Preemption,
    pub message: String,
}

/// What is kept of a budget: how many of its pods may go.
#[derive(Debug, PartialEq)]
pub struct Budget {
    key: NamespacedName,
    selector: Selector,
    allowed: i64,
    /// Pods that are on their way out with its consent.
    disrupted: BTreeSet<String>,
}

impl Keep for Budget {
    fn keep(object: &Arc<Object>) -> Result<Arc<Budget>, DecodeError> {
        let budget = object.typed::<PodDisruptionBudget>()?;
        let (spec, status) = (budget.spec.as_ref(), budget.status.as_ref());
        let disrupted = status.iter().flat_map(|status| status.disrupted_pods.iter().flatten());
        Ok(Arc::new(Budget {
            key: NamespacedName::of(object),
            selector: crate::selectors::selector(spec.and_then(|spec| spec.selector.as_ref())),
            allowed: status.map_or(0, |status| i64::from(status.disruptions_allowed.unwrap_or(0))),
            disrupted: disrupted.map(|(name, _)| name.clone()).collect(),
        }))
    }
}

/// What there is to go by. `cycle`: none if the pod was stopped before any node was asked.
pub struct Asked<'c, 'a> {
    pub cycle: Option<&'c Cycle<'a>>,
    pub refused: &'c [(usize, Refusal)],
    pub extenders: &'c dyn Extenders,
}

pub async fn find(
    asked: Asked<'_, '_>,
    profile: &Profile,
    pod: &Arc<PodInfo>,
    cluster: &Cluster,
    random: &mut Rng,
    now: Timestamp,
) -> Result<Found, String> {
    let Asked { cycle, refused, extenders } = asked;
    if !profile.preempts {
        return Ok(Found { preemption: Preemption::Keep, message: String::new() });
    }
    if let Some(message) = not_eligible(pod, cluster, refused) {
        let message = format!("preemption: {message}");
        return Ok(Found { preemption: Preemption::Keep, message });
    }
    let hopeful: Vec<usize> =
        refused.iter().filter(|(_, it)| it.preemption_helps).map(|(slot, _)| *slot).collect();
    let (mut candidates, mut failures, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(cycle) = cycle.filter(|_| !hopeful.is_empty()) {
        let args = &profile.args;
        let wanted = (hopeful.len() * args.min_candidates_percentage / 100)
            .max(args.min_candidates_absolute)
            .min(hopeful.len());
        let offset = random.usize(..hopeful.len());
        for at in 0..hopeful.len() {
            let row = cluster.row(hopeful[(offset + at) % hopeful.len()]);
            match victims(cycle, row, now) {
                Ok(candidate) => candidates.push(candidate),
                Err(NoRoom::Refused(refusal)) => failures.push((row.slot, refusal)),
                Err(NoRoom::Failed(text)) if errors.contains(&text) => {}
                Err(NoRoom::Failed(text)) => errors.push(text),
            }
            let is_enough = candidates.iter().any(|it: &Candidate| it.violations == 0);
            if is_enough && candidates.len() >= wanted {
                break;
            }
        }
    }
    if candidates.is_empty() && !errors.is_empty() {
        // As Go writes several errors as one.
        let text = match &errors[..] {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let message = format!("preemption: {text}");
        return Ok(Found { preemption: Preemption::Keep, message });
    }
    if !candidates.is_empty() && extenders.preempts(pod) {
        let proposals = candidates.iter().map(Candidate::proposal).collect();
        let left = extenders.preempt(pod, proposals).await?;
        candidates =
            left.into_iter().map(|it| Candidate::of(it, cluster)).collect::<Result<_, _>>()?;
    }
    Ok(match candidates.into_iter().min_by_key(|candidate| candidate.cost(now)) {
        Some(Candidate { node, victims, .. }) => {
            let count = victims.len();
            let message = format!(
                "preemption: found a potential placement for pod on node {node}, preempting {count} victims"
            );
            Found { preemption: Preemption::Make { node, victims }, message }
        }
        None => {
            let mut unfit = Unfit::new(cluster.len());
            unfit.count(&failures);
            unfit.absent("Preemption is not helpful for scheduling");
            Found { preemption: Preemption::Clear, message: format!("preemption: {unfit}") }
        }
    })
}

/// Nodes where pods would have to go, with who and how many against their budgets; and the best of them.
pub type Judged = (Vec<(Box<str>, Vec<String>, usize)>, Vec<Box<str>>);

/// Who would have to go on every node where that helps, for whoever compares us with another scheduler.
pub fn judge(
    asked: &Asked<'_, '_>,
    profile: &Profile,
    pod: &Arc<PodInfo>,
    now: Timestamp,
) -> Judged {
    let Some(cycle) = asked.cycle else { return Judged::default() };
    if !profile.preempts || not_eligible(pod, cycle.cluster, asked.refused).is_some() {
        return Judged::default();
    }
    let hopeful = asked.refused.iter().filter(|(_, refusal)| refusal.preemption_helps);
    let candidates: Vec<Candidate> = hopeful
        .filter_map(|(slot, _)| victims(cycle, cycle.cluster.row(*slot), now).ok())
        .collect();
    let least = candidates.iter().map(|candidate| candidate.cost(now)).min();
    let best = candidates.iter().filter(|candidate| Some(candidate.cost(now)) == least);
    let best = best.map(|candidate| candidate.node.clone()).collect();
    let all = candidates.into_iter().map(|candidate| {
        let names = candidate.victims.iter().map(|victim| victim.0.key.name.to_string());
        (candidate.node, names.collect(), candidate.violations)
    });
    (all.collect(), best)
}

/// Why it may not make room; it may try again where others already go for its sake.
fn not_eligible(
    pod: &PodInfo,
    cluster: &Cluster,
    refused: &[(usize, Refusal)],
) -> Option<&'static str> {
    if pod.wishes.never_preempts {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let row = cluster.find(&pod.nominated)?;
    let verdict = refused.iter().find(|(slot, _)| *slot == row.slot);
    if verdict.is_some_and(|(_, refusal)| !refusal.preemption_helps) {
        return None;
    }
    let goes = |other: &Arc<PodInfo>| {
        other.wishes.priority < pod.wishes.priority && other.deleting && other.preempted
    };
    row.pods
        .iter()
        .any(goes)
        .then_some("not eligible due to a terminating pod on the nominated node.")
}

struct Candidate {
    node: Box<str>,
    /// The most important first.
    victims: Vec<Victim>,
    /// How many of them their budgets would rather keep.
    violations: usize,
}

impl Candidate {
    fn proposal(&self) -> Proposal {
        Proposal {
            node: self.node.clone(),
            victims: self.victims.iter().map(|victim| victim.0.uid.clone()).collect(),
            violations: self.violations as i64,
        }
    }

    fn of(proposal: Proposal, cluster: &Cluster) -> Result<Candidate, String> {
        let Proposal { node, victims, violations } = proposal;
        let row = cluster
            .find(&node)
            .ok_or_else(|| format!("nodeinfo not found for node name {node:?}"))?;
        let find = |uid: Box<str>| {
            let pod = row.pods.iter().find(|pod| pod.uid == uid);
            pod.cloned().map(Victim).ok_or_else(|| {
                format!("extender claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node")
            })
        };
        let victims = victims.into_iter().map(find).collect::<Result<_, String>>()?;
        Ok(Candidate { victims, violations: violations.max(0) as usize, node })
    }

    /// Upstream's order: budgets, the highest priority, the sum of priorities, how many, and the
    /// one whose most important victims started last.
    fn cost(&self, now: Timestamp) -> (usize, i32, i64, usize, Reverse<Timestamp>) {
        let priorities = self.victims.iter().map(|victim| victim.0.wishes.priority);
        let highest = priorities.clone().max().unwrap_or(i32::MIN);
        let sum = priorities.map(|priority| i64::from(priority) + i64::from(i32::MAX) + 1).sum();
        let first = self.victims.iter().filter(|victim| victim.0.wishes.priority == highest);
        let earliest = first.map(|victim| victim.0.started.unwrap_or(now)).min().unwrap_or(now);
        (self.violations, highest, sum, self.victims.len(), Reverse(earliest))
    }
}

/// Why no room can be made on a node.
enum NoRoom {
    Refused(Refusal),
    /// Nothing can be said of the node.
    Failed(String),
}

impl From<Refusal> for NoRoom {
    fn from(refusal: Refusal) -> NoRoom {
        match refusal.is_error {
            true => NoRoom::Failed(refusal.failure()),
            false => NoRoom::Refused(refusal),
        }
    }
}

/// The fewest and least important pods whose going lets the pod fit.
fn victims(cycle: &Cycle<'_>, row: &NodeRow, now: Timestamp) -> Result<Candidate, NoRoom> {
    let priority = cycle.pod.wishes.priority;
    let less = row.pods.iter().filter(|other| other.wishes.priority < priority);
    let mut potential: Vec<Arc<PodInfo>> = less.cloned().collect();
    if potential.is_empty() {
        let reason = "No preemption victims found for incoming pod".into();
        let reasons = [reason].into_iter().collect();
        let refusal = Refusal { filter: 0, reasons, preemption_helps: false, is_error: false };
        return Err(NoRoom::Refused(refusal));
    }
    let (mut cycle, mut row) = (cycle.clone(), row.clone());
    for victim in &potential {
        cycle.remove(&mut row, victim);
    }
    cycle.check_with_nominated(&row)?;
    let importance =
        |pod: &Arc<PodInfo>| (Reverse(pod.wishes.priority), pod.started.unwrap_or(now));
    potential.sort_by_key(importance);
    let (violating, others): (Vec<_>, Vec<_>) =
        with_violations(cycle.cluster, &potential).into_iter().partition(|(_, is)| *is);
    let mut candidate =
        Candidate { node: row.node.name.clone(), victims: Vec::new(), violations: 0 };
    // Who can stay, stays: first those whose budgets want them to, the important before others.
    for (victim, violates) in violating.into_iter().chain(others) {
        cycle.add(&mut row, &victim);
        if cycle.check_with_nominated(&row).is_err() {
            cycle.remove(&mut row, &victim);
            candidate.violations += usize::from(violates);
            candidate.victims.push(Victim(victim));
        }
    }
    if candidate.victims.is_empty() {
        // Everybody can stay, and yet it did not fit: somebody has to look again.
        let text = format!("expected at least one victim pod on node {:?}", candidate.node);
        return Err(NoRoom::Failed(text));
    }
    candidate.victims.sort_by_key(|victim| importance(&victim.0));
    Ok(candidate)
}

fn with_violations(cluster: &Cluster, pods: &[Arc<PodInfo>]) -> Vec<(Arc<PodInfo>, bool)> {
    let mut budgets: Vec<(&Budget, i64)> =
        cluster.budgets.values().map(|budget| (&**budget, budget.allowed)).collect();
    let violates = |pod: &Arc<PodInfo>| {
        let mut violates = false;
        for (budget, allowed) in &mut budgets {
            if budget.key.namespace == pod.key.namespace
                && !pod.labels.is_empty()
                && !budget.selector.is_everything()
                && budget.selector.matches(&pod.labels)
                && !budget.disrupted.contains(&*pod.key.name)
            {
                *allowed -= 1;
                violates |= *allowed < 0;
            }
        }
        (pod.clone(), violates)
    };
    pods.iter().map(violates).collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::decide;
    use expect_test::{Expect, expect};

    fn check(cluster: &str, pod: &str, expected: Expect) {
        expected.assert_eq(&decide(cluster, pod));
    }

    #[test]
    fn it_is_said_why_nobody_goes() {
        check(
            "node a cpu=1\nnode b unschedulable=true\nnode c\npod x node=c cpu=4",
            "p cpu=2",
            expect![
                "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
            ],
        );
        check(
            "node a\nclaim c",
            "p claim=c",
            expect![
                "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
            ],
        );
        check("", "p", expect!["no nodes available to schedule pods"]);
    }

    #[test]
    fn an_attempt_to_make_room_that_fails_says_what_failed() {
        let gpu = |node: &str| {
            format!(
                "node {node} cpu=1\nslice p{node} node={node} devices=[{{\"name\":\"d\"}}]\npod {node} node={node} cpu=1"
            )
        };
        let claim = r#"deviceclass gpu selector=device.attributes["gpu.io"].x>1
            deviceclaim c requests=[{"name":"r","exactly":{"deviceClassName":"gpu"}}]"#;
        let pod = r#"p cpu=1 priority=10 devices=[{"name":"x","resourceClaimName":"c"}]"#;
        let said = decide(&format!("{}\n{}\n{claim}", gpu("a"), gpu("b")), pod);
        assert!(said.contains("2 Insufficient cpu. preemption: [running \"DynamicResources\" filter plugin: class gpu: selector #0 on device gpu.io/p"), "{said}");
        let said = decide(&format!("{}\n{claim}", gpu("a")), pod);
        assert!(
            said.contains("preemption: running \"DynamicResources\" filter plugin: class gpu"),
            "{said}"
        );
    }

    #[test]
    fn the_least_important_go_and_no_more_than_needed() {
        check(
            "node a cpu=4
             pod low node=a cpu=2 priority=1
             pod lower node=a cpu=2 priority=0",
            "p cpu=2 priority=10",
            expect![
                "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node a, preempting 1 victims; victims lower"
            ],
        );
        // Of equals the one that started last goes.
        check(
            "node a cpu=2
             pod old node=a cpu=1 started=2026-01-01T00:00:00Z
             pod new node=a cpu=1 started=2026-01-01T10:00:00Z",
            "p cpu=1 priority=10",
            expect![
                "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node a, preempting 1 victims; victims new"
            ],
        );
        check(
            "node a cpu=2\npod x node=a cpu=2 priority=10",
            "p cpu=1 priority=10",
            expect![
                "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
            ],
        );
    }

    #[test]
    fn the_node_with_the_least_important_victims_is_taken() {
        check(
            "node a cpu=1\nnode b cpu=1\nnode c cpu=1
             pod x node=a cpu=1 priority=3
             pod y node=b cpu=1 priority=2
             pod z node=c cpu=1 priority=4",
            "p cpu=1 priority=10",
            expect![
                "0/3 nodes are available: 3 Insufficient cpu. preemption: found a potential placement for pod on node b, preempting 1 victims; victims y"
            ],
        );
    }

    #[test]
    fn budgets_are_kept_where_that_is_possible() {
        let cluster = r#"node a cpu=1
            node b cpu=1
            pod x node=a cpu=1 priority=1 labels.app=w
            pod y node=b cpu=1 priority=2
            budget w selector={"app":"w"} allowed="#;
        for (allowed, victim) in [(0, "y"), (1, "x")] {
            let said = decide(&format!("{cluster}{allowed}"), "p cpu=1 priority=10");
            assert!(said.ends_with(&format!("victims {victim}")), "{allowed}: {said}");
        }
    }

    #[test]
    fn who_may_not_preempt_says_so() {
        check(
            "node a cpu=1\npod x node=a cpu=1",
            "p cpu=1 priority=10 spec.preemptionPolicy=Never",
            expect![
                "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
            ],
        );
        let going = r#"pod x node=a cpu=1 going status.conditions=[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler"}]"#;
        check(
            &format!("node a cpu=1\n{going}"),
            "p cpu=1 priority=10 nominated=a",
            expect![
                "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node."
            ],
        );
    }

    #[test]
    fn room_that_is_made_for_one_pod_is_not_taken_by_another() {
        let cluster = "node a cpu=2\npod first cpu=2 priority=5 nominated=a";
        check(
            cluster,
            "p cpu=1",
            expect![
                "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
            ],
        );
        check(cluster, "p cpu=1 priority=6", expect!["on a"]);
        check(cluster, "first cpu=2 priority=5 nominated=a", expect!["on a"]);
        // Rules that only those have who wait there are not asked about, as upstream has it.
        let apart = r#"node a
            pod first labels.app=x priority=5 nominated=a affinity={"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"x"}}}]}}"#;
        check(apart, "p labels.app=x", expect!["on a"]);
    }
}
