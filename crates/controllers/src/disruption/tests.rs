use super::*;
use crate::testing::check_keys;
use expect_test::{Expect, expect};

fn check(world: &str, expect: Expect) {
    let key = Key::Budget(NamespacedName::new("default", "web"));
    check_keys(&CONTROLLER, world, &[key], expect);
}

const BUDGET: &str = "poddisruptionbudget web spec.selector.matchLabels.app=web";
const PODS: &str = "replicaset web replicas=4
    pod a owner=replicaset/web ready
    pod b owner=replicaset/web ready
    pod c owner=replicaset/web ready
    pod d owner=replicaset/web phase=Pending";

#[test]
fn what_is_well_beyond_what_is_wanted_may_go() {
    check(
        &format!("{BUDGET} spec.minAvailable=2\n {PODS}"),
        expect![[r#"
        update poddisruptionbudgets.policy/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"SufficientPods","status":"True","type":"DisruptionAllowed"}],"currentHealthy":3,"desiredHealthy":2,"disruptionsAllowed":1,"expectedPods":4,"observedGeneration":1}
    "#]],
    );
    check(
        &format!("{BUDGET} spec.minAvailable=\"50%\"\n {PODS}"),
        expect![[r#"
        update poddisruptionbudgets.policy/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"SufficientPods","status":"True","type":"DisruptionAllowed"}],"currentHealthy":3,"desiredHealthy":2,"disruptionsAllowed":1,"expectedPods":4,"observedGeneration":1}
    "#]],
    );
    check(
        &format!("{BUDGET} spec.maxUnavailable=1\n {PODS}"),
        expect![[r#"
        update poddisruptionbudgets.policy/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"InsufficientPods","status":"False","type":"DisruptionAllowed"}],"currentHealthy":3,"desiredHealthy":3,"disruptionsAllowed":0,"expectedPods":4,"observedGeneration":1}
    "#]],
    );
}

#[test]
fn a_deployments_pods_are_as_many_as_it_wants() {
    check(
        &format!(
            "{BUDGET} spec.maxUnavailable=\"20%\"
             deployment all replicas=10
             replicaset web replicas=3 owner=deployment/all
             replicaset new replicas=7 owner=deployment/all
             pod a owner=replicaset/web ready
             pod b owner=replicaset/new ready"
        ),
        expect![[r#"
            update poddisruptionbudgets.policy/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"InsufficientPods","status":"False","type":"DisruptionAllowed"}],"currentHealthy":2,"desiredHealthy":8,"disruptionsAllowed":0,"expectedPods":10,"observedGeneration":1}
        "#]],
    );
}

#[test]
fn who_cannot_count_allows_nothing() {
    check(
        &format!("{BUDGET} spec.maxUnavailable=1\n pod a owner=daemonset/web ready"),
        expect![[r#"
            event CalculateExpectedPodCountFailed Failed to calculate the number of expected pods: daemonsets.apps does not implement the scale subresource
            update poddisruptionbudgets.policy/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"daemonsets.apps does not implement the scale subresource","reason":"SyncFailed","status":"False","type":"DisruptionAllowed"}],"disruptionsAllowed":0}
            again after 30s
        "#]],
    );
    check(
        &format!("{BUDGET} spec.maxUnavailable=1\n pod a ready"),
        expect![[r#"
            event UnmanagedPods Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.
            update poddisruptionbudgets.policy/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"InsufficientPods","status":"False","type":"DisruptionAllowed"}],"currentHealthy":1,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0,"observedGeneration":1}
        "#]],
    );
    check(
        "poddisruptionbudget web spec.minAvailable=1",
        expect![[r#"
        event NoPods No matching pods found
        update poddisruptionbudgets.policy/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"InsufficientPods","status":"False","type":"DisruptionAllowed"}],"currentHealthy":0,"desiredHealthy":1,"disruptionsAllowed":0,"expectedPods":0,"observedGeneration":1}
    "#]],
    );
}

#[test]
fn an_evicted_pod_is_waited_for() {
    let evicted = |at: &str| format!("status.disruptedPods.a=2026-01-01T{at}Z");
    let pods = "pod a ready\n pod b ready";
    for at in ["11:59:00", "11:50:00"] {
        let world = format!("{BUDGET} spec.minAvailable=1 {}\n {pods}", evicted(at));
        check(
            &world,
            if at == "11:59:00" {
                expect![[r#"
            update poddisruptionbudgets.policy/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"InsufficientPods","status":"False","type":"DisruptionAllowed"}],"currentHealthy":1,"desiredHealthy":1,"disruptedPods":{"a":"2026-01-01T11:59:00Z"},"disruptionsAllowed":0,"expectedPods":2,"observedGeneration":1}
            again after 60s
        "#]]
            } else {
                expect![[r#"
            event NotDeleted Pod was expected by PDB default/default to be deleted but it wasn't
            update poddisruptionbudgets.policy/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","observedGeneration":1,"reason":"SufficientPods","status":"True","type":"DisruptionAllowed"}],"currentHealthy":2,"desiredHealthy":1,"disruptionsAllowed":1,"expectedPods":2,"observedGeneration":1}
        "#]]
            },
        );
    }
}

#[test]
fn a_pod_that_was_not_disrupted_says_so() {
    let condition = |at: &str| {
        format!(
            "status.conditions=[{{\"type\":\"DisruptionTarget\",\"status\":\"True\",\"lastTransitionTime\":\"2026-01-01T{at}Z\"}}]"
        )
    };
    let keys = ["young", "old"].map(|name| Key::Pod(NamespacedName::new("default", name)));
    check_keys(
        &CONTROLLER,
        &format!("pod young {}\n pod old {}", condition("11:59:00"), condition("11:50:00")),
        &keys,
        expect![[r#"
            again after 60s
            update pods/status old {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","status":"False","type":"DisruptionTarget"}],"phase":"Running"}
        "#]],
    );
}
