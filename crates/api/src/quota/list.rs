//! Amounts of resources, and what a pod asks for in all.
use super::{items, text};
use crate::names::qualified_name;
use crate::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

pub type ResourceList = BTreeMap<String, Quantity>;

/// Whether what a pod was given already counts beside what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Ignored,
    Counted,
}

/// A list as an object has it; what is no amount is for the kind's rules to say.
pub fn of(value: &Value) -> ResourceList {
    let entries = value.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse().ok()?)))
        .collect()
}

pub fn add(list: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        match list.get_mut(name) {
            Some(known) => *known += amount,
            None => drop(list.insert(name.clone(), amount.clone())),
        }
    }
}

/// The larger of each.
pub fn raise(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        if list.get(name).is_none_or(|known| amount > known) {
            list.insert(name.clone(), amount.clone());
        }
    }
}

/// `cpu=1,memory=1Gi`.
pub fn printed(list: &ResourceList) -> String {
    let parts: Vec<String> = list.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    parts.join(",")
}

/// What the containers need at once: those that go on running together, or the most that starting
/// one after the other takes beside those that have to run by then.
pub fn of_containers(pod: &Value, amounts: impl Fn(&Value) -> ResourceList) -> ResourceList {
    let mut total = ResourceList::new();
    for container in items(&pod["spec"]["containers"]) {
        add(&mut total, &amounts(container));
    }
    let (mut running, mut starting) = (ResourceList::new(), ResourceList::new());
    for container in items(&pod["spec"]["initContainers"]) {
        let mut own = amounts(container);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut running, &own);
            own = running.clone();
        } else {
            add(&mut own, &running);
        }
        raise(&mut starting, &own);
    }
    raise(&mut total, &starting);
    total
}

/// The requests or limits of a pod's containers: as wanted, or the most of what is wanted, given
/// and used.
fn of_pod(pod: &Value, part: &str, status: Status) -> ResourceList {
    let spec = |container: &Value| of(&container["resources"][part]);
    if status == Status::Ignored {
        return of_containers(pod, spec);
    }
    let infeasible = is_resize_infeasible(pod);
    let wanted = |container: &Value| match infeasible {
        true => ResourceList::new(),
        false => spec(container),
    };
    // Only requests are allocated.
    let given = |container: &Value| status_of(pod, container).get("allocatedResources");
    let allocated = |container: &Value| match given(container).filter(|_| part == "requests") {
        Some(amounts) => of(amounts),
        None => wanted(container),
    };
    let actual = |container: &Value| match status_of(pod, container)["resources"].get(part) {
        Some(amounts) => of(amounts),
        None => allocated(container),
    };
    let mut total = of_containers(pod, wanted);
    raise(&mut total, &of_containers(pod, actual));
    raise(&mut total, &of_containers(pod, allocated));
    total
}

pub fn pod_requests(pod: &Value, status: Status) -> ResourceList {
    let mut total = of_pod(pod, "requests", status);
    apply_pod_level(pod, "requests", &mut total);
    add(&mut total, &of(&pod["spec"]["overhead"]));
    total
}

pub fn pod_limits(pod: &Value, status: Status) -> ResourceList {
    let mut total = of_pod(pod, "limits", status);
    apply_pod_level(pod, "limits", &mut total);
    for (name, amount) in of(&pod["spec"]["overhead"]) {
        if let Some(limit) = total.get_mut(&name).filter(|limit| !limit.is_zero()) {
            *limit += &amount;
        }
    }
    total
}

/// Whether the pod as a whole asks for something.
pub fn has_pod_level(pod: &Value) -> bool {
    let parts = ["requests", "limits"].map(|part| pod["spec"]["resources"][part].as_object());
    parts.into_iter().flatten().flat_map(|part| part.keys()).any(|name| is_pod_level(name))
}

fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn apply_pod_level(pod: &Value, part: &str, total: &mut ResourceList) {
    let own = of(&pod["spec"]["resources"][part]);
    total.extend(own.into_iter().filter(|(name, _)| is_pod_level(name)));
}

fn status_of<'v>(pod: &'v Value, container: &Value) -> &'v Value {
    let lists =
        ["containerStatuses", "initContainerStatuses"].map(|list| items(&pod["status"][list]));
    let mut all = lists.into_iter().flatten();
    all.find(|status| status["name"] == container["name"]).unwrap_or(&Value::Null)
}

fn is_resize_infeasible(pod: &Value) -> bool {
    let mut conditions = items(&pod["status"]["conditions"]).iter();
    let pending = conditions.find(|condition| condition["type"] == "PodResizePending");
    pending.is_some_and(|condition| text(&condition["reason"]) == "Infeasible")
}

/// Kubernetes' own: a name without a prefix, or with Kubernetes'.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// A device or the like that somebody else counts.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container(cpu: &str) -> Value {
        json!({"name": format!("c{cpu}"), "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}})
    }

    fn requests(pod: &Value) -> String {
        printed(&pod_requests(pod, Status::Counted))
    }

    #[test]
    fn starting_may_take_more_than_running() {
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = "Always".into();
        let spec =
            |init: Value| json!({"spec": {"containers": [container("2")], "initContainers": init}});
        assert_eq!(requests(&spec(json!([container("1")]))), "cpu=2");
        assert_eq!(requests(&spec(json!([container("5")]))), "cpu=5");
        assert_eq!(requests(&spec(json!([sidecar, container("5")]))), "cpu=6");
        assert_eq!(requests(&spec(json!([sidecar]))), "cpu=3");
    }

    #[test]
    fn what_a_pod_still_has_counts() {
        let mut pod = json!({"spec": {"containers": [container("2")], "overhead": {"cpu": "500m"}},
            "status": {"containerStatuses": [{"name": "c2", "allocatedResources": {"cpu": "3"}}]}});
        assert_eq!(requests(&pod), "cpu=3500m");
        assert_eq!(printed(&pod_limits(&pod, Status::Counted)), "cpu=2500m");
        pod["status"]["conditions"] = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
        pod["status"]["containerStatuses"][0]["allocatedResources"]["cpu"] = "1".into();
        assert_eq!(requests(&pod), "cpu=1500m");
    }

    #[test]
    fn the_pods_own_resources_go_before() {
        let pod = json!({"spec": {"containers": [container("2")], "resources": {"requests": {"cpu": "9"}}}});
        assert_eq!(requests(&pod), "cpu=9");
    }

    #[test]
    fn extended_resources_have_a_foreign_prefix() {
        assert!(is_extended("nvidia.com/gpu"));
        for name in ["cpu", "kubernetes.io/x", "requests.nvidia.com/gpu"] {
            assert!(!is_extended(name), "{name}");
        }
    }
}
