//! What may change in a pod, by way of which subresource.
use super::super::{Field, scheduling};
use super::{spec, untrimmed, whole};
use crate::field::{BadValue, Error};
use crate::names::ip;
use serde_json::{Value, json};

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

fn annotations(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    const MIRROR: &str = "kubernetes.io/config.mirror";
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

pub fn status(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let (status, before) = (new.at("status"), old.at("status"));
    let nominated = status.at("nominatedNodeName");
    if !nominated.is_empty() {
        nominated.faults(crate::names::name_is_dns_subdomain(nominated.text(), false));
    }
    if new.at("spec.nodeName").text() != old.at("spec.nodeName").text() {
        new.at("spec.nodeName").forbidden("may not be changed directly");
    }
    for (list, containers) in
        [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")]
    {
        transitions(&status.at(list), &before.at(list), new, containers);
    }
    addresses(&status, &before, "podIPs");
    if !status.at("hostIPs").is_empty() {
        addresses(&status, &before, "hostIPs");
    }
    for condition in status.at("conditions").items() {
        let kind = condition.at("type").text();
        let place = condition.spelled("Type");
        crate::names::qualified_name(kind)
            .into_iter()
            .for_each(|fault| place.invalid_as(kind, fault));
        observed(&condition.at("observedGeneration"));
    }
    observed(&status.at("observedGeneration"));
    let class = status.at("qosClass");
    if !class.is_empty() {
        class.immutable(&before.at("qosClass"));
    }
}

fn observed(generation: &Field<'_, '_>) {
    if generation.int() < 0 {
        generation.invalid("must be a non-negative integer");
    }
}

/// A container that has ended for good stays ended.
fn transitions(new: &Field<'_, '_>, old: &Field<'_, '_>, pod: &Field<'_, '_>, list: &'static str) {
    let policy = pod.at("spec.restartPolicy").text();
    let spec = pod.at("spec");
    for (i, before) in old.items().enumerate() {
        let ended = before.at("state.terminated");
        if !ended.exists() {
            continue;
        }
        let name = before.at("name").text();
        let containers = spec.at(list);
        let own = containers
            .items()
            .find(|container| container.at("name").text() == name)
            .map_or("", |container| {
                container.value()["restartPolicy"].as_str().unwrap_or_default()
            });
        let rules =
            containers.items().any(|container| !container.at("restartPolicyRules").is_empty());
        let policy = if own.is_empty() { policy } else { own };
        let policy = if list == "initContainers" && own.is_empty() && policy == "Always" {
            "OnFailure"
        } else {
            policy
        };
        if rules || policy == "Always" || policy == "OnFailure" && ended.at("exitCode").int() != 0 {
            continue;
        }
        for status in new.items().filter(|status| status.at("name").text() == name) {
            if !status.at("state.terminated").exists() {
                let path = new.path().index(i);
                status
                    .on_path(path)
                    .at("state")
                    .forbidden("may not be transitioned to non-terminated state");
            }
        }
    }
}

fn addresses(status: &Field<'_, '_>, before: &Field<'_, '_>, list: &'static str) {
    let (addresses, known) = (status.at(list), before.at(list));
    if list == "hostIPs" {
        let first = addresses.items().next().map_or("", |entry| entry.at("ip").text());
        if first != status.at("hostIP").text() {
            let path = addresses.path().index(0);
            addresses.on_path(path.child("ip")).invalid_as(first, "must be equal to `hostIP`");
        }
    }
    let old: Vec<&str> = known.list().iter().filter_map(|entry| entry["ip"].as_str()).collect();
    for entry in addresses.items() {
        let address = entry.at("ip").text();
        entry.extend(ip::ip_for_legacy_field(entry.path(), address, true, &old));
    }
    if addresses.len() < 2 {
        return;
    }
    let parsed: Vec<_> =
        addresses.items().map(|entry| ip::parse_ip_sloppy(entry.at("ip").text())).collect();
    let broken = parsed.iter().position(Option::is_none);
    if let Some((i, entry)) = broken.and_then(|i| Some((i, addresses.items().nth(i)?))) {
        let cause = format!("invalid IP[{i}]: {}", entry.at("ip").text());
        let text = format!("failed to check for dual stack with error:{cause}");
        addresses.push(Error::internal(addresses.path(), text));
    }
    let families: Vec<bool> = parsed.iter().flatten().map(std::net::IpAddr::is_ipv4).collect();
    let dual = broken.is_none() && families.contains(&true) && families.contains(&false);
    if addresses.len() > 2 || !dual {
        let shown: Vec<Value> =
            addresses.list().iter().map(|entry| json!({ "IP": entry["ip"] })).collect();
        let detail = "may specify no more than one IP for each IP family";
        addresses.invalid_as(BadValue::json(&shown), detail);
    }
}

pub fn ephemeral_containers(new: &Field<'_, '_>, old: &Field<'_, '_>) {
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
