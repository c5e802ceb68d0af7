//! One claim: a folder is made for it, and a volume that leads there; a bound one may grow.
use super::helper::{self, DATA, Helper, Progress, Step, Task};
use super::{
    FINALIZER, NODE, PATH, PROVISIONED_BY, PROVISIONER, annotation, is_ours, name, of_map,
    volume_name,
};
use crate::action::{Action, Create};
use crate::world::World;
use api::names::NamespacedName;
use api::quantity::Quantity;
use client::ApiResource;
use client::events::{Happening, reference};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Says who is to make the volume: the binder, once the class is known and a node is chosen.
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// A node that has not begun by then may be down: another is chosen.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn reconcile(claim: &PersistentVolumeClaim, world: &World, now: Timestamp) -> Vec<Action> {
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    if let Some(volume) = volume.filter(|name| !name.is_empty()) {
        let volume = world.find::<PersistentVolume>("", volume).filter(|it| is_ours(it));
        return volume.map(|volume| grow(claim, &volume)).unwrap_or_default();
    }
    let is_asked = annotation(claim, STORAGE_PROVISIONER) == Some(PROVISIONER);
    if !is_asked || claim.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let class = world.find::<StorageClass>("", class.unwrap_or_default());
    let Some(class) = class.filter(|class| class.provisioner == PROVISIONER) else {
        return Vec::new();
    };
    match asked(claim, &class) {
        Ok(base) => provision(claim, &class, &base, world, now),
        // Nobody but its owner can change that.
        Err(why) => vec![failed(claim, &class, &why)],
    }
}

/// The folder of all volumes of the class, unless the claim or the class asks for what there is not.
fn asked(claim: &PersistentVolumeClaim, class: &StorageClass) -> Result<String, String> {
    let spec = claim.spec.clone().unwrap_or_default();
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err("folders are no block devices: volumeMode has to be Filesystem".to_owned());
    }
    let one_node = ["ReadWriteOnce", "ReadWriteOncePod"];
    let modes = spec.access_modes.unwrap_or_default();
    if let Some(mode) = modes.iter().find(|mode| !one_node.contains(&mode.as_str())) {
        return Err(format!(
            "{mode} is not for folders of one node: there are {}",
            one_node.join(" and ")
        ));
    }
    if spec.selector.is_some() {
        return Err("claim.spec.selector is not for volumes that are made for a claim".to_owned());
    }
    if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        return Err("a folder begins empty: no dataSource is copied into it".to_owned());
    }
    let parameters = class.parameters.clone().unwrap_or_default();
    if let Some(unknown) = parameters.keys().find(|key| *key != PATH) {
        return Err(format!("the class has an unknown parameter {unknown:?}; there is {PATH:?}"));
    }
    let base = parameters.get(PATH).map(String::as_str).unwrap_or_default();
    let parts: Vec<&str> = base.split('/').skip(1).collect();
    let is_whole = parts.iter().all(|part| !["", ".", ".."].contains(part));
    if !base.starts_with('/') || !is_whole {
        return Err(format!(
            "the class's parameter {PATH:?} has to be the folder of volumes on each node, such as \
             /var/lib/skiff/volumes, and is {base:?}"
        ));
    }
    if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
        return Err(
            "a folder is of one node, and nobody has said of which: the class has to have \
                    volumeBindingMode: WaitForFirstConsumer"
                .to_owned(),
        );
    }
    Ok(base.to_owned())
}

fn failed(claim: &PersistentVolumeClaim, class: &StorageClass, why: &str) -> Action {
    let note = format!("failed to provision volume with StorageClass {:?}: {why}", name(class));
    Action::Record(Happening::warning(reference(claim), "ProvisioningFailed", note))
}

