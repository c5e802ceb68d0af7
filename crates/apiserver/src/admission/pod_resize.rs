//! A pod that runs may not grow beyond its node.
use super::resource_list::{self, Status as Counted};
use super::{Attributes, Operation, text};
use crate::state::objects;
use api::kinds::find_kind;
use api::status::Status;
use serde_json::Value;

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if attributes.operation != Operation::Update || !attributes.is_sub("resize") {
        return Ok(());
    }
    let (pod, Some(old)) = (attributes.new_object(), attributes.old) else { return Ok(()) };
    let name = text(&pod["spec"]["nodeName"]);
    if name.is_empty() || pod["metadata"]["generation"] == old["metadata"]["generation"] {
        return Ok(());
    }
    let nodes = find_kind("v1", "Node").expect("nodes are in the registry");
    let node = match objects::get(attributes.api, nodes, "", name).await {
        Ok(node) => node,
        Err(status) if status.is_not_found() => {
            return Err(attributes.forbidden(format!("node {name:?} not found")));
        }
        Err(status) => {
            let cause = status.message;
            return Err(attributes.forbidden(format!("failed to get node {name:?}: {cause}")));
        }
    };
    match judge(pod, &node) {
        Ok(()) => Ok(()),
        Err((reason, cause)) => Err(attributes.forbidden(cause).with_cause(reason, "", "")),
    }
}

fn judge(pod: &Value, node: &Value) -> Result<(), (&'static str, String)> {
    if let Some(os) = node["metadata"]["labels"]["kubernetes.io/os"].as_str()
        && os != "linux"
    {
        let name = text(&node["metadata"]["name"]);
        let cause = format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}");
        return Err(("UnsupportedPlatform", cause));
    }
    let mut requests = resource_list::pod_requests(pod, Counted::Ignored);
    let mut allocatable = resource_list::of(&node["status"]["allocatable"]);
    let mut compare = |name: &str| {
        let wanted = requests.remove(name).unwrap_or_default();
        let there = allocatable.remove(name).unwrap_or_default();
        (wanted > there).then_some((wanted, there))
    };
    let mut missing = Vec::new();
    if let Some((wanted, there)) = compare("cpu") {
        let (wanted, there) = (wanted.milli_value(), there.milli_value());
        missing.push(format!("cpu, requested: {wanted}, allocatable: {there}"));
    }
    if let Some((wanted, there)) = compare("memory") {
        let (wanted, there) = (wanted.value(), there.value());
        missing.push(format!("memory, requested: {wanted}, allocatable: {there}"));
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err((
            "NodeCapacity",
            format!("node didn't have enough allocatable resources: {}", missing.join("; ")),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_fits_its_node() {
        let pod = |cpu: &str, memory: &str| {
            json!({"spec": {"containers": [
            {"name": "a", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}})
        };
        let node = |os: &str| {
            json!({"metadata": {"name": "n", "labels": {"kubernetes.io/os": os}},
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}})
        };
        assert_eq!(judge(&pod("2", "1Gi"), &node("linux")), Ok(()));
        let (reason, text) = judge(&pod("2500m", "2Gi"), &node("linux")).unwrap_err();
        assert_eq!(reason, "NodeCapacity");
        assert_eq!(
            text,
            "node didn't have enough allocatable resources: cpu, requested: 2500, allocatable: \
             2000; memory, requested: 2147483648, allocatable: 1073741824"
        );
        let (_, text) = judge(&pod("1", "1Gi"), &node("windows")).unwrap_err();
        assert_eq!(text, "pod resize is only supported on linux nodes, node \"n\" is \"windows\"");
    }
}
