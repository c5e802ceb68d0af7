//! The order in which faults are told: those of rules that upstream declares with the type come
//! last, and nothing is told twice.
use super::{POD, check, check_update};
use crate::rules::Part;
use expect_test::expect;

const ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: a, namespace: default}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]";
const AUTOSCALER: &str = "
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: a, namespace: default}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}";
const LEVEL: &str = "
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: a}
spec: {type: Limited, limited: {limitResponse: {type: Reject}}}";
const BUDGET: &str = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: a, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: a}}}";
const LEASE: &str = "
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: a, namespace: default}
spec: {}";
const CONTROLLER: &str = "
apiVersion: v1
kind: ReplicationController
metadata: {name: a, namespace: default}
spec: {replicas: 1, selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}}";

#[test]
fn declared_rules_speak_last() {
    check(
        ROLE,
        &["rules: [{}]"],
        expect![[r#"
        rules: [{}]
            rules[0].apiGroups: Required value: resource rules must supply at least one api group
            rules[0].resources: Required value: resource rules must supply at least one resource
            rules[0].verbs: Required value
    "#]],
    );
    check(
        AUTOSCALER,
        &["spec: {maxReplicas: 0, scaleTargetRef: {}}"],
        expect![[r#"
        spec: {maxReplicas: 0, scaleTargetRef: {}}
            spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`
            spec.maxReplicas: Required value
    "#]],
    );
    check(
        LEVEL,
        &["spec: {type: ''}", "spec: {limited: {limitResponse: {type: '', queuing: {queues: 1}}}}"],
        expect![[r#"
            spec: {type: ''}
                spec.limited: Forbidden
                spec.type: Required value
            spec: {limited: {limitResponse: {type: '', queuing: {queues: 1}}}}
                spec.limited.limitResponse.queuing: Forbidden
                spec.limited.limitResponse.type: Required value
        "#]],
    );
    check(
        CONTROLLER,
        &["spec: {replicas: -1, minReadySeconds: -1, selector: null}"],
        expect![[r#"
            spec: {replicas: -1, minReadySeconds: -1, selector: null}
                spec.replicas: Invalid value: -1: must be greater than or equal to 0
                spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0
        "#]],
    );
}

#[test]
fn nothing_is_told_twice() {
    check(
        POD,
        &["metadata: {finalizers: ['a b', 'a b']}"],
        expect![[r#"
        metadata: {finalizers: ['a b', 'a b']}
            metadata.finalizers: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            metadata.finalizers[0]: Invalid value: "a b": name is neither a standard finalizer name nor is it fully qualified
            metadata.finalizers[1]: Invalid value: "a b": name is neither a standard finalizer name nor is it fully qualified
    "#]],
    );
}

#[test]
fn each_kind_asks_its_own_of_metadata() {
    let odd = "metadata: {finalizers: [x], generateName: 'A b'}";
    check(
        LEASE,
        &[odd],
        expect![[r#"
        metadata: {finalizers: [x], generateName: 'A b'}
            metadata.generateName: Invalid value: "A b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
    "#]],
    );
    check(
        BUDGET,
        &[odd, "metadata: {name: A_b}"],
        expect![[r#"
        metadata: {finalizers: [x], generateName: 'A b'}
            fine
        metadata: {name: A_b}
            fine
    "#]],
    );
    check(
        CONTROLLER,
        &[odd],
        expect![[r#"
        metadata: {finalizers: [x], generateName: 'A b'}
            metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified
    "#]],
    );
    check_update(
        POD,
        Part::Main,
        &[odd],
        expect![[r#"
        metadata: {finalizers: [x], generateName: 'A b'}
            metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified
            metadata.generateName: Invalid value: "A b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
    "#]],
    );
}
