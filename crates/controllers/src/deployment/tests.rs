use super::*;
use crate::testing::{check_row, check_run};
use expect_test::{Expect, expect};

fn check(world: &str, expect: Expect) {
    check_row(&CONTROLLER, world, &["default/web"], expect);
}

/// An older template than the deployment's.
const OLD: &str = "spec.template.spec.hostname=old";

#[test]
fn a_deployment_gets_the_set_of_its_template() {
    check(
        "deployment web replicas=3 spec.progressDeadlineSeconds=600",
        expect![[r#"
            create replicasets.apps web-cbb89b784 replicas=3
            event ScalingReplicaSet Scaled up replica set web-cbb89b784 from 0 to 3
            update deployments.apps/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Created new replica set \"web-cbb89b784\"","reason":"NewReplicaSetCreated","status":"True","type":"Progressing"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"}],"observedGeneration":1,"unavailableReplicas":3}
            again after 601s
        "#]],
    );
}

#[test]
fn a_rollout_makes_as_many_as_may_be_too_many() {
    let rolling = "spec.strategy={\"type\":\"RollingUpdate\",\"rollingUpdate\":{\"maxSurge\":1,\"maxUnavailable\":1}}";
    check(
        &format!(
            "deployment web replicas=3 {rolling}
             replicaset web-1 owner=deployment/web replicas=3 {OLD} status={{\"replicas\":3,\"availableReplicas\":3}} annotation:deployment.kubernetes.io/revision=\"4\""
        ),
        expect![[r#"
            create replicasets.apps web-cbb89b784 replicas=1
            event ScalingReplicaSet Scaled up replica set web-cbb89b784 from 0 to 1
            update deployments.apps/status web {"availableReplicas":3,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"}],"observedGeneration":1,"replicas":3,"unavailableReplicas":1}
        "#]],
    );
    // All new ones that may be are there: two old ones go, as one may be missing.
    check(
        &format!(
            "deployment web replicas=3 {rolling}
             replicaset web-1 owner=deployment/web replicas=3 {OLD} status={{\"replicas\":3,\"availableReplicas\":3}}
             replicaset web-2 owner=deployment/web replicas=1 status={{\"replicas\":1,\"availableReplicas\":1}} annotation:deployment.kubernetes.io/revision=\"1\""
        ),
        expect![[r#"
            update replicasets.apps web-1 replicas=1
            event ScalingReplicaSet Scaled down replica set web-1 from 3 to 1
            update deployments.apps/status web {"availableReplicas":4,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"}],"observedGeneration":1,"replicas":4,"updatedReplicas":1}
        "#]],
    );
    // A new one that is not available costs none of the old ones that are.
    check(
        &format!(
            "deployment web replicas=3 {rolling}
             replicaset web-1 owner=deployment/web replicas=2 {OLD} status={{\"replicas\":2,\"availableReplicas\":2}}
             replicaset web-2 owner=deployment/web replicas=2 status={{\"replicas\":2}} annotation:deployment.kubernetes.io/revision=\"1\""
        ),
        expect![[r#"
            update deployments.apps/status web {"availableReplicas":2,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"}],"observedGeneration":1,"replicas":4,"unavailableReplicas":2,"updatedReplicas":2}
        "#]],
    );
}

#[test]
fn recreate_waits_for_the_last_old_pod() {
    let world = "deployment web replicas=2 spec.strategy.type=Recreate";
    check(
        &format!("{world}\n replicaset web-1 owner=deployment/web replicas=2 {OLD}"),
        expect![[r#"
            update replicasets.apps web-1 replicas=0
            event ScalingReplicaSet Scaled down replica set web-1 from 2 to 0
            update deployments.apps/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"}],"observedGeneration":1}
        "#]],
    );
    check(
        &format!(
            "{world}
             replicaset web-1 owner=deployment/web replicas=0 {OLD}
             pod web-1-a owner=replicaset/web-1 deleting finalizers=x"
        ),
        expect![[r#"
            update deployments.apps/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"}],"observedGeneration":1}
        "#]],
    );
    check(
        &format!("{world}\n replicaset web-1 owner=deployment/web replicas=0 {OLD}"),
        expect![[r#"
            create replicasets.apps web-cbb89b784 replicas=2
            event ScalingReplicaSet Scaled up replica set web-cbb89b784 from 0 to 2
            update deployments.apps/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"}],"observedGeneration":1,"unavailableReplicas":2}
        "#]],
    );
}

#[test]
fn a_new_size_is_shared_out_in_proportion() {
    let sizes = "annotation:deployment.kubernetes.io/desired-replicas=\"10\" annotation:deployment.kubernetes.io/max-replicas=\"13\"";
    check(
        &format!(
            "deployment web replicas=20 spec.strategy={{\"rollingUpdate\":{{\"maxSurge\":3,\"maxUnavailable\":2}}}}
             replicaset web-1 owner=deployment/web replicas=8 {OLD} {sizes}
             replicaset web-2 owner=deployment/web replicas=5 annotation:deployment.kubernetes.io/revision=\"1\" {sizes}"
        ),
        expect![[r#"
            update replicasets.apps web-1 replicas=14
            event ScalingReplicaSet Scaled up replica set web-1 from 8 to 14
            update replicasets.apps web-2 replicas=9
            event ScalingReplicaSet Scaled up replica set web-2 from 5 to 9
            update deployments.apps/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"}],"observedGeneration":1,"unavailableReplicas":23}
        "#]],
    );
}

#[test]
fn no_progress_for_too_long_is_said() {
    let said = |ago: &str| {
        format!(
            "deployment web replicas=1 spec.progressDeadlineSeconds=60 annotation:deployment.kubernetes.io/revision=\"1\" \
             status={{\"replicas\":1,\"updatedReplicas\":1,\"unavailableReplicas\":1,\"observedGeneration\":1,\"conditions\":[{{\"type\":\"Progressing\",\"status\":\"True\",\"reason\":\"ReplicaSetUpdated\",\"lastUpdateTime\":\"{ago}\",\"lastTransitionTime\":\"{ago}\"}}]}}
             replicaset web-1 owner=deployment/web replicas=1 status.replicas=1 annotation:deployment.kubernetes.io/revision=\"1\""
        )
    };
    check(
        &said("2026-01-01T11:58:00Z"),
        expect![[r#"
        update deployments.apps/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"ReplicaSet \"web-1\" has timed out progressing.","reason":"ProgressDeadlineExceeded","status":"False","type":"Progressing"}],"observedGeneration":1,"replicas":1,"unavailableReplicas":1,"updatedReplicas":1}
    "#]],
    );
    check(
        &said("2026-01-01T11:59:30Z"),
        expect![[r#"
        update deployments.apps/status web {"conditions":[{"lastTransitionTime":"2026-01-01T11:59:30Z","lastUpdateTime":"2026-01-01T11:59:30Z","reason":"ReplicaSetUpdated","status":"True","type":"Progressing"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"}],"observedGeneration":1,"replicas":1,"unavailableReplicas":1,"updatedReplicas":1}
        again after 31s
    "#]],
    );
}

#[test]
fn old_sets_beyond_the_limit_go_when_all_is_done() {
    check(
        &format!(
            "deployment web replicas=1 spec.revisionHistoryLimit=1 status={{\"replicas\":1,\"updatedReplicas\":1,\"availableReplicas\":1,\"observedGeneration\":1}}
             replicaset web-1 owner=deployment/web replicas=0 {OLD} status.observedGeneration=1 annotation:deployment.kubernetes.io/revision=\"1\"
             replicaset web-2 owner=deployment/web replicas=0 {OLD} status.observedGeneration=1 annotation:deployment.kubernetes.io/revision=\"2\"
             replicaset web-3 owner=deployment/web replicas=1 status={{\"replicas\":1,\"availableReplicas\":1}} annotation:deployment.kubernetes.io/revision=\"3\""
        ),
        expect![[r#"
            delete replicasets.apps default/web-1
            update deployments.apps/status web {"availableReplicas":1,"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"}],"observedGeneration":1,"replicas":1,"updatedReplicas":1}
        "#]],
    );
}

#[test]
fn a_paused_deployment_is_scaled_and_nothing_else() {
    check(
        &format!(
            "deployment web replicas=5 spec.paused=true spec.progressDeadlineSeconds=600
             replicaset web-1 owner=deployment/web replicas=2 {OLD}"
        ),
        expect![[r#"
            update replicasets.apps web-1 replicas=5
            event ScalingReplicaSet Scaled up replica set web-1 from 2 to 5
            update deployments.apps/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment is paused","reason":"DeploymentPaused","status":"Unknown","type":"Progressing"},{"lastTransitionTime":"2026-01-01T12:00:00Z","lastUpdateTime":"2026-01-01T12:00:00Z","message":"Deployment does not have minimum availability.","reason":"MinimumReplicasUnavailable","status":"False","type":"Available"}],"observedGeneration":1,"unavailableReplicas":5}
        "#]],
    );
}

#[test]
fn it_comes_to_rest() {
    check_run(
        &CONTROLLER,
        "deployment web replicas=3",
        expect![[r#"
            create replicasets.apps default/web-cbb89b784
            update deployments.apps/status default/web
            create events default/web.1886999c36a18000
            update deployments.apps/status default/web
        "#]],
    );
}

#[test]
fn an_annotation_asks_for_an_earlier_revision() {
    let set = |revision: i32, image: &str| {
        format!(
            "replicaset web-{revision} owner=deployment/web annotation:deployment.kubernetes.io/revision=\"{revision}\" spec.template.spec.containers=[{{\"name\":\"c\",\"image\":\"{image}\"}}]\n"
        )
    };
    let world = |to: i32| {
        format!(
            "deployment web annotation:deprecated.deployment.rollback.to=\"{to}\"\n{}{}{}",
            set(1, "first"),
            set(2, "second"),
            set(3, "i")
        )
    };
    check(
        &world(0),
        expect![[r#"
        event DeploymentRollback Rolled back deployment "web" to revision 2
        update deployments.apps web
    "#]],
    );
    check(
        &world(1),
        expect![[r#"
        event DeploymentRollback Rolled back deployment "web" to revision 1
        update deployments.apps web
    "#]],
    );
    check(
        &world(3),
        expect![[r#"
        event DeploymentRollbackTemplateUnchanged The rollback revision contains the same template as current deployment "web"
        update deployments.apps web
    "#]],
    );
    check(
        &world(7),
        expect![[r#"
        event DeploymentRollbackRevisionNotFound Unable to find the revision to rollback to.
        update deployments.apps web
    "#]],
    );
}
