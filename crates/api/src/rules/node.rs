//! Node.
use super::scheduling::EFFECTS;
use super::table::{AGE, Column, NAME, text, text_or, with};
use super::{Anew, Field, Kind, Part, Strategy, pod};
use crate::field::{BadValue, Error, Path};
use crate::names::{self, ip};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use std::collections::BTreeSet;

const TAINT: &[(&str, &str, &str)] = &[
    ("Key", "key", "\"\""),
    ("Value", "value", "\"\""),
    ("Effect", "effect", "\"\""),
    ("TimeAdded", "timeAdded", "null"),
];

impl Kind for Node {
    const NAMED_ANEW: Anew = Anew::First;
    const STRATEGY: Strategy = Strategy::USUAL.without_generation();
    const COLUMNS: &[Column] = &[
        NAME,
        with("Status", |node, _| status_word(node).into()),
        with("Roles", |node, _| roles(node).into()),
        AGE,
        text("Version", "status.nodeInfo.kubeletVersion"),
        with("Internal-IP", |node, _| address(node, "InternalIP")).wide(),
        with("External-IP", |node, _| address(node, "ExternalIP")).wide(),
        text_or("OS-Image", "status.nodeInfo.osImage", "<unknown>").wide(),
        with("Kernel-Version", |node, _| {
            let info = node.at("status.nodeInfo");
            let kernel = match info.at("kernelVersion").text() {
                "" => "<unknown>",
                kernel => kernel,
            };
            match info.at("architecture").text() {
                "" => kernel.into(),
                architecture => format!("{kernel} ({architecture})").into(),
            }
        })
        .wide(),
        text_or("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", "<unknown>").wide(),
    ];

    /// A node brings its status along.
    fn prepare_create(_: &mut Value) {}

    fn validate(node: &Field<'_, '_>) {
        avoided_pods(&node.at("metadata.annotations"));
        taints(&node.at("spec.taints").on_path(Path::new("metadata").child("taints")));
        resources(node);
        declared_features(&node.at("status.declaredFeatures"));
        pod_cidrs(node);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            Self::validate(new);
        }
        resources(new);
        declared_features(&new.at("status.declaredFeatures"));
        let addresses = new.at("status.addresses");
        let list = addresses.list();
        for (i, place) in addresses.items().enumerate() {
            if list[..i].contains(&list[i]) {
                let shown =
                    place.internal(&[("Type", "type", "\"\""), ("Address", "address", "\"\"")]);
                place.push(Error::duplicate(place.path(), shown));
            }
        }
        let (now, then) = (new.at("spec.podCIDRs"), old.at("spec.podCIDRs"));
        if !then.is_empty() && now.value() != then.value() {
            now.forbidden("node updates may not change podCIDR except from \"\" to valid");
        }
        let (now, then) = (new.at("spec.providerID"), old.at("spec.providerID"));
        if !then.is_empty() && now.text() != then.text() {
            let detail = if now.is_empty() {
                "field cannot be cleared once set"
            } else {
                "field cannot be modified once set"
            };
            now.invalid_as(BadValue::null(), detail);
        }
        taints(&new.at("spec.taints").on_path(Path::new("metadata").child("taints")));
        let external = new.at("spec.externalID");
        if external.text() != old.at("spec.externalID").text() {
            external.forbidden("may not be updated");
        }
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        let mut warnings = Vec::new();
        if !new.at("spec.externalID").is_empty() {
            warnings.push(
                "spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned(),
            );
        }
        for block in new.at("spec.podCIDRs").items() {
            warnings.extend(ip::cidr_warnings(block.path(), block.text()));
        }
        warnings
    }
}

fn taints(taints: &Field<'_, '_>) {
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        let (key, value, effect) = (taint.at("key"), taint.at("value"), taint.at("effect"));
        key.faults(names::qualified_name(key.text()));
        let faults = names::label_value(value.text());
        if !faults.is_empty() {
            value.invalid(faults.join(";"));
        }
        if effect.require() {
            effect.one_of(EFFECTS);
        }
        if !seen.insert((effect.text(), key.text())) {
            let mut error = Error::duplicate(taint.path(), taint.internal(TAINT));
            error.detail = "taints must be unique by key and effect pair".into();
            taint.push(error);
        }
    }
}

