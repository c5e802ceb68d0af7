//! What a namespace gives to containers that ask for nothing, and how much one container, pod or
//! claim may ask for.
mod bounds;

use super::resource_list::{self, ResourceList};
use super::{Attributes, Operation, items, joined, text};
use crate::state::objects;
use api::kinds::find_kind;
use api::status::Status;
use bounds::Judge;
use serde_json::Value;

pub const KINDS: &[(&str, &str)] = &[("", "Pod"), ("", "PersistentVolumeClaim")];
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.is("", "Pod") {
        return Ok(());
    }
    let ranges = ranges(attributes).await?;
    let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
    for range in &ranges {
        set_defaults(pod, items(&range["spec"]["limits"]));
    }
    Ok(())
}

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let check = if attributes.is("", "Pod") { pod_faults } else { claim_faults };
    for range in ranges(attributes).await? {
        let faults = check(attributes.new_object(), items(&range["spec"]["limits"]));
        if !faults.is_empty() {
            return Err(attributes.forbidden(joined(&faults)));
        }
    }
    Ok(())
}

/// The ranges that the request has to keep; none if it is not about amounts.
async fn ranges(attributes: &Attributes<'_>) -> Result<Vec<Value>, Status> {
    let is_pod = attributes.is("", "Pod");
    let concerns = match (attributes.part(), attributes.operation) {
        ("resize", Operation::Update) => is_pod,
        ("", Operation::Create) => true,
        ("", Operation::Update) => !is_pod,
        _ => false,
    };
    let going = |object: &Value| object["metadata"].get("deletionTimestamp").is_some();
    if !concerns || attributes.old.is_some_and(going) {
        return Ok(Vec::new());
    }
    let resource = find_kind("v1", "LimitRange").expect("ranges are in the registry");
    objects::list(attributes.api, resource, &attributes.call.namespace).await
}

/// Gives each container what it leaves open, and says so in an annotation.
fn set_defaults(pod: &mut Value, limits: &[Value]) {
    let (mut requests, mut most) = (ResourceList::new(), ResourceList::new());
    for limit in limits.iter().filter(|limit| limit["type"] == "Container") {
        requests.extend(resource_list::of(&limit["defaultRequest"]));
        most.extend(resource_list::of(&limit["default"]));
    }
    let mut set = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let name = text(&container["name"]).to_owned();
            let resources = &mut container["resources"];
            for (defaults, field, word) in
                [(&requests, "requests", "request"), (&most, "limits", "limit")]
            {
                let missing: Vec<&String> = defaults
                    .keys()
                    .filter(|name| resources[field].get(name.as_str()).is_none())
                    .collect();
                for resource in &missing {
                    resources[field][resource.as_str()] = defaults[*resource].to_string().into();
                }
                if !missing.is_empty() {
                    let names: Vec<&str> = missing.iter().map(|name| name.as_str()).collect();
                    set.push(format!("{} {word} for {what} {name}", names.join(", ")));
                }
            }
        }
    }
    if !set.is_empty() {
        pod["metadata"]["annotations"][ANNOTATION] =
            format!("LimitRanger plugin set: {}", set.join("; ")).into();
    }
}

fn claim_faults(claim: &Value, limits: &[Value]) -> Vec<String> {
    let requests = resource_list::of(&claim["spec"]["resources"]["requests"]);
    let mut faults = Vec::new();
    for limit in limits.iter().filter(|limit| limit["type"] == "PersistentVolumeClaim") {
        let judge = Judge {
            what: "PersistentVolumeClaim",
            requests: &requests,
            limits: &ResourceList::new(),
        };
        let least = resource_list::of(&limit["min"]);
        faults.extend(least.iter().filter_map(|(name, least)| judge.least(name, least)));
        let most = resource_list::of(&limit["max"]);
        faults.extend(most.iter().filter_map(|(name, most)| judge.most_requested(name, most)));
    }
    faults
}

fn pod_faults(pod: &Value, limits: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    for limit in limits {
        match text(&limit["type"]) {
            "Container" => {
                let lists = ["containers", "initContainers"].map(|list| items(&pod["spec"][list]));
                for container in lists.into_iter().flatten() {
                    let part = |part: &str| resource_list::of(&container["resources"][part]);
                    check("Container", limit, &part("requests"), &part("limits"), &mut faults);
                }
            }
            "Pod" => {
                check("Pod", limit, &total(pod, "requests"), &total(pod, "limits"), &mut faults)
            }
            _ => {}
        }
    }
    faults
}

