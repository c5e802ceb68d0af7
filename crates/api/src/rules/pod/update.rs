//! What may change in a pod, by way of which subresource.
use super::super::{Field, scheduling};
use super::{MIRROR, spec, untrimmed, whole};
use serde_json::Value;

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub fn main(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    whole(new);
    annotations(&new.at("metadata.annotations"), &old.at("metadata.annotations"));
    let (new, old) = (new.at("spec"), old.at("spec"));
    for list in ["containers", "initContainers"] {
        if new.at(list).len() != old.at(list).len() {
            return new.at(list).forbidden("pod updates may not add or remove containers");
        }
        for container in new.at(list).items() {
            untrimmed(&container.at("image"));
        }
    }
    if !deadline(&new.at("activeDeadlineSeconds"), &old.at("activeDeadlineSeconds")) {
        return;
    }
    only_added_tolerations(&new.at("tolerations"), &old.at("tolerations"));
    only_deleted_gates(&new.at("schedulingGates"), &old.at("schedulingGates"));
    if new.value() == old.value() {
        return;
    }
    let mut allowed = new.value().clone();
    for list in ["containers", "initContainers"] {
        let containers = allowed.get_mut(list).and_then(Value::as_array_mut);
        for (container, old) in containers.into_iter().flatten().zip(old.at(list).list()) {
            container["image"] = old["image"].clone();
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        super::super::prepare::put(&mut allowed, field, old.value().get(field));
    }
    let was_negative = old.at("terminationGracePeriodSeconds").int() < 0;
    if was_negative && new.at("terminationGracePeriodSeconds").int() == 1 {
        allowed["terminationGracePeriodSeconds"] =
            old.value()["terminationGracePeriodSeconds"].clone();
    }
    if !old.at("schedulingGates").is_empty() {
        gated(&mut allowed, &new, &old);
    }
    if allowed != *old.value() {
        new.forbidden(format!("pod updates may not change fields other than {UPDATABLE}"));
    }
}

/// A pod that waits for its gates may still be told more narrowly where to go.
fn gated(allowed: &mut Value, new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let (selector, before) = (new.at("nodeSelector"), old.at("nodeSelector"));
    if selector.value() != before.value() {
        let (now, then) = (selector.labels(), before.labels());
        if then.iter().any(|(key, value)| now.get(key) != Some(value)) {
            selector.invalid(
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            );
        }
        super::super::prepare::put(allowed, "nodeSelector", old.value().get("nodeSelector"));
    }
    if new.value()["affinity"]["nodeAffinity"] != old.value()["affinity"]["nodeAffinity"] {
        let affinity = old.value()["affinity"].get("nodeAffinity");
        match (allowed.get("affinity").is_some(), affinity) {
            (false, Some(affinity)) => {
                allowed["affinity"] = serde_json::json!({ "nodeAffinity": affinity })
            }
            (false, None) => {}
            (true, affinity) => {
                super::super::prepare::put(&mut allowed["affinity"], "nodeAffinity", affinity);
                let empty = allowed["affinity"].as_object().is_some_and(serde_json::Map::is_empty);
                if empty && old.value().get("affinity").is_none() {
                    super::super::prepare::put(allowed, "affinity", None);
                }
            }
        }
    }
}

/// What a pod is a mirror of, and how it is confined, is said once.
pub fn annotations(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
    for (key, before) in old.entries() {
        let changed = new.key(key).value() != before.value();
        if changed && key.starts_with(APP_ARMOR) {
            new.key(key).forbidden("may not remove or update AppArmor annotations");
        }
        if changed && key == MIRROR {
            new.key(key).forbidden("may not remove or update mirror pod annotation");
        }
    }
    for (key, entry) in new.entries().filter(|(key, _)| !old.key(key).exists()) {
        if key.starts_with(APP_ARMOR) {
            entry.forbidden("may not add AppArmor annotations");
        }
        if key == MIRROR {
            entry.forbidden("may not add mirror pod annotation");
        }
    }
}

/// Whether to go on.
fn deadline(new: &Field<'_, '_>, old: &Field<'_, '_>) -> bool {
    if new.exists() {
        if !new.between(0, i32::MAX.into()) {
            return false;
        }
        if old.exists() && old.int() < new.int() {
            new.invalid("must be less than or equal to previous value");
            return false;
        }
    } else if old.exists() {
        let detail = "must not update from a positive integer to nil value";
        new.invalid_as(crate::field::BadValue::null(), detail);
    }
    true
}

fn only_added_tolerations(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        super::super::prepare::put(&mut toleration, "tolerationSeconds", None);
        toleration
    };
    let kept: Vec<Value> = new.list().iter().map(without_seconds).collect();
    if old.list().iter().any(|old| !kept.contains(&without_seconds(old))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        return new.forbidden(detail);
    }
    scheduling::tolerations(new);
}

fn only_deleted_gates(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    for gate in new.items() {
        let name = gate.at("name");
        if !old.list().iter().any(|old| old["name"] == name.text()) {
            name.forbidden(format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name.text()
            ));
        }
    }
}

pub fn ephemeral_containers(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    if old.at("metadata.annotations").key(MIRROR).exists() {
        return new.forbidden("static pods do not support ephemeral containers");
    }
    let spec = new.at("spec");
    spec::validate(&spec, new.at("metadata.name").text(), true);
    let (now, then) = (spec.at("ephemeralContainers"), old.at("spec.ephemeralContainers"));
    for before in then.items() {
        let name = before.at("name").text();
        match now.items().find(|container| container.at("name").text() == name) {
            None => now.forbidden(format!(
                "existing ephemeral containers {} may not be removed\n",
                crate::quote::Quoted(name)
            )),
            Some(container) if container.value() != before.value() => now.forbidden(format!(
                "existing ephemeral containers {} may not be changed\n",
                crate::quote::Quoted(name)
            )),
            Some(_) => {}
        }
    }
}
