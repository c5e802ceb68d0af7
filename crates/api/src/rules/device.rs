//! Dynamic resource allocation: classes, claims, slices and taints of devices.
//!
//! Selectors are checked to be there; whether they compile is the server's to say.
use super::table::{AGE, Column, NAME, since, text, with};
use super::volume_source::{csi_driver_name, driver_name};
use super::{Field, Kind, Part, Strategy, prepare, scheduling};
use crate::field::{BadValue, Error};
use crate::names;
use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use serde_json::Value;

const MAX: usize = 32;
const MAX_DEVICES: usize = 128;
const MAX_DEVICES_WITH_TAINTS: usize = 64;
const MAX_PARAMETERS: usize = 10 * 1024;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];
const PLAIN: Strategy = Strategy::USUAL.without_status();

impl Kind for DeviceClass {
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = &[NAME, AGE];

    fn validate(class: &Field<'_, '_>) {
        let spec = class.at("spec");
        selectors(&spec.at("selectors"));
        spec.at("config").at_most(MAX);
        spec.at("config").items().for_each(|each| configuration(&each));
        let name = spec.at("extendedResourceName");
        if name.exists() {
            extended_name(&name);
        }
    }
}

/// `example.com/device`, which is not Kubernetes' own.
fn extended_name(name: &Field<'_, '_>) {
    let Some((domain, id)) = name.text().split_once('/') else {
        return name
            .invalid("a name must be a domain-prefixed path, such as 'example.com/my-prop'");
    };
    names::dns1123_subdomain(domain).into_iter().for_each(|fault| name.invalid_as(domain, fault));
    if !super::pod::resources::is_extended(name.text()) {
        names::qualified_name(id).into_iter().for_each(|fault| name.invalid_as(id, fault));
    }
}

fn selectors(selectors: &Field<'_, '_>) {
    selectors.at_most(MAX);
    for selector in selectors.items() {
        let cel = selector.at("cel");
        if !cel.exists() {
            cel.required("");
        } else if cel.at("expression").text().len() > MAX_PARAMETERS {
            cel.at("expression").too_long(MAX_PARAMETERS);
        }
    }
}

fn configuration(configuration: &Field<'_, '_>) {
    let opaque = configuration.at("opaque");
    if !opaque.exists() {
        return opaque.required("");
    }
    driver_name(&opaque.at("driver"));
    let parameters = opaque.at("parameters");
    match parameters.value() {
        Value::Null => parameters.required(""),
        Value::Object(_) => {
            if parameters.value().to_string().len() > MAX_PARAMETERS {
                parameters.too_long(MAX_PARAMETERS);
            }
        }
        _ => parameters.invalid_as("<value omitted>", "parameters must be a valid JSON object"),
    }
}

impl Kind for ResourceClaim {
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

    fn validate(claim: &Field<'_, '_>) {
        devices(&claim.at("spec.devices"));
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            new.at("spec").declared_immutable(&old.at("spec"));
            return;
        }
        let (status, before) = (new.at("status"), old.at("status"));
        let reserved = status.at("reservedFor");
        reserved.at_most(256);
        for consumer in reserved.items() {
            for field in ["resource", "name", "uid"] {
                consumer.at(field).require();
            }
        }
        if !reserved.is_empty() && !status.at("allocation").exists() {
            reserved.forbidden("may not be specified when `allocated` is not set");
        }
        if before.at("allocation").exists() && status.at("allocation").exists() {
            status.at("allocation").immutable(&before.at("allocation"));
        }
    }
}

impl Kind for ResourceClaimTemplate {
    const STRATEGY: Strategy = PLAIN.without_generation();
    const COLUMNS: &[Column] = &[NAME, AGE];

    fn validate(template: &Field<'_, '_>) {
        let metadata = template.at("spec.metadata");
        metadata.at("labels").label_map();
        for field in metadata.map().into_iter().flatten().map(|(field, _)| field.as_str()) {
            if !matches!(field, "labels" | "annotations" | "creationTimestamp") {
                metadata.push(Error::forbidden(&metadata.path().child(field), "cannot be set"));
            }
        }
        devices(&template.at("spec.spec.devices"));
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        new.at("spec").immutable(&old.at("spec"));
    }
}

fn devices(devices: &Field<'_, '_>) {
    let (requests, constraints, configs) =
        (devices.at("requests"), devices.at("constraints"), devices.at("config"));
    requests.at_most(MAX);
    requests.items().for_each(|each| request(&each));
    duplicates(&requests);
    constraints.at_most(MAX);
    for constraint in constraints.items() {
        request_names(&constraint.at("requests"), &requests);
        let (matched, distinct) =
            (constraint.at("matchAttribute"), constraint.at("distinctAttribute"));
        match (matched.exists(), distinct.exists()) {
            (false, false) => constraint.required(
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
            ),
            (true, _) => attribute_name(&matched),
            (false, true) => attribute_name(&distinct),
        }
    }
    configs.at_most(MAX);
    for config in configs.items() {
        request_names(&config.at("requests"), &requests);
        configuration(&config);
    }
}

