//! Limits, and the file each of them is on v1 and v2.
use std::collections::BTreeMap;
use std::fs;
use std::io;

use super::{Group, is_unified};

/// What a group may use; nothing said is nothing changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    pub cpu_period: Option<u64>,
    /// Negative is no limit.
    pub cpu_quota: Option<i64>,
    pub cpu_shares: Option<u64>,
    pub cpus: Option<String>,
    pub memory_nodes: Option<String>,
    /// Negative is no limit.
    pub memory: Option<i64>,
    /// Memory and swap together, as CRI has it.
    pub memory_and_swap: Option<i64>,
    pub pids: Option<i64>,
    /// Page size (`2MB`) and bytes.
    pub hugepages: Vec<(String, u64)>,
    /// v2 files by name, written last and as they are.
    pub unified: BTreeMap<String, String>,
}

struct Setting {
    controller: &'static str,
    file: String,
    value: String,
}

fn setting(controller: &'static str, file: impl Into<String>, value: impl ToString) -> Setting {
    Setting { controller, file: file.into(), value: value.to_string() }
}

impl Resources {
    pub(super) fn apply(&self, group: &Group) -> io::Result<()> {
        let settings = if is_unified() { self.for_v2() } else { self.for_v1() };
        for Setting { controller, file, value } in settings {
            let Some(folder) = group.folder_with(controller) else { continue };
            let path = folder.join(&file);
            // No such file: the kernel has no such controller, or no swap accounting.
            let may_lack = matches!(controller, "hugetlb" | "swap") || file == "memory.swap.max";
            if !path.exists() && may_lack {
                continue;
            }
            fs::write(&path, &value).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("write {value:?} to {}: {error}", path.display()),
                )
            })?;
        }
        Ok(())
    }

    fn for_v1(&self) -> Vec<Setting> {
        let mut list = Vec::new();
        if let Some(shares) = self.cpu_shares {
            list.push(setting("cpu", "cpu.shares", shares));
        }
        if let Some(period) = self.cpu_period {
            list.push(setting("cpu", "cpu.cfs_period_us", period));
        }
        if let Some(quota) = self.cpu_quota {
            list.push(setting("cpu", "cpu.cfs_quota_us", quota.max(-1)));
        }
        if let Some(cpus) = &self.cpus {
            list.push(setting("cpuset", "cpuset.cpus", cpus));
        }
        if let Some(nodes) = &self.memory_nodes {
            list.push(setting("cpuset", "cpuset.mems", nodes));
        }
        if let Some(memory) = self.memory {
            list.push(setting("memory", "memory.limit_in_bytes", memory.max(-1)));
        }
        if let Some(pids) = self.pids {
            list.push(setting("pids", "pids.max", number_or_max(pids)));
        }
        for (size, bytes) in &self.hugepages {
            list.push(setting("hugetlb", format!("hugetlb.{size}.limit_in_bytes"), bytes));
        }
        list
    }

    fn for_v2(&self) -> Vec<Setting> {
        let mut list = Vec::new();
        if let Some(shares) = self.cpu_shares {
            list.push(setting("cpu", "cpu.weight", weight(shares)));
        }
        if self.cpu_quota.is_some() || self.cpu_period.is_some() {
            let quota = self.cpu_quota.map_or_else(|| "max".to_owned(), number_or_max);
            list.push(setting(
                "cpu",
                "cpu.max",
                format!("{quota} {}", self.cpu_period.unwrap_or(100_000)),
            ));
        }
        if let Some(cpus) = &self.cpus {
            list.push(setting("cpuset", "cpuset.cpus", cpus));
        }
        if let Some(nodes) = &self.memory_nodes {
            list.push(setting("cpuset", "cpuset.mems", nodes));
        }
        if let Some(memory) = self.memory {
            list.push(setting("memory", "memory.max", number_or_max(memory)));
        }
        if let (Some(both), Some(memory)) = (self.memory_and_swap, self.memory)
            && both >= memory
        {
            list.push(setting("swap", "memory.swap.max", both - memory));
        }
        if let Some(pids) = self.pids {
            list.push(setting("pids", "pids.max", number_or_max(pids)));
        }
        for (size, bytes) in &self.hugepages {
            list.push(setting("hugetlb", format!("hugetlb.{size}.max"), bytes));
        }
        for (file, value) in &self.unified {
            // A name, never a path.
            if !file.contains('/') {
                list.push(setting("unified", file, value));
            }
        }
        list
    }
}

fn number_or_max(value: i64) -> String {
    if value <= 0 { "max".to_owned() } else { value.to_string() }
}

/// v2's weight for v1's shares: the curve that upstream's runtimes agreed on, through 1 at 2 shares,
/// 100 at 1024 and 10000 at 262144.
pub fn weight(shares: u64) -> u64 {
    if shares <= 2 {
        return 1;
    }
    if shares >= 262_144 {
        return 10_000;
    }
    let log = (shares as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    10f64.powf(exponent).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(resources: &Resources, v1: &str, v2: &str) {
        let text = |settings: Vec<Setting>| {
            settings.iter().map(|s| format!("{}={}", s.file, s.value)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text(resources.for_v1()), v1);
        assert_eq!(text(resources.for_v2()), v2);
    }

    #[test]
    fn each_limit_has_its_file() {
        check(&Resources::default(), "", "");
        check(
            &Resources {
                cpu_period: Some(100_000),
                cpu_quota: Some(50_000),
                cpu_shares: Some(1024),
                memory: Some(1 << 20),
                memory_and_swap: Some(1 << 20),
                pids: Some(-1),
                ..Default::default()
            },
            "cpu.shares=1024 cpu.cfs_period_us=100000 cpu.cfs_quota_us=50000 \
             memory.limit_in_bytes=1048576 pids.max=max",
            "cpu.weight=100 cpu.max=50000 100000 memory.max=1048576 memory.swap.max=0 pids.max=max",
        );
    }

    #[test]
    fn weights_follow_the_agreed_curve() {
        for (shares, expected) in [(0, 1), (2, 1), (1024, 100), (262_144, 10_000)] {
            assert_eq!(weight(shares), expected, "{shares}");
        }
    }
}
