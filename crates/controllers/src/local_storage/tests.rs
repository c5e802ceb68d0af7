use super::*;
use crate::testing::{check_row, check_tree};
use expect_test::{Expect, expect};

const NODE_A: &str = "node a label:kubernetes.io/hostname=a-host ready";
const CLASS: &str = "storageclass local provisioner=skiff.dev/local reclaimPolicy=Delete volumeBindingMode=WaitForFirstConsumer parameters.path=/v";
const CLAIM: &str = "persistentvolumeclaim c annotation:volume.kubernetes.io/storage-provisioner=skiff.dev/local spec.storageClassName=local spec.accessModes=[\"ReadWriteOnce\"] spec.resources.requests.storage=1Gi";
const SELECTED: &str = "annotation:volume.kubernetes.io/selected-node=a";

/// A pod of ours about the claim `c`, or another.
fn helper(step: &str, uid: &str, node: &str, more: &str) -> String {
    format!(
        "pod kube-system/{step}-pvc-{uid} node={node} label:skiff.dev/local-volume=pvc-{uid} label:skiff.dev/local-volume-step={step} annotation:skiff.dev/local-volume-claim=default/c spec.volumes=[{{\"name\":\"volumes\",\"hostPath\":{{\"path\":\"/v\"}}}}] {more}"
    )
}

fn volume(more: &str) -> String {
    format!(
        "persistentvolume pvc-c-uid annotation:pv.kubernetes.io/provisioned-by=skiff.dev/local annotation:skiff.dev/local-volume-node=a finalizers=kubernetes.io/pv-protection,skiff.dev/local-volume spec.persistentVolumeReclaimPolicy=Delete spec.local.path=/v/pvc-c-uid/data spec.capacity.storage=1Gi spec.claimRef={{\"namespace\":\"default\",\"name\":\"c\",\"uid\":\"c-uid\"}} {more}"
    )
}

fn check(lines: &[&str], keys: &[&str], expected: Expect) {
    check_row(&CONTROLLER, &[&[NODE_A, CLASS], lines].concat().join("\n"), keys, expected);
}

fn of_claim(claim: &str, more: &[&str], expected: Expect) {
    let claim = format!("{CLAIM} {claim}");
    check(&[&[&*claim], more].concat(), &["default/c"], expected);
}

fn of_volume(more: &str, pods: &[&str], expected: Expect) {
    check(&[&[&*volume(more)], pods].concat(), &["pvc-c-uid"], expected);
}

