//! Storage classes, CSI drivers, attachments.
use super::table::{AGE, Column, NAME, boolean, count, text, text_or, with};
use super::{Anew, Field, Kind, NameRule, Part, Strategy};
use crate::field::Error;
use crate::names;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
};

use serde_json::Value;

const PLAIN: Strategy = Strategy::USUAL.without_status().without_generation();
const POLICIES: &[&str] = &["Delete", "Retain"];
const MODES: &[&str] = &["Persistent", "Ephemeral"];
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 * 1024;
const MAX_SECRET: i64 = 1 << 32;

impl Kind for StorageClass {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = &[
        NAME,
        text("Provisioner", "provisioner"),
        text_or("ReclaimPolicy", "reclaimPolicy", "Delete"),
        text_or("VolumeBindingMode", "volumeBindingMode", "Immediate"),
        boolean("AllowVolumeExpansion", "allowVolumeExpansion").of("string"),
        AGE,
    ];

    fn validate(class: &Field<'_, '_>) {
        provisioner(&class.at("provisioner"), true);
        parameters(&class.at("parameters"), true);
        if !class.at("reclaimPolicy").is_empty() {
            class.at("reclaimPolicy").one_of(POLICIES);
        }
        class.at("volumeBindingMode").one_of_if_given(&["Immediate", "WaitForFirstConsumer"]);
        super::scheduling::topology_terms(&class.at("allowedTopologies"));
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        for field in ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"] {
            new.at(field).declared_immutable(&old.at(field));
        }
    }
}

/// Case does not matter, and is not shown.
fn provisioner(field: &Field<'_, '_>, declared: bool) {
    if if declared { field.declared().require() } else { field.require() } {
        let name = field.text().to_lowercase();
        names::qualified_name(&name).into_iter().for_each(|fault| field.invalid_as(&name, fault));
    }
}

fn parameters(map: &Field<'_, '_>, may_be_empty: bool) {
    if map.is_empty() && !may_be_empty {
        map.required("must contain at least one key/value pair");
        return;
    }
    if map.len() > MAX_PARAMETERS {
        map.too_long(MAX_PARAMETERS);
        return;
    }
    let mut size = 0;
    for (key, value) in map.entries() {
        if key.is_empty() {
            map.invalid_as(key, "field can not be empty.");
        }
        size += key.len() + value.text().len();
    }
    if size > MAX_PARAMETERS_SIZE {
        map.too_long(MAX_PARAMETERS_SIZE);
    }
}

impl Kind for VolumeAttributesClass {
    const NAMED_ANEW: Anew = Anew::ByKind;
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = &[NAME, text("DriverName", "driverName"), AGE];

    fn validate(class: &Field<'_, '_>) {
        provisioner(&class.at("driverName"), false);
        parameters(&class.at("parameters"), false);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        for (field, detail) in [
            ("driverName", "updates to driverName are forbidden."),
            ("parameters", "updates to parameters are forbidden."),
        ] {
            if new.at(field).value() != old.at(field).value() {
                new.at(field).forbidden(detail);
            }
        }
        super::named_anew::<Self>(new);
        Self::validate(new);
    }
}

impl Kind for CSIDriver {
    const STRATEGY: Strategy = Strategy::USUAL.without_status().conditional();
    const COLUMNS: &[Column] = &[
        NAME,
        with("AttachRequired", |driver, _| {
            let required = driver.at("spec.attachRequired");
            (!required.exists() || required.flag()).into()
        })
        .of("boolean"),
        boolean("PodInfoOnMount", "spec.podInfoOnMount"),
        boolean("StorageCapacity", "spec.storageCapacity"),
        with("TokenRequests", |driver, _| {
            let requests = driver.at("spec.tokenRequests");
            if !requests.exists() {
                return "<unset>".into();
            }
            let audiences: Vec<&str> = requests.items().map(|r| r.at("audience").text()).collect();
            audiences.join(",").into()
        }),
        boolean("RequiresRepublish", "spec.requiresRepublish"),
        with("Modes", |driver, _| {
            let modes: Vec<&str> = driver.at("spec.volumeLifecycleModes").texts().collect();
            if modes.is_empty() { "<none>".into() } else { modes.join(",").into() }
        }),
        AGE,
    ];

