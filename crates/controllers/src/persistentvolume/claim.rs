//! One claim: bound, to be bound, to be provisioned for, or lost.
use super::matching::{self, class_wanted, mismatch};
use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, CLASS, RESYNC, annotate, annotation, claim_spec, is_for,
    name, volume_spec,
};
use crate::action::Action;
use crate::pods;
use crate::world::World;
use client::events::{Happening, reference};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
const DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

pub fn reconcile(claim: &PersistentVolumeClaim, world: &World) -> Vec<Action> {
    let named = claim_spec(claim).volume_name.clone().unwrap_or_default();
    let volume = world.find::<PersistentVolume>("", &named).filter(|_| !named.is_empty());
    let is_completed = annotation(claim, BIND_COMPLETED).is_some();
    match volume {
        None if is_completed && named.is_empty() => lost(
            claim,
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        ),
        None if is_completed => lost(
            claim,
            "ClaimLost",
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        ),
        None if named.is_empty() => find_volume(claim, world),
        // The volume that it wants may still be made.
        None => pending(claim),
        Some(volume) if is_completed => {
            let taken = volume_spec(&volume).claim_ref.clone();
            match taken.is_none_or(|other| other.uid == claim.metadata.uid) {
                true => bind(&volume, claim),
                false => lost(
                    claim,
                    "ClaimMisbound",
                    "Two claims are bound to the same volume, this one is bound incorrectly",
                ),
            }
        }
        Some(volume) => bind_to_wanted(&volume, claim),
    }
}

