//! Pods that want one volume with different SELinux labels are warned: on one node, only one of them
//! would get it.
//!
//! Only volumes that are mounted with a label matter to others (CSI drivers that say `seLinuxMount`, and
//! iSCSI and Fibre Channel); elsewhere files are relabelled one by one. What was told once is not told
//! again while it is as it was.
use crate::action::Action;
use crate::attach_detach::wanted::iscsi_name;
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::{Memo, World};
use api::names::NamespacedName;
use client::events::{Happening, reference};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, PersistentVolume, PersistentVolumeClaim, Pod, SELinuxOptions,
};
use k8s_openapi::api::storage::v1::CSIDriver;
use std::collections::{BTreeMap, BTreeSet};

pub const CONTROLLER: Controller = Controller {
    name: "selinux-warning-controller",
    account: "selinux-warning-controller",
    workers: 1,
    watch,
    reconcile,
};

fn watch(on: &Watching) {
    on.objects::<Pod>();
    on.each::<PersistentVolumeClaim>(|world, change| {
        let volume = |claim: &Option<std::sync::Arc<PersistentVolumeClaim>>| {
            claim.as_ref().and_then(|it| it.spec.as_ref()?.volume_name.clone())
        };
        match volume(&change.old) == volume(&change.new) {
            true => Vec::new(),
            false => pods_with(world, &change.key),
        }
    });
    on.each::<PersistentVolume>(|world, change| {
        let claim = |volume: &PersistentVolume| volume.spec.as_ref()?.claim_ref.clone();
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        let (old, new) = (old.and_then(claim), new.and_then(claim));
        let Some(new) = new.filter(|new| old.is_none_or(|old| old.uid != new.uid)) else {
            return Vec::new();
        };
        let text = |text: Option<String>| text.unwrap_or_default();
        pods_with(world, &NamespacedName::new(&text(new.namespace), &text(new.name)))
    });
    on.each::<CSIDriver>(|world, change| {
        let mounts = |driver: &Option<std::sync::Arc<CSIDriver>>| {
            driver.as_ref().is_some_and(|driver| driver.spec.se_linux_mount == Some(true))
        };
        if mounts(&change.old) == mounts(&change.new) {
            return Vec::new();
        }
        let pods = world.informer::<Pod>();
        pods.read().iter().map(|(key, _)| key.clone()).collect()
    });
}

fn pods_with(world: &World, claim: &NamespacedName) -> Vec<NamespacedName> {
    let pods = world.informer::<Pod>();
    let read = pods.read();
    let uses = |pod: &Pod| pods::claims(pod).iter().any(|(name, _)| **name == *claim.name);
    let found = read.in_namespace(&claim.namespace).filter(|(_, pod)| uses(pod));
    found.map(|(key, _)| key.clone()).collect()
}

/// How a pod wants one volume.
#[derive(Debug, Clone, PartialEq)]
struct Use {
    label: String,
    policy: String,
}

/// What a pod was last seen to want, by the volume's own name.
#[derive(Debug, PartialEq)]
struct Seen(BTreeMap<String, Use>);

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let pod = world.get::<Pod>(key).filter(|pod| !pods::is_finished(pod));
    let memory = key.to_string();
    let Some(pod) = pod else {
        return match world.recall::<Seen>(&memory) {
            Some(_) => vec![Action::Remember(Memo::nothing::<Seen>(&memory))],
            None => Vec::new(),
        };
    };
    let mut actions = Vec::new();
    let (uses, torn) = uses(&pod, world);
    for volume in torn {
        let note = format!(
            "Volume {volume:?} is mounted twice with different SELinux labels inside this pod"
        );
        let about = reference(&*pod);
        actions.push(Action::Record(Happening::warning(about, "MultipleSELinuxLabels", note)));
    }
    let seen = world.recall::<Seen>(&memory);
    let is_told = |volume: &str, wanted: &Use| {
        seen.as_ref().is_some_and(|it| it.0.get(volume) == Some(wanted))
    };
    for (volume, wanted) in &uses {
        if is_told(volume, wanted) {
            continue;
        }
        for (other, used) in others(world, key, volume) {
            actions.extend(conflicts(&pod, wanted, &other, &used));
        }
    }
    if seen.is_none_or(|seen| seen.0 != uses) {
        actions.push(Action::Remember(Memo::new(&memory, Seen(uses))));
    }
    actions
}

/// Other pods that want the same volume.
fn others(world: &World, key: &NamespacedName, volume: &str) -> Vec<(std::sync::Arc<Pod>, Use)> {
    let all = world.all::<Pod>().into_iter().filter(|pod| !pods::is_finished(pod));
    let others = all.filter(|pod| {
        let metadata = &pod.metadata;
        (metadata.namespace.as_deref(), metadata.name.as_deref())
            != (Some(&*key.namespace), Some(&*key.name))
    });
    // Only those that were looked at already: the others will find us.
    others
        .filter_map(|pod| {
            let (namespace, name) =
                (pod.metadata.namespace.as_deref()?, pod.metadata.name.as_deref()?);
            let seen = world.recall::<Seen>(&NamespacedName::new(namespace, name).to_string())?;
            seen.0.get(volume).cloned().map(|used| (pod, used))
        })
        .collect()
}

