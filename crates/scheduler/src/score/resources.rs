//! Nodes with much left, or little, and nodes whose resources are used alike.
use super::MAX;
use crate::cluster::NodeRow;
use crate::config::Strategy;
use crate::filter::Cycle;
use crate::resources::Resources;

/// `NodeResourcesFit`: by its profile's strategy.
pub fn fit(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    let args = &cycle.profile.args.fit;
    let pod = &cycle.pod.wishes;
    let is_usual = matches!(&args.resources[..], [(cpu, 1), (memory, 1)]
        if **cpu == *"cpu" && **memory == *"memory");
    if is_usual && args.strategy == Strategy::Least {
        return Some(nodes.iter().map(|row| least_of_two(pod.non_zero, row)).collect());
    }
    // What containers that say nothing are taken to need counts here.
    let own: Vec<i64> = args
        .resources
        .iter()
        .map(|(name, _)| match &**name {
            "cpu" => pod.non_zero[0],
            "memory" => pod.non_zero[1],
            name => amount(&pod.requests, name),
        })
        .collect();
    let score = |row: &&NodeRow| {
        let (mut sum, mut weights) = (0, 0);
        for ((name, weight), own) in args.resources.iter().zip(&own) {
            let Some((has, used)) = offered(cycle, row, name, *own, true) else { continue };
            let one = rate(&args.strategy, has, used + own);
            if matches!(args.strategy, Strategy::Ratio(_)) && one <= 0 {
                continue;
            }
            sum += one * weight;
            weights += weight;
        }
        match (&args.strategy, weights) {
            (_, 0) => 0,
            (Strategy::Ratio(_), weights) => f64::round(sum as f64 / weights as f64) as i64,
            (_, weights) => sum / weights,
        }
    };
    Some(nodes.iter().map(score).collect())
}

fn rate(strategy: &Strategy, has: i64, used: i64) -> i64 {
    match strategy {
        Strategy::Least if used > has => 0,
        Strategy::Least => (has - used) * MAX / has,
        // What asks for nothing is taken to ask for something, so that it may be too much.
        Strategy::Most => used.min(has) * MAX / has,
        Strategy::Ratio(shape) if used > has => shape.at(100),
        Strategy::Ratio(shape) => shape.at(used * 100 / has),
    }
}

/// The usual case: processor and memory, as much left as can be.
fn least_of_two(own: [i64; 2], row: &NodeRow) -> i64 {
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
}

fn amount(resources: &Resources, name: &str) -> i64 {
    match name {
        "cpu" => resources.milli_cpu,
        "memory" => resources.memory,
        "ephemeral-storage" => resources.ephemeral_storage,
        name => resources.scalar(name),
    }
}

/// What a node has of a resource, and how much of it is used. `None`: the node is not judged by it:
/// it has none, or the pod does not want any of what few nodes have.
fn offered(
    cycle: &Cycle<'_>,
    row: &NodeRow,
    name: &str,
    own: i64,
    non_zero: bool,
) -> Option<(i64, i64)> {
    let is_scalar = !matches!(name, "cpu" | "memory" | "ephemeral-storage");
    if is_scalar && own == 0 {
        return None;
    }
    let has = amount(&row.node.allocatable, name);
    if has == 0 && is_scalar {
        return cycle.devices_offered(row, name);
    }
    let used = match name {
        "cpu" if non_zero => row.non_zero[0],
        "memory" if non_zero => row.non_zero[1],
        name => amount(&row.requested, name),
    };
    (has != 0).then_some((has, used))
}

/// `NodeResourcesBalancedAllocation`.
pub fn balanced(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    let names = &cycle.profile.args.balanced;
    let requests = &cycle.pod.wishes.requests;
    let own: Vec<i64> = names.iter().map(|name| amount(requests, name)).collect();
    if own.iter().all(|own| *own == 0) {
        return None;
    }
    let is_usual = matches!(&names[..], [cpu, memory]
        if **cpu == *"cpu" && **memory == *"memory");
    if is_usual {
        let own = [own[0], own[1]];
        return Some(nodes.iter().map(|row| balance_of_two(own, row)).collect());
    }
    let mut shares: Vec<[f64; 2]> = Vec::with_capacity(names.len());
    let score = |row: &&NodeRow| {
        shares.clear();
        for (name, own) in names.iter().zip(&own) {
            let Some((has, used)) = offered(cycle, row, name, *own, false) else { continue };
            let share = |used: i64| (used as f64 / has as f64).min(1.0);
            shares.push([share(used), share(used + own)]);
        }
        let [before, after] = [0, 1].map(|at| balance(shares.iter().map(|share| share[at])));
        improvement(before, after)
    };
    Some(nodes.iter().map(score).collect())
}

fn balance_of_two(own: [i64; 2], row: &NodeRow) -> i64 {
    let has = [row.node.allocatable.milli_cpu, row.node.allocatable.memory];
    let before = [row.requested.milli_cpu, row.requested.memory];
    if has.contains(&0) {
        return improvement(MAX, MAX);
    }
    let share = |at: usize, used: i64| (used as f64 / has[at] as f64).min(1.0);
    let of = |used: [i64; 2]| {
        let deviation = ((share(0, used[0]) - share(1, used[1])) / 2.0).abs();
        ((1.0 - deviation) * MAX as f64) as i64
    };
    improvement(of(before), of([before[0] + own[0], before[1] + own[1]]))
}

fn improvement(before: i64, after: i64) -> i64 {
    MAX / 2 + (MAX / 2 + after - before) / 2
}

/// 100 if all are used in the same proportion; less, the further they are apart.
fn balance(shares: impl Iterator<Item = f64> + Clone) -> i64 {
    let count = shares.clone().count();
    let deviation = match count {
        0 | 1 => 0.0,
        2 => {
            let mut two = shares;
            let (one, other) = (two.next().unwrap_or(0.0), two.next().unwrap_or(0.0));
            ((one - other) / 2.0).abs()
        }
        _ => {
            let mean = shares.clone().sum::<f64>() / count as f64;
            let squares: f64 = shares.map(|share| (share - mean) * (share - mean)).sum();
            (squares / count as f64).sqrt()
        }
    };
    ((1.0 - deviation) * MAX as f64) as i64
}