    fn prepare_create(driver: &mut serde_json::Value) {
        super::prepare::create(driver, &Self::STRATEGY.without_generation());
    }

    fn validate(driver: &Field<'_, '_>) {
        let spec = driver.at("spec");
        if !spec.at("attachRequired").exists() {
            spec.spelled("attachedRequired").required("");
        }
        for flag in ["podInfoOnMount", "storageCapacity"] {
            if !spec.at(flag).exists() {
                spec.at(flag).required("");
            }
        }
        spec.at("fsGroupPolicy").one_of_if_given(&["File", "None", "ReadWriteOnceWithFSType"]);
        let requests = spec.at("tokenRequests");
        for (i, request) in requests.items().enumerate() {
            let audience = request.at("audience");
            let same = |other: &Field<'_, '_>| other.at("audience").text() == audience.text();
            if requests.items().take(i).any(|other| same(&other)) {
                audience.duplicate();
            }
            let seconds = request.at("expirationSeconds");
            if seconds.exists() && seconds.int() < 600 {
                seconds.invalid("may not specify a duration less than 10 minutes");
            }
            if seconds.int() > MAX_SECRET {
                seconds.invalid("may not specify a duration larger than 2^32 seconds");
            }
        }
        let modes = spec.at("volumeLifecycleModes");
        for mode in modes.texts().filter(|mode| !MODES.contains(mode)) {
            modes.push(Error::not_supported(modes.path(), mode, MODES));
        }
        let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
        if period.exists() && period.int() < 10 {
            period.invalid("must be greater than or equal to 10 seconds");
        }
        let secrets = spec.at("serviceAccountTokenInSecrets");
        if secrets.exists() && requests.is_empty() {
            secrets
                .invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified");
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        let (new, old) = (new.at("spec"), old.at("spec"));
        let required = new.at("attachRequired");
        required.on_path(new.path().child("attachedRequired")).immutable(&old.at("attachRequired"));
        new.at("volumeLifecycleModes").immutable(&old.at("volumeLifecycleModes"));
    }

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        let spec = new.at("spec");
        let requests = |driver: &Field<'_, '_>| driver.at("spec.tokenRequests").value().clone();
        let unset = old.is_none_or(|old| requests(old) != requests(new))
            && !spec.at("tokenRequests").is_empty()
            && !spec.at("serviceAccountTokenInSecrets").exists();
        let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, \
                    set to true to prevent possible logging of tokens in volume attributes";
        unset.then(|| text.to_owned()).into_iter().collect()
    }
}

impl Kind for CSINode {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = Strategy::USUAL.without_generation().conditional().status_only();
    const COLUMNS: &[Column] = &[NAME, count("Drivers", "spec.drivers"), AGE];

    fn validate(node: &Field<'_, '_>) {
        let drivers = node.at("spec.drivers");
        for (i, driver) in drivers.items().enumerate() {
            super::volume_source::csi_driver_name(&driver.at("name"));
            let id = driver.at("nodeID");
            if id.require() && id.text().len() > 256 {
                id.invalid("must be 256 characters or less");
            }
            let allocatable = driver.at("allocatable.count");
            allocatable.nonnegative();
            let name = driver.at("name").text();
            if drivers.items().take(i).any(|other| other.at("name").text() == name) {
                driver.at("name").duplicate();
            }
            let all: Vec<&str> = driver.at("topologyKeys").texts().collect();
            for (i, key) in all.iter().enumerate() {
                if key.is_empty() {
                    driver.required("");
                }
                if all[..i].contains(key) {
                    driver.push(Error::duplicate(driver.path(), *key));
                }
                let faults = names::qualified_name(key).into_iter();
                faults.for_each(|fault| driver.invalid_as(*key, fault));
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            Self::validate(new);
            same_drivers(&new.at("spec.drivers"), &old.at("spec.drivers"));
        }
    }
}

/// A driver that is registered stays as it is; only how much it can attach may change.
fn same_drivers(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let without_count = |driver: &Value| {
        let mut driver = driver.clone();
        super::prepare::put(&mut driver, "allocatable", None);
        driver
    };
    for before in old.list() {
        let same_name = |driver: &Field<'_, '_>| driver.value()["name"] == before["name"];
        if let Some(driver) = new.items().find(same_name)
            && without_count(driver.value()) != without_count(before)
        {
            let shown = driver.internal(&[
                ("Name", "name", "\"\""),
                ("NodeID", "nodeID", "\"\""),
                ("TopologyKeys", "topologyKeys", "null"),
                // What may change is left out of the comparison, and of what is shown.
                ("Allocatable", "", "null"),
            ]);
            new.invalid_as(shown, super::metadata::IMMUTABLE);
        }
    }
}

impl Kind for CSIStorageCapacity {
    const NAMED_ANEW: Anew = Anew::First;
    const STRATEGY: Strategy = PLAIN.conditional();

