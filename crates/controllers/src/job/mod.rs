//! Pods that are to end: so many of them well, and not too many badly.
//!
//! A pod that has ended is counted once, though controllers come and go: its uid is written into
//! the status first, then its finalizer is taken off, then the number goes up. Each is a turn.
mod count;
mod index;
#[cfg(test)]
mod tests;

use crate::action::{Action, Target};
use crate::claim::{Claimed, claim};
use crate::driver::{Controller, Watching, is_a};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use api::owner;
use api::selector::label::Selector;
use client::events::{Happening, reference};
use client::source::Patch;
use count::Count;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub const CONTROLLER: Controller =
    Controller { name: "job-controller", account: "job-controller", workers: 5, watch, reconcile };

pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The pause after a first failure, which doubles with each, and the longest: upstream's.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(600);
const BURST: usize = 500;

/// Why a job ends: the condition that says so at once, the one that says so when its last pod is
/// gone, the reason and the message.
struct End(&'static str, &'static str, &'static str, &'static str);

const REACHED: End = End(
    "SuccessCriteriaMet",
    "Complete",
    "CompletionsReached",
    "Reached expected number of succeeded pods",
);
const TOO_MANY_FAILED: End = End(
    "FailureTarget",
    "Failed",
    "BackoffLimitExceeded",
    "Job has reached the specified backoff limit",
);
const TOO_LATE: End = End(
    "FailureTarget",
    "Failed",
    "DeadlineExceeded",
    "Job was active longer than specified deadline",
);

fn watch(on: &Watching) {
    on.objects::<Job>();
    on.owned::<Pod, Job>(selector);
}

fn selector(job: &Job) -> Selector {
    let selector = job.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    Selector::from_label_selector(selector).unwrap_or_else(|_| Selector::nothing())
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(job) = world.get::<Job>(key) else { return release_orphans(key, world) };
    let Some(spec) = &job.spec else { return Vec::new() };
    if spec.managed_by.as_deref().is_some_and(|by| by != "kubernetes.io/job-controller") {
        return Vec::new();
    }
    let Claimed { objects, mut actions } = claim(&*job, &selector(&job), world, |_| true);
    if job.metadata.deletion_timestamp.is_some() || is_finished(&job) {
        // Nobody counts any more: no pod may be kept for it.
        actions.extend(objects.iter().filter(|pod| is_tracked(pod)).map(|pod| release(pod)));
        return actions;
    }
    let mut turn = Turn { old: &job, spec, job: (*job).clone(), now, actions };
    let count = Count::of(&job, spec, &objects);
    turn.note_suspension();
    let end = turn.end(&count);
    match &end {
        Some(_) => turn.delete(&count.active),
        None if spec.suspend == Some(true) => turn.delete(&count.active),
        None => turn.fill(&count),
    }
    turn.finish(&count, end);
    turn.actions
}

pub fn is_finished(job: &Job) -> bool {
    has(job, "Complete") || has(job, "Failed")
}

pub fn has(job: &Job, type_: &str) -> bool {
    let mut conditions = job.status.iter().flat_map(|it| it.conditions.iter().flatten());
    conditions.any(|it| it.type_ == type_ && it.status == "True")
}

pub fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING)
}

fn release(pod: &Pod) -> Action {
    let patch = json!({ "metadata": { "uid": pod.metadata.uid,
        "$deleteFromPrimitiveList/finalizers": [TRACKING] } });
    Action::Patch { object: Target::of(pod), part: "", patch: Patch::Strategic(patch) }
}

/// Pods whose job is gone are kept for nobody (`syncOrphanPod` in upstream's job_controller.go).
fn release_orphans(job: &NamespacedName, world: &World) -> Vec<Action> {
    let is_of_job = |pod: &Pod| {
        let owner = owner::controller_of(pod.metadata.owner_references.as_deref());
        owner.is_some_and(|it| is_a::<Job>(&it.api_version, &it.kind) && *it.name == *job.name)
    };
    let pods = world.in_namespace::<Pod>(&job.namespace);
    pods.iter().filter(|pod| is_tracked(pod) && is_of_job(pod)).map(|pod| release(pod)).collect()
}

struct Turn<'a> {
    old: &'a Job,
    spec: &'a JobSpec,
    /// As it is going to be.
    job: Job,
    now: Timestamp,
    actions: Vec<Action>,
}

