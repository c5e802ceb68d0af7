//! What a set says of its pods.
use super::Replicated;
use crate::action::{Action, Otherwise, tree};
use crate::pods;
use api::selector::label::Selector;
use api::status::Status;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;

const REPLICA_FAILURE: &str = "ReplicaFailure";

#[derive(Clone)]
pub struct Seen {
    /// Those that are active.
    pub pods: Vec<Arc<Pod>>,
    pub terminating: usize,
}

pub fn min_ready_seconds(set: &ReplicaSet) -> i32 {
    set.spec.min_ready_seconds.unwrap_or_default()
}

/// The status, if it has to be written.
pub fn change<T: Replicated>(
    owner: &T,
    seen: &Seen,
    failure: Option<&Status>,
    now: Timestamp,
) -> Option<Action> {
    let set = owner.as_set();
    let old = set.status.clone().unwrap_or_default();
    let new = count(&set, &old, seen, failure, now);
    let (is, will_be) = (owner.with_status(old), owner.with_status(new));
    // Compared as its own kind, which may have fewer fields.
    (tree(&is) != tree(&will_be)).then(|| Action::update_part("status", &will_be))
}

/// A set that could not make or delete its pods says why.
pub fn when_failed<T: Replicated>(owner: Arc<T>, seen: Seen, now: Timestamp) -> Otherwise {
    Box::new(move |failure| change(&*owner, &seen, Some(failure), now).into_iter().collect())
}

fn count(
    set: &ReplicaSet,
    old: &ReplicaSetStatus,
    seen: &Seen,
    failure: Option<&Status>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let Seen { pods, terminating } = seen;
    let template = set.spec.template.as_ref();
    let labels = template.and_then(|template| template.metadata.as_ref()?.labels.as_ref());
    let labels = labels.map_or_else(Selector::everything, Selector::from_set);
    let min_ready = min_ready_seconds(set);
    let number =
        |which: &dyn Fn(&Pod) -> bool| Some(pods.iter().filter(|pod| which(pod)).count() as i32);
    ReplicaSetStatus {
        replicas: pods.len() as i32,
        fully_labeled_replicas: number(&|pod| labels.matches(&pod.metadata.labels)),
        ready_replicas: number(&pods::is_ready),
        available_replicas: number(&|pod| pods::is_available(pod, min_ready, now)),
        terminating_replicas: Some(*terminating as i32),
        observed_generation: set.metadata.generation,
        conditions: conditions(set, old, pods.len(), failure, now),
    }
    .with_zeros_left_out()
}

trait LeaveOut {
    fn with_zeros_left_out(self) -> Self;
}

/// A count of nothing is not written, but for the pods that are terminating.
impl LeaveOut for ReplicaSetStatus {
    fn with_zeros_left_out(self) -> ReplicaSetStatus {
        let some = |count: Option<i32>| count.filter(|count| *count != 0);
        ReplicaSetStatus {
            fully_labeled_replicas: some(self.fully_labeled_replicas),
            ready_replicas: some(self.ready_replicas),
            available_replicas: some(self.available_replicas),
            ..self
        }
    }
}

fn conditions(
    set: &ReplicaSet,
    old: &ReplicaSetStatus,
    pods: usize,
    failure: Option<&Status>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = old.conditions.clone().unwrap_or_default();
    let is_failure = |condition: &ReplicaSetCondition| condition_type(condition) == REPLICA_FAILURE;
    match failure {
        None => conditions.retain(|condition| !is_failure(condition)),
        // What was said first stays until it is over.
        Some(_) if conditions.iter().any(is_failure) => {}
        Some(failure) => {
            let is_too_few = (pods as i32) < super::replicas(set);
            let reason = if is_too_few { "FailedCreate" } else { "FailedDelete" };
            conditions.push(ReplicaSetCondition {
                type_: REPLICA_FAILURE.to_owned().into(),
                status: "True".to_owned().into(),
                reason: Some(reason.to_owned()),
                message: Some(failure.message.clone()),
                last_transition_time: Some(Time(now)),
            });
        }
    }
    (!conditions.is_empty()).then_some(conditions)
}

fn condition_type(condition: &ReplicaSetCondition) -> &str {
    condition.type_.as_deref().unwrap_or_default()
}
