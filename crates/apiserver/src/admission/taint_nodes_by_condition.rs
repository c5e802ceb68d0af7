//! A node is not trusted with pods before it says that it is ready.
use super::{Attributes, Operation, push};
use api::status::Status;
use serde_json::json;

const TAINT: &str = "node.kubernetes.io/not-ready";

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.is("", "Node")
        || attributes.is_part()
        || attributes.operation != Operation::Create
    {
        return Ok(());
    }
    if let Some(node) = attributes.object.as_deref_mut() {
        let known = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
        if !known.iter().any(|taint| taint["key"] == TAINT && taint["effect"] == "NoSchedule") {
            push(&mut node["spec"]["taints"], json!({ "key": TAINT, "effect": "NoSchedule" }));
        }
    }
    Ok(())
}