/// A claim that names its volume itself.
fn bind_to_wanted(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Vec<Action> {
    if is_for(volume, claim) {
        return bind(volume, claim);
    }
    let (reason, note) = match mismatch(volume, claim) {
        _ if volume_spec(volume).claim_ref.is_some() => {
            let note = format!("volume {:?} already bound to a different claim.", name(volume));
            ("FailedBinding", note)
        }
        Ok(()) => return bind(volume, claim),
        Err(why) => {
            let note = format!("Cannot bind to requested volume {:?}: {why}", name(volume));
            ("VolumeMismatch", note)
        }
    };
    let told = Action::Record(Happening::warning(reference(claim), reason, note));
    [told].into_iter().chain(pending(claim)).chain([Action::Again(RESYNC)]).collect()
}

/// A claim that any volume would do for.
fn find_volume(claim: &PersistentVolumeClaim, world: &World) -> Vec<Action> {
    let class_name = class_wanted(claim);
    let class = world.find::<StorageClass>("", &class_name);
    let mode = class.as_ref().and_then(|class| class.volume_binding_mode.as_deref());
    let waits = mode == Some("WaitForFirstConsumer");
    if let Some(volume) = matching::best(claim, &world.all(), waits) {
        return bind(&volume, claim);
    }
    if let Some(with_class) = with_default_class(claim, world) {
        return vec![Action::update(&with_class)];
    }
    let mut actions = Vec::new();
    let tell = |reason: &str, note: &str| {
        Action::Record(Happening::normal(reference(claim), reason, note))
    };
    if waits && annotation(claim, SELECTED_NODE).is_none() {
        let (reason, note) = awaited(claim, world);
        actions.push(tell(reason, &note));
    } else if !class_name.is_empty() {
        actions.extend(provision(claim, &class_name, class.as_deref()));
    } else {
        let note = "no persistent volumes available for this claim and no storage class is set";
        actions.push(tell("FailedBinding", note));
    }
    actions.extend(pending(claim));
    actions.push(Action::Again(RESYNC));
    actions
}

/// A claim without a class gets the default one, though that came later: of several, the newest.
fn with_default_class(
    claim: &PersistentVolumeClaim,
    world: &World,
) -> Option<PersistentVolumeClaim> {
    if annotation(claim, CLASS).is_some() || claim_spec(claim).storage_class_name.is_some() {
        return None;
    }
    let mut classes = world.all::<StorageClass>();
    classes.retain(|class| DEFAULT.iter().any(|key| annotation(&**class, key) == Some("true")));
    let made = |class: &StorageClass| class.metadata.creation_timestamp.as_ref().map(|at| at.0);
    classes.sort_by(|a, b| made(b).cmp(&made(a)).then_with(|| name(&**a).cmp(name(&**b))));
    let mut new = claim.clone();
    new.spec.get_or_insert_default().storage_class_name = classes.first()?.metadata.name.clone();
    Some(new)
}

/// The pods that a claim waits for, until one of them has a node.
fn awaited(claim: &PersistentVolumeClaim, world: &World) -> (&'static str, String) {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let mut users = world.in_namespace::<Pod>(namespace);
    users.retain(|pod| {
        let uses = pods::claims(pod).iter().any(|(used, _)| used == name(claim));
        uses && !pods::is_finished(pod) && pods::node(pod).is_empty()
    });
    let mut names: Vec<_> = users.iter().map(|pod| name(&**pod)).collect();
    names.sort_unstable();
    match &names[..] {
        [] => {
            let note = "waiting for first consumer to be created before binding";
            ("WaitForFirstConsumer", note.to_owned())
        }
        [one] => ("WaitForPodScheduled", format!("waiting for pod {one} to be scheduled")),
        all => {
            ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", all.join(",")))
        }
    }
}

/// Hands the claim to the provisioner of its class, which makes a volume for it.
fn provision(
    claim: &PersistentVolumeClaim,
    class_name: &str,
    class: Option<&StorageClass>,
) -> Vec<Action> {
    let failed = |note: String| {
        vec![Action::Record(Happening::warning(reference(claim), "ProvisioningFailed", note))]
    };
    let Some(class) = class else {
        return failed(format!("storageclass.storage.k8s.io {class_name:?} not found"));
    };
    // Those were upstream's own, and are gone.
    if class.provisioner.starts_with("kubernetes.io/") {
        return failed(format!("no volume plugin matched name: {}", class.provisioner));
    }
    let mut actions = Vec::new();
    if annotation(claim, PROVISIONER) != Some(&class.provisioner) {
        let mut new = claim.clone();
        annotate(&mut new.metadata, OLD_PROVISIONER, &class.provisioner);
        annotate(&mut new.metadata, PROVISIONER, &class.provisioner);
        actions.push(Action::update(&new));
    }
    let note = format!(
        "Waiting for a volume to be created either by the external provisioner '{}' or manually \
         by the system administrator. If volume creation is delayed, please verify that the \
         provisioner is running and correctly registered.",
        class.provisioner
    );
    let told = Happening::normal(reference(claim), "ExternalProvisioning", note);
    actions.push(Action::Record(told));
    actions
}

/// Whatever is missing of the binding. The claim says that it is bound when its volume does,
/// which the volume's own turn sees to.
fn bind(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Vec<Action> {
    let mut actions = Vec::new();
    let known = volume_spec(volume).claim_ref.as_ref().and_then(|named| named.uid.clone());
    if !is_for(volume, claim) || known != claim.metadata.uid {
        let mut new = volume.clone();
        if !is_for(volume, claim) {
            annotate(&mut new.metadata, BOUND_BY_CONTROLLER, "yes");
        }
        new.spec.get_or_insert_default().claim_ref = Some(reference(claim));
        actions.push(Action::update(&new));
    }
    let mut new = claim.clone();
    if claim_spec(claim).volume_name.as_deref() != Some(name(volume)) {
        new.spec.get_or_insert_default().volume_name = Some(name(volume).to_owned());
        annotate(&mut new.metadata, BOUND_BY_CONTROLLER, "yes");
    }
    if annotation(claim, BIND_COMPLETED).is_none() {
        annotate(&mut new.metadata, BIND_COMPLETED, "yes");
    }
    if new != *claim {
        actions.push(Action::update(&new));
    }
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    if actions.is_empty() && phase == Some("Bound") {
        actions.extend(bound(claim, volume));
    }
    actions
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn bound(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Action> {
    let spec = volume_spec(volume);
    let mut new = claim.clone();
    let status = new.status.get_or_insert_default();
    status.access_modes.clone_from(&spec.access_modes);
    // From then on the capacity is what whoever resizes the volume says.
    if phase(claim) != "Bound" {
        status.capacity.clone_from(&spec.capacity);
        status.current_volume_attributes_class_name.clone_from(&spec.volume_attributes_class_name);
    }
    status.phase = Some("Bound".to_owned());
    (new.status != claim.status).then(|| Action::update_part("status", &new))
}

fn unbound(claim: &PersistentVolumeClaim, phase: &str) -> Option<Action> {
    let mut new = claim.clone();
    let status = new.status.get_or_insert_default();
    status.phase = Some(phase.to_owned());
    status.access_modes = None;
    status.capacity = None;
    status.current_volume_attributes_class_name = None;
    (new.status != claim.status).then(|| Action::update_part("status", &new))
}

fn pending(claim: &PersistentVolumeClaim) -> Vec<Action> {
    unbound(claim, "Pending").into_iter().collect()
}

fn lost(claim: &PersistentVolumeClaim, reason: &str, note: &str) -> Vec<Action> {
    if phase(claim) == "Lost" {
        return Vec::new();
    }
    let told = Action::Record(Happening::warning(reference(claim), reason, note));
    unbound(claim, "Lost").into_iter().chain([told]).collect()
}
