//! What a pod uses, and in which scopes it is.
use super::list::{self as resource_list, ResourceList, Status};
use super::scope::Selector;
use super::{count, items, text};
use crate::quantity::Quantity;
use crate::rules::qos_class;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const RESOURCES: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// What every container has to say, if a quota limits it.
const REQUIRED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

pub fn is_mine(name: &str) -> bool {
    RESOURCES.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
        || is_extended(name)
}

/// `requests.` and the name of something that others count.
pub fn is_extended(name: &str) -> bool {
    let Some(plain) = name.strip_prefix("requests.") else { return false };
    !resource_list::is_native(name) || plain.starts_with(DEVICE_CLASS)
}

pub fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

pub fn is_in_scope(selector: &Selector, pod: &Value) -> Result<bool, String> {
    let best_effort = || {
        let class = text(&pod["status"]["qosClass"]);
        let class = if class.is_empty() { qos_class(&pod["spec"]) } else { class };
        class == "BestEffort"
    };
    Ok(match selector.scope_name.as_str() {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" => match text(&pod["spec"]["priorityClassName"]) {
            "" => return selector.takes(&[]),
            class => return selector.takes(&[class]),
        },
        "CrossNamespacePodAffinity" => looks_into_other_namespaces(pod),
        _ => false,
    })
}

fn looks_into_other_namespaces(pod: &Value) -> bool {
    let leaves = |term: &Value| {
        !items(&term["namespaces"]).is_empty() || term.get("namespaceSelector").is_some()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let affinity = &pod["spec"]["affinity"][*kind];
        let required = items(&affinity["requiredDuringSchedulingIgnoredDuringExecution"]);
        let preferred = items(&affinity["preferredDuringSchedulingIgnoredDuringExecution"]);
        required.iter().any(leaves)
            || preferred.iter().any(|weighted| leaves(&weighted["podAffinityTerm"]))
    })
}

/// Refuses a pod whose containers do not all say what the quota limits.
pub fn check(required: &[&str], pod: &Value) -> Result<(), String> {
    if resource_list::has_pod_level(pod) {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let lists = ["containers", "initContainers"].map(|list| items(&pod["spec"][list]));
    for container in lists.into_iter().flatten() {
        let part = |part: &str| resource_list::of(&container["resources"][part]);
        let said = charged(&part("requests"), &part("limits"));
        let wanted = required.iter().filter(|name| REQUIRED.contains(name));
        for name in wanted.filter(|name| !said.contains_key(**name)) {
            missing.entry(name).or_default().insert(text(&container["name"]));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let each = missing.iter().map(|(resource, containers)| {
        let containers: Vec<&str> = containers.iter().copied().collect();
        format!("{resource} for: {}", containers.join(","))
    });
    Err(format!("must specify {}", each.collect::<Vec<_>>().join("; ")))
}

pub fn usage(pod: &Value, now: Timestamp) -> ResourceList {
    let mut usage = ResourceList::from([("count/pods".to_owned(), count(1))]);
    if is_alive(pod, now) {
        let requests = resource_list::pod_requests(pod, Status::Counted);
        let limits = resource_list::pod_limits(pod, Status::Counted);
        usage.extend(charged(&requests, &limits));
    }
    usage
}

/// A pod that has ended, or should have gone by now, uses nothing but its place.
fn is_alive(pod: &Value, now: Timestamp) -> bool {
    if matches!(text(&pod["status"]["phase"]), "Failed" | "Succeeded") {
        return false;
    }
    let meta = &pod["metadata"];
    let due = crate::time::parse(text(&meta["deletionTimestamp"])).map(|(seconds, _)| seconds);
    match (due, meta["deletionGracePeriodSeconds"].as_i64()) {
        (Ok(due), Some(grace)) => now.as_second() <= due + grace,
        _ => true,
    }
}

/// Under which names a quota limits what is asked for.
fn charged(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut all = ResourceList::from([("pods".to_owned(), count(1))]);
    let mut put = |name: String, amount: &Quantity| drop(all.insert(name, amount.clone()));
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = requests.get(name) {
            put(name.into(), amount);
            put(format!("requests.{name}"), amount);
        }
        if let Some(amount) = limits.get(name) {
            put(format!("limits.{name}"), amount);
        }
    }
    for (name, amount) in requests {
        if name.starts_with("hugepages-") {
            put(name.clone(), amount);
            put(format!("requests.{name}"), amount);
        }
        if resource_list::is_extended(name) || name.starts_with(DEVICE_CLASS) {
            put(format!("requests.{name}"), amount);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::list::printed;
    use serde_json::json;

    fn pod(resources: Value) -> Value {
        json!({"metadata": {}, "spec": {"containers": [{"name": "a", "resources": resources}]}, "status": {}})
    }

    #[test]
    fn usage_has_many_names() {
        let asked = pod(
            json!({"requests": {"cpu": "1", "a.com/gpu": "2", "hugepages-2Mi": "4Mi"}, "limits": {"cpu": "2"}}),
        );
        assert_eq!(
            printed(&usage(&asked, Timestamp::UNIX_EPOCH)),
            "count/pods=1,cpu=1,hugepages-2Mi=4Mi,limits.cpu=2,pods=1,requests.a.com/gpu=2,\
             requests.cpu=1,requests.hugepages-2Mi=4Mi"
        );
    }

    #[test]
    fn what_has_ended_uses_its_place_only() {
        let mut ended = pod(json!({"requests": {"cpu": "1"}}));
        ended["status"]["phase"] = "Succeeded".into();
        assert_eq!(printed(&usage(&ended, Timestamp::UNIX_EPOCH)), "count/pods=1");
        let mut late = pod(json!({}));
        late["metadata"] =
            json!({"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
        assert_eq!(printed(&usage(&late, Timestamp::now())), "count/pods=1");
        assert_eq!(printed(&usage(&late, Timestamp::UNIX_EPOCH)), "count/pods=1,pods=1");
    }

    #[test]
    fn every_container_says_what_is_limited() {
        let mut two = pod(json!({"requests": {"cpu": "1"}}));
        two["spec"]["initContainers"] = json!([{"name": "b"}]);
        assert_eq!(
            check(&["pods", "cpu", "limits.memory"], &two),
            Err("must specify cpu for: b; limits.memory for: a,b".into())
        );
        assert_eq!(check(&["pods"], &two), Ok(()));
        two["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
        assert_eq!(check(&["cpu"], &two), Ok(()));
    }

    #[test]
    fn scopes_tell_pods_apart() {
        let within = |scope: &str, spec: Value| {
            let selector =
                Selector { scope_name: scope.into(), operator: "Exists".into(), values: vec![] };
            is_in_scope(&selector, &json!({"spec": spec})).unwrap()
        };
        assert!(within("Terminating", json!({"activeDeadlineSeconds": 5})));
        assert!(within("NotTerminating", json!({})));
        assert!(within("BestEffort", json!({"containers": [{"name": "a"}]})));
        assert!(within(
            "NotBestEffort",
            json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]})
        ));
        assert!(within("PriorityClass", json!({"priorityClassName": "high"})));
        assert!(!within("PriorityClass", json!({})));
        let term = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaceSelector": {}}]}});
        assert!(within("CrossNamespacePodAffinity", json!({"affinity": term})));
    }
}
