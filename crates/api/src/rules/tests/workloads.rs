//! Deployments, sets and controllers.
use super::check;
use expect_test::expect;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: default}
spec:
  selector: {matchLabels: {app: a}}
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: x}]}}";
const DAEMON_SET: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: a, namespace: default}
spec:
  selector: {matchLabels: {app: a}}
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: x}]}}";
const STATEFUL_SET: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: a, namespace: default}
spec:
  selector: {matchLabels: {app: a}}
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: x}]}}";

#[test]
fn deployments() {
    check(
        DEPLOYMENT,
        &[
            "{}",
            "spec: {selector: null}",
            "spec: {selector: {matchLabels: {app: b}}}",
            "spec: {selector: {matchLabels: null}}",
            "spec: {replicas: -1, revisionHistoryLimit: -1, minReadySeconds: 700}",
            "spec: {strategy: {type: Recreate, rollingUpdate: {maxSurge: 1}}}",
            "spec: {strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}}",
            "spec: {strategy: {rollingUpdate: {maxUnavailable: 150%}}}",
            "spec: {template: {spec: {restartPolicy: Never, activeDeadlineSeconds: 5}}}",
        ],
        expect![[r#"
            {}
                fine
            spec: {selector: null}
                spec.selector: Required value
                spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`
            spec: {selector: {matchLabels: {app: b}}}
                spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`
            spec: {selector: {matchLabels: null}}
                spec.selector: Invalid value: {}: empty selector is invalid for deployment
            spec: {replicas: -1, revisionHistoryLimit: -1, minReadySeconds: 700}
                spec.replicas: Invalid value: -1: must be greater than or equal to 0
                spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0
                spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds
            spec: {strategy: {type: Recreate, rollingUpdate: {maxSurge: 1}}}
                spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'
            spec: {strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}}
                spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0
            spec: {strategy: {rollingUpdate: {maxUnavailable: 150%}}}
                spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "150%": must not be greater than 100%
            spec: {template: {spec: {restartPolicy: Never, activeDeadlineSeconds: 5}}}
                spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"
                spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported
        "#]],
    );
}

#[test]
fn daemon_sets() {
    check(
        DAEMON_SET,
        &[
            "{}",
            "spec: {updateStrategy: {rollingUpdate: {maxSurge: 1}}}",
            "spec: {updateStrategy: {rollingUpdate: {maxUnavailable: 0}}}",
            "spec: {updateStrategy: {type: Never}}",
        ],
        expect![[r#"
            {}
                fine
            spec: {updateStrategy: {rollingUpdate: {maxSurge: 1}}}
                spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero
            spec: {updateStrategy: {rollingUpdate: {maxUnavailable: 0}}}
                spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0
            spec: {updateStrategy: {type: Never}}
                spec.updateStrategy: Unsupported value: {"Type":"Never","RollingUpdate":null}: supported values: "RollingUpdate", "OnDelete"
        "#]],
    );
}

#[test]
fn stateful_sets() {
    check(
        STATEFUL_SET,
        &[
            "{}",
            "spec: {podManagementPolicy: Random, ordinals: {start: -1}, serviceName: A_B}",
            "spec: {updateStrategy: {type: OnDelete, rollingUpdate: {partition: 1}}}",
            "spec: {persistentVolumeClaimRetentionPolicy: {whenScaled: Maybe}}",
            "spec: {volumeClaimTemplates: [{metadata: {name: d}, spec: {}}]}",
            "spec: {template: {spec: {containers: [{name: c, image: x, volumeMounts: [{name: d, mountPath: /d}]}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}",
            "metadata: {name: a.b}",
        ],
        expect![[r#"
            {}
                fine
            spec: {podManagementPolicy: Random, ordinals: {start: -1}, serviceName: A_B}
                spec.podManagementPolicy: Invalid value: "Random": must be 'OrderedReady' or 'Parallel'
                spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0
                spec.serviceName: Invalid value: "A_B": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            spec: {updateStrategy: {type: OnDelete, rollingUpdate: {partition: 1}}}
                spec.updateStrategy.rollingUpdate: Invalid value: {"Partition":1,"MaxUnavailable":null}: only allowed for updateStrategy 'RollingUpdate'
            spec: {persistentVolumeClaimRetentionPolicy: {whenScaled: Maybe}}
                spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Maybe": supported values: "Retain", "Delete"
            spec: {volumeClaimTemplates: [{metadata: {name: d}, spec: {}}]}
                spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required
                spec.volumeClaimTemplates[0].spec.resources[storage]: Required value
            spec: {template: {spec: {containers: [{name: c, image: x, volumeMounts: [{name: d, mountPath: /d}]}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}
                fine
            metadata: {name: a.b}
                metadata.name: Invalid value: "a.b": must not contain dots
        "#]],
    );
}
