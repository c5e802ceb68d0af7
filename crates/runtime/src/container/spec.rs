//! CRI's `ContainerConfig` and an image become a [`ContainerSpec`].
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;

use super::capability::{self, UnknownCapability};
use super::oci;
use crate::cgroup::{self, DeviceRule, Group, Resources};
use crate::cri::v1::security_profile::ProfileType;
use crate::cri::v1::{
    ContainerConfig, LinuxContainerResources, LinuxContainerSecurityContext, MountPropagation,
    NamespaceMode, PodSandboxConfig, SecurityProfile, SupplementalGroupsPolicy,
};
use crate::image::Image;
use crate::seccomp;
use crate::shim::spec::{
    ContainerSpec, Device, ForeignSpec, IdMap, Mount, PidNamespace, ProcessSpec, Propagation,
    RootSpec, Source, UserMap, UserSpec,
};
use crate::shim::sys::{MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID};
use crate::users;

#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    #[error(transparent)]
    Capability(#[from] UnknownCapability),
    #[error("failed to read seccomp profile {path}")]
    SeccompFile { path: String, source: std::io::Error },
    #[error(transparent)]
    Seccomp(#[from] seccomp::InvalidProfile),
    #[error(transparent)]
    SeccompLength(#[from] seccomp::TooLong),
    #[error("no command specified")]
    NoCommand,
    #[error("failed to use {path} of the host")]
    HostPath { path: String, source: std::io::Error },
    #[error("device {0} is not one")]
    NotADevice(String),
    #[error("AppArmor is not enabled on this host")]
    NoAppArmor,
    #[error("recursive read-only mounts must be read-only and private: {0}")]
    RecursiveReadOnly(String),
    #[error("mount {path} needs image {image}, which is not present")]
    ImageMount { path: String, image: String },
    #[error("mount {0} is of an image, so it must be read-only")]
    WritableImage(String),
    #[error("mount {path}: the image has no {sub_path:?}")]
    SubPath { path: String, sub_path: String },
    #[error(
        "a user namespace is the pod's, with one mapping of users and one of groups, from 0 on"
    )]
    UserNamespace,
    #[error("{0} mounts are too many: there can be {MOUNT_LIMIT}")]
    ManyMounts(usize),
    #[error("supplemental group {0} is not in the range 0-2147483647")]
    SupplementalGroup(i64),
    #[error("run_as_group is set without run_as_user or run_as_username")]
    GroupWithoutUser,
}

/// Everything a container's specification is made from.
pub struct Inputs<'a> {
    pub sandbox: &'a PodSandboxConfig,
    pub config: &'a ContainerConfig,
    pub image: &'a Image,
    /// The container's folder.
    pub folder: &'a Path,
    pub layers: &'a Path,
    /// Where `shm`, `resolv.conf`, `hosts` and `hostname` of the sandbox are.
    pub sandbox_folder: &'a Path,
    pub shm: &'a Path,
    pub group: &'a Group,
    pub hostname: &'a str,
    /// Whether another OCI runtime makes it.
    pub foreign: bool,
    /// Finds the layers (topmost first) of an image that is mounted.
    pub image_layers: &'a dyn Fn(&str) -> Option<Vec<String>>,
}

const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What of the kernel's own files is hidden when nothing else is said.
#[rustfmt::skip]
const MASKED: &[&str] = &[
    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
    "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
    "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
];
#[rustfmt::skip]
const READ_ONLY: &[&str] =
    &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Devices every container has: name, major, minor.