/// Unlike what the scheduler counts: no overhead, and only CPU and memory of the pod as a whole.
fn total(pod: &Value, part: &str) -> ResourceList {
    let mut total = resource_list::of_containers(pod, |container| {
        resource_list::of(&container["resources"][part])
    });
    let own = resource_list::of(&pod["spec"]["resources"][part]);
    total.extend(own.into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")));
    total
}

fn check(
    what: &'static str,
    limit: &Value,
    requests: &ResourceList,
    limits: &ResourceList,
    faults: &mut Vec<String>,
) {
    let judge = Judge { what, requests, limits };
    let bounds = |field: &str| resource_list::of(&limit[field]);
    faults.extend(bounds("min").iter().filter_map(|(name, least)| judge.least(name, least)));
    faults.extend(bounds("max").iter().filter_map(|(name, most)| judge.most(name, most)));
    let ratios = bounds("maxLimitRequestRatio");
    faults.extend(ratios.iter().filter_map(|(name, ratio)| judge.ratio(name, ratio)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(requests: Value, limits: Value) -> Value {
        let resources = json!({"requests": requests, "limits": limits});
        json!({"metadata": {}, "spec": {"containers": [{"name": "a", "resources": resources}]}})
    }

    /// A limit of each type, and what a pod does wrong.
    fn check(bound: Value, requests: Value, limits: Value, expected: &[&str]) {
        for kind in ["Container", "Pod"] {
            let mut bound = bound.clone();
            bound["type"] = kind.into();
            let expected: Vec<String> =
                expected.iter().map(|text| text.replace("WHAT", kind)).collect();
            assert_eq!(pod_faults(&pod(requests.clone(), limits.clone()), &[bound]), expected);
        }
    }

    #[test]
    fn bounds_are_kept() {
        let least = json!({"min": {"cpu": "100m"}});
        check(least.clone(), json!({"cpu": "100m"}), json!({}), &[]);
        check(
            least.clone(),
            json!({}),
            json!({}),
            &["minimum cpu usage per WHAT is 100m.  No request is specified"],
        );
        check(
            least.clone(),
            json!({"cpu": "99m"}),
            json!({}),
            &["minimum cpu usage per WHAT is 100m, but request is 99m"],
        );
        check(
            least,
            json!({"cpu": "1"}),
            json!({"cpu": "50m"}),
            &["minimum cpu usage per WHAT is 100m, but limit is 50m"],
        );
        let most = json!({"max": {"memory": "1Gi"}});
        check(most.clone(), json!({}), json!({"memory": "1Gi"}), &[]);
        check(
            most.clone(),
            json!({}),
            json!({}),
            &["maximum memory usage per WHAT is 1Gi.  No limit is specified"],
        );
        check(
            most.clone(),
            json!({}),
            json!({"memory": "2Gi"}),
            &["maximum memory usage per WHAT is 1Gi, but limit is 2Gi"],
        );
        check(
            most,
            json!({"memory": "2Gi"}),
            json!({"memory": "1Gi"}),
            &["maximum memory usage per WHAT is 1Gi, but request is 2Gi"],
        );
    }

    #[test]
    fn limits_stay_near_requests() {
        let ratio = json!({"maxLimitRequestRatio": {"cpu": "1500m"}});
        check(ratio.clone(), json!({"cpu": "2"}), json!({"cpu": "3"}), &[]);
        check(
            ratio.clone(),
            json!({"cpu": "2"}),
            json!({"cpu": "4"}),
            &["cpu max limit to request ratio per WHAT is 1500m, but provided ratio is 2.000000"],
        );
        check(
            ratio.clone(),
            json!({}),
            json!({"cpu": "4"}),
            &[
                "cpu max limit to request ratio per WHAT is 1500m, but no request is specified or request is 0",
            ],
        );
        check(
            ratio,
            json!({"cpu": "1"}),
            json!({}),
            &[
                "cpu max limit to request ratio per WHAT is 1500m, but no limit is specified or limit is 0",
            ],
        );
    }

    #[test]
    fn claims_have_bounds_too() {
        let limit = json!({"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}, "max": {"storage": "5Gi"}});
        let faults = |size: &str| {
            claim_faults(
                &json!({"spec": {"resources": {"requests": {"storage": size}}}}),
                std::slice::from_ref(&limit),
            )
        };
        assert_eq!(faults("3Gi"), [""; 0]);
        assert_eq!(
            faults("1Gi"),
            ["minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"]
        );
        assert_eq!(
            faults("6Gi"),
            ["maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi"]
        );
    }

    #[test]
    fn defaults_are_given_and_told() {
        let limit = json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}});
        let mut given = pod(json!({}), json!({"memory": "2Gi"}));
        set_defaults(&mut given, &[limit]);
        let resources = &given["spec"]["containers"][0]["resources"];
        assert_eq!(
            *resources,
            json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "2Gi"}})
        );
        assert_eq!(
            given["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container a; cpu limit for container a"
        );
    }
}
