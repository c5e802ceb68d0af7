//! Which processors a container gets that wants some for itself: those that share the most with each other
//! and the least with the rest, or as the policy's options have it
//! (`pkg/kubelet/cm/cpumanager/cpu_assignment.go`).
use super::topology::{Cpu, CpuSet, Topology};
use std::collections::BTreeMap;

/// Machines with more NUMA nodes have too many combinations of them to try all; as the topology manager.
const MOST_NODES: usize = 8;

/// How processors are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Choice {
    /// Processors of different cores rather than whole cores: `distribute-cpus-across-cores`.
    pub spread: bool,
    /// Those that share a cache, if it can be: `prefer-align-cpus-by-uncorecache`.
    pub by_cache: bool,
    /// The same number from each NUMA node, where it takes several, and always so many together:
    /// `distribute-cpus-across-numa`.
    pub evenly: Option<usize>,
    /// From NUMA nodes of one socket, if it can be: `align-by-socket`.
    pub by_socket: bool,
}

impl Choice {
    /// So many of those that are free, if there are as many.
    pub fn take(&self, topology: &Topology, free: &CpuSet, count: usize) -> Option<CpuSet> {
        let known = free.iter().filter(|cpu| topology.contains_key(cpu));
        let free: CpuSet = known.copied().collect();
        if free.len() < count {
            return None;
        }
        let evenly = match self.evenly {
            Some(group) if count > 0 && count.is_multiple_of(group.max(1)) => {
                Shares::best(topology, &free, count, group.max(1), self.by_socket)
            }
            _ => None,
        };
        Some(match evenly {
            Some(shares) => shares.take(topology, free, self.spread),
            None => packed(topology, free, count, self.spread, self.by_cache),
        })
    }
}

/// What processors have in common.
type Of = fn(&Cpu) -> (u32, u32, u32);

const NODE: Of = |cpu| (cpu.numa, 0, 0);
const SOCKET: Of = |cpu| (cpu.socket, 0, 0);
const CACHE: Of = |cpu| (cpu.numa, cpu.cache, 0);
const CORE: Of = |cpu| (cpu.numa, cpu.socket, cpu.core);

fn groups(topology: &Topology, cpus: &CpuSet, of: Of) -> BTreeMap<(u32, u32, u32), CpuSet> {
    let mut groups: BTreeMap<(u32, u32, u32), CpuSet> = BTreeMap::new();
    for cpu in cpus {
        groups.entry(of(&topology[cpu])).or_default().insert(*cpu);
    }
    groups
}

/// What is under way: whole nodes, whole sockets, whole cores, and then what is missing.
struct Packing<'a> {
    topology: &'a Topology,
    free: CpuSet,
    taken: CpuSet,
    count: usize,
}

/// As close together as can be; there are enough.
fn packed(topology: &Topology, free: CpuSet, count: usize, spread: bool, by_cache: bool) -> CpuSet {
    let all: CpuSet = topology.keys().copied().collect();
    let mut packing = Packing { topology, free, taken: CpuSet::new(), count };
    // Whichever is larger comes first.
    let larger = match groups(topology, &all, SOCKET).len() >= groups(topology, &all, NODE).len() {
        true => [NODE, SOCKET],
        false => [SOCKET, NODE],
    };
    larger.into_iter().for_each(|of| packing.take_whole(of));
    if by_cache {
        packing.take_whole(CACHE);
        packing.take_of_one_cache();
    }
    if !spread {
        packing.take_whole(CORE);
    }
    packing.take_rest(spread);
    packing.taken
}

