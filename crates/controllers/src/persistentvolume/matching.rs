//! Which volume a claim gets: of those that fit, the one that can do the least and is smallest.
use super::{CLASS, annotation, claim_spec, is_for, name, volume_spec};
use api::quantity::Quantity;
use api::selector::label::Selector;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A volume that was made or chosen for the claim comes first. With `only_chosen` no other may be
/// taken: where the claim's first pod will run is not known yet.
pub fn best(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    only_chosen: bool,
) -> Option<Arc<PersistentVolume>> {
    let selector = claim_spec(claim).selector.clone();
    let selector = match &selector {
        None => Selector::everything(),
        some => Selector::from_label_selector(some.as_ref()).ok()?,
    };
    let can_serve = |volume: &&Arc<PersistentVolume>| {
        volume.metadata.deletion_timestamp.is_none()
            && is_large_enough(volume, claim)
            && has_modes(volume, claim)
            && is_same_mode(volume, claim)
            && attributes_of(volume) == attributes_wanted(claim)
    };
    let mut able: Vec<_> = volumes.iter().filter(can_serve).collect();
    if let Some(chosen) = able.iter().find(|volume| is_for(volume, claim)) {
        return Some((*chosen).clone());
    }
    able.retain(|volume| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        !only_chosen
            && volume_spec(volume).claim_ref.is_none()
            && phase == Some("Available")
            && class_of(volume) == class_wanted(claim)
            && selector.matches(&volume.metadata.labels)
    });
    let modes =
        |volume: &PersistentVolume| volume_spec(volume).access_modes.iter().flatten().count();
    able.sort_by_cached_key(|volume| {
        (modes(volume), capacity(volume), name(&***volume).to_owned())
    });
    able.first().map(|volume| (*volume).clone())
}

/// Why a volume that the claim names cannot be its, in upstream's words.
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), String> {
    let refuse = |is_wrong: bool, why: &str| if is_wrong { Err(why.to_owned()) } else { Ok(()) };
    if volume.metadata.deletion_timestamp.is_some() {
        return Err(format!("the volume is marked for deletion {:?}", name(volume)));
    }
    refuse(!is_large_enough(volume, claim), "requested PV is too small")?;
    refuse(class_of(volume) != class_wanted(claim), "storageClassName does not match")?;
    let is_other = attributes_of(volume) != attributes_wanted(claim);
    refuse(is_other, "volumeAttributesClassName does not match")?;
    refuse(!is_same_mode(volume, claim), "incompatible volumeMode")?;
    refuse(!has_modes(volume, claim), "incompatible accessMode")
}

fn quantity(of: Option<&BTreeMap<String, Written>>) -> Quantity {
    let written = of.and_then(|all| all.get("storage"));
    written.and_then(|it| Quantity::parse(&it.0).ok()).unwrap_or(Quantity::ZERO)
}

pub fn capacity(volume: &PersistentVolume) -> Quantity {
    quantity(volume_spec(volume).capacity.as_ref())
}

fn is_large_enough(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let spec = claim_spec(claim);
    let wanted = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    capacity(volume) >= quantity(wanted)
}

fn has_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let volume = volume_spec(volume);
    let has = volume.access_modes.as_deref().unwrap_or_default();
    claim_spec(claim).access_modes.iter().flatten().all(|mode| has.contains(mode))
}

pub fn is_same_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let or_default = |mode: Option<&String>| mode.map_or("Filesystem", String::as_str).to_owned();
    let (volume, claim) = (volume_spec(volume), claim_spec(claim));
    or_default(volume.volume_mode.as_ref()) == or_default(claim.volume_mode.as_ref())
}

fn attributes_of(volume: &PersistentVolume) -> String {
    volume_spec(volume).volume_attributes_class_name.clone().unwrap_or_default()
}

fn attributes_wanted(claim: &PersistentVolumeClaim) -> String {
    claim_spec(claim).volume_attributes_class_name.clone().unwrap_or_default()
}

fn class_of(volume: &PersistentVolume) -> String {
    let old = annotation(volume, CLASS).map(str::to_owned);
    old.or_else(|| volume_spec(volume).storage_class_name.clone()).unwrap_or_default()
}

pub fn class_wanted(claim: &PersistentVolumeClaim) -> String {
    let old = annotation(claim, CLASS).map(str::to_owned);
    old.or_else(|| claim_spec(claim).storage_class_name.clone()).unwrap_or_default()
}
