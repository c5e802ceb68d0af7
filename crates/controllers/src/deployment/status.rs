//! What a deployment says of itself.
use super::rollout::{REVISION, Rollout, annotation, replicas};
use super::template;
use crate::action::{Action, Target};
use api::status::Status;
use client::events::{Happening, reference};
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

impl Rollout<'_> {
    /// The numbers, and whether enough pods are available.
    pub fn count(&mut self) {
        let sum = |of: fn(&ReplicaSetStatus) -> i32| -> i32 {
            self.sets().filter_map(|set| set.status.as_ref()).map(of).sum()
        };
        let some = |count: i32| (count != 0).then_some(count);
        let available = sum(|status| status.available_replicas.unwrap_or_default());
        let total: i32 = self.sets().map(replicas).sum();
        let updated = self.new.as_ref().and_then(|set| set.status.as_ref());
        let terminating: Option<Vec<i32>> =
            self.sets().map(|set| set.status.as_ref()?.terminating_replicas).collect();
        let counted = DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: some(sum(|status| status.replicas)),
            updated_replicas: some(updated.map_or(0, |status| status.replicas)),
            ready_replicas: some(sum(|status| status.ready_replicas.unwrap_or_default())),
            available_replicas: some(available),
            unavailable_replicas: some((total - available).max(0)),
            terminating_replicas: terminating.map(|all| all.iter().sum()),
            collision_count: self.status.collision_count,
            conditions: self.status.conditions.take(),
        };
        self.status = counted;
        let is_enough = available >= self.wanted() - self.max_unavailable();
        let (status, reason, message) = match is_enough {
            true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
            false => (
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            ),
        };
        self.set(AVAILABLE, status, reason, message.to_owned());
    }

    /// Time that passes while a deployment is paused is not held against it.
    pub fn note_pause(&mut self) {
        let reason = self.condition(PROGRESSING).and_then(|it| it.reason.as_deref());
        if !has_deadline(self.deployment) || reason == Some(TIMED_OUT) {
            return;
        }
        match (self.is_paused(), reason == Some(PAUSED)) {
            (true, false) => {
                self.set(PROGRESSING, "Unknown", PAUSED, "Deployment is paused".into())
            }
            (false, true) => {
                let message = "Deployment is resumed".to_owned();
                self.set(PROGRESSING, "Unknown", "DeploymentResumed", message);
            }
            _ => {}
        }
    }

    /// Whether the rollout goes on, is done, or hangs.
    pub fn judge_progress(&mut self) {
        let last = self.last_status();
        let current = self.condition(PROGRESSING).cloned();
        let reason = current.as_ref().and_then(|it| it.reason.as_deref()).unwrap_or_default();
        let was_complete =
            self.status.replicas == self.status.updated_replicas && reason == COMPLETE;
        let what = match self.new.as_ref().and_then(|set| set.metadata.name.as_deref()) {
            Some(name) => format!("ReplicaSet {name:?}"),
            None => {
                format!("Deployment {:?}", self.deployment.metadata.name.as_deref().unwrap_or(""))
            }
        };
        if !has_deadline(self.deployment) {
            self.remove(PROGRESSING);
        } else if !was_complete {
            if is_complete(self.deployment, &self.status) {
                let message = format!("{what} has successfully progressed.");
                self.set(PROGRESSING, "True", COMPLETE, message);
            } else if has_progressed(&last, &self.status) {
                // Said again with each step: the time of the last one counts.
                self.remove(PROGRESSING);
                self.set(
                    PROGRESSING,
                    "True",
                    "ReplicaSetUpdated",
                    format!("{what} is progressing."),
                );
                let since = current.filter(|it| it.status.as_deref() == Some("True"));
                if let (Some(since), Some(new)) = (since, self.condition_mut(PROGRESSING)) {
                    new.last_transition_time = since.last_transition_time;
                }
            } else if reason == TIMED_OUT
                || (reason != COMPLETE && self.deadline_in() == Some(Duration::ZERO))
            {
                let message = format!("{what} has timed out progressing.");
                self.set(PROGRESSING, "False", TIMED_OUT, message);
            }
        }
        self.pass_failures_on();
        let reason = self.condition(PROGRESSING).and_then(|it| it.reason.clone());
        if !is_complete(self.deployment, &self.status) && reason.as_deref() != Some(TIMED_OUT) {
            self.again = self.deadline_in().map(|wait| wait + Duration::from_secs(1));
        }
    }

    /// How long until no progress is too long.
    fn deadline_in(&self) -> Option<Duration> {
        let deadline = self.deployment.spec.progress_deadline_seconds?;
        let said = self.condition(PROGRESSING)?.last_update_time.as_ref()?.0;
        let due = said + jiff::SignedDuration::from_secs(deadline.into());
        has_deadline(self.deployment)
            .then(|| due.duration_since(self.now).try_into().unwrap_or(Duration::ZERO))
    }

    /// A set that cannot make its pods says so, and its deployment says it too.
    fn pass_failures_on(&mut self) {
        let failure = self.new.iter().chain(&self.old).find_map(|set| {
            let mut conditions = set.status.as_ref()?.conditions.iter().flatten();
            conditions.find(|it| it.type_.as_deref() == Some(REPLICA_FAILURE)).cloned()
        });
        match failure {
            None => self.remove(REPLICA_FAILURE),
            Some(failure) => {
                let status = failure.status.unwrap_or_default();
                let reason = failure.reason.unwrap_or_default();
                self.set(REPLICA_FAILURE, &status, &reason, failure.message.unwrap_or_default());
            }
        }
    }

    fn condition(&self, type_: &str) -> Option<&DeploymentCondition> {
        let mut conditions = self.status.conditions.iter().flatten();
        conditions.find(|condition| condition.type_.as_deref() == Some(type_))
    }

    fn condition_mut(&mut self, type_: &str) -> Option<&mut DeploymentCondition> {
        let mut conditions = self.status.conditions.iter_mut().flatten();
        conditions.find(|condition| condition.type_.as_deref() == Some(type_))
    }

    /// The same status for the same reason stays as it was said first.
    fn set(&mut self, type_: &str, status: &str, reason: &str, message: String) {
        let current = self.condition(type_).cloned();
        let is_same = |current: &DeploymentCondition| current.status.as_deref() == Some(status);
        let since = match &current {
            Some(current) if is_same(current) => {
                if current.reason.as_deref() == Some(reason) {
                    return;
                }
                current.last_transition_time.clone()
            }
            _ => Some(Time(self.now)),
        };
        self.remove(type_);
        self.status.conditions.get_or_insert_default().push(DeploymentCondition {
            type_: Some(type_.to_owned()),
            status: Some(status.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_update_time: Some(Time(self.now)),
            last_transition_time: since,
        });
    }

    fn remove(&mut self, type_: &str) {
        if let Some(conditions) = &mut self.status.conditions {
            conditions.retain(|condition| condition.type_.as_deref() != Some(type_));
        }
        self.status.conditions = self.status.conditions.take().filter(|all| !all.is_empty());
    }
}