const DEVICES: &[(&str, u32, u32)] = &[
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

pub fn build(inputs: &Inputs<'_>) -> Result<ContainerSpec, SpecError> {
    let config = inputs.config;
    let linux = config.linux.clone().unwrap_or_default();
    let security = linux.security_context.unwrap_or_default();
    let namespaces = security.namespace_options.clone().unwrap_or_default();
    let privileged = security.privileged;
    let own_users = user_map(inputs.sandbox)?.is_some();
    let named = security.run_as_user.is_some() || !security.run_as_username.is_empty();
    if security.run_as_group.is_some() && !named {
        return Err(SpecError::GroupWithoutUser);
    }
    let pids = match namespaces.pid() {
        NamespaceMode::Pod => PidNamespace::Sandbox,
        NamespaceMode::Container => PidNamespace::Own,
        NamespaceMode::Node => PidNamespace::Host,
        NamespaceMode::Target => PidNamespace::Of(namespaces.target_id.clone()),
    };
    let hide = !privileged;
    let list = |asked: &[String], default: &[&str]| -> Vec<String> {
        match (hide, asked) {
            (false, _) => Vec::new(),
            (true, []) => default.iter().map(|path| (*path).to_owned()).collect(),
            (true, asked) => asked.to_vec(),
        }
    };
    let log = (!config.log_path.is_empty() && !inputs.sandbox.log_directory.is_empty())
        .then(|| Path::new(&inputs.sandbox.log_directory).join(&config.log_path));
    let v1 = !cgroup::is_unified();
    let controllers = cgroup::hierarchies().iter().filter(|h| !h.is_v2());
    let process = process(inputs, &security)?;
    let foreign = match inputs.foreign {
        true => Some(foreign(inputs, &security, process.capabilities.bounding)?),
        false => None,
    };
    Ok(ContainerSpec {
        folder: inputs.folder.to_owned(),
        process,
        foreign,
        root: RootSpec {
            layers: inputs.layers.to_owned(),
            lower: inputs.image.layers.iter().rev().map(|chain| chain.hex()).collect(),
            upper: inputs.folder.join("upper"),
            work: inputs.folder.join("work"),
            readonly: security.readonly_rootfs,
        },
        pids,
        host_network: namespaces.network() == NamespaceMode::Node,
        host_ipc: namespaces.ipc() == NamespaceMode::Node,
        own_users,
        mounts: mounts(inputs, &security)?,
        devices: devices(config, privileged)?,
        masked_paths: list(&security.masked_paths, MASKED),
        readonly_paths: list(&security.readonly_paths, READ_ONLY),
        cgroup: inputs.group.folders(),
        cgroup_controllers: match v1 {
            true => controllers.map(|h| h.controllers.join(",")).collect(),
            false => Vec::new(),
        },
        cgroup_writable: privileged,
        log,
        stdin: config.stdin,
        stdin_once: config.stdin_once,
    })
}

fn process(
    inputs: &Inputs<'_>,
    security: &LinuxContainerSecurityContext,
) -> Result<ProcessSpec, SpecError> {
    let (config, defaults) = (inputs.config, &inputs.image.defaults);
    let capabilities = capability::choose(security.capabilities.as_ref(), security.privileged)?;
    let resources = config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    let directory = [&config.working_dir, &defaults.working_dir]
        .into_iter()
        .find(|directory| !directory.is_empty())
        .map_or("/", String::as_str);
    Ok(ProcessSpec {
        arguments: arguments(inputs)?,
        environment: environment(inputs),
        directory: Path::new("/").join(directory).display().to_string(),
        user: user(security, &defaults.user)?,
        terminal: config.tty,
        capabilities,
        no_new_privileges: security.no_new_privs,
        seccomp: seccomp_profile(security, capabilities.bounding)?
            .as_ref()
            .map(seccomp_program)
            .transpose()?,
        apparmor: apparmor(security)?,
        selinux: selinux(security),
        oom_score: resources.map(|r| oom_score(r.oom_score_adj, own_oom_score())),
        limits: Vec::new(),
    })
}

/// What this process may not go below: its own score, if it lacks the capability to.
fn own_oom_score() -> Option<i32> {
    const SYS_RESOURCE: u64 = 1 << 24;
    if crate::shim::sys::permitted().is_ok_and(|set| set & SYS_RESOURCE != 0) {
        return None;
    }
    std::fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse().ok()
}

/// The nearest score that is allowed, as with upstream's runtimes: a pod is worth more than its place
/// in the order in which pods are killed.
fn oom_score(asked: i64, lowest: Option<i32>) -> i32 {
    static TOLD: std::sync::Once = std::sync::Once::new();
    let asked = asked.clamp(-1000, 1000) as i32;
    match lowest {
        Some(lowest) if asked < lowest => {
            TOLD.call_once(|| {
                tracing::warn!(
                    "containers that ask for an OOM score below {lowest} get {lowest}: for less \
                     the runtime needs CAP_SYS_RESOURCE"
                );
            });
            lowest
        }
        _ => asked,
    }
}

/// CRI's command replaces the image's entrypoint and its arguments; arguments alone replace only
/// the image's.
fn arguments(inputs: &Inputs<'_>) -> Result<Vec<String>, SpecError> {
    let (config, defaults) = (inputs.config, &inputs.image.defaults);
    let mut arguments = config.command.clone();
    let mut rest = config.args.clone();
    if arguments.is_empty() {
        arguments = defaults.entrypoint.clone().unwrap_or_default();
        if rest.is_empty() {
            rest = defaults.cmd.clone().unwrap_or_default();
        }
    }
    arguments.extend(rest);
    if arguments.is_empty() { Err(SpecError::NoCommand) } else { Ok(arguments) }
}

fn environment(inputs: &Inputs<'_>) -> Vec<String> {
    let mut lines: Vec<String> = vec![DEFAULT_PATH.to_owned()];
    let mut set = |line: String| {
        let key = line.split('=').next().unwrap_or_default().to_owned() + "=";
        lines.retain(|known| !known.starts_with(&key));
        lines.push(line);
    };
    set(format!("HOSTNAME={}", inputs.hostname));
    if inputs.config.tty {
        set("TERM=xterm".to_owned());
    }
    inputs.image.defaults.env.iter().flatten().cloned().for_each(&mut set);
    for variable in &inputs.config.envs {
        set(format!("{}={}", variable.key, String::from_utf8_lossy(&variable.value)));
    }
    lines
}

fn user(security: &LinuxContainerSecurityContext, image: &str) -> Result<UserSpec, SpecError> {
    let (image_user, image_group) = match image.split_once(':') {
        Some((user, group)) => (user, Some(group.to_owned())),
        None => (image, None),
    };
    let asked = match (&security.run_as_user, security.run_as_username.as_str()) {
        (Some(number), _) => Some(number.value.to_string()),
        (None, "") => None,
        (None, name) => Some(name.to_owned()),
    };
    let group = security.run_as_group.as_ref().map(|number| number.value.to_string());
    let supplemental = security.supplemental_groups.iter().map(|group| {
        let number = i32::try_from(*group).ok().and_then(|number| u32::try_from(number).ok());
        number.ok_or(SpecError::SupplementalGroup(*group))
    });
    Ok(UserSpec {
        group: group.or(if asked.is_none() { image_group } else { None }),
        user: asked.unwrap_or_else(|| image_user.to_owned()),
        supplemental: supplemental.collect::<Result<_, _>>()?,
        merge_groups: security.supplemental_groups_policy() == SupplementalGroupsPolicy::Merge,
    })
}

/// The filter in base64.
fn seccomp_program(profile: &seccomp::Profile) -> Result<String, SpecError> {
    let program = seccomp::compile(profile)?;
    Ok(base64::engine::general_purpose::STANDARD.encode(program))
}

fn seccomp_profile(
    security: &LinuxContainerSecurityContext,
    capabilities: u64,
) -> Result<Option<seccomp::Profile>, SpecError> {
    if security.privileged {
        return Ok(None);
    }
    let asked = security.seccomp.clone().unwrap_or_else(|| old_seccomp(security));
    Ok(Some(match asked.profile_type() {
        ProfileType::Unconfined => return Ok(None),
        ProfileType::RuntimeDefault => seccomp::default_profile(capabilities),
        ProfileType::Localhost => {
            let path = asked.localhost_ref;
            let text =
                std::fs::read(&path).map_err(|source| SpecError::SeccompFile { path, source })?;
            seccomp::parse(&text)?
        }
    }))
}

/// What another OCI runtime has to do itself: limits, devices, the filter.
fn foreign(
    inputs: &Inputs<'_>,
    security: &LinuxContainerSecurityContext,
    capabilities: u64,
) -> Result<ForeignSpec, SpecError> {
    let asked = inputs.config.linux.as_ref().and_then(|linux| linux.resources.clone());
    let limits = resources(&asked.unwrap_or_default());
    let rules = device_rules(inputs.config, security.privileged);
    let profile = seccomp_profile(security, capabilities)?;
    Ok(ForeignSpec {
        cgroups_path: inputs.group.path(),
        resources: oci::resources(&limits, &rules),
        seccomp: profile.as_ref().map(oci::seccomp),
    })
}

/// The spelling that the field `seccomp` replaced.
fn old_seccomp(security: &LinuxContainerSecurityContext) -> SecurityProfile {
    let path = security.seccomp_profile_path.as_str();
    let (profile_type, localhost_ref) = match path {
        "runtime/default" | "docker/default" => (ProfileType::RuntimeDefault, ""),
        path => match path.strip_prefix("localhost/") {
            Some(path) => (ProfileType::Localhost, path),
            None => (ProfileType::Unconfined, ""),
        },
    };
    SecurityProfile { profile_type: profile_type.into(), localhost_ref: localhost_ref.to_owned() }
}

fn apparmor(security: &LinuxContainerSecurityContext) -> Result<Option<String>, SpecError> {
    let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled")
        .is_ok_and(|text| text.starts_with('Y'));
    // The field that `apparmor` replaced.
    let old = security.apparmor_profile.starts_with("localhost/").then(|| SecurityProfile {
        profile_type: ProfileType::Localhost.into(),
        localhost_ref: security.apparmor_profile.clone(),
    });
    let asked = security.apparmor.as_ref().or(old.as_ref());
    match asked.map(|profile| (profile.profile_type(), &profile.localhost_ref)) {
        Some((ProfileType::Localhost, name)) if !security.privileged => {
            let name = name.strip_prefix("localhost/").unwrap_or(name);
            if enabled { Ok(Some(name.to_owned())) } else { Err(SpecError::NoAppArmor) }
        }
        _ => Ok(None),
    }
}

fn selinux(security: &LinuxContainerSecurityContext) -> Option<String> {
    let options = security.selinux_options.as_ref()?;
    let enabled = Path::new("/sys/fs/selinux/enforce").exists();
    (enabled && !options.r#type.is_empty())
        .then(|| format!("{}:{}:{}:{}", options.user, options.role, options.r#type, options.level))
}

/// The sandbox's own users, if it has a user namespace.
pub fn user_map(sandbox: &PodSandboxConfig) -> Result<Option<UserMap>, SpecError> {
    let linux = sandbox.linux.as_ref();
    let security = linux.and_then(|linux| linux.security_context.as_ref());
    let namespaces = security.and_then(|security| security.namespace_options.as_ref());
    let Some(asked) = namespaces.and_then(|namespaces| namespaces.userns_options.as_ref()) else {
        return Ok(None);
    };
    match asked.mode() {
        NamespaceMode::Pod => {}
        NamespaceMode::Node => return Ok(None),
        NamespaceMode::Container | NamespaceMode::Target => return Err(SpecError::UserNamespace),
    }
    let only = |list: &[crate::cri::v1::IdMapping]| match list {
        [map] if map.container_id == 0 && map.length > 0 => {
            Ok(IdMap { inside: 0, host: map.host_id, length: map.length })
        }
        _ => Err(SpecError::UserNamespace),
    };
    Ok(Some(UserMap { users: only(&asked.uids)?, groups: only(&asked.gids)? }))
}

fn filesystem(destination: &str, kind: &str, options: &str, attributes: u64) -> Mount {
    Mount {
        destination: destination.to_owned(),
        source: Source::Filesystem { kind: kind.to_owned(), options: options.to_owned() },
        readonly: false,
        recursive_readonly: false,
        propagation: Propagation::Private,
        mapped: false,
        attributes,
    }
}

fn bind(destination: &str, source: PathBuf) -> Mount {
    Mount {
        destination: destination.to_owned(),
        source: Source::Bind(source),
        readonly: false,
        recursive_readonly: false,
        propagation: Propagation::Private,
        // Ours, for its users: seen as theirs.
        mapped: true,
        attributes: 0,
    }
}

fn mounts(
    inputs: &Inputs<'_>,
    security: &LinuxContainerSecurityContext,
) -> Result<Vec<Mount>, SpecError> {
    let safe = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    // Terminals are the group's that every distribution calls `tty`, where there is one.
    let terminals = match users::has_group(5) {
        true => "newinstance,ptmxmode=0666,mode=0620,gid=5",
        false => "newinstance,ptmxmode=0666,mode=0620",
    };
    let mut mounts = vec![
        filesystem("/proc", "proc", "", safe),
        filesystem("/dev", "tmpfs", "mode=755,size=65536k", MOUNT_ATTR_NOSUID),
        filesystem("/dev/pts", "devpts", terminals, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC),
        filesystem("/dev/mqueue", "mqueue", "", safe),
        Mount { readonly: !security.privileged, ..filesystem("/sys", "sysfs", "", safe) },
        Mount {
            source: Source::Cgroups,
            readonly: !security.privileged,
            ..filesystem("/sys/fs/cgroup", "", "", safe)
        },
        Mount { attributes: safe, ..bind("/dev/shm", inputs.shm.to_owned()) },
    ];
    for file in ["hostname", "hosts", "resolv.conf"] {
        let source = inputs.sandbox_folder.join(file);
        if source.exists() {
            let readonly = security.readonly_rootfs;
            mounts.push(Mount { readonly, ..bind(&format!("/etc/{file}"), source) });
        }
    }
    if inputs.config.mounts.len() > MOUNT_LIMIT {
        return Err(SpecError::ManyMounts(inputs.config.mounts.len()));
    }
    // Of two on one place the later counts.
    let mut last: HashMap<String, &crate::cri::v1::Mount> = HashMap::new();
    let mut order = Vec::new();
    for asked in inputs.config.mounts.iter().rev() {
        let destination = clean(&asked.container_path);
        if last.insert(destination.clone(), asked).is_none() {
            order.push((destination, asked));
        }
    }
    mounts.retain(|known| !last.contains_key(&known.destination));
    for (destination, asked) in order.into_iter().rev() {
        mounts.push(asked_mount(inputs, asked, destination)?);
    }
    Ok(mounts)
}

/// Most mounts that a container may ask for. The kernel has no more than 100,000 in a namespace, and
/// takes longer for each the more there are.
const MOUNT_LIMIT: usize = 10_000;

/// A path as it is meant, whichever way it is spelled: absolute, without `.`, `..` and needless
/// slashes. What `/dev` is must not depend on that.
fn clean(path: &str) -> String {
    let mut clean = PathBuf::from("/");
    for component in Path::new(path).components() {
        match component {
            std::path::Component::Normal(name) => clean.push(name),
            std::path::Component::ParentDir => drop(clean.pop()),
            _ => {}
        }
    }
    clean.display().to_string()
}

fn asked_mount(
    inputs: &Inputs<'_>,
    asked: &crate::cri::v1::Mount,
    destination: String,
) -> Result<Mount, SpecError> {
    let propagation = match asked.propagation() {
        MountPropagation::PropagationPrivate => Propagation::Private,
        MountPropagation::PropagationHostToContainer => Propagation::HostToContainer,
        MountPropagation::PropagationBidirectional => Propagation::Bidirectional,
    };
    let recursive = asked.recursive_read_only;
    if recursive && (!asked.readonly || propagation != Propagation::Private) {
        return Err(SpecError::RecursiveReadOnly(destination));
    }
    let source = match &asked.image {
        Some(image) if !image.image.is_empty() => {
            let lower = (inputs.image_layers)(&image.image).ok_or_else(|| {
                SpecError::ImageMount { path: destination.clone(), image: image.image.clone() }
            })?;
            let path = asked.image_sub_path.clone();
            if !asked.readonly {
                return Err(SpecError::WritableImage(destination));
            }
            if !lower.iter().any(|layer| may_have(&inputs.layers.join(layer), Path::new(&path))) {
                return Err(SpecError::SubPath { path: destination, sub_path: path });
            }
            Source::Layers { layers: inputs.layers.to_owned(), lower, path }
        }
        _ => {
            let path = PathBuf::from(&asked.host_path);
            if !path.exists() {
                // As with upstream's runtimes: a folder that is not there is made.
                std::fs::create_dir_all(&path).map_err(|source| SpecError::HostPath {
                    path: asked.host_path.clone(),
                    source,
                })?;
            }
            Source::Bind(path)
        }
    };
    let is_image = matches!(source, Source::Layers { .. });
    let mut attributes = 0;
    for option in &asked.mount_options {
        attributes |= match option.as_str() {
            "noexec" => MOUNT_ATTR_NOEXEC,
            "nosuid" => MOUNT_ATTR_NOSUID,
            "nodev" => MOUNT_ATTR_NODEV,
            _ => 0,
        };
    }
    Ok(Mount {
        destination,
        source,
        readonly: asked.readonly || is_image,
        recursive_readonly: recursive || is_image,
        propagation,
        mapped: is_image || !asked.uid_mappings.is_empty(),
        attributes,
    })
}

/// Whether a layer may have the path: behind a link only the mounted image can tell.
fn may_have(layer: &Path, path: &Path) -> bool {
    let mut at = layer.to_owned();
    for component in path.components() {
        match component {
            std::path::Component::Normal(name) => at.push(name),
            std::path::Component::ParentDir => return true,
            _ => continue,
        }
        match std::fs::symlink_metadata(&at) {
            Ok(found) if found.is_symlink() => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    true
}

fn devices(config: &ContainerConfig, privileged: bool) -> Result<Vec<Device>, SpecError> {
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    if privileged {
        host_devices(Path::new("/dev"), &mut devices);
    }
    for (path, major, minor) in DEVICES {
        let device = Device {
            path: (*path).to_owned(),
            host: PathBuf::from(path),
            mode: libc::S_IFCHR | 0o666,
            number: rustix::fs::makedev(*major, *minor),
            uid: 0,
            gid: 0,
        };
        devices.insert((*path).to_owned(), device);
    }
    for asked in &config.devices {
        for (path, device) in resolve_device(asked)? {
            devices.insert(path, device);
        }
    }
    Ok(devices.into_values().collect())
}

/// A device, or every device of a folder.
fn resolve_device(asked: &crate::cri::v1::Device) -> Result<Vec<(String, Device)>, SpecError> {
    let source = Path::new(&asked.host_path);
    let broken = |source| SpecError::HostPath { path: asked.host_path.clone(), source };
    let real = std::fs::canonicalize(source).map_err(broken)?;
    let found = std::fs::metadata(&real).map_err(broken)?;
    let to = if asked.container_path.is_empty() { &asked.host_path } else { &asked.container_path };
    if found.is_dir() {
        let mut inside = BTreeMap::new();
        host_devices(&real, &mut inside);
        let moved = inside.into_values().map(|device| {
            let rest = Path::new(&device.path).strip_prefix(&real).unwrap_or(Path::new(""));
            let path = Path::new(to).join(rest).display().to_string();
            (path.clone(), Device { path, ..device })
        });
        return Ok(moved.collect());
    }
    let device = device(&real, to).ok_or_else(|| SpecError::NotADevice(asked.host_path.clone()))?;
    Ok(vec![(to.clone(), device)])
}

fn device(source: &Path, to: &str) -> Option<Device> {
    let found = std::fs::metadata(source).ok()?;
    let kind = found.file_type();
    (kind.is_char_device() || kind.is_block_device()).then(|| Device {
        path: to.to_owned(),
        host: source.to_owned(),
        mode: found.mode(),
        number: found.rdev(),
        uid: found.uid(),
        gid: found.gid(),
    })
}

/// Every device below a folder of the host, but for terminals, which a container has its own of.
fn host_devices(folder: &Path, devices: &mut BTreeMap<String, Device>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            let name = entry.file_name();
            let own = ["pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"];
            if !own.iter().any(|own| name == *own) {
                host_devices(&path, devices);
            }
        } else if kind.is_char_device() || kind.is_block_device() {
            let text = path.display().to_string();
            if text != "/dev/console" && text != "/dev/ptmx" {
                devices.extend(device(&path, &text).map(|device| (text, device)));
            }
        }
    }
}

/// What the group lets its processes use.
pub fn device_rules(config: &ContainerConfig, privileged: bool) -> Vec<DeviceRule> {
    let rule = |kind, major, minor, access: &str| DeviceRule {
        kind,
        major,
        minor,
        access: access.to_owned(),
    };
    if privileged {
        return vec![rule('a', None, None, "rwm")];
    }
    // Making a node is harmless, using it is not.
    let mut rules = vec![rule('c', None, None, "m"), rule('b', None, None, "m")];
    for (_, major, minor) in DEVICES {
        rules.push(rule('c', Some(*major), Some(*minor), "rwm"));
    }
    rules.push(rule('c', Some(136), None, "rwm"));
    rules.push(rule('c', Some(5), Some(2), "rwm"));
    for asked in &config.devices {
        for (_, device) in resolve_device(asked).unwrap_or_default() {
            let kind = if device.mode & libc::S_IFMT == libc::S_IFBLK { 'b' } else { 'c' };
            let (major, minor) =
                (rustix::fs::major(device.number), rustix::fs::minor(device.number));
            let access = if asked.permissions.is_empty() { "rwm" } else { &asked.permissions };
            rules.push(rule(kind, Some(major), Some(minor), access));
        }
    }
    rules
}

/// CRI's limits; zero is nothing said.
pub fn resources(asked: &LinuxContainerResources) -> Resources {
    let unless_zero = |value: i64| (value != 0).then_some(value);
    let text = |value: &str| (!value.is_empty()).then(|| value.to_owned());
    Resources {
        cpu_period: unless_zero(asked.cpu_period).and_then(|v| u64::try_from(v).ok()),
        cpu_quota: unless_zero(asked.cpu_quota),
        cpu_shares: unless_zero(asked.cpu_shares).and_then(|v| u64::try_from(v).ok()),
        cpus: text(&asked.cpuset_cpus),
        memory_nodes: text(&asked.cpuset_mems),
        memory: unless_zero(asked.memory_limit_in_bytes),
        memory_and_swap: unless_zero(asked.memory_swap_limit_in_bytes),
        pids: None,
        hugepages: asked
            .hugepage_limits
            .iter()
            .map(|limit| (limit.page_size.clone(), limit.limit))
            .collect(),
        unified: asked.unified.clone().into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_that_is_not_allowed_becomes_the_nearest() {
        for (asked, lowest, score) in
            [(-998, Some(0), 0), (-998, None, -998), (500, Some(0), 500), (5000, None, 1000)]
        {
            assert_eq!(oom_score(asked, lowest), score);
        }
    }

    #[test]
    fn a_place_has_one_spelling() {
        for (path, expected) in [
            ("/dev/", "/dev"),
            ("//dev/./", "/dev"),
            ("/x/../dev", "/dev"),
            ("../../dev", "/dev"),
            ("data", "/data"),
            ("/", "/"),
        ] {
            assert_eq!(clean(path), expected);
        }
    }

    #[test]
    fn groups_that_are_none_are_refused() {
        for group in [-1, 1 << 31, i64::from(u32::MAX)] {
            let supplemental_groups = vec![group];
            let security =
                LinuxContainerSecurityContext { supplemental_groups, ..Default::default() };
            assert!(user(&security, "").is_err(), "{group}");
        }
    }
}
