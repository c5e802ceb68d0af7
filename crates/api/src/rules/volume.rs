//! PersistentVolume.
use super::table::{AGE, Column, NAME, text, text_or, with};
use super::volume_source::{self as shared, Source, exactly_one, source};
use super::{Anew, Field, Kind, Part, Strategy, prepare, scheduling};
use crate::field::{BadValue, Error, Path};
use crate::names;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

pub use shared::csi_driver_name;

const ACCESS_MODES: &[&str] =
    &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

const SOURCES: &[Source] = &[
    source("hostPath", &["path"]).with(shared::host_path),
    source("gcePersistentDisk", &["pdName"]).with(shared::partition).reported_as("persistentDisk"),
    source("awsElasticBlockStore", &["volumeID"]).with(shared::partition),
    source("glusterfs", &["endpoints", "path"]).with(|gluster| {
        let namespace = gluster.at("endpointsNamespace");
        if namespace.exists() && namespace.text().is_empty() {
            namespace.invalid("if the endpointnamespace is set, it must be a valid namespace name");
        } else if namespace.exists() {
            namespace.faults(names::name_is_dns_label(namespace.text(), false));
        }
    }),
    source("flocker", &[]).with(shared::flocker),
    source("nfs", &["server", "path"]).with(shared::nfs),
    source("rbd", &["monitors", "image"]),
    source("quobyte", &[]).with(shared::quobyte),
    source("cephfs", &["monitors"]).refused_as("cephFS"),
    source("iscsi", &["targetPortal"]).with(|iscsi| {
        shared::iscsi(iscsi, "must be valid format");
        shared::secret_name(iscsi);
    }),
    source("cinder", &["volumeID"]).with(secret_reference),
    source("fc", &[]).with(shared::fc),
    source("flexVolume", &["driver"]).with(shared::flex).beside_others(),
    source("azureFile", &["secretName", "shareName"]).with(|file| {
        if file.at("secretNamespace").exists() {
            file.at("secretNamespace").require();
        }
    }),
    source("vsphereVolume", &["volumePath"]),
    source("photonPersistentDisk", &["pdID"]),
    source("portworxVolume", &["volumeID"]),
    source("azureDisk", &["diskName", "diskURI"]).with(shared::azure_disk),
    source("scaleIO", &["gateway", "system", "volumeName"]),
    source("local", &["path"]).with(|local| local.at("path").no_backsteps()).with_volume(|spec| {
        if !spec.at("nodeAffinity").exists() {
            spec.at("nodeAffinity").required("Local volume requires node affinity");
        }
    }),
    source("storageos", &["volumeName"]).with(|storage| {
        shared::storage_os(storage);
        if storage.at("secretRef").exists() {
            storage.at("secretRef.namespace").require();
        }
    }),
    source("csi", &[]).with(csi),
];

