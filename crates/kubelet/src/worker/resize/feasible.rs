//! Changes that cannot be made, however much room there is (`pkg/kubelet/allocation/handlers.go`).
use super::INFEASIBLE;
use crate::admission::Refusal;
use crate::container::resources::{self, Enforcement};
use crate::pod;
use api::quantity::Quantity;
use api::rules::qos_class;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::json;

/// What of the node makes some changes impossible.
pub struct Settings<'a> {
    pub enforcement: &'a Enforcement,
    /// Containers may have processors, or memory, for themselves.
    pub has_cpus: bool,
    pub has_memory: bool,
}

/// Whether a change could be made if there were room for it (`podResizesAdmitHandler`).
pub fn feasible(pod: &Pod, given: &Pod, settings: &Settings<'_>) -> Result<(), Refusal> {
    let refused = |message: &str| Err(Refusal::new(INFEASIBLE, message));
    let changed = |name: &str| -> Vec<Container> {
        let of = |one: &Container| {
            let requests = one.resources.as_ref().and_then(|all| all.requests.as_ref());
            requests.and_then(|all| all.get(name)).and_then(|text| Quantity::parse(&text.0).ok())
        };
        let both = pod::containers(pod).zip(pod::containers(given));
        both.filter(|((_, wanted), (_, has))| of(wanted) != of(has))
            .map(|((_, wanted), _)| wanted.clone())
            .collect()
    };
    let begins_again = |one: &Container| {
        let mut policies = one.resize_policy.iter().flatten();
        policies
            .any(|one| one.resource_name == "memory" && one.restart_policy == "RestartContainer")
    };
    let may_swap = |pod: &Pod, name: &str| {
        let own = pod::container(pod, name);
        own.is_some_and(|(_, one)| resources::may_swap(pod, &one, settings.enforcement))
    };
    let swaps = |one: &Container| may_swap(pod, &one.name) || may_swap(given, &one.name);
    if changed("memory").iter().any(|one| !begins_again(one) && swaps(one)) {
        return refused("In-place resize of containers with swap is not supported.");
    }
    if qos_class(&json!(pod.spec)) != "Guaranteed" {
        return Ok(());
    }
    if settings.has_cpus && !changed("cpu").is_empty() {
        return refused(
            "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"",
        );
    }
    if settings.has_memory && !changed("memory").is_empty() {
        return refused(
            "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(cpu: &str, memory: &str, is_guaranteed: bool) -> Pod {
        let amounts = json!({ "cpu": cpu, "memory": memory });
        let mut resources = json!({ "requests": amounts });
        if is_guaranteed {
            resources["limits"] = amounts;
        }
        let container = json!({ "name": "c", "resources": resources });
        serde_json::from_value(json!({ "metadata": {}, "spec": { "containers": [container] } }))
            .unwrap()
    }

    #[test]
    fn what_a_container_has_for_itself_is_not_changed() {
        let check = |has_cpus, has_memory, to: Pod, expected: Option<&str>| {
            let enforcement = &Enforcement::default();
            let settings = Settings { enforcement, has_cpus, has_memory };
            let is_guaranteed = qos_class(&json!(to.spec)) == "Guaranteed";
            let said = feasible(&to, &sized("1", "1Gi", is_guaranteed), &settings);
            let said = said.err().map(|refusal| {
                assert_eq!(refusal.reason, "Infeasible");
                refusal.message
            });
            assert_eq!(said.as_deref(), expected);
        };
        let cpu =
            "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"";
        let memory =
            "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"";
        check(true, true, sized("2", "1Gi", true), Some(cpu));
        check(true, true, sized("1", "2Gi", true), Some(memory));
        check(true, true, sized("1000m", "1024Mi", true), None);
        check(true, true, sized("2", "2Gi", false), None);
        check(true, false, sized("1", "2Gi", true), None);
        check(false, false, sized("2", "2Gi", true), None);
    }

    #[test]
    fn what_swaps_keeps_its_memory() {
        let swaps = Enforcement {
            limited_swap: true,
            memory: 8 << 30,
            swap: 1 << 30,
            ..Default::default()
        };
        let settings = Settings { enforcement: &swaps, has_cpus: false, has_memory: false };
        let given = sized("1", "1Gi", false);
        let said = feasible(&sized("1", "2Gi", false), &given, &settings).unwrap_err();
        assert_eq!(said.message, "In-place resize of containers with swap is not supported.");
        assert!(feasible(&sized("2", "1Gi", false), &given, &settings).is_ok());
        let again = |mut pod: Pod| {
            let policy = json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
            let container = &mut pod.spec.as_mut().unwrap().containers[0];
            container.resize_policy = serde_json::from_value(policy).unwrap();
            pod
        };
        let (to, given) = (again(sized("1", "2Gi", false)), again(given));
        assert!(feasible(&to, &given, &settings).is_ok());
    }
}
