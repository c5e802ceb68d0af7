//! Which of a schedule's moments counts now, and when to look again (`mostRecentScheduleTime` in
//! upstream's pkg/controller/cronjob/utils.go).
use super::schedule::next;
use api::rules::cron::Schedule;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus};
use std::time::Duration;

/// Missed more often, somebody should know.
const MANY: i64 = 100;
/// Clocks differ a little: upstream's.
const DELTA: SignedDuration = SignedDuration::from_millis(100);

pub struct Plan<'a> {
    pub cron_job: &'a CronJob,
    pub schedule: &'a Schedule,
    pub zone: &'a TimeZone,
}

impl Plan<'_> {
    /// The last moment that has come and was not used, and whether many were missed.
    pub fn due(&self, now: Timestamp) -> (Option<Timestamp>, bool) {
        let status = self.cron_job.status.as_ref();
        let created = self.cron_job.metadata.creation_timestamp.as_ref().map_or(now, |at| at.0);
        let last = status.and_then(|status| status.last_schedule_time.as_ref()).map(|at| at.0);
        let mut since = last.unwrap_or(created);
        if let Some(seconds) = self.cron_job.spec.starting_deadline_seconds {
            let deadline = now.checked_sub(SignedDuration::from_secs(seconds));
            since = since.max(deadline.unwrap_or(since));
        }
        let Some(first) = self.next(since).filter(|first| *first <= now) else {
            return (None, false);
        };
        let Some(second) = self.next(first).filter(|second| *second <= now) else {
            return (Some(first), false);
        };
        // Not one by one: there may be a year of them. The pace of the first two leads near.
        let pace = second.duration_since(first).as_secs().max(1);
        let missed = now.duration_since(first).as_secs() / pace + 1;
        let near = first + SignedDuration::from_secs((missed - 2).max(0) * pace);
        let mut recent = None;
        let mut at = near;
        while let Some(due) = self.next(at).filter(|due| *due <= now) {
            recent = Some(due);
            at = due;
        }
        // A schedule with gaps may have nothing there.
        (recent.or(Some(second)), missed > MANY)
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        next(self.schedule, self.zone, after)
    }

    /// Until the next moment; `@every` counts from the last one.
    pub fn wait(&self, status: &CronJobStatus, now: Timestamp) -> Option<Duration> {
        let created = self.cron_job.metadata.creation_timestamp.as_ref().map(|at| at.0);
        let last = status.last_schedule_time.as_ref().map(|at| at.0).or(created);
        let from = last.and_then(|last| self.next(last)).filter(|at| *at > now);
        let at = from.or_else(|| self.next(now))?;
        (at + DELTA).duration_since(now).try_into().ok()
    }
}
