//! What a group has used.
use std::fs;
use std::path::Path;

use super::pressure::Pressure;
use super::{Group, is_unified};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    pub cpu_nanoseconds: u64,
    pub memory: u64,
    /// Without file pages that can be dropped at once.
    pub working_set: u64,
    pub resident: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
    pub memory_limit: Option<u64>,
    pub swap: u64,
    pub pids: u64,
    /// Of processors, memory and disks, where the kernel measures it by group.
    pub cpu_pressure: Option<Pressure>,
    pub memory_pressure: Option<Pressure>,
    pub io_pressure: Option<Pressure>,
}

pub fn usage(group: &Group) -> Usage {
    let unified = is_unified();
    let folder = |controller| group.folder_with(controller).unwrap_or_default();
    let memory_folder = folder("memory");
    let stat = fs::read_to_string(memory_folder.join("memory.stat")).unwrap_or_default();
    let names = if unified {
        ["inactive_file", "anon", "pgfault", "pgmajfault"]
    } else {
        ["total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault"]
    };
    let [inactive, resident, page_faults, major_page_faults] = names.map(|name| line(&stat, name));
    let (cpu_nanoseconds, memory, limit, swap) = if unified {
        let cpu = fs::read_to_string(folder("cpu").join("cpu.stat")).unwrap_or_default();
        (
            line(&cpu, "usage_usec") * 1000,
            number(&memory_folder.join("memory.current")),
            number(&memory_folder.join("memory.max")),
            number(&memory_folder.join("memory.swap.current")),
        )
    } else {
        let with_swap = number(&memory_folder.join("memory.memsw.usage_in_bytes"));
        let memory = number(&memory_folder.join("memory.usage_in_bytes"));
        (
            number(&folder("cpuacct").join("cpuacct.usage")),
            memory,
            number(&memory_folder.join("memory.limit_in_bytes")),
            with_swap.saturating_sub(memory),
        )
    };
    Usage {
        cpu_nanoseconds,
        memory,
        working_set: memory.saturating_sub(inactive),
        resident,
        page_faults,
        major_page_faults,
        // v1 writes "no limit" as the largest number of pages.
        memory_limit: (limit > 0 && limit < 1 << 60).then_some(limit),
        swap,
        pids: number(&folder("pids").join("pids.current")),
        cpu_pressure: Pressure::read(&folder("cpu").join("cpu.pressure")),
        memory_pressure: Pressure::read(&memory_folder.join("memory.pressure")),
        io_pressure: Pressure::read(&folder("io").join("io.pressure")),
    }
}

fn number(path: &Path) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn line(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}
