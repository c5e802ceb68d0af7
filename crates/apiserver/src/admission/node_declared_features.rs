//! A change of a running pod that only some kubelets can make: the pod's node has to be one that
//! says so.
use super::{Attributes, Operation, items, text};
use crate::state::objects;
use api::kinds::find_kind;
use api::quantity::Quantity;
use api::status::Status;
use serde_json::Value;

/// Whether a change, from the second to the first, needs a feature.
type Needs = fn(&Value, &Value) -> bool;

/// Features by name, and whether a change needs them.
static FEATURES: &[(&str, Needs)] = &[
    ("InPlacePodLevelResourcesVerticalScaling", |new, old| {
        !same_resources(&new["spec"]["resources"], &old["spec"]["resources"])
    }),
    ("InPlacePodVerticalScalingInitContainers", |new, old| {
        let pairs =
            items(&new["spec"]["initContainers"]).iter().zip(items(&old["spec"]["initContainers"]));
        let mut short_lived = pairs.filter(|(_, old)| old["restartPolicy"] != "Always");
        short_lived.any(|(new, old)| !same_resources(&new["resources"], &old["resources"]))
    }),
    ("InPlacePodVerticalScalingMemoryBackedVolumes", resizes_memory),
];

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let (Operation::Update, "" | "resize") = (attributes.operation, attributes.part()) else {
        return Ok(());
    };
    let (pod, Some(old)) = (attributes.new_object(), attributes.old) else { return Ok(()) };
    let node = text(&pod["spec"]["nodeName"]);
    if node.is_empty() || pod["metadata"]["generation"] == old["metadata"]["generation"] {
        return Ok(());
    }
    let needed = FEATURES.iter().filter(|(_, needs)| needs(pod, old)).map(|(name, _)| *name);
    let mut needed: Vec<&str> = needed.collect();
    if needed.is_empty() {
        return Ok(());
    }
    let nodes = find_kind("v1", "Node").expect("nodes are in the registry");
    let found = match objects::get(attributes.api, nodes, "", node).await {
        Ok(found) => found,
        Err(status) if status.is_not_found() => {
            return Err(attributes.forbidden(format!("node {node:?} not found")));
        }
        Err(status) => {
            let cause = status.message;
            return Err(attributes.forbidden(format!("failed to get node {node:?}: {cause}")));
        }
    };
    let declared = items(&found["status"]["declaredFeatures"]);
    needed.retain(|name| !declared.iter().any(|declared| declared == name));
    match needed.is_empty() {
        true => Ok(()),
        false => Err(attributes.forbidden(format!(
            "pod update requires features {} which are not available on node {node:?}",
            needed.join(", ")
        ))),
    }
}

/// Amounts are compared by what they are, not by how they are written.
fn same_resources(new: &Value, old: &Value) -> bool {
    let amounts = |resources: &Value| {
        ["requests", "limits"].map(|part| super::resource_list::of(&resources[part]))
    };
    amounts(new) == amounts(old) && new["claims"] == old["claims"]
}

fn resizes_memory(new: &Value, old: &Value) -> bool {
    let (new, old) = (items(&new["spec"]["volumes"]), items(&old["spec"]["volumes"]));
    let size = |volume: &Value| text(&volume["emptyDir"]["sizeLimit"]).parse::<Quantity>().ok();
    new.len() == old.len()
        && new.iter().zip(old).any(|(new, old)| {
            let memory = new["name"] == old["name"] && new["emptyDir"]["medium"] == "Memory";
            memory && matches!((size(new), size(old)), (Some(new), Some(old)) if new != old)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn needed(new: Value, old: Value) -> Vec<&'static str> {
        FEATURES.iter().filter(|(_, needs)| needs(&new, &old)).map(|(name, _)| *name).collect()
    }

    #[test]
    fn a_change_needs_the_feature_that_makes_it() {
        let pod = |cpu: &str| json!({"spec": {"resources": {"requests": {"cpu": cpu}}}});
        assert_eq!(needed(pod("1"), pod("1000m")), [""; 0]);
        assert_eq!(needed(pod("1"), pod("2")), ["InPlacePodLevelResourcesVerticalScaling"]);
        let volume = |size: &str| {
            json!({"spec": {"volumes": [
            {"name": "a", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]}})
        };
        assert_eq!(
            needed(volume("1Gi"), volume("2Gi")),
            ["InPlacePodVerticalScalingMemoryBackedVolumes"]
        );
        let init = |policy: &str, cpu: &str| {
            json!({"spec": {"initContainers": [
            {"restartPolicy": policy, "resources": {"limits": {"cpu": cpu}}}]}})
        };
        assert_eq!(needed(init("Always", "1"), init("Always", "2")), [""; 0]);
        assert_eq!(
            needed(init("", "1"), init("", "2")),
            ["InPlacePodVerticalScalingInitContainers"]
        );
    }
}
