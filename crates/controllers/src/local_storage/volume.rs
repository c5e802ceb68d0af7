//! One volume: when nobody has it any more, its folder is removed, then its object.
use super::helper::{self, DATA, Progress, Step, Task};
use super::{FINALIZER, NODE, annotation, is_ours, name};
use crate::action::Action;
use crate::world::World;
use api::names::NamespacedName;
use client::events::{Happening, reference};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};

pub fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let pod = helper::find(world, Step::Remove, &key.name);
    let Some(volume) = world.get::<PersistentVolume>(key) else {
        // Of a folder that did not become a volume.
        return pod.map(|pod| tidy(&pod, now)).unwrap_or_default();
    };
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_deleting = volume.metadata.deletion_timestamp.is_some();
    let is_over = matches!(phase, Some("Released" | "Failed"));
    let spec = volume.spec.as_ref();
    let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    match policy {
        _ if !is_ours(&volume) => Vec::new(),
        Some("Delete") if is_over || (is_deleting && phase != Some("Bound")) => {
            remove(&volume, pod.as_deref(), world, now)
        }
        // Whoever deletes an object whose data is to be kept, keeps the data.
        Some("Retain") if is_deleting => without_finalizer(&volume).into_iter().collect(),
        _ => pod.map(|pod| tidy(&pod, now)).unwrap_or_default(),
    }
}

/// A pod of ours that nobody asks about any more.
fn tidy(pod: &Pod, now: Timestamp) -> Vec<Action> {
    match helper::progress(pod, now) {
        Progress::Trying(_) => Vec::new(),
        Progress::Refused(_, left) if !left.is_zero() => vec![Action::Again(left)],
        Progress::Done | Progress::Refused(..) => vec![helper::end(pod)],
    }
}

fn remove(
    volume: &PersistentVolume,
    pod: Option<&Pod>,
    world: &World,
    now: Timestamp,
) -> Vec<Action> {
    let failed = |why: &str| {
        Action::Record(Happening::warning(reference(volume), "VolumeFailedDelete", why))
    };
    let Some((node, base)) = place(volume) else {
        return vec![failed("its path is none that was made for it: its data is left alone")];
    };
    if world.find::<Node>("", node).is_none() {
        let note = format!("node {node:?} is gone, and the volume's data with it");
        let told = Happening::normal(reference(volume), "VolumeNodeGone", note);
        return [Action::Record(told)].into_iter().chain(finished(volume)).collect();
    }
    let Some(pod) = pod else {
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
        let claim = claim.unwrap_or_default();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let claim = NamespacedName::new(&text(&claim.namespace), &text(&claim.name));
        let (step, volume) = (Step::Remove, name(volume));
        let task = Task { step, volume, claim: &claim, node, base };
        return vec![helper::is_busy(node, world).unwrap_or_else(|| helper::begin(&task))];
    };
    // One that removes what was made on another node, before this one was chosen.
    if helper::place(pod) != Some((node, base)) {
        return tidy(pod, now);
    }
    match helper::progress(pod, now) {
        Progress::Done => finished(volume).into_iter().chain([helper::end(pod)]).collect(),
        Progress::Trying(failure) => failure.map(|why| failed(&why)).into_iter().collect(),
        Progress::Refused(why, left) if left.is_zero() => vec![failed(&why), helper::end(pod)],
        Progress::Refused(why, left) => vec![failed(&why), Action::Again(left)],
    }
}

/// The node of a volume, and the folder of all volumes there. No folder is removed that has not the name of its
/// volume.
fn place(volume: &PersistentVolume) -> Option<(&str, &str)> {
    let path = &volume.spec.as_ref()?.local.as_ref()?.path;
    let base = path.strip_suffix(&format!("/{}/{DATA}", name(volume)))?;
    let is_whole = base.starts_with('/') && !base.split('/').any(|part| part == "..");
    is_whole.then_some((annotation(volume, NODE)?, base))
}

/// Nothing is left of it but its object.
fn finished(volume: &PersistentVolume) -> Vec<Action> {
    let mut actions: Vec<Action> = without_finalizer(volume).into_iter().collect();
    if volume.metadata.deletion_timestamp.is_none() {
        actions.push(Action::delete(volume));
    }
    actions
}

fn without_finalizer(volume: &PersistentVolume) -> Option<Action> {
    let mut new = volume.clone();
    let finalizers = new.metadata.finalizers.as_mut()?;
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    (new != *volume).then(|| Action::update(&new))
}
