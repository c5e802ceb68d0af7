//! Storage classes, CSI drivers, attachments.
use super::table::{AGE, Column, NAME, boolean, count, text, text_or, with};
use super::{Field, Kind, NameRule, Part, Strategy};
use crate::names;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
};

const PLAIN: Strategy = Strategy::USUAL.without_status().without_generation();
const POLICIES: &[&str] = &["Delete", "Retain"];
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 * 1024;
const MAX_SECRET: i64 = 1 << 32;

impl Kind for StorageClass {
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
        let provisioner = class.at("provisioner");
        if provisioner.require() {
            provisioner.faults(names::qualified_name(&provisioner.text().to_lowercase()));
        }
        parameters(&class.at("parameters"), true);
        class.at("reclaimPolicy").one_of_if_given(POLICIES);
        class.at("volumeBindingMode").one_of_if_given(&["Immediate", "WaitForFirstConsumer"]);
        super::scheduling::topology_terms(&class.at("allowedTopologies"));
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        for (field, detail) in [
            ("parameters", "updates to parameters are forbidden."),
            ("provisioner", "updates to provisioner are forbidden."),
            ("reclaimPolicy", "updates to reclaimPolicy are forbidden."),
        ] {
            if new.at(field).value() != old.at(field).value() {
                new.at(field).forbidden(detail);
            }
        }
        new.at("volumeBindingMode").immutable(&old.at("volumeBindingMode"));
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
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = &[NAME, text("DriverName", "driverName"), AGE];

    fn validate(class: &Field<'_, '_>) {
        super::volume_source::csi_driver_name(&class.at("driverName"));
        parameters(&class.at("parameters"), false);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        new.at("driverName").immutable(&old.at("driverName"));
        new.at("parameters").immutable(&old.at("parameters"));
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
        super::volume_source::csi_driver_name(&driver.at("metadata.name"));
        let spec = driver.at("spec");
        if !spec.at("attachRequired").exists() {
            spec.spelled("attachedRequired").required("");
        }
        for flag in ["podInfoOnMount", "storageCapacity"] {
            if !spec.at(flag).exists() {
                spec.at(flag).required("");
            }
        }
        spec.at("fsGroupPolicy").one_of_if_given(&["ReadWriteOnceWithFSType", "File", "None"]);
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
        for mode in spec.at("volumeLifecycleModes").items() {
            mode.one_of(&["Ephemeral", "Persistent"]);
        }
        let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
        if period.exists() && period.int() < 10 {
            period.invalid("must be greater than or equal to 10 seconds");
        }
        let secrets = spec.at("serviceAccountTokenInSecrets");
        if secrets.exists() && requests.is_empty() {
            secrets.invalid("must be unset when spec.tokenRequests is empty");
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        let (new, old) = (new.at("spec"), old.at("spec"));
        let required = new.at("attachRequired");
        required.on_path(new.path().child("attachedRequired")).immutable(&old.at("attachRequired"));
        new.at("volumeLifecycleModes").immutable(&old.at("volumeLifecycleModes"));
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        let spec = new.at("spec");
        let unset = !spec.at("tokenRequests").is_empty()
            && !spec.at("serviceAccountTokenInSecrets").exists();
        let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, \
                    set to true to prevent possible logging of tokens in volume attributes";
        unset.then(|| text.to_owned()).into_iter().collect()
    }
}

impl Kind for CSINode {
    const STRATEGY: Strategy = Strategy::USUAL.without_generation().conditional().status_only();
    const COLUMNS: &[Column] = &[NAME, count("Drivers", "spec.drivers"), AGE];

    fn validate(node: &Field<'_, '_>) {
        let drivers = node.at("spec.drivers");
        for (i, driver) in drivers.items().enumerate() {
            super::volume_source::csi_driver_name(&driver.at("name"));
            let id = driver.at("nodeID");
            if id.require() && id.text().len() > 192 {
                id.invalid("must be 192 characters or less");
            }
            let allocatable = driver.at("allocatable.count");
            allocatable.nonnegative();
            let name = driver.at("name").text();
            if drivers.items().take(i).any(|other| other.at("name").text() == name) {
                driver.at("name").duplicate();
            }
            let keys = driver.at("topologyKeys");
            for key in keys.items() {
                key.faults(names::qualified_name(key.text()));
            }
            keys.unique();
        }
    }
}

impl Kind for CSIStorageCapacity {
    const STRATEGY: Strategy = PLAIN.conditional();
    const COLUMNS: &[Column] = &[
        NAME,
        text("StorageClassName", "storageClassName"),
        text_or("Capacity", "capacity", "<unset>"),
    ];

    fn validate(capacity: &Field<'_, '_>) {
        if capacity.at("nodeTopology").exists() {
            capacity.at("nodeTopology").label_selector();
        }
        let class = capacity.at("storageClassName");
        if class.is_empty() {
            class.required("");
        }
        class.faults(names::name_is_dns_subdomain(class.text(), false));
        for field in ["capacity", "maximumVolumeSize"] {
            let field = capacity.at(field);
            if field.quantity().is_some_and(|quantity| quantity.is_negative()) {
                field.invalid(super::check::NOT_NEGATIVE);
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        for field in ["nodeTopology", "storageClassName"] {
            new.at(field).immutable(&old.at(field));
        }
    }
}

impl Kind for VolumeAttachment {
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
        let spec = attachment.at("spec");
        super::volume_source::csi_driver_name(&spec.at("attacher"));
        let node = spec.at("nodeName");
        node.faults(names::name_is_dns_subdomain(node.text(), false));
        let source = spec.at("source");
        let (inline, name) = (source.at("inlineVolumeSpec"), source.at("persistentVolumeName"));
        match (inline.exists(), name.exists()) {
            (false, false) => source
                .required("must specify exactly one of inlineVolumeSpec and persistentVolumeName"),
            (true, true) => source
                .forbidden("must specify exactly one of inlineVolumeSpec and persistentVolumeName"),
            (true, false) => super::volume::validate_spec(&inline, "", true),
            (false, true) if name.text().is_empty() => {
                name.required("must specify non empty persistentVolumeName");
            }
            _ => {}
        }
        let metadata = attachment.at("status.attachmentMetadata");
        let size: usize =
            metadata.entries().map(|(key, value)| key.len() + value.text().len()).sum();
        if size > 256 * 1024 {
            metadata.too_long(256 * 1024);
        }
        for field in ["attachError", "detachError"] {
            let status = attachment.at("status");
            let error = status.at(field);
            let error = error.at("message");
            if error.text().len() > 256 * 1024 {
                error.too_long(256 * 1024);
            }
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        Self::validate(new);
        new.at("spec").immutable(&old.at("spec"));
    }
}