fn conflicts(pod: &Pod, wanted: &Use, other: &Pod, used: &Use) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut both = |property: &str, reason: &str, value: &str, others: &str| {
        for (about, value, other, its) in [(pod, value, other, others), (other, others, pod, value)]
        {
            let note = message(property, (about, value), (other, its));
            actions.push(Action::Record(Happening::normal(reference(about), reason, note)));
        }
    };
    if wanted.policy != used.policy {
        let reason = "SELinuxChangePolicyConflict";
        both("SELinuxChangePolicy", reason, &wanted.policy, &used.policy);
    }
    if is_conflict(&wanted.label, &used.label) {
        both("SELinuxLabel", "SELinuxLabelConflict", &wanted.label, &used.label);
    }
    actions
}

/// A pod elsewhere is not named.
fn message(property: &str, (pod, value): (&Pod, &str), (other, its): (&Pod, &str)) -> String {
    const END: &str = "If both pods land on the same node, only one of them may access the volume.";
    if pod.metadata.namespace == other.metadata.namespace {
        let name = other.metadata.name.as_deref().unwrap_or_default();
        return format!(
            "{property} \"{value}\" conflicts with pod {name} that uses the same volume as this pod \
             with {property} \"{its}\". {END}"
        );
    }
    // Without a space before the value: upstream's words.
    format!(
        "{property}\"{value}\" conflicts with another pod that uses the same volume as this pod with \
         a different {property}. {END}"
    )
}

/// User, role, type, level: what one of them leaves open may be anything, but for the level.
fn is_conflict(one: &str, other: &str) -> bool {
    let parts = |label: &str| {
        let mut parts = label.splitn(4, ':').map(str::to_owned);
        [(); 4].map(|()| parts.next().unwrap_or_default())
    };
    let (one, other) = (parts(one), parts(other));
    one[3] != other[3]
        || (0..3).any(|at| one[at] != other[at] && !one[at].is_empty() && !other[at].is_empty())
}

/// The volumes that a pod mounts, and those that its containers mount with several labels.
fn uses(pod: &Pod, world: &World) -> (BTreeMap<String, Use>, Vec<String>) {
    let (mut uses, mut torn) = (BTreeMap::new(), Vec::new());
    let Some(spec) = &pod.spec else { return (uses, torn) };
    let security = spec.security_context.as_ref();
    let whole = security.and_then(|security| security.se_linux_options.as_ref());
    let policy = security.and_then(|security| security.se_linux_change_policy.as_deref());
    let mut labels: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    for container in containers {
        let own = own_options(container).or(whole).map(label);
        for mount in container.volume_mounts.iter().flatten() {
            labels.entry(&mount.name).or_default().extend(own.clone());
        }
    }
    for (mount, labels) in labels {
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount);
        let Some((name, is_labelled)) = volume.and_then(|it| named(pod, it, world)) else {
            continue;
        };
        if labels.len() > 1 {
            torn.push(mount.to_owned());
            continue;
        }
        let is_recursive = policy == Some("Recursive") || !is_labelled;
        let label = labels.into_iter().next().filter(|_| !is_recursive).unwrap_or_default();
        let policy = if label.is_empty() { "Recursive" } else { policy.unwrap_or("MountOption") };
        uses.insert(name, Use { label, policy: policy.to_owned() });
    }
    (uses, torn)
}

fn own_options(container: &Container) -> Option<&SELinuxOptions> {
    container.security_context.as_ref()?.se_linux_options.as_ref()
}

fn label(options: &SELinuxOptions) -> String {
    let SELinuxOptions { user, role, type_, level } = options;
    let parts = [user, role, type_, level].map(|part| part.as_deref().unwrap_or_default());
    let label = parts.join(":");
    if label == ":::" { String::new() } else { label }
}

