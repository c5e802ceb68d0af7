//! The control groups of pods: `/kubepods`, below it one for each QoS class but `Guaranteed`, below
//! those one for each pod, which the runtime puts containers into. What a class gets of the
//! processors is what its pods ask for (`pkg/kubelet/cm`).
//!
//! Where a runtime leaves groups to systemd, each is a slice of it ([`slices`]): their names say so, and
//! [`systemd`] makes them and takes them away. Their files are written here all the same.
mod slices;
mod systemd;
#[cfg(test)]
mod tests;

pub use slices::{below, names, of as slices_of};

use crate::admission::{self, Amounts};
use crate::container::resources::{self, Enforcement, quota, shares};
use crate::pod;
use k8s_openapi::api::core::v1::Pod;
use runtime::cgroup::{Group, Resources};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MOUNTED: &str = "/sys/fs/cgroup";
/// The folders of QoS classes; guaranteed pods are beside them.
const CLASSES: [&str; 3] = ["", "burstable", "besteffort"];

/// The group of all pods, which may use what is not reserved for others.
pub fn prepare(root: &str, allocatable: &Amounts) -> io::Result<()> {
    let amount = |name: &str| allocatable.get(name).copied().unwrap_or(0);
    make(
        root,
        &Resources {
            cpu_shares: positive(shares(amount("cpu"))),
            memory: Some(amount("memory")).filter(|memory| *memory > 0),
            ..Resources::default()
        },
    )?;
    make(&below(root, "besteffort"), &Resources { cpu_shares: Some(2), ..Resources::default() })
}

/// What the configuration says of pods' groups.
pub struct Settings<'a> {
    pub enforcement: &'a Enforcement,
    /// Processes that a pod may have.
    pub pids: Option<i64>,
}

impl Settings<'_> {
    fn reserves(&self) -> bool {
        self.enforcement.is_unified && self.enforcement.reserves
    }
}

/// The group of a pod and those that it is in, whose pods are these.
pub fn make_for(
    root: &str,
    pod: &Pod,
    all: &[Arc<Pod>],
    settings: &Settings<'_>,
) -> io::Result<()> {
    if settings.reserves() {
        // What a group is promised its parent has to be promised too.
        let of = |class: &str| sum(all, class, "memory").to_string();
        let whole = [("memory.min", of("Guaranteed")), ("memory.low", of("Burstable"))];
        let unified = whole.map(|(file, bytes)| (file.to_owned(), bytes)).into();
        make(root, &Resources { unified, ..Resources::default() })?;
    }
    if resources::qos(pod) == "Burstable" {
        make(&below(root, "burstable"), &burstable(all, settings))?;
    }
    make(&resources::cgroup_parent(root, pod), &of_pod(pod, settings))
}

/// What pods of a class ask for together.
fn sum(all: &[Arc<Pod>], class: &str, name: &str) -> i64 {
    let pods = all.iter().filter(|pod| resources::qos(pod) == class);
    pods.map(|pod| admission::requests(pod).get(name).copied().unwrap_or(0)).sum()
}

fn burstable(all: &[Arc<Pod>], settings: &Settings<'_>) -> Resources {
    let mut made = Resources {
        cpu_shares: positive(shares(sum(all, "Burstable", "cpu"))),
        ..Resources::default()
    };
    if settings.reserves() {
        let asked = sum(all, "Burstable", "memory").to_string();
        made.unified.insert("memory.low".to_owned(), asked);
    }
    made
}

/// A pod whose containers all have a limit has it as a whole: what they share counts too.
fn of_pod(pod: &Pod, settings: &Settings<'_>) -> Resources {
    let (asked, limits) = (admission::requests(pod), admission::limits(pod));
    let period = settings.enforcement.period;
    let limit = |name: &str| limits.get(name).copied().filter(|limit| *limit > 0);
    let cpu = limit("cpu");
    let cpu_asked = asked.get("cpu").copied().or(cpu).unwrap_or(0);
    Resources {
        cpu_shares: positive(shares(cpu_asked)),
        cpu_period: cpu.and(period).map(i64::unsigned_abs),
        cpu_quota: cpu.zip(period).map(|(cpu, period)| quota(cpu, period)),
        memory: limit("memory"),
        pids: settings.pids,
        unified: unified(pod, asked.get("memory").copied().unwrap_or(0), settings),
        ..Resources::default()
    }
}

/// Memory that is protected, and where it is throttled.
fn unified(pod: &Pod, asked: i64, settings: &Settings<'_>) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    if settings.reserves() && asked > 0 {
        let is_guaranteed = resources::qos(pod) == "Guaranteed";
        let file = if is_guaranteed { "memory.min" } else { "memory.low" };
        files.insert(file.to_owned(), asked.to_string());
    }
    let whole = pod::spec(pod).resources.as_ref().and_then(|all| all.limits.as_ref());
    let limit = admission::amounts(whole).get("memory").copied().unwrap_or(0);
    if settings.enforcement.is_unified
        && let Some(factor) = settings.enforcement.throttling
        && asked != limit
        && let Some(high) = resources::throttled(asked, limit, factor)
    {
        files.insert("memory.high".to_owned(), high.to_string());
    }
    files
}

/// What all pods use of their memory without what can be dropped, and what they may use.
pub fn memory(root: &str) -> Option<(u64, u64)> {
    let group = Path::new(MOUNTED).join(root.trim_start_matches('/'));
    let text = |file: &str| fs::read_to_string(group.join(file)).ok();
    let number = |file: &str| text(file)?.trim().parse::<u64>().ok();
    let stat = text("memory.stat")?;
    let inactive = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let inactive = inactive.and_then(|number| number.parse().ok()).unwrap_or(0);
    Some((number("memory.current")?.saturating_sub(inactive), number("memory.max")?))
}

fn positive(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

fn make(path: &str, limits: &Resources) -> io::Result<()> {
    if let Some((unit, parent)) = slices::unit(path) {
        let limits = slices::properties(limits, runtime::cgroup::is_unified());
        systemd::make(Path::new(systemd::SOCKET), &unit, &parent, &limits)?;
    }
    let group = Group::new(path, "");
    group.create()?;
    group.apply(limits)
}

/// Removes the groups of a pod below `root`, in every hierarchy. What something still runs in stays.
pub fn remove(root: &str, uid: &str) {
    let hierarchies = hierarchies(Path::new(MOUNTED));
    for class in CLASSES {
        let class = if class.is_empty() { root.to_owned() } else { below(root, class) };
        let path = below(&class, &format!("pod{uid}"));
        let folders = hierarchies.iter().map(|mounted| mounted.join(path.trim_start_matches('/')));
        let folders: Vec<PathBuf> = folders.filter(|folder| folder.exists()).collect();
        if !folders.is_empty()
            && let Some((unit, _)) = slices::unit(&path)
            && let Err(error) = systemd::stop(Path::new(systemd::SOCKET), &unit)
        {
            tracing::debug!(%error, unit, "systemd keeps a pod's slice");
        }
        for group in folders {
            if let Err(error) = remove_below(&group)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::debug!(%error, group = %group.display(), "a pod's control group stays");
            }
        }
    }
}

/// One on machines with v2 alone, else one for each controller.
fn hierarchies(mounted: &Path) -> Vec<PathBuf> {
    if mounted.join("cgroup.controllers").exists() {
        return vec![mounted.to_owned()];
    }
    fs::read_dir(mounted).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Groups inside go first. Their files are the kernel's, and go with them.
fn remove_below(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_below(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
