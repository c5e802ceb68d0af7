//! Where volumes appear in a container.
use super::super::Field;
use super::spec::Context;
use std::collections::HashSet;

const PROPAGATIONS: &[&str] = &["Bidirectional", "HostToContainer", "None"];

pub fn mounts(container: &Field<'_, '_>, context: &Context<'_>) {
    let (mounts, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    let mut points = HashSet::new();
    for mount in mounts.items() {
        let (name, point) = (mount.at("name"), mount.at("mountPath"));
        name.require();
        if !context.volumes.contains_key(name.text()) {
            name.not_found();
        }
        point.require();
        if !points.insert(point.text()) {
            point.invalid("must be unique");
        }
        if devices.items().any(|device| device.at("name").text() == name.text()) {
            name.invalid("must not already exist in volumeDevices");
        }
        if devices.items().any(|device| device.at("devicePath").text() == point.text()) {
            point.invalid("must not already exist as a path in volumeDevices");
        }
        // Upstream leaves the index out of these paths.
        mount.at("subPath").on_path(mounts.path().child("subPath")).descending_path();
        let expression = mount.at("subPathExpr");
        if !expression.is_empty() {
            if !mount.at("subPath").is_empty() {
                expression.invalid("subPathExpr and subPath are mutually exclusive");
            }
            expression.on_path(mounts.path().child("subPathExpr")).descending_path();
        }
        propagation(
            &mount.at("mountPropagation").on_path(mounts.path().child("mountPropagation")),
            container,
        );
        recursive_read_only(&mount, &mounts);
    }
}

fn propagation(mode: &Field<'_, '_>, container: &Field<'_, '_>) {
    if !mode.exists() || !mode.one_of(PROPAGATIONS) {
        return;
    }
    if mode.text() == "Bidirectional" && !container.at("securityContext.privileged").flag() {
        mode.forbidden(
            "Bidirectional mount propagation is available only to privileged containers",
        );
    }
}

fn recursive_read_only(mount: &Field<'_, '_>, mounts: &Field<'_, '_>) {
    let field = mount.at("recursiveReadOnly").on_path(mounts.path().child("recursiveReadOnly"));
    match field.text() {
        _ if !field.exists() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.at("readOnly").flag() {
                field.forbidden("may only be specified when readOnly is true");
            }
            if !matches!(mount.at("mountPropagation").text(), "" | "None") {
                field.forbidden(
                    "may only be specified when mountPropagation is None or not specified",
                );
            }
        }
        _ => field.not_supported(&["Disabled", "Enabled", "IfPossible"]),
    }
}

pub fn devices(container: &Field<'_, '_>, context: &Context<'_>) {
    let (devices, mounts) = (container.at("volumeDevices"), container.at("volumeMounts"));
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for device in devices.items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        name.require();
        if names.contains(name.text()) {
            name.invalid("must be unique");
        }
        match context.volumes.get(name.text()) {
            None => name.not_found(),
            Some(volume) => {
                let block = ["persistentVolumeClaim", "ephemeral"];
                if !block.iter().any(|source| volume.get(source).is_some()) {
                    name.invalid(
                        "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                    );
                }
            }
        }
        path.require();
        if paths.contains(path.text()) {
            path.invalid("must be unique");
        }
        if path.text().split('/').any(|part| part == "..") {
            path.invalid("can not contain backsteps ('..')");
        } else {
            paths.insert(path.text());
        }
        if mounts.items().any(|mount| mount.at("name").text() == name.text()) {
            name.invalid("must not already exist in volumeMounts");
        }
        if mounts.items().any(|mount| mount.at("mountPath").text() == path.text()) {
            path.invalid("must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name.text());
        }
    }
}
