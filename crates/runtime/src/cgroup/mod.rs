//! Control groups: on v2, on v1, and on hosts that mount both.
//!
//! A group is a path such as `/kubepods/pod1/abc`; what it is on this machine is a folder in every
//! hierarchy that is mounted, and one value becomes one file in one of them ([`resources`]). Which
//! hierarchies there are is read once from the mount table.
//!
//! We make groups below the parent we are given and remove what we made; a parent's own limits are
//! its owner's.
mod device;
mod pressure;
mod resources;
mod stats;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::users;

pub use device::{DeviceRule, restrict_devices};
pub use pressure::{Pressure, Stall};
pub use resources::{Resources, weight};
pub use stats::{Usage, usage};

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    pub root: PathBuf,
    /// v1: its controllers, `name=…` for a named one. Empty for v2.
    pub controllers: Vec<String>,
}

impl Hierarchy {
    pub fn is_v2(&self) -> bool {
        self.controllers.is_empty()
    }

    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|c| c == controller)
    }
}

/// What is mounted here.
pub fn hierarchies() -> &'static [Hierarchy] {
    static FOUND: OnceLock<Vec<Hierarchy>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut found =
            parse_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
        // Without root there are only those that were handed over, and often none: then nothing is
        // limited and nothing is counted.
        found.retain(|hierarchy| users::is_initial() || is_ours(&hierarchy.root));
        found
    })
}

fn is_ours(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Whether limits are set through v2 files: no v1 controller is mounted.
pub fn is_unified() -> bool {
    hierarchies().iter().all(Hierarchy::is_v2)
}

fn parse_mounts(text: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in text.lines() {
        let Some((mount, source)) = line.split_once(" - ") else { continue };
        let Some(root) = mount.split(' ').nth(4).map(PathBuf::from) else { continue };
        let mut source = source.split(' ');
        let (kind, options) = (source.next(), source.nth(1).unwrap_or(""));
        let controllers: Vec<String> = match kind {
            Some("cgroup2") => Vec::new(),
            Some("cgroup") => options
                .split(',')
                .filter(|o| !matches!(*o, "rw" | "ro" | "xattr" | "clone_children"))
                .filter(|o| !o.starts_with("release_agent="))
                .map(str::to_owned)
                .collect(),
            _ => continue,
        };
        if !found.iter().any(|h| h.controllers == controllers) {
            found.push(Hierarchy { root, controllers });
        }
    }
    found
}

/// A group on this machine.
#[derive(Debug, Clone)]
pub struct Group {
    path: String,
}

impl Group {
    /// `path` is absolute below every hierarchy's root. A systemd slice's name is spelled out.
    pub fn new(parent: &str, name: &str) -> Self {
        let parent = parent.trim_matches('/');
        let parent = match parent.rsplit('/').next() {
            Some(slice) if slice.ends_with(".slice") && !parent.contains('/') => expand(slice),
            _ => parent.to_owned(),
        };
        // Never outside the hierarchy, whatever the caller says.
        let clean = Path::new(&parent)
            .join(name)
            .components()
            .filter(|part| matches!(part, std::path::Component::Normal(_)))
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join("/");
        Group { path: clean }
    }

    /// Its path below every hierarchy's root.
    pub fn path(&self) -> String {
        format!("/{}", self.path)
    }

    /// Its folders, one a hierarchy.
    pub fn folders(&self) -> Vec<PathBuf> {
        hierarchies().iter().map(|hierarchy| hierarchy.root.join(&self.path)).collect()
    }

    pub fn folder_with(&self, controller: &str) -> Option<PathBuf> {
        let unified = is_unified();
        let found =
            hierarchies().iter().find(|h| if unified { h.is_v2() } else { h.has(controller) });
        found.map(|hierarchy| hierarchy.root.join(&self.path))
    }

    /// Makes the group everywhere, with what a process needs to be put into it.
    pub fn create(&self) -> io::Result<()> {
        for hierarchy in hierarchies() {
            let mut at = hierarchy.root.clone();
            for part in Path::new(&self.path).components() {
                if hierarchy.is_v2() && is_unified() {
                    hand_down(&at);
                }
                let parent = at.clone();
                at.push(part);
                match fs::create_dir(&at) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    result => result?,
                }
                if hierarchy.has("cpuset") {
                    inherit_cpuset(&parent, &at)?;
                }
            }
        }
        Ok(())
    }

    /// Removes the group where it is; processes still in it are killed.
    pub fn remove(&self) -> io::Result<()> {
        let folders = self.folders();
        kill_all(&folders);
        for folder in folders {
            remove_tree(&folder)?;
        }
        Ok(())
    }

    pub fn apply(&self, resources: &Resources) -> io::Result<()> {
        resources.apply(self)
    }
}

