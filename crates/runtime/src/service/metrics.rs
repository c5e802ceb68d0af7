//! Metrics of containers, under the names that cAdvisor gave them. A metric is one row of
//! [`METRICS`]; descriptors and values come from it.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::images::usage;
use super::records::{Container, Sandbox};
use super::{Service, now};
use crate::cgroup::{self, is_unified};
use crate::cri::v1::{
    ContainerMetrics, LinuxContainerResources, Metric, MetricDescriptor, MetricType,
    PodSandboxMetrics, UInt64Value,
};

/// What every metric says about where it comes from.
const LABELS: [&str; 6] = ["container", "id", "image", "name", "namespace", "pod"];

struct Row {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    /// None: this machine does not tell.
    read: fn(&Source) -> Option<u64>,
}

const fn counter(name: &'static str, help: &'static str, read: fn(&Source) -> Option<u64>) -> Row {
    Row { name, help, kind: MetricType::Counter, read }
}

const fn gauge(name: &'static str, help: &'static str, read: fn(&Source) -> Option<u64>) -> Row {
    Row { name, help, kind: MetricType::Gauge, read }
}

const NANO: u64 = 1_000_000_000;

#[rustfmt::skip]
const METRICS: &[Row] = &[
    counter("container_cpu_usage_seconds_total", "Processor time used", |s| Some(s.used.cpu_nanoseconds / NANO)),
    counter("container_cpu_user_seconds_total", "Processor time used outside the kernel", |s| s.cpu_time("user")),
    counter("container_cpu_system_seconds_total", "Processor time used in the kernel", |s| s.cpu_time("system")),
    counter("container_cpu_cfs_periods_total", "Enforcement periods that have elapsed", |s| s.cpu("nr_periods")),
    counter("container_cpu_cfs_throttled_periods_total", "Periods in which it was throttled", |s| s.cpu("nr_throttled")),
    counter("container_cpu_cfs_throttled_seconds_total", "Time it was throttled for", Source::throttled),
    gauge("container_memory_usage_bytes", "Memory in use, whatever for", |s| Some(s.used.memory)),
    gauge("container_memory_working_set_bytes", "Memory in use that cannot be dropped at once", |s| Some(s.used.working_set)),
    gauge("container_memory_rss", "Anonymous memory", |s| Some(s.used.resident)),
    gauge("container_memory_cache", "Page cache", |s| s.memory("cache", "file")),
    gauge("container_memory_mapped_file", "Mapped files", |s| s.memory("total_mapped_file", "file_mapped")),
    gauge("container_memory_swap", "Swap in use", |s| Some(s.used.swap)),
    gauge("container_memory_kernel_usage", "Memory of the kernel's for it", |s| s.memory_file("memory.kmem.usage_in_bytes").or(s.memory("kernel", "kernel"))),
    gauge("container_memory_max_usage_bytes", "Most memory ever in use", |s| s.memory_file("memory.max_usage_in_bytes").or(s.memory_file("memory.peak"))),
    counter("container_memory_failcnt", "Times its memory limit was hit", |s| s.memory_file("memory.failcnt").or(s.memory_event("max"))),
    counter("container_memory_failures_total", "Page faults", |s| Some(s.used.page_faults)),
    counter("container_oom_events_total", "Times it ran out of memory", |s| s.memory_event("oom_kill")),
    gauge("container_processes", "Processes", |s| Some(s.processes)),
    gauge("container_threads", "Threads", |s| Some(s.used.pids)),
    gauge("container_threads_max", "Most threads allowed, 0 for any number", |s| Some(s.threads_max)),
    gauge("container_file_descriptors", "Open descriptors", |s| Some(s.descriptors)),
    gauge("container_sockets", "Open sockets", |s| Some(s.sockets)),
    gauge("container_fs_usage_bytes", "Bytes written to its root", |s| Some(s.written.0)),
    gauge("container_fs_limit_bytes", "Size of the file system its root is on", |s| Some(s.disk.0)),
    gauge("container_fs_inodes_total", "Inodes of the file system its root is on", |s| Some(s.disk.1)),
    gauge("container_fs_inodes_free", "Inodes that are free there", |s| Some(s.disk.2)),
    counter("container_fs_reads_bytes_total", "Bytes read from devices", |s| s.io("Read")),
    counter("container_fs_writes_bytes_total", "Bytes written to devices", |s| s.io("Write")),
    counter("container_fs_reads_total", "Reads from devices", |s| s.io_count("Read")),
    counter("container_fs_writes_total", "Writes to devices", |s| s.io_count("Write")),
    counter("container_blkio_device_usage_total", "Bytes to and from devices", |s| s.io("Total")),
    counter("container_network_receive_bytes_total", "Bytes received", |s| s.network(0)),
    counter("container_network_receive_packets_total", "Packets received", |s| s.network(1)),
    counter("container_network_receive_errors_total", "Errors while receiving", |s| s.network(2)),
    counter("container_network_receive_packets_dropped_total", "Packets dropped while receiving", |s| s.network(3)),
    counter("container_network_transmit_bytes_total", "Bytes sent", |s| s.network(8)),
    counter("container_network_transmit_packets_total", "Packets sent", |s| s.network(9)),
    counter("container_network_transmit_errors_total", "Errors while sending", |s| s.network(10)),
    counter("container_network_transmit_packets_dropped_total", "Packets dropped while sending", |s| s.network(11)),
    gauge("container_last_seen", "When it was last looked at", |s| Some(s.time)),
    gauge("container_start_time_seconds", "When it started", |s| Some(s.started)),
    gauge("container_spec_cpu_period", "Its processor period", |s| positive(s.limits.cpu_period)),
    gauge("container_spec_cpu_quota", "Its processor quota", |s| positive(s.limits.cpu_quota)),
    gauge("container_spec_cpu_shares", "Its share of the processor", |s| positive(s.limits.cpu_shares)),
    gauge("container_spec_memory_limit_bytes", "Its memory limit", |s| positive(s.limits.memory_limit_in_bytes)),
    gauge("container_spec_memory_swap_limit_bytes", "Its limit of memory and swap", |s| positive(s.limits.memory_swap_limit_in_bytes)),
];

