//! Claims of devices, and templates of them.
use super::super::table::{AGE, Column, NAME, with};
use super::super::{Anew, Field, Kind, Part, Strategy, metadata, prepare, shown};
use super::{EFFECTS, MAX, PLAIN, configuration, in_bytes, selectors};
use crate::field::{BadValue, Error};
use crate::names;
use crate::quote::in_order;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use serde_json::Value;

impl Kind for ResourceClaim {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = Strategy::USUAL.without_generation().status_only();
    const COLUMNS: &[Column] = &[
        NAME,
        with("State", |claim, _| {
            let deleted = claim.at("metadata.deletionTimestamp").exists();
            let mut states = Vec::new();
            if deleted {
                states.push("deleted");
            }
            if claim.at("status.allocation").exists() {
                states.push("allocated");
                if !claim.at("status.reservedFor").is_empty() {
                    states.push("reserved");
                }
            } else if !deleted {
                states.push("pending");
            }
            states.join(",").into()
        }),
        AGE,
    ];

    /// What was said of devices goes with their allocation.
    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
        let results = |claim: &Value| -> Vec<[String; 4]> {
            let list = claim.pointer("/status/allocation/devices/results");
            list.and_then(Value::as_array).into_iter().flatten().map(identity).collect()
        };
        let (before, now) = (results(old), results(new));
        let gone = |device: &Value| {
            let id = identity(device);
            before.contains(&id) && !now.contains(&id)
        };
        let devices = new["status"].get_mut("devices").and_then(Value::as_array_mut);
        if let Some(devices) = devices.filter(|_| part == Part::Sub("status")) {
            devices.retain(|device| !gone(device));
            if devices.is_empty() {
                prepare::put(&mut new["status"], "devices", None);
            }
        }
    }

    fn validate(claim: &Field<'_, '_>) {
        devices(&claim.at("spec.devices"));
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            new.at("spec").declared_immutable(&old.at("spec"));
            return;
        }
        super::status::validate(new, old);
    }
}

/// Which device it is, or which share of one.
fn identity(device: &Value) -> [String; 4] {
    ["driver", "pool", "device", "shareID"]
        .map(|part| device[part].as_str().unwrap_or_default().to_owned())
}

impl Kind for ResourceClaimTemplate {
    const NAMED_ANEW: Anew = Anew::First;
    const STRATEGY: Strategy = PLAIN.without_generation();
    const COLUMNS: &[Column] = &[NAME, AGE];

    fn validate(template: &Field<'_, '_>) {
        template_metadata(&template.at("spec.metadata"));
        devices(&template.at("spec.spec.devices"));
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        let (now, then) = (new.at("spec"), old.at("spec"));
        if now.value() != then.value() {
            now.invalid_as(shown::claim_template_spec(now.value()), metadata::IMMUTABLE);
        }
    }
}

/// Labels and annotations are for the claims; all else is for the server to give them.
fn template_metadata(metadata: &Field<'_, '_>) {
    // As Go names them, which makes one name odd.
    const OTHERS: &[(&str, &str)] = &[
        ("name", "name"),
        ("generateName", "generateName"),
        ("namespace", "namespace"),
        ("selfLink", "selfLink"),
        ("uid", "uID"),
        ("resourceVersion", "resourceVersion"),
        ("generation", "generation"),
        ("creationTimestamp", "creationTimestamp"),
        ("deletionTimestamp", "deletionTimestamp"),
        ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
        ("ownerReferences", "ownerReferences"),
        ("finalizers", "finalizers"),
        ("managedFields", "managedFields"),
    ];
    let annotations = metadata.at("annotations");
    let faults = metadata::validate_annotations(&annotations.labels(), annotations.path());
    annotations.extend(faults);
    metadata.at("labels").label_map();
    for (field, spelled) in OTHERS {
        if metadata.value().get(field).is_some_and(|value| !value.is_null()) {
            let place = metadata.path().child(spelled);
            metadata.push(Error::forbidden(&place, "cannot be set"));
        }
    }
}

fn devices(devices: &Field<'_, '_>) {
    let (requests, constraints, configs) =
        (devices.at("requests"), devices.at("constraints"), devices.at("config"));
    requests.declared().at_most(MAX);
    requests.items().for_each(|each| request(&each));
    duplicates(&requests);
    constraints.declared().at_most(MAX);
    for constraint in constraints.items() {
        request_names(&constraint.at("requests"), &requests);
        let (matched, distinct) =
            (constraint.at("matchAttribute"), constraint.at("distinctAttribute"));
        if !matched.exists() && !distinct.exists() {
            constraint.required("exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set");
        }
        for attribute in [matched, distinct] {
            if attribute.exists() {
                attribute_name(&attribute.declared());
            }
        }
    }
    configs.declared().at_most(MAX);
    for config in configs.items() {
        request_names(&config.at("requests"), &requests);
        configuration(&config);
    }
}

