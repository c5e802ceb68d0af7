//! One pod on every node that it may be on.
mod nodes;
mod rollout;
#[cfg(test)]
mod tests;

use crate::action::Action;
use crate::claim::{Claimed, claim};
use crate::driver::{Controller, Watching};
use crate::history::{History, REVISION};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use api::selector::label::Selector;
use client::events::{Happening, reference};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "daemonset-controller",
    account: "daemon-set-controller",
    workers: 2,
    watch,
    reconcile,
};

/// Pods that are made or deleted in one turn at most: upstream's.
const BURST: usize = 250;
/// What has failed on a node is not made again at once: it would most likely fail again.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(1);
const AFTER_LONG_FAILURE: SignedDuration = SignedDuration::from_secs(60);

const GENERATION: &str = "deprecated.daemonset.template.generation";
const TEMPLATE_GENERATION: &str = "pod-template-generation";

fn watch(on: &Watching) {
    on.objects::<DaemonSet>();
    on.owned::<Pod, DaemonSet>(selector);
    on.reads::<ControllerRevision>();
    on.each::<Node>(|world, change| {
        // A heartbeat is no reason to look.
        let facts = |node: &Node| {
            let (metadata, spec) = (&node.metadata, node.spec.clone().unwrap_or_default());
            (metadata.labels.clone(), spec.taints, spec.unschedulable)
        };
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && facts(old) == facts(new)
        {
            return Vec::new();
        }
        let sets = world.informer::<DaemonSet>();
        sets.read().iter().map(|(key, _)| key.clone()).collect()
    });
}

fn selector(set: &DaemonSet) -> Selector {
    Selector::from_label_selector(Some(&set.spec.selector)).unwrap_or_else(|_| Selector::nothing())
}

/// What a decision about a set looks at.
struct View<'a> {
    set: &'a DaemonSet,
    now: Timestamp,
    hash: &'a str,
    generation: Option<&'a str>,
    nodes: Vec<Arc<Node>>,
    /// Pods by the node that they are on or meant for, the oldest first.
    by_node: BTreeMap<String, Vec<Arc<Pod>>>,
}

impl View<'_> {
    fn on(&self, node: &Node) -> &[Arc<Pod>] {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.by_node.get(name).map_or(&[], Vec::as_slice)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.set.spec.min_ready_seconds.unwrap_or_default(), self.now)
    }

    /// Made of the template that is wanted now.
    fn is_updated(&self, pod: &Pod) -> bool {
        let label = |name: &str| {
            pod.metadata.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str)
        };
        label(REVISION) == Some(self.hash)
            || (self.generation.is_some() && label(TEMPLATE_GENERATION) == self.generation)
    }

    fn surges(&self) -> bool {
        rollout::limits(self).0 > 0
    }
}

/// What is to be done: pods by their nodes' names, and pods that go.
#[derive(Default)]
struct Plan {
    create: Vec<String>,
    delete: Vec<Arc<Pod>>,
    events: Vec<Happening>,
    again: Option<Duration>,
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(set) = world.get::<DaemonSet>(key) else { return Vec::new() };
    let Claimed { objects, mut actions } = claim(&*set, &selector(&set), world, |_: &Pod| true);
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let mut history = History::of(&*set, &set.spec.template, REVISION, collisions, world);
    let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in objects {
        if let Some(node) = nodes::meant_for(&pod) {
            by_node.entry(node).or_default().push(pod);
        }
    }
    let is_scheduled = |pod: &Pod| !pods::node(pod).is_empty();
    for pods in by_node.values_mut() {
        pods.sort_by_key(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (!is_scheduled(pod), created, pod.metadata.name.clone())
        });
    }
    let annotations = set.metadata.annotations.as_ref();
    let view = View {
        set: &set,
        now,
        hash: &history.hash,
        generation: annotations.and_then(|all| all.get(GENERATION)).map(String::as_str),
        nodes: world.all::<Node>(),
        by_node,
    };
    if set.metadata.deletion_timestamp.is_none() {
        actions.append(&mut history.actions);
        let mut plan = manage(&view);
        // Until what is missing is made, nothing old goes.
        if plan.create.is_empty() && plan.delete.is_empty() {
            rollout::roll(&view, &mut plan);
        }
        let used = |pod: &Arc<Pod>| pod.metadata.labels.as_ref()?.get(REVISION).cloned();
        let used: Vec<String> = view.by_node.values().flatten().filter_map(used).collect();
        let used: BTreeSet<&str> = used.iter().map(String::as_str).collect();
        actions.extend(history.surplus(set.spec.revision_history_limit, &used));
        actions.extend(plan.events.drain(..).map(Action::Record));
        let owner = reference(&*set);
        let gone = plan.delete.iter().take(BURST);
        let gone = gone.map(|pod| Action::delete_for(owner.clone(), &**pod));
        let made = plan.create.iter().take(BURST);
        let made = made.map(|node| Action::create_for(owner.clone(), &nodes::new_pod(&view, node)));
        let changes: Vec<_> = made.chain(gone).collect();
        if !changes.is_empty() {
            actions.push(Action::Several { actions: changes, otherwise: None });
        }
        actions.extend(plan.again.map(Action::Again));
    }
    let new = count(&view, history.collisions);
    if Some(&new) != set.status.as_ref() {
        let changed = DaemonSet { status: Some(new), ..(*set).clone() };
        actions.insert(0, Action::update_part("status", &changed));
    }
    let all = view.by_node.values().flatten().map(|pod| &**pod);
    let min_ready = set.spec.min_ready_seconds.unwrap_or_default();
    actions.extend(pods::next_available(all, min_ready, now).map(Action::Again));
    actions
}

