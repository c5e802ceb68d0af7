//! Zones that are told to prefer an endpoint, where a service asks for `Auto`: as many endpoints for each
//! zone as it has of the processors of all nodes, most of them its own.
//!
//! Where that cannot be done fairly, nobody is told anything, and an event says why. The rules are those
//! of upstream's `k8s.io/endpointslice/topologycache`.
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForZone};
use std::collections::BTreeMap;
use std::sync::Arc;

const MODE: &str = "service.kubernetes.io/topology-mode";
/// The older one counts first.
const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Nodes with one of these are no part of what zones can do.
const EXCLUDED: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
/// By how much an endpoint may have more to do than its share.
const OVERLOAD: f64 = 0.2;

pub fn is_auto(service: &Service) -> bool {
    let annotation = |name| service.metadata.annotations.as_ref().and_then(|all| all.get(name));
    let mode = annotation(HINTS).or_else(|| annotation(MODE));
    mode.is_some_and(|mode| mode == "Auto" || mode == "auto")
}

/// What of a node matters to zones.
pub fn standing(node: &Node) -> (bool, Option<&str>) {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
    let ready = conditions.unwrap_or_default().iter().find(|it| it.type_ == "Ready");
    let zone = node.metadata.labels.as_ref().and_then(|labels| labels.get(ZONE));
    (ready.is_some_and(|it| it.status == "True"), zone.map(String::as_str))
}

/// The share of each zone in the processors of nodes that are ready; `None` where a node does not say
/// enough, or all are in one zone.
pub fn ratios(nodes: &[Arc<Node>]) -> Option<BTreeMap<String, f64>> {
    let mut zones: BTreeMap<String, i64> = BTreeMap::new();
    for node in nodes {
        let labels = node.metadata.labels.as_ref();
        let (is_ready, zone) = standing(node);
        if !is_ready || labels.is_some_and(|all| EXCLUDED.iter().any(|it| all.contains_key(*it))) {
            continue;
        }
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let cpu =
            allocatable.and_then(|all| api::quantity::Quantity::parse(&all.get("cpu")?.0).ok());
        let cpu = cpu.map_or(0, |cpu| cpu.milli_value());
        match zone.filter(|zone| !zone.is_empty()) {
            Some(zone) if cpu != 0 => *zones.entry(zone.to_owned()).or_default() += cpu,
            _ => return None,
        }
    }
    let total: i64 = zones.values().sum();
    let share = |(zone, cpu)| (zone, cpu as f64 / total as f64);
    (zones.len() >= 2 && total > 0).then(|| zones.into_iter().map(share).collect())
}

/// How many endpoints a zone is to have.
#[derive(Debug, PartialEq)]
struct Share {
    maximum: usize,
    desired: f64,
}

type Shares = BTreeMap<String, Share>;

fn shares(ratios: Option<&BTreeMap<String, f64>>, endpoints: usize) -> Result<Shares, String> {
    let Some(ratios) = ratios else {
        return Err(
            "Insufficient Node information: allocatable CPU or zone not specified on one or \
             more nodes"
                .to_owned(),
        );
    };
    let counts = format!("({endpoints} endpoints, {} zones)", ratios.len());
    if ratios.len() > endpoints {
        return Err(format!("Insufficient number of endpoints {counts}"));
    }
    let least = |ratio: &f64| (ratio * endpoints as f64 / (1.0 + OVERLOAD)).ceil() as usize;
    let total: usize = ratios.values().map(least).sum();
    let Some(spare) = endpoints.checked_sub(total) else {
        return Err(format!(
            "Unable to allocate minimum required endpoints to each zone without exceeding overload \
             threshold {counts}"
        ));
    };
    let share = |(zone, ratio): (&String, &f64)| {
        let minimum = least(ratio);
        let desired = (ratio * endpoints as f64).max(minimum as f64);
        (zone.clone(), Share { maximum: minimum + spare, desired })
    };
    Ok(ratios.iter().map(share).collect())
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
}

fn endpoints<'a>(slices: &'a [&mut EndpointSlice]) -> impl Iterator<Item = &'a Endpoint> {
    slices.iter().flat_map(|slice| slice.endpoints.iter().flatten())
}

fn hint(zone: &str) -> Option<EndpointHints> {
    let for_zones = Some(vec![ForZone { name: zone.to_owned() }]);
    Some(EndpointHints { for_zones, for_nodes: None })
}

