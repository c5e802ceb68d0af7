//! A container as the document that other OCI runtimes read: `config.json` of a bundle.
use std::path::Path;

use serde_json::{Value, json};

use super::super::spec::{
    ContainerSpec, Device, ForeignSpec, Identity, Mount, ProcessSpec, Propagation, Source,
};
use super::super::sys::{self, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID};
use crate::container::capability;

/// Where the source of a mount is put for the runtime to find, by its number.
pub fn staged(bundle: &Path, number: usize) -> std::path::PathBuf {
    bundle.join(format!("mounts/{number}"))
}

/// The whole document. `namespaces` are the sandbox's, by path.
pub fn container(
    spec: &ContainerSpec,
    foreign: &ForeignSpec,
    bundle: &Path,
    namespaces: Vec<Value>,
    identity: &Identity,
) -> Value {
    let mut mounts: Vec<(usize, &Mount)> = spec.mounts.iter().enumerate().collect();
    // Parents before children, as we attach them ourselves.
    mounts.sort_by_key(|(_, mount)| Path::new(&mount.destination).components().count());
    let propagates = |wanted| spec.mounts.iter().any(|mount| mount.propagation == wanted);
    let mut linux = json!({
        "namespaces": namespaces,
        "cgroupsPath": foreign.cgroups_path,
        "resources": foreign.resources,
        "devices": spec.devices.iter().map(device).collect::<Vec<_>>(),
        "maskedPaths": spec.masked_paths,
        "readonlyPaths": spec.readonly_paths,
        "rootfsPropagation": if propagates(Propagation::Bidirectional) {
            "rshared"
        } else if propagates(Propagation::HostToContainer) {
            "rslave"
        } else {
            "rprivate"
        },
    });
    if let Some(seccomp) = &foreign.seccomp {
        linux["seccomp"] = seccomp.clone();
    }
    if let Some(label) = &spec.process.selinux {
        linux["mountLabel"] = json!(label);
    }
    json!({
        "ociVersion": "1.0.2",
        "process": process(&spec.process, identity),
        "root": { "path": spec.root.upper, "readonly": spec.root.readonly },
        "mounts": mounts
            .iter()
            .map(|(number, each)| mount(each, &staged(bundle, *number), spec.cgroup_writable))
            .collect::<Vec<_>>(),
        "linux": linux,
    })
}

/// `process`, also of a later exec.
pub fn process(process: &ProcessSpec, identity: &Identity) -> Value {
    // What the host's root lacks nobody gets; other runtimes fail over it.
    let names = |set| capability::names(set & sys::permitted().unwrap_or(u64::MAX));
    let bounding = names(process.capabilities.bounding);
    let ambient = names(process.capabilities.ambient);
    let mut environment = process.environment.clone();
    if !environment.iter().any(|line| line.starts_with("HOME=")) {
        environment.push(format!("HOME={}", identity.home));
    }
    let mut document = json!({
        "terminal": process.terminal,
        "user": {
            "uid": identity.uid,
            "gid": identity.gid,
            "additionalGids": identity.groups,
        },
        "args": process.arguments,
        "env": environment,
        "cwd": process.directory,
        "capabilities": {
            "bounding": bounding,
            "effective": bounding,
            "permitted": bounding,
            "inheritable": ambient,
            "ambient": ambient,
        },
        "noNewPrivileges": process.no_new_privileges,
    });
    for (name, value) in [
        ("apparmorProfile", process.apparmor.as_ref().map(|profile| json!(profile))),
        ("selinuxLabel", process.selinux.as_ref().map(|label| json!(label))),
        ("oomScoreAdj", process.oom_score.map(|score| json!(score))),
    ] {
        if let Some(value) = value {
            document[name] = value;
        }
    }
    document
}

fn mount(mount: &Mount, staged: &Path, writable: bool) -> Value {
    let mut options: Vec<String> = Vec::new();
    let (kind, source) = match &mount.source {
        Source::Filesystem { kind, options: own } => {
            options.extend(own.split(',').filter(|o| !o.is_empty()).map(str::to_owned));
            (kind.as_str(), kind.clone())
        }
        Source::Cgroups => {
            if !writable {
                options.push("ro".to_owned());
            }
            ("cgroup", "cgroup".to_owned())
        }
        Source::Bind(_) | Source::Layers { .. } => {
            let propagation = match mount.propagation {
                Propagation::Private => "rprivate",
                Propagation::HostToContainer => "rslave",
                Propagation::Bidirectional => "rshared",
            };
            options.extend(["rbind".to_owned(), propagation.to_owned()]);
            ("bind", staged.display().to_string())
        }
    };
    for (set, word) in [
        (mount.readonly && !matches!(mount.source, Source::Cgroups), "ro"),
        (mount.attributes & MOUNT_ATTR_NOSUID != 0, "nosuid"),
        (mount.attributes & MOUNT_ATTR_NODEV != 0, "nodev"),
        (mount.attributes & MOUNT_ATTR_NOEXEC != 0, "noexec"),
    ] {
        if set {
            options.push(word.to_owned());
        }
    }
    json!({
        "destination": mount.destination,
        "type": kind,
        "source": source,
        "options": options,
    })
}

fn device(device: &Device) -> Value {
    json!({
        "path": device.path,
        "type": if device.mode & libc::S_IFMT == libc::S_IFBLK { "b" } else { "c" },
        "major": rustix::fs::major(device.number),
        "minor": rustix::fs::minor(device.number),
        "fileMode": device.mode & 0o7777,
        "uid": device.uid,
        "gid": device.gid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(each: Mount, expected: &str) {
        let made = mount(&each, Path::new("/b/mounts/0"), false);
        let options: Vec<&str> =
            made["options"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let words = ["type", "source"].map(|name| made[name].as_str().unwrap().to_owned());
        assert_eq!(format!("{} {}", words.join(" "), options.join(",")), expected);
    }

    #[test]
    fn mounts_are_said_in_the_specification_s_words() {
        let bind = Mount {
            destination: "/data".to_owned(),
            source: Source::Bind("/host".into()),
            readonly: true,
            recursive_readonly: false,
            propagation: Propagation::HostToContainer,
            mapped: false,
            attributes: MOUNT_ATTR_NOEXEC,
        };
        check(bind.clone(), "bind /b/mounts/0 rbind,rslave,ro,noexec");
        let source = Source::Filesystem { kind: "proc".to_owned(), options: "a=b".to_owned() };
        check(Mount { source, readonly: false, ..bind.clone() }, "proc proc a=b,noexec");
        check(Mount { source: Source::Cgroups, ..bind }, "cgroup cgroup ro,noexec");
    }
}
