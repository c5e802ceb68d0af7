//! How many of a budget's pods are well, and so how many may be evicted.
//!
//! The API server, which evicts, counts down `disruptionsAllowed` itself and lists the pod; here
//! the count is made anew when pods change.
mod scale;
mod stale;
#[cfg(test)]
mod tests;

use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::World;
use api::int_or_string::{Round, scaled_value};
use api::names::NamespacedName;
use api::selector::label::Selector;
use client::events::{Happening, reference};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub const CONTROLLER: Controller<Key> = Controller {
    name: "disruption-controller",
    account: "disruption-controller",
    workers: 1,
    watch,
    reconcile,
};

/// A pod that was evicted and is still there after that time was not evicted: upstream's.
const DELETION: SignedDuration = SignedDuration::from_secs(120);
/// A budget that cannot be worked out is tried again.
const RETRY: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    Budget(NamespacedName),
    /// A pod that was about to be disrupted.
    Pod(NamespacedName),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Budget(key) => write!(f, "poddisruptionbudget {key}"),
            Key::Pod(key) => write!(f, "pod {key}"),
        }
    }
}

fn watch(on: &Watching<Key>) {
    on.each::<PodDisruptionBudget>(|_, change| vec![Key::Budget(change.key.clone())]);
    on.each::<Pod>(|world, change| {
        let budgets = world.informer::<PodDisruptionBudget>();
        let read = budgets.read();
        let is_about = |budget: &PodDisruptionBudget| {
            let selector = selector(budget);
            let mut pods = change.old.iter().chain(&change.new);
            pods.any(|pod| selector.matches(&pod.metadata.labels))
        };
        let found = read.in_namespace(&change.key.namespace).filter(|(_, it)| is_about(it));
        let mut keys: Vec<_> = found.map(|(key, _)| Key::Budget(key.clone())).collect();
        if change.new.as_ref().is_some_and(|pod| stale::since(pod).is_some()) {
            keys.push(Key::Pod(change.key.clone()));
        }
        keys
    });
    on.reads::<ReplicaSet>();
    on.reads::<Deployment>();
    on.reads::<StatefulSet>();
    on.reads::<ReplicationController>();
}

/// One without a selector is about no pod, one with an empty selector about all.
fn selector(budget: &PodDisruptionBudget) -> Selector {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let found = selector.and_then(|some| Selector::from_label_selector(Some(some)).ok());
    found.unwrap_or_else(Selector::nothing)
}

fn reconcile(key: &Key, world: &World, now: Timestamp) -> Vec<Action> {
    let key = match key {
        Key::Budget(key) => key,
        Key::Pod(key) => return stale::reconcile(key, world, now),
    };
    let Some(budget) = world.get::<PodDisruptionBudget>(key) else { return Vec::new() };
    let selector = selector(&budget);
    let mut pods = world.in_namespace::<Pod>(&key.namespace);
    pods.retain(|pod| selector.matches(&pod.metadata.labels));
    pods.sort_by_key(|pod| pod.metadata.name.clone());
    let mut actions = Vec::new();
    let mut tell = |is_warning: bool, reason: &str, note: &str| {
        let normal = Happening::normal(reference(&*budget), reason, note);
        actions.push(Action::Record(Happening { is_warning, ..normal }));
    };
    if pods.is_empty() {
        tell(false, "NoPods", "No matching pods found");
    }
    let wanted = match wanted(&budget, &pods, world) {
        Ok(wanted) => wanted,
        Err(fault) => {
            let note = format!("Failed to calculate the number of expected pods: {fault}");
            tell(true, "CalculateExpectedPodCountFailed", &note);
            actions.extend(fail(&budget, &fault, now));
            actions.push(Action::Again(RETRY));
            return actions;
        }
    };
    if wanted.has_unmanaged {
        tell(true, "UnmanagedPods", &unmanaged(&budget));
    }
    let (disrupted, recheck, forgotten) = disrupted(&budget, &pods, now);
    actions.extend(forgotten);
    let is_healthy = |pod: &&Arc<Pod>| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        pod.metadata.deletion_timestamp.is_none()
            && !disrupted.contains_key(name)
            && pods::is_ready(pod)
    };
    let healthy = pods.iter().filter(is_healthy).count() as i32;
    actions.extend(change(&budget, &wanted, healthy, disrupted, now));
    actions.extend(recheck.map(Action::Again));
    actions
}

struct Wanted {
    expected: i32,
    healthy: i32,
    has_unmanaged: bool,
}