    fn validate(capacity: &Field<'_, '_>) {
        if capacity.at("nodeTopology").exists() {
            capacity.at("nodeTopology").label_selector();
        }
        let class = capacity.at("storageClassName");
        class.faults(names::name_is_dns_subdomain(class.text(), false));
        let amount = capacity.at("capacity");
        if amount.quantity().is_some_and(|amount| amount.is_negative()) {
            amount.invalid(super::check::NOT_NEGATIVE);
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        for field in ["nodeTopology", "storageClassName"] {
            let (now, then) = (new.at(field), old.at(field));
            if now.value() != then.value() && now.exists() && field == "nodeTopology" {
                now.invalid_as(super::workload::selector_shown(&now), super::metadata::IMMUTABLE);
            } else {
                now.immutable(&then);
            }
        }
    }
}

impl Kind for VolumeAttachment {
    const NAMED_ANEW: Anew = Anew::First;
    const STRATEGY: Strategy = Strategy::USUAL.without_generation().conditional().status_only();
    const NAME: NameRule = names::name_is_dns_subdomain;
    const COLUMNS: &[Column] = &[
        NAME,
        text("Attacher", "spec.attacher").named(),
        text("PV", "spec.source.persistentVolumeName"),
        text("Node", "spec.nodeName"),
        boolean("Attached", "status.attached"),
        AGE,
    ];

    fn validate(attachment: &Field<'_, '_>) {
        super::volume_source::driver_name(&attachment.at("spec.attacher").declared());
        attached(attachment);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        // What is declared about a spec that may not change is not asked, so others speak.
        let (now, then) = (new.at("spec"), old.at("spec"));
        if now.value() != then.value() {
            super::volume_source::csi_driver_name(&now.at("attacher"));
        }
        attached(new);
        now.declared_immutable(&then);
    }
}

/// Beside who attaches.
fn attached(attachment: &Field<'_, '_>) {
    let spec = attachment.at("spec");
    let source = spec.at("source");
    let (inline, name) = (source.at("inlineVolumeSpec"), source.at("persistentVolumeName"));
    match (inline.exists(), name.exists()) {
        (false, false) => {
            source.required("must specify exactly one of inlineVolumeSpec and persistentVolumeName")
        }
        (true, true) => source
            .forbidden("must specify exactly one of inlineVolumeSpec and persistentVolumeName"),
        (true, false) => super::volume::validate_spec(&inline, "", true),
        (false, true) => {
            name.require_for("must specify non empty persistentVolumeName");
        }
    }
    let node = spec.at("nodeName");
    node.faults(names::name_is_dns_subdomain(node.text(), false));
    let metadata = attachment.at("status.attachmentMetadata");
    let size: usize = metadata.entries().map(|(key, value)| key.len() + value.text().len()).sum();
    if size > 256 * 1024 {
        metadata.too_long(256 * 1024);
    }
    for field in ["attachError", "detachError"] {
        let status = attachment.at("status");
        let error = status.at(field);
        error.at("errorCode").between(0, i32::MAX.into());
        let error = error.at("message");
        if error.text().len() > 256 * 1024 {
            error.too_long(256 * 1024);
        }
    }
    if name.exists() {
        name.faults(names::name_is_dns_subdomain(name.text(), false));
    }
}
