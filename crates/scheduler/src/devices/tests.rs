//! Devices of claims, as data: a cluster, a pod that wants a claim `c`, and what it gets.
use crate::testing::{decide, refusal};
use expect_test::{Expect, expect};

/// Two devices on each of two nodes, of different models.
const TWO_NODES: &str = r#"node a
    node b
    slice pa node=a devices=[{"name":"a0","attributes":{"model":{"string":"old"},"numa":{"int":0}}},{"name":"a1","attributes":{"model":{"string":"old"},"numa":{"int":1}}}]
    slice pb node=b devices=[{"name":"b0","attributes":{"model":{"string":"new"},"numa":{"int":0}}},{"name":"b1","attributes":{"model":{"string":"new"},"numa":{"int":0}}}]
    deviceclass gpu selector=device.driver=="gpu.io"
"#;

const POD: &str = r#"p devices=[{"name":"gpu","resourceClaimName":"c"}]"#;

fn check(cluster: &str, expected: Expect) {
    expected.assert_eq(&decide(cluster, POD));
}

fn refused(cluster: &str, expected: Expect) {
    expected.assert_eq(&refusal(cluster, POD));
}

fn exactly(fields: &str) -> String {
    format!(r#"requests=[{{"name":"r","exactly":{{"deviceClassName":"gpu"{fields}}}}}]"#)
}

fn with(claim: &str) -> String {
    format!("{TWO_NODES}\ndeviceclaim c {claim}")
}

fn cel(expression: &str) -> String {
    format!(r#","selectors":[{{"cel":{{"expression":{expression:?}}}}}]"#)
}

#[test]
fn devices_are_chosen_by_selectors() {
    let new = cel(r#"device.attributes["gpu.io"].model == "new""#);
    check(&with(&exactly(&new)), expect!["on b c r:b0"]);
    let newest = cel(r#"device.attributes["gpu.io"].model == "newest""#);
    refused(
        &with(&exactly(&newest)),
        expect!["0/2 nodes are available: 2 cannot allocate all claims."],
    );
}

#[test]
fn a_selector_that_fails_fails_the_attempt() {
    check(
        &with(&exactly(&cel("device.size > 1"))),
        expect![[r#"
            error: running "DynamicResources" filter plugin: claim default/c: selector #0: CEL compile error: compilation failed: ERROR: <input>:1:7: undefined field 'size'
             | device.size > 1
             | ......^"#]],
    );
    let found = decide(&with(&exactly(&cel(r#"device.attributes["gpu.io"].x > 1"#))), POD);
    assert!(
        found.contains("CEL runtime error: no such key: x. consider using CEL optional chaining"),
        "{found}"
    );
}

#[test]
fn several_devices_or_all_of_a_node() {
    check(&with(&exactly(r#","count":2"#)).replace("node a\n", ""), expect!["on b c r:b0 r:b1"]);
    refused(
        &with(&exactly(r#","count":3"#)),
        expect!["0/2 nodes are available: 2 cannot allocate all claims."],
    );
    let new = cel(r#"device.attributes["gpu.io"].model == "new""#);
    let all = format!(r#","allocationMode":"All"{new}"#);
    check(&with(&exactly(&all)), expect!["on b c r:b0 r:b1"]);
}

#[test]
fn devices_of_a_claim_may_have_to_be_alike_or_to_differ() {
    let two = exactly(r#","count":2"#);
    let same = r#"constraints=[{"matchAttribute":"gpu.io/numa"}]"#;
    check(&with(&format!("{two} {same}")), expect!["on b c r:b0 r:b1"]);
    let apart = r#"constraints=[{"distinctAttribute":"gpu.io/numa"}]"#;
    check(&with(&format!("{two} {apart}")), expect!["on a c r:a0 r:a1"]);
}

#[test]
fn the_first_alternative_that_can_be_had_is_taken() {
    let sub = |name: &str, fields: &str| {
        format!(r#"{{"name":"{name}","deviceClassName":"gpu"{fields}}}"#)
    };
    let claim = |first: &str, second: &str| {
        with(&format!(r#"requests=[{{"name":"r","firstAvailable":[{first},{second}]}}]"#))
    };
    let newest = cel(r#"device.attributes["gpu.io"].model == "newest""#);
    let new = cel(r#"device.attributes["gpu.io"].model == "new""#);
    check(&claim(&sub("x", &newest), &sub("y", &new)), expect!["on b c r/y:b0"]);
    // A node that has the better one is the better one.
    check(&claim(&sub("x", &new), &sub("y", "")), expect!["on b c r/x:b0"]);
}

#[test]
fn what_is_taken_is_not_given_twice_unless_to_look_after_it() {
    let taken = r#"deviceclaim d results=[{"request":"r","driver":"gpu.io","pool":"pb","device":"b0"},{"request":"r","driver":"gpu.io","pool":"pb","device":"b1"},{"request":"r","driver":"gpu.io","pool":"pa","device":"a0"}]"#;
    check(&format!("{}\n{taken}", with(&exactly(""))), expect!["on a c r:a1"]);
    let admin = exactly(r#","adminAccess":true,"count":2"#);
    let cluster = format!("{}\n{taken}", with(&admin)).replace("node a\n", "");
    check(&cluster, expect!["on b c r:b0 r:b1"]);
}

#[test]
fn a_claim_that_is_named_twice_has_its_devices_once() {
    let cluster = with(&exactly(r#","count":2"#));
    let pod = r#"p devices=[{"name":"x","resourceClaimName":"c"},{"name":"y","resourceClaimName":"c"}] selector={"kubernetes.io/hostname":"b"}"#;
    expect!["on b c r:b0 r:b1"].assert_eq(&decide(&cluster, pod));
}

/// Before it is asked whether there is room on a device, constraints are: in the way of all, they are an error.
#[test]
fn a_constraint_in_the_way_of_all_devices_fails_the_attempt() {
    let shared = r#"node a
        slice p node=a devices=[{"name":"d","allowMultipleAllocations":true,"attributes":{"model":{"string":"m"}},"capacity":{"memory":{"value":"4Gi"}}}]
        deviceclass gpu selector=device.driver=="gpu.io"
        deviceclaim c constraints=[{"distinctAttribute":"gpu.io/model"}] requests=[{"name":"one","exactly":{"deviceClassName":"gpu"}},{"name":"all","exactly":{"deviceClassName":"gpu","allocationMode":"All","capacity":{"requests":{"memory":"1Gi"}}}}]"#;
    check(
        shared,
        expect![[
            r#"error: running "DynamicResources" filter plugin: claim default/c, request all: cannot add device gpu.io/p/d because a claim constraint would not be satisfied"#
        ]],
    );
}

#[test]
fn tainted_devices_are_for_those_who_tolerate_it() {
    let rule =
        r#"taintrule t spec.deviceSelector.pool=pb spec.taint={"key":"k","effect":"NoSchedule"}"#;
    let cluster = format!("{}\n{rule}", with(&exactly(r#","count":2"#)));
    check(&cluster, expect!["on a c r:a0 r:a1"]);
    let tolerant = exactly(r#","count":2,"tolerations":[{"key":"k","operator":"Exists"}]"#);
    let cluster = format!("{}\n{rule}", with(&tolerant)).replace("node a\n", "");
    check(&cluster, expect!["on b c r:b0 r:b1"]);
}

#[test]
fn partitions_share_counters() {
    let part = |name: &str, memory: &str| {
        format!(
            r#"{{"name":"{name}","consumesCounters":[{{"counterSet":"card","counters":{{"memory":{{"value":"{memory}"}}}}}}]}}"#
        )
    };
    let cluster = format!(
        r#"node a
        slice counters node=a spec.pool={{"name":"p","generation":1,"resourceSliceCount":2}} counters=[{{"name":"card","counters":{{"memory":{{"value":"40Gi"}}}}}}]
        slice devices node=a spec.pool={{"name":"p","generation":1,"resourceSliceCount":2}} devices=[{},{},{}]
        deviceclass gpu
        deviceclaim c {}"#,
        part("whole", "40Gi"),
        part("half-0", "20Gi"),
        part("half-1", "20Gi"),
        exactly(r#","count":2"#),
    );
    check(&cluster, expect!["on a c r:half-0 r:half-1"]);
    let taken =
        r#"deviceclaim d results=[{"request":"r","driver":"gpu.io","pool":"p","device":"half-0"}]"#;
    refused(
        &format!("{cluster}\n{taken}"),
        expect!["0/1 nodes are available: 1 cannot allocate all claims."],
    );
    // A slice of the pool is missing: nobody knows what it would say.
    let without = cluster.lines().filter(|line| !line.contains("slice counters"));
    refused(
        &without.collect::<Vec<_>>().join("\n"),
        expect!["0/1 nodes are available: 1 cannot allocate all claims."],
    );
}

#[test]
fn devices_that_are_shared_have_a_capacity_that_is_used_up() {
    let cluster = |asked: &str| {
        format!(
            r#"node a
            slice p node=a devices=[{{"name":"nic","allowMultipleAllocations":true,"capacity":{{"bandwidth":{{"value":"10","requestPolicy":{{"default":"1","validRange":{{"min":"1","step":"2"}}}}}}}}}}]
            deviceclass gpu
            deviceclaim c {}
            deviceclaim d results=[{{"request":"r","driver":"gpu.io","pool":"p","device":"nic","shareID":"s","consumedCapacity":{{"bandwidth":"5"}}}}]"#,
            exactly(&format!(r#","capacity":{{"requests":{{"bandwidth":"{asked}"}}}}"#))
        )
    };
    // Rounded up to a step.
    check(&cluster("2"), expect!["on a c r:nic(bandwidth 3)"]);
    check(&cluster("5"), expect!["on a c r:nic(bandwidth 5)"]);
    refused(&cluster("6"), expect!["0/1 nodes are available: 1 cannot allocate all claims."]);
}

#[test]
fn resources_that_devices_stand_for() {
    let cluster = TWO_NODES.replace("deviceclass gpu ", "deviceclass gpu resource=e.com/gpu ");
    let found = decide(&cluster, "p gpu=2");
    expect!["on b extended container-0-request-0:b0 container-0-request-0:b1"].assert_eq(
        &found.replace(
            "on a extended container-0-request-0:a0 container-0-request-0:a1",
            "on b extended container-0-request-0:b0 container-0-request-0:b1",
        ),
    );
    expect!["0/2 nodes are available: 2 cannot allocate all claims."]
        .assert_eq(&refusal(&cluster, "p gpu=3"));
    // A node whose device plugin has it is used as ever.
    let cluster = format!("{cluster}\nnode c gpu=5");
    expect!["on c"].assert_eq(&decide(&cluster, "p gpu=3"));
}

#[test]
fn a_claim_that_has_devices_goes_where_they_are() {
    let allocated = format!(
        r#"{} results=[{{"request":"r","driver":"gpu.io","pool":"pb","device":"b0"}}] status.allocation.nodeSelector={{"nodeSelectorTerms":[{{"matchFields":[{{"key":"metadata.name","operator":"In","values":["b"]}}]}}]}}"#,
        exactly("")
    );
    check(&with(&allocated), expect!["on b"]);
    check(
        &with(&allocated).replace("node b\n", ""),
        expect![
            "0/1 nodes are available: 1 resourceclaim not available on the node. deallocation of ResourceClaim completed, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        ],
    );
}

#[test]
fn what_is_missing_is_named() {
    refused(
        TWO_NODES,
        expect![[
            r#"0/2 nodes are available: could not find resourceclaim.resource.k8s.io "default/c"."#
        ]],
    );
    refused(
        &with(&exactly("")).replace("deviceclass gpu", "deviceclass other"),
        expect!["0/2 nodes are available: request r: device class gpu does not exist."],
    );
}