/// What a volume is, whoever mounts it, and whether it is mounted with a label; `None`: no volume that
/// two pods could share, or not known yet.
fn named(
    pod: &Pod,
    volume: &k8s_openapi::api::core::v1::Volume,
    world: &World,
) -> Option<(String, bool)> {
    let namespace = pod.metadata.namespace.as_deref()?;
    let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => claim.claim_name.clone(),
        (None, Some(_)) => format!("{}-{}", pod.metadata.name.as_deref()?, volume.name),
        (None, None) => {
            let iscsi = volume.iscsi.as_ref().map(|it| (&it.target_portal, &it.iqn, it.lun));
            let of_iscsi = iscsi.map(|(portal, iqn, lun)| (iscsi_name(portal, iqn, lun), true));
            let of_nfs = || {
                let nfs = volume.nfs.as_ref()?;
                Some((format!("kubernetes.io/nfs/{}/{}", nfs.server, nfs.path), false))
            };
            return of_iscsi.or_else(of_nfs);
        }
    };
    let claim = world.find::<PersistentVolumeClaim>(namespace, &claim)?;
    let name = claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())?;
    let volume = world.find::<PersistentVolume>("", name)?;
    let spec = volume.spec.as_ref()?;
    if let Some(csi) = &spec.csi {
        let driver = world.find::<CSIDriver>("", &csi.driver);
        let is_labelled = driver.is_some_and(|driver| driver.spec.se_linux_mount == Some(true));
        return Some((
            format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle),
            is_labelled,
        ));
    }
    if let Some(it) = &spec.iscsi {
        return Some((iscsi_name(&it.target_portal, &it.iqn, it.lun), true));
    }
    if let Some(fc) = &spec.fc {
        let ids = fc.target_wwns.clone().filter(|ids| !ids.is_empty() && fc.lun.is_some());
        let name = match ids {
            Some(ids) => format!("[{}]:{}", ids.join(" "), fc.lun.unwrap_or_default()),
            None => format!("[{}]", fc.wwids.clone().unwrap_or_default().join(" ")),
        };
        return Some((format!("kubernetes.io/fc/{name}"), true));
    }
    if let Some(nfs) = &spec.nfs {
        return Some((format!("kubernetes.io/nfs/{}/{}", nfs.server, nfs.path), false));
    }
    let path = spec.host_path.as_ref()?;
    Some((format!("kubernetes.io/host-path/{}", path.path), false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_turns;
    use expect_test::{Expect, expect};

    const STORAGE: &str = "csidriver d spec.seLinuxMount=true
        persistentvolume v spec={\"csi\":{\"driver\":\"d\",\"volumeHandle\":\"h\"},\"claimRef\":{\"namespace\":\"default\",\"name\":\"c\",\"uid\":\"c-uid\"}}
        persistentvolumeclaim c spec.volumeName=v";

    fn pod(name: &str, more: &str) -> String {
        format!(
            "pod {name} spec={{\"containers\":[{{\"name\":\"c\",\"volumeMounts\":[{{\"name\":\"data\",\"mountPath\":\"/d\"}}]}}],\"volumes\":[{{\"name\":\"data\",\"persistentVolumeClaim\":{{\"claimName\":\"c\"}}}}]}} {more}\n"
        )
    }

    fn level(level: &str) -> String {
        format!("spec.securityContext.seLinuxOptions.level={level}")
    }

    fn check(world: &str, expect: Expect) {
        let world = format!("{STORAGE}\n{world}");
        check_turns(&CONTROLLER, &world, &["default/a", "default/b", "default/a"], expect);
    }

    #[test]
    fn pods_with_different_labels_are_both_told() {
        check(
            &(pod("a", &level("s0:c1,c2")) + &pod("b", &level("s0:c3,c4"))),
            expect![[r#"
                event SELinuxLabelConflict SELinuxLabel ":::s0:c3,c4" conflicts with pod a that uses the same volume as this pod with SELinuxLabel ":::s0:c1,c2". If both pods land on the same node, only one of them may access the volume.
                event SELinuxLabelConflict SELinuxLabel ":::s0:c1,c2" conflicts with pod b that uses the same volume as this pod with SELinuxLabel ":::s0:c3,c4". If both pods land on the same node, only one of them may access the volume.
            "#]],
        );
    }

    #[test]
    fn the_same_label_no_volume_of_both_or_an_end_is_no_conflict() {
        check(&(pod("a", &level("s0")) + &pod("b", &level("s0"))), expect![[""]]);
        let over = format!("{} phase=Succeeded", level("s1"));
        check(&(pod("a", &level("s0")) + &pod("b", &over)), expect![[""]]);
    }

    #[test]
    fn one_that_is_relabelled_file_by_file_is_told_of_its_policy() {
        let recursive =
            format!("{} spec.securityContext.seLinuxChangePolicy=Recursive", level("s0"));
        check(
            &(pod("a", &level("s0")) + &pod("b", &recursive)),
            expect![[r#"
                event SELinuxChangePolicyConflict SELinuxChangePolicy "Recursive" conflicts with pod a that uses the same volume as this pod with SELinuxChangePolicy "MountOption". If both pods land on the same node, only one of them may access the volume.
                event SELinuxChangePolicyConflict SELinuxChangePolicy "MountOption" conflicts with pod b that uses the same volume as this pod with SELinuxChangePolicy "Recursive". If both pods land on the same node, only one of them may access the volume.
                event SELinuxLabelConflict SELinuxLabel "" conflicts with pod a that uses the same volume as this pod with SELinuxLabel ":::s0". If both pods land on the same node, only one of them may access the volume.
                event SELinuxLabelConflict SELinuxLabel ":::s0" conflicts with pod b that uses the same volume as this pod with SELinuxLabel "". If both pods land on the same node, only one of them may access the volume.
            "#]],
        );
    }

    #[test]
    fn parts_that_are_left_open_may_be_anything_but_the_level() {
        assert!(!is_conflict("u:::s0", "::t:s0"));
        assert!(is_conflict("u:::s0", "v:::s0"));
        assert!(is_conflict(":::s0", ":::"));
        assert!(is_conflict(":::s0:c1", ":::s0:c2"));
    }
}
