//! One volume: available, bound, released, or failed.
use super::matching::is_same_mode;
use super::{BOUND_BY_CONTROLLER, PROVISIONED_BY, annotation, claim_of, claim_spec, name};
use crate::action::{Action, Target};
use crate::world::World;
use client::ApiResource;
use client::events::{Happening, reference};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

pub fn reconcile(volume: &PersistentVolume, world: &World) -> Vec<Action> {
    let named = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let uid = named.and_then(|named| named.uid.clone()).unwrap_or_default();
    let Some(key) = claim_of(volume).filter(|_| !uid.is_empty()) else {
        // One that is kept for a claim by name is there for it alone.
        return to_phase(volume, "Available", "").into_iter().collect();
    };
    let claim = world.get::<PersistentVolumeClaim>(&key);
    let Some(claim) = claim.filter(|claim| claim.metadata.uid.as_ref() == Some(&uid)) else {
        if is_over(volume) {
            return reclaim(volume);
        }
        let released: Vec<_> = to_phase(volume, "Released", "").into_iter().collect();
        let object = Target {
            resource: ApiResource::of::<PersistentVolumeClaim>(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            uid: uid.clone(),
        };
        // The claim may be so young that we have not heard of it: data depends on it.
        let then = Box::new(move |found: Option<std::sync::Arc<client::Object>>| {
            if found.is_some_and(|found| found.uid() == uid) { Vec::new() } else { released }
        });
        return vec![Action::Look { object, then }];
    };
    match claim_spec(&claim).volume_name.as_deref().unwrap_or_default() {
        // The claim's own turn binds it.
        "" if is_same_mode(volume, &claim) => Vec::new(),
        "" => mismatch(volume, &claim),
        bound if bound == name(volume) => to_phase(volume, "Bound", "").into_iter().collect(),
        // The claim has another one. What was made for it is of no use to anybody.
        _ if annotation(volume, PROVISIONED_BY).is_some() && policy(volume) == "Delete" => {
            match to_phase(volume, "Released", "").filter(|_| !is_over(volume)) {
                Some(released) => vec![released],
                None => reclaim(volume),
            }
        }
        _ => vec![unbind(volume)],
    }
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_over(volume: &PersistentVolume) -> bool {
    matches!(phase(volume), "Released" | "Failed")
}

fn policy(volume: &PersistentVolume) -> &str {
    let policy = volume.spec.as_ref().and_then(|it| it.persistent_volume_reclaim_policy.as_deref());
    policy.unwrap_or("Retain")
}

fn to_phase(volume: &PersistentVolume, phase_: &str, message: &str) -> Option<Action> {
    if phase(volume) == phase_ {
        return None;
    }
    let mut new = volume.clone();
    let status = new.status.get_or_insert_default();
    status.phase = Some(phase_.to_owned());
    status.message = Some(message.to_owned()).filter(|message| !message.is_empty());
    Some(Action::update_part("status", &new))
}

fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Vec<Action> {
    let of_volume = format!(
        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible \
         volumeMode.",
        name(claim)
    );
    let of_claim = format!(
        "Cannot bind PersistentVolume {:?} to requested PersistentVolumeClaim due to incompatible \
         volumeMode.",
        name(volume)
    );
    let told = [(reference(volume), of_volume), (reference(claim), of_claim)];
    let told = told.map(|(about, note)| Happening::warning(about, "VolumeMismatch", note));
    told.into_iter().map(Action::Record).collect()
}

/// A binding of ours is undone; one that a user made is kept, without the uid.
fn unbind(volume: &PersistentVolume) -> Action {
    let mut new = volume.clone();
    let annotations = new.metadata.annotations.as_mut();
    let was_ours = annotations.and_then(|all| all.remove(BOUND_BY_CONTROLLER)).is_some();
    new.metadata.annotations = new.metadata.annotations.take().filter(|all| !all.is_empty());
    let spec = new.spec.get_or_insert_default();
    spec.claim_ref = spec.claim_ref.take().filter(|_| !was_ours);
    if let Some(named) = &mut spec.claim_ref {
        named.uid = None;
    }
    Action::update(&new)
}

/// What becomes of a volume whose claim is gone. Its provisioner deletes what it made; nobody
/// here can delete or empty anything else.
fn reclaim(volume: &PersistentVolume) -> Vec<Action> {
    let fail = |reason: &str, note: &str| {
        let Some(failed) = to_phase(volume, "Failed", note) else { return Vec::new() };
        vec![failed, Action::Record(Happening::warning(reference(volume), reason, note))]
    };
    let provisioner = annotation(volume, PROVISIONED_BY).unwrap_or_default();
    let is_csi = volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some());
    match policy(volume) {
        "Retain" => Vec::new(),
        "Recycle" => fail("VolumeFailedRecycle", "No recycler plugin found for the volume!"),
        "Delete" if provisioner.starts_with("kubernetes.io/") => {
            fail("VolumeFailedDelete", &format!("no volume plugin matched name: {provisioner}"))
        }
        "Delete" if is_csi || !provisioner.is_empty() => Vec::new(),
        "Delete" => {
            let name = name(volume);
            let note = format!(
                "error getting deleter volume plugin for volume {name:?}: no deletable volume \
                 plugin matched"
            );
            fail("VolumeFailedDelete", &note)
        }
        _ => fail(
            "VolumeUnknownReclaimPolicy",
            "Volume has unrecognized PersistentVolumeReclaimPolicy",
        ),
    }
}