impl Packing<'_> {
    fn missing(&self) -> usize {
        self.count - self.taken.len()
    }

    fn take(&mut self, cpus: &CpuSet) {
        self.taken.extend(cpus);
        self.free.retain(|cpu| !cpus.contains(cpu));
    }

    /// Where less is left goes first, so that others find whole ones.
    fn left(&self, cpus: &CpuSet) -> usize {
        let first = cpus.first().map(|cpu| self.topology[cpu].numa);
        self.free.iter().filter(|cpu| Some(self.topology[*cpu].numa) == first).count()
    }

    fn take_whole(&mut self, of: Of) {
        let all = groups(self.topology, &self.topology.keys().copied().collect(), of);
        let mut whole: Vec<_> = groups(self.topology, &self.free, of).into_iter().collect();
        whole.retain(|(key, cpus)| *cpus == all[key]);
        whole.sort_by_key(|(key, cpus)| (self.left(cpus), *key));
        for (_, cpus) in whole {
            if cpus.len() <= self.missing() {
                self.take(&cpus);
            }
        }
    }

    /// All that is missing, if there is a cache that has as many.
    fn take_of_one_cache(&mut self) {
        let missing = self.missing();
        let mut caches: Vec<_> = groups(self.topology, &self.free, CACHE).into_iter().collect();
        caches.sort_by_key(|(key, cpus)| (self.left(cpus), cpus.len(), *key));
        let fits = caches.into_iter().find(|(_, cpus)| cpus.len() >= missing && missing > 0);
        if let Some((_, cpus)) = fits {
            let own = packed(self.topology, cpus, missing, false, false);
            self.take(&own);
        }
    }

    /// From cores that are not whole any more, near to what is taken; or from as many cores as can be.
    fn take_rest(&mut self, spread: bool) {
        let own = |cpu: &u32| self.topology[cpu];
        let mut rest: Vec<u32> = self.free.iter().copied().collect();
        if spread {
            let sockets = groups(self.topology, &self.free, SOCKET);
            rest.sort_by_key(|cpu| {
                let socket = SOCKET(&own(cpu));
                (sockets.get(&socket).map_or(0, CpuSet::len), socket, *cpu)
            });
        } else {
            let cores = groups(self.topology, &self.free, CORE);
            rest.sort_by_key(|cpu| {
                let near = self.taken.iter().any(|other| own(other).numa == own(cpu).numa);
                (!near, cores.get(&CORE(&own(cpu))).map_or(0, CpuSet::len), *cpu)
            });
        }
        let rest: CpuSet = rest.into_iter().take(self.missing()).collect();
        self.take(&rest);
    }
}

/// How many come from each of some NUMA nodes.
#[derive(Debug, Clone, PartialEq)]
struct Shares {
    nodes: Vec<u32>,
    /// From each of them, and then so many together from each of these in turn.
    each: usize,
    group: usize,
    turns: Vec<u32>,
    /// How unevenly nodes are used afterwards, in thousandths.
    unevenness: u64,
    in_one_socket: bool,
}

impl Shares {
    /// Those of as few nodes as can be that leave the machine the most evenly used.
    fn best(
        topology: &Topology,
        free: &CpuSet,
        count: usize,
        group: usize,
        by_socket: bool,
    ) -> Option<Shares> {
        let all = groups(topology, &topology.keys().copied().collect(), NODE).len();
        let mut left: Vec<(u32, usize)> = groups(topology, free, NODE)
            .into_iter()
            .map(|((node, _, _), cpus)| (node, cpus.len()))
            .collect();
        left.sort_by_key(|(node, cpus)| (*cpus, *node));
        if left.is_empty() || left.len() > MOST_NODES {
            return None;
        }
        let wanted = count.div_ceil(group);
        let of_a_node = topology.len().div_ceil(group).div_ceil(all).max(1);
        let least = wanted.div_ceil(of_a_node);
        (least..=wanted.min(left.len())).find_map(|size| {
            let choices = combinations(&left, size);
            let shares = choices
                .iter()
                .filter_map(|nodes| Shares::of(topology, &left, nodes, count, group, by_socket));
            shares.min_by_key(|one| (by_socket && !one.in_one_socket, one.unevenness))
        })
    }

