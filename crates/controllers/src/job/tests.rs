use super::*;
use crate::testing::{check_row, check_run};
use expect_test::{Expect, expect};

fn check(world: &str, expect: Expect) {
    check_row(&CONTROLLER, world, &["default/web"], expect);
}

const POD: &str = "owner=job/web finalizers=batch.kubernetes.io/job-tracking";

#[test]
fn a_job_begins_with_as_many_as_may_run_at_once() {
    check(
        "job web spec.parallelism=2 spec.completions=3",
        expect![[r#"
        create pods web-
        create pods web-
        update jobs.batch/status web {"ready":0,"startTime":"2026-01-01T12:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
}

#[test]
fn what_ended_is_written_down_then_let_go_then_counted() {
    let job = "job web spec.completions=2 status.startTime=2026-01-01T11:00:00Z";
    check(
        &format!("{job}\n pod a {POD} phase=Succeeded\n pod b {POD} phase=Running"),
        expect![[r#"
            update jobs.batch/status web {"active":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"succeeded":["a-uid"]}}
        "#]],
    );
    let listed = "status.uncountedTerminatedPods.succeeded=[\"a-uid\"]";
    check(
        &format!("{job} {listed}\n pod a {POD} phase=Succeeded\n pod b {POD} phase=Running"),
        expect![[r#"
            update jobs.batch/status web {"active":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"succeeded":["a-uid"]}}
            patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a-uid"}}
        "#]],
    );
    check(
        &format!("{job} {listed}\n pod a owner=job/web phase=Succeeded\n pod b {POD}"),
        expect![[r#"
            update jobs.batch/status web {"active":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{}}
        "#]],
    );
}

#[test]
fn a_job_that_has_all_it_wanted_is_complete() {
    check(
        "job web spec.completions=1 status={\"startTime\":\"2026-01-01T11:00:00Z\",\"succeeded\":1}",
        expect![[r#"
            event Completed Job completed
            update jobs.batch/status web {"completionTime":"2026-01-01T12:00:00Z","conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Reached expected number of succeeded pods","reason":"CompletionsReached","status":"True","type":"SuccessCriteriaMet"},{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Reached expected number of succeeded pods","reason":"CompletionsReached","status":"True","type":"Complete"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{}}
        "#]],
    );
}

#[test]
fn failures_are_waited_after_and_limited() {
    let job = "job web spec.completions=1 status.startTime=2026-01-01T11:00:00Z";
    check(
        &format!("{job} spec.backoffLimit=3\n pod a {POD} phase=Failed age=4"),
        expect![[r#"
        again after 6s
        update jobs.batch/status web {"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"failed":["a-uid"]}}
    "#]],
    );
    check(
        &format!("{job} spec.backoffLimit=0\n pod a {POD} phase=Failed age=4\n pod b {POD}"),
        expect![[r#"
            delete pods default/b
            update jobs.batch/status web {"active":1,"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job has reached the specified backoff limit","reason":"BackoffLimitExceeded","status":"True","type":"FailureTarget"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"failed":["a-uid"]}}
        "#]],
    );
}

#[test]
fn a_deadline_ends_it() {
    let job = "job web spec.completions=1 status.startTime=2026-01-01T11:59:00Z";
    check(
        &format!("{job} spec.activeDeadlineSeconds=30\n pod a {POD}"),
        expect![[r#"
        delete pods default/a
        update jobs.batch/status web {"active":1,"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job was active longer than specified deadline","reason":"DeadlineExceeded","status":"True","type":"FailureTarget"}],"ready":0,"startTime":"2026-01-01T11:59:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
    check(
        &format!("{job} spec.activeDeadlineSeconds=90\n pod a {POD}"),
        expect![[r#"
        again after 30s
        update jobs.batch/status web {"active":1,"ready":0,"startTime":"2026-01-01T11:59:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
}

#[test]
fn a_suspended_job_has_no_pods() {
    check(
        &format!("job web spec.suspend=true spec.completions=1\n pod a {POD}"),
        expect![[r#"
        event Suspended Job suspended
        delete pods default/a
        update jobs.batch/status web {"active":1,"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job suspended","reason":"JobSuspended","status":"True","type":"Suspended"}],"ready":0,"terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
}

#[test]
fn indexed_pods_have_their_number() {
    check(
        &format!(
            "job web spec.completionMode=Indexed spec.completions=4 spec.parallelism=2 status={{\"startTime\":\"2026-01-01T11:00:00Z\",\"completedIndexes\":\"0\",\"succeeded\":1}}
             pod a {POD} annotation:batch.kubernetes.io/job-completion-index=\"1\""
        ),
        expect![[r#"
            create pods web-2-
            update jobs.batch/status web {"active":1,"completedIndexes":"0","ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{}}
        "#]],
    );
}

#[test]
fn it_comes_to_an_end() {
    check_run(
        &CONTROLLER,
        &format!("job web spec.completions=1\n pod a {POD} phase=Succeeded"),
        expect![[r#"
            update jobs.batch/status default/web
            patch pods default/a
            update jobs.batch/status default/web
            create events default/web.1886999c36a18000
        "#]],
    );
}

#[test]
fn pods_of_a_job_that_is_gone_are_let_go() {
    check(
        &format!("pod a {POD}\n pod b owner=job/web\n pod c owner=job/other"),
        expect![[r#"
        patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a-uid"}}
    "#]],
    );
}
