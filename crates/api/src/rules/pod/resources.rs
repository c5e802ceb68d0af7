//! Amounts of resources: names, values, requests beside limits.
use super::super::Field;
use super::spec::Context;
use crate::field::Error;
use crate::names;
use crate::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

const CONTAINER: &[&str] = &["cpu", "memory", "ephemeral-storage"];
/// Counted in whole numbers.
const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const OTHERS: &[&str] = &[
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
    "requests.storage",
];

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_standard(name: &str) -> bool {
    [CONTAINER, COUNTED, OTHERS].iter().any(|names| names.contains(&name))
        || is_huge_pages(name)
        || name.starts_with("requests.hugepages-")
}

/// Kubernetes' own, not a device's.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// The name of any resource.
pub fn any_name(entry: &Field<'_, '_>, name: &str) -> bool {
    let faults = names::qualified_name(name);
    let sound = faults.is_empty();
    faults.into_iter().for_each(|fault| entry.invalid_as(name, fault));
    if sound && !name.contains('/') && !is_standard(name) {
        entry.invalid_as(name, "must be a standard resource type or fully qualified");
        return false;
    }
    sound
}

/// The name of a resource that a container can have.
pub fn container_name(entry: &Field<'_, '_>, name: &str) {
    any_name(entry, name);
    if !name.contains('/') {
        if !CONTAINER.contains(&name) && !is_huge_pages(name) {
            entry.invalid_as(name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        entry.invalid_as(name, "doesn't follow extended resource name standard");
    }
}

pub fn amount(entry: &Field<'_, '_>, name: &str) {
    let Some(quantity) = entry.quantity() else { return };
    if quantity.is_negative() {
        entry.invalid(super::super::check::NOT_NEGATIVE);
    }
    if (COUNTED.contains(&name) || is_extended(name)) && quantity.milli_value() % 1000 != 0 {
        entry.invalid("must be an integer");
    }
}

fn huge_page_amount(entry: &Field<'_, '_>, name: &str) {
    let Some(quantity) = entry.quantity() else { return };
    let size = name.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok());
    let size = size.map_or(0, |size| size.value());
    if size <= 0 || quantity.value() <= 0 || quantity.value() % size != 0 {
        entry.invalid(format!("{quantity} is not positive integer multiple of {name}"));
    }
}

pub fn of_container(resources: &Field<'_, '_>, context: &Context<'_>) {
    requirements(resources, container_name);
    claims(&resources.at("claims"), &context.claims);
}

fn requirements(resources: &Field<'_, '_>, check_name: fn(&Field<'_, '_>, &str)) {
    let (limits, requests) = (resources.at("limits"), resources.at("requests"));
    let (mut compute, mut huge_pages) = (false, false);
    for map in [&limits, &requests] {
        for (name, entry) in map.entries() {
            check_name(&entry, name);
            amount(&entry, name);
            if is_huge_pages(name) {
                huge_pages = true;
                huge_page_amount(&entry, name);
            }
            compute |= matches!(name, "cpu" | "memory");
        }
    }
    for (name, request) in requests.entries() {
        let limit = limits.key(name);
        match (request.quantity(), limit.quantity()) {
            (Some(request), Some(limit)) if request != limit && !may_overcommit(name) => {
                requests.invalid_as(
                    request.to_string(),
                    format!("must be equal to {name} limit of {limit}"),
                );
            }
            (Some(request), Some(limit)) if request > limit => requests.invalid_as(
                request.to_string(),
                format!("must be less than or equal to {name} limit of {limit}"),
            ),
            (_, None) if !may_overcommit(name) => {
                limits.required("Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    if huge_pages && !compute {
        resources.forbidden("HugePages require cpu or memory");
    }
}

fn claims(claims: &Field<'_, '_>, known: &[&str]) {
    let mut seen: Vec<String> = Vec::new();
    for claim in claims.items() {
        let (name, request) = (claim.at("name").text(), claim.at("request"));
        if name.is_empty() {
            claim.required("");
            continue;
        }
        let twice = |key: &str| claim.push(Error::duplicate(claim.path(), key));
        if seen.iter().any(|key| key == name) {
            twice(name);
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                request.faults(names::dns1123_label(request.text()));
                key = format!("{name}/{}", request.text());
            }
            let whole = request.is_empty();
            if seen.contains(&key) {
                twice(&key);
            } else if whole && seen.iter().any(|key| key.split('/').next() == Some(name)) {
                twice(name);
            }
            seen.push(key);
        }
        if !known.contains(&name) {
            let mut names = known.to_vec();
            names.sort_unstable();
            let which = match names.as_slice() {
                [] => " which is empty".to_owned(),
                names => format!(": {}", names.join(", ")),
            };
            let mut error = Error::not_found(claim.path(), name);
            error.detail =
                format!("must be one of the names in pod.spec.resourceClaims{which}").into();
            claim.push(error);
        }
    }
}

/// Resources of the pod as a whole.
pub fn of_pod(spec: &Field<'_, '_>, context: &Context<'_>) {
    let resources = spec.at("resources");
    if !resources.exists() {
        return;
    }
    if context.os == "windows" {
        return resources.forbidden("may not be set for a windows pod");
    }
    if resources.at("claims").exists() {
        resources.at("claims").forbidden("claims may not be set for Resources at pod-level");
    }
    requirements(&resources, |entry, name| {
        if any_name(entry, name) && !supported_at_pod(name) {
            entry.push(Error::not_supported(entry.path(), name, ["cpu", "hugepages-", "memory"]));
        }
    });
    claims(&resources.at("claims"), &context.claims);
    let (limits, requests) = (resources.at("limits"), resources.at("requests"));
    for (name, total) in aggregate(spec.value(), "requests") {
        let request = requests.key(&name);
        if request.quantity().is_some_and(|request| total > request) {
            request.invalid(format!(
                "must be greater than or equal to aggregate container requests of {total}"
            ));
        }
    }
    for (name, total) in
        aggregate(spec.value(), "limits").into_iter().filter(|(name, _)| is_huge_pages(name))
    {
        let limit = limits.key(&name);
        if limit.quantity().is_some_and(|limit| total > limit) {
            limit.invalid(format!(
                "must be greater than or equal to aggregate container limits of {total}"
            ));
        }
    }
    for (i, container) in spec.at("containers").items().enumerate() {
        for (name, limit) in container.at("resources.limits").entries() {
            let (Some(own), Some(pod)) = (limit.quantity(), limits.key(name).quantity()) else {
                continue;
            };
            if own > pod {
                let path = resources.path().child("containers");
                let path = path.index(i);
                let path = path.key(name);
                let detail = format!("must be less than or equal to pod limits of {pod}");
                limit.on_path(path.child("limits")).invalid(detail);
            }
        }
    }
}

pub fn supported_at_pod(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

/// What all containers of a pod ask for: regular ones and sidecars together, or the greediest init
/// container beside the sidecars that started before it.
pub fn aggregate(spec: &Value, part: &str) -> BTreeMap<String, Quantity> {
    let amounts = |container: &Value| -> BTreeMap<String, Quantity> {
        let map = container["resources"][part].as_object();
        let parsed = |(name, text): (&String, &Value)| {
            Some((name.clone(), Quantity::parse(text.as_str()?).ok()?))
        };
        map.into_iter().flatten().filter_map(parsed).collect()
    };
    let add = |total: &mut BTreeMap<String, Quantity>, more: &BTreeMap<String, Quantity>| {
        for (name, amount) in more {
            *total.entry(name.clone()).or_insert(Quantity::ZERO) += amount;
        }
    };
    let list = |name: &str| spec[name].as_array().into_iter().flatten();
    let (mut total, mut sidecars) = (BTreeMap::new(), BTreeMap::new());
    list("containers").for_each(|container| add(&mut total, &amounts(container)));
    let mut greediest: BTreeMap<String, Quantity> = BTreeMap::new();
    for container in list("initContainers") {
        let mut own = amounts(container);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        for (name, amount) in own {
            let most = greediest.entry(name).or_insert(Quantity::ZERO);
            if amount > *most {
                *most = amount;
            }
        }
    }
    for (name, amount) in greediest {
        let entry = total.entry(name).or_insert(Quantity::ZERO);
        if amount > *entry {
            *entry = amount;
        }
    }
    total
}

pub fn overhead(overhead: &Field<'_, '_>) {
    let limits = overhead.on_path(overhead.path().child("limits"));
    for (name, entry) in limits.entries() {
        container_name(&entry, name);
        amount(&entry, name);
    }
}
