use super::*;
use crate::testing::{check_row, check_run};
use expect_test::{Expect, expect};

fn check(world: &str, expect: Expect) {
    check_row(&CONTROLLER, world, &["default/web"], expect);
}

#[test]
fn every_node_gets_a_pod_that_it_may_have() {
    check(
        "daemonset web spec.template.spec.nodeSelector={\"disk\":\"ssd\"}
         node a label:disk=ssd
         node b
         node c label:disk=ssd spec.taints=[{\"key\":\"k\",\"effect\":\"NoSchedule\"}]
         node d label:disk=ssd spec.taints=[{\"key\":\"node.kubernetes.io/not-ready\",\"effect\":\"NoExecute\"}]",
        expect![[r#"
            update daemonsets.apps/status web {"currentNumberScheduled":0,"desiredNumberScheduled":2,"numberMisscheduled":0,"numberReady":0,"numberUnavailable":2,"observedGeneration":1}
            create controllerrevisions.apps web-6d9b7fcdcd
            create pods web-
            create pods web-
        "#]],
    );
}

#[test]
fn what_must_not_be_there_goes() {
    check(
        "daemonset web
         node a spec.taints=[{\"key\":\"k\",\"effect\":\"NoSchedule\"}]
         node b spec.taints=[{\"key\":\"k\",\"effect\":\"NoExecute\"}]
         node c
         pod web-a owner=daemonset/web node=a ready
         pod web-b owner=daemonset/web node=b ready
         pod web-c owner=daemonset/web node=c ready age=100
         pod web-d owner=daemonset/web node=c ready age=50",
        expect![[r#"
            update daemonsets.apps/status web {"currentNumberScheduled":1,"desiredNumberScheduled":1,"numberAvailable":1,"numberMisscheduled":2,"numberReady":1,"observedGeneration":1}
            create controllerrevisions.apps web-cbb89b784
            delete pods default/web-b
            delete pods default/web-d
        "#]],
    );
}

#[test]
fn what_has_ended_is_made_again_and_what_failed_at_once_later() {
    check(
        "daemonset web
         node a
         node b
         node c
         pod web-a owner=daemonset/web node=a phase=Failed
         pod web-b owner=daemonset/web node=b phase=Succeeded
         pod web-c owner=daemonset/web node=c phase=Failed age=20",
        expect![[r#"
            update daemonsets.apps/status web {"currentNumberScheduled":3,"desiredNumberScheduled":3,"numberMisscheduled":0,"numberReady":0,"numberUnavailable":3,"observedGeneration":1}
            create controllerrevisions.apps web-cbb89b784
            event FailedDaemonPod Found failed daemon pod default/web-a on node a, will try to kill it
            event SucceededDaemonPod Found succeeded daemon pod default/web-b on node b, will try to delete it
            delete pods default/web-a
            delete pods default/web-b
            again after 40s
        "#]],
    );
}

#[test]
fn old_pods_give_way_one_after_another() {
    let world = |strategy: &str, first: &str| {
        format!(
            "daemonset web {strategy}
             node a
             node b
             pod web-a owner=daemonset/web node=a {first}
             pod web-b owner=daemonset/web node=b ready"
        )
    };
    check(
        &world("", "ready"),
        expect![[r#"
            update daemonsets.apps/status web {"currentNumberScheduled":2,"desiredNumberScheduled":2,"numberAvailable":2,"numberMisscheduled":0,"numberReady":2,"observedGeneration":1}
            create controllerrevisions.apps web-cbb89b784
            delete pods default/web-a
        "#]],
    );
    check(
        &world("", "phase=Pending"),
        expect![[r#"
            update daemonsets.apps/status web {"currentNumberScheduled":2,"desiredNumberScheduled":2,"numberAvailable":1,"numberMisscheduled":0,"numberReady":1,"numberUnavailable":1,"observedGeneration":1}
            create controllerrevisions.apps web-cbb89b784
            delete pods default/web-a
        "#]],
    );
    check(
        &world("spec.updateStrategy={\"type\":\"OnDelete\"}", "ready"),
        expect![[r#"
            update daemonsets.apps/status web {"currentNumberScheduled":2,"desiredNumberScheduled":2,"numberAvailable":2,"numberMisscheduled":0,"numberReady":2,"observedGeneration":1}
            create controllerrevisions.apps web-cbb89b784
        "#]],
    );
    let surge = "spec.updateStrategy={\"rollingUpdate\":{\"maxSurge\":1,\"maxUnavailable\":0}}";
    check(
        &world(surge, "ready"),
        expect![[r#"
            update daemonsets.apps/status web {"currentNumberScheduled":2,"desiredNumberScheduled":2,"numberAvailable":2,"numberMisscheduled":0,"numberReady":2,"observedGeneration":1}
            create controllerrevisions.apps web-cbb89b784
            create pods web-
        "#]],
    );
}

#[test]
fn a_set_comes_to_rest() {
    check_run(
        &CONTROLLER,
        "daemonset web\n node a\n node b",
        expect![[r#"
            update daemonsets.apps/status default/web
            create controllerrevisions.apps default/web-cbb89b784
            create pods default/web-
            create pods default/web-
            create events default/web.1886999c36a18000
            create events default/web.1886999c36a18000
            update daemonsets.apps/status default/web
        "#]],
    );
}
