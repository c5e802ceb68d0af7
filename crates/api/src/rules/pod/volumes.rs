//! Volumes of a pod.
use super::super::volume_source::{self as shared, Source, exactly_one, source};
use super::super::{Field, claim};
use super::{container, env};
use crate::field::{BadValue, Error};
use crate::names;
use crate::quote::Quoted;
use serde_json::Value;
use std::collections::HashMap;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const KEY_TYPES: &[&str] =
    &["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];

const SOURCES: &[Source] = &[
    source("emptyDir", &[]).with(|dir| {
        if dir.at("sizeLimit").quantity().is_some_and(|limit| limit.is_negative()) {
            dir.at("sizeLimit").forbidden("SizeLimit field must be a valid resource quantity");
        }
    }),
    source("hostPath", &["path"]).with(shared::host_path),
    source("gitRepo", &["repository"]).with(|repo| repo.at("directory").descending_path()),
    source("gcePersistentDisk", &["pdName"]).with(shared::partition).reported_as("persistentDisk"),
    source("awsElasticBlockStore", &["volumeID"]).with(shared::partition),
    source("secret", &["secretName"]).with(projected_keys),
    source("nfs", &["server", "path"]).with(shared::nfs),
    source("iscsi", &["targetPortal"])
        .with(|iscsi| shared::iscsi(iscsi, "must be valid format starting with iqn, eui, or naa")),
    source("glusterfs", &["endpoints", "path"]),
    source("flocker", &[]).with(shared::flocker),
    source("persistentVolumeClaim", &["claimName"]),
    source("rbd", &["monitors", "image"]),
    source("cinder", &["volumeID"]).with(shared::secret_name),
    source("cephfs", &["monitors"]).refused_as("cephFS"),
    source("quobyte", &[]).with(shared::quobyte),
    source("downwardAPI", &[]).refused_as("downwarAPI").with(downward_api),
    source("fc", &[]).with(shared::fc),
    source("flexVolume", &["driver"]).with(shared::flex),
    source("configMap", &["name"]).with(projected_keys),
    source("azureFile", &["secretName", "shareName"]),
    source("vsphereVolume", &["volumePath"]),
    source("photonPersistentDisk", &["pdID"]),
    source("portworxVolume", &["volumeID"]),
    source("azureDisk", &["diskName", "diskURI"]).with(shared::azure_disk),
    source("storageos", &["volumeName"]).with(shared::storage_os),
    source("projected", &[]).with(projected),
    source("scaleIO", &["gateway", "system", "volumeName"]),
    source("csi", &[]).with(csi),
    source("ephemeral", &["volumeClaimTemplate"]).with(ephemeral),
    source("image", &["reference"]).with(|image| {
        image.at("pullPolicy").require_one_of(container::PULL_POLICIES);
    }),
];

/// The sound ones by name.
pub fn validate<'v>(volumes: &Field<'v, '_>, pod: &str) -> HashMap<&'v str, &'v Value> {
    let claim_of = |volume: &str| format!("{pod}-{volume}");
    let created: Vec<String> = volumes
        .items()
        .filter(|volume| !pod.is_empty() && volume.at("ephemeral").exists())
        .map(|volume| claim_of(volume.at("name").text()))
        .collect();
    let mut sound = HashMap::new();
    for volume in volumes.items() {
        let (name, before) = (volume.at("name"), volume.count());
        exactly_one(&volume, SOURCES);
        if volume.at("iscsi.initiatorName").exists()
            && name.text().len() + 1 + volume.at("iscsi.targetPortal").text().len() > 64
        {
            name.invalid("Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.");
        }
        if volume.at("ephemeral").exists() && !pod.is_empty() && !name.is_empty() {
            let claim = claim_of(name.text());
            for fault in names::name_is_dns_subdomain(&claim, false) {
                name.invalid(format!("PVC name {}: {fault}", Quoted(&claim)));
            }
        }
        name.named(names::dns1123_label);
        if sound.contains_key(name.text()) {
            name.duplicate();
        }
        if volume.count() == before {
            sound.insert(name.text(), volume.value());
        }
        let claim = volume.at("persistentVolumeClaim.claimName");
        if created.iter().any(|created| created == claim.text()) {
            claim.invalid("must not reference a PVC that gets created for an ephemeral volume");
        }
    }
    sound
}

