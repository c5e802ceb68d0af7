//! Lists and maps given empty: told from none until the object is stored.
use super::{POD, check, check_stored, check_update};
use crate::rules::Part;
use expect_test::expect;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: default}
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}}";
const AUTOSCALER: &str = "
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: a, namespace: default}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}";
const SLICE: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a}
spec: {driver: a.b, allNodes: true, pool: {name: p, generation: 1, resourceSliceCount: 1}, devices: [{name: d}]}";
const POLICY: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a, namespace: default}
spec: {podSelector: {}, policyTypes: [Ingress]}";

#[test]
fn what_is_shown_is_what_was_given() {
    check(
        DEPLOYMENT,
        &[
            "spec: {template: {metadata: {labels: null}}}",
            "spec: {template: {metadata: {labels: {a: null}}}}",
        ],
        expect![[r#"
            spec: {template: {metadata: {labels: null}}}
                spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`
            spec: {template: {metadata: {labels: {a: null}}}}
                spec.template.metadata.labels: Invalid value: {}: `selector` does not match template `labels`
        "#]],
    );
    check_update(
        DEPLOYMENT,
        Part::Main,
        &["spec: {selector: {matchLabels: {a: null}}}"],
        expect![[r#"
            spec: {selector: {matchLabels: {a: null}}}
                spec.selector: Invalid value: {}: empty selector is invalid for deployment
                spec.selector: Invalid value: {}: field is immutable
        "#]],
    );
}

#[test]
fn rules_that_ask_for_nothing_given() {
    check(
        AUTOSCALER,
        &["spec: {behavior: {scaleUp: {}}}", "spec: {behavior: {scaleUp: {policies: []}}}"],
        expect![[r#"
            spec: {behavior: {scaleUp: {}}}
                fine
            spec: {behavior: {scaleUp: {policies: []}}}
                spec.behavior.scaleUp.policies: Required value: must specify at least one Policy
        "#]],
    );
    check(
        SLICE,
        &["spec: {sharedCounters: []}"],
        expect![[r#"
        spec: {sharedCounters: []}
            spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed
    "#]],
    );
}

#[test]
fn what_is_stored_has_none() {
    check_stored(
        "
        apiVersion: v1
        kind: Pod
        metadata: {name: a, namespace: default, labels: {}, finalizers: []}
        spec: {containers: [{name: c, image: 'x:1', args: [], env: [], resources: {limits: {}}}], nodeSelector: {}, tolerations: []}",
        expect![[r#"
            {
              "apiVersion": "v1",
              "kind": "Pod",
              "metadata": {
                "generation": 1,
                "name": "a"
              },
              "spec": {
                "containers": [
                  {
                    "image": "x:1",
                    "imagePullPolicy": "IfNotPresent",
                    "name": "c",
                    "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File"
                  }
                ],
                "dnsPolicy": "ClusterFirst",
                "enableServiceLinks": true,
                "restartPolicy": "Always",
                "schedulerName": "default-scheduler",
                "securityContext": {},
                "terminationGracePeriodSeconds": 30
              },
              "status": {
                "phase": "Pending",
                "qosClass": "BestEffort"
              }
            }"#]],
    );
}

#[test]
fn nothing_changes_by_it_but_where_upstream_counts_it() {
    check_update(
        POD,
        Part::Main,
        &["spec: {nodeSelector: {}, imagePullSecrets: []}"],
        expect![[r#"
            spec: {nodeSelector: {}, imagePullSecrets: []}
                fine
        "#]],
    );
    for (object, change) in [(POLICY, "spec: {ingress: []}"), (SLICE, "spec: {sharedCounters: []}")]
    {
        let generation = super::generation_after(object, change);
        assert_eq!(generation, if object == POLICY { 2 } else { 1 }, "{change}");
    }
}
