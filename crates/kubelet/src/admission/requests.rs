//! What a pod asks for and may use at most, as a whole: its containers run together, its init
//! containers one after another with the sidecars before them; a word of the pod's own goes first.
use crate::pod::{self, Role};
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;

/// Processors in thousandths, everything else in units.
pub type Amounts = BTreeMap<String, i64>;

pub fn requests(pod: &Pod) -> Amounts {
    let mut total = of_containers(pod, |resources| resources.requests.as_ref());
    total.extend(of_pod(pod, |resources| resources.requests.as_ref()));
    add(&mut total, &amounts(pod::spec(pod).overhead.as_ref()));
    total
}

/// Only what every container is limited in limits the pod.
pub fn limits(pod: &Pod) -> Amounts {
    let mut total = of_containers(pod, |resources| resources.limits.as_ref());
    let of = |one: &k8s_openapi::api::core::v1::Container| {
        amounts(one.resources.as_ref().and_then(|all| all.limits.as_ref()))
    };
    total.retain(|name, _| {
        let mut running = pod::containers(pod).filter(|(role, _)| *role != Role::Init);
        running.all(|(_, one)| of(one).contains_key(name))
    });
    total.extend(of_pod(pod, |resources| resources.limits.as_ref()));
    for (name, amount) in amounts(pod::spec(pod).overhead.as_ref()) {
        if let Some(limit) = total.get_mut(&name) {
            *limit += amount;
        }
    }
    total
}

/// What its containers may use together, those with a limit.
pub fn sum_of_limits(pod: &Pod) -> Amounts {
    let mut total = of_containers(pod, |resources| resources.limits.as_ref());
    total.extend(of_pod(pod, |resources| resources.limits.as_ref()));
    total
}

pub fn amounts(list: Option<&BTreeMap<String, Text>>) -> Amounts {
    let read = |(name, text): (&String, &Text)| {
        let quantity = Quantity::parse(&text.0).ok()?;
        let amount = if name == "cpu" { quantity.milli_value() } else { quantity.value() };
        Some((name.clone(), amount))
    };
    list.into_iter().flatten().filter_map(read).collect()
}

type Read = fn(&ResourceRequirements) -> Option<&BTreeMap<String, Text>>;

fn of_pod(pod: &Pod, read: Read) -> Amounts {
    amounts(pod::spec(pod).resources.as_ref().and_then(read))
}

fn of_containers(pod: &Pod, read: Read) -> Amounts {
    let (mut running, mut most) = (Amounts::new(), Amounts::new());
    for (role, container) in pod::containers(pod) {
        let own = amounts(container.resources.as_ref().and_then(read));
        match role {
            Role::Init => {
                // It runs beside the sidecars that were started before it.
                let mut then = running.clone();
                add(&mut then, &own);
                raise(&mut most, &then);
            }
            _ => add(&mut running, &own),
        }
    }
    raise(&mut running, &most);
    running
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *total.entry(name.clone()).or_default() += amount;
    }
}

fn raise(total: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        let known = total.entry(name.clone()).or_default();
        *known = (*known).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(spec: Value, requests_cpu: i64, limits_cpu: Option<i64>) {
        let pod: Pod = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
        assert_eq!(requests(&pod).get("cpu").copied().unwrap_or(0), requests_cpu, "{spec}");
        assert_eq!(limits(&pod).get("cpu").copied(), limits_cpu, "{spec}");
    }

    fn container(request: &str, limit: Option<&str>) -> Value {
        let limits = limit.map_or(json!({}), |limit| json!({ "cpu": limit }));
        json!({ "name": "c", "resources": { "requests": { "cpu": request }, "limits": limits } })
    }

    #[test]
    fn containers_run_together_and_init_containers_before() {
        let (one, two) = (container("100m", Some("1")), container("200m", None));
        check(json!({ "containers": [one, two] }), 300, None);
        check(json!({ "containers": [one, one] }), 200, Some(2000));
        let init = container("500m", None);
        check(json!({ "containers": [one], "initContainers": [init] }), 500, Some(1000));
        let mut sidecar = container("50m", Some("100m"));
        sidecar["restartPolicy"] = "Always".into();
        check(json!({ "containers": [one], "initContainers": [sidecar, init] }), 550, Some(1100));
        check(
            json!({ "containers": [one], "resources": { "requests": { "cpu": "2" }, "limits": { "cpu": "3" } }, "overhead": { "cpu": "10m" } }),
            2010,
            Some(3010),
        );
    }
}
