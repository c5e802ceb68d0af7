//! How many pods there should be: what their controllers want.
use crate::driver::is_a;
use crate::world::World;
use api::owner;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The sum, and whether some pods have no controller.
pub fn expected(pods: &[Arc<Pod>], world: &World) -> Result<(i32, bool), String> {
    let (mut scales, mut has_unmanaged) = (BTreeMap::new(), false);
    for pod in pods {
        let Some(owner) = owner::controller_of(pod.metadata.owner_references.as_deref()) else {
            has_unmanaged = true;
            continue;
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let Some((uid, scale)) = of(owner, namespace, world)? else {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            return Err(format!("found no controllers for pod {name:?}"));
        };
        scales.insert(uid, scale);
    }
    Ok((scales.values().sum(), has_unmanaged))
}

type Scale = Option<(String, i32)>;

/// What a pod's controller wants; a ReplicaSet's, what its Deployment does.
fn of(owner: &OwnerReference, namespace: &str, world: &World) -> Result<Scale, String> {
    let is = |uid: &Option<String>| uid.as_ref() == Some(&owner.uid);
    let found = |replicas: Option<i32>| Some((owner.uid.clone(), replicas.unwrap_or(1)));
    let (version, kind, name) = (&*owner.api_version, &*owner.kind, &*owner.name);
    if is_a::<ReplicaSet>(version, kind) {
        let Some(set) = world.find::<ReplicaSet>(namespace, name) else { return Ok(None) };
        if !is(&set.metadata.uid) {
            return Ok(None);
        }
        return match owner::controller_of(set.metadata.owner_references.as_deref()) {
            Some(above) if is_a::<Deployment>(&above.api_version, &above.kind) => {
                let deployment = world.find::<Deployment>(namespace, &above.name);
                let deployment =
                    deployment.filter(|it| it.metadata.uid.as_ref() == Some(&above.uid));
                let replicas = deployment.map(|it| it.spec.replicas);
                Ok(replicas.map(|replicas| (above.uid.clone(), replicas.unwrap_or(1))))
            }
            _ => Ok(found(set.spec.replicas)),
        };
    }
    if is_a::<StatefulSet>(version, kind) {
        let set = world.find::<StatefulSet>(namespace, name).filter(|it| is(&it.metadata.uid));
        return Ok(set.and_then(|set| found(set.spec.replicas)));
    }
    if is_a::<ReplicationController>(version, kind) {
        let found_ = world.find::<ReplicationController>(namespace, name);
        let controller = found_.filter(|it| is(&it.metadata.uid));
        return Ok(controller.and_then(|it| found(it.spec.as_ref().and_then(|it| it.replicas))));
    }
    // Custom resources may have a scale too; nobody here keeps them.
    match api::kinds::find_kind(version, kind) {
        Some(row) if row.subresources.iter().all(|part| part.name != "scale") => {
            let dot = if row.group.is_empty() { "" } else { "." };
            let resource = format!("{}{dot}{}", row.plural, row.group);
            Err(format!("{resource} does not implement the scale subresource"))
        }
        _ => Ok(None),
    }
}
