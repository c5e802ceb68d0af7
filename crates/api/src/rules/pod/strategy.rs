//! What a write to a pod keeps and sets.
use super::super::{Part, Strategy, prepare, type_of};
use super::{qos, resources, security};
use crate::codec::given;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

pub fn create(pod: &mut Value) {
    pod["metadata"]["generation"] = 1.into();
    pod["status"] = json!({ "phase": "Pending" });
    let labels = pod["metadata"]["labels"].clone();
    sync_app_armor(pod);
    let spec = &mut pod["spec"];
    merge_label_keys(spec, &labels);
    pod_resources(spec);
    if spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": pod["metadata"]["creationTimestamp"].clone(),
        }]);
    }
    pod["status"]["qosClass"] = qos::class(&pod["spec"]).into();
}

pub fn update(new: &mut Value, old: &Value, part: Part<'_>, strategy: &Strategy) {
    match part {
        Part::Main => {
            prepare::put(new, "status", old.get("status"));
            keep_pod_resources(new, old);
        }
        Part::Sub("ephemeralcontainers") => {
            let containers = new["spec"].get("ephemeralContainers").cloned();
            keep_all_but_spec(new, old);
            prepare::put(&mut new["spec"], "ephemeralContainers", containers.as_ref());
        }
        Part::Sub("resize") => {
            resize(new, old);
            keep_pod_resources(new, old);
            pod_resources(&mut new["spec"]);
        }
        Part::Sub(_) => status(new, old, strategy),
    }
    prepare::put(&mut new["metadata"], "generation", old["metadata"].get("generation"));
    let same = given::aligned(old, new, type_of::<Pod>());
    if new["spec"] != same["spec"] {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        new["metadata"]["generation"] = (generation + 1).into();
    }
}

/// What an annotation of old says about a container's profile is said in its field too.
fn sync_app_armor(pod: &mut Value) {
    let spec = &pod["spec"];
    if spec["os"]["name"] == "windows" || !pod["metadata"]["annotations"].is_object() {
        return;
    }
    let of_pod = spec["securityContext"]["appArmorProfile"].clone();
    let annotations = pod["metadata"]["annotations"].clone();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default();
            let given = annotations[format!("{}{name}", security::APP_ARMOR)].as_str();
            if let Some(profile) = given.and_then(security::app_armor_of_annotation)
                && container["securityContext"].get("appArmorProfile").is_none()
                && profile != of_pod
            {
                container["securityContext"]["appArmorProfile"] = profile;
            }
        }
    }
}

fn keep_pod_resources(new: &mut Value, old: &Value) {
    if new["spec"].get("resources").is_none() {
        prepare::put(&mut new["spec"], "resources", old["spec"].get("resources"));
    }
}

fn keep_all_but_spec(new: &mut Value, old: &Value) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"] {
        prepare::put(&mut new["metadata"], field, old["metadata"].get(field));
    }
    new["spec"] = old["spec"].clone();
    prepare::put(new, "status", old.get("status"));
}

/// Only resources and what says how to change them count, container by container.
fn resize(new: &mut Value, old: &Value) {
    let names = |pod: &Value, list: &str| -> Vec<Value> {
        pod["spec"][list].as_array().into_iter().flatten().map(|c| c["name"].clone()).collect()
    };
    let lists = ["containers", "initContainers"];
    if lists.iter().any(|list| names(new, list).len() != names(old, list).len()) {
        return;
    }
    let wanted = new["spec"].take();
    keep_all_but_spec(new, old);
    prepare::put(&mut new["spec"], "resources", wanted.get("resources"));
    for list in lists {
        if names(&json!({ "spec": wanted }), list) != names(old, list) {
            prepare::put(&mut new["spec"], list, wanted.get(list));
            continue;
        }
        let containers = new["spec"].get_mut(list).and_then(Value::as_array_mut);
        for (i, container) in containers.into_iter().flatten().enumerate() {
            for field in ["resources", "resizePolicy"] {
                prepare::put(container, field, wanted[list][i].get(field));
            }
        }
    }
}