fn positive(value: i64) -> Option<u64> {
    Some(u64::try_from(value).unwrap_or(0))
}

/// What the kernel tells of a container, read once.
struct Source {
    used: cgroup::Usage,
    folders: BTreeMap<&'static str, std::path::PathBuf>,
    limits: LinuxContainerResources,
    processes: u64,
    descriptors: u64,
    sockets: u64,
    threads_max: u64,
    /// Bytes and files.
    written: (u64, u64),
    /// Bytes, inodes, free inodes.
    disk: (u64, u64, u64),
    interfaces: String,
    time: u64,
    started: u64,
}

impl Source {
    fn file(&self, controller: &str, name: &str) -> String {
        let folder = self.folders.get(controller);
        folder.and_then(|folder| fs::read_to_string(folder.join(name)).ok()).unwrap_or_default()
    }

    fn cpu(&self, key: &str) -> Option<u64> {
        Some(value(&self.file("cpu", "cpu.stat"), key).unwrap_or(0))
    }

    fn cpu_time(&self, key: &str) -> Option<u64> {
        if is_unified() {
            return value(&self.file("cpu", "cpu.stat"), &format!("{key}_usec"))
                .map(|t| t / 1_000_000);
        }
        // In hundredths of a second.
        value(&self.file("cpuacct", "cpuacct.stat"), key).map(|ticks| ticks / 100)
    }

    fn throttled(&self) -> Option<u64> {
        let stat = self.file("cpu", "cpu.stat");
        let micro = value(&stat, "throttled_usec").map(|time| time / 1_000_000);
        Some(micro.or(value(&stat, "throttled_time").map(|time| time / NANO)).unwrap_or(0))
    }

    fn memory(&self, v1: &str, v2: &str) -> Option<u64> {
        value(&self.file("memory", "memory.stat"), if is_unified() { v2 } else { v1 })
    }

    fn memory_file(&self, name: &str) -> Option<u64> {
        self.file("memory", name).trim().parse().ok()
    }

    fn memory_event(&self, key: &str) -> Option<u64> {
        let text =
            self.file("memory", "memory.events") + &self.file("memory", "memory.oom_control");
        Some(value(&text, key).unwrap_or(0))
    }

    /// v1 only: `8:0 Read 4096`.
    fn io(&self, kind: &str) -> Option<u64> {
        sum(&self.file("blkio", "blkio.throttle.io_service_bytes"), kind)
    }

    fn io_count(&self, kind: &str) -> Option<u64> {
        sum(&self.file("blkio", "blkio.throttle.io_serviced"), kind)
    }

