//! What containers and sandboxes have used, in CRI's words.
use super::images::usage;
use super::records::{Container, Sandbox};
use super::status::fits;
use super::{Service, now};
use crate::cgroup;
use crate::cri::v1::{
    ContainerAttributes, ContainerStats, ContainerStatsFilter, CpuUsage, IoUsage,
    LinuxPodSandboxStats, MemoryUsage, NetworkInterfaceUsage, NetworkUsage, PodSandboxAttributes,
    PodSandboxStats, PodSandboxStatsFilter, ProcessUsage, PsiData, PsiStats, SwapUsage,
    UInt64Value,
};

impl Service {
    pub(super) fn stats_of(&self, container: &Container) -> ContainerStats {
        let used = cgroup::usage(&container.group);
        let time = now();
        let rate = {
            let mut last = container.last_cpu.lock();
            let before = last.replace((time, used.cpu_nanoseconds));
            before.and_then(|(at, cpu)| {
                let elapsed = u64::try_from(time - at).ok().filter(|elapsed| *elapsed > 0)?;
                Some(
                    used.cpu_nanoseconds.saturating_sub(cpu).saturating_mul(1_000_000_000)
                        / elapsed,
                )
            })
        };
        ContainerStats {
            attributes: Some(ContainerAttributes {
                id: container.id.clone(),
                metadata: container.config.metadata.clone(),
                labels: container.config.labels.clone(),
                annotations: container.config.annotations.clone(),
            }),
            cpu: Some(cpu(time, &used, rate)),
            memory: Some(memory(time, &used)),
            writable_layer: Some(self.filesystem_usage(self.root(), written(container))),
            swap: Some(SwapUsage {
                timestamp: time,
                swap_available_bytes: None,
                swap_usage_bytes: value(used.swap),
            }),
            io: io(time, &used),
        }
    }

    pub(super) fn list_stats(&self, filter: Option<ContainerStatsFilter>) -> Vec<ContainerStats> {
        let filter = filter.unwrap_or_default();
        let containers: Vec<_> = self.inner.containers.lock().values().cloned().collect();
        containers
            .iter()
            .filter(|container| {
                container.is_running()
                    && container.id.starts_with(&filter.id)
                    && container.record.sandbox_id.starts_with(&filter.pod_sandbox_id)
                    && fits(&filter.label_selector, &container.config.labels)
            })
            .map(|container| self.stats_of(container))
            .collect()
    }

    pub(super) fn sandbox_stats(&self, sandbox: &Sandbox) -> PodSandboxStats {
        let time = now();
        let containers: Vec<_> = self
            .containers_of(&sandbox.id)
            .into_iter()
            .filter(|container| container.is_running())
            .collect();
        let used = cgroup::usage(&sandbox.parent_group());
        PodSandboxStats {
            attributes: Some(PodSandboxAttributes {
                id: sandbox.id.clone(),
                metadata: sandbox.config.metadata.clone(),
                labels: sandbox.config.labels.clone(),
                annotations: sandbox.config.annotations.clone(),
            }),
            linux: Some(LinuxPodSandboxStats {
                cpu: Some(cpu(time, &used, None)),
                memory: Some(memory(time, &used)),
                network: self.network_usage(&containers, time),
                process: Some(ProcessUsage { timestamp: time, process_count: value(used.pids) }),
                containers: containers.iter().map(|container| self.stats_of(container)).collect(),
                io: io(time, &used),
            }),
            windows: None,
        }
    }

    /// Interfaces as any process of the sandbox sees them.
    fn network_usage(
        &self,
        containers: &[std::sync::Arc<Container>],
        time: i64,
    ) -> Option<NetworkUsage> {
        let pid = containers.iter().find_map(|container| container.doing().started)?.pid;
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
        let mut interfaces: Vec<NetworkInterfaceUsage> =
            text.lines().skip(2).filter_map(interface).filter(|i| i.name != "lo").collect();
        let default = interfaces.iter().position(|i| i.name == "eth0");
        Some(NetworkUsage {
            timestamp: time,
            default_interface: default.map(|at| interfaces.remove(at)),
            interfaces,
        })
    }

    pub(super) fn list_sandbox_stats(
        &self,
        filter: Option<PodSandboxStatsFilter>,
    ) -> Vec<PodSandboxStats> {
        let filter = filter.unwrap_or_default();
        let sandboxes: Vec<_> = self.inner.sandboxes.lock().values().cloned().collect();
        sandboxes
            .iter()
            .filter(|sandbox| {
                sandbox.is_ready()
                    && sandbox.id.starts_with(&filter.id)
                    && fits(&filter.label_selector, &sandbox.config.labels)
            })
            .map(|sandbox| self.sandbox_stats(sandbox))
            .collect()
    }
}

/// What the container wrote. A root that was copied cannot be told from it.
fn written(container: &Container) -> (u64, u64) {
    usage(&container.folder.join("upper"))
}

fn value(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

fn cpu(timestamp: i64, used: &cgroup::Usage, rate: Option<u64>) -> CpuUsage {
    CpuUsage {
        timestamp,
        usage_core_nano_seconds: value(used.cpu_nanoseconds),
        usage_nano_cores: rate.map(|value| UInt64Value { value }),
        psi: used.cpu_pressure.map(PsiStats::from),
    }
}

fn memory(timestamp: i64, used: &cgroup::Usage) -> MemoryUsage {
    MemoryUsage {
        timestamp,
        working_set_bytes: value(used.working_set),
        available_bytes: used
            .memory_limit
            .map(|limit| UInt64Value { value: limit.saturating_sub(used.working_set) }),
        usage_bytes: value(used.memory),
        rss_bytes: value(used.resident),
        page_faults: value(used.page_faults),
        major_page_faults: value(used.major_page_faults),
        psi: used.memory_pressure.map(PsiStats::from),
    }
}

fn io(timestamp: i64, used: &cgroup::Usage) -> Option<IoUsage> {
    used.io_pressure.map(|pressure| IoUsage { timestamp, psi: Some(pressure.into()) })
}

impl From<cgroup::Pressure> for PsiStats {
    fn from(pressure: cgroup::Pressure) -> PsiStats {
        let data = |stall: cgroup::Stall| PsiData {
            total: stall.total,
            avg10: stall.avg10,
            avg60: stall.avg60,
            avg300: stall.avg300,
        };
        PsiStats { full: Some(data(pressure.full)), some: Some(data(pressure.some)) }
    }
}

/// A line of `/proc/net/dev`.
fn interface(line: &str) -> Option<NetworkInterfaceUsage> {
    let (name, numbers) = line.split_once(':')?;
    let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let at = |index: usize| numbers.get(index).copied().and_then(value);
    Some(NetworkInterfaceUsage {
        name: name.trim().to_owned(),
        rx_bytes: at(0),
        rx_errors: at(2),
        tx_bytes: at(8),
        tx_errors: at(10),
    })
}
