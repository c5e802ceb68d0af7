use super::*;
use crate::testing::{check_before, check_written};
use expect_test::expect;

#[test]
fn what_has_lost_its_owner_goes_and_what_has_one_stays() {
    check_written(
        &CONTROLLER,
        "replicaset web replicas=1
         pod web-a owner=replicaset/web
         pod old-a owner=replicaset/old
         pod other owner=replicaset/web/another-uid
         configmap both dependson=replicaset/web dependson=replicaset/old
         configmap free",
        expect![[r#"
            delete pods default/old-a
            delete pods default/other
            patch configmaps default/both
        "#]],
    );
}

#[test]
fn an_owner_in_the_foreground_goes_after_what_blocks_it() {
    const WORLD: &str = "deployment web deleting finalizers=foregroundDeletion
         replicaset web-1 owner=deployment/web
         pod web-1-a owner=replicaset/web-1
         pod web-1-b owner=replicaset/web-1
         configmap loose dependson=deployment/web";
    let last = "patch deployments.apps default/web";
    check_before(&CONTROLLER, WORLD, "delete replicasets.apps default/web-1", last);
    check_written(
        &CONTROLLER,
        WORLD,
        expect![[r#"
            delete configmaps default/loose
            delete pods default/web-1-a
            delete pods default/web-1-b
            delete replicasets.apps default/web-1
            patch deployments.apps default/web
        "#]],
    );
}

#[test]
fn orphans_forget_their_owner() {
    const WORLD: &str = "replicaset web deleting finalizers=orphan,mine
         pod web-a owner=replicaset/web
         pod web-b owner=replicaset/web";
    let last = "patch replicasets.apps default/web";
    for pod in ["web-a", "web-b"] {
        check_before(&CONTROLLER, WORLD, &format!("patch pods default/{pod}"), last);
    }
    check_written(
        &CONTROLLER,
        WORLD,
        expect![[r#"
            patch pods default/web-a
            patch pods default/web-b
            patch replicasets.apps default/web
        "#]],
    );
}

#[test]
fn a_circle_of_owners_comes_to_an_end() {
    check_written(
        &CONTROLLER,
        "configmap a blocks=configmap/b deleting finalizers=foregroundDeletion
         configmap b blocks=configmap/a",
        expect![[r#"
            delete configmaps default/b
            patch configmaps default/a
            patch configmaps default/b
        "#]],
    );
}
