//! ResourceQuota and LimitRange: how much a namespace may use.
use super::pod::resources::{amount, any_name, container_name};
use super::table::{AGE, Column, NAME, with};
use super::{Anew, Field, Kind, Part, Strategy, shown};
use crate::field::BadValue;
use crate::names;
use crate::quantity::Quantity;
use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use std::collections::BTreeSet;

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
const OPPOSED: [[&str; 2]; 2] =
    [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
const COMPUTE: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
    "requests.storage",
];

impl Kind for ResourceQuota {
    const STRATEGY: Strategy = Strategy::USUAL.without_generation();
    const COLUMNS: &[Column] = &[
        NAME,
        with("Request", |quota, _| usage(quota, false).into()),
        with("Limit", |quota, _| usage(quota, true).into()),
        AGE,
    ];

    fn validate(quota: &Field<'_, '_>) {
        let spec = quota.at("spec");
        hard(&spec.at("hard"));
        scopes(&spec);
        selector(&spec);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part != Part::Main {
            hard(&new.at("status.hard"));
            return hard(&new.at("status.used"));
        }
        Self::validate(new);
        let set = |quota: &Field<'_, '_>| -> BTreeSet<String> {
            quota.at("spec.scopes").texts().map(str::to_owned).collect()
        };
        if set(new) != set(old) {
            let scopes = new.at("spec.scopes");
            let shown =
                if scopes.exists() { BadValue::json(scopes.value()) } else { BadValue::null() };
            scopes.invalid_as(shown, super::metadata::IMMUTABLE);
        }
    }
}

fn usage(quota: &Field<'_, '_>, limits: bool) -> String {
    let used = quota.at("status.used");
    let cell = |(name, hard): (&str, Field<'_, '_>)| {
        let used = used.key(name);
        let used = used.value().as_str().unwrap_or("0").to_owned();
        format!("{name}: {used}/{}", hard.text())
    };
    let hard = quota.at("status.hard");
    let chosen = hard.entries().filter(|(name, _)| name.starts_with("limits.") == limits);
    chosen.map(cell).collect::<Vec<_>>().join(", ")
}

fn is_standard(name: &str) -> bool {
    let pages = |prefix: &str| name.starts_with(prefix);
    COMPUTE.contains(&name)
        || COUNTED.contains(&name)
        || pages("hugepages-")
        || pages("requests.hugepages-")
}

fn hard(hard: &Field<'_, '_>) {
    for (name, entry) in hard.entries() {
        any_name(&entry, name);
        if !name.contains('/') && !is_standard(name) {
            entry.invalid_as(name, "must be a standard resource for quota");
        }
        amount(&entry, name);
    }
}

/// Whether pods, which scopes choose between, use the resource.
fn applies(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => {
            COMPUTE.contains(&resource) || resource == "pods" || resource.contains("hugepages-")
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
        }
        _ => true,
    }
}

fn scopes(spec: &Field<'_, '_>) {
    let scopes = spec.at("scopes");
    for scope in scopes.texts() {
        if !SCOPES.contains(&scope) {
            scopes.invalid("unsupported scope");
        }
        for (resource, _) in spec.at("hard").entries() {
            if is_standard(resource) && !applies(scope, resource) {
                scopes.invalid("unsupported scope applied to resource");
            }
        }
    }
    for pair in OPPOSED {
        if pair.iter().all(|scope| scopes.texts().any(|given| given == *scope)) {
            scopes.invalid("conflicting scopes");
        }
    }
}

