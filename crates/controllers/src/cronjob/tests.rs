use super::*;
use crate::testing::{check_row, check_run, check_tree};
use expect_test::{Expect, expect};

fn check(world: &str, expect: Expect) {
    check_row(&CONTROLLER, world, &["default/tick"], expect);
}

/// Made at 11:00; it is 12:00. Words have no blanks: `_` stands for one.
fn cron(schedule: &str, rest: &str) -> String {
    let schedule = schedule.replace('_', "\\u0020");
    format!(
        "cronjob tick spec.schedule=\"{schedule}\" spec.jobTemplate={{\"spec\":{{\"template\":{{}}}}}} {rest}"
    )
}

const DONE: &str = "status={\"startTime\":\"2026-01-01T11:00:00Z\",\"completionTime\":\"2026-01-01T11:01:00Z\",\"conditions\":[{\"type\":\"Complete\",\"status\":\"True\"}]}";

#[test]
fn what_is_due_is_started_once() {
    check(
        &cron("0_12_*_*_*", ""),
        expect![[r#"
        create jobs.batch tick-29454480
        event SuccessfulCreate Created job tick-29454480
        again after 86400.1s
        update cronjobs.batch/status tick {"lastScheduleTime":"2026-01-01T12:00:00Z"}
    "#]],
    );
    check(
        &cron("0_12_*_*_*", "status.lastScheduleTime=2026-01-01T12:00:00Z"),
        expect![[r#"
        again after 86400.1s
    "#]],
    );
    check(
        &cron("30_12_*_*_*", ""),
        expect![[r#"
        again after 1800.1s
    "#]],
    );
    check_run(
        &CONTROLLER,
        &cron("0_12_*_*_*", ""),
        expect![[r#"
        create jobs.batch default/tick-29454480
        update cronjobs.batch/status default/tick
        create events default/tick.1886999c36a18000
        update cronjobs.batch/status default/tick
    "#]],
    );
}

#[test]
fn of_several_that_were_missed_the_last_counts() {
    check(
        &cron("*/10_*_*_*_*", ""),
        expect![[r#"
        create jobs.batch tick-29454480
        event SuccessfulCreate Created job tick-29454480
        again after 600.1s
        update cronjobs.batch/status tick {"lastScheduleTime":"2026-01-01T12:00:00Z"}
    "#]],
    );
    check(
        &cron("*_*_*_*_*", "age=86400"),
        expect![[r#"
        event TooManyMissedTimes too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew
        create jobs.batch tick-29454480
        event SuccessfulCreate Created job tick-29454480
        again after 60.1s
        update cronjobs.batch/status tick {"lastScheduleTime":"2026-01-01T12:00:00Z"}
    "#]],
    );
    check(
        &cron("59_11_*_*_*", "spec.startingDeadlineSeconds=30"),
        expect![[r#"
        again after 86340.1s
    "#]],
    );
}

#[test]
fn the_job_says_for_when_it_is() {
    check_tree(
        &CONTROLLER,
        &cron("0_13_*_*_*", "spec.timeZone=Europe/Berlin"),
        "default/tick",
        "metadata",
        expect![[r#"
            create jobs.batch tick-29454480
              {"annotations":{"batch.kubernetes.io/cronjob-scheduled-timestamp":"2026-01-01T13:00:00+01:00"},"name":"tick-29454480","namespace":"default","ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"CronJob","name":"tick","uid":"tick-uid"}]}
            event SuccessfulCreate Created job tick-29454480
            again after 86400.1s
            update cronjobs.batch/status tick
              {"creationTimestamp":"2026-01-01T11:00:00Z","generation":1,"name":"tick","namespace":"default","resourceVersion":"2","uid":"tick-uid"}
        "#]],
    );
}

#[test]
fn who_still_runs_is_waited_for_or_replaced() {
    let active = "status.active=[{\"name\":\"tick-1\",\"uid\":\"tick-1-uid\"}]";
    let job = "job tick-1 owner=cronjob/tick";
    for policy in ["Allow", "Forbid", "Replace"] {
        let cron_job = cron("0_12_*_*_*", &format!("{active} spec.concurrencyPolicy={policy}"));
        let expect = match policy {
            "Allow" => expect![[r#"
                create jobs.batch tick-29454480
                event SuccessfulCreate Created job tick-29454480
                again after 86400.1s
                update cronjobs.batch/status tick {"active":[{"name":"tick-1","uid":"tick-1-uid"}],"lastScheduleTime":"2026-01-01T12:00:00Z"}
            "#]],
            "Forbid" => expect![[r#"
                event JobAlreadyActive Not starting job because prior execution is running and concurrency policy is Forbid
                again after 86400.1s
            "#]],
            _ => expect![[r#"
                delete jobs.batch default/tick-1
                event SuccessfulDelete Deleted job tick-1
                create jobs.batch tick-29454480
                event SuccessfulCreate Created job tick-29454480
                again after 86400.1s
                update cronjobs.batch/status tick {"lastScheduleTime":"2026-01-01T12:00:00Z"}
            "#]],
        };
        check(&format!("{cron_job}\n {job}"), expect);
    }
}

#[test]
fn jobs_are_listed_while_they_run() {
    let cron_job = cron("0_13_*_*_*", "");
    check(
        &format!("{cron_job}\n job tick-1 owner=cronjob/tick\n job other owner=cronjob/tick"),
        expect![[r#"
            event UnexpectedJob Saw a job that the controller did not create or forgot: other
            again after 3600.1s
            update cronjobs.batch/status tick {"active":[{"apiVersion":"batch/v1","kind":"Job","name":"tick-1","namespace":"default","resourceVersion":"3","uid":"tick-1-uid"}]}
        "#]],
    );
    let active = "status.active=[{\"name\":\"tick-1\",\"uid\":\"tick-1-uid\"},{\"name\":\"tick-0\",\"uid\":\"tick-0-uid\"}]";
    let cron_job = cron("0_13_*_*_*", active);
    check(
        &format!("{cron_job}\n job tick-1 owner=cronjob/tick {DONE}"),
        expect![[r#"
        event SawCompletedJob Saw completed job: tick-1, condition: Complete
        event MissingJob Active job went missing: tick-0
        again after 3600.1s
        update cronjobs.batch/status tick {"lastSuccessfulTime":"2026-01-01T11:01:00Z"}
    "#]],
    );
}

#[test]
fn the_oldest_of_the_ended_go() {
    let cron_job = cron("0_13_*_*_*", "spec.successfulJobsHistoryLimit=1");
    check(
        &format!(
            "{cron_job}
             job tick-1 owner=cronjob/tick {DONE}
             job tick-2 owner=cronjob/tick {DONE}"
        ),
        expect![[r#"
            again after 3600.1s
            delete jobs.batch default/tick-1
            event SuccessfulDelete Deleted job tick-1
            update cronjobs.batch/status tick {"lastSuccessfulTime":"2026-01-01T11:01:00Z"}
        "#]],
    );
}

#[test]
fn what_cannot_be_understood_is_said() {
    check(
        &cron("never", ""),
        expect![[r#"
        event UnparseableSchedule unparseable schedule: "never" : expected exactly 5 fields, found 1: [never]
    "#]],
    );
    check(
        &cron("0_12_*_*_*", "spec.timeZone=Nowhere/Land"),
        expect![[r#"
        event UnknownTimeZone invalid timeZone: "Nowhere/Land": unknown time zone Nowhere/Land
    "#]],
    );
    check(&cron("0_12_*_*_*", "spec.suspend=true"), expect![[""]]);
}
