use super::*;
use crate::testing::{check_row, check_run};
use expect_test::{Expect, expect};

fn check(world: &str, expect: Expect) {
    check_row(&CONTROLLER, world, &["default/web"], expect);
}

const CLAIMS: &str = "spec.volumeClaimTemplates=[{\"metadata\":{\"name\":\"www\"},\"spec\":{}}]";

#[test]
fn the_first_is_made_with_its_claim_and_the_others_wait() {
    check(
        &format!("statefulset web replicas=3 spec.serviceName=web {CLAIMS}"),
        expect![[r#"
            update statefulsets.apps/status web {"availableReplicas":0,"collisionCount":0,"currentRevision":"web-845f8bcf98","observedGeneration":1,"replicas":0,"updateRevision":"web-845f8bcf98"}
            create controllerrevisions.apps web-845f8bcf98
            create persistentvolumeclaims www-web-0
            event SuccessfulCreate Create Claim www-web-0 Pod web-0 in StatefulSet web success
            create pods web-0
            event SuccessfulCreate Create Pod web-0 in StatefulSet web successful
        "#]],
    );
}

#[test]
fn the_next_is_made_when_its_predecessor_is_ready() {
    check(
        "statefulset web replicas=3\n pod web-0 owner=statefulset/web phase=Pending",
        expect![[r#"
            update statefulsets.apps/status web {"availableReplicas":0,"collisionCount":0,"currentRevision":"web-845f8bcf98","observedGeneration":1,"replicas":1,"updateRevision":"web-845f8bcf98"}
            create controllerrevisions.apps web-845f8bcf98
        "#]],
    );
    check(
        "statefulset web replicas=3\n pod web-0 owner=statefulset/web ready",
        expect![[r#"
            update statefulsets.apps/status web {"availableReplicas":1,"collisionCount":0,"currentRevision":"web-845f8bcf98","observedGeneration":1,"readyReplicas":1,"replicas":1,"updateRevision":"web-845f8bcf98"}
            create controllerrevisions.apps web-845f8bcf98
            update pods web-0
            create pods web-1
            event SuccessfulCreate Create Pod web-1 in StatefulSet web successful
        "#]],
    );
}

#[test]
fn in_parallel_all_are_made_at_once() {
    check(
        "statefulset web replicas=3 spec.podManagementPolicy=Parallel spec.ordinals.start=5",
        expect![[r#"
            update statefulsets.apps/status web {"availableReplicas":0,"collisionCount":0,"currentRevision":"web-845f8bcf98","observedGeneration":1,"replicas":0,"updateRevision":"web-845f8bcf98"}
            create controllerrevisions.apps web-845f8bcf98
            create pods web-5
            event SuccessfulCreate Create Pod web-5 in StatefulSet web successful
            create pods web-6
            event SuccessfulCreate Create Pod web-6 in StatefulSet web successful
            create pods web-7
            event SuccessfulCreate Create Pod web-7 in StatefulSet web successful
        "#]],
    );
}

#[test]
fn the_last_goes_first_and_only_if_the_others_are_well() {
    let pods = "pod web-0 owner=statefulset/web ready
                pod web-1 owner=statefulset/web ready
                pod web-2 owner=statefulset/web ready";
    check(
        &format!("statefulset web replicas=1\n{pods}"),
        expect![[r#"
            update statefulsets.apps/status web {"availableReplicas":3,"collisionCount":0,"currentRevision":"web-845f8bcf98","observedGeneration":1,"readyReplicas":3,"replicas":3,"updateRevision":"web-845f8bcf98"}
            create controllerrevisions.apps web-845f8bcf98
            update pods web-0
            delete pods default/web-2
            event SuccessfulDelete Delete Pod web-2 in StatefulSet web successful
        "#]],
    );
    check(
        "statefulset web replicas=1
         pod web-0 owner=statefulset/web phase=Pending
         pod web-1 owner=statefulset/web ready",
        expect![[r#"
            update statefulsets.apps/status web {"availableReplicas":1,"collisionCount":0,"currentRevision":"web-845f8bcf98","observedGeneration":1,"readyReplicas":1,"replicas":2,"updateRevision":"web-845f8bcf98"}
            create controllerrevisions.apps web-845f8bcf98
        "#]],
    );
}

#[test]
fn what_has_ended_is_made_again() {
    check(
        "statefulset web replicas=1\n pod web-0 owner=statefulset/web phase=Failed",
        expect![[r#"
            update statefulsets.apps/status web {"availableReplicas":0,"collisionCount":0,"currentRevision":"web-845f8bcf98","observedGeneration":1,"replicas":1,"updateRevision":"web-845f8bcf98"}
            create controllerrevisions.apps web-845f8bcf98
            delete pods default/web-0
            event SuccessfulDelete Delete Pod web-0 in StatefulSet web successful
        "#]],
    );
}

#[test]
fn a_new_template_rolls_from_the_top_to_the_partition() {
    let world = |strategy: &str| {
        format!(
            "statefulset web replicas=3 status.currentRevision=web-old {strategy}
             controllerrevision web-old owner=statefulset/web revision=1 data={{\"spec\":{{\"template\":{{\"metadata\":{{}},\"spec\":{{\"containers\":[]}}}}}}}}
             pod web-0 owner=statefulset/web ready label:controller-revision-hash=web-old
             pod web-1 owner=statefulset/web ready label:controller-revision-hash=web-old
             pod web-2 owner=statefulset/web ready label:controller-revision-hash=web-old"
        )
    };
    check(
        &world(""),
        expect![[r#"
            update statefulsets.apps/status web {"availableReplicas":3,"collisionCount":0,"currentReplicas":3,"currentRevision":"web-old","observedGeneration":1,"readyReplicas":3,"replicas":3,"updateRevision":"web-845f8bcf98"}
            create controllerrevisions.apps web-845f8bcf98
            update pods web-0
            update pods web-1
            update pods web-2
            delete pods default/web-2
            event SuccessfulDelete Delete Pod web-2 in StatefulSet web successful
        "#]],
    );
    check(
        &world("spec.updateStrategy={\"rollingUpdate\":{\"partition\":1,\"maxUnavailable\":5}}"),
        expect![[r#"
            update statefulsets.apps/status web {"availableReplicas":3,"collisionCount":0,"currentReplicas":3,"currentRevision":"web-old","observedGeneration":1,"readyReplicas":3,"replicas":3,"updateRevision":"web-845f8bcf98"}
            create controllerrevisions.apps web-845f8bcf98
            update pods web-0
            update pods web-1
            update pods web-2
            delete pods default/web-2
            event SuccessfulDelete Delete Pod web-2 in StatefulSet web successful
            delete pods default/web-1
            event SuccessfulDelete Delete Pod web-1 in StatefulSet web successful
        "#]],
    );
    check(
        &world("spec.updateStrategy={\"type\":\"OnDelete\"}"),
        expect![[r#"
            update statefulsets.apps/status web {"availableReplicas":3,"collisionCount":0,"currentReplicas":3,"currentRevision":"web-old","observedGeneration":1,"readyReplicas":3,"replicas":3,"updateRevision":"web-845f8bcf98"}
            create controllerrevisions.apps web-845f8bcf98
            update pods web-0
            update pods web-1
            update pods web-2
        "#]],
    );
}

#[test]
fn claims_go_with_whom_the_set_says() {
    check(
        &format!(
            "statefulset web replicas=1 {CLAIMS} spec.persistentVolumeClaimRetentionPolicy={{\"whenDeleted\":\"Delete\",\"whenScaled\":\"Delete\"}}
             pod web-0 owner=statefulset/web ready
             pod web-1 owner=statefulset/web ready
             persistentvolumeclaim www-web-0
             persistentvolumeclaim www-web-1"
        ),
        expect![[r#"
            update statefulsets.apps/status web {"availableReplicas":2,"collisionCount":0,"currentRevision":"web-845f8bcf98","observedGeneration":1,"readyReplicas":2,"replicas":2,"updateRevision":"web-845f8bcf98"}
            create controllerrevisions.apps web-845f8bcf98
            update persistentvolumeclaims www-web-0
            update pods web-0
            update persistentvolumeclaims www-web-1
            delete pods default/web-1
            event SuccessfulDelete Delete Pod web-1 in StatefulSet web successful
        "#]],
    );
}

#[test]
fn a_set_comes_to_rest() {
    check_run(
        &CONTROLLER,
        "statefulset web replicas=2 spec.podManagementPolicy=Parallel",
        expect![[r#"
            update statefulsets.apps/status default/web
            create controllerrevisions.apps default/web-845f8bcf98
            create pods default/web-0
            create pods default/web-1
            create events default/web.1886999c36a18000
            create events default/web.1886999c36a18000
            update statefulsets.apps/status default/web
        "#]],
    );
}
