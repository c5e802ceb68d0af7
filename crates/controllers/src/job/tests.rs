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
    // It failed an hour from now: the clock was set back since.
    check(
        &format!("{job} spec.backoffLimit=3\n pod a {POD} phase=Failed age=-3600"),
        expect![[r#"
            create pods web-
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

/// Costs and neighbours, which ReplicaSets mind, do not count.
#[test]
fn of_too_many_the_one_that_has_got_least_done_goes_first() {
    let cheap = "annotation:controller.kubernetes.io/pod-deletion-cost=\"-5\"";
    let job = "job web spec.parallelism=1 status.startTime=2026-01-01T11:00:00Z";
    check(
        &format!(
            "{job}
             pod a {POD} node=n ready=500 age=600 {cheap}
             pod b {POD} node=n ready=400 age=600
             pod c {POD} node=n phase=Running age=600
             pod d {POD} age=700"
        ),
        expect![[r#"
            patch pods d {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"d-uid"}}
            delete pods default/d
            patch pods c {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"c-uid"}}
            delete pods default/c
            patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b-uid"}}
            delete pods default/b
            update jobs.batch/status web {"active":4,"ready":2,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
        "#]],
    );
}

/// Whatever becomes of it then, nobody waits for it.
#[test]
fn a_pod_that_is_let_go_is_kept_for_nobody() {
    let job = "job web spec.parallelism=0 status.startTime=2026-01-01T11:00:00Z";
    let tracked = "finalizers=batch.kubernetes.io/job-tracking";
    check(
        &format!("{job}\n pod a {POD} metadata.labels.app=other"),
        expect![[r#"
        patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"ownerReferences":[{"$patch":"delete","uid":"web-uid"}],"uid":"a-uid"}}
        update jobs.batch/status web {"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
    check(
        &format!("{job}\n pod a {tracked}"),
        expect![[r#"
        look at jobs.batch default/web
        patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a-uid"}}
        delete pods default/a
        update jobs.batch/status web {"active":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
    "#]],
    );
    check_row(
        &CONTROLLER,
        &format!(
            "{job}\n pod a {tracked} metadata.labels.app=other\n pod b {POD} metadata.labels.app=other"
        ),
        &["default/"],
        expect![[r#"
            patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a-uid"}}
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
            patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a-uid"}}
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
fn of_pods_with_one_index_the_best_stays() {
    let index = "annotation:batch.kubernetes.io/job-completion-index";
    check(
        &format!(
            "job web spec.completionMode=Indexed spec.completions=2 spec.parallelism=2 status={{\"startTime\":\"2026-01-01T11:00:00Z\"}}
             pod a {POD} {index}=\"0\" node=n ready
             pod b {POD} {index}=\"0\" phase=Pending
             pod c {POD} {index}=\"1\" node=n ready
             pod d {POD} {index}=\"5\" node=n ready"
        ),
        expect![[r#"
            patch pods d {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"d-uid"}}
            delete pods default/d
            patch pods b {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"b-uid"}}
            delete pods default/b
            update jobs.batch/status web {"active":4,"ready":3,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
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

/// A failed pod of an index, with how often the index failed before.
fn failed(name: &str, index: i32, before: i32, code: i32) -> String {
    format!(
        "pod {name} {POD} phase=Failed age=4 annotation:batch.kubernetes.io/job-completion-index=\"{index}\" annotation:batch.kubernetes.io/job-index-failure-count=\"{before}\" status.containerStatuses=[{{\"name\":\"c\",\"image\":\"\",\"imageID\":\"\",\"ready\":false,\"restartCount\":0,\"state\":{{\"terminated\":{{\"exitCode\":{code}}}}}}}]"
    )
}

const STARTED: &str = "status.startTime=2026-01-01T11:00:00Z";

#[test]
fn a_policy_says_what_a_failure_comes_to() {
    let rule = |action: &str| {
        format!(
            "spec.podFailurePolicy={{\"rules\":[{{\"action\":\"{action}\",\"onExitCodes\":{{\"operator\":\"In\",\"values\":[42]}}}}]}}"
        )
    };
    let world = |action: &str, code: i32| {
        format!(
            "job web spec.completions=1 {STARTED} {}\n {}",
            rule(action),
            failed("a", 0, 0, code)
        )
    };
    check(
        &world("FailJob", 42),
        expect![[r#"
        update jobs.batch/status web {"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Container c for pod default/a failed with exit code 42 matching FailJob rule at index 0","reason":"PodFailurePolicy","status":"True","type":"FailureTarget"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"failed":["a-uid"]}}
    "#]],
    );
    check(
        &world("FailJob", 1),
        expect![[r#"
        again after 6s
        update jobs.batch/status web {"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{"failed":["a-uid"]}}
    "#]],
    );
    check(
        &world("Ignore", 42),
        expect![[r#"
        again after 6s
        update jobs.batch/status web {"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
        patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a-uid"}}
    "#]],
    );
    check(
        &format!(
            "job web spec.completions=1 {STARTED} spec.podFailurePolicy={{\"rules\":[{{\"action\":\"Ignore\",\"onPodConditions\":[{{\"type\":\"DisruptionTarget\",\"status\":\"True\"}}]}}]}}
             pod a {POD} phase=Failed age=4 status.conditions=[{{\"type\":\"DisruptionTarget\",\"status\":\"True\"}}]"
        ),
        expect![[r#"
            again after 6s
            update jobs.batch/status web {"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
            patch pods a {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a-uid"}}
        "#]],
    );
}

const INDEXED: &str = "job web spec.completionMode=Indexed spec.completions=3 spec.parallelism=3 spec.backoffLimitPerIndex=1 status={\"startTime\":\"2026-01-01T11:00:00Z\",\"completedIndexes\":\"2\",\"succeeded\":1}";

#[test]
fn each_index_may_fail_so_often() {
    // The first failure of 0 is waited after; 1 is given up.
    check(
        &format!("{INDEXED}\n {}\n {}", failed("a", 0, 0, 1), failed("b", 1, 1, 1)),
        expect![[r#"
            again after 6s
            update jobs.batch/status web {"completedIndexes":"2","failedIndexes":"1","ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{"failed":["b-uid"]}}
        "#]],
    );
    // Both are given up, so that all is over.
    check(
        &format!("{INDEXED}\n {}\n {}", failed("a", 0, 1, 1), failed("b", 1, 1, 1)),
        expect![[r#"
            update jobs.batch/status web {"completedIndexes":"2","conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job has failed indexes","reason":"FailedIndexes","status":"True","type":"FailureTarget"}],"failedIndexes":"0,1","ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{"failed":["a-uid","b-uid"]}}
        "#]],
    );
    check(
        &format!("{INDEXED} spec.maxFailedIndexes=0\n {}", failed("b", 1, 1, 1)),
        expect![[r#"
            update jobs.batch/status web {"completedIndexes":"2","conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job has exceeded the specified maximal number of failed indexes","reason":"MaxFailedIndexesExceeded","status":"True","type":"FailureTarget"}],"failedIndexes":"1","ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{"failed":["b-uid"]}}
        "#]],
    );
}

#[test]
fn the_next_pod_of_an_index_knows_how_often_it_failed() {
    crate::testing::check_tree(
        &CONTROLLER,
        &format!("{INDEXED}\n {}", failed("a", 0, 0, 1).replace("age=4", "age=400")),
        "default/web",
        "metadata",
        expect![[r#"
            create pods web-0-
              {"annotations":{"batch.kubernetes.io/job-completion-index":"0","batch.kubernetes.io/job-index-failure-count":"1"},"finalizers":["batch.kubernetes.io/job-tracking"],"generateName":"web-0-","labels":{"app":"web","batch.kubernetes.io/job-completion-index":"0"},"namespace":"default","ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"Job","name":"web","uid":"web-uid"}]}
            create pods web-1-
              {"annotations":{"batch.kubernetes.io/job-completion-index":"1","batch.kubernetes.io/job-index-failure-count":"0"},"finalizers":["batch.kubernetes.io/job-tracking"],"generateName":"web-1-","labels":{"app":"web","batch.kubernetes.io/job-completion-index":"1"},"namespace":"default","ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"Job","name":"web","uid":"web-uid"}]}
            update jobs.batch/status web
              {"creationTimestamp":"2026-01-01T11:00:00Z","generation":1,"labels":{"app":"web"},"name":"web","namespace":"default","resourceVersion":"2","uid":"web-uid"}
        "#]],
    );
}

#[test]
fn enough_indexes_are_a_success() {
    let job = "job web spec.completionMode=Indexed spec.completions=3 spec.parallelism=3 status={\"startTime\":\"2026-01-01T11:00:00Z\",\"completedIndexes\":\"0\",\"succeeded\":1}";
    for (rule, is_met) in [
        ("{\"succeededCount\":1}", true),
        ("{\"succeededIndexes\":\"0\"}", true),
        ("{\"succeededIndexes\":\"0-1\"}", false),
        ("{\"succeededIndexes\":\"0-1\",\"succeededCount\":1}", true),
        ("{\"succeededCount\":2}", false),
    ] {
        let job: k8s_openapi::api::batch::v1::JobSpec = serde_json::from_str(&format!(
            "{{\"completions\":3,\"template\":{{}},\"successPolicy\":{{\"rules\":[{rule}]}}}}"
        ))
        .expect("a spec");
        assert_eq!(policy::success(&job, &[0].into()).is_some(), is_met, "{rule}");
    }
    check(
        &format!(
            "{job} spec.successPolicy={{\"rules\":[{{\"succeededIndexes\":\"0\"}}]}}\n pod b {POD} annotation:batch.kubernetes.io/job-completion-index=\"1\""
        ),
        expect![[r#"
            delete pods default/b
            update jobs.batch/status web {"active":1,"completedIndexes":"0","conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Matched rules at index 0","reason":"SuccessPolicy","status":"True","type":"SuccessCriteriaMet"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","succeeded":1,"terminating":0,"uncountedTerminatedPods":{}}
        "#]],
    );
}

#[test]
fn who_is_about_to_end_is_replaced_when_told_so() {
    for policy in ["Failed", "TerminatingOrFailed"] {
        let expect = if policy == "Failed" {
            expect![[r#"
            update jobs.batch/status web {"active":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":1,"uncountedTerminatedPods":{}}
        "#]]
        } else {
            expect![[r#"
            create pods web-
            update jobs.batch/status web {"active":1,"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":1,"uncountedTerminatedPods":{"failed":["b-uid"]}}
        "#]]
        };
        check(
            &format!(
                "job web spec.completions=2 spec.parallelism=2 {STARTED} spec.podReplacementPolicy={policy}
                 pod a {POD}\n pod b {POD} deleting"
            ),
            expect,
        );
    }
}

#[test]
fn restarts_in_a_pod_count_where_pods_are_kept() {
    check(
        &format!(
            "job web spec.completions=1 spec.backoffLimit=2 {STARTED} spec.template.spec.restartPolicy=OnFailure
             pod a {POD} status.containerStatuses=[{{\"name\":\"c\",\"image\":\"\",\"imageID\":\"\",\"ready\":false,\"restartCount\":2}}]"
        ),
        expect![[r#"
            delete pods default/a
            update jobs.batch/status web {"active":1,"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job has reached the specified backoff limit","reason":"BackoffLimitExceeded","status":"True","type":"FailureTarget"}],"ready":0,"startTime":"2026-01-01T11:00:00Z","terminating":0,"uncountedTerminatedPods":{}}
        "#]],
    );
}

#[test]
fn whose_job_is_managed_elsewhere_is_left_alone() {
    check("job web spec.completions=1 spec.managedBy=example.com/queue", expect![[""]]);
}
