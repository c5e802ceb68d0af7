//! What this machine is, read from `/proc` and the file system.
use api::quantity::{Format, Quantity};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    pub cpus: usize,
    pub memory: u64,
    pub memory_available: u64,
    pub swap: u64,
    /// Bytes of the file system below the kubelet's folder.
    pub disk: u64,
    pub disk_available: u64,
    /// With what only root may use.
    pub disk_free: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub pids: u64,
    pub pids_used: u64,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel: String,
    pub os_image: String,
    pub hostname: String,
    /// `skiff://0.1.0`
    pub runtime: String,
    /// Bytes in huge pages, by resource: `hugepages-2Mi`.
    pub hugepages: BTreeMap<String, u64>,
    /// The conditions that eviction has set.
    pub pressures: Vec<&'static str>,
    /// Attached volumes that must stay so.
    pub volumes_in_use: Vec<String>,
    /// Devices that there are and that are well, by resource.
    pub devices: BTreeMap<String, (i64, i64)>,
    /// Images that are here, the largest first: names and bytes.
    pub images: Vec<(Vec<String>, i64)>,
    /// Handlers of the runtime, and whether they mount recursively read-only and have users of their
    /// own.
    pub handlers: Vec<(String, bool, bool)>,
    /// Whether the runtime can keep an image's groups from a container.
    pub strict_groups: Option<bool>,
    /// Why the node is not ready.
    pub trouble: Vec<String>,
}

impl Facts {
    /// What cannot be read is empty: a container has no machine id.
    pub fn read(root: &Path) -> Facts {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let memory = text("/proc/meminfo");
        let disk = rustix::fs::statvfs(root).or_else(|_| rustix::fs::statvfs("/"));
        let of_disk = |read: fn(&rustix::fs::StatVfs) -> u64| disk.as_ref().map_or(0, read);
        let name = rustix::system::uname();
        let own = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Facts {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory_field(&memory, "MemTotal"),
            memory_available: available(&memory),
            swap: memory_field(&memory, "SwapTotal"),
            disk: of_disk(|disk| disk.f_blocks * disk.f_frsize),
            disk_available: of_disk(|disk| disk.f_bavail * disk.f_frsize),
            disk_free: of_disk(|disk| disk.f_bfree * disk.f_frsize),
            inodes: of_disk(|disk| disk.f_files),
            inodes_free: of_disk(|disk| disk.f_ffree),
            pids: text("/proc/sys/kernel/pid_max").parse().unwrap_or(0),
            pids_used: pids_used(&text("/proc/loadavg")),
            machine_id: text("/etc/machine-id"),
            system_uuid: text("/sys/class/dmi/id/product_uuid"),
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            kernel: own(name.release()),
            os_image: os_image(&text("/etc/os-release")),
            hostname: own(name.nodename()),
            runtime: String::new(),
            hugepages: hugepages(Path::new("/sys/kernel/mm/hugepages")),
            pressures: Vec::new(),
            volumes_in_use: Vec::new(),
            devices: BTreeMap::new(),
            images: Vec::new(),
            handlers: Vec::new(),
            strict_groups: None,
            trouble: Vec::new(),
        }
    }
}

/// A line of `/proc/meminfo`, in bytes.
pub(super) fn memory_field(text: &str, field: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

/// What is left beside the working set: free pages, and those of files that were not used of late.
fn available(text: &str) -> u64 {
    match memory_field(text, "Inactive(file)") {
        0 => memory_field(text, "MemAvailable"),
        inactive => memory_field(text, "MemFree") + inactive,
    }
}

/// Folders are named after the pages' size: `hugepages-2048kB`.
fn hugepages(folder: &Path) -> BTreeMap<String, u64> {
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?;
        let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        let count = count.trim().parse::<u64>().ok()?;
        let shown = Quantity::new(i64::try_from(size.checked_mul(1024)?).ok()?, Format::BinarySI);
        Some((format!("hugepages-{shown}"), size * 1024 * count))
    };
    fs::read_dir(folder).into_iter().flatten().flatten().filter_map(read).collect()
}

/// The fourth word of `/proc/loadavg` is `runnable/all`.
fn pids_used(text: &str) -> u64 {
    let word = text.split_whitespace().nth(3).and_then(|word| word.split_once('/'));
    word.and_then(|(_, all)| all.parse().ok()).unwrap_or(0)
}

fn os_image(text: &str) -> String {
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        let text = "MemTotal:       24604416 kB\nMemFree: 1 kB\n";
        assert_eq!(memory_field(text, "MemTotal"), 24_604_416 * 1024);
        assert_eq!(memory_field(text, "MemAvailable"), 0);
        assert_eq!(pids_used("0.10 0.20 0.30 2/345 6789"), 345);
        assert_eq!(
            os_image("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            "Debian GNU/Linux 12 (bookworm)"
        );
    }

    #[test]
    fn huge_pages_are_counted_by_size() {
        let folder = tempfile::tempdir().unwrap();
        for (name, count) in [("hugepages-2048kB", "3\n"), ("hugepages-1048576kB", "0\n")] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("nr_hugepages"), count).unwrap();
        }
        let wanted = [("hugepages-1Gi".to_owned(), 0), ("hugepages-2Mi".to_owned(), 6 << 20)];
        assert_eq!(hugepages(folder.path()), wanted.into());
    }

    #[test]
    fn this_machine_has_something() {
        let facts = Facts::read(Path::new("/"));
        assert!(
            facts.cpus > 0 && facts.memory > 0 && facts.disk > 0 && facts.pids > 0,
            "{facts:?}"
        );
        assert!(!facts.kernel.is_empty() && !facts.boot_id.is_empty(), "{facts:?}");
    }
}
