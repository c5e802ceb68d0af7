//! What may be said of a pod's status: by its kubelet, mostly.
use super::super::Field;
use super::{annotation_values, update};
use crate::field::{BadValue, Error};
use crate::names::{self, ip};
use serde_json::{Value, json};

const NODE_NAME: fn(&str, bool) -> names::Faults = names::name_is_dns_subdomain;
/// Conditions that need no domain.
const OWN: &[&str] = &["PodScheduled", "Ready", "Initialized"];
const HEALTH: &[&str] = &["Healthy", "Unhealthy", "Unknown"];
const MAX_MESSAGE: usize = 1024;

pub fn validate(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let annotations = new.at("metadata.annotations");
    update::annotations(&annotations, &old.at("metadata.annotations"));
    annotation_values(&annotations, &new.at("spec"));
    let (status, before) = (new.at("status"), old.at("status"));
    for condition in status.at("conditions").items() {
        observed(&condition.at("observedGeneration"));
        let (kind, place) = (condition.at("type").text(), condition.spelled("Type"));
        if !OWN.contains(&kind) {
            let faults = names::qualified_name(kind).into_iter();
            faults.for_each(|fault| place.invalid_as(kind, fault));
        }
    }
    if new.at("spec.nodeName").text() != old.at("spec.nodeName").text() {
        status.spelled("nodeName").forbidden("may not be changed directly");
    }
    let nominated = status.at("nominatedNodeName");
    if !nominated.is_empty() && nominated.text() != before.at("nominatedNodeName").text() {
        nominated.faults(NODE_NAME(nominated.text(), false));
        if !old.at("spec.nodeName").is_empty() {
            nominated.forbidden("may not be set on pods that are already bound to a node");
        }
    }
    observed(&status.at("observedGeneration"));
    status.at("qosClass").immutable(&before.at("qosClass"));
    for (list, containers) in
        [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")]
    {
        transitions(&status.at(list), &before.at(list), new, containers);
    }
    claims(&status.at("resourceClaimStatuses"), &new.at("spec.resourceClaims"));
    extended_claim(&status.at("extendedResourceClaimStatus"), &new.at("spec"));
    addresses(&status, &before, "podIPs");
    if !status.at("hostIPs").is_empty() {
        addresses(&status, &before, "hostIPs");
    }
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        status.at(list).items().for_each(|each| user(&each, new.at("spec.os.name").text()));
    }
    for (list, containers) in
        [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")]
    {
        let spec = new.at("spec");
        status.at(list).items().for_each(|each| allocated(&each, &spec.at(containers), &status));
    }
}

/// Whom a container runs as.
fn user(status: &Field<'_, '_>, os: &str) {
    let user = status.at("user.linux");
    if !user.exists() {
        return;
    }
    if os == "windows" {
        return user.forbidden("cannot be set for a windows pod");
    }
    user.at("uid").between(0, u32::MAX.into());
    user.at("gid").between(0, i32::MAX.into());
    user.at("supplementalGroups").items().for_each(|group| {
        group.between(0, i32::MAX.into());
    });
}

/// The claims that were made for the pod.
fn claims(statuses: &Field<'_, '_>, claims: &Field<'_, '_>) {
    let mut seen = Vec::new();
    for status in statuses.items() {
        let name = status.at("name");
        if !claims.list().iter().any(|claim| claim["name"] == name.text()) {
            name.invalid_as(
                name.text(),
                "must match the name of an entry in `spec.resourceClaims`",
            );
        }
        if seen.contains(&name.text()) {
            name.push(Error::duplicate(name.path(), name.text()));
        }
        seen.push(name.text());
        let claim = status.at("resourceClaimName");
        if claim.exists() {
            claim.faults(names::name_is_dns_subdomain(claim.text(), false));
        }
    }
}

/// The claim that stands for extended resources, and which request of which container is which.
fn extended_claim(status: &Field<'_, '_>, spec: &Field<'_, '_>) {
    if !status.exists() {
        return;
    }
    let mappings = status.at("requestMappings");
    mappings.require_for("at least one request mapping is required");
    let container = |name: &str| {
        let lists = ["containers", "initContainers"].map(|list| spec.at(list).list()).into_iter();
        lists.flatten().find(|container| container["name"] == name)
    };
    const PARTS: [&str; 3] = ["containerName", "resourceName", "requestName"];
    let mut seen: Vec<[&str; 3]> = Vec::new();
    for mapping in mappings.items() {
        let id = PARTS.map(|part| mapping.at(part).text());
        match container(id[0]) {
            Some(container) if container["resources"]["requests"].get(id[1]).is_none() => {
                let detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
                mapping.at("resourceName").invalid_as(id[1], detail);
            }
            Some(_) => {}
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                mapping.at("containerName").invalid_as(id[0], detail);
            }
        }
        let place = status.spelled("requestName");
        names::dns1123_label(id[2]).into_iter().for_each(|fault| place.invalid_as(id[2], fault));
        if seen.contains(&id) {
            for part in PARTS {
                let part = mapping.at(part);
                part.push(Error::duplicate(part.path(), part.text()));
            }
        }
        seen.push(id);
    }
    let claim = status.at("resourceClaimName");
    if claim.require() {
        claim.faults(names::name_is_dns_subdomain(claim.text(), false));
    }
}

/// The devices that a container got, and how they are.
fn allocated(status: &Field<'_, '_>, containers: &Field<'_, '_>, pod: &Field<'_, '_>) {
    let own = containers.list().iter().find(|each| each["name"] == status.at("name").text());
    for resource in status.at("allocatedResourcesStatus").items() {
        let name = resource.at("name");
        if let Some(fault) = own.and_then(|own| odd_name(own, &name, pod)) {
            name.invalid_as(name.text(), fault);
        }
        let mut seen = Vec::new();
        for device in resource.at("resources").items() {
            device.at("health").one_of(HEALTH);
            let message = device.at("message");
            if message.exists() && message.text().is_empty() {
                message.required("must be non-empty if specified");
            } else if message.text().len() > MAX_MESSAGE {
                message.too_long(MAX_MESSAGE);
            }
            let id = device.at("resourceID");
            if seen.contains(&id.text()) {
                id.push(Error::duplicate(id.path(), id.text()));
            }
            seen.push(id.text());
        }
    }
}

/// Why the name is of nothing that the container asked for.
fn odd_name(container: &Value, name: &Field<'_, '_>, pod: &Field<'_, '_>) -> Option<&'static str> {
    let resources = &container["resources"];
    let Some(claim) = name.text().strip_prefix("claim:") else {
        let known = resources["requests"].get(name.text()).is_some();
        return (!known).then_some("must match one of the container's resource requests");
    };
    let own = resources["claims"].as_array().into_iter().flatten().any(|own| {
        let (name, request) = (own["name"].as_str(), own["request"].as_str());
        match (name.unwrap_or_default(), request.unwrap_or_default()) {
            (name, "") => claim == name,
            (name, request) => claim == format!("{name}/{request}"),
        }
    });
    let extended = pod.at("extendedResourceClaimStatus");
    let mapped = extended.at("requestMappings").items().any(|mapping| {
        let (claimed, request) =
            (extended.at("resourceClaimName").text(), mapping.at("requestName").text());
        container["name"] == mapping.at("containerName").text()
            && claim == format!("{claimed}/{request}")
    });
    let detail = "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty";
    (!own && !mapped).then_some(detail)
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
