//! The processors of the machine: which there are, and which of them share a core, a socket, a
//! NUMA node. And which are taken for a container that wants some for itself: those that share the
//! most with each other and the least with the rest (`pkg/kubelet/cm/cpumanager/cpu_assignment.go`).
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

pub type CpuSet = BTreeSet<u32>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    pub core: u32,
    pub socket: u32,
    pub numa: u32,
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
        Cpu {
            core: number("core_id").unwrap_or(cpu),
            socket: number("physical_package_id").unwrap_or(0),
            numa: numa.get(&cpu).copied().unwrap_or(0),
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

/// So many of those that are free, if there are as many.
pub fn take(topology: &Topology, free: &CpuSet, count: usize) -> Option<CpuSet> {
    let mut free: CpuSet = free.iter().filter(|cpu| topology.contains_key(cpu)).copied().collect();
    if free.len() < count {
        return None;
    }
    let mut taken = CpuSet::new();
    type Of = fn(&Cpu) -> (u32, u32, u32);
    let whole: [Of; 3] = [
        |cpu| (cpu.numa, 0, 0),
        |cpu| (cpu.numa, cpu.socket, 0),
        |cpu| (cpu.numa, cpu.socket, cpu.core),
    ];
    for of in whole {
        let members = |cpus: &CpuSet| {
            let mut groups: BTreeMap<(u32, u32, u32), CpuSet> = BTreeMap::new();
            for cpu in cpus {
                groups.entry(of(&topology[cpu])).or_default().insert(*cpu);
            }
            groups
        };
        let all = members(&topology.keys().copied().collect());
        let mut groups: Vec<_> = members(&free).into_iter().collect();
        // Where less is left goes first, so that others find whole ones.
        let left = |cpus: &CpuSet| {
            let first = cpus.first().map(|cpu| topology[cpu]);
            let near = |cpu: &&u32| first.is_some_and(|first| first.numa == topology[*cpu].numa);
            free.iter().filter(near).count()
        };
        groups.sort_by_key(|(key, cpus)| (left(cpus), *key));
        for (key, cpus) in groups {
            if cpus == all[&key] && cpus.len() <= count - taken.len() {
                taken.extend(&cpus);
            }
        }
        free.retain(|cpu| !taken.contains(cpu));
    }
    // What is missing comes from cores that are not whole any more, near to what is taken.
    let mut rest: Vec<u32> = free.iter().copied().collect();
    rest.sort_by_key(|cpu| {
        let own = topology[cpu];
        let near = taken.iter().any(|other| topology[other].numa == own.numa);
        let same_core = |other: &&u32| {
            (topology[*other].core, topology[*other].socket) == (own.core, own.socket)
        };
        (!near, free.iter().filter(same_core).count(), *cpu)
    });
    taken.extend(rest.into_iter().take(count - taken.len()));
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two cores of two threads: threads of a core are 4 apart.
    fn machine() -> Topology {
        (0..8)
            .map(|cpu| (cpu, Cpu { core: cpu % 4, socket: cpu % 4 / 2, numa: cpu % 4 / 2 }))
            .collect()
    }

    fn check(free: &str, count: usize, expected: &str) {
        let taken = take(&machine(), &parse(free).unwrap(), count);
        assert_eq!(
            taken.map_or("none".to_owned(), |cpus| shown(&cpus)),
            expected,
            "{free} {count}"
        );
    }

    #[test]
    fn what_belongs_together_is_taken_together() {
        check("0-7", 4, "0-1,4-5");
        check("0-7", 2, "0,4");
        check("0-7", 6, "0-2,4-6");
        check("1-7", 4, "2-3,6-7");
        check("1-7", 1, "4");
        check("1-7", 3, "1,4-5");
        check("0-1", 3, "none");
    }

    #[test]
    fn lists_are_read_and_shown() {
        assert_eq!(shown(&parse("0-3,5,7-8").unwrap()), "0-3,5,7-8");
        assert_eq!(shown(&parse("").unwrap()), "");
        assert!(parse("a").is_err() && parse("3-1").is_err() && parse("0-99999999").is_err());
        assert!(!read(Path::new("/sys/devices/system")).is_empty());
    }
}