/// How many pods there should be, and how many of them have to be well.
fn wanted(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    world: &World,
) -> Result<Wanted, String> {
    let spec = budget.spec.as_ref();
    let most = spec.and_then(|spec| spec.max_unavailable.as_ref());
    let least = spec.and_then(|spec| spec.min_available.as_ref());
    if let (None, Some(IntOrString::Int(healthy))) = (most, least) {
        let expected = pods.len() as i32;
        return Ok(Wanted { expected, healthy: *healthy, has_unmanaged: false });
    }
    if most.is_none() && least.is_none() {
        return Ok(Wanted { expected: 0, healthy: 0, has_unmanaged: false });
    }
    let (expected, has_unmanaged) = scale::expected(pods, world)?;
    let share = scaled_value(most.or(least), expected.into(), Round::Up);
    let share = share.map_err(|fault| fault.to_string())? as i32;
    let healthy = if most.is_some() { (expected - share).max(0) } else { share };
    Ok(Wanted { expected, healthy, has_unmanaged })
}

fn unmanaged(budget: &PodDisruptionBudget) -> String {
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a \
         result, the status of the PDB cannot be calculated correctly, which may result in \
         undefined behavior. To account for these pods please set \".spec.minAvailable\" field of \
         the PDB to an integer value.",
        shown(budget)
    )
}

/// A budget's selector, in the words of Go: those are what people see.
fn shown(budget: &PodDisruptionBudget) -> String {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(name, value)| format!("{name}: {value},")).collect();
    let each = selector.match_expressions.iter().flatten().map(|it| {
        let values = it.values.clone().unwrap_or_default().join(" ");
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
            it.key, it.operator
        )
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        each.collect::<String>()
    )
}

type Disrupted = BTreeMap<String, Time>;

/// Pods that are about to go, when the first of them should have, and those that did not go.
fn disrupted(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (Disrupted, Option<Duration>, Vec<Action>) {
    let listed = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    let (mut kept, mut next, mut told) = (Disrupted::new(), None::<Duration>, Vec::new());
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let Some(at) = listed.and_then(|listed| listed.get(&name)) else { continue };
        match Duration::try_from((at.0 + DELETION).duration_since(now)) {
            Ok(left) => {
                next = Some(next.map_or(left, |next| next.min(left)));
                kept.insert(name, at.clone());
            }
            Err(_) => {
                // Upstream says the namespace twice.
                let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
                let note = format!(
                    "Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't"
                );
                let told_one = Happening::warning(reference(&**pod), "NotDeleted", note);
                told.push(Action::Record(told_one));
            }
        }
    }
    (kept, next, told)
}

fn change(
    budget: &PodDisruptionBudget,
    wanted: &Wanted,
    healthy: i32,
    disrupted: Disrupted,
    now: Timestamp,
) -> Option<Action> {
    let mut allowed = (healthy - wanted.healthy).max(0);
    if wanted.expected <= 0 {
        allowed = 0;
    }
    let old = budget.status.clone().unwrap_or_default();
    let mut new = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(wanted.healthy),
        expected_pods: Some(wanted.expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: budget.metadata.generation,
        conditions: old.conditions.clone(),
    };
    let (status, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    condition(&mut new, status, reason, "", now);
    let is_none = old.disrupted_pods.as_ref().is_none_or(BTreeMap::is_empty);
    let old = PodDisruptionBudgetStatus {
        disrupted_pods: old.disrupted_pods.filter(|_| !is_none),
        ..old
    };
    write(budget, old, new)
}

/// Who cannot count allows nothing.
fn fail(budget: &PodDisruptionBudget, fault: &str, now: Timestamp) -> Option<Action> {
    let old = budget.status.clone().unwrap_or_default();
    let mut new = PodDisruptionBudgetStatus { disruptions_allowed: Some(0), ..old.clone() };
    condition(&mut new, "False", "SyncFailed", fault, now);
    write(budget, old, new)
}

fn write(
    budget: &PodDisruptionBudget,
    old: PodDisruptionBudgetStatus,
    new: PodDisruptionBudgetStatus,
) -> Option<Action> {
    let changed = PodDisruptionBudget { status: Some(new.clone()), ..budget.clone() };
    (old != new || budget.status.is_none()).then(|| Action::update_part("status", &changed))
}

fn condition(
    status: &mut PodDisruptionBudgetStatus,
    is: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let observed_generation = status.observed_generation;
    let conditions = status.conditions.get_or_insert_default();
    let type_ = "DisruptionAllowed";
    let at = conditions.iter().position(|one| one.type_ == type_).unwrap_or_else(|| {
        conditions.push(Condition {
            type_: type_.to_owned(),
            last_transition_time: Time(now),
            message: String::new(),
            observed_generation: None,
            reason: String::new(),
            status: String::new(),
        });
        conditions.len() - 1
    });
    let one = &mut conditions[at];
    if one.status != is {
        one.last_transition_time = Time(now);
    }
    one.status = is.to_owned();
    one.reason = reason.to_owned();
    one.message = message.to_owned();
    one.observed_generation = observed_generation;
}
