use super::*;
use crate::testing::{check_row, check_run};
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
    let name = Volume {
        name: volume.to_owned(),
        driver: "d".to_owned(),
        handle: format!("h-{volume}"),
        is_shared: false,
    }
    .attachment(node);
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
        remember WantedBack({"csi-0b82b59a318cfa111a2517917ad066f7dde2051c79c14ca12b5657cf91bc18e6": 2026-01-01T12:00:00Z})
    "#]],
    );
    // It is not heard of: six minutes, or at once if its owner says that it is out of service.
    check_row(
        &CONTROLLER,
        &world(IN_USE),
        &["n"],
        expect![[r#"
        again after 360s
        remember WantedBack({"csi-0b82b59a318cfa111a2517917ad066f7dde2051c79c14ca12b5657cf91bc18e6": 2026-01-01T12:00:00Z})
    "#]],
    );
    let out =
        "spec.taints=[{\"key\":\"node.kubernetes.io/out-of-service\",\"effect\":\"NoExecute\"}]";
    check_row(
        &CONTROLLER,
        &world(&format!("{IN_USE} {out}")),
        &["n"],
        expect![[r#"
        remember WantedBack({"csi-0b82b59a318cfa111a2517917ad066f7dde2051c79c14ca12b5657cf91bc18e6": 2026-01-01T12:00:00Z})
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
        remember WantedBack({"csi-0b82b59a318cfa111a2517917ad066f7dde2051c79c14ca12b5657cf91bc18e6": 2026-01-01T12:00:00Z})
    "#]],
    );
}
