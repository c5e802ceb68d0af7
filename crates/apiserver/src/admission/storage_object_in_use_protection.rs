//! Claims and volumes go only when nobody uses them any more: a controller takes these finalizers
//! off.
use super::{Attributes, Operation, push};
use api::status::Status;

pub const KINDS: &[(&str, &str)] = &[
    ("", "PersistentVolumeClaim"),
    ("", "PersistentVolume"),
    ("storage.k8s.io", "VolumeAttributesClass"),
];

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let finalizer = match () {
        () if attributes.is("", "PersistentVolumeClaim") => "kubernetes.io/pvc-protection",
        () if attributes.is("", "PersistentVolume") => "kubernetes.io/pv-protection",
        () if attributes.is("storage.k8s.io", "VolumeAttributesClass") => {
            "kubernetes.io/vac-protection"
        }
        () => return Ok(()),
    };
    if attributes.operation != Operation::Create || attributes.is_part() {
        return Ok(());
    }
    if let Some(object) = attributes.object.as_deref_mut() {
        let known = object["metadata"]["finalizers"].as_array().map_or(&[][..], Vec::as_slice);
        if !known.iter().any(|known| known == finalizer) {
            push(&mut object["metadata"]["finalizers"], finalizer.into());
        }
    }
    Ok(())
}
