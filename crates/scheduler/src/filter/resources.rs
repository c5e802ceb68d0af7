//! Whether what a pod needs is left on a node.
use super::{Cycle, Refusal, Verdict};
use crate::cluster::NodeRow;
use crate::config::is_extended;
use crate::resources::Resources;
use smallvec::SmallVec;
use std::borrow::Cow;

/// All that is missing is named; what the whole node does not have cannot be freed.
pub fn fit(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    let (needs, has, used) = (&cycle.pod.wishes.requests, &row.node.allocatable, &row.requested);
    let too_many = row.pods.len() as i64 + 1 > row.node.allowed_pods;
    if !too_many && is_enough(needs, has, used) {
        return Ok(());
    }
    let mut reasons: SmallVec<[Cow<'static, str>; 1]> = SmallVec::new();
    let mut preemption_helps = true;
    if too_many {
        reasons.push("Too many pods".into());
    }
    let mut missing = |name: &dyn Fn() -> Cow<'static, str>, [needed, has, used]: [i64; 3]| {
        if needed > 0 && needed > has - used {
            reasons.push(name());
            preemption_helps &= needed <= has;
        }
    };
    missing(&|| "Insufficient cpu".into(), [needs.milli_cpu, has.milli_cpu, used.milli_cpu]);
    missing(&|| "Insufficient memory".into(), [needs.memory, has.memory, used.memory]);
    let [a, b, c] = [needs, has, used].map(|resources| resources.ephemeral_storage);
    missing(&|| "Insufficient ephemeral-storage".into(), [a, b, c]);
    for (name, needed) in &needs.scalars {
        if is_ignored(cycle, name) || cycle.is_backed_by_devices(row, name) {
            continue;
        }
        let amounts = [*needed, has.scalar(name), used.scalar(name)];
        missing(&|| format!("Insufficient {name}").into(), amounts);
    }
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(Refusal { filter: 0, reasons, preemption_helps, is_error: false }),
    }
}

/// Somebody else looks after it: an extender, or whoever configured the profile.
fn is_ignored(cycle: &Cycle<'_>, name: &str) -> bool {
    let args = &cycle.profile.args.fit;
    if args.ignored.is_empty() && args.ignored_groups.is_empty() {
        return false;
    }
    let group = name.split('/').next().unwrap_or_default();
    is_extended(name)
        && (args.ignored.iter().any(|it| **it == *name)
            || args.ignored_groups.iter().any(|it| **it == *group))
}

/// The usual case, without a text in sight.
fn is_enough(needs: &Resources, has: &Resources, used: &Resources) -> bool {
    let is_left = |needed: i64, has: i64, used: i64| needed <= 0 || needed <= has - used;
    needs.scalars.is_empty()
        && is_left(needs.milli_cpu, has.milli_cpu, used.milli_cpu)
        && is_left(needs.memory, has.memory, used.memory)
        && is_left(needs.ephemeral_storage, has.ephemeral_storage, used.ephemeral_storage)
}
