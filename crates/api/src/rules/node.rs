//! Nodes, and what is said about running pods on them: RuntimeClass, PriorityClass, Lease.
use super::scheduling::{self, EFFECTS};
use super::table::{AGE, Column, NAME, boolean, integer, text, text_or, with};
use super::{Field, Kind, NameRule, Part, Strategy, pod, prepare};
use crate::field::{BadValue, Error, Path};
use crate::names::{self, ip};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ComponentStatus, Node};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::Value;
use std::collections::BTreeSet;

const TAINT: &[(&str, &str, &str)] = &[
    ("Key", "key", "\"\""),
    ("Value", "value", "\"\""),
    ("Effect", "effect", "\"\""),
    ("TimeAdded", "timeAdded", "null"),
];
const TOLERATION: &[(&str, &str, &str)] = &[
    ("Key", "key", "\"\""),
    ("Operator", "operator", "\"\""),
    ("Value", "value", "\"\""),
    ("Effect", "effect", "\"\""),
    ("TolerationSeconds", "tolerationSeconds", "null"),
];
/// Above this are the classes of the system itself.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

impl Kind for Node {
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
        taints(&node.at("spec.taints").on_path(Path::new("metadata").child("taints")));
        resources(node);
        declared_features(&node.at("status.declaredFeatures"));
        pod_cidrs(node);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        taints(&new.at("spec.taints").on_path(Path::new("metadata").child("taints")));
        resources(new);
        let addresses = new.at("status.addresses");
        let list = addresses.list();
        for (i, place) in addresses.items().enumerate() {
            if list[..i].contains(&list[i]) {
                let shown =
                    place.internal(&[("Type", "type", "\"\""), ("Address", "address", "\"\"")]);
                place.push(Error::duplicate(place.path(), shown));
            }
        }
        declared_features(&new.at("status.declaredFeatures"));
        let external = new.at("spec.externalID");
        if external.text() != old.at("spec.externalID").text() {
            external.forbidden("may not be updated");
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
        if !sound(name) {
            feature.invalid(format!("invalid feature name {}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", crate::quote::Quoted(name)));
        }
        match last {
            Some(last) if last == name => feature.duplicate(),
            Some(last) if last > name => feature.invalid("list must be sorted alphabetically"),
            _ => {}
        }
        last = Some(name);
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

impl Kind for RuntimeClass {
    const STRATEGY: Strategy =
        Strategy::USUAL.without_status().without_generation().conditional().creates_on_update();
    const COLUMNS: &[Column] = &[NAME, text("Handler", "handler"), AGE];

    fn validate(class: &Field<'_, '_>) {
        let handler = class.at("handler");
        if handler.require() {
            handler.faults(names::dns1123_label(handler.text()));
        }
        let overhead = class.at("overhead");
        pod::resources::overhead(&overhead.at("podFixed").on_path(*overhead.path()));
        let scheduling = class.at("scheduling");
        if scheduling.exists() {
            scheduling.at("nodeSelector").label_map();
            let tolerations = scheduling.at("tolerations");
            scheduling::tolerations(&tolerations);
            let list = tolerations.list();
            for (i, toleration) in tolerations.items().enumerate() {
                if list[..i].contains(&list[i]) {
                    toleration
                        .push(Error::duplicate(toleration.path(), toleration.internal(TOLERATION)));
                }
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        new.at("handler").declared_immutable(&old.at("handler"));
    }
}

impl Kind for PriorityClass {
    const STRATEGY: Strategy = Strategy::USUAL.without_status();
    const COLUMNS: &[Column] = &[
        NAME,
        integer("Value", "value"),
        boolean("Global-Default", "globalDefault"),
        AGE,
        text("PreemptionPolicy", "preemptionPolicy"),
    ];

    /// Its generation is always the first.
    fn prepare_update(new: &mut Value, old: &Value, _: Part<'_>) {
        prepare::put(&mut new["metadata"], "generation", old["metadata"].get("generation"));
    }

    fn validate(class: &Field<'_, '_>) {
        let (name, value) = (class.at("metadata.name").text(), class.at("value"));
        let system =
            [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
        if name.starts_with("system-") {
            let known = system.iter().any(|(known, priority)| {
                name == *known && value.int() == *priority && !class.at("globalDefault").flag()
            });
            if !known {
                class.at("metadata.name").forbidden(format!("priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"));
            }
        } else if value.int() > HIGHEST_USER_PRIORITY {
            value.forbidden(format!(
                "maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            ));
        }
        let policy = class.at("preemptionPolicy");
        if policy.exists() {
            policy.require_one_of(&["PreemptLowerPriority", "Never"]);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        if new.at("value").int() != old.at("value").int() {
            new.at("value").forbidden("may not be changed in an update.");
        }
        new.at("preemptionPolicy").immutable(&old.at("preemptionPolicy"));
    }
}

impl Kind for Lease {
    const STRATEGY: Strategy =
        Strategy::USUAL.without_status().without_generation().conditional().creates_on_update();
    const NAME: NameRule = names::name_is_dns_subdomain;
    const COLUMNS: &[Column] = &[NAME, text("Holder", "spec.holderIdentity"), AGE];

    fn validate(lease: &Field<'_, '_>) {
        let spec = lease.at("spec");
        let seconds = spec.at("leaseDurationSeconds");
        if seconds.exists() && seconds.int() <= 0 {
            seconds.invalid("must be greater than 0");
        }
        spec.at("leaseTransitions").nonnegative();
    }
}

impl Kind for ComponentStatus {
    const STRATEGY: Strategy = Strategy::USUAL.without_status().without_generation();
    const COLUMNS: &[Column] = &[
        NAME,
        with("Status", |status, _| {
            match healthy(status, "status").as_str() {
                "" => "Unknown",
                "True" => "Healthy",
                _ => "Unhealthy",
            }
            .into()
        }),
        with("Message", |status, _| healthy(status, "message").into()),
        with("Error", |status, _| healthy(status, "error").into()),
    ];

    fn validate(_: &Field<'_, '_>) {}
}

fn healthy(status: &Field<'_, '_>, part: &'static str) -> String {
    let conditions = status.at("conditions");
    let found = conditions.items().find(|condition| condition.at("type").text() == "Healthy");
    found.map(|condition| condition.at(part).text().to_owned()).unwrap_or_default()
}
