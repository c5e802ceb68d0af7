use super::*;
use crate::testing::{
    after, after_with, check_row, check_run, check_turns, in_world, key_of, now, settings,
};
use client::testing::World as Server;
use expect_test::expect;

const NODE: &str = "annotation:volumes.kubernetes.io/controller-managed-attach-detach=\"true\"";

fn claim(volume: &str, mode: &str) -> String {
    format!(
        "persistentvolume {volume} spec.csi={{\"driver\":\"d\",\"volumeHandle\":\"h-{volume}\"}} spec.accessModes=[\"{mode}\"] spec.claimRef={{\"namespace\":\"default\",\"name\":\"{volume}\",\"uid\":\"{volume}-uid\"}}
         persistentvolumeclaim {volume} spec.volumeName={volume} status.phase=Bound\n"
    )
}

fn pod(name: &str, node: &str, claim: &str) -> String {
    format!(
        "pod {name} node={node} spec.volumes=[{{\"name\":\"v\",\"persistentVolumeClaim\":{{\"claimName\":\"{claim}\"}}}}]\n"
    )
}

fn attachment(volume: &str, node: &str, more: &str) -> String {
    let of = Volume::csi(volume.to_owned(), "d", &format!("h-{volume}"), false);
    let name = of.attachment(node).unwrap();
    format!(
        "volumeattachment {name} spec.attacher=d spec.nodeName={node} spec.source.persistentVolumeName={volume} {more}\n"
    )
}