/// Nobody is told anything.
pub fn clear(slices: &mut [&mut EndpointSlice]) {
    for slice in slices {
        slice.endpoints.iter_mut().flatten().for_each(|endpoint| endpoint.hints = None);
    }
}

/// Gives hints to the endpoints of one family: slices that stay as they are keep theirs while those are
/// fair. `Err` says why there are none.
pub fn assign<'a>(
    ratios: Option<&BTreeMap<String, f64>>,
    mut changed: Vec<&'a mut EndpointSlice>,
    unchanged: Vec<&'a mut EndpointSlice>,
) -> Result<(), String> {
    let all = endpoints(&changed).chain(endpoints(&unchanged));
    let shares = match shares(ratios, all.filter(|it| is_ready(it)).count()) {
        Ok(shares) => shares,
        Err(reason) => {
            clear(&mut changed);
            clear(&mut { unchanged });
            return Err(reason);
        }
    };
    let mut given: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept = Vec::new();
    for slice in unchanged {
        match fair_hints(slice, &given, &shares) {
            Some(hints) => {
                hints
                    .into_iter()
                    .for_each(|(zone, count)| *given.entry(zone).or_default() += count);
                kept.push(slice);
            }
            None => changed.push(slice),
        }
    }
    let zoneless =
        |it: &Endpoint| is_ready(it) && it.zone.as_deref().unwrap_or_default().is_empty();
    if endpoints(&changed).any(zoneless) {
        clear(&mut changed);
        clear(&mut kept);
        return Err("One or more endpoints do not have a zone specified".to_owned());
    }
    // Each its own zone's, to begin with.
    for endpoint in changed.iter_mut().flat_map(|slice| slice.endpoints.iter_mut().flatten()) {
        let zone = endpoint.zone.clone().filter(|_| is_ready(endpoint));
        endpoint.hints = zone.as_deref().and_then(hint);
        zone.into_iter().for_each(|zone| *given.entry(zone).or_default() += 1);
    }
    let (mut giving, mut receiving) = moves(&shares, &given);
    for endpoint in changed.iter_mut().flat_map(|slice| slice.endpoints.iter_mut().flatten()) {
        let Some(zone) = endpoint.zone.clone().filter(|_| is_ready(endpoint)) else { continue };
        let Some(left) = giving.get_mut(&zone).filter(|left| **left > 0) else { continue };
        let Some((to, wanted)) = receiving.iter_mut().find(|(_, wanted)| **wanted > 0) else {
            break;
        };
        endpoint.hints = hint(to);
        (*left, *wanted) = (*left - 1, *wanted - 1);
    }
    if given.is_empty() {
        return Err("No hints allocated for zones".to_owned());
    }
    Ok(())
}

