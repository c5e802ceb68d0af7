//! A job that has ended goes, with its pods, when the time that it was given is over.
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::job::is_finished;
use crate::world::World;
use api::names::NamespacedName;
use client::Object;
use client::source::{Delete, Propagation};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use std::sync::Arc;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "ttl-after-finished-controller",
    account: "ttl-after-finished-controller",
    workers: 5,
    watch: |on: &Watching| on.objects::<Job>(),
    reconcile,
};

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(job) = world.get::<Job>(key) else { return Vec::new() };
    let Some(due) = expires(&job) else { return Vec::new() };
    let left: Duration = due.duration_since(now).try_into().unwrap_or_default();
    if !left.is_zero() {
        return vec![Action::Again(left)];
    }
    // Its time may have been made longer: the server is asked before the job is lost.
    let object = Target::of(&*job);
    let target = object.clone();
    let then = Box::new(move |found: Option<Arc<Object>>| {
        let fresh = found.and_then(|found| found.typed::<Job>().ok());
        let is_due = fresh.and_then(|job| expires(&job)).is_some_and(|due| due <= now);
        let options = Delete::uid(&target.uid).propagating(Propagation::Foreground);
        let delete = Action::Delete { object: target, options, tell: None };
        if is_due { vec![delete] } else { Vec::new() }
    });
    vec![Action::Look { object, then }]
}

fn expires(job: &Job) -> Option<Timestamp> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    if job.metadata.deletion_timestamp.is_some() || !is_finished(job) {
        return None;
    }
    let conditions = job.status.as_ref()?.conditions.as_deref()?;
    let ended = conditions.iter().find(|condition| {
        matches!(&*condition.type_, "Complete" | "Failed") && condition.status == "True"
    });
    let ended = ended?.last_transition_time.as_ref()?.0;
    Some(ended + SignedDuration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_row, check_run};
    use expect_test::expect;

    fn ended(type_: &str, at: &str) -> String {
        format!(
            "status.conditions=[{{\"type\":\"{type_}\",\"status\":\"True\",\"lastTransitionTime\":\"2026-01-01T{at}Z\"}}]"
        )
    }

    #[test]
    fn an_ended_job_has_its_time() {
        let (complete, failed) = (ended("Complete", "11:59:50"), ended("Failed", "11:00:00"));
        check_row(
            &CONTROLLER,
            &format!(
                "job early spec.ttlSecondsAfterFinished=30 {complete}
                 job late spec.ttlSecondsAfterFinished=30 {failed}
                 job kept {failed}
                 job running spec.ttlSecondsAfterFinished=30
                 job going spec.ttlSecondsAfterFinished=30 {failed} deleting finalizers=x"
            ),
            &["default/early", "default/late", "default/kept", "default/running", "default/going"],
            expect![[r#"
                again after 20s
                look at jobs.batch default/late
            "#]],
        );
        check_run(
            &CONTROLLER,
            &format!("job late spec.ttlSecondsAfterFinished=0 {failed}"),
            expect![[r#"
                delete jobs.batch default/late
            "#]],
        );
    }
}
