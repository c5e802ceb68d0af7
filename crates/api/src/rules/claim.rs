//! PersistentVolumeClaim.
use super::table::{AGE, Column, NAME, text, text_or, with};
use super::volume::{access_modes, storage_class, volume_modes};
use super::{Anew, Field, Kind, Part, Strategy, prepare};
use crate::field::{BadValue, Path};
use crate::names;
use crate::quote::Quoted;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const RESIZE_STATUSES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizePending",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
];

impl Kind for PersistentVolumeClaim {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = Strategy::USUAL.without_generation();
    const COLUMNS: &[Column] = &[
        NAME,
        with("Status", |claim, _| super::volume::phase(claim)),
        text("Volume", "spec.volumeName"),
        with("Capacity", |claim, _| {
            if claim.at("spec.volumeName").is_empty() {
                return "".into();
            }
            let capacity = claim.at("status.capacity");
            capacity.key("storage").value().as_str().unwrap_or("0").into()
        }),
        with("Access Modes", |claim, _| {
            if claim.at("spec.volumeName").is_empty() {
                return "".into();
            }
            super::volume::short_modes(&claim.at("status.accessModes"))
        }),
        with("StorageClass", |claim, _| storage_class(claim)),
        text_or("VolumeAttributesClass", "spec.volumeAttributesClassName", "<unset>"),
        AGE,
        text_or("VolumeMode", "spec.volumeMode", "<unset>").wide(),
    ];

    fn prepare_create(claim: &mut Value) {
        prepare::create(claim, &Self::STRATEGY);
        both_sources(&mut claim["spec"], None);
    }

    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
        if part == Part::Main {
            both_sources(&mut new["spec"], Some(&old["spec"]));
        } else if old["status"].get("healthStatus").is_none() {
            // A feature that is off; what a template says is nobody's to drop.
            prepare::put(&mut new["status"], "healthStatus", None);
        }
    }

    fn validate(claim: &Field<'_, '_>) {
        validate_spec(&claim.at("spec"));
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        match part {
            Part::Main => update(new, old),
            Part::Sub(_) => status(new),
        }
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        let mut warnings = Vec::new();
        let annotation = new.at("metadata.annotations");
        if annotation.key(BETA_CLASS).exists() {
            warnings.push(format!(
                "{}: deprecated since v1.8; use \"storageClassName\" attribute instead",
                annotation.key(BETA_CLASS).path()
            ));
        }
        warnings.extend(spec_warnings(&new.at("spec"), "spec"));
        warnings
    }
}

/// Nobody can claim a part of a byte.
pub fn spec_warnings(spec: &Field<'_, '_>, place: &str) -> Vec<String> {
    let warning = |part: &'static str| {
        let resources = spec.at("resources");
        let amounts = resources.at(part);
        let amount = amounts.key("storage").quantity();
        let fraction = amount.filter(|amount| amount.milli_value() % 1000 != 0)?.to_string();
        let shown = Quoted(&fraction);
        Some(format!(
            "{place}.resources.{part}[storage]: fractional byte value {shown} is invalid, must be an integer"
        ))
    };
    ["requests", "limits"].into_iter().filter_map(warning).collect()
}

/// What a claim is filled from can be said in two fields; each is set from the other. The older one
/// knows claims and snapshots only, and forgets anything else.
fn both_sources(spec: &mut Value, old: Option<&Value>) {
    // To be filled from another namespace is a feature that is off; a claim that is filled already
    // is told so by its rules.
    let in_use = |field: &str| old.is_some_and(|old| old.get(field).is_some());
    let foreign = spec["dataSourceRef"]["namespace"].as_str().is_some_and(|name| !name.is_empty());
    if foreign && !in_use("dataSourceRef") {
        prepare::put(spec, "dataSourceRef", None);
    }
    let (old, new) = (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned());
    let copy = |source: &Value| {
        let group = source.get("apiGroup").cloned().unwrap_or(Value::Null);
        json!({ "apiGroup": group, "kind": source["kind"], "name": source["name"] })
    };
    let known = |source: &Value| match source["kind"].as_str() {
        Some("PersistentVolumeClaim") => source["apiGroup"].as_str().unwrap_or_default().is_empty(),
        Some("VolumeSnapshot") => source["apiGroup"] == "snapshot.storage.k8s.io",
        _ => false,
    };
    match (old, new) {
        (Some(old), None) if known(&old) || in_use("dataSource") => {
            spec["dataSourceRef"] = copy(&old);
        }
        (Some(_), None) => prepare::put(spec, "dataSource", None),
        (None, Some(new)) if new.get("namespace").is_none_or(|namespace| *namespace == "") => {
            spec["dataSource"] = copy(&new);
        }
        _ => {}
    }
}

