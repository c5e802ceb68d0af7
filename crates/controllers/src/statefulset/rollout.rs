//! What is next: pods to be made, to be ended for a smaller set, to be ended for a new revision.
use super::identity::{self, mark, new_pod};
use super::{View, claims, is_going, is_running};
use crate::action::Action;
use crate::pods;
use api::int_or_string::{Round, scaled_value};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One by one, each when its predecessors are well, unless the set says that the order is of no
/// importance.
pub fn steps(view: &View<'_>, pods: &[Arc<Pod>]) -> Vec<Action> {
    let spec = &view.set.spec;
    let in_order = spec.pod_management_policy.as_deref() != Some("Parallel");
    let name = view.set.metadata.name.as_deref().unwrap_or_default();
    let by_number: BTreeMap<i32, &Arc<Pod>> =
        pods.iter().filter_map(|pod| Some((identity::ordinal(name, pod)?, pod))).collect();
    let start = identity::start(view.set);
    let wanted = start..start.saturating_add(identity::replicas(view.set));
    let mut actions = Vec::new();

    for number in wanted.clone() {
        let (mut step, is_held_up) =
            replica(view, number, by_number.get(&number).copied(), in_order);
        actions.append(&mut step);
        if is_held_up && in_order {
            return actions;
        }
    }
    let condemned: Vec<&Arc<Pod>> =
        by_number.iter().rev().filter(|(n, _)| !wanted.contains(n)).map(|(_, pod)| *pod).collect();
    for pod in &condemned {
        actions.extend(claims::owned_rightly(view, pod, true));
    }
    // In order: the one with the highest number goes, if all are well but perhaps itself.
    let first_ill = by_number.iter().find(|(_, pod)| view.is_unavailable(pod)).map(|(n, _)| *n);
    for pod in &condemned {
        let number = identity::ordinal(name, pod);
        let is_well = is_running(pod) && view.is_available(pod);
        match (is_going(pod), in_order) {
            (true, true) => return actions,
            (true, false) => continue,
            (false, true) if !is_well && number != first_ill => return actions,
            (false, _) => actions.extend(view.delete(pod)),
        }
        if in_order {
            return actions;
        }
    }
    let strategy = spec.update_strategy.as_ref();
    if strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete")) {
        return actions;
    }
    let replicas: Vec<(i32, &Arc<Pod>)> =
        by_number.iter().filter(|(n, _)| wanted.contains(n)).map(|(n, pod)| (*n, *pod)).collect();
    actions.extend(update(view, &replicas, start, in_order));
    actions
}

/// One pod of the set: what is to be done about it, and whether its successors have to wait.
fn replica(
    view: &View<'_>,
    number: i32,
    pod: Option<&Arc<Pod>>,
    in_order: bool,
) -> (Vec<Action>, bool) {
    let Some(pod) = pod else {
        return match claims::are_going(view, number) {
            true => (Vec::new(), true),
            false => (view.create(&new_pod(view, number)), true),
        };
    };
    if pods::is_finished(pod) {
        // Another takes its place when it is gone.
        let actions = if is_going(pod) { Vec::new() } else { view.delete(pod) };
        return (actions, true);
    }
    let mut actions = Vec::new();
    if pods::phase(pod) == "Pending" && !is_going(pod) {
        actions.extend(claims::missing(view, pod));
    }
    if !is_going(pod) {
        actions.extend(claims::owned_rightly(view, pod, false));
    }
    let is_well = is_running(pod) && view.is_available(pod);
    if in_order && (is_going(pod) || !is_well) {
        return (actions, true);
    }
    if !is_going(pod) {
        let mut marked = (**pod).clone();
        if mark(view.set, &mut marked, number) {
            actions.push(Action::update(&marked));
        }
    }
    (actions, false)
}

/// From the highest number to the partition, as many at once as may be unavailable.
fn update(
    view: &View<'_>,
    replicas: &[(i32, &Arc<Pod>)],
    start: i32,
    in_order: bool,
) -> Vec<Action> {
    let strategy = view.set.spec.update_strategy.as_ref();
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or_default();
    let most = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let total = identity::replicas(view.set);
    let most = scaled_value(most, i64::from(total), Round::Down).unwrap_or(1);
    let ill = replicas.iter().filter(|(_, pod)| view.is_unavailable(pod)).count();
    let mut room = (most.max(1) as usize).saturating_sub(ill);
    let is_old = |pod: &Pod| !view.is_updated(pod) && !is_going(pod);
    let mut actions = Vec::new();
    for (number, pod) in replicas.iter().rev() {
        if *number < start + partition {
            break;
        }
        if !is_old(pod) {
            continue;
        }
        // Of one that is ill already nobody has any use; out of order it goes first.
        let is_free = !in_order && view.is_unavailable(pod);
        if !is_free && room == 0 {
            continue;
        }
        if !is_free {
            room -= 1;
        }
        actions.extend(view.delete(pod));
    }
    actions
}