#[test]
fn a_folder_is_made_on_the_selected_node() {
    of_claim("", &[], expect![[""]]);
    of_claim(
        SELECTED,
        &[],
        expect![[r#"
            event Provisioning External provisioner is provisioning volume for claim "default/c"
            create pods make-pvc-c-uid
        "#]],
    );
    check_tree(
        &CONTROLLER,
        &[NODE_A, CLASS, &format!("{CLAIM} {SELECTED}")].join("\n"),
        "default/c",
        "spec",
        expect![[r#"
            event Provisioning External provisioner is provisioning volume for claim "default/c"
            create pods make-pvc-c-uid
              {"automountServiceAccountToken":false,"containers":[{"command":["/skiff","volume","make","/volumes/pvc-c-uid/data"],"image":"localhost/skiff/volume","imagePullPolicy":"IfNotPresent","name":"make","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"add":["DAC_OVERRIDE","FOWNER"],"drop":["ALL"]},"readOnlyRootFilesystem":true},"terminationMessagePolicy":"FallbackToLogsOnError","volumeMounts":[{"mountPath":"/volumes","name":"volumes"}]}],"enableServiceLinks":false,"nodeName":"a","priorityClassName":"system-node-critical","restartPolicy":"OnFailure","securityContext":{"runAsUser":0,"seccompProfile":{"type":"RuntimeDefault"}},"terminationGracePeriodSeconds":1,"tolerations":[{"operator":"Exists"}],"volumes":[{"hostPath":{"path":"/v","type":"DirectoryOrCreate"},"name":"volumes"}]}
        "#]],
    );
}

#[test]
fn a_folder_that_is_made_becomes_a_volume() {
    check_tree(
        &CONTROLLER,
        &[
            NODE_A,
            CLASS,
            &format!("{CLAIM} {SELECTED}"),
            &helper("make", "c-uid", "a", "phase=Succeeded"),
        ]
        .join("\n"),
        "default/c",
        "spec",
        expect![[r#"
            create persistentvolumes pvc-c-uid
              {"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","name":"c","namespace":"default","uid":"c-uid"},"local":{"path":"/v/pvc-c-uid/data"},"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["a-host"]}]}]}},"persistentVolumeReclaimPolicy":"Delete","storageClassName":"local","volumeMode":"Filesystem"}
            event ProvisioningSucceeded Successfully provisioned volume pvc-c-uid
            delete pods kube-system/make-pvc-c-uid
        "#]],
    );
    // What stopped in between leaves a pod, and no second volume.
    of_claim(
        SELECTED,
        &[&helper("make", "c-uid", "a", "phase=Succeeded"), &volume("")],
        expect![[r#"
            delete pods kube-system/make-pvc-c-uid
        "#]],
    );
}

#[test]
fn what_there_is_not_is_said() {
    let of_class = |class: &str, claim: &str| {
        let said = std::cell::RefCell::new(String::new());
        let lines = [NODE_A, class, &format!("{CLAIM} {SELECTED} {claim}")].join("\n");
        crate::testing::in_world(&CONTROLLER, &lines, |world, _| {
            let key = NamespacedName::new("default", "c");
            for action in reconcile(&key, world, crate::testing::now()) {
                said.borrow_mut().push_str(&format!("{action}\n"));
            }
        });
        let said = said.into_inner();
        let start =
            "event ProvisioningFailed failed to provision volume with StorageClass \"local\": ";
        said.strip_prefix(start).map_or(format!("no failure, but {said}"), str::to_owned)
    };
    for (claim, why) in [
        ("spec.volumeMode=Block", "folders are no block devices"),
        ("spec.accessModes=[\"ReadWriteMany\"]", "ReadWriteMany is not for folders of one node"),
        ("spec.selector={}", "claim.spec.selector"),
        ("spec.dataSource={\"kind\":\"VolumeSnapshot\",\"name\":\"s\"}", "a folder begins empty"),
    ] {
        let said = of_class(CLASS, claim);
        assert!(said.starts_with(why), "{claim}: {said}");
    }
    for (from, to, why) in [
        ("WaitForFirstConsumer", "Immediate", "a folder is of one node"),
        ("path=/v", "path=v", "the class's parameter \"path\""),
        ("path=/v", "path=/", "the class's parameter \"path\""),
        ("path=/v", "path=/v/../etc", "the class's parameter \"path\""),
        ("path=/v", "path=", "the class's parameter \"path\""),
        ("path=/v", "nodes=/v", "the class has an unknown parameter \"nodes\""),
    ] {
        let said = of_class(&CLASS.replace(from, to), "");
        assert!(said.starts_with(why), "{to}: {said}");
    }
}

#[test]
fn a_pod_that_fails_is_told_of_and_tried_again() {
    let message = "status.containerStatuses=[{\"lastState\":{\"terminated\":{\"exitCode\":1,\"message\":\"no\\u0020room\"}}}]";
    of_claim(
        SELECTED,
        &[&helper("make", "c-uid", "a", message)],
        expect![[r#"
            event ProvisioningFailed failed to provision volume with StorageClass "local": no room
            again after 60s
        "#]],
    );
    of_claim(
        SELECTED,
        &[&helper("make", "c-uid", "a", "phase=Failed status.reason=OutOfpods age=5")],
        expect![[r#"
            event ProvisioningFailed failed to provision volume with StorageClass "local": OutOfpods
            again after 10s
        "#]],
    );
    of_claim(
        SELECTED,
        &[&helper("make", "c-uid", "a", "phase=Failed status.reason=OutOfpods age=20")],
        expect![[r#"
            event ProvisioningFailed failed to provision volume with StorageClass "local": OutOfpods
            delete pods kube-system/make-pvc-c-uid
        "#]],
    );
}

#[test]
fn a_node_that_is_lost_is_not_waited_for() {
    // Gone.
    of_claim(
        "annotation:volume.kubernetes.io/selected-node=b",
        &[],
        expect![[r#"
            update persistentvolumeclaims c
        "#]],
    );
    // Down.
    of_claim(
        "annotation:volume.kubernetes.io/selected-node=b",
        &[
            "node b label:kubernetes.io/hostname=b",
            &helper("make", "c-uid", "b", "phase=Pending age=70"),
        ],
        expect![[r#"
            create pods remove-pvc-c-uid
            delete pods kube-system/make-pvc-c-uid
            update persistentvolumeclaims c
        "#]],
    );
    // Slow.
    of_claim(
        SELECTED,
        &[&helper("make", "c-uid", "a", "phase=Pending age=70")],
        expect![[r#"
            again after 60s
        "#]],
    );
    // The scheduler has chosen another.
    of_claim(
        SELECTED,
        &["node b", &helper("make", "c-uid", "b", "phase=Succeeded")],
        expect![[r#"
            create pods remove-pvc-c-uid
            delete pods kube-system/make-pvc-c-uid
        "#]],
    );
}

#[test]
fn a_node_makes_a_few_at_a_time() {
    let others: Vec<String> =
        (0..8).map(|at| helper("make", &format!("other{at}-uid"), "a", "phase=Pending")).collect();
    let others = others.join("\n").replace("default/c", "default/other");
    of_claim(
        SELECTED,
        &[&others],
        expect![[r#"
            again after 1s
        "#]],
    );
    of_volume(
        "phase=Released",
        &[&others],
        expect![[r#"
            again after 1s
        "#]],
    );
    let done = others.replacen("Pending", "Succeeded", 1);
    of_volume(
        "phase=Released",
        &[&done],
        expect![[r#"
            create pods remove-pvc-c-uid
        "#]],
    );
}

#[test]
fn what_was_made_for_a_claim_that_is_gone_is_removed() {
    let made = |more: &str| helper("make", "old-uid", "a", more);
    let gone = |pod: &str, expected| check(&[pod], &["default/c"], expected);
    gone(
        &made("phase=Succeeded"),
        expect![[r#"
            create pods remove-pvc-old-uid
            delete pods kube-system/make-pvc-old-uid
        "#]],
    );
    // First it has to end.
    gone(
        &made("phase=Running"),
        expect![[r#"
            again after 60s
        "#]],
    );
    // Another claim has that name now.
    of_claim(
        "",
        &[&made("phase=Succeeded")],
        expect![[r#"
            create pods remove-pvc-old-uid
            delete pods kube-system/make-pvc-old-uid
        "#]],
    );
    check(
        &[&helper("remove", "old-uid", "a", "phase=Succeeded")],
        &["pvc-old-uid"],
        expect![[r#"
            delete pods kube-system/remove-pvc-old-uid
        "#]],
    );
}

#[test]
fn a_released_volume_loses_its_folder_and_then_its_object() {
    of_volume("phase=Bound", &[], expect![[""]]);
    of_volume("phase=Bound deleting", &[], expect![[""]]);
    for over in
        ["phase=Released", "phase=Failed", "phase=Released deleting", "phase=Available deleting"]
    {
        of_volume(
            over,
            &[],
            expect![[r#"
                create pods remove-pvc-c-uid
            "#]],
        );
    }
    of_volume(
        "phase=Released",
        &[&helper("remove", "c-uid", "a", "phase=Succeeded")],
        expect![[r#"
            update persistentvolumes pvc-c-uid
            delete persistentvolumes pvc-c-uid
            delete pods kube-system/remove-pvc-c-uid
        "#]],
    );
    of_volume(
        "phase=Released deleting",
        &[&helper("remove", "c-uid", "a", "phase=Succeeded")],
        expect![[r#"
            update persistentvolumes pvc-c-uid
            delete pods kube-system/remove-pvc-c-uid
        "#]],
    );
    // That one removed what was made on another node.
    of_volume(
        "phase=Released",
        &[&helper("remove", "c-uid", "b", "phase=Succeeded")],
        expect![[r#"
            delete pods kube-system/remove-pvc-c-uid
        "#]],
    );
    let message = "status.containerStatuses=[{\"state\":{\"terminated\":{\"exitCode\":1,\"message\":\"busy\"}}}]";
    of_volume(
        "phase=Released",
        &[&helper("remove", "c-uid", "a", message)],
        expect![[r#"
            event VolumeFailedDelete busy
        "#]],
    );
}

#[test]
fn data_is_kept_where_it_is_to_be_kept() {
    let kept = "spec.persistentVolumeReclaimPolicy=Retain";
    of_volume(&format!("{kept} phase=Released"), &[], expect![[""]]);
    of_volume(
        &format!("{kept} phase=Released deleting"),
        &[],
        expect![[r#"
            update persistentvolumes pvc-c-uid
        "#]],
    );
    // Somebody else's.
    of_volume(
        "phase=Released annotation:pv.kubernetes.io/provisioned-by=other",
        &[],
        expect![[""]],
    );
    // Paths that we have not made.
    for path in ["/v/pvc-c-uid", "/v/other/data", "/v/../pvc-c-uid/data", "v/pvc-c-uid/data"] {
        of_volume(
            &format!("phase=Released spec.local.path={path}"),
            &[],
            expect![[r#"
                event VolumeFailedDelete its path is none that was made for it: its data is left alone
            "#]],
        );
    }
}

#[test]
fn a_volume_of_a_node_that_is_gone_goes() {
    of_volume(
        "phase=Released annotation:skiff.dev/local-volume-node=b",
        &[],
        expect![[r#"
            event VolumeNodeGone node "b" is gone, and the volume's data with it
            update persistentvolumes pvc-c-uid
            delete persistentvolumes pvc-c-uid
        "#]],
    );
}

#[test]
fn a_claim_grows_by_saying_so() {
    let bound = |wanted: &str, has: &str| {
        format!(
            "spec.volumeName=pvc-c-uid spec.resources.requests.storage={wanted} status.phase=Bound status.capacity.storage={has}"
        )
    };
    of_claim(&bound("1Gi", "1Gi"), &[&volume("phase=Bound")], expect![[""]]);
    of_claim(
        &bound("2Gi", "1Gi"),
        &[&volume("phase=Bound")],
        expect![[r#"
            update persistentvolumes pvc-c-uid
            update persistentvolumeclaims/status c {"capacity":{"storage":"2Gi"},"phase":"Bound"}
        "#]],
    );
    // Half of it was done.
    of_claim(
        &bound("2Gi", "1Gi"),
        &[&volume("phase=Bound spec.capacity.storage=2Gi")],
        expect![[r#"
            update persistentvolumeclaims/status c {"capacity":{"storage":"2Gi"},"phase":"Bound"}
        "#]],
    );
}