    fn of(
        topology: &Topology,
        left: &[(u32, usize)],
        nodes: &[(u32, usize)],
        count: usize,
        group: usize,
        by_socket: bool,
    ) -> Option<Shares> {
        if nodes.iter().map(|(_, cpus)| cpus / group * group).sum::<usize>() < count {
            return None;
        }
        let mut each = count / nodes.len() / group * group;
        let least = nodes.iter().map(|(_, cpus)| cpus / group * group).min()?;
        match by_socket {
            true => each = each.min(least),
            false if nodes.iter().any(|(_, cpus)| *cpus < each) => return None,
            false => {}
        }
        let mut after: BTreeMap<u32, usize> = left.iter().copied().collect();
        nodes.iter().for_each(|(node, _)| *after.entry(*node).or_default() -= each);
        let rest = count - each * nodes.len();
        let (turns, unevenness) = match rest {
            0 => (Vec::new(), unevenness(&after)),
            rest => turns(nodes, &after, rest, group)?,
        };
        let socket =
            |node: u32| topology.values().find(|cpu| cpu.numa == node).map(|cpu| cpu.socket);
        let nodes: Vec<u32> = nodes.iter().map(|(node, _)| *node).collect();
        let first = nodes.first().and_then(|node| socket(*node));
        let in_one_socket = nodes.iter().all(|node| socket(*node) == first);
        Some(Shares { nodes, each, group, turns, unevenness, in_one_socket })
    }

    fn take(&self, topology: &Topology, mut free: CpuSet, spread: bool) -> CpuSet {
        let mut taken = CpuSet::new();
        let every = self.nodes.iter().map(|node| (*node, self.each));
        let more = self.turns.iter().map(|node| (*node, self.group));
        for (node, count) in every.chain(more) {
            let own = free.iter().filter(|cpu| topology[*cpu].numa == node).copied().collect();
            let own = packed(topology, own, count, spread, false);
            free.retain(|cpu| !own.contains(cpu));
            taken.extend(own);
        }
        taken
    }
}

/// Which of the nodes give what is left over, group by group: as many of them as even it out best.
fn turns(
    nodes: &[(u32, usize)],
    after: &BTreeMap<u32, usize>,
    rest: usize,
    group: usize,
) -> Option<(Vec<u32>, u64)> {
    let have: Vec<(u32, usize)> =
        nodes.iter().filter(|(node, _)| after[node] >= group).copied().collect();
    let mut best: Option<(Vec<u32>, u64)> = None;
    for size in (1..=have.len()).rev() {
        for some in combinations(&have, size) {
            let (mut after, mut rest, mut turns) = (after.clone(), rest, Vec::new());
            while rest > 0 {
                let before = rest;
                for (node, _) in &some {
                    let left = after.entry(*node).or_default();
                    if rest > 0 && *left >= group {
                        *left -= group;
                        rest -= group;
                        turns.push(*node);
                    }
                }
                if rest == before {
                    break;
                }
            }
            let unevenness = unevenness(&after);
            if rest == 0 && best.as_ref().is_none_or(|(_, least)| unevenness < *least) {
                best = Some((turns, unevenness));
            }
        }
    }
    best
}

/// The standard deviation, in thousandths.
fn unevenness(after: &BTreeMap<u32, usize>) -> u64 {
    let count = after.len().max(1) as f64;
    let mean = after.values().sum::<usize>() as f64 / count;
    let squares = after.values().map(|one| (*one as f64 - mean).powi(2)).sum::<f64>();
    ((squares / count).sqrt() * 1000.0).round() as u64
}

