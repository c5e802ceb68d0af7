use super::*;
use crate::testing::{check_keys, check_run, key_of};
use expect_test::{Expect, expect};

fn check(world: &str, key: Key, expect: Expect) {
    check_keys(&CONTROLLER, world, &[key], expect);
}

fn pod(world: &str, expect: Expect) {
    check(world, Key::Pod(key_of("default/p")), expect);
}

fn claim(world: &str, expect: Expect) {
    check(world, Key::Claim(key_of("default/c")), expect);
}

const ASKS: &str = "spec.resourceClaims=[{\"name\":\"gpu\",\"resourceClaimTemplateName\":\"t\"}]";
const NOTED: &str = "status.resourceClaimStatuses=[{\"name\":\"gpu\",\"resourceClaimName\":\"c\"}]";
const FOR_IT: &str = "owner=pod/p annotation:resource.kubernetes.io/pod-claim-name=gpu";

#[test]
fn a_claim_is_made_from_the_template_and_noted() {
    pod(
        &format!("pod p {ASKS}\n resourceclaimtemplate t"),
        expect![[r#"
        try to create resourceclaims.resource.k8s.io 
    "#]],
    );
    pod(
        &format!("pod p {ASKS}"),
        expect![[r#"
        event FailedResourceClaimCreation PodResourceClaim gpu: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found
    "#]],
    );
    pod(
        &format!("pod p {ASKS}\n resourceclaimtemplate t\n resourceclaim c {FOR_IT}"),
        expect![[r#"
            patch pods/status p {"metadata":{"uid":"p-uid"},"status":{"resourceClaimStatuses":[{"name":"gpu","resourceClaimName":"c"}]}}
        "#]],
    );
    pod(
        &format!("pod p {ASKS} {NOTED}\n resourceclaimtemplate t\n resourceclaim c {FOR_IT}"),
        expect![[""]],
    );
    // Somebody has taken it away.
    pod(
        &format!("pod p {ASKS} {NOTED}\n resourceclaimtemplate t"),
        expect![[r#"
        try to create resourceclaims.resource.k8s.io 
    "#]],
    );
}

const ALLOCATED: &str = "finalizers=resource.kubernetes.io/delete-protection status.allocation.allocationTimestamp=2026-01-01T00:00:00Z";
const FOR_P: &str = "status.reservedFor=[{\"resource\":\"pods\",\"name\":\"p\",\"uid\":\"p-uid\"}]";

#[test]
fn a_pod_that_has_a_node_reserves_what_is_allocated() {
    pod(
        &format!("pod p node=n {ASKS} {NOTED}\n resourceclaim c {FOR_IT} {ALLOCATED}"),
        expect![[r#"
            update resourceclaims.resource.k8s.io/status c {"allocation":{"allocationTimestamp":"2026-01-01T00:00:00Z"},"reservedFor":[{"name":"p","resource":"pods","uid":"p-uid"}]}
        "#]],
    );
    pod(
        &format!("pod p node=n {ASKS} {NOTED}\n resourceclaim c {FOR_IT} {ALLOCATED} {FOR_P}"),
        expect![[""]],
    );
}

#[test]
fn a_claim_that_nobody_holds_is_free() {
    // Its pod runs; it is over; there is another; nobody has heard of it.
    claim(&format!("pod p node=n\n resourceclaim c {ALLOCATED} {FOR_P}"), expect![[""]]);
    claim(
        &format!("pod p phase=Succeeded\n resourceclaim c {ALLOCATED} {FOR_P}"),
        expect![[r#"
            try to update resourceclaims.resource.k8s.io/status c
        "#]],
    );
    claim(
        &format!("resourceclaim c {ALLOCATED} {FOR_P}"),
        expect![[r#"
        gather 1 lists
    "#]],
    );
    claim("resourceclaim c finalizers=resource.kubernetes.io/delete-protection", expect![""]);
    claim(
        &format!("resourceclaim c deleting {ALLOCATED}"),
        expect![[r#"
            try to update resourceclaims.resource.k8s.io/status c
        "#]],
    );
    claim(&format!("resourceclaim c {ALLOCATED}"), expect![[""]]);
}

#[test]
fn what_is_freed_is_protected_no_more() {
    check_run(
        &CONTROLLER,
        &format!("pod p phase=Succeeded\n resourceclaim c {ALLOCATED} {FOR_P}"),
        expect![[r#"
            update resourceclaims.resource.k8s.io/status default/c
            update resourceclaims.resource.k8s.io default/c
        "#]],
    );
}

#[test]
fn a_claim_of_a_pod_that_is_over_goes() {
    claim(
        &format!("pod p phase=Failed\n resourceclaim c {FOR_IT}"),
        expect![[r#"
        delete resourceclaims.resource.k8s.io default/c
    "#]],
    );
    claim(&format!("pod p node=n\n resourceclaim c {FOR_IT}"), expect![[""]]);
}