impl Kind for PersistentVolume {
    const NAMED_ANEW: Anew = Anew::First;
    const STRATEGY: Strategy = Strategy::USUAL.without_generation();
    const COLUMNS: &[Column] = &[
        NAME,
        with("Capacity", |volume, _| {
            let capacity = volume.at("spec.capacity");
            capacity.key("storage").value().as_str().unwrap_or("0").into()
        }),
        with("Access Modes", |volume, _| short_modes(&volume.at("spec.accessModes"))),
        text("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
        with("Status", |volume, _| phase(volume)),
        with("Claim", |volume, _| {
            let claim = volume.at("spec.claimRef");
            match claim.exists() {
                true => {
                    format!("{}/{}", claim.at("namespace").text(), claim.at("name").text()).into()
                }
                false => "".into(),
            }
        }),
        with("StorageClass", |volume, _| storage_class(volume)),
        text_or("VolumeAttributesClass", "spec.volumeAttributesClassName", "<unset>"),
        text("Reason", "status.reason"),
        AGE,
        text_or("VolumeMode", "spec.volumeMode", "<unset>").wide(),
    ];

    fn prepare_create(volume: &mut Value) {
        let now = volume["metadata"]["creationTimestamp"].clone();
        volume["status"] = json!({ "phase": "Pending", "lastPhaseTransitionTime": now });
    }

    fn validate(volume: &Field<'_, '_>) {
        validate_spec(&volume.at("spec"), volume.at("metadata.name").text(), false);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part != Part::Main {
            return;
        }
        Self::validate(new);
        update(&new.at("spec"), &old.at("spec"));
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        let (spec, annotations) = (new.at("spec"), new.at("metadata.annotations"));
        let mut warnings = Vec::new();
        for (key, message) in [
            (
                "volume.beta.kubernetes.io/storage-class",
                "deprecated since v1.8; use \"storageClassName\" attribute instead",
            ),
            (
                "volume.beta.kubernetes.io/mount-options",
                "deprecated since v1.31; use \"mountOptions\" attribute instead",
            ),
        ] {
            if annotations.key(key).exists() {
                warnings.push(format!("{}: {message}", annotations.key(key).path()));
            }
        }
        if spec.at("persistentVolumeReclaimPolicy").text() == "Recycle" {
            warnings.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
        }
        for (field, spelled, since) in [
            ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
            (
                "photonPersistentDisk",
                "photonPersistentDisk",
                "deprecated in v1.11, non-functional in v1.16+",
            ),
            ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
            ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
            ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
            ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
        ] {
            if spec.at(field).exists() {
                warnings.push(format!("spec.{spelled}: {since}"));
            }
        }
        warnings
    }
}

pub fn phase(object: &Field<'_, '_>) -> Value {
    match object.at("metadata.deletionTimestamp").exists() {
        true => "Terminating".into(),
        false => object.at("status.phase").text().into(),
    }
}

/// The class in the annotation that came before the field, or in the field.
pub fn storage_class(object: &Field<'_, '_>) -> Value {
    let annotations = object.at("metadata.annotations");
    match annotations.key("volume.beta.kubernetes.io/storage-class").value() {
        Value::String(class) => class.as_str().into(),
        _ => object.at("spec.storageClassName").text().into(),
    }
}

/// `RWO,ROX,RWX,RWOP`
pub fn short_modes(modes: &Field<'_, '_>) -> Value {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let given: Vec<&str> = short
        .iter()
        .filter(|(mode, _)| modes.texts().any(|given| given == *mode))
        .map(|(_, s)| *s)
        .collect();
    given.join(",").into()
}

pub fn access_modes(modes: &Field<'_, '_>) {
    for mode in modes.texts().filter(|mode| !ACCESS_MODES.contains(mode)) {
        modes.push(Error::not_supported(modes.path(), mode, ACCESS_MODES));
    }
    let single = |mode: &str| mode == "ReadWriteOncePod";
    if modes.texts().any(single)
        && modes.texts().any(|mode| !single(mode) && ACCESS_MODES.contains(&mode))
    {
        modes.forbidden("may not use ReadWriteOncePod with other access modes");
    }
}

pub fn volume_modes(mode: &Field<'_, '_>) {
    mode.one_of_if_given(&["Block", "Filesystem"]);
}

/// The spec of a volume, of its own or inline in an attachment.
pub fn validate_spec(spec: &Field<'_, '_>, _name: &str, inline: bool) {
    const INLINE: &str = "may not be specified in the context of inline volumes";
    if inline {
        for field in ["claimRef", "capacity"] {
            if !spec.at(field).is_empty() {
                spec.at(field).forbidden(INLINE);
            }
        }
        if !spec.at("csi").exists() {
            spec.at("csi").required("has to be specified in the context of inline volumes");
        }
    }
    spec.at("accessModes").require();
    access_modes(&spec.at("accessModes"));
    let policy = spec.at("persistentVolumeReclaimPolicy");
    let affinity = spec.at("nodeAffinity");
    let (class, mode) = (spec.at("storageClassName"), spec.at("volumeMode"));
    if inline {
        if !matches!(policy.text(), "" | "Retain") {
            policy.forbidden("may only be Retain in the context of inline volumes");
        }
        if affinity.exists() {
            affinity.forbidden(INLINE);
        }
    } else {
        capacity(&spec.at("capacity"));
        if !policy.is_empty() {
            policy.one_of(&["Delete", "Recycle", "Retain"]);
        }
        if affinity.exists() {
            if affinity.at("required").exists() {
                scheduling::node_selector(&affinity.at("required"));
            } else {
                affinity.at("required").required("must specify required node constraints");
            }
        }
    }
    exactly_one(spec, SOURCES);
    let root =
        |path: &str| !path.is_empty() && path.split('/').all(|part| matches!(part, "" | "."));
    if root(spec.at("hostPath.path").text()) && policy.text() == "Recycle" {
        policy.forbidden("may not be 'recycle' for a hostPath mount of '/'");
    }
    match inline {
        true => {
            if !class.is_empty() {
                class.forbidden(INLINE);
            }
            if mode.exists() && mode.text() != "Filesystem" {
                mode.forbidden("may not specify volumeMode other than Filesystem in the context of inline volumes");
            }
        }
        false => {
            if !class.is_empty() {
                class.faults(names::name_is_dns_subdomain(class.text(), false));
            }
            volume_modes(&mode);
        }
    }
    let attributes = spec.at("volumeAttributesClassName");
    if attributes.exists() && !inline {
        if attributes.require_for("an empty string is disallowed") {
            attributes.faults(names::name_is_dns_subdomain(attributes.text(), false));
        }
        if !spec.at("csi").exists() {
            spec.at("csi").required("has to be specified when using volumeAttributesClassName");
        }
    }
}

fn capacity(capacity: &Field<'_, '_>) {
    capacity.require();
    if capacity.len() != 1 || !capacity.key("storage").exists() {
        let shown = BadValue::json(capacity.value());
        capacity.push(Error::not_supported(capacity.path(), shown, ["storage"]));
    }
    for (_, entry) in capacity.entries() {
        basic_amount(&entry);
        let Some(quantity) = entry.quantity() else { continue };
        if !quantity.sign().is_gt() {
            entry.invalid("must be greater than zero");
        }
    }
}

pub fn basic_amount(entry: &Field<'_, '_>) {
    if let Some(quantity) = entry.quantity().filter(|quantity| quantity.is_negative()) {
        entry.invalid_as(quantity.value(), "must be a valid resource quantity");
    }
}

fn secret_reference(source: &Field<'_, '_>) {
    let reference = source.at("secretRef");
    if reference.exists() {
        reference.at("name").require();
        reference.at("namespace").require();
    }
}

fn csi(source: &Field<'_, '_>) {
    csi_driver_name(&source.at("driver"));
    source.at("volumeHandle").require();
    for field in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let reference = source.at(field);
        if reference.exists() {
            reference.at("name").named(names::dns1123_subdomain);
            reference.at("namespace").named(names::dns1123_label);
        }
    }
}