fn selector(spec: &Field<'_, '_>) {
    let selector = spec.at("scopeSelector");
    let list = selector.at("matchExpressions");
    let mut seen = Vec::new();
    for requirement in list.items() {
        let (scope, operator, values) = (
            requirement.at("scopeName").text(),
            requirement.at("operator").text(),
            requirement.at("values"),
        );
        if !SCOPES.contains(&scope) {
            list.spelled("scopeName").invalid_as(scope, "unsupported scope");
        }
        for (resource, _) in spec.at("hard").entries() {
            if is_standard(resource) && !applies(scope, resource) {
                list.invalid_as(
                    shown::structure(selector.value(), shown::SCOPE_SELECTOR),
                    "unsupported scope applied to resource",
                );
            }
        }
        let single = matches!(
            scope,
            "BestEffort"
                | "NotBestEffort"
                | "Terminating"
                | "NotTerminating"
                | "CrossNamespacePodAffinity"
        );
        let place = list.spelled("operator");
        if single && operator != "Exists" {
            place.invalid_as(operator, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity");
        }
        let place_of_values = list.spelled("values");
        match operator {
            "In" | "NotIn" if values.is_empty() => place_of_values.required(
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if !values.is_empty() => place_of_values.invalid_as(
                BadValue::json(values.value()),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => place.invalid_as(operator, "not a valid selector operator"),
        }
        seen.push(scope);
    }
    for pair in OPPOSED {
        if pair.iter().all(|scope| seen.contains(scope)) {
            let shown = spec.at("scopes");
            let shown =
                if shown.exists() { BadValue::json(shown.value()) } else { BadValue::null() };
            list.invalid_as(shown, "conflicting scopes");
        }
    }
}

impl Kind for LimitRange {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy =
        Strategy::USUAL.without_status().without_generation().creates_on_update();

    fn validate(range: &Field<'_, '_>) {
        let mut seen = Vec::new();
        for limit in range.at("spec.limits").items() {
            let kind = limit.at("type");
            if kind.faults(names::qualified_name(kind.text()))
                && !kind.text().contains('/')
                && !matches!(kind.text(), "Pod" | "Container" | "PersistentVolumeClaim")
            {
                kind.invalid("must be a standard limit type or fully qualified");
            }
            if seen.contains(&kind.text()) {
                kind.duplicate();
            }
            seen.push(kind.text());
            limit_amounts(&limit);
        }
    }
}

const PARTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

fn limit_amounts(limit: &Field<'_, '_>) {
    let kind = limit.at("type").text();
    let mut keys = BTreeSet::new();
    for part in PARTS {
        let amounts = limit.at(part);
        if kind == "Pod" && part.starts_with("default") {
            if !amounts.is_empty() {
                amounts.forbidden("may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, entry) in amounts.entries() {
            match kind {
                "Pod" | "Container" => container_name(&entry, name),
                _ => {
                    any_name(&entry, name);
                }
            }
            keys.insert(name);
        }
    }
    let has_storage = |part| limit.at(part).key("storage").exists();
    if kind == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
        limit.spelled("limits").required(
            "either minimum or maximum storage value is required, but neither was provided",
        );
    }
    for key in keys {
        compare(limit, key);
    }
}

fn compare(limit: &Field<'_, '_>, key: &str) {
    let pod = limit.at("type").text() == "Pod";
    let get = |part: &'static str| {
        if pod && part.starts_with("default") { None } else { limit.at(part).key(key).quantity() }
    };
    let (max, min, default, request, ratio) = (
        get("max"),
        get("min"),
        get("default"),
        get("defaultRequest"),
        get("maxLimitRequestRatio"),
    );
    let wrong = |part: &'static str, shown: &Quantity, detail: String| {
        let place = limit.at(part);
        place.key(key).invalid_as(shown.to_string(), detail);
    };
    if let (Some(min), Some(max)) = (&min, &max)
        && min > max
    {
        wrong("min", min, format!("min value {min} is greater than max value {max}"));
    }
    if let (Some(request), Some(min)) = (&request, &min)
        && min > request
    {
        wrong(
            "defaultRequest",
            request,
            format!("min value {min} is greater than default request value {request}"),
        );
    }
    if let (Some(request), Some(max)) = (&request, &max)
        && request > max
    {
        wrong(
            "defaultRequest",
            request,
            format!("default request value {request} is greater than max value {max}"),
        );
    }
    if let (Some(request), Some(default)) = (&request, &default)
        && request > default
    {
        wrong(
            "defaultRequest",
            request,
            format!(
                "default request value {request} is greater than default limit value {default}"
            ),
        );
    }
    if let (Some(default), Some(min)) = (&default, &min)
        && min > default
    {
        wrong("default", min, format!("min value {min} is greater than default value {default}"));
    }
    if let (Some(default), Some(max)) = (&default, &max)
        && default > max
    {
        wrong("default", max, format!("default value {default} is greater than max value {max}"));
    }
    if let Some(ratio) = &ratio {
        if ratio.cmp_i64(1).is_lt() {
            wrong("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (&min, &max) {
            let limit = max.value() as f64 / min.value() as f64;
            let value = match ratio.value() {
                value if value < i64::MAX / 1000 => ratio.milli_value() as f64 / 1000.0,
                value => value as f64,
            };
            let exact = match min.value() < i64::MAX / 1000 && max.value() < i64::MAX / 1000 {
                true => max.milli_value() as f64 / min.milli_value() as f64,
                false => limit,
            };
            if value > exact {
                wrong(
                    "maxLimitRequestRatio",
                    ratio,
                    format!("ratio {ratio} is greater than max/min = {exact:.6}"),
                );
            }
        }
    }
}
