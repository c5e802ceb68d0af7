use super::*;
use crate::testing::{check_row, check_run};
use expect_test::{Expect, expect};

fn check(world: &str, expect: Expect) {
    check_row(&CONTROLLER, world, &["default/web"], expect);
}

#[test]
fn missing_pods_are_made() {
    check(
        "replicaset web replicas=2",
        expect![[r#"
        create pods web-
        create pods web-
        update replicasets.apps/status web {"observedGeneration":1,"replicas":0,"terminatingReplicas":0}
    "#]],
    );
}

#[test]
fn scale_down_takes_the_pending_pod_first() {
    check(
        "replicaset web replicas=1
         pod web-a owner=replicaset/web node=n ready
         pod web-b owner=replicaset/web phase=Pending",
        expect![[r#"
            delete pods default/web-b
            update replicasets.apps/status web {"availableReplicas":1,"fullyLabeledReplicas":2,"observedGeneration":1,"readyReplicas":1,"replicas":2,"terminatingReplicas":0}
        "#]],
    );
}

#[test]
fn of_ready_pods_the_cheap_then_the_crowded_then_the_young_go_first() {
    check(
        "replicaset web replicas=1
         pod web-a owner=replicaset/web node=n ready=5000 age=6000
         pod web-b owner=replicaset/web node=n ready=60 age=6000
         pod web-c owner=replicaset/web node=m ready=60 age=6000
         pod web-d owner=replicaset/web node=m ready=60
         pod web-e owner=replicaset/web node=o ready=9000 age=9999
         pod web-f owner=replicaset/web node=p ready=9000 annotation:controller.kubernetes.io/pod-deletion-cost=\"-5\"",
        expect![[r#"
            delete pods default/web-f
            delete pods default/web-d
            delete pods default/web-b
            delete pods default/web-c
            delete pods default/web-a
            update replicasets.apps/status web {"availableReplicas":6,"fullyLabeledReplicas":6,"observedGeneration":1,"readyReplicas":6,"replicas":6,"terminatingReplicas":0}
        "#]],
    );
}

#[test]
fn pods_that_nobody_has_are_adopted_and_strangers_released() {
    check(
        "replicaset web replicas=2
         pod web-a
         pod web-b owner=replicaset/web label:app=other
         pod web-c owner=replicaset/other/other
         pod web-d phase=Failed",
        expect![[r#"
            patch pods web-b {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"web-uid"}],"uid":"web-b-uid"}}
            look at replicasets.apps default/web
            create pods web-
            update replicasets.apps/status web {"fullyLabeledReplicas":1,"observedGeneration":1,"replicas":1,"terminatingReplicas":0}
        "#]],
    );
}

#[test]
fn a_set_that_is_deleted_says_what_there_is() {
    check(
        "replicaset web replicas=3 deleting finalizers=foregroundDeletion
         pod web-a owner=replicaset/web node=n ready
         pod web-b owner=replicaset/web node=n deleting finalizers=x",
        expect![[r#"
            update replicasets.apps/status web {"availableReplicas":1,"fullyLabeledReplicas":1,"observedGeneration":1,"readyReplicas":1,"replicas":1,"terminatingReplicas":1}
        "#]],
    );
}

#[test]
fn a_pod_is_available_when_it_was_ready_long_enough() {
    check(
        "replicaset web replicas=2 spec.minReadySeconds=30
         pod web-a owner=replicaset/web node=n ready=31
         pod web-b owner=replicaset/web node=n ready=10",
        expect![[r#"
            update replicasets.apps/status web {"availableReplicas":1,"fullyLabeledReplicas":2,"observedGeneration":1,"readyReplicas":2,"replicas":2,"terminatingReplicas":0}
            again after 20s
        "#]],
    );
}

#[test]
fn pods_are_made_once_and_the_status_follows() {
    check_run(
        &CONTROLLER,
        "replicaset web replicas=3",
        expect![[r#"
        create pods default/web-
        create pods default/web-
        create pods default/web-
        update replicasets.apps/status default/web
        create events default/web.1886999c36a18000
        create events default/web.1886999c36a18000
        create events default/web.1886999c36a18000
        update replicasets.apps/status default/web
    "#]],
    );
}
