//! Nodes on which claims get what they would rather have: earlier alternatives count for more.
use super::normalize;
use crate::cluster::NodeRow;
use crate::devices;
use crate::filter::Cycle;
use crate::filter::devices::plan;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};

/// Alternatives that a request may have: upstream's `FirstAvailableDeviceRequestMaxSize`.
const MOST: i64 = 8;

pub fn score(cycle: &Cycle<'_>, nodes: &[&NodeRow]) -> Option<Vec<i64>> {
    let has_alternatives = |claim: &ResourceClaim| {
        devices::requests(claim).iter().any(|request| request.first_available.is_some())
    };
    if !cycle.devices.claims.iter().any(|wish| has_alternatives(&wish.claim)) {
        return None;
    }
    let score = |row: &&NodeRow| {
        let Ok(plan) = plan(cycle, row) else { return 0 };
        let own = plan.claims.iter().map(|(claim, allocation)| {
            let allocation = allocation.as_deref();
            allocation.or_else(|| devices::allocation(claim)).map_or(0, |it| worth(claim, it))
        });
        own.sum()
    };
    let mut scores: Vec<i64> = nodes.iter().map(score).collect();
    normalize(&mut scores, false);
    Some(scores)
}

fn worth(claim: &ResourceClaim, allocation: &AllocationResult) -> i64 {
    let has = |name: &str| devices::results(allocation).iter().any(|it| it.request == name);
    let requests = devices::requests(claim).iter();
    let subs = requests.flat_map(|request| {
        let subs = request.first_available.iter().flatten().enumerate();
        subs.map(|(at, sub)| (at as i64, format!("{}/{}", request.name, sub.name)))
    });
    subs.filter(|(_, name)| has(name)).map(|(at, _)| MOST - at).sum()
}
