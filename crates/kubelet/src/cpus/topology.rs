//! The processors of the machine: which there are, and which of them share a core, a cache, a socket, a
//! NUMA node.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

pub type CpuSet = BTreeSet<u32>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    pub core: u32,
    pub socket: u32,
    pub numa: u32,
    /// The last level of cache; where the kernel does not say it, the socket.
    pub cache: u32,
}

pub type Topology = BTreeMap<u32, Cpu>;

/// As the kernel tells below `/sys/devices/system`.
pub fn read(system: &Path) -> Topology {
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let mut numa: BTreeMap<u32, u32> = BTreeMap::new();
    for entry in fs::read_dir(system.join("node")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_prefix("node").and_then(|id| id.parse().ok()) else { continue };
        let cpus = parse(text(&entry.path().join("cpulist")).trim()).unwrap_or_default();
        numa.extend(cpus.into_iter().map(|cpu| (cpu, id)));
    }
    let online = parse(text(&system.join("cpu/online")).trim()).unwrap_or_default();
    let one = |cpu: u32| {
        let folder = system.join(format!("cpu/cpu{cpu}/topology"));
        let number = |file: &str| text(&folder.join(file)).trim().parse::<u32>().ok();
        let socket = number("physical_package_id").unwrap_or(0);
        let cache = text(&system.join(format!("cpu/cpu{cpu}/cache/index3/id")));
        Cpu {
            core: number("core_id").unwrap_or(cpu),
            socket,
            numa: numa.get(&cpu).copied().unwrap_or(0),
            cache: cache.trim().parse().unwrap_or(socket),
        }
    };
    online.into_iter().map(|cpu| (cpu, one(cpu))).collect()
}

/// `0-3,5`
pub fn parse(text: &str) -> Result<CpuSet, String> {
    let wrong = || format!("{text:?} is no list of processors");
    let mut all = CpuSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let (first, last) = (number(first)?, number(last)?);
        // No machine has more.
        if first > last || last > 1 << 16 {
            return Err(wrong());
        }
        all.extend(first..=last);
    }
    Ok(all)
}

pub fn shown(cpus: &CpuSet) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let one = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_shown() {
        assert_eq!(shown(&parse("0-3,5,7-8").unwrap()), "0-3,5,7-8");
        assert_eq!(shown(&parse("").unwrap()), "");
        assert!(parse("a").is_err() && parse("3-1").is_err() && parse("0-99999999").is_err());
        assert!(!read(Path::new("/sys/devices/system")).is_empty());
    }
}
