//! What the control plane attaches is mounted once the node's status names it as attached
//! (`GenerateVerifyControllerAttachedVolumeFunc` in upstream's `pkg/volume/util/operationexecutor`).
//!
//! The order keeps two nodes from one disk. The kubelet says that it uses the volume, then reads whether it is
//! attached; the control plane says that it is not attached, then reads whether the volume is used. Whichever
//! is first, one of them sees the other.
use super::Kubelet;
use crate::node::MANAGED;
use k8s_openapi::api::core::v1::Node;
use std::time::Duration;

/// Pauses between looks at what is not attached yet; then the pod waits its turn.
pub const LOOKS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
];

impl Kubelet {
    /// Waits for a volume that is in use already. `name` is what people call it.
    pub async fn verify_attached(&self, unique_name: &str, name: &str) -> Result<(), String> {
        let mut why = String::new();
        for pause in [Duration::ZERO].iter().chain(&LOOKS) {
            if !pause.is_zero() && !self.context.sleep(*pause).await {
                break;
            }
            let node = match self.client.get::<Node>("", &self.config.node_name).await {
                Ok(found) => found.decode::<Node>().map_err(|error| error.to_string())?,
                Err(status) => {
                    why = format!(
                        "VerifyControllerAttachedVolume failed fetching node from API server for \
                         volume {name:?} : {}",
                        status.message
                    );
                    continue;
                }
            };
            match hindrance(&node, unique_name) {
                None => return Ok(()),
                Some(what) => why = format!("{what} for volume {name:?}"),
            }
        }
        Err(why)
    }
}

/// Why a volume may not be mounted yet, if it may not.
fn hindrance(node: &Node, volume: &str) -> Option<&'static str> {
    let annotations = node.metadata.annotations.as_ref();
    // Without it nobody attaches anything for this node.
    if annotations.is_none_or(|all| !all.contains_key(MANAGED)) {
        return None;
    }
    let status = node.status.as_ref();
    let used = status.and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default();
    if !used.iter().any(|name| name == volume) {
        return Some(
            "Volume has not been added to the list of VolumesInUse in the node's volume status",
        );
    }
    let attached = status.and_then(|status| status.volumes_attached.as_deref());
    let is_attached = attached.unwrap_or_default().iter().any(|one| one.name == volume);
    (!is_attached).then_some("Volume not attached according to node status")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_volume_is_mounted_once_the_node_says_that_it_uses_and_has_it() {
        let check = |annotations: Value, used: &[&str], attached: &[&str], expected: &str| {
            let attached = attached.iter().map(|name| json!({ "name": name, "devicePath": "" }));
            let attached: Vec<Value> = attached.collect();
            let node = json!({ "metadata": { "annotations": annotations },
                "status": { "volumesInUse": used, "volumesAttached": attached } });
            let node: Node = serde_json::from_value(node).unwrap();
            let said = hindrance(&node, "v").unwrap_or_default();
            assert!(said.starts_with(expected) && said.is_empty() == expected.is_empty(), "{said}");
        };
        let managed = || json!({ MANAGED: "true" });
        check(managed(), &[], &[], "Volume has not been added to the list of VolumesInUse");
        // What is attached may be taken away as long as nobody says that it is used.
        check(managed(), &["w"], &["v"], "Volume has not been added to the list of VolumesInUse");
        check(managed(), &["v"], &["w"], "Volume not attached according to node status");
        check(managed(), &["v"], &["w", "v"], "");
        check(json!({}), &[], &[], "");
        check(Value::Null, &[], &[], "");
    }
}