    /// One column over all interfaces but the loopback device.
    fn network(&self, column: usize) -> Option<u64> {
        let lines = self.interfaces.lines().skip(2).filter_map(|line| line.split_once(':'));
        let columns = lines
            .filter(|(name, _)| name.trim() != "lo")
            .filter_map(|(_, numbers)| numbers.split_whitespace().nth(column)?.parse::<u64>().ok());
        Some(columns.sum())
    }
}

fn value(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(name, _)| *name == key).and_then(|(_, value)| value.trim().parse().ok())
}

fn sum(text: &str, kind: &str) -> Option<u64> {
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let wanted: Vec<u64> = lines
        .filter(|words| words.len() == 3 && words[1] == kind)
        .filter_map(|words| words[2].parse().ok())
        .collect();
    (!wanted.is_empty()).then(|| wanted.iter().sum())
}

pub(super) fn descriptors() -> Vec<MetricDescriptor> {
    METRICS
        .iter()
        .map(|row| MetricDescriptor {
            name: row.name.to_owned(),
            help: row.help.to_owned(),
            label_keys: LABELS.map(str::to_owned).to_vec(),
        })
        .collect()
}

impl Service {
    pub(super) fn metrics(&self) -> Vec<PodSandboxMetrics> {
        let sandboxes: Vec<_> = self.inner.sandboxes.lock().values().cloned().collect();
        sandboxes
            .iter()
            .filter(|sandbox| sandbox.is_ready())
            .map(|sandbox| PodSandboxMetrics {
                pod_sandbox_id: sandbox.id.clone(),
                metrics: Vec::new(),
                container_metrics: self
                    .containers_of(&sandbox.id)
                    .iter()
                    .filter(|container| container.is_running())
                    .map(|container| self.container_metrics(sandbox, container))
                    .collect(),
            })
            .collect()
    }

    fn container_metrics(&self, sandbox: &Sandbox, container: &Container) -> ContainerMetrics {
        let source = self.source(container);
        let pod = sandbox.config.metadata.clone().unwrap_or_default();
        let labels = vec![
            container.config.metadata.clone().unwrap_or_default().name,
            container.id.clone(),
            container.config.image.clone().unwrap_or_default().image,
            container.id.clone(),
            pod.namespace,
            pod.name,
        ];
        let timestamp = now();
        let metrics = METRICS.iter().filter_map(|row| {
            let value = (row.read)(&source)?;
            Some(Metric {
                name: row.name.to_owned(),
                timestamp,
                metric_type: row.kind.into(),
                label_values: labels.clone(),
                value: Some(UInt64Value { value }),
            })
        });
        ContainerMetrics { container_id: container.id.clone(), metrics: metrics.collect() }
    }

    fn source(&self, container: &Container) -> Source {
        let doing = container.doing();
        let group = &container.group;
        let controllers = ["cpu", "cpuacct", "memory", "blkio", "pids"];
        let folders: BTreeMap<_, _> = controllers
            .into_iter()
            .filter_map(|controller| Some((controller, group.folder_with(controller)?)))
            .collect();
        let pids = folders.get("pids").map(|folder| folder.join("cgroup.procs"));
        let pids = pids.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let (mut descriptors, mut sockets) = (0, 0);
        for pid in pids.lines() {
            for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
                descriptors += 1;
                let link = fs::read_link(entry.path()).unwrap_or_default();
                sockets += u64::from(link.to_string_lossy().starts_with("socket:"));
            }
        }
        let disk = rustix::fs::statvfs(self.root());
        let pid = doing.started.as_ref().map_or(0, |started| started.pid);
        let threads_max = folders.get("pids").map(|folder| folder.join("pids.max"));
        Source {
            used: cgroup::usage(group),
            limits: doing.resources.unwrap_or_default(),
            processes: pids.lines().count() as u64,
            descriptors,
            sockets,
            threads_max: threads_max.and_then(|path| number(&path)).unwrap_or(0),
            written: usage(&container.folder.join("upper")),
            disk: disk.map_or((0, 0, 0), |d| (d.f_blocks * d.f_frsize, d.f_files, d.f_ffree)),
            interfaces: fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default(),
            time: now().unsigned_abs() / NANO,
            started: doing.started.map_or(0, |started| started.at.unsigned_abs() / NANO),
            folders,
        }
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
