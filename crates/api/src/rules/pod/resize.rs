//! What `resize` may change: the processor and memory of containers and of the pod.
use super::super::{Field, prepare::put};
use super::{MIRROR, qos, whole};
use serde_json::{Map, Value, json};

const MUTABLE: [&str; 2] = ["cpu", "memory"];

pub fn validate(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let before = new.count();
    whole(new);
    let (spec, then) = (new.at("spec"), old.at("spec"));
    for (never, word) in [
        (old.at("metadata.annotations").key(MIRROR).exists(), "static"),
        (then.at("os.name").text() == "windows", "windows"),
    ] {
        if never {
            return new.forbidden(format!("{word} pods cannot be resized"));
        }
    }
    if qos::class(spec.value()) != qos::class(then.value()) {
        let class = new.at("status.qosClass").text();
        spec.invalid_as(class, "Pod QOS Class may not change as a result of resizing");
    }
    let statuses = old.at("status.containerStatuses");
    let running = statuses.items().find(|status| status.at("state.running").exists());
    if running.is_some_and(|status| !status.at("resources").exists()) {
        spec.forbidden("Pod running on node without support for resize");
    }
    let mut allowed = spec.value().clone();
    pod_level(&spec, &then, &mut allowed);
    let ordered = same_order(&spec, &then, "containers");
    if !same_order(&spec, &then, "initContainers") || !ordered {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (container, old) in spec.at(list).items().zip(then.at(list).list()) {
            removed(&container.at("resources"), &old["resources"], "resource");
        }
    }
    for list in ["containers", "initContainers"] {
        let containers = allowed.get_mut(list).and_then(Value::as_array_mut);
        let pairs = containers.into_iter().flatten().zip(then.at(list).list());
        for ((container, old), place) in pairs.zip(spec.at(list).items()) {
            let modified = *container != *old;
            restore(&mut container["resources"], &old["resources"]);
            let odd = *container != *old;
            match list {
                "containers" if odd => spec.forbidden("only cpu and memory resources are mutable"),
                "initContainers" if odd => place.forbidden(
                    "only cpu and memory resources for init or sidecar containers are mutable",
                ),
                _ => {}
            }
            let restarts =
                |policy: Field<'_, '_>| policy.at("restartPolicy").text() == "RestartContainer";
            if list == "initContainers"
                && modified
                && place.at("restartPolicy").text() != "Always"
                && place.at("resizePolicy").items().any(restarts)
            {
                place.forbidden("non-sidecar init containers with a resize policy of RestartContainer cannot be resized");
            }
        }
    }
    if spec.at("volumes").value() != then.at("volumes").value() {
        spec.at("volumes").forbidden("volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled");
    }
    if new.count() == before && allowed != *then.value() {
        spec.forbidden("only cpu and memory resources are mutable");
    }
}

fn same_order(new: &Field<'_, '_>, old: &Field<'_, '_>, list: &'static str) -> bool {
    let (now, then) = (new.at(list), old.at(list));
    if now.len() != then.len() {
        now.forbidden(format!("{list} may not be added or removed on resize"));
        return false;
    }
    let mut same = true;
    for (container, old) in now.items().zip(then.list()) {
        if container.value()["name"] != old["name"] {
            let detail = format!("{list} may not be renamed or reordered on resize");
            container.at("name").forbidden(detail);
            same = false;
        }
    }
    same
}

/// The pod's own resources.
fn pod_level(new: &Field<'_, '_>, old: &Field<'_, '_>, allowed: &mut Value) {
    let (now, then) = (new.at("resources"), old.at("resources"));
    let given =
        |field: &Field<'_, '_>| !field.at("requests").is_empty() || !field.at("limits").is_empty();
    if !given(&now) && !given(&then) {
        return;
    }
    if then.exists() && !now.exists() {
        return now.forbidden("pod-level resources cannot be removed");
    }
    if then.exists() {
        removed(&now, then.value(), "pod-level resource");
    }
    restore(&mut allowed["resources"], then.value());
    if allowed["resources"] != *then.value() {
        new.forbidden("only cpu and memory resources are mutable at pod-level");
    }
}

/// What was asked for stays asked for, more or less of it.
fn removed(new: &Field<'_, '_>, old: &Value, word: &str) {
    for part in ["requests", "limits"] {
        let list = new.at(part);
        let mut names = old[part].as_object().into_iter().flatten();
        if names.any(|(name, _)| !list.key(name).exists()) {
            list.forbidden(format!("{word} {part} cannot be removed"));
        }
    }
}

/// The resources with the old amounts of what may change.
fn restore(resources: &mut Value, old: &Value) {
    for part in ["limits", "requests"] {
        let mut list: Map<String, Value> =
            resources.get(part).and_then(Value::as_object).cloned().unwrap_or_default();
        for name in MUTABLE {
            match old[part].get(name) {
                Some(amount) => list.insert(name.into(), amount.clone()),
                None => list.remove(name),
            };
        }
        if resources.is_null() {
            *resources = json!({});
        }
        // Given empty or not at all is the same, as long as the old one is the same.
        let list = (!list.is_empty() || old[part].is_object()).then(|| Value::from(list));
        put(resources, part, list.as_ref());
    }
}