#[test]
fn a_pods_volume_is_attached_and_the_node_says_so() {
    let world =
        format!("node n {NODE}\n{}{}", claim("data", "ReadWriteOnce"), pod("a", "n", "data"));
    check_row(
        &CONTROLLER,
        &world,
        &["n"],
        expect![[r#"
        create volumeattachments.storage.k8s.io csi-0b82b59a318cfa111a2517917ad066f7dde2051c79c14ca12b5657cf91bc18e6
    "#]],
    );
    let world = world + &attachment("data", "n", "status.attached=true");
    check_row(
        &CONTROLLER,
        &world,
        &["n"],
        expect![[r#"
        event SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "data" 
        patch nodes/status n {"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/csi/d^h-data"}]}}
    "#]],
    );
}

#[test]
fn what_failed_is_told() {
    let error = "status={\"attached\":false,\"attachError\":{\"message\":\"no\"}}";
    let world = format!(
        "node n {NODE}\n{}{}{}",
        claim("data", "ReadWriteOnce"),
        pod("a", "n", "data"),
        attachment("data", "n", error)
    );
    check_row(
        &CONTROLLER,
        &world,
        &["n"],
        expect![[r#"
        event FailedAttachVolume AttachVolume.Attach failed for volume "data" : no
    "#]],
    );
}

#[test]
fn drivers_may_need_no_attaching() {
    let world = format!(
        "node n {NODE}\n csidriver d spec.attachRequired=false\n{}{}",
        claim("data", "ReadWriteOnce"),
        pod("a", "n", "data")
    );
    check_row(&CONTROLLER, &world, &["n"], expect![[""]]);
}

#[test]
fn one_node_only_may_have_it() {
    let world = |mode: &str| {
        format!(
            "node n {NODE}\n node m {NODE}\n{}{}{}{}",
            claim("data", mode),
            pod("a", "n", "data"),
            pod("b", "m", "data"),
            attachment("data", "n", "status.attached=true")
        )
    };
    check_row(
        &CONTROLLER,
        &world("ReadWriteOnce"),
        &["m"],
        expect![[r#"
        event FailedAttachVolume Waiting for detach for volume "data" Volume is already used by pod(s) a
    "#]],
    );
    check_row(
        &CONTROLLER,
        &world("ReadWriteMany"),
        &["m"],
        expect![[r#"
        create volumeattachments.storage.k8s.io csi-e667359b347aedfa1c630cf20179ec98dce3a9fca3dca58915e673878052ab75
    "#]],
    );
}

const IN_USE: &str = "status.volumesInUse=[\"kubernetes.io/csi/d^h-data\"]";
const HAS: &str =
    "status.volumesAttached=[{\"name\":\"kubernetes.io/csi/d^h-data\",\"devicePath\":\"\"}]";

#[test]
fn what_nobody_uses_is_detached_once_the_kubelet_let_go() {
    let world = |node: &str| {
        format!(
            "node n {NODE} {HAS} {node}\n{}{}",
            claim("data", "ReadWriteOnce"),
            attachment("data", "n", "status.attached=true")
        )
    };
    check_run(
        &CONTROLLER,
        &world(""),
        expect![[r#"
        patch nodes/status n
        delete volumeattachments.storage.k8s.io csi-0b82b59a318cfa111a2517917ad066f7dde2051c79c14ca12b5657cf91bc18e6
    "#]],
    );
    // It is ready and holds on.
    let ready = "status.conditions=[{\"type\":\"Ready\",\"status\":\"True\"}]";
    check_row(
        &CONTROLLER,
        &world(&format!("{IN_USE} {ready}")),
        &["n"],
        expect![[r#"
        remember WantedBack({"kubernetes.io/csi/d^h-data": 2026-01-01T12:00:00Z})
    "#]],
    );
    // It is not heard of: six minutes, or at once if its owner says that it is out of service.
    check_row(
        &CONTROLLER,
        &world(IN_USE),
        &["n"],
        expect![[r#"
        again after 360s
        remember WantedBack({"kubernetes.io/csi/d^h-data": 2026-01-01T12:00:00Z})
    "#]],
    );
    let out =
        "spec.taints=[{\"key\":\"node.kubernetes.io/out-of-service\",\"effect\":\"NoExecute\"}]";
    check_row(
        &CONTROLLER,
        &world(&format!("{IN_USE} {out}")),
        &["n"],
        expect![[r#"
        remember WantedBack({"kubernetes.io/csi/d^h-data": 2026-01-01T12:00:00Z})
        patch nodes/status n {"status":{"volumesAttached":[]}}
        delete volumeattachments.storage.k8s.io csi-0b82b59a318cfa111a2517917ad066f7dde2051c79c14ca12b5657cf91bc18e6
    "#]],
    );
}

#[test]
fn a_node_that_is_gone_loses_its_volumes_after_a_while() {
    let world = format!(
        "{}{}",
        claim("data", "ReadWriteOnce"),
        attachment("data", "n", "status.attached=true")
    );
    check_row(
        &CONTROLLER,
        &world,
        &["n"],
        expect![[r#"
        again after 360s
        remember WantedBack({"kubernetes.io/csi/d^h-data": 2026-01-01T12:00:00Z})
    "#]],
    );
}

const DISK: &str = "kubernetes.io/iscsi/10.0.0.1:iqn.x:0";
const HAS_DISK: &str = "status.volumesAttached=[{\"name\":\"kubernetes.io/iscsi/10.0.0.1:iqn.x:0\",\"devicePath\":\"\"}]";
const USES_DISK: &str = "status.volumesInUse=[\"kubernetes.io/iscsi/10.0.0.1:iqn.x:0\"]";
const READY: &str = "status.conditions=[{\"type\":\"Ready\",\"status\":\"True\"}]";
const SOURCE: &str = "{\"targetPortal\":\"10.0.0.1\",\"iqn\":\"iqn.x\",\"lun\":0}";

fn disk_claim(volume: &str, mode: &str) -> String {
    format!(
        "persistentvolume {volume} spec.iscsi={SOURCE} spec.accessModes=[\"{mode}\"] spec.claimRef={{\"namespace\":\"default\",\"name\":\"{volume}\",\"uid\":\"{volume}-uid\"}}
         persistentvolumeclaim {volume} spec.volumeName={volume} status.phase=Bound\n"
    )
}

/// What a node's status says is attached.
fn attached_to(server: &Server, node: &str) -> Vec<String> {
    let node = server.get::<Node>("", node);
    reported(node.as_ref()).map(str::to_owned).collect()
}

/// A turn with what it remembers, line by line.
fn play(world: &World, node: &str, now: Timestamp) -> String {
    let mut lines = String::new();
    for action in reconcile(&key_of(node), world, now) {
        lines += &format!("{action}\n");
        if let Action::Remember(memo) = action {
            world.remember(memo);
        }
    }
    lines
}

#[test]
fn a_disk_is_attached_by_saying_so() {
    let world =
        format!("node n {NODE}\n{}{}", disk_claim("data", "ReadWriteOnce"), pod("a", "n", "data"));
    check_row(
        &CONTROLLER,
        &world,
        &["n"],
        expect![[r#"
        event SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "data" 
        remember Given({"n": {"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}})
        patch nodes/status n {"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}]}}
    "#]],
    );
    // Said once.
    check_turns(
        &CONTROLLER,
        &world.replace(NODE, &format!("{NODE} {HAS_DISK}")),
        &["n"],
        expect![[""]],
    );
    // A kubelet that attaches by itself is not told anything.
    check_row(&CONTROLLER, &world.replace(NODE, HAS_DISK), &["n"], expect![[""]]);
}

#[test]
fn one_node_only_may_have_a_disk_that_says_so() {
    let world = |node: &str, mode: &str| {
        format!(
            "node n {NODE} {node}\n node m {NODE}\n{}{}{}",
            disk_claim("data", mode),
            pod("a", "n", "data"),
            pod("b", "m", "data")
        )
    };
    check_row(
        &CONTROLLER,
        &world(HAS_DISK, "ReadWriteOnce"),
        &["m"],
        expect![[r#"
        event FailedAttachVolume Waiting for detach for volume "data" Volume is already used by pod(s) a
    "#]],
    );
    // The cache does not have the status of the first yet; nothing may tell when it has let go.
    check_turns(
        &CONTROLLER,
        &world("", "ReadWriteOnce"),
        &["n", "m"],
        expect![[r#"
        event SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "data" 
        patch nodes/status n {"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}]}}
        again after 10s
        event FailedAttachVolume Waiting for detach for volume "data" Volume is already used by pod(s) a
    "#]],
    );
    check_turns(
        &CONTROLLER,
        &world(HAS_DISK, "ReadOnlyMany"),
        &["m"],
        expect![[r#"
        event SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "data" 
        patch nodes/status m {"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}]}}
    "#]],
    );
    // Whoever is first, the other waits.
    after(
        &CONTROLLER,
        &world("", "ReadWriteOnce"),
        |_| {},
        |server| {
            let both = [attached_to(server, "n"), attached_to(server, "m")];
            assert_eq!(both.concat(), [DISK]);
        },
    );
}

#[test]
fn a_disk_that_pods_name_themselves_is_anybodys() {
    let pod = |name: &str, node: &str| {
        format!("pod {name} node={node} spec.volumes=[{{\"name\":\"v\",\"iscsi\":{SOURCE}}}]\n")
    };
    let world = format!("node n {NODE}\n node m {NODE}\n{}{}", pod("a", "n"), pod("b", "m"));
    check_turns(
        &CONTROLLER,
        &world,
        &["n", "m"],
        expect![[r#"
        event SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "v" 
        patch nodes/status n {"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}]}}
        event SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "v" 
        patch nodes/status m {"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}]}}
    "#]],
    );
    let other =
        "pod c node=n spec.volumes=[{\"name\":\"v\",\"nfs\":{\"server\":\"s\",\"path\":\"/\"}}]";
    check_row(&CONTROLLER, &format!("node n {NODE}\n{other}"), &["n"], expect![[""]]);
}

#[test]
fn a_disk_goes_to_the_next_node_once_the_kubelet_let_go() {
    let world = format!(
        "node n {NODE} {HAS_DISK} {USES_DISK} {READY}\n node m {NODE}\n{}{}",
        disk_claim("data", "ReadWriteOnce"),
        pod("b", "m", "data")
    );
    after_with(
        &CONTROLLER,
        settings(),
        &world,
        |server| {
            assert_eq!(attached_to(server, "n"), [DISK]);
            assert!(attached_to(server, "m").is_empty());
            let mut node = Node::clone(&server.get::<Node>("", "n").unwrap());
            node.status.get_or_insert_default().volumes_in_use = None;
            server.put(&node);
        },
        |server| {
            assert!(attached_to(server, "n").is_empty());
            assert_eq!(attached_to(server, "m"), [DISK]);
        },
    );
}

#[test]
fn a_disk_that_a_kubelet_uses_after_all_is_given_back_to_it() {
    let world =
        format!("node n {NODE} {HAS_DISK} {READY}\n{}", disk_claim("data", "ReadWriteOnce"));
    in_world(&CONTROLLER, &world, |world, server| {
        let mut lines = String::new();
        let mut then = None;
        for action in reconcile(&key_of("n"), world, now()) {
            lines += &format!("{action}\n");
            if let Action::Look { then: next, .. } = action {
                then = Some(next);
            }
        }
        expect![[r#"
            remember Given({"n": {"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}})
            remember WantedBack({"kubernetes.io/iscsi/10.0.0.1:iqn.x:0": 2026-01-01T12:00:00Z})
            patch nodes/status n {"status":{"volumesAttached":[]}}
            look at nodes n
        "#]]
        .assert_eq(&lines);
        // It has begun to use it since the cache was told.
        let mut node = Node::clone(&server.get::<Node>("", "n").unwrap());
        node.status.get_or_insert_default().volumes_in_use = Some(vec![DISK.to_owned()]);
        let live = server.put(&node);
        let next = then.expect("asks to look at the node")(Some(live));
        let lines: String = next.iter().map(|action| format!("{action}\n")).collect();
        expect![[r#"
            remember Given({"n": {"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}})
            patch nodes/status n {"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}]}}
        "#]]
        .assert_eq(&lines);
    });
}

#[test]
fn a_disk_of_a_lost_node_is_taken_away() {
    let claim = disk_claim("data", "ReadWriteOnce");
    // Its owner says that it is out of service.
    let out =
        "spec.taints=[{\"key\":\"node.kubernetes.io/out-of-service\",\"effect\":\"NoExecute\"}]";
    check_row(
        &CONTROLLER,
        &format!("node n {NODE} {HAS_DISK} {USES_DISK} {out}\n{claim}"),
        &["n"],
        expect![[r#"
        remember Given({"n": {"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}})
        remember WantedBack({"kubernetes.io/iscsi/10.0.0.1:iqn.x:0": 2026-01-01T12:00:00Z})
        patch nodes/status n {"status":{"volumesAttached":[]}}
        forget all nodes
    "#]],
    );
    // It was deleted, and its kubelet may still write to the disk.
    let world = format!("node m {NODE}\n{claim}{}", pod("b", "m", "data"));
    in_world(&CONTROLLER, &world, |world, _| {
        let mut given = Given::default();
        given.set("n", [DISK.to_owned()].into());
        world.remember(Memo::new(ALL_NODES, given));
        let mut lines = play(world, "n", now()) + &play(world, "m", now());
        let later = now() + MOST;
        lines += &(play(world, "n", later) + &play(world, "m", later));
        expect![[r#"
            again after 360s
            remember WantedBack({"kubernetes.io/iscsi/10.0.0.1:iqn.x:0": 2026-01-01T12:00:00Z})
            again after 10s
            event FailedAttachVolume Waiting for detach for volume "data" Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node
            forget all nodes
            event SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "data" 
            remember Given({"m": {"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}})
            patch nodes/status m {"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/iscsi/10.0.0.1:iqn.x:0"}]}}
        "#]]
        .assert_eq(&lines);
    });
}
