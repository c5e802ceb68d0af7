//! Devices by name (`vendor.com/class=name`), as the Container Device Interface has it: files in
//! `/etc/cdi` and `/var/run/cdi` say what a device needs to be used in a container. It becomes part
//! of the container's configuration, as if the caller had said it.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::cri::v1::{ContainerConfig, Device, KeyValue, Mount};

/// Where specifications are; a later one goes before an earlier one.
pub const FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// Longest specification that is read.
const LONGEST: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CdiError {
    #[error("unresolvable CDI devices {0}")]
    Unknown(String),
    #[error("{0:?} is no name of a CDI device: it must be VENDOR/CLASS=NAME")]
    Name(String),
    #[error("CDI device {0} needs hooks to be run, which this runtime does not do")]
    Hooks(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Specification {
    kind: String,
    #[serde(default)]
    container_edits: Edits,
    #[serde(default)]
    devices: Vec<Described>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    name: String,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Edits {
    env: Vec<String>,
    device_nodes: Vec<Node>,
    mounts: Vec<Bind>,
    hooks: Vec<serde_json::Value>,
    additional_gids: Vec<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Node {
    path: String,
    host_path: String,
    permissions: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bind {
    host_path: String,
    container_path: String,
    options: Vec<String>,
}

/// What is known of devices, by their whole names, and of their kinds.
#[derive(Debug, Default)]
struct Known {
    devices: BTreeMap<String, Edits>,
    kinds: BTreeMap<String, Edits>,
}

/// Adds what the configuration's devices need to it.
pub fn apply(config: &mut ContainerConfig, folders: &[&Path]) -> Result<(), CdiError> {
    if config.cdi_devices.is_empty() {
        return Ok(());
    }
    let known = read(folders);
    let mut unknown = Vec::new();
    let (mut kinds, mut names) = (BTreeSet::new(), BTreeSet::new());
    let mut edits = Vec::new();
    for name in config.cdi_devices.iter().map(|device| device.name.clone()) {
        let Some((kind, _)) = name.split_once('=').filter(|(kind, _)| kind.contains('/')) else {
            return Err(CdiError::Name(name));
        };
        let Some(own) = known.devices.get(&name) else {
            unknown.push(name);
            continue;
        };
        // What all devices of a kind need comes once, before what each of them needs.
        let whole = known.kinds.get(kind).filter(|_| kinds.insert(kind.to_owned()));
        let own = Some(own).filter(|_| names.insert(name.clone()));
        for edit in whole.into_iter().chain(own) {
            if !edit.hooks.is_empty() {
                return Err(CdiError::Hooks(name));
            }
            edits.push(edit.clone());
        }
    }
    if !unknown.is_empty() {
        return Err(CdiError::Unknown(unknown.join(", ")));
    }
    edits.into_iter().for_each(|edit| edit.add_to(config));
    Ok(())
}

fn read(folders: &[&Path]) -> Known {
    let mut known = Known::default();
    for folder in folders {
        let mut paths: Vec<_> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        for path in paths {
            let is_specification =
                path.extension().is_some_and(|end| end == "json" || end == "yaml" || end == "yml");
            let is_short = fs::metadata(&path).is_ok_and(|file| file.len() <= LONGEST);
            if !is_specification || !is_short {
                continue;
            }
            match fs::read_to_string(&path).map_err(|error| error.to_string()).and_then(|text| {
                // JSON is YAML.
                serde_saphyr::from_str::<Specification>(&text).map_err(|error| error.to_string())
            }) {
                Ok(one) => known.add(one),
                Err(why) => tracing::warn!("{} is no CDI specification: {why}", path.display()),
            }
        }
    }
    known
}

impl Known {
    fn add(&mut self, one: Specification) {
        for device in one.devices {
            self.devices.insert(format!("{}={}", one.kind, device.name), device.container_edits);
        }
        self.kinds.insert(one.kind, one.container_edits);
    }
}

impl Edits {
    fn add_to(self, config: &mut ContainerConfig) {
        for variable in self.env {
            let (key, value) = variable.split_once('=').unwrap_or((&variable, ""));
            config.envs.retain(|known| known.key != key);
            config.envs.push(KeyValue { key: key.to_owned(), value: value.into() });
        }
        config.devices.extend(self.device_nodes.into_iter().map(|node| Device {
            host_path: if node.host_path.is_empty() { node.path.clone() } else { node.host_path },
            container_path: node.path,
            permissions: if node.permissions.is_empty() { "rwm".into() } else { node.permissions },
        }));
        config.mounts.extend(self.mounts.into_iter().map(|mount| {
            Mount {
                host_path: mount.host_path,
                container_path: mount.container_path,
                readonly: mount.options.iter().any(|option| option == "ro"),
                mount_options: mount
                    .options
                    .into_iter()
                    .filter(|option| ["noexec", "nosuid", "nodev"].contains(&option.as_str()))
                    .collect(),
                ..Mount::default()
            }
        }));
        if !self.additional_gids.is_empty() {
            let linux = config.linux.get_or_insert_default();
            let security = linux.security_context.get_or_insert_default();
            security
                .supplemental_groups
                .extend(self.additional_gids.iter().map(|id| i64::from(*id)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::v1::CdiDevice;

    fn check(devices: &[&str], expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let json = r#"{ "cdiVersion": "0.6.0", "kind": "vendor.com/gpu",
            "containerEdits": { "env": ["ALL=1"], "additionalGids": [44] },
            "devices": [
                { "name": "0", "containerEdits": {
                    "env": ["GPU=0"],
                    "deviceNodes": [{ "path": "/dev/gpu0", "hostPath": "/dev/null" }],
                    "mounts": [{ "hostPath": "/lib/gpu", "containerPath": "/gpu", "options": ["ro", "nosuid", "bind"] }] } },
                { "name": "1", "containerEdits": { "env": ["GPU=1"] } },
                { "name": "hooked", "containerEdits": { "hooks": [{ "hookName": "createContainer", "path": "/x" }] } }
            ] }"#;
        fs::write(folder.path().join("gpu.json"), json).unwrap();
        let yaml =
            "kind: other.com/nic\ndevices:\n- name: a\n  containerEdits:\n    env: [NIC=a]\n";
        fs::write(folder.path().join("nic.yaml"), yaml).unwrap();
        fs::write(folder.path().join("broken.json"), "{").unwrap();
        fs::write(folder.path().join("readme"), "no").unwrap();
        let device = |name: &&str| CdiDevice { name: String::from(*name) };
        let mut config = ContainerConfig {
            cdi_devices: devices.iter().map(device).collect(),
            envs: vec![KeyValue { key: "GPU".into(), value: "none".into() }],
            ..ContainerConfig::default()
        };
        let said = match apply(&mut config, &[folder.path()]) {
            Err(error) => error.to_string(),
            Ok(()) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let mut words: Vec<String> = config
                    .envs
                    .iter()
                    .map(|env| format!("{}={}", env.key, text(&env.value)))
                    .collect();
                words.extend(config.devices.iter().map(|one| {
                    format!("{}:{}:{}", one.host_path, one.container_path, one.permissions)
                }));
                words.extend(config.mounts.iter().map(|one| {
                    format!(
                        "{}:{}:{}:{:?}",
                        one.host_path, one.container_path, one.readonly, one.mount_options
                    )
                }));
                let security = config.linux.and_then(|linux| linux.security_context);
                words.push(format!("{:?}", security.unwrap_or_default().supplemental_groups));
                words.join(" ")
            }
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn a_device_is_what_its_specification_says() {
        check(&[], "GPU=none []");
        check(
            &["vendor.com/gpu=0", "vendor.com/gpu=0"],
            "ALL=1 GPU=0 /dev/null:/dev/gpu0:rwm /lib/gpu:/gpu:true:[\"nosuid\"] [44]",
        );
        check(&["vendor.com/gpu=1", "other.com/nic=a"], "ALL=1 GPU=1 NIC=a [44]");
    }

    #[test]
    fn what_cannot_be_done_is_told() {
        check(
            &["vendor.com/gpu=7", "vendor.com/gpu=8"],
            "unresolvable CDI devices vendor.com/gpu=7, vendor.com/gpu=8",
        );
        check(&["gpu"], "\"gpu\" is no name of a CDI device: it must be VENDOR/CLASS=NAME");
        check(
            &["vendor.com/gpu=hooked"],
            "CDI device vendor.com/gpu=hooked needs hooks to be run, which this runtime does not do",
        );
    }
}
