//! Nodes with much left, and nodes of which processor and memory are used alike.
use super::MAX;
use crate::cluster::NodeRow;
use crate::filter::Cycle;

pub fn least_allocated(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    let own = cycle.pod.wishes.non_zero;
    let score = |row: &&NodeRow| {
        let has = [row.node.allocatable.milli_cpu, row.node.allocatable.memory];
        let (mut sum, mut count) = (0, 0);
        for at in [0, 1] {
            let (has, used) = (has[at], row.non_zero[at] + own[at]);
            if has == 0 {
                continue;
            }
            count += 1;
            // Bytes of large machines, multiplied by a hundred, still fit.
            sum += if used > has { 0 } else { (has - used) * MAX / has };
        }
        if count == 0 { 0 } else { sum / count }
    };
    Some(nodes.iter().map(score).collect())
}

pub fn balanced(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    let own = &cycle.pod.wishes.requests;
    if own.milli_cpu == 0 && own.memory == 0 {
        return None;
    }
    let score = |row: &&NodeRow| {
        let has = [row.node.allocatable.milli_cpu, row.node.allocatable.memory];
        let before = [row.requested.milli_cpu, row.requested.memory];
        let after = [before[0] + own.milli_cpu, before[1] + own.memory];
        MAX / 2 + (MAX / 2 + balance(after, has) - balance(before, has)) / 2
    };
    Some(nodes.iter().map(score).collect())
}

/// 100 if both are used in the same proportion, 50 if one is used up and the other is not used.
fn balance(used: [i64; 2], has: [i64; 2]) -> i64 {
    let share = |at: usize| (used[at] as f64 / has[at] as f64).min(1.0);
    let deviation =
        if has[0] == 0 || has[1] == 0 { 0.0 } else { ((share(0) - share(1)) / 2.0).abs() };
    ((1.0 - deviation) * MAX as f64) as i64
}
