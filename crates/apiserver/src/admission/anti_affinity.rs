//! A pod that keeps others away may do so on its own node, not in a whole zone.
use super::{Attributes, items, text};
use api::status::Status;

const HOSTNAME: &str = "kubernetes.io/hostname";

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.writes() {
        return Ok(());
    }
    let pod = attributes.new_object();
    let affinity = &pod["spec"]["affinity"]["podAntiAffinity"];
    let required = items(&affinity["requiredDuringSchedulingIgnoredDuringExecution"]);
    let mut keys = required.iter().map(|term| text(&term["topologyKey"]));
    match keys.find(|key| *key != HOSTNAME) {
        None => Ok(()),
        Some(key) => Err(Status::forbidden(
            attributes.call.resource.group_resource(),
            text(&pod["metadata"]["name"]),
            format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
            ),
        )),
    }
}
