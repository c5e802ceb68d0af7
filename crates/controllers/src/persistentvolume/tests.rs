use super::*;
use crate::testing::{check_row, check_run};
use expect_test::{Expect, expect};

fn check(world: &str, expect: Expect) {
    check_row(&CONTROLLER, world, &["default/data", "disk"], expect);
}

const CLAIM: &str = "persistentvolumeclaim data status.phase=Pending \
    spec={\"accessModes\":[\"ReadWriteOnce\"],\"storageClassName\":\"\",\"resources\":{\"requests\":{\"storage\":\"1Gi\"}}}";
const VOLUME: &str =
    "status.phase=Available spec.accessModes=[\"ReadWriteOnce\"] spec.capacity.storage=\"2Gi\"";
const FOR_DATA: &str =
    "spec.claimRef={\"namespace\":\"default\",\"name\":\"data\",\"uid\":\"data-uid\"}";

#[test]
fn both_ends_are_bound_and_say_so() {
    check_run(
        &CONTROLLER,
        &format!("{CLAIM}\n persistentvolume disk {VOLUME}"),
        expect![[r#"
            update persistentvolumes disk
            update persistentvolumeclaims default/data
            update persistentvolumes/status disk
            update persistentvolumeclaims/status default/data
        "#]],
    );
    check(
        &format!(
            "{CLAIM} spec.volumeName=disk annotation:pv.kubernetes.io/bind-completed=yes\n persistentvolume disk {VOLUME} {FOR_DATA} phase=Bound"
        ),
        expect![[r#"
            update persistentvolumeclaims/status data {"accessModes":["ReadWriteOnce"],"capacity":{"storage":"2Gi"},"phase":"Bound"}
        "#]],
    );
}

#[test]
fn the_smallest_that_fits_is_taken() {
    let more = "spec.accessModes=[\"ReadWriteOnce\",\"ReadOnlyMany\"]";
    check_row(
        &CONTROLLER,
        &format!(
            "{CLAIM}
             persistentvolume large {VOLUME} spec.capacity.storage=\"9Gi\"
             persistentvolume small {VOLUME} spec.capacity.storage=\"1Mi\"
             persistentvolume versatile {VOLUME} spec.capacity.storage=\"1Gi\" {more}
             persistentvolume other {VOLUME} spec.storageClassName=fast
             persistentvolume raw {VOLUME} spec.volumeMode=Block
             persistentvolume right {VOLUME}
             persistentvolume taken {VOLUME} spec.claimRef={{\"namespace\":\"default\",\"name\":\"x\"}}
             persistentvolume going {VOLUME} deleting finalizers=x
             persistentvolume used {VOLUME} phase=Released"
        ),
        &["default/data"],
        expect![[r#"
            update persistentvolumes right
            update persistentvolumeclaims data
        "#]],
    );
    check_row(
        &CONTROLLER,
        &format!(
            "{CLAIM} spec.selector.matchLabels.tier=gold
             persistentvolume plain {VOLUME}
             persistentvolume gold {VOLUME} label:tier=gold"
        ),
        &["default/data"],
        expect![[r#"
            update persistentvolumes gold
            update persistentvolumeclaims data
        "#]],
    );
}

#[test]
fn who_waits_says_for_what() {
    check(
        CLAIM,
        expect![[r#"
        event FailedBinding no persistent volumes available for this claim and no storage class is set
        again after 15s
    "#]],
    );
    let of_class = CLAIM.replace("\"\"", "\"fast\"");
    check(
        &of_class,
        expect![[r#"
        event ProvisioningFailed storageclass.storage.k8s.io "fast" not found
        again after 15s
    "#]],
    );
    let class = "storageclass fast provisioner=example.com/disks";
    check(
        &format!("{of_class}\n {class}"),
        expect![[r#"
        update persistentvolumeclaims data
        event ExternalProvisioning Waiting for a volume to be created either by the external provisioner 'example.com/disks' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.
        again after 15s
    "#]],
    );
    check(
        &format!("{of_class}\n storageclass fast provisioner=kubernetes.io/no-provisioner"),
        expect![[r#"
            event ProvisioningFailed no volume plugin matched name: kubernetes.io/no-provisioner
            again after 15s
        "#]],
    );
    let late = format!("{class} volumeBindingMode=WaitForFirstConsumer");
    check(
        &format!("{of_class}\n {late}"),
        expect![[r#"
        event WaitForFirstConsumer waiting for first consumer to be created before binding
        again after 15s
    "#]],
    );
    let pod = "spec.volumes=[{\"name\":\"v\",\"persistentVolumeClaim\":{\"claimName\":\"data\"}}]";
    check(
        &format!("{of_class}\n {late}\n pod a {pod}\n pod b {pod}"),
        expect![[r#"
        event WaitForPodScheduled waiting for pods a,b to be scheduled
        again after 15s
    "#]],
    );
    check(
        &format!("{of_class} annotation:volume.kubernetes.io/selected-node=n\n {late}"),
        expect![[r#"
            update persistentvolumeclaims data
            event ExternalProvisioning Waiting for a volume to be created either by the external provisioner 'example.com/disks' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.
            again after 15s
        "#]],
    );
}

#[test]
fn the_newest_default_class_is_given_to_whom_has_none() {
    let classless = CLAIM.replace("\"storageClassName\":\"\",", "");
    let default = "annotation:storageclass.kubernetes.io/is-default-class=\"true\"";
    crate::testing::check_tree(
        &CONTROLLER,
        &format!(
            "{classless}\n storageclass old {default} provisioner=x age=100\n storageclass new {default} provisioner=x age=10"
        ),
        "default/data",
        "spec",
        expect![[r#"
            update persistentvolumeclaims data
              {"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"new"}
        "#]],
    );
}

#[test]
fn a_claim_that_names_its_volume_gets_that_or_none() {
    let claim = format!("{CLAIM} spec.volumeName=disk");
    check(&claim, expect![[""]]);
    check(
        &format!("{claim}\n persistentvolume disk {VOLUME}"),
        expect![[r#"
        update persistentvolumes disk
        update persistentvolumeclaims data
    "#]],
    );
    check(
        &format!("{claim}\n persistentvolume disk {VOLUME} spec.capacity.storage=\"1Mi\""),
        expect![[r#"
            event VolumeMismatch Cannot bind to requested volume "disk": requested PV is too small
            again after 15s
        "#]],
    );
    let other = "spec.claimRef={\"namespace\":\"default\",\"name\":\"other\"}";
    check(
        &format!("{claim}\n persistentvolume disk {VOLUME} {other}"),
        expect![[r#"
        event FailedBinding volume "disk" already bound to a different claim.
        again after 15s
    "#]],
    );
}

#[test]
fn a_volume_that_names_its_claim_is_kept_for_it() {
    check(
        &format!(
            "{CLAIM}\n persistentvolume disk {VOLUME} spec.claimRef={{\"namespace\":\"default\",\"name\":\"data\"}}"
        ),
        expect![[r#"
            update persistentvolumes disk
            update persistentvolumeclaims data
        "#]],
    );
}

#[test]
fn what_was_bound_and_is_gone_is_lost() {
    let bound = format!("{CLAIM} annotation:pv.kubernetes.io/bind-completed=yes phase=Bound");
    check(
        &bound,
        expect![[r#"
        update persistentvolumeclaims/status data {"phase":"Lost"}
        event ClaimLost Bound claim has lost reference to PersistentVolume. Data on the volume is lost!
    "#]],
    );
    check(
        &format!("{bound} spec.volumeName=disk"),
        expect![[r#"
        update persistentvolumeclaims/status data {"phase":"Lost"}
        event ClaimLost Bound claim has lost its PersistentVolume. Data on the volume is lost!
    "#]],
    );
    let other = "spec.claimRef={\"namespace\":\"default\",\"name\":\"data\",\"uid\":\"before\"}";
    check_row(
        &CONTROLLER,
        &format!("{bound} spec.volumeName=disk\n persistentvolume disk {VOLUME} {other}"),
        &["default/data"],
        expect![[r#"
            update persistentvolumeclaims/status data {"phase":"Lost"}
            event ClaimMisbound Two claims are bound to the same volume, this one is bound incorrectly
        "#]],
    );
}

#[test]
fn a_volume_whose_claim_is_gone_is_reclaimed_as_it_says() {
    check(
        &format!("persistentvolume disk {VOLUME} {FOR_DATA} phase=Bound"),
        expect![[r#"
        look at persistentvolumeclaims default/data
    "#]],
    );
    for (policy, expect) in [
        ("Retain", expect![[""]]),
        (
            "Recycle",
            expect![[r#"
            update persistentvolumes/status disk {"message":"No recycler plugin found for the volume!","phase":"Failed"}
            event VolumeFailedRecycle No recycler plugin found for the volume!
        "#]],
        ),
        (
            "Delete",
            expect![[r#"
            update persistentvolumes/status disk {"message":"error getting deleter volume plugin for volume \"disk\": no deletable volume plugin matched","phase":"Failed"}
            event VolumeFailedDelete error getting deleter volume plugin for volume "disk": no deletable volume plugin matched
        "#]],
        ),
        ("Delete annotation:pv.kubernetes.io/provisioned-by=example.com/disks", expect![[""]]),
    ] {
        let policy = format!("spec.persistentVolumeReclaimPolicy={policy}");
        check(
            &format!("persistentvolume disk {VOLUME} {FOR_DATA} {policy} phase=Released"),
            expect,
        );
    }
}

#[test]
fn a_volume_whose_claim_has_another_is_free_again() {
    let claim = format!("{CLAIM} spec.volumeName=other");
    for ours in ["annotation:pv.kubernetes.io/bound-by-controller=yes", ""] {
        crate::testing::check_tree(
            &CONTROLLER,
            &format!("{claim}\n persistentvolume disk {VOLUME} {FOR_DATA} {ours}"),
            "disk",
            "spec",
            if ours.is_empty() {
                expect![[r#"
                update persistentvolumes disk
                  {"accessModes":["ReadWriteOnce"],"capacity":{"storage":"2Gi"},"claimRef":{"name":"data","namespace":"default"}}
            "#]]
            } else {
                expect![[r#"
                update persistentvolumes disk
                  {"accessModes":["ReadWriteOnce"],"capacity":{"storage":"2Gi"}}
            "#]]
            },
        );
    }
}
