//! Jobs on a schedule.
//!
//! The name of a job is that of its CronJob and the minute it was due: whoever makes it twice
//! makes it once. A job joins the list of active ones when it is seen.
mod due;
mod schedule;
#[cfg(test)]
mod tests;

use crate::action::{Action, Target};
use crate::driver::{Controller, Watching, is_a};
use crate::job::{has, is_finished};
use crate::pods::controller_ref;
use crate::world::World;
use api::names::NamespacedName;
use api::owner;
use api::rules::cron;
use client::events::{Happening, reference};
use client::source::{Delete, Propagation};
use due::Plan;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use std::sync::Arc;

pub const CONTROLLER: Controller = Controller {
    name: "cronjob-controller",
    account: "cronjob-controller",
    workers: 5,
    watch,
    reconcile,
};

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

fn watch(on: &Watching) {
    on.objects::<CronJob>();
    on.each::<Job>(|_, change| {
        let jobs = change.old.iter().chain(&change.new);
        let owners = jobs.filter_map(|job| {
            let owner = owner::controller_of(job.metadata.owner_references.as_deref())?;
            is_a::<CronJob>(&owner.api_version, &owner.kind).then_some(&owner.name)
        });
        let mut keys: Vec<_> =
            owners.map(|name| NamespacedName::new(&change.key.namespace, name)).collect();
        keys.dedup();
        keys
    });
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(cron_job) = world.get::<CronJob>(key) else { return Vec::new() };
    let mut jobs = world.controlled::<Job>(cron_job.metadata.uid.as_deref().unwrap_or_default());
    jobs.sort_by_key(|job| job.metadata.name.clone());
    let mut turn = Turn {
        cron_job: &cron_job,
        status: cron_job.status.clone().unwrap_or_default(),
        jobs,
        now,
        actions: Vec::new(),
    };
    turn.note_jobs();
    if cron_job.metadata.deletion_timestamp.is_none() {
        turn.start_what_is_due();
        turn.forget_the_oldest();
    }
    turn.finish()
}

fn name_of(job: &Job) -> &str {
    job.metadata.name.as_deref().unwrap_or_default()
}

struct Turn<'a> {
    cron_job: &'a CronJob,
    /// As it is going to be.
    status: CronJobStatus,
    jobs: Vec<Arc<Job>>,
    now: Timestamp,
    actions: Vec<Action>,
}

