//! Pods that are to end: so many of them well, and not too many badly.
//!
//! A pod that has ended is counted once, though controllers come and go: its uid is written into
//! the status first, then its finalizer is taken off, then the number goes up. Each is a turn.
mod count;
mod index;
mod policy;
#[cfg(test)]
mod tests;

use crate::action::{Action, Target};
use crate::claim::{Claimed, claim_with};
use crate::driver::{Controller, Watching, adopters, is_a};
use crate::pods;
use crate::replicaset::youngest_first;
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
use policy::Failure;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub const CONTROLLER: Controller =
    Controller { name: "job-controller", account: "job-controller", workers: 5, watch, reconcile };

pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The pause after a first failure, which doubles with each, and the longest: upstream's.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(600);
const BURST: usize = 500;

/// Why a job ends. It says so at once, and again when its last pod is gone.
struct End {
    is_success: bool,
    reason: String,
    message: String,
}

impl End {
    fn new(is_success: bool, reason: &str, message: &str) -> End {
        End { is_success, reason: reason.to_owned(), message: message.to_owned() }
    }

    fn failure(reason: &str, message: &str) -> Option<End> {
        Some(End::new(false, reason, message))
    }

    /// What the job has said before stays.
    fn said(job: &Job) -> Option<End> {
        let conditions = job.status.as_ref()?.conditions.as_ref()?;
        let mut said = conditions.iter().filter(|it| it.status == "True");
        let said = said.find(|it| matches!(&*it.type_, "SuccessCriteriaMet" | "FailureTarget"))?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let is_success = said.type_ == "SuccessCriteriaMet";
        Some(End { is_success, reason: text(&said.reason), message: text(&said.message) })
    }
}

fn watch(on: &Watching) {
    on.objects::<Job>();
    on.owned::<Pod, Job>(selector);
    // One that is nobody's, and that nobody would have, wakes the key of no job.
    on.each::<Pod>(|world, change| {
        let is_kept = |pod: &Arc<Pod>| is_tracked(pod) && is_nobodys(pod, world);
        let kept = change.new.as_ref().is_some_and(is_kept);
        kept.then(|| NamespacedName::new(&change.key.namespace, "")).into_iter().collect()
    });
}

