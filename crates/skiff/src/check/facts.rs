//! What is found of a machine, before anything is judged.
use jiff::Timestamp;
use std::fs::read_to_string;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Facts {
    pub is_root: bool,
    /// Whether somebody who is not root may make user namespaces.
    pub may_make_users: bool,
    pub kernel: (u32, u32),
    /// The kinds of namespaces.
    pub namespaces: Vec<String>,
    pub control_groups: ControlGroups,
    /// What was tried of the kernel's network: its name, the kernel's option, what went wrong.
    pub network: Vec<(&'static str, &'static str, Option<String>)>,
    /// Why nothing could be tried.
    pub network_error: Option<String>,
    /// Why what pods of different nodes say to each other could not be encrypted.
    pub encryption_error: Option<String>,
    pub file_systems: Vec<String>,
    /// Of the ports that a cluster's only machine listens on.
    pub taken_ports: Vec<u16>,
    pub year: i16,
    pub is_clock_synchronized: bool,
    pub data_dir: PathBuf,
    /// In bytes.
    pub free_disk: u64,
    pub memory: u64,
    pub inotify_instances: u64,
    /// Files of another Kubernetes.
    pub others: Vec<String>,
}

#[derive(Debug, Default)]
pub struct ControlGroups {
    /// Empty if there are none.
    pub version: &'static str,
    pub controllers: Vec<String>,
}

const PORTS: [u16; 8] = [6443, 10248, 10249, 10250, 10256, 10257, 10259, 4443];

/// What installers of other distributions leave where they are.
const OTHERS: [&str; 5] = [
    "/etc/kubernetes/admin.conf",
    "/var/lib/rancher/k3s",
    "/var/lib/k0s",
    "/var/snap/microk8s",
    "/etc/kubernetes/kubelet.conf",
];

impl Facts {
    /// What is read and what is tried.
    pub fn of_this_machine(data_dir: &Path) -> Facts {
        let (network, network_error) = match network::trial() {
            Ok(trials) => {
                let shown = |trial: network::Trial| {
                    let error = trial.outcome.err().map(|error| error.to_string());
                    (trial.name, trial.option, error)
                };
                (trials.into_iter().map(shown).collect(), None)
            }
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let encryption_error = network::encryption().err().map(|error| error.to_string());
        Facts { network, network_error, encryption_error, ..Facts::read(data_dir) }
    }

    /// What costs no time: a start waits for nothing that it will find out by itself.
    pub fn read(data_dir: &Path) -> Facts {
        let instances = read_to_string("/proc/sys/fs/inotify/max_user_instances");
        Facts {
            is_root: rustix::process::geteuid().is_root(),
            may_make_users: may_make_users(|path| read_to_string(path).ok()),
            kernel: kernel(rustix::system::uname().release().to_str().unwrap_or_default()),
            namespaces: names_in(Path::new("/proc/self/ns")),
            control_groups: control_groups(Path::new("/sys/fs/cgroup")),
            network: Vec::new(),
            network_error: None,
            encryption_error: None,
            file_systems: file_systems(&read_to_string("/proc/filesystems").unwrap_or_default()),
            taken_ports: PORTS.into_iter().filter(|port| is_taken(*port)).collect(),
            year: Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).year(),
            is_clock_synchronized: is_clock_synchronized(),
            data_dir: data_dir.to_owned(),
            free_disk: free_disk(data_dir),
            memory: memory(&read_to_string("/proc/meminfo").unwrap_or_default()),
            inotify_instances: instances
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0),
            others: OTHERS
                .into_iter()
                .filter(|path| Path::new(path).exists())
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// Distributions have three ways to forbid it.
fn may_make_users(read: impl Fn(&str) -> Option<String>) -> bool {
    let says = |path: &str, text: &str| read(path).is_some_and(|found| found.trim() == text);
    !says("/proc/sys/user/max_user_namespaces", "0")
        && !says("/proc/sys/kernel/unprivileged_userns_clone", "0")
        && !says("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")
}

/// `6.1.0-18-amd64`.
fn kernel(release: &str) -> (u32, u32) {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|text| text.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn control_groups(root: &Path) -> ControlGroups {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    if let Ok(text) = read_to_string(root.join("cgroup.controllers")) {
        return ControlGroups { version: "v2", controllers: words(&text) };
    }
    // Version 1 has a folder for each controller.
    let of_v1: Vec<String> = ["cpu", "memory", "pids"]
        .into_iter()
        .filter(|name| root.join(name).exists())
        .map(str::to_owned)
        .collect();
    match of_v1.is_empty() {
        true => ControlGroups::default(),
        false => ControlGroups { version: "v1", controllers: of_v1 },
    }
}

/// `nodev\toverlay`: the name is the last word of a line.
fn file_systems(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

fn is_taken(port: u16) -> bool {
    let bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
}

/// Whoever keeps the clock right leaves a mark; systemd's and chrony's are known.
fn is_clock_synchronized() -> bool {
    ["/run/systemd/timesync/synchronized", "/run/chrony/chronyd.pid", "/var/run/ntpd.pid"]
        .into_iter()
        .any(|path| Path::new(path).exists())
}

/// Of the file system where the folder is or would be.
fn free_disk(folder: &Path) -> u64 {
    let found = folder.ancestors().find_map(|path| rustix::fs::statvfs(path).ok());
    found.map_or(0, |found| found.f_bavail * found.f_frsize)
}

fn memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_may_make_namespaces_unless_it_is_forbidden() {
        let may = |file: &'static str, text: &'static str| {
            may_make_users(move |path| path.ends_with(file).then(|| text.to_owned()))
        };
        assert!(may("nothing", ""));
        assert!(may("max_user_namespaces", "63000\n"));
        assert!(!may("max_user_namespaces", "0\n"));
        assert!(!may("unprivileged_userns_clone", "0\n"));
        assert!(!may("apparmor_restrict_unprivileged_userns", "1\n"));
    }

    #[test]
    fn what_the_kernel_writes_is_read() {
        assert_eq!(kernel("6.1.0-18-amd64"), (6, 1));
        assert_eq!(kernel("5.15.167.4-microsoft-standard-WSL2"), (5, 15));
        assert_eq!(kernel("6.18"), (6, 18));
        assert_eq!(kernel("x"), (0, 0));
        assert_eq!(
            file_systems("nodev\tsysfs\n\text4\nnodev\toverlay\n"),
            ["sysfs", "ext4", "overlay"]
        );
        assert_eq!(memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"), 16 << 20);
    }

    #[test]
    fn control_groups_of_both_versions_are_found() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(control_groups(root.path()).version, "");
        std::fs::create_dir(root.path().join("memory")).unwrap();
        let found = control_groups(root.path());
        assert_eq!((found.version, found.controllers), ("v1", vec!["memory".to_owned()]));
        std::fs::write(root.path().join("cgroup.controllers"), "cpu io\n").unwrap();
        let found = control_groups(root.path());
        assert_eq!((found.version, found.controllers.len()), ("v2", 2));
    }

    #[test]
    fn a_port_that_somebody_has_is_taken() {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        assert!(is_taken(listener.local_addr().unwrap().port()));
    }
}