/// `a-b.slice` is `a.slice/a-b.slice`.
fn expand(slice: &str) -> String {
    let name = slice.trim_end_matches(".slice");
    let parts: Vec<&str> = name.split('-').collect();
    let folders: Vec<String> =
        (1..=parts.len()).map(|count| format!("{}.slice", parts[..count].join("-"))).collect();
    folders.join("/")
}

/// Lets the folder's children have every controller it has itself. Best effort: a controller in use
/// elsewhere is missing below, and a limit that needs it says so.
fn hand_down(folder: &Path) {
    let words = |file| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let (available, given) = (words("cgroup.controllers"), words("cgroup.subtree_control"));
    // Each write stops every group of the machine for a moment: only those that are missing.
    let has = |wanted: &&str| given.split_whitespace().any(|controller| controller == *wanted);
    for controller in available.split_whitespace().filter(|controller| !has(controller)) {
        let _ = fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// v1: a group without processors and memory nodes takes no process.
fn inherit_cpuset(parent: &Path, child: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if fs::read_to_string(child.join(file))?.trim().is_empty() {
            fs::write(child.join(file), fs::read_to_string(parent.join(file))?.trim())?;
        }
    }
    Ok(())
}

fn remove_tree(folder: &Path) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    // A process that was killed may take a moment to leave.
    for _ in 0..100 {
        match fs::remove_dir(folder) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                kill_all(std::slice::from_ref(&folder.to_owned()));
                std::thread::yield_now();
                let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
                let _ = rustix::event::poll(&mut [], Some(&pause));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => return result,
        }
    }
    fs::remove_dir(folder)
}

/// Kills every process in the group, by the kernel's own means where it has them.
pub fn kill_all(folders: &[PathBuf]) {
    // In one step where v2 has the group too, even if limits are set elsewhere: nobody outruns that.
    let (kill, listed): (Vec<_>, Vec<_>) =
        folders.iter().partition(|folder| folder.join("cgroup.kill").exists());
    for folder in kill {
        let _ = fs::write(folder.join("cgroup.kill"), "1");
    }
    for folder in listed {
        // A process may fork while the list is read: once more until nobody is left to kill.
        for _ in 0..8 {
            let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            let pids: Vec<i32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
            if pids.is_empty() {
                break;
            }
            for pid in pids.into_iter().filter(|pid| *pid > 1) {
                let Some(pid) = rustix::process::Pid::from_raw(pid) else { continue };
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// Whether the kernel killed one of the group for want of memory.
pub fn was_oom_killed(folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| {
        ["memory.events", "memory.oom_control"].iter().any(|file| {
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            text.lines()
                .filter_map(|line| line.strip_prefix("oom_kill "))
                .any(|count| count.trim() != "0")
        })
    })
}

/// Whether the group still has a process.
pub fn is_populated(folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| {
        fs::read_to_string(folder.join("cgroup.procs")).is_ok_and(|text| !text.trim().is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_read_from_the_mount_table() {
        let hybrid = "\
            30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
            31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n\
            34 30 0:29 / /other rw - cgroup2 cgroup2 rw\n";
        let found: Vec<(String, String)> = parse_mounts(hybrid)
            .into_iter()
            .map(|h| (h.root.display().to_string(), h.controllers.join("+")))
            .collect();
        let expected = [
            ("/sys/fs/cgroup/cpu,cpuacct", "cpu+cpuacct"),
            ("/sys/fs/cgroup/systemd", "name=systemd"),
            ("/sys/fs/cgroup/unified", ""),
        ];
        assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn paths_stay_inside_and_slices_are_spelled_out() {
        for (parent, path) in [
            ("/kubepods/pod1", "kubepods/pod1/c"),
            ("a-b-c.slice", "a.slice/a-b.slice/a-b-c.slice/c"),
            ("/../../etc", "etc/c"),
            ("", "c"),
        ] {
            assert_eq!(Group::new(parent, "c").path, path);
        }
    }
}