fn provision(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    base: &str,
    world: &World,
    now: Timestamp,
) -> Vec<Action> {
    let volume = volume_name(claim.metadata.uid.as_deref().unwrap_or_default());
    let made = helper::find(world, Step::Make, &volume);
    if world.find::<PersistentVolume>("", &volume).is_some() {
        // The binder has it now.
        return made.iter().map(|pod| helper::end(pod)).collect();
    }
    let Some(selected) = annotation(claim, SELECTED_NODE) else { return Vec::new() };
    let Some(node) = world.find::<Node>("", selected) else {
        return vec![elsewhere(claim)];
    };
    let Some(hostname) = of_map(node.metadata.labels.as_ref(), HOSTNAME) else {
        let why = format!("node {selected:?} has no label {HOSTNAME}, by which volumes find it");
        return vec![failed(claim, class, &why)];
    };
    let key =
        NamespacedName::new(claim.metadata.namespace.as_deref().unwrap_or_default(), name(claim));
    let Some(pod) = made else {
        if let Some(later) = helper::is_busy(selected, world) {
            return vec![later];
        }
        let (namespace, name) = (&key.namespace, &key.name);
        let note =
            format!("External provisioner is provisioning volume for claim \"{namespace}/{name}\"");
        let told = Happening::normal(reference(claim), "Provisioning", note);
        let task = Task { step: Step::Make, volume: &volume, claim: &key, node: selected, base };
        return vec![Action::Record(told), helper::begin(&task)];
    };
    // The scheduler may have chosen another since; what was made there is removed.
    let is_elsewhere = helper::place(&pod) != Some((selected, base));
    match helper::progress(&pod, now) {
        Progress::Done | Progress::Refused(..) if is_elsewhere => undo(&pod),
        Progress::Done => {
            let note = format!("Successfully provisioned volume {volume}");
            let told = Happening::normal(reference(claim), "ProvisioningSucceeded", note);
            vec![
                leads_to(claim, class, &volume, (selected, hostname), base),
                Action::Record(told),
                helper::end(&pod),
            ]
        }
        Progress::Trying(failure) => {
            let told = failure.map(|why| failed(claim, class, &why));
            let mut actions: Vec<Action> = told.into_iter().collect();
            match helper::is_stuck(&pod, now, PATIENCE) && !is_ready(&node) {
                true => {
                    actions.extend(undo(&pod));
                    actions.push(elsewhere(claim));
                }
                false => actions.push(Action::Again(PATIENCE)),
            }
            actions
        }
        Progress::Refused(why, left) if left.is_zero() => {
            vec![failed(claim, class, &why), helper::end(&pod)]
        }
        Progress::Refused(why, left) => vec![failed(claim, class, &why), Action::Again(left)],
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut ready = conditions.into_iter().flatten().filter(|one| one.type_ == "Ready");
    ready.any(|one| one.status == "True")
}

/// The scheduler is to choose again.
fn elsewhere(claim: &PersistentVolumeClaim) -> Action {
    let mut new = claim.clone();
    if let Some(annotations) = &mut new.metadata.annotations {
        annotations.remove(SELECTED_NODE);
    }
    Action::update(&new)
}

/// The volume of a folder.
fn leads_to(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    volume: &str,
    (node, hostname): (&str, &str),
    base: &str,
) -> Action {
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let mut about = reference(claim);
    about.resource_version = None;
    let mut object = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": volume,
            "annotations": { PROVISIONED_BY: PROVISIONER, NODE: node },
            "finalizers": [FINALIZER],
        },
        "spec": {
            "capacity": { "storage": requests.get("storage") },
            "accessModes": spec.access_modes,
            "claimRef": about,
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "storageClassName": name(class),
            "volumeMode": "Filesystem",
            "local": { "path": format!("{base}/{volume}/{DATA}") },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": HOSTNAME, "operator": "In", "values": [hostname] } ] }] } },
        },
    });
    if let Some(options) = &class.mount_options {
        object["spec"]["mountOptions"] = json!(options);
    }
    let resource = ApiResource::of::<PersistentVolume>();
    Action::Create(Create { resource, object, tell: None, may_exist: true })
}

/// A folder has as much room as its disk: to grow is to say so.
fn grow(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Vec<Action> {
    let named = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    if named.is_none_or(|named| named.uid != claim.metadata.uid) {
        return Vec::new();
    }
    let read = |quantity: Option<&_>| quantity.and_then(|it| Quantity::try_from(it).ok());
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let wanted = resources.and_then(|it| it.requests.as_ref()?.get("storage"));
    let has = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    let says = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    let mut actions = Vec::new();
    // A claim that is not bound yet is told by the binder.
    if says.is_none() || read(wanted) <= read(says) {
        return actions;
    }
    let Some(wanted) = wanted.cloned() else { return actions };
    if read(has) < read(Some(&wanted)) {
        let mut new = volume.clone();
        let capacity = new.spec.get_or_insert_default().capacity.get_or_insert_default();
        capacity.insert("storage".to_owned(), wanted.clone());
        actions.push(Action::update(&new));
    }
    let mut new = claim.clone();
    let status = new.status.get_or_insert_default();
    status.capacity.get_or_insert_default().insert("storage".to_owned(), wanted);
    actions.push(Action::update_part("status", &new));
    actions
}

/// What a pod has made, or will have made when its node comes back, is of no use.
fn undo(pod: &Pod) -> Vec<Action> {
    let (Some(helper), Some((node, base))) = (Helper::of(pod), helper::place(pod)) else {
        return Vec::new();
    };
    let (volume, claim) = (&*helper.volume.name, &helper.claim);
    vec![helper::begin(&Task { step: Step::Remove, volume, claim, node, base }), helper::end(pod)]
}

/// Pods of ours that made something for an earlier claim of this name.
pub fn left_behind(key: &NamespacedName, uid: &str, world: &World, now: Timestamp) -> Vec<Action> {
    let of_earlier = |pod: &Arc<Pod>| {
        let helper = Helper::of(pod)?;
        let is_earlier = *helper.volume.name != *volume_name(uid);
        (helper.claim == *key && helper.step == Step::Make && is_earlier).then_some(helper.volume)
    };
    let mut actions = Vec::new();
    for pod in helper::all(world) {
        let Some(volume) = of_earlier(&pod) else { continue };
        match helper::progress(&pod, now) {
            _ if world.get::<PersistentVolume>(&volume).is_some() => {
                actions.push(helper::end(&pod));
            }
            // It would make the folder after it was removed.
            Progress::Trying(_) if !helper::is_stuck(&pod, now, PATIENCE) => {
                actions.push(Action::Again(PATIENCE));
            }
            _ => actions.extend(undo(&pod)),
        }
    }
    actions
}
