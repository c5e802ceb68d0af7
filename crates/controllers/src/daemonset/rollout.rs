//! Old pods give way to new ones, so many at once.
use super::{Plan, View, nodes};
use api::int_or_string::{Round, scaled_value};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;

/// How many more there may be than nodes, and how many may be missing.
pub fn limits(view: &View<'_>) -> (usize, usize) {
    let strategy = view.set.spec.update_strategy.as_ref();
    if strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete")) {
        return (0, 0);
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let wanted = view.nodes.iter().filter(|node| nodes::fit(view.set, node).should_run).count();
    let share = |value: Option<&IntOrString>, otherwise: usize| {
        let value = value?;
        let share = scaled_value(Some(value), wanted as i64, Round::Up).ok();
        Some(share.map_or(otherwise, |share| share.max(0) as usize))
    };
    let surge = share(rolling.and_then(|it| it.max_surge.as_ref()), 0).unwrap_or(0);
    let missing = share(rolling.and_then(|it| it.max_unavailable.as_ref()), 1).unwrap_or(1);
    // With neither it could never move.
    if surge == 0 && missing == 0 { (0, 1) } else { (surge, missing) }
}

pub fn roll(view: &View<'_>, plan: &mut Plan) {
    let strategy = view.set.spec.update_strategy.as_ref();
    if strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete")) {
        return;
    }
    let (surge, missing) = limits(view);
    match surge {
        0 => replace(view, missing, plan),
        _ => add(view, surge, plan),
    }
}

/// The newest of each kind on a node that is not on its way out.
fn old_and_new<'p>(
    view: &View<'_>,
    pods: &'p [Arc<Pod>],
) -> (Option<&'p Arc<Pod>>, Option<&'p Arc<Pod>>) {
    let mut here = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let old = here.clone().find(|pod| !view.is_updated(pod));
    (old, here.find(|pod| view.is_updated(pod)))
}

/// Old ones go; [`super::manage`] makes the new ones in their place.
fn replace(view: &View<'_>, most: usize, plan: &mut Plan) {
    let mut unavailable = 0;
    let (mut broken, mut candidates) = (Vec::new(), Vec::new());
    for pods in view.by_node.values() {
        match old_and_new(view, pods) {
            (None, None) | (Some(_), Some(_)) => unavailable += 1,
            (None, Some(new)) => unavailable += usize::from(!view.is_available(new)),
            // Nobody has any use of it.
            (Some(old), None) if !view.is_available(old) => {
                broken.push(old.clone());
                unavailable += 1;
            }
            (Some(old), None) => candidates.push(old.clone()),
        }
    }
    candidates.truncate(most.saturating_sub(unavailable));
    plan.delete.extend(broken.into_iter().chain(candidates));
}

/// New ones come beside the old, which [`super::tidy`] takes away when they are available.
fn add(view: &View<'_>, most: usize, plan: &mut Plan) {
    let mut surging = 0;
    let (mut broken, mut candidates) = (Vec::new(), Vec::new());
    for (node, pods) in &view.by_node {
        match old_and_new(view, pods) {
            (Some(_), Some(new)) => surging += usize::from(!view.is_available(new)),
            (Some(old), None) if !view.is_available(old) => broken.push(node.clone()),
            (Some(_), None) => candidates.push(node.clone()),
            (None, _) => {}
        }
    }
    candidates.truncate(most.saturating_sub(surging));
    let fits = |name: &String| {
        let mut nodes = view.nodes.iter();
        let found = nodes.find(|node| node.metadata.name.as_ref() == Some(name));
        found.is_some_and(|node| nodes::fit(view.set, node).should_run)
    };
    plan.create.extend(broken.into_iter().chain(candidates).filter(fits));
}
