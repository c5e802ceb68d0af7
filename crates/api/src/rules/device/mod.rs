//! Dynamic resource allocation: classes, claims, slices and taints of devices.
//!
//! Selectors are checked to be there; whether they compile is the server's to say.
mod capacity;
mod claim;
mod slice;
mod status;

use super::table::{AGE, Column, NAME, since, text};
use super::volume_source::{csi_driver_name, driver_name};
use super::{Field, Kind, Metadata, NameRule, Part, Strategy, metadata, prepare};
use crate::field::BadValue;
use crate::names;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule};
use serde_json::Value;

const MAX: usize = 32;
const MAX_PARAMETERS: usize = 10 * 1024;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];
const PLAIN: Strategy = Strategy::USUAL.without_status();

impl Kind for DeviceClass {
    const METADATA: Metadata = Metadata::AnyPrefix;
    const NAME: NameRule = metadata::long_name;
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = &[NAME, AGE];

    fn validate(class: &Field<'_, '_>) {
        let spec = class.at("spec");
        selectors(&spec.at("selectors"));
        spec.at("config").declared().at_most(MAX);
        spec.at("config").items().for_each(|each| configuration(&each));
        let name = spec.at("extendedResourceName");
        if name.exists() {
            extended_name(&name.declared());
        }
    }
}

/// `example.com/device`, which is not Kubernetes' own.
fn extended_name(name: &Field<'_, '_>) {
    const OWN: &str = "kubernetes.io/";
    const QUOTA: &str = "requests.";
    if !name.text().contains('/') {
        name.invalid("a name must be a domain-prefixed path, such as 'example.com/my-prop'");
    } else if name.text().contains(OWN) {
        name.invalid(format!("must not have {OWN:?} domain"));
    }
    if name.text().starts_with(QUOTA) {
        name.invalid(format!("must not have {QUOTA:?} prefix"));
    }
    name.faults(names::qualified_name(&format!("{QUOTA}{}", name.text())));
}

/// Faults as declared rules tell them, which count bytes.
fn in_bytes(faults: names::Faults) -> names::Faults {
    let in_bytes = |fault: String| match fault.strip_prefix("must be no more than ") {
        Some(rest) => format!("must be no more than {}", rest.replace("characters", "bytes")),
        None => fault,
    };
    faults.into_iter().map(in_bytes).collect()
}

fn selectors(selectors: &Field<'_, '_>) {
    if !selectors.declared().at_most(MAX) {
        return;
    }
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
    driver_name(&opaque.at("driver").declared());
    let parameters = opaque.at("parameters");
    match parameters.value() {
        Value::Null => parameters.required(""),
        Value::Object(_) => {
            if parameters.value().to_string().len() > MAX_PARAMETERS {
                parameters.too_long(MAX_PARAMETERS);
            }
        }
        _ => parameters.invalid_as("<value omitted>", "must be a valid JSON object"),
    }
}

/// What must be true, or false, of a device before it is bound.
fn binding_conditions(device: &Field<'_, '_>) {
    const PARTS: [&str; 2] = ["bindingConditions", "bindingFailureConditions"];
    for part in PARTS {
        let list = device.at(part);
        if list.declared().at_most(4) {
            list.items().for_each(|each| {
                each.faults(names::qualified_name(each.text()));
            });
        }
    }
    let (good, bad) = (device.at(PARTS[0]), device.at(PARTS[1]));
    good.unique();
    for (i, condition) in bad.items().enumerate() {
        if bad.texts().take(i).any(|other| other == condition.text()) {
            condition.duplicate();
        }
        if good.texts().any(|other| other == condition.text()) {
            condition.invalid("bindingFailureConditions must not overlap with bindingConditions");
        }
    }
    let shown = |list: &Field<'_, '_>| match list.exists() {
        true => BadValue::json(list.value()),
        false => BadValue::null(),
    };
    if good.is_empty() && !bad.is_empty() {
        good.invalid_as(
            shown(&good),
            "bindingConditions are required to use bindingFailureConditions",
        );
    }
    if bad.is_empty() && !good.is_empty() {
        bad.invalid_as(
            shown(&bad),
            "bindingFailureConditions are required to use bindingConditions",
        );
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

fn taint(taint: &Field<'_, '_>) {
    let (key, value) = (taint.at("key"), taint.at("value"));
    key.faults(names::qualified_name(key.text()));
    if !value.is_empty() {
        value.faults(names::label_value(value.text()));
    }
}

fn taint_effect(taint: &Field<'_, '_>) {
    let effect = taint.at("effect");
    if effect.declared().require() {
        effect.declared().one_of(EFFECTS);
    }
}

impl Kind for DeviceTaintRule {
    const STRATEGY: Strategy = Strategy::USUAL.conditional().status_only();
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
        taint_effect(&rule.at("spec.taint"));
    }

    fn validate_update(new: &Field<'_, '_>, _: &Field<'_, '_>, part: Part<'_>) {
        match part {
            Part::Main => Self::validate(new),
            Part::Sub(_) => super::conditions(&new.at("status.conditions")),
        }
    }
}