impl Turn<'_> {
    fn tell(&mut self, is_warning: bool, reason: &str, note: &str) {
        let normal = Happening::normal(reference(self.cron_job), reason, note);
        self.actions.push(Action::Record(Happening { is_warning, ..normal }));
    }

    fn forget(&mut self, uid: Option<&str>) {
        self.status.active.get_or_insert_default().retain(|job| job.uid.as_deref() != uid);
    }

    /// Which jobs run, which have ended, which are gone.
    fn note_jobs(&mut self) {
        for job in self.jobs.clone() {
            let uid = job.metadata.uid.as_deref();
            let is_listed = self.status.active.iter().flatten().any(|it| it.uid.as_deref() == uid);
            if !is_finished(&job) {
                match is_listed || job.metadata.deletion_timestamp.is_some() {
                    true => {}
                    false if self.is_scheduled(&job) => {
                        self.status.active.get_or_insert_default().push(reference(&*job));
                    }
                    false => {
                        let note = format!(
                            "Saw a job that the controller did not create or forgot: {}",
                            name_of(&job)
                        );
                        self.tell(true, "UnexpectedJob", &note);
                    }
                }
                continue;
            }
            if is_listed {
                self.forget(uid);
                let condition = if has(&job, "Complete") { "Complete" } else { "Failed" };
                let note = format!("Saw completed job: {}, condition: {condition}", name_of(&job));
                self.tell(false, "SawCompletedJob", &note);
            }
            let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
            if has(&job, "Complete") && completed > self.status.last_successful_time {
                self.status.last_successful_time = completed;
            }
        }
        for listed in self.status.active.clone().unwrap_or_default() {
            if !self.jobs.iter().any(|job| job.metadata.uid == listed.uid) {
                let name = listed.name.as_deref().unwrap_or_default();
                self.forget(listed.uid.as_deref());
                self.tell(false, "MissingJob", &format!("Active job went missing: {name}"));
            }
        }
    }

    /// The name says that the schedule has made it.
    fn is_scheduled(&self, job: &Job) -> bool {
        let ours = self.cron_job.metadata.name.as_deref().unwrap_or_default();
        let rest = name_of(job).strip_prefix(ours).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|minute| minute.parse::<i64>().is_ok())
    }

    fn start_what_is_due(&mut self) {
        let spec = &self.cron_job.spec;
        let text = &spec.schedule;
        let zone = spec.time_zone.as_deref();
        let Some(mut zone) = zone.map_or(Some(TimeZone::UTC), cron::find_zone) else {
            let name = zone.unwrap_or_default();
            let note = format!("invalid timeZone: {name:?}: unknown time zone {name}");
            return self.tell(true, "UnknownTimeZone", &note);
        };
        if spec.suspend == Some(true) {
            return;
        }
        // The schedule's own word for its zone is from before there was a field for it.
        if let Some((before, _)) = text.split_once(' ').filter(|(word, _)| word.contains("TZ=")) {
            let note = format!(
                "CRON_TZ or TZ used in schedule {text:?} is not officially supported, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more \
                 details"
            );
            self.tell(true, "UnsupportedSchedule", &note);
            let named = before.split_once('=').and_then(|(_, name)| cron::find_zone(name));
            zone = named.unwrap_or(zone);
        }
        let schedule = match cron::parse(text) {
            Ok(schedule) => schedule,
            Err(fault) => {
                let note = format!("unparseable schedule: {text:?} : {fault}");
                return self.tell(true, "UnparseableSchedule", &note);
            }
        };
        let plan = Plan { cron_job: self.cron_job, schedule: &schedule, zone: &zone };
        let (due, has_missed_many) = plan.due(self.now);
        if let Some(due) = due {
            if has_missed_many {
                let note = "too many missed start times. Set or decrease \
                            .spec.startingDeadlineSeconds or check clock skew";
                self.tell(true, "TooManyMissedTimes", note);
            }
            self.start(due, &zone);
        }
        self.actions.extend(plan.wait(&self.status, self.now).map(Action::Again));
    }

    fn start(&mut self, due: Timestamp, zone: &TimeZone) {
        let spec = &self.cron_job.spec;
        let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
        if deadline.is_some_and(|seconds| due + seconds < self.now) {
            let due = due.strftime("%a, %d %b %Y %H:%M:%S +0000");
            let note = format!("Missed scheduled time to start a job: {due}");
            return self.tell(true, "MissSchedule", &note);
        }
        let ours = self.cron_job.metadata.name.as_deref().unwrap_or_default();
        let name = format!("{ours}-{}", due.as_second() / 60);
        let is_listed =
            self.status.active.iter().flatten().any(|job| job.name.as_ref() == Some(&name));
        if is_listed || self.status.last_schedule_time == Some(Time(due)) {
            return;
        }
        let active = self.status.active.clone().unwrap_or_default();
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => {
                let note = "Not starting job because prior execution is running and concurrency \
                            policy is Forbid";
                return self.tell(false, "JobAlreadyActive", note);
            }
            Some("Replace") => {
                let is_active =
                    |job: &&Arc<Job>| active.iter().any(|listed| listed.uid == job.metadata.uid);
                let replaced: Vec<_> = self.jobs.iter().filter(is_active).cloned().collect();
                replaced.iter().for_each(|job| self.delete(job));
            }
            _ => {}
        }
        let about = reference(self.cron_job);
        let failed = Box::new(move |failure: &api::status::Status| {
            let note = format!("Error creating job: {}", failure.message);
            vec![Action::Record(Happening::warning(about, "FailedCreate", note))]
        });
        let exists = self.jobs.iter().any(|job| name_of(job) == name);
        if !exists {
            let job = self.job(name.clone(), due, zone);
            let actions = vec![Action::ensure(&job)];
            self.actions.push(Action::Several { actions, otherwise: Some(failed) });
            self.tell(false, "SuccessfulCreate", &format!("Created job {name}"));
        }
        self.status.last_schedule_time = Some(Time(due));
    }

    fn job(&self, name: String, due: Timestamp, zone: &TimeZone) -> Job {
        let template = &self.cron_job.spec.job_template;
        let given = template.metadata.clone().unwrap_or_default();
        let mut annotations = given.annotations.unwrap_or_default();
        let local = due.to_zoned(zone.clone());
        let format =
            if local.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
        annotations.insert(SCHEDULED.to_owned(), local.strftime(format).to_string());
        let metadata = ObjectMeta {
            name: Some(name),
            namespace: self.cron_job.metadata.namespace.clone(),
            labels: given.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_ref(self.cron_job)]),
            ..ObjectMeta::default()
        };
        Job { metadata, spec: template.spec.clone(), status: None }
    }

    fn delete(&mut self, job: &Job) {
        let object = Target::of(job);
        let options = Delete::uid(&object.uid).propagating(Propagation::Background);
        self.actions.push(Action::Delete { object, options, tell: None });
        self.forget(job.metadata.uid.as_deref());
        self.tell(false, "SuccessfulDelete", &format!("Deleted job {}", name_of(job)));
    }

    /// Of the jobs that ended well and of those that did not, the last few stay.
    fn forget_the_oldest(&mut self) {
        let spec = &self.cron_job.spec;
        let limits = [
            ("Complete", spec.successful_jobs_history_limit),
            ("Failed", spec.failed_jobs_history_limit),
        ];
        for (condition, limit) in limits {
            let Some(limit) = limit else { continue };
            let mut ended = self.jobs.clone();
            ended.retain(|job| has(job, condition) && job.metadata.deletion_timestamp.is_none());
            ended.sort_by_key(|job| {
                let started = job.status.as_ref().and_then(|status| status.start_time.clone());
                (started.is_none(), started, job.metadata.name.clone())
            });
            let excess = ended.len().saturating_sub(limit.max(0) as usize);
            ended.iter().take(excess).for_each(|job| self.delete(job));
        }
    }

    fn finish(mut self) -> Vec<Action> {
        self.status.active = self.status.active.take().filter(|active| !active.is_empty());
        if self.status != self.cron_job.status.clone().unwrap_or_default() {
            let new = CronJob { status: Some(self.status), ..self.cron_job.clone() };
            self.actions.push(Action::update_part("status", &new));
        }
        self.actions
    }
}