/// Features that a node says it has: words of a known form, in order.
fn declared_features(features: &Field<'_, '_>) {
    let sound = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name
                .split('/')
                .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric()))
    };
    let mut last: Option<&str> = None;
    for feature in features.items() {
        let name = feature.text();
        match last {
            Some(last) if last == name => feature.duplicate(),
            Some(last) if last > name => feature.invalid("list must be sorted alphabetically"),
            _ => {}
        }
        last = Some(name);
        if !sound(name) {
            feature.invalid(format!("invalid feature name {}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", crate::quote::Quoted(name)));
        }
    }
}

fn resources(node: &Field<'_, '_>) {
    for part in ["capacity", "allocatable"] {
        let status = node.at("status");
        let amounts = status.at(part);
        for (name, entry) in amounts.entries() {
            pod::resources::amount(&entry.on_path(amounts.path().child(name)), name);
        }
    }
}

fn pod_cidrs(node: &Field<'_, '_>) {
    let blocks = node.at("spec.podCIDRs");
    for block in blocks.items() {
        block.extend(ip::cidr_for_legacy_field(block.path(), block.text(), true, &[]));
    }
    let broken = blocks
        .texts()
        .position(|block| !ip::cidr_for_legacy_field(blocks.path(), block, false, &[]).is_empty());
    if let Some(place) = broken.filter(|_| blocks.len() > 1) {
        let block = blocks.texts().nth(place).unwrap_or_default();
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{place}]: <nil> (invalid CIDR address: {block})"
        );
        blocks.push(Error::internal(blocks.path(), detail));
        return blocks.invalid("may specify no more than one CIDR for each IP family");
    }
    let v4 = blocks.texts().filter(|block| !block.contains(':')).count();
    if blocks.len() > 1 && (blocks.len() > 2 || v4 != 1) {
        blocks.invalid("may specify no more than one CIDR for each IP family");
    }
}

fn status_word(node: &Field<'_, '_>) -> String {
    let conditions = node.at("status.conditions");
    let ready =
        conditions.items().filter(|condition| condition.at("type").text() == "Ready").last();
    let word = match ready.map(|condition| condition.at("status").text() == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    };
    match node.at("spec.unschedulable").flag() {
        true => format!("{word},SchedulingDisabled"),
        false => word.to_owned(),
    }
}

fn roles(node: &Field<'_, '_>) -> String {
    let labels = node.at("metadata.labels").labels();
    let role = |(key, value): (&String, &String)| match key.strip_prefix("node-role.kubernetes.io/")
    {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => Some(value.clone()),
        None => None,
    };
    let roles: BTreeSet<String> =
        labels.iter().filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.into_iter().collect::<Vec<_>>().join(",")
    }
}

fn address(node: &Field<'_, '_>, kind: &str) -> Value {
    let addresses = node.at("status.addresses");
    let found = addresses.items().find(|address| address.at("type").text() == kind);
    found.map_or("<none>", |address| address.at("address").text()).into()
}

/// Pods that a node would rather not have, in an annotation of old.
fn avoided_pods(annotations: &Field<'_, '_>) {
    const KEY: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";
    let text = annotations.key(KEY).text();
    if text.is_empty() {
        return;
    }
    let pods = match crate::codec::json::decode_untyped(text.as_bytes()) {
        Ok(pods) => pods.value,
        Err(fault) => {
            return annotations.spelled("AvoidPods").invalid_as(KEY, fault.to_string());
        }
    };
    let list = pods["preferAvoidPods"].as_array();
    for (i, entry) in list.into_iter().flatten().enumerate() {
        let place = annotations.spelled(KEY);
        let place = place.path().index(i);
        let signature = place.child("PodSignature");
        if entry["podSignature"]["podController"].is_null() {
            annotations.push(Error::required(&signature, ""));
        } else if entry["podSignature"]["podController"]["controller"] != true {
            let controller = signature.child("PodController");
            let controller = controller.child("Controller");
            annotations.push(Error::invalid(&controller, false, "must point to a controller"));
        }
    }
}
