//! Which pods make room for one that the cluster cannot do without: as few as possible, those without requests
//! first, and of those that are left the ones that ask for little more than what is missing
//! (`pkg/kubelet/preemption`).
use super::{Refusal, Shortage, requests};
use crate::container::resources::is_critical;
use crate::pod;
use api::rules::qos_class;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::sync::Arc;

/// What is missing, by resource.
type Missing = Vec<(String, i64)>;

pub fn victims(
    pod: &Pod,
    others: &[Arc<Pod>],
    short: &[Shortage],
) -> Result<Vec<Arc<Pod>>, Refusal> {
    let missing: Missing = short.iter().map(|one| (one.resource.clone(), one.missing())).collect();
    choose(pod, others, &missing).map_err(|left| {
        let left: String =
            left.iter().map(|(name, amount)| format!("(res: {name}, q: {amount}), ")).collect();
        let text = format!(
            "Unexpected error while attempting to recover from admission failure: preemption: error finding a set \
             of pods to preempt: no set of running pods found to reclaim resources: [{left}]"
        );
        Refusal::new("UnexpectedAdmissionError", text)
    })
}

/// Or what would be missing without all of them.
fn choose(pod: &Pod, others: &[Arc<Pod>], missing: &Missing) -> Result<Vec<Arc<Pod>>, Missing> {
    let of = |class: &str| -> Vec<Arc<Pod>> {
        let all = others.iter().filter(|other| yields(other, pod));
        all.filter(|other| qos_class(&json!(other.spec)) == class).cloned().collect()
    };
    let (effort, burstable, guaranteed) = (of("BestEffort"), of("Burstable"), of("Guaranteed"));
    let without = |lists: [&[Arc<Pod>]; 2]| without(missing, &lists.concat());
    let left = without([&effort, &[burstable.clone(), guaranteed.clone()].concat()]);
    if !left.is_empty() {
        return Err(left);
    }
    let guaranteed = nearest(guaranteed, without([&effort, &burstable]))?;
    let burstable = nearest(burstable, without([&effort, &guaranteed]))?;
    let effort = nearest(effort, without([&burstable, &guaranteed]))?;
    Ok([effort, burstable, guaranteed].concat())
}

/// Whether one pod gives way to another (`Preemptable` of `pkg/kubelet/types`).
fn yields(one: &Pod, to: &Pod) -> bool {
    let priority = |pod: &Pod| pod::spec(pod).priority;
    let is_higher = priority(to).zip(priority(one)).is_some_and(|(to, one)| to > one);
    is_critical(to) && !is_critical(one) || is_higher
}

fn request(pod: &Pod, resource: &str) -> i64 {
    if resource == "pods" { 1 } else { requests(pod).get(resource).copied().unwrap_or(0) }
}

fn without(missing: &Missing, pods: &[Arc<Pod>]) -> Missing {
    let left = missing.iter().map(|(resource, amount)| {
        let freed = pods.iter().map(|pod| request(pod, resource)).sum::<i64>();
        (resource.clone(), amount - freed)
    });
    left.filter(|(_, amount)| *amount > 0).collect()
}

/// One after another the pod that leaves least missing, until nothing is.
fn nearest(mut pods: Vec<Arc<Pod>>, mut missing: Missing) -> Result<Vec<Arc<Pod>>, Missing> {
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let best = (0..pods.len()).min_by(|a, b| {
            let (a, b) = (&pods[*a], &pods[*b]);
            let size = |pod| (request(pod, "memory"), request(pod, "cpu"));
            distance(&missing, a)
                .total_cmp(&distance(&missing, b))
                .then_with(|| size(a).cmp(&size(b)))
        });
        let Some(best) = best else { return Err(missing) };
        let best = pods.swap_remove(best);
        missing = without(&missing, std::slice::from_ref(&best));
        chosen.push(best);
    }
    Ok(chosen)
}

/// What of each resource would be missing still, as a part of what is missing: all of them count alike.
fn distance(missing: &Missing, pod: &Pod) -> f64 {
    let parts = missing.iter().map(|(resource, amount)| {
        let left = (amount - request(pod, resource)).max(0);
        (left as f64 / *amount as f64).powi(2)
    });
    parts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name cpu memory priority`, with `=` after the name for a pod that has what it asks for as limits.
    fn pod(line: &str) -> Arc<Pod> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let amounts = match words[1] {
            "0" => json!({}),
            cpu => json!({ "cpu": cpu, "memory": words[2] }),
        };
        let limits = if words[0].ends_with('=') { amounts.clone() } else { json!({}) };
        let priority: i32 = words[3].parse().unwrap();
        let container =
            json!({ "name": "c", "resources": { "requests": amounts, "limits": limits } });
        let pod = json!({ "metadata": { "name": words[0].trim_end_matches('=') },
            "spec": { "priority": priority, "containers": [container] } });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn check(others: &[&str], short: &[(&str, i64)], expected: &str) {
        let critical = pod("critical 1 1Gi 2000000000");
        let others: Vec<_> = others.iter().map(|line| pod(line)).collect();
        let shortage = |(name, missing): &(&str, i64)| Shortage {
            resource: (*name).to_owned(),
            requested: *missing,
            used: 5,
            capacity: 5,
        };
        let short: Vec<_> = short.iter().map(shortage).collect();
        let said = match victims(&critical, &others, &short) {
            Ok(gone) => gone.iter().map(|pod| pod::name(pod)).collect::<Vec<_>>().join(" "),
            Err(refusal) => format!("{}: {}", refusal.reason, refusal.message),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn as_few_go_as_possible_and_those_that_matter_least() {
        let all = [
            "small 100m 100Mi 0",
            "large 1 1Gi 0",
            "fixed= 1 1Gi 0",
            "effort 0 0 0",
            "tiny 50m 1Gi 0",
        ];
        check(&all, &[("cpu", 100)], "small");
        check(&all, &[("cpu", 500)], "large");
        check(&all, &[("cpu", 1100)], "large small");
        // What is guaranteed goes when nothing else is enough.
        check(&all, &[("cpu", 2000)], "large fixed");
        check(&all, &[("memory", 100 << 20)], "small");
        check(&all, &[("pods", 1)], "effort");
        check(&all, &[("cpu", 60), ("pods", 1)], "small");
    }

    #[test]
    fn who_matters_as_much_stays() {
        let no = "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: \
                  preemption: error finding a set of pods to preempt: no set of running pods found to reclaim \
                  resources: [(res: cpu, q: 400), ]";
        check(&["other 1 1Gi 2000000001", "small 100m 1Mi 0"], &[("cpu", 500)], no);
        check(&["other 1 1Gi 2000000001", "small 500m 1Mi 0"], &[("cpu", 500)], "small");
    }
}