/// Names in a list are its keys.
fn duplicates(list: &Field<'_, '_>) {
    let mut seen = Vec::new();
    for item in list.items() {
        let name = item.value()["name"].as_str().unwrap_or_default();
        if seen.contains(&name) {
            let shown = BadValue::json(&serde_json::json!({ "name": name }));
            item.push(Error::duplicate(item.path(), shown));
        }
        seen.push(name);
    }
}

/// `domain/name`: whose attribute it is.
fn attribute_name(name: &Field<'_, '_>) {
    let Some((domain, id)) = name.text().split_once('/') else {
        name.invalid("a fully qualified name must be a domain and a name separated by a slash");
        return identifier(name, name.text());
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

fn request_names(list: &Field<'_, '_>, requests: &Field<'_, '_>) {
    const DETAIL: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    list.at_most(MAX);
    for name in list.items() {
        let parts: Vec<&str> = name.text().split('/').collect();
        if parts.len() > 2 {
            name.invalid(DETAIL);
            continue;
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
    list.unique();
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
            first.at_most(8);
            for each in first.items() {
                each.at("name").faults(names::dns1123_label(each.at("name").text()));
                exact(&each);
            }
            duplicates(&first);
        }
        (false, true) => exact(&exactly),
    }
}

fn exact(request: &Field<'_, '_>) {
    request.at("deviceClassName").named(names::dns1123_subdomain);
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
        _ => mode.not_supported(&["All", "ExactCount"]),
    }
    for toleration in request.at("tolerations").items() {
        let (key, operator, value) =
            (toleration.at("key"), toleration.at("operator"), toleration.at("value"));
        key.named_if_given(names::qualified_name);
        match operator.text() {
            "Exists" if !value.is_empty() => value.invalid("must be empty for operator `Exists`"),
            "Exists" => {}
            "Equal" => {
                value.faults(names::label_value(value.text()));
            }
            "" => operator.required(""),
            _ => operator.not_supported(&["Equal", "Exists"]),
        }
        let effect = toleration.at("effect");
        if !effect.is_empty() {
            effect.one_of(EFFECTS);
        }
        if toleration.at("tolerationSeconds").exists() && effect.text() != "NoExecute" {
            effect.invalid("must be `NoExecute` when `tolerationSeconds` is set");
        }
    }
}

impl Kind for ResourceSlice {
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = &[
        NAME,
        text("Node", "spec.nodeName"),
        text("Driver", "spec.driver"),
        text("Pool", "spec.pool.name"),
        AGE,
    ];

    fn validate(slice: &Field<'_, '_>) {
        let spec = slice.at("spec");
        csi_driver_name(&spec.at("driver"));
        pool(&spec.at("pool"));
        placement(&spec);
        let devices = spec.at("devices");
        let tainted = devices.items().any(|device| !device.at("taints").is_empty());
        devices.at_most(if tainted { MAX_DEVICES_WITH_TAINTS } else { MAX_DEVICES });
        devices.items().for_each(|each| device(&each));
        let mut seen = Vec::new();
        for device in devices.items() {
            let name = device.at("name").text();
            if seen.contains(&name) {
                device.push(Error::duplicate(device.path(), name));
            }
            seen.push(name);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        let (now, then) = (new.at("spec"), old.at("spec"));
        for field in ["driver", "nodeName", "pool.name", "allNodes"] {
            now.at(field).immutable(&then.at(field));
        }
    }
}

fn pool_name(name: &Field<'_, '_>) {
    if !name.require() {
        return;
    }
    if name.text().len() > 253 {
        name.too_long(253);
    }
    for part in name.text().split('/') {
        names::dns1123_subdomain(part).into_iter().for_each(|fault| name.invalid_as(part, fault));
    }
}

fn pool(pool: &Field<'_, '_>) {
    pool_name(&pool.at("name"));
    let count = pool.at("resourceSliceCount");
    if count.int() <= 0 {
        count.invalid_as(count.int(), "must be greater than zero");
    }
    let generation = pool.at("generation");
    if generation.int() < 0 {
        generation.invalid("must be greater than or equal to zero");
    }
}

/// One way to say which nodes can reach the devices.
fn placement(spec: &Field<'_, '_>) {
    let (name, selector, all, each) = (
        spec.at("nodeName"),
        spec.at("nodeSelector"),
        spec.at("allNodes"),
        spec.at("perDeviceNodeSelection"),
    );
    let mut given = Vec::new();
    if name.exists() {
        if name.text().is_empty() {
            name.invalid("must be either unset or set to a non-empty string");
        } else {
            name.faults(names::name_is_dns_subdomain(name.text(), false));
        }
        given.push("`nodeName`");
    }
    if selector.exists() {
        scheduling::node_selector(&selector);
        if selector.at("nodeSelectorTerms").len() != 1 {
            selector.at("nodeSelectorTerms").invalid("must have exactly one node selector term");
        }
        given.push("`nodeSelector`");
    }
    for (flag, word) in [(&all, "`allNodes`"), (&each, "`perDeviceNodeSelection`")] {
        if flag.exists() {
            if flag.flag() {
                given.push(word);
            } else {
                flag.invalid("must be either unset or set to true");
            }
        }
    }
    const WHICH: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match given.len() {
        0 => spec.required(WHICH),
        1 => {}
        _ => spec.invalid_as(
            format!("{{{}}}", given.join(", ")),
            format!("{WHICH}, but multiple fields are set"),
        ),
    }
}

fn device(device: &Field<'_, '_>) {
    device.at("name").faults(names::dns1123_label(device.at("name").text()));
    let (attributes, capacity) = (device.at("attributes"), device.at("capacity"));
    if attributes.len() + capacity.len() > MAX {
        device.invalid_as(
            attributes.len() + capacity.len(),
            format!("the total number of attributes and capacities must not exceed {MAX}"),
        );
    }
    for (name, entry) in attributes.entries() {
        qualified(&entry, name);
        let given = ["int", "bool", "string", "version"]
            .iter()
            .filter(|kind| entry.at(kind).exists())
            .count();
        if given == 0 {
            entry.invalid_as("", "must specify one of: `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`");
        } else if given > 1 {
            let kinds = ["int", "bool", "string", "version"];
            let given: Vec<&str> =
                kinds.into_iter().filter(|kind| entry.at(kind).exists()).collect();
            entry.invalid_as(
                format!("{{{}}}", given.join(", ")),
                "must specify exactly one of: `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`",
            );
        }
        for kind in ["string", "version"] {
            if entry.at(kind).text().len() > 64 {
                entry.at(kind).too_long(64);
            }
        }
    }
    for (name, entry) in capacity.entries() {
        qualified(&entry, name);
    }
    device.at("taints").at_most(16);
    device.at("taints").items().for_each(|each| taint(&each));
}

/// A name of an attribute or capacity, perhaps with the domain it comes from.
fn qualified(entry: &Field<'_, '_>, name: &str) {
    let (domain, id) = name.split_once('/').map_or((None, name), |(domain, id)| (Some(domain), id));
    if let Some(domain) = domain {
        names::dns1123_subdomain(domain)
            .into_iter()
            .for_each(|fault| entry.invalid_as(domain, fault));
    }
    names::c_identifier(id).into_iter().for_each(|fault| entry.invalid_as(id, fault));
    if id.len() > 32 {
        entry.too_long(32);
    }
}

fn taint(taint: &Field<'_, '_>) {
    let (key, value, effect) = (taint.at("key"), taint.at("value"), taint.at("effect"));
    key.faults(names::qualified_name(key.text()));
    if !value.is_empty() {
        value.faults(names::label_value(value.text()));
    }
    if effect.require() {
        effect.one_of(EFFECTS);
    }
}

impl Kind for DeviceTaintRule {
    const STRATEGY: Strategy = Strategy::USUAL.status_only();
    const COLUMNS: &[Column] = &[
        NAME,
        text("Key", "spec.taint.key"),
        text("Value", "spec.taint.value"),
        text("Effect", "spec.taint.effect"),
        since("TimeAdded", "spec.taint.timeAdded"),
        AGE,
    ];

    /// A taint holds from when it is made, unless it says otherwise.
    fn prepare_create(rule: &mut Value) {
        prepare::create(rule, &Self::STRATEGY);
        let now = rule["metadata"]["creationTimestamp"].clone();
        let taint = &mut rule["spec"]["taint"];
        if taint.is_object() && taint.get("timeAdded").is_none_or(Value::is_null) {
            taint["timeAdded"] = now;
        }
    }

    fn validate(rule: &Field<'_, '_>) {
        let selector = rule.at("spec.deviceSelector");
        if selector.at("driver").exists() {
            csi_driver_name(&selector.at("driver"));
        }
        let pool = selector.at("pool");
        if pool.exists() {
            pool_name(&pool);
        }
        let device = selector.at("device");
        if device.exists() {
            device.faults(names::dns1123_label(device.text()));
        }
        taint(&rule.at("spec.taint"));
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, part: Part<'_>) {
        match part {
            Part::Main => Self::validate(new),
            Part::Sub(_) => super::conditions(&new.at("status.conditions")),
        }
    }
}