/// The order of a request's fields in messages.
const ORDER: &[&str] = &[
    "name",
    "exactly",
    "firstAvailable",
    "deviceClassName",
    "selectors",
    "cel",
    "expression",
    "allocationMode",
    "count",
    "adminAccess",
    "key",
    "operator",
    "value",
    "effect",
    "tolerationSeconds",
    "tolerations",
    "capacity",
    "derivedAttributes",
];

/// Names in a list are its keys.
fn duplicates(list: &Field<'_, '_>) {
    let mut seen = Vec::new();
    for item in list.items() {
        let name = item.value()["name"].as_str().unwrap_or_default();
        if seen.contains(&name) {
            let shown = BadValue::verbatim(in_order(item.value(), ORDER));
            item.declared().push(Error::duplicate(item.path(), shown));
        }
        seen.push(name);
    }
}

/// `domain/name`: whose attribute it is.
fn attribute_name(name: &Field<'_, '_>) {
    let Some((domain, id)) = name.text().split_once('/') else {
        identifier(name, name.text());
        return name
            .invalid("a fully qualified name must be a domain and a name separated by a slash");
    };
    if domain.is_empty() {
        name.required("the domain must not be empty");
    } else {
        for fault in names::dns1123_subdomain(domain) {
            name.invalid_as(domain, fault);
        }
    }
    if id.is_empty() {
        name.required("the name must not be empty");
    } else {
        identifier(name, id);
    }
}

fn identifier(name: &Field<'_, '_>, id: &str) {
    names::c_identifier(id).into_iter().for_each(|fault| name.invalid_as(id, fault));
    if id.len() > 32 {
        name.too_long(32);
    }
}

pub fn request_names(list: &Field<'_, '_>, requests: &Field<'_, '_>) {
    if !list.declared().at_most(MAX) {
        return;
    }
    list.items().for_each(|name| request_name(&name, requests));
    let values = list.list();
    for (i, name) in list.items().enumerate() {
        if values[..i].contains(&values[i]) {
            name.declared().duplicate();
        }
    }
}

/// A request of the claim, or one of its alternatives.
pub fn request_name(name: &Field<'_, '_>, requests: &Field<'_, '_>) {
    const DETAIL: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let parts: Vec<&str> = name.text().split('/').collect();
    if parts.len() > 2 {
        return name.invalid(DETAIL);
    }
    for part in &parts {
        names::dns1123_label(part).into_iter().for_each(|fault| name.invalid_as(*part, fault));
    }
    let found = requests.items().find(|request| request.at("name").text() == parts[0]);
    let known = found.is_some_and(|request| match parts.get(1) {
        None => true,
        Some(part) => {
            request.at("firstAvailable").items().any(|each| each.at("name").text() == *part)
        }
    });
    if !known {
        name.invalid(DETAIL);
    }
}

fn request(request: &Field<'_, '_>) {
    let (name, first, exactly) =
        (request.at("name"), request.at("firstAvailable"), request.at("exactly"));
    name.faults(names::dns1123_label(name.text()));
    match (!first.is_empty(), exactly.exists()) {
        (false, false) => {
            request.required("exactly one of `exactly` or `firstAvailable` is required")
        }
        (true, true) => request.invalid_as(
            BadValue::null(),
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (true, false) => {
            first.declared().at_most(8);
            for each in first.items() {
                each.at("name").faults(names::dns1123_label(each.at("name").text()));
                wanted(&each);
            }
            duplicates(&first);
        }
        (false, true) => {
            exactly.at("deviceClassName").named(names::dns1123_subdomain);
            wanted(&exactly);
        }
    }
    // Declared, so asked of what is refused otherwise, too.
    for each in first.items() {
        let class = each.at("deviceClassName").declared();
        if class.require() {
            class.faults(in_bytes(names::dns1123_subdomain(class.text())));
        }
    }
}

pub fn toleration(toleration: &Field<'_, '_>) {
    let (key, operator, value) =
        (toleration.at("key"), toleration.at("operator"), toleration.at("value"));
    key.declared().named_if_given(names::qualified_name);
    match operator.text() {
        "Exists" if !value.is_empty() => value.invalid("must be empty for operator `Exists`"),
        "Exists" => {}
        "Equal" => {
            value.faults(names::label_value(value.text()));
        }
        "" => operator.declared().required(""),
        _ => operator.declared().not_supported(&["Equal", "Exists"]),
    }
    let effect = toleration.at("effect");
    if !effect.is_empty() {
        effect.declared().one_of(EFFECTS);
    }
}

/// How many devices of a class, and which.
fn wanted(request: &Field<'_, '_>) {
    selectors(&request.at("selectors"));
    let (mode, count) = (request.at("allocationMode"), request.at("count"));
    match mode.text() {
        "All" if count.int() != 0 => {
            count.invalid("must not be specified when allocationMode is 'All'")
        }
        "All" => {}
        "ExactCount" => {
            count.positive();
        }
        _ => mode.declared().not_supported(&["All", "ExactCount"]),
    }
    request.at("tolerations").items().for_each(|each| toleration(&each));
}
