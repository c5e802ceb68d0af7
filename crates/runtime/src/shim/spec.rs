//! What the daemon tells the shim: plain data, with every decision made. The shim knows no images,
//! no defaults and no protocol but this.
use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The namespaces that containers of one sandbox share.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub id: String,
    pub hostname: String,
    /// By path below `/proc/sys`.
    pub sysctls: BTreeMap<PathBuf, String>,
    /// Where the network namespace is pinned; none for the host's.
    pub network: Option<PathBuf>,
    /// Whether it has an IPC namespace of its own.
    pub ipc: bool,
    /// Whether its containers share one process namespace.
    pub shared_pids: bool,
    /// A user namespace of its own, with these numbers.
    pub users: Option<UserMap>,
    pub cgroup: Vec<PathBuf>,
    /// Who makes its containers, if it is not us.
    pub runtime: Option<RuntimeSpec>,
}

/// Another OCI runtime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RuntimeSpec {
    pub path: PathBuf,
    /// For its state and what it is told; a short path.
    pub folder: PathBuf,
}

/// Which of the host's users and groups a sandbox's are.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
pub struct UserMap {
    pub users: IdMap,
    pub groups: IdMap,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
pub struct IdMap {
    pub inside: u32,
    pub host: u32,
    pub length: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Its folder, with its record.
    pub folder: PathBuf,
    pub process: ProcessSpec,
    pub root: RootSpec,
    pub pids: PidNamespace,
    /// The host's network and IPC, whatever the sandbox has.
    pub host_network: bool,
    pub host_ipc: bool,
    /// Whether it is in the sandbox's user namespace.
    pub own_users: bool,
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    /// Its control groups, one folder a hierarchy.
    pub cgroup: Vec<PathBuf>,
    /// Controllers mounted for it to read: name and options, v1 only.
    pub cgroup_controllers: Vec<String>,
    pub cgroup_writable: bool,
    pub log: Option<PathBuf>,
    pub stdin: bool,
    pub stdin_once: bool,
    /// For another OCI runtime.
    pub foreign: Option<ForeignSpec>,
}

/// What another OCI runtime is told besides: documents of its specification.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForeignSpec {
    pub cgroups_path: String,
    pub resources: serde_json::Value,
    pub seccomp: Option<serde_json::Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum PidNamespace {
    Own,
    Sandbox,
    Host,
    /// That of another container.
    Of(String),
}

/// Layers for overlayfs, or a folder that is the root already. Either way the root is mounted on
/// `upper`, in a namespace that only the container sees: no folder has to be made for that.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RootSpec {
    /// The folder that `lower` is relative to.
    pub layers: PathBuf,
    /// Topmost first; none if `upper` is the root already.
    pub lower: Vec<String>,
    pub upper: PathBuf,
    pub work: PathBuf,
    pub readonly: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProcessSpec {
    pub arguments: Vec<String>,
    pub environment: Vec<String>,
    pub directory: String,
    pub user: UserSpec,
    pub terminal: bool,
    pub capabilities: Capabilities,
    pub no_new_privileges: bool,
    /// The filter program in base64.
    pub seccomp: Option<String>,
    pub apparmor: Option<String>,
    pub selinux: Option<String>,
    pub oom_score: Option<i32>,
    pub limits: Vec<Limit>,
}

/// Bit sets, by capability number.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Capabilities {
    pub bounding: u64,
    pub ambient: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Limit {
    pub resource: u32,
    pub soft: u64,
    pub hard: u64,
}

/// Who a process is, as far as can be said without the container's own `/etc/passwd`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct UserSpec {
    /// A number or a name; empty is root.
    pub user: String,
    /// A number or a name; without one the user's own.
    pub group: Option<String>,
    pub supplemental: Vec<u32>,
    /// Whether groups of the user in `/etc/group` are added.
    pub merge_groups: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mount {
    pub destination: String,
    pub source: Source,
    pub readonly: bool,
    /// Whether mounts below the source are read-only too.
    pub recursive_readonly: bool,
    pub propagation: Propagation,
    /// Whether owners on it are the sandbox's users, not the host's.
    pub mapped: bool,
    /// Kernel's mount attributes to set besides.
    pub attributes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Source {
    /// A file or folder of the host.
    Bind(PathBuf),
    /// A new file system.
    Filesystem { kind: String, options: String },
    /// An image's layers, read-only, and a path inside them.
    Layers { layers: PathBuf, lower: Vec<String>, path: String },
    /// The container's own control groups.
    Cgroups,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq, Default)]
pub enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Device {
    pub path: String,
    /// What it is on the host.
    pub host: PathBuf,
    /// `S_IFCHR` or `S_IFBLK`, with the permissions.
    pub mode: u32,
    pub number: u64,
    pub uid: u32,
    pub gid: u32,
}

/// The name of a container's record in its folder.
pub const RECORD: &str = "record";

/// A line of a container's record after the first, which is the daemon's.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum Event {
    Started(Started),
    Exited(Exit),
}

#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Started {
    pub pid: i32,
    /// Nanoseconds since the epoch, as everywhere in CRI.
    pub at: i64,
    pub identity: Identity,
}

#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    pub at: i64,
    pub oom_killed: bool,
    /// Why it never ran, or was lost.
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub reason: String,
}