impl Turn<'_> {
    fn set(&mut self, type_: &str, status: &str, reason: &str, message: &str) -> bool {
        let conditions = self.job.status.get_or_insert_default().conditions.get_or_insert_default();
        if conditions.iter().any(|it| it.type_ == type_ && it.status == status) {
            return false;
        }
        conditions.retain(|it| it.type_ != type_);
        conditions.push(JobCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_probe_time: Some(Time(self.now)),
            last_transition_time: Some(Time(self.now)),
        });
        true
    }

    fn tell(&mut self, is_warning: bool, reason: &str, note: &str) {
        let normal = Happening::normal(reference(self.old), reason, note);
        self.actions.push(Action::Record(Happening { is_warning, ..normal }));
    }

    /// A job that is suspended begins anew when it goes on.
    fn note_suspension(&mut self) {
        let is_suspended = self.spec.suspend == Some(true);
        if is_suspended && self.set("Suspended", "True", "JobSuspended", "Job suspended") {
            self.job.status.get_or_insert_default().start_time = None;
            self.tell(false, "Suspended", "Job suspended");
        } else if !is_suspended && has(self.old, "Suspended") {
            self.set("Suspended", "False", "JobResumed", "Job resumed");
            self.tell(false, "Resumed", "Job resumed");
        }
        let status = self.job.status.get_or_insert_default();
        if !is_suspended && status.start_time.is_none() {
            status.start_time = Some(Time(self.now));
        }
    }

    fn end(&mut self, count: &Count) -> Option<End> {
        let said = |reason: &str| {
            let conditions = self.old.status.iter().flat_map(|it| it.conditions.iter().flatten());
            conditions
                .filter(|it| it.status == "True")
                .any(|it| it.reason.as_deref() == Some(reason))
        };
        for end in [TOO_MANY_FAILED, TOO_LATE, REACHED] {
            if said(end.2) {
                return Some(end);
            }
        }
        if count.failed > self.spec.backoff_limit.unwrap_or(6) {
            return Some(TOO_MANY_FAILED);
        }
        let started = self.job.status.as_ref().and_then(|status| status.start_time.clone());
        if let (Some(started), Some(seconds)) = (started, self.spec.active_deadline_seconds) {
            let due = started.0 + SignedDuration::from_secs(seconds.clamp(0, 1 << 31));
            if due <= self.now {
                return Some(TOO_LATE);
            }
            self.again(due);
        }
        let is_reached = match self.spec.completions {
            Some(wanted) => count.succeeded >= wanted,
            None => count.succeeded > 0 && count.active.is_empty(),
        };
        is_reached.then_some(REACHED)
    }

    fn again(&mut self, at: Timestamp) {
        let wait: Duration = at.duration_since(self.now).try_into().unwrap_or_default();
        self.actions.push(Action::Again(wait));
    }

    fn delete(&mut self, pods: &[Arc<Pod>]) {
        let owner = reference(self.old);
        let actions: Vec<_> =
            pods.iter().map(|pod| Action::delete_for(owner.clone(), &**pod)).collect();
        if !actions.is_empty() {
            self.actions.push(Action::Several { actions, otherwise: None });
        }
    }

    /// As many active pods as there may be, and no more than are still needed.
    fn fill(&mut self, count: &Count) {
        let parallelism = self.spec.parallelism.unwrap_or(1).max(0);
        let wanted = match self.spec.completions {
            Some(completions) => parallelism.min((completions - count.succeeded).max(0)),
            // One has found that the work is done: no more begin.
            None if count.succeeded > 0 => parallelism.min(count.active.len() as i32),
            None => parallelism,
        };
        let wanted = wanted as usize;
        let active = count.active.len();
        if active > wanted {
            return self.delete(&count.active[wanted..]);
        }
        let missing = (wanted - active).min(BURST);
        if let Some(at) = count.pause_ends().filter(|at| missing > 0 && *at > self.now) {
            return self.again(at);
        }
        let is_indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        let indexes = index::free(count, self.spec).map(Some);
        let owner = reference(self.old);
        let new = |index: Option<i32>| {
            let mut pod = pods::from_template(&self.spec.template, self.old);
            pod.metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
            if let (Some(index), Some(name)) = (index, &self.old.metadata.name) {
                index::put(&mut pod, name, index);
            }
            Action::create_for(owner.clone(), &pod)
        };
        let actions: Vec<_> = match is_indexed {
            true => indexes.take(missing).map(new).collect(),
            false => std::iter::repeat_n(None, missing).map(new).collect(),
        };
        if !actions.is_empty() {
            self.actions.push(Action::Several { actions, otherwise: None });
        }
    }

    fn finish(&mut self, count: &Count, end: Option<End>) {
        let is_indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        count.write(self.job.status.get_or_insert_default(), is_indexed);
        if let Some(End(at_once, at_last, reason, message)) = end {
            self.set(at_once, "True", reason, message);
            let is_success = at_last == "Complete";
            if count.is_settled() && self.set(at_last, "True", reason, message) {
                match is_success {
                    true => self.tell(false, "Completed", "Job completed"),
                    false => self.tell(true, reason, message),
                }
                let status = self.job.status.get_or_insert_default();
                status.completion_time = is_success.then_some(Time(self.now));
            }
        }
        if self.job.status != self.old.status {
            self.actions.push(Action::update_part("status", &self.job));
        }
        // Written down in an earlier turn, so they need not be kept for it.
        self.actions.extend(count.written.iter().map(|pod| release(pod)));
    }
}
