//! What a job says about failures and successes beyond their number.
use crate::pods;
use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use std::collections::BTreeSet;

/// What the failure of a pod comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    Counts,
    /// As if it had not been.
    Ignored,
    FailsIndex,
    /// Why, in upstream's words.
    FailsJob(String),
}

/// Pods are replaced when they have failed, not when they are about to end.
pub fn replaces_failed_only(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed")
}

pub fn has_failed(spec: &JobSpec, pod: &Pod) -> bool {
    let is_going = pod.metadata.deletion_timestamp.is_some() && pods::phase(pod) != "Succeeded";
    pods::phase(pod) == "Failed" || (is_going && !replaces_failed_only(spec))
}

/// The first rule that matches decides.
pub fn failure(spec: &JobSpec, pod: &Pod) -> Failure {
    let rules = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    let matched = rules.enumerate().find_map(|(at, rule)| Some((at, rule, cause(rule, pod)?)));
    let Some((at, rule, cause)) = matched else { return Failure::Counts };
    match &*rule.action {
        "Ignore" => Failure::Ignored,
        "FailIndex" => Failure::FailsIndex,
        "FailJob" => Failure::FailsJob(format!("{cause} matching FailJob rule at index {at}")),
        _ => Failure::Counts,
    }
}

/// What of the pod a rule is about, if it is.
fn cause(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let pod_name = format!("{}/{}", text(&pod.metadata.namespace), text(&pod.metadata.name));
    let status = pod.status.as_ref()?;
    if let Some(codes) = &rule.on_exit_codes {
        let lists = [&status.container_statuses, &status.init_container_statuses];
        let mut all = lists.into_iter().flatten().flatten();
        let (container, code) = all.find_map(|it| Some((&it.name, exit_code(it, codes)?)))?;
        return Some(format!(
            "Container {container} for pod {pod_name} failed with exit code {code}"
        ));
    }
    let patterns = rule.on_pod_conditions.as_deref()?;
    let mut conditions = status.conditions.iter().flatten();
    let matches = |type_: &str, is: &str| {
        patterns.iter().any(|it| it.type_ == type_ && it.status.as_deref().unwrap_or("True") == is)
    };
    let condition = conditions.find(|condition| matches(&condition.type_, &condition.status))?;
    Some(format!("Pod {pod_name} has condition {}", condition.type_))
}

fn exit_code(
    container: &ContainerStatus,
    wanted: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<i32> {
    let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
    let is_meant = wanted.container_name.as_ref().is_none_or(|name| *name == container.name);
    let is_listed = wanted.values.contains(&code);
    let matches = match &*wanted.operator {
        "In" => is_listed,
        "NotIn" => !is_listed,
        _ => false,
    };
    (code != 0 && is_meant && matches).then_some(code)
}

/// The rule by which these indexes are enough, if there is one.
pub fn success(spec: &JobSpec, done: &BTreeSet<i32>) -> Option<String> {
    let rules = &spec.success_policy.as_ref()?.rules;
    let is_met = |(_, rule): &(usize, &k8s_openapi::api::batch::v1::SuccessPolicyRule)| {
        let enough = |count: usize| rule.succeeded_count.is_some_and(|want| count as i32 >= want);
        match &rule.succeeded_indexes {
            None => enough(done.len()),
            Some(indexes) => {
                let mut wanted = super::index::parse(indexes);
                wanted.retain(|index| *index < spec.completions.unwrap_or_default());
                let there = wanted.intersection(done).count();
                !wanted.is_empty() && (there == wanted.len() || enough(there))
            }
        }
    };
    let met = rules.iter().enumerate().find(is_met).filter(|_| !done.is_empty());
    met.map(|(at, _)| format!("Matched rules at index {at}"))
}