fn status(new: &mut Value, old: &Value, strategy: &Strategy) {
    prepare::status(new, old, strategy.status_resets);
    prepare::put(
        &mut new["metadata"],
        "deletionTimestamp",
        old["metadata"].get("deletionTimestamp"),
    );
    for field in
        ["qosClass", "resourceClaimStatuses", "extendedResourceClaimStatus", "observedGeneration"]
    {
        if new["status"].get(field).is_none_or(|value| *value == 0 || *value == "") {
            let kept = old["status"].get(field);
            prepare::put(&mut new["status"], field, kept);
        }
    }
    keep_observed_generations(&mut new["status"], &old["status"]);
}

/// A condition that forgets which generation it is about keeps what it said before.
fn keep_observed_generations(new: &mut Value, old: &Value) {
    let mut before: Vec<&Value> = old["conditions"].as_array().into_iter().flatten().collect();
    for condition in new.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(i) = before.iter().position(|old| old["type"] == condition["type"]) else {
            continue;
        };
        let old = before.remove(i);
        if condition.get("observedGeneration").is_none() {
            prepare::put(condition, "observedGeneration", old.get("observedGeneration"));
        }
    }
}

/// Keys whose values come from the pod's own labels become part of the selectors.
fn merge_label_keys(spec: &mut Value, labels: &Value) {
    const TERMS: [&str; 2] = [
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    ];
    for kind in ["podAffinity", "podAntiAffinity"] {
        for terms in TERMS {
            let Some(terms) = spec.pointer_mut(&format!("/affinity/{kind}/{terms}")) else {
                continue;
            };
            for term in terms.as_array_mut().into_iter().flatten() {
                let term = match term.get("podAffinityTerm").is_some() {
                    true => &mut term["podAffinityTerm"],
                    false => term,
                };
                merge_into_selector(term, labels, "matchLabelKeys", "In");
                merge_into_selector(term, labels, "mismatchLabelKeys", "NotIn");
            }
        }
    }
    let constraints = spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut);
    for constraint in constraints.into_iter().flatten() {
        merge_into_selector(constraint, labels, "matchLabelKeys", "In");
    }
}

fn merge_into_selector(term: &mut Value, labels: &Value, keys: &str, operator: &str) {
    let keys: Vec<String> = term[keys]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|k| Some(k.as_str()?.to_owned()))
        .collect();
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else {
        return;
    };
    for key in keys {
        if let Some(value) = labels[&key].as_str() {
            let expression = json!({ "key": key, "operator": operator, "values": [value] });
            let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
            if let Some(expressions) = expressions.as_array_mut() {
                expressions.push(expression);
            }
        }
    }
}

/// Where a pod as a whole has limits, what it leaves out of its requests comes from its containers
/// or from those limits.
fn pod_resources(spec: &mut Value) {
    if !spec["resources"].is_object() {
        return;
    }
    let given = |part: &str| spec["resources"][part].as_object().cloned().unwrap_or_else(Map::new);
    let (mut limits, mut requests) = (given("limits"), given("requests"));
    if !limits.is_empty() || !requests.is_empty() {
        for (name, amount) in resources::aggregate(spec, "limits") {
            if name.starts_with("hugepages-") && !requests.contains_key(&name) {
                limits.entry(name).or_insert_with(|| amount.to_string().into());
            }
        }
    }
    if !limits.is_empty() {
        for (name, amount) in resources::aggregate(spec, "requests") {
            if matches!(name.as_str(), "cpu" | "memory") {
                requests.entry(name).or_insert_with(|| amount.to_string().into());
            }
        }
        for (name, limit) in &limits {
            if resources::supported_at_pod(name) {
                requests.entry(name).or_insert_with(|| limit.clone());
            }
        }
    }
    for (part, amounts) in [("limits", limits), ("requests", requests)] {
        if !amounts.is_empty() {
            spec["resources"][part] = amounts.into();
        }
    }
}