/// How many hints a slice has for each zone; `None`: it has too many for one, or none where it should.
fn fair_hints(
    slice: &EndpointSlice,
    given: &BTreeMap<String, usize>,
    shares: &Shares,
) -> Option<BTreeMap<String, usize>> {
    let mut hints: BTreeMap<String, usize> = BTreeMap::new();
    for endpoint in slice.endpoints.iter().flatten().filter(|it| is_ready(it)) {
        let zones = endpoint.hints.as_ref().and_then(|hints| hints.for_zones.as_deref());
        for zone in zones.filter(|zones| !zones.is_empty())? {
            *hints.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let is_fair = hints.iter().all(|(zone, count)| {
        let before = given.get(zone).copied().unwrap_or_default();
        shares.get(zone).is_some_and(|share| count + before <= share.maximum)
    });
    is_fair.then_some(hints)
}

type Counts = BTreeMap<String, usize>;

/// How many endpoints each zone gives to others, and gets.
fn moves(shares: &Shares, given: &Counts) -> (Counts, Counts) {
    let over = |(zone, share): (&String, &Share)| {
        let has = given.get(zone).copied().unwrap_or_default() as f64;
        (zone.clone(), has - share.desired)
    };
    let mut rest: BTreeMap<String, f64> = shares.iter().map(over).collect();
    let (mut giving, mut receiving) = (Counts::new(), Counts::new());
    loop {
        let most = |sign: f64| {
            let of = rest.iter().map(|(zone, over)| (zone.clone(), over * sign));
            of.fold(None, |best: Option<(String, f64)>, it| match &best {
                Some(found) if found.1 >= it.1 => best,
                _ if it.1 > 0.0 => Some(it),
                _ => best,
            })
        };
        let (Some((from, gives)), Some((to, gets))) = (most(1.0), most(-1.0)) else { break };
        if (gives < 1.0 && gets < 1.0) || gives < 0.5 || gets < 0.5 {
            break;
        }
        rest.entry(from.clone()).and_modify(|over| *over -= 1.0);
        rest.entry(to.clone()).and_modify(|over| *over += 1.0);
        *giving.entry(from).or_default() += 1;
        *receiving.entry(to).or_default() += 1;
    }
    (giving, receiving)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `a:3 b:1`: so many of each, in order.
    fn counts(text: &str) -> Vec<(String, usize)> {
        let count = |word: &str| {
            let (zone, count) = word.split_once(':').expect("zone:count");
            (zone.to_owned(), count.parse().expect("a number"))
        };
        text.split_whitespace().map(count).collect()
    }

    fn slice(zones: &str) -> EndpointSlice {
        let one = |zone: &str| json!({ "addresses": ["10.0.0.1"], "zone": zone, "conditions": { "ready": true } });
        let all = counts(zones).into_iter().flat_map(|(zone, count)| vec![one(&zone); count]);
        let all: Vec<_> = all.collect();
        serde_json::from_value(json!({ "addressType": "IPv4", "endpoints": all })).expect("a slice")
    }

    fn hinted(slice: &EndpointSlice) -> String {
        let mut counts = Counts::new();
        for endpoint in slice.endpoints.iter().flatten() {
            let zones = endpoint.hints.iter().flat_map(|hints| hints.for_zones.iter().flatten());
            zones.for_each(|zone| *counts.entry(zone.name.clone()).or_default() += 1);
        }
        let words = counts.iter().map(|(zone, count)| format!("{zone}:{count}"));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Processors of zones, endpoints of zones, and the hints that come of it.
    fn check(cpus: &str, zones: &str, expected: &str) {
        let nodes: Vec<Arc<Node>> = counts(cpus)
            .into_iter()
            .map(|(zone, cpu)| {
                let node = json!({ "metadata": { "labels": { ZONE: zone } }, "status": {
                    "allocatable": { "cpu": cpu.to_string() },
                    "conditions": [{ "type": "Ready", "status": "True" }] } });
                Arc::new(serde_json::from_value(node).expect("a node"))
            })
            .collect();
        let mut slice = slice(zones);
        let found = match assign(ratios(&nodes).as_ref(), vec![&mut slice], Vec::new()) {
            Ok(()) => hinted(&slice),
            Err(reason) => reason,
        };
        assert_eq!(found, expected, "{cpus} | {zones}");
    }

    #[test]
    fn zones_have_their_share_and_the_rest_is_given_away() {
        check("a:4 b:4", "a:3 b:3", "a:3 b:3");
        check("a:4 b:4", "a:4 b:2", "a:3 b:3");
        check("a:4 b:4 c:4", "a:6", "a:2 b:2 c:2");
        // Half an endpoint is no reason to move one.
        check("a:4 b:4", "a:3 b:4", "a:3 b:4");
    }

    #[test]
    fn where_it_cannot_be_fair_there_are_no_hints() {
        let unknown = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
        check("a:4", "a:3", unknown);
        check("a:4 b:0", "a:3", unknown);
        check("a:4 b:4", "a:1", "Insufficient number of endpoints (1 endpoints, 2 zones)");
        check(
            "a:4 b:4 c:4",
            "a:4",
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (4 endpoints, 3 zones)",
        );
        check("a:4 b:4", ":4", "One or more endpoints do not have a zone specified");
    }

    #[test]
    fn slices_that_stay_keep_their_hints_while_those_are_fair() {
        let ratios = BTreeMap::from([("a".to_owned(), 0.5), ("b".to_owned(), 0.5)]);
        let (mut old, mut new) = (slice("a:3"), slice("a:3"));
        old.endpoints.iter_mut().flatten().for_each(|endpoint| endpoint.hints = hint("a"));
        assign(Some(&ratios), vec![&mut new], vec![&mut old]).expect("fair");
        assert_eq!((hinted(&old), hinted(&new)), ("a:3".to_owned(), "b:3".to_owned()));
        // More than a zone may have: all are given anew.
        let (mut old, mut new) = (slice("a:5"), slice("b:1"));
        old.endpoints.iter_mut().flatten().for_each(|endpoint| endpoint.hints = hint("a"));
        assign(Some(&ratios), vec![&mut new], vec![&mut old]).expect("fair");
        assert_eq!((hinted(&old), hinted(&new)), ("a:3 b:2".to_owned(), "b:1".to_owned()));
    }
}