/// The spec of a claim, in a claim or in a template of one.
pub fn validate_spec(spec: &Field<'_, '_>) {
    spec.at("accessModes").require_for("at least 1 access mode is required");
    spec.at("selector").label_selector();
    access_modes(&spec.at("accessModes"));
    let requests = spec.at("resources.requests");
    let resources = spec.at("resources");
    let storage = requests.key("storage").on_path(resources.path().key("storage"));
    match storage.quantity() {
        None => storage.required(""),
        Some(quantity) if !quantity.sign().is_gt() => storage.invalid("must be greater than zero"),
        Some(_) => {}
    }
    let class = spec.at("storageClassName");
    if !class.is_empty() {
        class.faults(names::name_is_dns_subdomain(class.text(), false));
    }
    volume_modes(&spec.at("volumeMode"));
    let (source, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    for source in [&source, &reference] {
        if source.exists() {
            data_source(source);
        }
    }
    if !reference.at("namespace").is_empty() {
        let namespace = reference.at("namespace");
        namespace.faults(names::name_is_dns_label(namespace.text(), false));
        if source.exists() {
            let shown = BadValue::verbatim("{}");
            spec.invalid_as(
                shown,
                "may not be specified when dataSourceRef.namespace is specified",
            );
        }
    } else if source.exists() && reference.exists() {
        let same = ["apiGroup", "kind", "name"]
            .iter()
            .all(|field| source.at(field).value() == reference.at(field).value());
        if !same {
            spec.invalid_as(BadValue::verbatim("{}"), "must match dataSourceRef");
        }
    }
    let class = spec.at("volumeAttributesClassName");
    if !class.is_empty() {
        class.faults(names::name_is_dns_subdomain(class.text(), false));
    }
}

fn data_source(source: &Field<'_, '_>) {
    source.at("name").require();
    source.at("kind").require();
    let (group, kind) = (source.at("apiGroup"), source.at("kind").text());
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        source.invalid_as(
            kind,
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        );
    }
    group.named_if_given(names::dns1123_subdomain);
}

/// Once bound, a claim can grow and change its class of attributes; nothing else.
fn update(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    validate_spec(&new.at("spec"));
    let (mut now, mut then) = (new.at("spec").value().clone(), old.at("spec").value().clone());
    if then["volumeName"].as_str().unwrap_or_default().is_empty() {
        prepare::put(&mut then, "volumeName", now.get("volumeName"));
    }
    let annotation =
        |claim: &Field<'_, '_>| claim.at("metadata.annotations").labels().get(BETA_CLASS).cloned();
    let (before, after) = (annotation(old), annotation(new));
    let (class, was) = (now["storageClassName"].as_str(), then["storageClassName"].as_str());
    let upgraded = before.is_some()
        && was.is_none()
        && class == before.as_deref()
        && after.as_ref().is_none_or(|after| Some(after) == before.as_ref());
    let from_nothing = class.is_some()
        && was.is_none()
        && before.as_ref().is_none_or(|before| class == Some(before));
    if !upgraded && before.unwrap_or_default() != after.clone().unwrap_or_default() {
        let annotations = new.at("metadata.annotations");
        let path = Path::new("metadata");
        let path = path.child("annotations");
        annotations
            .on_path(path.key(BETA_CLASS))
            .invalid_as(after.unwrap_or_default(), super::metadata::IMMUTABLE);
    }
    if upgraded || from_nothing {
        prepare::put(&mut now, "storageClassName", then.get("storageClassName"));
    }
    if new.at("status.phase").text() == "Bound" {
        if now["resources"]["requests"].is_object() {
            now["resources"]["requests"]["storage"] =
                then["resources"]["requests"]["storage"].clone();
        }
        prepare::put(&mut now, "volumeAttributesClassName", then.get("volumeAttributesClassName"));
    }
    if now != then {
        new.at("spec").forbidden("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims");
    }
    let size = |claim: &Field<'_, '_>, path| claim.at(path).key("storage").quantity();
    let zero = crate::quantity::Quantity::ZERO;
    let (wanted, held) =
        (size(new, "spec.resources.requests"), size(old, "spec.resources.requests"));
    let actual = size(old, "status.capacity").unwrap_or_default();
    let wanted = wanted.unwrap_or(zero);
    if held.is_some_and(|held| wanted < held) && wanted <= actual {
        new.at("spec.resources.requests")
            .spelled("storage")
            .forbidden("field can not be less than status.capacity");
    }
    new.at("spec.volumeMode")
        .on_path(Path::new("volumeMode"))
        .immutable(&old.at("spec.volumeMode"));
    let class = new.at("spec.volumeAttributesClassName");
    if class.value() != old.at("spec.volumeAttributesClassName").value()
        && old.at("status.currentVolumeAttributesClassName").exists()
        && class.is_empty()
    {
        let what = if class.exists() { "empty string" } else { "nil" };
        class.forbidden(format!(
            "update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        ));
    }
}

fn status(new: &Field<'_, '_>) {
    let status = new.at("status");
    for (_, entry) in status.at("capacity").entries() {
        super::volume::basic_amount(&entry);
    }
    let statuses = status.at("allocatedResourceStatuses");
    for (key, entry) in statuses.entries() {
        resource_key(&statuses, key);
        if !RESIZE_STATUSES.contains(&entry.text()) {
            let mut sorted = RESIZE_STATUSES.to_vec();
            sorted.sort_unstable();
            statuses.push(crate::field::Error::not_supported(statuses.path(), key, sorted));
        }
    }
    let allocated = status.at("allocatedResources");
    for (key, entry) in allocated.entries() {
        if resource_key(&allocated, key) {
            super::volume::basic_amount(&entry);
        }
    }
}

fn resource_key(map: &Field<'_, '_>, key: &str) -> bool {
    let faults = names::qualified_name(key);
    let mut sound = faults.is_empty();
    faults.into_iter().for_each(|fault| map.invalid_as(key, fault));
    if sound && key != "storage" && (!key.contains('/') || key.contains("kubernetes.io/")) {
        map.push(crate::field::Error::not_supported(map.path(), key, ["storage"]));
        sound = false;
    }
    sound
}
