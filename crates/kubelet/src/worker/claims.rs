//! Volumes that are claims: what a claim is bound to takes its place.
use super::Kubelet;
use crate::pod;
use api::rules::Form;
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, Volume,
};
use std::borrow::Cow;

impl Kubelet {
    /// The pod with volumes of the host in the place of its claims.
    pub(super) async fn with_claims<'p>(&self, pod: &'p Pod) -> Result<Cow<'p, Pod>, String> {
        let mut resolved = Cow::Borrowed(pod);
        let volumes = pod::spec(pod).volumes.iter().flatten();
        for (at, volume) in volumes.enumerate() {
            let Some(claim) = claim_of(pod, volume) else { continue };
            let source = self.bound_to(pod, &claim).await.map_err(|why| {
                format!("MountVolume.SetUp failed for volume \"{}\" : {why}", volume.name)
            })?;
            let spec = resolved.to_mut().spec.get_or_insert_default();
            let volume = &mut spec.volumes.get_or_insert_default()[at];
            *volume =
                Volume { name: volume.name.clone(), host_path: Some(source), ..Volume::default() };
        }
        Ok(resolved)
    }

    async fn bound_to(&self, pod: &Pod, name: &str) -> Result<HostPathVolumeSource, String> {
        let namespace = pod::namespace(pod);
        let claim: PersistentVolumeClaim = self.read(namespace, name).await?;
        let phase = claim.status.and_then(|status| status.phase).unwrap_or_default();
        let bound = claim.spec.and_then(|spec| spec.volume_name).unwrap_or_default();
        if phase != "Bound" || bound.is_empty() {
            return Err(format!(
                "PVC {namespace}/{name} has non-bound phase ({phase:?}) or empty \
                 pvc.Spec.VolumeName ({bound:?})"
            ));
        }
        let volume: PersistentVolume = self.read("", &bound).await?;
        source_of(&volume, &bound)
    }

    async fn read<T: Form>(&self, namespace: &str, name: &str) -> Result<T, String> {
        let object = self.client.get::<T>(namespace, name).await;
        let object = object.map_err(|status| status.message)?;
        object.decode::<T>().map_err(|error| error.to_string())
    }
}

/// A volume that is made for one pod has a claim of the pod's name.
fn claim_of(pod: &Pod, volume: &Volume) -> Option<String> {
    if volume.ephemeral.is_some() {
        return Some(format!("{}-{}", pod::name(pod), volume.name));
    }
    volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone())
}

fn source_of(volume: &PersistentVolume, name: &str) -> Result<HostPathVolumeSource, String> {
    let spec = volume.spec.clone().unwrap_or_default();
    match (spec.host_path, spec.local) {
        (Some(source), _) => Ok(source),
        // What is local is there before it is used.
        (None, Some(local)) => {
            Ok(HostPathVolumeSource { path: local.path, type_: Some("Directory".to_owned()) })
        }
        (None, None) => Err(format!(
            "persistent volume {name:?} is of a kind that this kubelet does not support"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn claims_are_named_and_sources_known() {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "web" } })).unwrap();
        let named = |volume: serde_json::Value| {
            claim_of(&pod, &serde_json::from_value(volume).unwrap()).unwrap_or_default()
        };
        assert_eq!(named(json!({ "name": "v", "emptyDir": {} })), "");
        assert_eq!(
            named(json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } })),
            "c"
        );
        assert_eq!(named(json!({ "name": "v", "ephemeral": {} })), "web-v");
        let source = |spec: serde_json::Value| {
            let volume = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
            source_of(&volume, "p").map(|source| (source.path, source.type_.unwrap_or_default()))
        };
        let text = |text: &str| text.to_owned();
        assert_eq!(source(json!({ "hostPath": { "path": "/a" } })), Ok((text("/a"), text(""))));
        assert_eq!(
            source(json!({ "local": { "path": "/b" } })),
            Ok((text("/b"), text("Directory")))
        );
        assert!(source(json!({ "nfs": { "server": "s", "path": "/" } })).is_err());
    }
}
