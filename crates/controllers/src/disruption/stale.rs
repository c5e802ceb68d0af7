//! A pod that was said to be disrupted, and is still there: it was not.
use crate::action::Action;
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

const TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// Since when it is about to go, if nobody takes it away.
pub fn since(pod: &Pod) -> Option<Timestamp> {
    let condition = pods::condition(pod, "DisruptionTarget")?;
    let by_kubelet = condition.reason.as_deref() == Some("TerminationByKubelet");
    if condition.status != "True" || by_kubelet || !pods::is_active(pod) {
        return None;
    }
    condition.last_transition_time.as_ref().map(|at| at.0)
}

pub fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(pod) = world.get::<Pod>(key) else { return Vec::new() };
    let Some(since) = since(&pod) else { return Vec::new() };
    let left: Duration = (since + TIMEOUT).duration_since(now).try_into().unwrap_or_default();
    if !left.is_zero() {
        return vec![Action::Again(left)];
    }
    let mut new = (*pod).clone();
    let conditions = new.status.get_or_insert_default().conditions.get_or_insert_default();
    for condition in conditions.iter_mut().filter(|one| one.type_ == "DisruptionTarget") {
        condition.status = "False".to_owned();
        condition.reason = None;
        condition.message = None;
        condition.last_transition_time = Some(Time(now));
    }
    vec![Action::update_part("status", &new)]
}
