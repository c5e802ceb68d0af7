//! What the kubelet told of a pod, and what others did to that since. A status has several authors: its conditions
//! and fields belong to whoever is to write them, and each author leaves the others' alone (`mergePodStatus` in
//! upstream's `pkg/kubelet/status/status_manager.go`).
use super::conditions::is_foreign;
use crate::pod;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};

/// The API's answer to the last status that was written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    pub status: PodStatus,
    revision: u64,
}

fn revision(pod: &Pod) -> u64 {
    let text = pod.metadata.resource_version.as_deref().unwrap_or_default();
    text.parse().unwrap_or(0)
}

impl Told {
    pub fn answered(pod: Pod) -> Told {
        Told { revision: revision(&pod), status: pod.status.unwrap_or_default() }
    }
}

/// What the API has, as far as it is known: the informer may not have seen yet what was written.
pub fn in_api<'a>(told: Option<&'a Told>, seen: &'a Pod) -> &'a PodStatus {
    match told {
        Some(told) if revision(seen) < told.revision => &told.status,
        _ => pod::status(seen),
    }
}

/// What is the kubelet's as it told it, and what is others' as the API has it.
pub fn known(told: Option<&Told>, seen: &Pod) -> PodStatus {
    let now = in_api(told, seen);
    let Some(told) = told else { return now.clone() };
    let mut known = told.status.clone();
    let list = |status: &PodStatus| status.conditions.clone().unwrap_or_default();
    let others = list(now).into_iter().filter(|one| is_foreign(&one.type_));
    let mut conditions: Vec<PodCondition> =
        list(&told.status).into_iter().filter(|one| !is_foreign(&one.type_)).collect();
    conditions.extend(others);
    known.conditions = Some(conditions).filter(|all| !all.is_empty());
    known.resource_claim_statuses.clone_from(&now.resource_claim_statuses);
    known.extended_resource_claim_status.clone_from(&now.extended_resource_claim_status);
    known
        .node_allocatable_resource_claim_statuses
        .clone_from(&now.node_allocatable_resource_claim_statuses);
    known.nominated_node_name.clone_from(&now.nominated_node_name);
    // Whoever takes pods of lost nodes away lets them end first: what has ended stays ended.
    let ended =
        |status: &PodStatus| matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if ended(now) && !ended(&known) {
        known.phase.clone_from(&now.phase);
        known.reason.clone_from(&now.reason);
        known.message.clone_from(&now.message);
    }
    known
}

/// What may be believed of a status that an earlier process told: all but that the pod is ready.
pub fn hearsay(seen: &PodStatus) -> PodStatus {
    let mut status = seen.clone();
    status.phase = status.phase.filter(|phase| !phase.is_empty()).or(Some("Pending".to_owned()));
    for one in status.conditions.iter_mut().flatten() {
        if one.type_ == "Ready" && one.status == "True" {
            one.status = "False".to_owned();
            one.reason = Some("ContainersNotReady".to_owned());
            one.message = Some("Kubelet is initializing pod containers".to_owned());
        }
    }
    status
}

/// Whether somebody else changed what is the kubelet's to tell.
pub fn is_overwritten(told: Option<&Told>, seen: &Pod) -> bool {
    let sorted = |mut status: PodStatus| {
        status.conditions.iter_mut().for_each(|all| all.sort_by(|a, b| a.type_.cmp(&b.type_)));
        status
    };
    told.is_some() && sorted(known(told, seen)) != sorted(in_api(told, seen).clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(revision: u64, phase: &str, conditions: &[(&str, &str)]) -> Pod {
        let conditions = conditions.iter();
        let conditions: Vec<Value> =
            conditions.map(|(type_, status)| json!({ "type": type_, "status": status })).collect();
        let pod = json!({ "metadata": { "resourceVersion": revision.to_string() },
            "status": { "phase": phase, "conditions": conditions } });
        serde_json::from_value(pod).expect("a pod")
    }

    /// `Running Ready=True gate=False`, and `!` if somebody meddled.
    fn check(told: Option<Pod>, seen: Pod, expected: &str) {
        let told = told.map(Told::answered);
        let known = known(told.as_ref(), &seen);
        let mut text = known.phase.unwrap_or_default();
        for one in known.conditions.into_iter().flatten() {
            text += &format!(" {}={}", one.type_, one.status);
        }
        text += if is_overwritten(told.as_ref(), &seen) { " !" } else { "" };
        assert_eq!(text, expected);
    }

    #[test]
    fn each_author_has_conditions_of_its_own() {
        let told = || Some(pod(5, "Running", &[("Ready", "False")]));
        check(None, pod(1, "Pending", &[("gate", "True")]), "Pending gate=True");
        // Set after our last word, changed, and taken away again.
        let seen = pod(6, "Running", &[("Ready", "False"), ("gate", "True")]);
        check(told(), seen, "Running Ready=False gate=True");
        let told_gate = Some(pod(5, "Running", &[("Ready", "False"), ("gate", "True")]));
        let seen = pod(6, "Running", &[("Ready", "False")]);
        check(told_gate.clone(), seen, "Running Ready=False");
        // The informer is behind.
        check(told_gate, pod(4, "Pending", &[]), "Running Ready=False gate=True");
    }

    #[test]
    fn what_others_wrote_over_ours_is_seen() {
        let told = || Some(pod(5, "Running", &[("Ready", "False")]));
        check(told(), pod(6, "Running", &[("Ready", "True")]), "Running Ready=False !");
        check(told(), pod(6, "Pending", &[("Ready", "False")]), "Running Ready=False !");
        check(told(), pod(6, "Running", &[]), "Running Ready=False !");
        check(told(), pod(6, "Failed", &[("Ready", "False")]), "Failed Ready=False");
    }
}
