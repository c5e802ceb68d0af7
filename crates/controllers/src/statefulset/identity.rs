//! Who a pod of a set is: its number, its name, its labels.
use super::View;
use crate::history::REVISION;
use crate::pods;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// `None`: its name is not one of the set's.
pub fn ordinal(set: &str, pod: &Pod) -> Option<i32> {
    let (parent, number) = pod.metadata.name.as_deref()?.rsplit_once('-')?;
    let is_plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| parent == set && is_plain)
}

pub fn start(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or_default()
}

pub fn replicas(set: &StatefulSet) -> i32 {
    set.spec.replicas.unwrap_or(1).max(0)
}

/// What a pod's claim is called.
pub fn claim_name(template: &str, set: &StatefulSet, ordinal: i32) -> String {
    format!("{template}-{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default())
}

/// The pod with this number, as it is to be made now.
pub fn new_pod(view: &View<'_>, ordinal: i32) -> Pod {
    let set = view.set;
    let spec = &set.spec;
    let rolling = spec.update_strategy.as_ref().and_then(|it| it.rolling_update.as_ref());
    let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or_default();
    let has_partition = rolling.is_some_and(|rolling| rolling.partition.is_some());
    let is_on_delete = spec
        .update_strategy
        .as_ref()
        .is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete"));
    let currents = set.status.as_ref().and_then(|status| status.current_replicas);
    let below = if has_partition { partition } else { currents.unwrap_or_default() };
    let keeps_old = !is_on_delete && ordinal < start(set) + below;
    match keeps_old {
        true => pod_of(view, &view.old, view.current, ordinal),
        false => pod_of(view, &spec.template, &view.history.name, ordinal),
    }
}

fn pod_of(view: &View<'_>, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let set = view.set;
    let mut pod = pods::from_template(template, set);
    pod.metadata.name =
        Some(format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default()));
    pod.metadata.labels.get_or_insert_default().insert(REVISION.to_owned(), revision.to_owned());
    mark(set, &mut pod, ordinal);
    pod
}

/// Gives the pod what makes it this one of its set; says whether that changed anything.
pub fn mark(set: &StatefulSet, pod: &mut Pod, ordinal: i32) -> bool {
    let before = pod.clone();
    let name = pod.metadata.name.clone().unwrap_or_default();
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name.clone());
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
    // A pod that is there keeps its host name and volumes: they cannot change.
    let is_new = pod.metadata.uid.is_none();
    if let (true, Some(spec)) = (is_new, &mut pod.spec) {
        spec.hostname = Some(name);
        let service = set.spec.service_name.clone();
        spec.subdomain = service.filter(|service| !service.is_empty());
        for template in set.spec.volume_claim_templates.iter().flatten() {
            let volume = template.metadata.name.clone().unwrap_or_default();
            let claim = PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(&volume, set, ordinal),
                read_only: None,
            };
            let volumes = spec.volumes.get_or_insert_default();
            volumes.retain(|one| one.name != volume);
            volumes.push(Volume {
                name: volume,
                persistent_volume_claim: Some(claim),
                ..Volume::default()
            });
        }
    }
    before != *pod
}