fn mode(field: &Field<'_, '_>) {
    if !(0..=0o777).contains(&field.int()) {
        field.invalid(FILE_MODE);
    }
}

/// A path below the volume that does not look like ours.
fn local_path(path: &Field<'_, '_>) {
    path.descending_path();
    if path.text().starts_with("..") && !path.text().starts_with("../") {
        path.invalid("must not start with '..'");
    }
}

/// Keys of a ConfigMap or Secret as files.
fn projected_keys(source: &Field<'_, '_>) {
    mode(&source.at("defaultMode"));
    source.at("items").items().for_each(|item| key_to_path(&item));
}

fn key_to_path(item: &Field<'_, '_>) {
    item.at("key").require();
    item.at("path").require();
    local_path(&item.at("path"));
    mode(&item.at("mode"));
}

fn downward_api(source: &Field<'_, '_>) {
    mode(&source.at("defaultMode"));
    source.at("items").items().for_each(|file| downward_file(&file, source));
}

/// Upstream reports a file's faults without its index.
fn downward_file(file: &Field<'_, '_>, source: &Field<'_, '_>) {
    let file = file.on_path(*source.path());
    file.at("path").require();
    local_path(&file.at("path"));
    let (field, resource) = (file.at("fieldRef"), file.at("resourceFieldRef"));
    if field.exists() {
        env::volume_field_ref(&field);
        if resource.exists() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            file.invalid_as("resource", detail);
        }
    } else if resource.exists() {
        env::resource_ref(&resource, true);
    } else {
        file.required("one of fieldRef and resourceFieldRef is required");
    }
    mode(&file.at("mode"));
}

fn projected(volume: &Field<'_, '_>) {
    mode(&volume.at("defaultMode"));
    let mut paths: Vec<String> = Vec::new();
    let mut taken = |path: &str, shown: &str| {
        if path.is_empty() {
            return;
        }
        if paths.iter().any(|other| other == path) {
            volume.invalid_as(shown, "conflicting duplicate paths");
        } else {
            paths.push(path.to_owned());
        }
    };
    for part in volume.at("sources").items() {
        for kind in ["secret", "configMap"] {
            let source = part.at(kind);
            if source.exists() {
                source.at("name").require();
                for item in source.at("items").items() {
                    key_to_path(&item);
                    taken(item.at("path").text(), source.at("name").text());
                }
            }
        }
        for file in part.at("downwardAPI.items").items() {
            downward_file(&file, &part.at("downwardAPI"));
            taken(file.at("path").text(), file.at("path").text());
        }
        if part.at("serviceAccountToken").exists() {
            service_account_token(&part.at("serviceAccountToken"), volume);
        }
        let bundle = part.at("clusterTrustBundle");
        if bundle.exists() {
            trust_bundle(&bundle);
            let path = bundle.at("path").text();
            taken(if path.is_empty() { "\0" } else { path }, path);
        }
        let certificate = part.at("podCertificate");
        if certificate.exists() {
            pod_certificate(&certificate);
            for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
                let path = certificate.at(field).text();
                taken(path, path);
            }
        }
        if part.len() > 1 {
            part.forbidden("may not specify more than 1 volume type per source");
        }
    }
}

fn service_account_token(token: &Field<'_, '_>, volume: &Field<'_, '_>) {
    let seconds = token.at("expirationSeconds");
    if !seconds.exists() {
        seconds.required("");
    } else if seconds.int() < 600 {
        seconds.invalid("may not specify a duration less than 10 minutes");
    } else if seconds.int() > 1 << 32 {
        seconds.invalid("may not specify a duration larger than 2^32 seconds");
    }
    let path = token.at("path").on_path(volume.path().child("path"));
    if path.require() {
        local_path(&path);
    }
}

