use super::FILTERS;
use crate::testing::{decide, refusal};
use expect_test::{Expect, expect};

/// What stops the pod, or where it goes.
fn check(cluster: &str, pod: &str, expected: Expect) {
    expected.assert_eq(&refusal(cluster, pod));
}

#[test]
fn every_plugin_has_a_name_of_upstreams() {
    let names: Vec<_> = FILTERS.iter().map(|filter| filter.name).collect();
    expect!["NodeName NodeUnschedulable TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources NodeDeclaredFeatures"]
        .assert_eq(&names.join(" "));
}

#[test]
fn a_cordoned_node_takes_only_those_who_do_not_mind() {
    let cluster = "node a unschedulable=true";
    check(cluster, "p", expect!["0/1 nodes are available: 1 node(s) were unschedulable."]);
    let tolerant =
        r#"p tolerations=[{"key":"node.kubernetes.io/unschedulable","operator":"Exists"}]"#;
    check(cluster, tolerant, expect!["on a"]);
}

#[test]
fn taints_keep_pods_away_that_do_not_tolerate_them() {
    let cluster = r#"node a taints=[{"key":"k","value":"v","effect":"NoSchedule"}]"#;
    let refused = "0/1 nodes are available: 1 node(s) had untolerated taint(s).";
    for (tolerations, fits) in [
        ("[]", false),
        (r#"[{"key":"k","operator":"Exists"}]"#, true),
        (r#"[{"operator":"Exists"}]"#, true),
        (r#"[{"key":"k","value":"v"}]"#, true),
        (r#"[{"key":"k","operator":"Equal","value":"w"}]"#, false),
        (r#"[{"key":"k","operator":"Exists","effect":"NoExecute"}]"#, false),
        (r#"[{"key":"k","operator":"Gt","value":"1"}]"#, false),
    ] {
        let said = refusal(cluster, &format!("p tolerations={tolerations}"));
        assert_eq!(said, if fits { "on a" } else { refused }, "{tolerations}");
    }
    let soft = r#"node a taints=[{"key":"k","effect":"PreferNoSchedule"}]"#;
    check(soft, "p", expect!["on a"]);
}

#[test]
fn selectors_and_affinity_choose_nodes() {
    let cluster = "node a labels.disk=ssd labels.size=5\nnode b labels.disk=hdd";
    let refused = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.";
    let affinity = |terms: &str| {
        format!(
            r#"p affinity={{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{terms}]}}}}}}"#
        )
    };
    let term = |key: &str, operator: &str, values: &str| {
        affinity(&format!(
            r#"{{"matchExpressions":[{{"key":"{key}","operator":"{operator}","values":{values}}}]}}"#
        ))
    };
    for (pod, expected) in [
        (r#"p selector={"disk":"ssd"}"#.to_owned(), "on a"),
        (r#"p selector={"disk":"tape"}"#.to_owned(), refused),
        (term("disk", "In", r#"["ssd","tape"]"#), "on a"),
        (term("disk", "NotIn", r#"["ssd"]"#), "on b"),
        (term("size", "Exists", "[]"), "on a"),
        (term("size", "DoesNotExist", "[]"), "on b"),
        (term("size", "Gt", r#"["4"]"#), "on a"),
        (term("size", "Gt", r#"["5"]"#), refused),
        (term("size", "Lt", r#"["6"]"#), "on a"),
        // A term that says nothing selects nothing.
        (affinity("{}"), refused),
    ] {
        assert_eq!(refusal(cluster, &pod), expected, "{pod}");
    }
    let named = |operator: &str, name: &str| {
        affinity(&format!(
            r#"{{"matchFields":[{{"key":"metadata.name","operator":"{operator}","values":["{name}"]}}]}}"#
        ))
    };
    check(cluster, &named("In", "b"), expect!["on b"]);
    check(cluster, &named("NotIn", "b"), expect!["on a"]);
    check(
        cluster,
        &named("In", "c"),
        expect!["0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."],
    );
}

#[test]
fn ports_of_a_node_are_held_once() {
    let cluster = "node a\npod x node=a port=80";
    let refused =
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    for (pod, expected) in [
        ("p port=80", refused),
        ("p port=80 ip=127.0.0.1", refused),
        ("p port=81", "on a"),
        ("p port=80 spec.containers.0.ports.0.protocol=UDP", "on a"),
    ] {
        assert_eq!(refusal(cluster, pod), expected, "{pod}");
    }
    let on_address = "node a\npod x node=a port=80 ip=127.0.0.1";
    check(on_address, "p port=80 ip=127.0.0.2", expect!["on a"]);
}

#[test]
fn all_that_is_missing_is_named() {
    check(
        "node a cpu=1 memory=1Gi\nnode b pods=1\npod x node=b\nnode c",
        "p cpu=5 memory=2Gi gpu=1",
        expect![
            "0/3 nodes are available: 1 Insufficient memory, 1 Too many pods, 3 Insufficient cpu, 3 Insufficient e.com/gpu."
        ],
    );
    check("node a cpu=1\npod x node=a cpu=600m", "p cpu=400m", expect!["on a"]);
    check(
        "node a cpu=1\npod x node=a cpu=600m",
        "p cpu=401m",
        expect!["0/1 nodes are available: 1 Insufficient cpu."],
    );
}

#[test]
fn a_claim_for_one_pod_is_for_one_pod() {
    let cluster = r#"node a
        volume v
        claim c volume=v bound modes=["ReadWriteOncePod"]"#;
    check(cluster, "p claim=c", expect!["on a"]);
    check(
        &format!("{cluster}\npod x node=a claim=c"),
        "p claim=c",
        expect![
            "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod."
        ],
    );
}

#[test]
fn drivers_limit_how_many_volumes_a_node_has() {
    let cluster = r#"node a
        csinode a drivers=[{"name":"d","nodeID":"a","allocatable":{"count":1}}]
        volume v spec.csi={"driver":"d","volumeHandle":"1"}
        volume w spec.csi={"driver":"d","volumeHandle":"2"}
        claim c volume=v bound
        claim e volume=w bound
        pod x node=a claim=c"#;
    check(cluster, "p claim=c", expect!["on a"]);
    check(
        cluster,
        "p claim=e",
        expect!["0/1 nodes are available: 1 node(s) exceed max volume count."],
    );
}

#[test]
fn what_is_attached_and_used_by_nobody_counts_and_drivers_may_have_to_be_there() {
    let cluster = r#"node a
        csinode a drivers=[{"name":"d","nodeID":"a","allocatable":{"count":1}}]
        volume v spec.csi={"driver":"d","volumeHandle":"1"}
        volume w spec.csi={"driver":"d","volumeHandle":"2"}
        claim c volume=v bound"#;
    check(cluster, "p claim=c", expect!["on a"]);
    let full = "0/1 nodes are available: 1 node(s) exceed max volume count.";
    for (attached, expected) in [("v", full), ("w", full), ("gone", "on a")] {
        let attachment = format!("attachment x node=a driver=d volume={attached}");
        let said = crate::testing::refusal(&format!("{cluster}\n{attachment}"), "p claim=c");
        assert_eq!(said, expected, "{attached}");
    }
    check(
        "node a
         csidriver d spec.preventPodSchedulingIfMissing=true
         volume v spec.csi={\"driver\":\"d\",\"volumeHandle\":\"1\"}
         claim c volume=v bound",
        "p claim=c",
        expect!["0/1 nodes are available: 1 d CSI driver is not installed on the node."],
    );
}

#[test]
fn a_disk_is_in_one_place_unless_all_only_read_it() {
    let pod = |volume: &str| format!("spec.volumes=[{{\"name\":\"v\",{volume}}}]");
    let gce = r#""gcePersistentDisk":{"pdName":"d"}"#;
    let read = r#""gcePersistentDisk":{"pdName":"d","readOnly":true}"#;
    let ebs = r#""awsElasticBlockStore":{"volumeID":"d"}"#;
    let iscsi = r#""iscsi":{"targetPortal":"t","iqn":"i","lun":0}"#;
    let rbd = r#""rbd":{"monitors":["m","n"],"image":"i","pool":"p"}"#;
    let near = r#""rbd":{"monitors":["n","o"],"image":"i","pool":"p","readOnly":true}"#;
    let far = r#""rbd":{"monitors":["o"],"image":"i","pool":"p"}"#;
    for (there, comes, fits) in [
        (gce, gce, false),
        (gce, read, false),
        (read, read, true),
        (gce, ebs, true),
        (ebs, ebs, false),
        (iscsi, iscsi, false),
        (rbd, near, false),
        (rbd, far, true),
    ] {
        let cluster = format!("node a\npod x node=a {}", pod(there));
        let said = crate::testing::refusal(&cluster, &format!("p {}", pod(comes)));
        let refused = "0/1 nodes are available: 1 node(s) had no available disk.";
        assert_eq!(said, if fits { "on a" } else { refused }, "{there} {comes}");
    }
}

#[test]
fn claims_are_bound_or_bindable_on_the_node() {
    let on = |name: &str| {
        format!(
            r#"on=[{{"matchExpressions":[{{"key":"kubernetes.io/hostname","operator":"In","values":["{name}"]}}]}}]"#
        )
    };
    check(
        "node a",
        "p claim=c",
        expect![[r#"0/1 nodes are available: persistentvolumeclaim "c" not found."#]],
    );
    check(
        "node a\nclaim c",
        "p claim=c",
        expect!["0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."],
    );
    check(
        "node a\nclaim c phase=Lost volume=v",
        "p claim=c",
        expect![[
            r#"0/1 nodes are available: persistentvolumeclaim "c" bound to non-existent persistentvolume "v"."#
        ]],
    );
    let bound = format!("volume v {}\nclaim c volume=v bound", on("b"));
    check(&format!("node a\nnode b\n{bound}"), "p claim=c", expect!["on b"]);
    check(
        &format!("node a\n{bound}"),
        "p claim=c",
        expect![
            "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."
        ],
    );
    check(
        "node a\nclaim c volume=v bound",
        "p claim=c",
        expect![[r#"0/1 nodes are available: persistentvolume "v" not found."#]],
    );
}

#[test]
fn a_claim_that_waits_gets_the_smallest_volume_or_is_provided_for() {
    let wait = "class s mode=WaitForFirstConsumer provisioner=kubernetes.io/no-provisioner
        claim c class=s size=1Gi modes=[\"ReadWriteOnce\"]";
    let volume = |name: &str, size: &str| {
        format!("volume {name} class=s size={size} modes=[\"ReadWriteOnce\"] phase=Available")
    };
    check(
        &format!("node a\n{wait}\n{}", volume("small", "512Mi")),
        "p claim=c",
        expect![
            "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."
        ],
    );
    check(
        &format!("node a\n{wait}\n{}\n{}", volume("large", "4Gi"), volume("fit", "2Gi")),
        "p claim=c",
        expect!["on a give fit to c"],
    );
    let provided = wait.replace("kubernetes.io/no-provisioner", "e.com/d");
    check(&format!("node a\n{provided}"), "p claim=c", expect!["on a provide c"]);
}

/// A volume that says which claim it is for is that claim's, however its modes, labels and phase are.
#[test]
fn a_volume_that_names_the_claim_is_taken_whatever_its_modes() {
    let class = "class s mode=WaitForFirstConsumer provisioner=kubernetes.io/no-provisioner";
    let claim = r#"claim c class=s size=1Gi modes=["ReadWriteOnce"] spec.selector={"matchLabels":{"tier":"gold"}}"#;
    let free =
        r#"volume free class=s size=1Gi modes=["ReadWriteOnce"] phase=Available labels.tier=gold"#;
    let own = r#"volume own class=s size=4Gi modes=["ReadOnlyMany"] spec.claimRef={"namespace":"default","name":"c"}"#;
    let cluster = |own: &str| format!("node a\nnode b\n{class}\n{claim}\n{free}\n{own}");
    let on_b = r#"on=[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["b"]}]}]"#;
    let named = |uid: &str| own.replace(r#""c"}"#, &format!(r#""c","uid":"{uid}"}}"#));
    // No other volume stands in for it where it cannot be used.
    check(&cluster(&format!("{own} {on_b}")), "p claim=c", expect!["on b give own to c"]);
    for (own, expected) in [
        (named("c-uid"), "own"),
        (named("another"), "free"),
        (own.replace("4Gi", "512Mi"), "free"),
        (own.replace("class=s", "class=t"), "free"),
        (format!("{own} spec.volumeMode=Block"), "free"),
        (format!("{own} spec.volumeAttributesClassName=fast"), "free"),
        (format!("{own} metadata.deletionTimestamp=2026-01-01T12:00:00Z"), "free"),
    ] {
        let found = decide(&cluster(&own).replace("node b\n", ""), "p claim=c");
        assert_eq!(found, format!("on a give {expected} to c"), "{own}");
    }
}

#[test]
fn a_claim_that_two_volumes_of_a_pod_name_gets_one() {
    let cluster = r#"node a
        class s mode=WaitForFirstConsumer provisioner=kubernetes.io/no-provisioner
        claim c class=s size=1Gi
        volume v class=s size=1Gi phase=Available"#;
    let volume = r#"{"name":"v","persistentVolumeClaim":{"claimName":"c"}}"#;
    let pod = format!("p spec.volumes=[{volume},{volume}]");
    check(cluster, &pod, expect!["on a give v to c"]);
}

#[test]
fn disks_that_pods_name_themselves_count_as_their_drivers() {
    let disk = |id: &str| {
        format!(r#"spec.volumes=[{{"name":"v","awsElasticBlockStore":{{"volumeID":"{id}"}}}}]"#)
    };
    let node = r#"node a
        csinode a drivers=[{"name":"ebs.csi.aws.com","nodeID":"a","allocatable":{"count":1}}]"#;
    let taken = format!("{node}\npod x node=a {}", disk("one"));
    check(node, &format!("p {}", disk("two")), expect!["on a"]);
    check(
        &taken,
        &format!("p {}", disk("two")),
        expect!["0/1 nodes are available: 1 node(s) exceed max volume count."],
    );
    // A node that says nothing of its drivers has no limits.
    let silent = format!("node a\npod x node=a {}", disk("one"));
    check(&silent, &format!("p {}", disk("two")), expect!["on a"]);
}

#[test]
fn volumes_are_in_zones() {
    let cluster = "node a zone=x\nvolume v zone=y__z\nclaim c volume=v bound";
    check(
        cluster,
        "p claim=c",
        expect!["0/1 nodes are available: 1 node(s) had no available volume zone."],
    );
    check(&format!("{cluster}\nnode b zone=z"), "p claim=c", expect!["on b"]);
    check(&format!("{cluster}\nnode b"), "p claim=c", expect!["on b"]);
}

const ZONE: &str = "topology.kubernetes.io/zone";

fn spread(more: &str) -> String {
    format!(
        r#"p labels.app=w spread=[{{"maxSkew":1,"topologyKey":"{ZONE}","whenUnsatisfiable":"DoNotSchedule","labelSelector":{{"matchLabels":{{"app":"w"}}}}{more}}}]"#
    )
}

#[test]
fn pods_are_spread_evenly() {
    let cluster = "node a zone=x\nnode b zone=y\npod 1 node=a labels.app=w";
    check(cluster, &spread(""), expect!["on b"]);
    // A pod that goes, one of another namespace and one with other labels do not count.
    let other = "node a zone=x unschedulable=true\nnode b zone=y
        pod 1 node=b labels.app=w going\npod o/2 node=b labels.app=w\npod 3 node=b labels.app=v";
    check(other, &spread(""), expect!["on b"]);
    check(
        "node a zone=x cpu=1\nnode b zone=y\nnode c\npod 1 node=b labels.app=w",
        &spread("").replace("p labels", "p cpu=2 labels"),
        expect![
            "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints, 1 node(s) didn't match pod topology spread constraints (missing required label)."
        ],
    );
    check(
        "node a zone=x\npod 1 node=a labels.app=w",
        &spread(r#","minDomains":2"#),
        expect!["0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints."],
    );
    // Only as many as have the same value of a label.
    let keyed = "node a zone=x\nnode b zone=y\npod 1 node=a labels.app=w labels.v=1";
    let pod = spread(r#","matchLabelKeys":["v"]"#).replace("p labels", "p labels.v=2 labels");
    assert!(decide(keyed, &pod).starts_with("on "));
}

#[test]
fn nodes_that_are_not_for_the_pod_are_spread_over_or_not() {
    let cluster = r#"node a zone=x
        node b zone=y taints=[{"key":"k","effect":"NoSchedule"}]
        pod 1 node=a labels.app=w"#;
    check(
        cluster,
        &spread(""),
        expect![
            "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated taint(s)."
        ],
    );
    check(cluster, &spread(r#","nodeTaintsPolicy":"Honor""#), expect!["on a"]);
    let selecting = spread("").replace("p labels", "p selector={\"k\":\"v\"} labels");
    let cluster = "node a zone=x labels.k=v\nnode b zone=y\npod 1 node=a labels.app=w";
    check(cluster, &selecting, expect!["on a"]);
    check(
        cluster,
        &selecting.replace(r#""maxSkew""#, r#""nodeAffinityPolicy":"Ignore","maxSkew""#),
        expect![
            "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match pod topology spread constraints."
        ],
    );
}

fn near(kind: &str, more: &str) -> String {
    format!(
        r#"affinity={{"{kind}":{{"requiredDuringSchedulingIgnoredDuringExecution":[{{"topologyKey":"{ZONE}","labelSelector":{{"matchLabels":{{"app":"w"}}}}{more}}}]}}}}"#
    )
}

#[test]
fn pods_are_near_others_or_far_from_them() {
    let cluster = "node a zone=x\nnode b zone=y\nnode c\npod 1 node=a labels.app=w";
    let affinity = near("podAffinity", "");
    check(cluster, &format!("p {affinity}"), expect!["on a"]);
    check(
        "node a zone=x",
        &format!("p {affinity}"),
        expect!["0/1 nodes are available: 1 node(s) didn't match pod affinity rules."],
    );
    // The first of a group that wants to be near itself.
    check("node a zone=x", &format!("p labels.app=w {affinity}"), expect!["on a"]);
    let anti = near("podAntiAffinity", "");
    check(
        "node a zone=x\nnode b zone=x\npod 1 node=a labels.app=w",
        &format!("p {anti}"),
        expect!["0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."],
    );
    // What a pod does not want near itself stays away, too.
    check(
        &format!("node a zone=x\npod 1 node=a {anti}"),
        "p labels.app=w",
        expect![
            "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
        ],
    );
    check(&format!("node a zone=x\npod 1 node=a {anti}"), "p labels.app=v", expect!["on a"]);
}

#[test]
fn others_may_be_in_other_namespaces() {
    let cluster =
        "namespace o labels.team=t\nnode a zone=x\nnode b zone=y\npod o/1 node=a labels.app=w";
    for (more, fits) in [
        ("", false),
        (r#","namespaces":["o"]"#, true),
        (r#","namespaceSelector":{}"#, true),
        (r#","namespaceSelector":{"matchLabels":{"team":"t"}}"#, true),
        (r#","namespaceSelector":{"matchLabels":{"team":"u"}}"#, false),
    ] {
        let said = refusal(cluster, &format!("p {}", near("podAffinity", more)));
        assert_eq!(said == "on a", fits, "{more}: {said}");
    }
}
