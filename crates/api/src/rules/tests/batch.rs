//! Jobs and what starts them.
use super::check;
use expect_test::expect;

const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: a, namespace: default}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}";
const CRON_JOB: &str = "
apiVersion: batch/v1
kind: CronJob
metadata: {name: a, namespace: default}
spec:
  schedule: '*/5 * * * *'
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}";

#[test]
fn jobs() {
    check(
        JOB,
        &[
            "{}",
            "spec: {parallelism: -1, backoffLimit: -1}",
            "spec: {template: {spec: {restartPolicy: Always}}}",
            "spec: {completionMode: Indexed}",
            "spec: {maxFailedIndexes: 1}",
            "spec: {backoffLimitPerIndex: 1}",
            "spec: {managedBy: me}",
            "spec: {selector: {matchLabels: {a: b}}, manualSelector: true}",
            "spec: {podFailurePolicy: {rules: [{action: Dance}, {action: Ignore, onExitCodes: {operator: In, values: [2, 1, 0]}}]}}",
            "spec: {completionMode: Indexed, completions: 3, successPolicy: {rules: [{succeededIndexes: '2-5'}, {succeededCount: 4}]}}",
            "spec: {successPolicy: {rules: []}}",
        ],
        expect![[r#"
            {}
                fine
            spec: {parallelism: -1, backoffLimit: -1}
                spec.parallelism: Invalid value: -1: must be greater than or equal to 0
                spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0
            spec: {template: {spec: {restartPolicy: Always}}}
                spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"
            spec: {completionMode: Indexed}
                fine
            spec: {maxFailedIndexes: 1}
                spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified
                spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode
            spec: {backoffLimitPerIndex: 1}
                spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode
            spec: {managedBy: me}
                spec.managedBy: Invalid value: "me": must be a domain-prefixed path (such as "acme.io/foo")
            spec: {selector: {matchLabels: {a: b}}, manualSelector: true}
                spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`
            spec: {podFailurePolicy: {rules: [{action: Dance}, {action: Ignore, onExitCodes: {operator: In, values: [2, 1, 0]}}]}}
                spec.podFailurePolicy.rules[0].action: Unsupported value: "Dance": supported values: "Count", "FailIndex", "FailJob", "Ignore"
                spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required
                spec.podFailurePolicy.rules[1].onExitCodes.values[2]: Invalid value: 0: must not be 0 for the In operator
                spec.podFailurePolicy.rules[1].onExitCodes.values: Invalid value: [2,1,0]: must be ordered
            spec: {completionMode: Indexed, completions: 3, successPolicy: {rules: [{succeededIndexes: '2-5'}, {succeededCount: 4}]}}
                spec.successPolicy.rules[0].succeededIndexes: Invalid value: "2-5": error parsing succeededIndexes: too large index: "5"
                spec.successPolicy.rules[1].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of specified completions)
            spec: {successPolicy: {rules: []}}
                spec.successPolicy: Invalid value: {"Rules":[]}: requires indexed completion mode
        "#]],
    );
}

#[test]
fn cron_jobs() {
    check(
        CRON_JOB,
        &[
            "{}",
            "spec: {schedule: '* * * *'}",
            "spec: {schedule: '@daily'}",
            "spec: {schedule: 'TZ=UTC 0 * * * *'}",
            "spec: {timeZone: Mars/Olympus}",
            "spec: {timeZone: Europe/Berlin, concurrencyPolicy: Queue}",
            "spec: {startingDeadlineSeconds: -1, failedJobsHistoryLimit: -1}",
            "spec: {jobTemplate: {spec: {manualSelector: true}}}",
        ],
        expect![[r#"
            {}
                fine
            spec: {schedule: '* * * *'}
                spec.schedule: Invalid value: "* * * *": expected exactly 5 fields, found 4: [* * * *]
            spec: {schedule: '@daily'}
                fine
            spec: {schedule: 'TZ=UTC 0 * * * *'}
                spec.schedule: Invalid value: "TZ=UTC 0 * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead
                warning: spec.schedule: CRON_TZ or TZ used in schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#unsupported-timezone-specification for more details
            spec: {timeZone: Mars/Olympus}
                spec.timeZone: Invalid value: "Mars/Olympus": unknown time zone Mars/Olympus
            spec: {timeZone: Europe/Berlin, concurrencyPolicy: Queue}
                spec.concurrencyPolicy: Unsupported value: "Queue": supported values: "Allow", "Forbid", "Replace"
            spec: {startingDeadlineSeconds: -1, failedJobsHistoryLimit: -1}
                spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0
                spec.failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0
            spec: {jobTemplate: {spec: {manualSelector: true}}}
                spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"
        "#]],
    );
}