/// Nodes without a pod get one; what must not be there, has ended or is too much goes.
fn manage(view: &View<'_>) -> Plan {
    let mut plan = Plan::default();
    for node in &view.nodes {
        let here = view.on(node);
        let fit = nodes::fit(view.set, node);
        let name = node.metadata.name.clone().unwrap_or_default();
        match (fit.should_run, fit.may_stay) {
            (true, _) if here.is_empty() => plan.create.push(name),
            (_, true) => tidy(view, here, &name, fit.should_run, &mut plan),
            (_, false) => {
                let stay = here.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
                plan.delete.extend(stay.cloned());
            }
        }
    }
    // Meant for a node that is gone, they would wait for ever; those that ran there are the
    // garbage collector's.
    let known: BTreeSet<&str> =
        view.nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
    let lost = view.by_node.iter().filter(|(name, _)| !known.contains(name.as_str()));
    let lost = lost.flat_map(|(_, pods)| pods).filter(|pod| pods::node(pod).is_empty());
    plan.delete.extend(lost.cloned());
    plan
}

/// The pods of one node that may have some.
fn tidy(view: &View<'_>, here: &[Arc<Pod>], node: &str, should_run: bool, plan: &mut Plan) {
    let mut running = Vec::new();
    for pod in here.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let target = reference(&**pod);
        let name = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, pod_name) = (name(&target.namespace), name(&target.name));
        match pods::phase(pod) {
            "Failed" => {
                let due = failed_long_enough(pod, view.now);
                if let Some(wait) = due {
                    plan.again = Some(plan.again.map_or(wait, |other| other.min(wait)));
                    continue;
                }
                let text = format!(
                    "Found failed daemon pod {namespace}/{pod_name} on node {node}, will try to kill it"
                );
                let told = Happening::warning(reference(view.set), "FailedDaemonPod", text);
                plan.events.push(told);
                plan.delete.push(pod.clone());
            }
            "Succeeded" => {
                let text = format!(
                    "Found succeeded daemon pod {namespace}/{pod_name} on node {node}, will try to \
                     delete it"
                );
                let told = Happening::normal(reference(view.set), "SucceededDaemonPod", text);
                plan.events.push(told);
                plan.delete.push(pod.clone());
            }
            _ => running.push(pod),
        }
    }
    if !view.surges() {
        plan.delete.extend(running.iter().skip(1).map(|pod| (*pod).clone()));
        return;
    }
    if running.is_empty() && should_run {
        return plan.create.push(node.to_owned());
    }
    // One old and one new may be there; of each the oldest stays, and the old only until the new
    // is available.
    let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| view.is_updated(pod));
    let is_replaced = new.first().is_some_and(|pod| view.is_available(pod));
    let kept = usize::from(!is_replaced);
    plan.delete.extend(new.iter().skip(1).chain(old.iter().skip(kept)).map(|pod| (*pod).clone()));
}

/// How long a failed pod still stays. The longer it had lived the sooner: one that is refused at once
/// is refused again.
fn failed_long_enough(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let was_refused = started.is_none_or(|_| pods::node(pod).is_empty())
        || pod.status.as_ref().is_some_and(|status| status.container_statuses.is_none());
    let pause = if was_refused { AFTER_LONG_FAILURE } else { AFTER_FAILURE };
    let left = (created + pause).duration_since(now);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

/// What the set says of its pods.
fn count(view: &View<'_>, collisions: Option<i32>) -> DaemonSetStatus {
    let old = view.set.status.clone().unwrap_or_default();
    let mut status = DaemonSetStatus {
        collision_count: collisions,
        conditions: old.conditions,
        observed_generation: view.set.metadata.generation,
        ..DaemonSetStatus::default()
    };
    let (mut available, mut updated) = (0, 0);
    for node in &view.nodes {
        let should_run = nodes::fit(view.set, node).should_run;
        status.desired_number_scheduled += i32::from(should_run);
        let Some(pod) = view.on(node).first() else { continue };
        if !should_run {
            status.number_misscheduled += 1;
            continue;
        }
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pods::is_ready(pod));
        available += i32::from(view.is_available(pod));
        updated += i32::from(view.is_updated(pod));
    }
    let some = |number: i32| (number != 0).then_some(number);
    status.number_available = some(available);
    status.number_unavailable = some(status.desired_number_scheduled - available);
    status.updated_number_scheduled = some(updated);
    status
}