/// Labels that have left their beta names.
const GROWN_UP: &[(&str, &str)] = &[
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// The old affinity with the keys that the new one may have instead. Where there is no other name,
/// upstream lets the key be nothing.
fn renamed(old: &Value, new: &Value) -> Value {
    let mut old = old.clone();
    let terms = old.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for (i, term) in terms.into_iter().flatten().enumerate() {
        for list in ["matchExpressions", "matchFields"] {
            let requirements = term.get_mut(list).and_then(Value::as_array_mut);
            for (j, requirement) in requirements.into_iter().flatten().enumerate() {
                let beta = requirement["key"].as_str().unwrap_or_default();
                let grown = GROWN_UP.iter().find(|(old, _)| *old == beta);
                let grown = grown.map_or("", |(_, new)| new);
                if new["required"]["nodeSelectorTerms"][i][list][j]["key"] == grown {
                    requirement["key"] = grown.into();
                }
            }
        }
    }
    old
}

fn update(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let sources = |spec: &Field<'_, '_>| -> Vec<Value> {
        SOURCES.iter().map(|source| spec.at(source.field).value().clone()).collect()
    };
    let (mut now, then) = (sources(new), sources(old));
    // A secret for expanding may be added.
    if let (Some(now), Some(then)) = (now.last_mut(), then.last())
        && then.is_object()
        && then.get("controllerExpandSecretRef").is_none()
    {
        prepare::put(now, "controllerExpandSecretRef", None);
    }
    if now != then {
        new.on_path(Path::new("spec"))
            .spelled("persistentvolumesource")
            .forbidden("spec.persistentvolumesource is immutable after creation");
    }
    new.at("volumeMode").on_path(Path::new("volumeMode")).immutable(&old.at("volumeMode"));
    if old.at("nodeAffinity").exists() {
        let affinity = new.at("nodeAffinity").on_path(Path::new("nodeAffinity"));
        if *affinity.value() != renamed(old.at("nodeAffinity").value(), affinity.value()) {
            let shown = super::shown::pointer(affinity.value(), super::shown::VOLUME_AFFINITY);
            affinity
                .invalid_as(shown, "field is immutable, except for updating from beta label to GA");
        }
    }
    let class = new.at("volumeAttributesClassName");
    if old.at("volumeAttributesClassName").exists() && !class.exists() {
        class.forbidden("update from non-nil value to nil is forbidden");
    }
}
