//! A pod says in which zone and region it is: its node's labels are copied when it is bound.
use super::Attributes;
use super::Operation;
use crate::state::objects;
use api::kinds::find_kind;
use api::status::Status;

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if attributes.operation != Operation::Create {
        return Ok(());
    }
    let object = attributes.new_object();
    let node = match attributes.part() {
        "" => object["spec"]["nodeName"].as_str(),
        "binding" if object["target"]["kind"] == "Node" => object["target"]["name"].as_str(),
        _ => None,
    };
    let Some(node) = node.filter(|node| !node.is_empty()) else { return Ok(()) };
    let nodes = find_kind("v1", "Node").expect("nodes are in the registry");
    let node = match objects::get(attributes.api, nodes, "", node).await {
        Ok(node) => node,
        Err(status) if status.is_not_found() => return Ok(()),
        Err(status) => return Err(status),
    };
    let Some(object) = attributes.object.as_deref_mut() else { return Ok(()) };
    for label in LABELS {
        if let Some(value) = node["metadata"]["labels"].get(label) {
            object["metadata"]["labels"][label] = value.clone();
        }
    }
    Ok(())
}
