//! What a node's events say: conditions that changed, and a machine that was started anew
//! (`pkg/kubelet/nodestatus/setters.go`).
use crate::eviction::thresholds::{DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE};
use k8s_openapi::api::core::v1::NodeStatus;

/// An event of the node.
#[derive(Debug, Clone, PartialEq)]
pub struct News {
    pub is_warning: bool,
    pub reason: &'static str,
    pub note: String,
}

/// By condition: what it is called when it is true, and when it is false.
const CONDITIONS: [(&str, &str, &str); 4] = [
    (MEMORY_PRESSURE, "NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
    (DISK_PRESSURE, "NodeHasDiskPressure", "NodeHasNoDiskPressure"),
    (PID_PRESSURE, "NodeHasInsufficientPID", "NodeHasSufficientPID"),
    ("Ready", "NodeReady", "NodeNotReady"),
];

/// What is new. A kubelet that has just begun (`is_first`) tells what the node is short of whatever was told before
/// it; that the node is ready is no news if the API knows it.
pub fn news(
    node: &str,
    before: Option<&NodeStatus>,
    status: &NodeStatus,
    is_first: bool,
) -> Vec<News> {
    let is = |status: &NodeStatus, type_: &str| {
        let mut all = status.conditions.iter().flatten();
        all.find(|one| one.type_ == type_).map(|one| one.status == "True")
    };
    let boot = |status: &NodeStatus| {
        let info = status.node_info.as_ref();
        info.map(|info| info.boot_id.clone()).filter(|id| !id.is_empty())
    };
    let mut all = Vec::new();
    for (type_, if_true, if_false) in CONDITIONS {
        let now = is(status, type_).unwrap_or_default();
        let known = before.and_then(|before| is(before, type_));
        let known = known.filter(|_| !is_first || type_ == "Ready");
        if known != Some(now) {
            let reason = if now { if_true } else { if_false };
            let note = format!("Node {node} status is now: {reason}");
            all.push(News { is_warning: false, reason, note });
        }
    }
    if let (Some(before), Some(now)) = (before.and_then(boot), boot(status))
        && before != now
    {
        let note = format!("Node {node} has been rebooted, boot id: {now}");
        all.push(News { is_warning: true, reason: "Rebooted", note });
    }
    all
}

/// Whether pods as a whole are limited to what the node has for them (`cm.enforceNodeAllocatableCgroups`).
pub fn enforced(cgroup_root: &str, limited: &Result<(), String>) -> News {
    match limited {
        Ok(()) => News {
            is_warning: false,
            reason: "NodeAllocatableEnforced",
            note: "Updated Node Allocatable limit across pods".to_owned(),
        },
        Err(why) => {
            let names = crate::cgroups::names(cgroup_root);
            let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
            let names = names.join(" ");
            let note = format!("Failed to update Node Allocatable Limits [{names}]: {why}");
            News { is_warning: true, reason: "FailedNodeAllocatableEnforcement", note }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `MemoryPressure Ready boot=1`: conditions that are true.
    fn status(text: &str) -> NodeStatus {
        let words: Vec<&str> = text.split_whitespace().collect();
        let condition = |(type_, _, _): (&str, &str, &str)| {
            let status = if words.contains(&type_) { "True" } else { "False" };
            json!({ "type": type_, "status": status })
        };
        let boot = words.iter().find_map(|word| word.strip_prefix("boot="));
        let info = json!({ "bootID": boot.unwrap_or_default(), "architecture": "", "containerRuntimeVersion": "",
            "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
            "operatingSystem": "", "osImage": "", "systemUUID": "" });
        let status = json!({ "conditions": CONDITIONS.map(condition), "nodeInfo": info });
        serde_json::from_value(status).unwrap()
    }

    fn check(before: &str, now: &str, is_first: bool, expected: &[&str]) {
        let before = (before != "nothing").then(|| status(before));
        let told = news("n1", before.as_ref(), &status(now), is_first);
        let reasons: Vec<&str> = told.iter().map(|one| one.reason).collect();
        assert_eq!(reasons, expected, "{before:?} {now}");
    }

    #[test]
    fn what_changes_is_told_and_at_first_what_the_node_has() {
        let well = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];
        check("nothing", "", true, &[&well[..], &["NodeNotReady"]].concat());
        check("Ready", "Ready", true, &well);
        check("Ready", "Ready", false, &[]);
        check("", "Ready", false, &["NodeReady"]);
        check("Ready", "Ready MemoryPressure", false, &["NodeHasInsufficientMemory"]);
        check("Ready DiskPressure", "Ready", false, &["NodeHasNoDiskPressure"]);
        check("Ready PIDPressure", "", false, &["NodeHasSufficientPID", "NodeNotReady"]);
        check("Ready boot=1", "Ready boot=2", false, &["Rebooted"]);
        check("Ready", "Ready boot=2", false, &[]);
        let told = news("n1", Some(&status("Ready boot=1")), &status("Ready boot=2"), false);
        assert_eq!(told[0].note, "Node n1 has been rebooted, boot id: 2");
        assert!(told[0].is_warning);
    }

    #[test]
    fn limits_of_all_pods_are_told() {
        assert_eq!(enforced("/kubepods", &Ok(())).reason, "NodeAllocatableEnforced");
        let failed = enforced("/a/kubepods", &Err("no".to_owned()));
        assert_eq!(
            failed.note,
            "Failed to update Node Allocatable Limits [\"a\" \"kubepods\"]: no"
        );
    }
}