fn has_deadline(deployment: &Deployment) -> bool {
    deployment.spec.progress_deadline_seconds.is_some_and(|seconds| seconds != i32::MAX)
}

pub fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let counts = [status.updated_replicas, status.replicas, status.available_replicas];
    counts.iter().all(|count| count.unwrap_or_default() == wanted)
        && status.observed_generation >= deployment.metadata.generation
}

fn has_progressed(last: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    let old_pods = |status: &DeploymentStatus| {
        status.replicas.unwrap_or_default() - status.updated_replicas.unwrap_or_default()
    };
    now.updated_replicas.unwrap_or_default() > last.updated_replicas.unwrap_or_default()
        || old_pods(now) < old_pods(last)
        || now.ready_replicas.unwrap_or_default() > last.ready_replicas.unwrap_or_default()
        || now.available_replicas.unwrap_or_default() > last.available_replicas.unwrap_or_default()
}

/// The set of the template is there already, which nobody has said yet.
pub fn found(rollout: &mut Rollout<'_>) {
    let name = rollout.new.as_ref().and_then(|set| set.metadata.name.clone()).unwrap_or_default();
    if has_deadline(rollout.deployment) && rollout.condition(PROGRESSING).is_none() {
        let message = format!("Found new replica set {name:?}");
        rollout.set(PROGRESSING, "True", "FoundNewReplicaSet", message);
    }
}

pub fn created(rollout: &mut Rollout<'_>) {
    let name = rollout.new.as_ref().and_then(|set| set.metadata.name.clone()).unwrap_or_default();
    if has_deadline(rollout.deployment) {
        let message = format!("Created new replica set {name:?}");
        rollout.set(PROGRESSING, "True", "NewReplicaSetCreated", message);
    }
}

/// Creates the set. Its name may be taken by a set of another template with the same hash, which
/// is counted, so that the next hash is another.
pub fn creation(rollout: &Rollout<'_>, set: &ReplicaSet) -> Action {
    let deployment = rollout.deployment.clone();
    let (target, now) = (Target::of(set), rollout.now);
    let otherwise = move |failure: &Status| {
        if failure.is_already_exists() {
            return vec![look_for_collision(deployment, target)];
        }
        let note =
            format!("Failed to create new replica set {:?}: {}", target.name, failure.message);
        let mut rollout = Rollout::new(&deployment, &[], now);
        if has_deadline(&deployment) {
            rollout.set(PROGRESSING, "False", "ReplicaSetCreateError", note.clone());
        }
        let happening = Happening::warning(reference(&deployment), "ReplicaSetCreateError", note);
        change(&rollout).into_iter().chain([Action::Record(happening)]).collect()
    };
    let create = Action::create(set);
    Action::Several { actions: vec![create], otherwise: Some(Box::new(otherwise)) }
}

fn look_for_collision(deployment: Deployment, target: Target) -> Action {
    let then = move |found: Option<std::sync::Arc<client::Object>>| {
        let set = found.and_then(|found| found.typed::<ReplicaSet>().ok());
        let is_own = set.is_some_and(|set| {
            let owners = set.metadata.owner_references.as_deref();
            let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
            let own = set.spec.template.as_ref();
            api::owner::is_controlled_by(owners, uid)
                && own.is_some_and(|own| template::is_same(own, &deployment.spec.template))
        });
        if is_own {
            return Vec::new();
        }
        let mut counted = deployment;
        let status = counted.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
        vec![Action::update_part("status", &counted)]
    };
    Action::Look { object: target, then: Box::new(then) }
}

/// Status and revision, if one of them is new.
pub fn change(rollout: &Rollout<'_>) -> Option<Action> {
    let mut deployment = rollout.deployment.clone();
    deployment.status = Some(rollout.status.clone());
    let revision = rollout.new.as_ref().and_then(|set| annotation::<i64>(set, REVISION));
    if let Some(revision) = revision {
        let annotations = deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(REVISION.to_owned(), revision.to_string());
    }
    let is_new = deployment.metadata.annotations != rollout.deployment.metadata.annotations
        || rollout.status != rollout.last_status();
    is_new.then(|| Action::update_part("status", &deployment))
}