/// Every choice of so many, in order.
fn combinations<T: Copy>(all: &[T], size: usize) -> Vec<Vec<T>> {
    let Some((first, rest)) = all.split_first() else {
        return if size == 0 { vec![Vec::new()] } else { Vec::new() };
    };
    if size == 0 {
        return vec![Vec::new()];
    }
    let with = combinations(rest, size - 1).into_iter().map(|mut own| {
        own.insert(0, *first);
        own
    });
    with.chain(combinations(rest, size)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::topology::{parse, shown};
    use super::*;

    /// Two sockets of two cores of two threads: threads of a core are 4 apart.
    fn small() -> Topology {
        let place = |cpu: u32| Cpu {
            core: cpu % 4,
            socket: cpu % 4 / 2,
            numa: cpu % 4 / 2,
            cache: cpu % 4 / 2,
        };
        (0..8).map(|cpu| (cpu, place(cpu))).collect()
    }

    /// Two sockets of two NUMA nodes of two caches of two cores of one thread.
    fn large() -> Topology {
        let place = |cpu: u32| Cpu { core: cpu, socket: cpu / 8, numa: cpu / 4, cache: cpu / 2 };
        (0..16).map(|cpu| (cpu, place(cpu))).collect()
    }

    fn check(choice: Choice, topology: &Topology, rows: &[(&str, usize, &str)]) {
        for (free, count, expected) in rows {
            let taken = choice.take(topology, &parse(free).unwrap(), *count);
            let taken = taken.map_or("none".to_owned(), |cpus| shown(&cpus));
            assert_eq!(taken, *expected, "{count} of {free}");
        }
    }

    #[test]
    fn what_belongs_together_is_taken_together() {
        check(
            Choice::default(),
            &small(),
            &[
                ("0-7", 4, "0-1,4-5"),
                ("0-7", 2, "0,4"),
                ("0-7", 6, "0-2,4-6"),
                ("1-7", 4, "2-3,6-7"),
                ("1-7", 1, "4"),
                ("1-7", 3, "1,4-5"),
                ("0-1", 3, "none"),
                ("0-7", 0, ""),
            ],
        );
        // A whole socket rather than nodes of two.
        check(Choice::default(), &large(), &[("1-15", 8, "8-15"), ("0-15", 4, "0-3")]);
    }

    #[test]
    fn cores_are_spread_over() {
        let spread = Choice { spread: true, ..Choice::default() };
        check(spread, &small(), &[("0-7", 2, "0-1"), ("0-7", 3, "0-1,4"), ("1-7", 2, "1,4")]);
    }

    #[test]
    fn a_cache_is_shared_if_it_can_be() {
        let by_cache = Choice { by_cache: true, ..Choice::default() };
        check(
            by_cache,
            &large(),
            &[
                // One processor of the first cache is used: the second has both.
                ("1-15", 2, "2-3"),
                ("1,3,5,7,8-15", 2, "8-9"),
                ("1-15", 1, "1"),
                ("1,3,5,7", 2, "1,3"),
            ],
        );
        check(Choice::default(), &large(), &[("1-15", 2, "1-2")]);
    }

    #[test]
    fn nodes_give_the_same() {
        let evenly = Choice { evenly: Some(1), ..Choice::default() };
        check(
            evenly,
            &large(),
            &[
                // It fits into one.
                ("0-15", 4, "0-3"),
                ("0-15", 6, "0-2,4-6"),
                ("0-15", 8, "0-7"),
                ("0-15", 9, "0-2,4-6,8-10"),
                // One over: it comes from a node that has more left.
                ("1-15", 7, "4-10"),
                ("0-15", 16, "0-15"),
                ("0-15", 17, "none"),
            ],
        );
        let in_cores = Choice { evenly: Some(2), ..Choice::default() };
        check(in_cores, &small(), &[("0-7", 6, "0-2,4-6"), ("0-7", 5, "0-2,4-5")]);
        let by_socket = Choice { by_socket: true, ..evenly };
        check(evenly, &large(), &[("2-15", 5, "4-6,8-9")]);
        check(by_socket, &large(), &[("2-15", 5, "8-10,12-13")]);
    }

    #[test]
    fn combinations_are_all_there_are() {
        assert_eq!(combinations(&[1, 2, 3], 2), [[1, 2], [1, 3], [2, 3]]);
        assert_eq!(combinations(&[1], 2), Vec::<Vec<i32>>::new());
        assert_eq!(combinations::<i32>(&[], 0), [Vec::<i32>::new()]);
    }
}