/// Whether no job has it or would adopt it.
fn is_nobodys(pod: &Pod, world: &World) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    owner::controller_of(pod.metadata.owner_references.as_deref()).is_none()
        && adopters::<Pod, Job>(world, pod, namespace, selector).is_empty()
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
    let Claimed { objects, mut actions } =
        claim_with(&*job, &selector(&job), world, |_| true, Some(TRACKING));
    if job.metadata.deletion_timestamp.is_some() || is_finished(&job) {
        // Nobody counts any more: no pod may be kept for it.
        let tracked = objects.iter().filter(|pod| is_tracked(pod));
        actions.extend(Action::at_once(tracked.map(|pod| release(pod))));
        return actions;
    }
    let mut turn = Turn { old: &job, spec, job: (*job).clone(), now, actions };
    let count = Count::of(&job, spec, &objects);
    turn.note_suspension();
    let end = turn.end(&count, &objects);
    match &end {
        // These count as failed.
        Some(_) => turn.delete(&count.active),
        None if spec.suspend == Some(true) => turn.discard(&count.active),
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

fn restarts_of(pod: &Pod) -> i32 {
    let status = pod.status.as_ref();
    let lists = status.map(|it| [&it.container_statuses, &it.init_container_statuses]);
    lists.into_iter().flatten().flatten().flatten().map(|it| it.restart_count).sum()
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
        match owner {
            Some(it) => is_a::<Job>(&it.api_version, &it.kind) && *it.name == *job.name,
            None => job.name.is_empty() && is_nobodys(pod, world),
        }
    };
    let pods = world.in_namespace::<Pod>(&job.namespace);
    let tracked = pods.iter().filter(|pod| is_tracked(pod) && is_of_job(pod));
    Action::at_once(tracked.map(|pod| release(pod))).into_iter().collect()
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

    fn end(&mut self, count: &Count, pods: &[Arc<Pod>]) -> Option<End> {
        End::said(self.old)
            .or_else(|| self.failed_by_policy(pods))
            .or_else(|| self.failed_too_often(count, pods))
            .or_else(|| self.too_late())
            .or_else(|| self.failed_indexes(count))
            .or_else(|| {
                let message = policy::success(self.spec, &count.completed)?;
                Some(End::new(true, "SuccessPolicy", &message))
            })
            .or_else(|| self.reached(count))
    }

    fn failed_by_policy(&self, pods: &[Arc<Pod>]) -> Option<End> {
        let mut failed = pods.iter().filter(|pod| policy::has_failed(self.spec, pod));
        failed.find_map(|pod| match policy::failure(self.spec, pod) {
            Failure::FailsJob(message) => End::failure("PodFailurePolicy", &message),
            _ => None,
        })
    }

    fn failed_too_often(&self, count: &Count, pods: &[Arc<Pod>]) -> Option<End> {
        let limit = match self.spec.backoff_limit_per_index {
            Some(_) => self.spec.backoff_limit.unwrap_or(i32::MAX),
            None => self.spec.backoff_limit.unwrap_or(6),
        };
        // Where containers are started again in their pod, that counts.
        let template = self.spec.template.spec.as_ref();
        let restarts =
            template.and_then(|spec| spec.restart_policy.as_deref()) == Some("OnFailure");
        let running = pods.iter().filter(|pod| matches!(pods::phase(pod), "Running" | "Pending"));
        let restarts: i32 = running.filter(|_| restarts).map(|pod| restarts_of(pod)).sum();
        let is_too_often = count.failed > limit || (restarts > 0 && restarts >= limit);
        is_too_often.then(|| {
            End::new(false, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        })
    }

    fn too_late(&mut self) -> Option<End> {
        let started = self.job.status.as_ref().and_then(|status| status.start_time.clone())?;
        let seconds = self.spec.active_deadline_seconds?;
        let due = started.0 + SignedDuration::from_secs(seconds.clamp(0, 1 << 31));
        if due <= self.now {
            let message = "Job was active longer than specified deadline";
            return End::failure("DeadlineExceeded", message);
        }
        self.again(due);
        None
    }

    fn failed_indexes(&self, count: &Count) -> Option<End> {
        let failed = count.failed_indexes.len();
        if self.spec.max_failed_indexes.is_some_and(|most| failed as i32 > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return End::failure("MaxFailedIndexesExceeded", message);
        }
        let over = (failed + count.completed.len()) as i32;
        let is_over = failed > 0 && over >= self.spec.completions.unwrap_or_default();
        is_over.then(|| End::new(false, "FailedIndexes", "Job has failed indexes"))
    }

    fn reached(&self, count: &Count) -> Option<End> {
        let is_reached = match self.spec.completions {
            Some(wanted) => count.succeeded >= wanted,
            None => count.succeeded > 0 && count.active.is_empty(),
        };
        let message = "Reached expected number of succeeded pods";
        is_reached.then(|| End::new(true, "CompletionsReached", message))
    }

    fn again(&mut self, at: Timestamp) {
        let wait: Duration = at.duration_since(self.now).try_into().unwrap_or_default();
        self.actions.push(Action::Again(wait));
    }

    fn delete(&mut self, pods: &[Arc<Pod>]) {
        let owner = reference(self.old);
        let deletions = pods.iter().map(|pod| Action::delete_for(owner.clone(), &**pod));
        self.actions.extend(Action::at_once(deletions));
    }

    /// They go and do not count: nobody waits for how they end.
    fn discard(&mut self, pods: &[Arc<Pod>]) {
        let owner = reference(self.old);
        let one = |pod: &Arc<Pod>| {
            let mut actions = Vec::new();
            if is_tracked(pod) {
                actions.push(release(pod));
            }
            actions.push(Action::delete_for(owner.clone(), &**pod));
            Action::Several { actions, otherwise: None }
        };
        self.actions.extend(Action::at_once(pods.iter().map(one)));
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
        let surplus = self.surplus(&count.active, active.saturating_sub(wanted));
        if !surplus.is_empty() {
            return self.discard(&surplus);
        }
        let leaving = match policy::replaces_failed_only(self.spec) {
            true => count.leaving.len(),
            false => 0,
        };
        let missing = wanted.saturating_sub(active + leaving).min(BURST);
        if missing == 0 {
            return;
        }
        let has_limits = self.spec.backoff_limit_per_index.is_some();
        if let Some(at) = count.pause_ends(self.now).filter(|_| !has_limits) {
            return self.again(at);
        }
        let is_indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        let mut indexes: Vec<_> = index::free(count, self.spec).take(missing).collect();
        let waits = |index: &i32| count.index_pause_ends(*index, self.now);
        let next = indexes.iter().filter_map(waits).min();
        indexes.retain(|index| waits(index).is_none());
        let owner = reference(self.old);
        let new = |index: Option<i32>| {
            let mut pod = pods::from_template(&self.spec.template, self.old);
            pod.metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
            if let (Some(index), Some(name)) = (index, &self.old.metadata.name) {
                index::put(&mut pod, name, index);
                if has_limits {
                    let before = count.replaced.get(&index).map(|pod| &**pod);
                    index::put_failures(&mut pod, before, self.spec);
                }
            }
            Action::create_for(owner.clone(), &pod)
        };
        let actions: Vec<_> = match is_indexed {
            true => indexes.into_iter().map(Some).map(new).collect(),
            false => std::iter::repeat_n(None, missing).map(new).collect(),
        };
        self.actions.extend(Action::at_once(actions));
        if let Some(at) = next {
            self.again(at);
        }
    }

    /// Pods of which there are too many: those whose index another has, or nobody wants, and of the others as
    /// many as it takes (`activePodsForRemoval` in upstream's job_controller.go).
    fn surplus(&self, active: &[Arc<Pod>], at_least: usize) -> Vec<Arc<Pod>> {
        let worst_first = youngest_first(active);
        let mut left = Vec::new();
        let mut surplus = Vec::new();
        if self.spec.completion_mode.as_deref() == Some("Indexed") {
            let completions = self.spec.completions.unwrap_or_default();
            let mut indexes = BTreeSet::new();
            // The best of each index stays.
            for pod in worst_first.iter().rev() {
                match index::of(pod) {
                    Some(index) if index < completions && indexes.insert(index) => left.push(pod),
                    _ => surplus.push(pod.clone()),
                }
            }
            left.reverse();
        } else {
            left.extend(&worst_first);
        }
        let missing = at_least.saturating_sub(surplus.len());
        surplus.extend(left.into_iter().take(missing).cloned());
        surplus
    }

    fn finish(&mut self, count: &Count, end: Option<End>) {
        count.write(self.job.status.get_or_insert_default(), self.spec);
        if let Some(End { is_success, reason, message }) = end {
            let (at_once, at_last) = match is_success {
                true => ("SuccessCriteriaMet", "Complete"),
                false => ("FailureTarget", "Failed"),
            };
            self.set(at_once, "True", &reason, &message);
            if count.is_settled() && self.set(at_last, "True", &reason, &message) {
                match is_success {
                    true => self.tell(false, "Completed", "Job completed"),
                    false => self.tell(true, &reason, &message),
                }
                let status = self.job.status.get_or_insert_default();
                status.completion_time = is_success.then_some(Time(self.now));
            }
        }
        if self.job.status != self.old.status {
            self.actions.push(Action::update_part("status", &self.job));
        }
        // Written down in an earlier turn, so they need not be kept for it.
        self.actions.extend(Action::at_once(count.written.iter().map(|pod| release(pod))));
    }
}
