//! How a pod is treated when its node runs short.
use crate::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

const COMPUTE: [&str; 2] = ["cpu", "memory"];

type Amounts = BTreeMap<&'static str, Quantity>;

pub fn class(spec: &Value) -> &'static str {
    let given = |part: &str| spec["resources"][part].as_object().is_some_and(|all| !all.is_empty());
    if given("requests") || given("limits") {
        let (requests, limits) =
            (amounts(&spec["resources"], "requests"), amounts(&spec["resources"], "limits"));
        let guaranteed = COMPUTE.iter().all(|name| limits.contains_key(name)) && requests == limits;
        return pick(requests.is_empty() && limits.is_empty(), guaranteed);
    }
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut limited = true;
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array().into_iter().flatten() {
            let own = amounts(&container["resources"], "limits");
            limited &= COMPUTE.iter().all(|name| own.contains_key(name));
            add(&mut limits, own);
            add(&mut requests, amounts(&container["resources"], "requests"));
        }
    }
    pick(requests.is_empty() && limits.is_empty(), limited && requests == limits)
}

fn pick(nothing: bool, guaranteed: bool) -> &'static str {
    match (nothing, guaranteed) {
        (true, _) => "BestEffort",
        (_, true) => "Guaranteed",
        _ => "Burstable",
    }
}

fn amounts(resources: &Value, part: &str) -> Amounts {
    let amount = |name: &&'static str| {
        let text = resources[part][name].as_str()?;
        let quantity = Quantity::parse(text).ok()?;
        quantity.sign().is_gt().then_some((*name, quantity))
    };
    COMPUTE.iter().filter_map(amount).collect()
}

fn add(total: &mut Amounts, more: Amounts) {
    for (name, amount) in more {
        *total.entry(name).or_insert(Quantity::ZERO) += &amount;
    }
}