const TRUST_BUNDLE: &[(&str, &str, &str)] = &[
    ("Name", "name", "null"),
    ("SignerName", "signerName", "null"),
    ("LabelSelector", "labelSelector", "null"),
    ("Optional", "optional", "null"),
    ("Path", "path", "\"\""),
    ("User", "user", "null"),
];

fn trust_bundle(bundle: &Field<'_, '_>) {
    let (name, signer, selector) =
        (bundle.at("name"), bundle.at("signerName"), bundle.at("labelSelector"));
    match (name.exists(), signer.exists()) {
        (true, true) => bundle.invalid_as(
            bundle.internal(TRUST_BUNDLE),
            "only one of name and signerName may be used",
        ),
        (true, false) => {
            if name.text().is_empty() {
                name.required("must be a valid object name");
            }
            for fault in super::super::certificates::bundle_name(name.text()) {
                name.invalid(format!("not a valid clustertrustbundlename: {fault}"));
            }
            if selector.exists() {
                let shown = BadValue::json(selector.value());
                selector.invalid_as(shown, "labelSelector must be unset if name is specified");
            }
        }
        (false, true) => {
            if signer.text().is_empty() {
                signer.required("must be a valid signer name");
            }
            super::super::certificates::signer_name(&signer);
            selector.label_selector();
        }
        (false, false) => bundle.required("either name or signerName must be specified"),
    }
    bundle.at("path").require();
    local_path(&bundle.at("path"));
}

fn pod_certificate(certificate: &Field<'_, '_>) {
    super::super::certificates::signer_name(&certificate.at("signerName"));
    super::super::certificates::user_annotations(&certificate.at("userAnnotations"));
    certificate.at("keyType").one_of(KEY_TYPES);
    let seconds = certificate.at("maxExpirationSeconds");
    let kubernetes = certificate.at("signerName").text().starts_with("kubernetes.io/");
    let most = if kubernetes { 86_400 } else { 91 * 86_400 };
    if seconds.exists() && seconds.int() < 3600 {
        seconds.invalid("if provided, maxExpirationSeconds must be >= 3600");
    }
    if seconds.int() > most {
        seconds.invalid(format!("if provided, maxExpirationSeconds must be <= {most}"));
    }
    let mut paths = 0;
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        if !certificate.at(field).is_empty() {
            paths += 1;
            local_path(&certificate.at(field));
        }
    }
    if paths == 0 {
        certificate.required(
            "specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
        );
    }
}

fn csi(source: &Field<'_, '_>) {
    shared::csi_driver_name(&source.at("driver"));
    if source.at("nodePublishSecretRef").exists() {
        let name = source.at("nodePublishSecretRef.name");
        if name.require() {
            let reported = name.on_path(source.path().child("name"));
            reported.faults(names::name_is_dns_subdomain(name.text(), false));
        }
    }
}

/// A claim that is made for the pod; only its labels and annotations are the pod's to give.
fn ephemeral(source: &Field<'_, '_>) {
    let template = source.at("volumeClaimTemplate");
    if !template.exists() {
        return;
    }
    let metadata = template.at("metadata");
    template.extend(super::super::metadata::validate_annotations(
        &metadata.at("annotations").labels(),
        metadata.at("annotations").path(),
    ));
    metadata.at("labels").label_map();
    for field in metadata.map().into_iter().flatten().map(|(field, _)| field.as_str()) {
        if !matches!(field, "labels" | "annotations" | "creationTimestamp") {
            metadata.push(Error::forbidden(&metadata.path().child(field), "cannot be set"));
        }
    }
    claim::validate_spec(&template.at("spec"));
}
