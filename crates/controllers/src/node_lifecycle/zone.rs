//! When pods have to leave a node that is not ready: nodes of a zone one after another, more slowly
//! or not at all in a zone that has lost many, and from none when every zone is lost.
use super::{is_left, status_of};
use crate::world::{Memo, World};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeMap;
use std::time::Duration;

/// Seconds; no pause is longer.
const A_YEAR: f64 = 365.0 * 86400.0;

pub enum Turn {
    /// What is to be remembered of it.
    Now(Option<Memo>),
    Later(Duration),
    /// Not before something else changes.
    Never,
}

/// When pods last had to leave a node of a zone.
#[derive(Debug)]
struct Last(Timestamp);

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Normal,
    /// Many nodes are not ready.
    Partial,
    /// None is.
    Full,
}

pub fn turn(node: &Node, world: &World, now: Timestamp) -> Turn {
    let settings = &world.settings.nodes;
    let zones = zones(world);
    if zones.values().all(|zone| zone.state(settings.unhealthy_zone_threshold) == State::Full) {
        return Turn::Never;
    }
    if is_left(node) {
        return Turn::Now(None);
    }
    let name = name(node);
    let zone = zones.get(&name).copied().unwrap_or_default();
    let rate = match zone.state(settings.unhealthy_zone_threshold) {
        State::Normal | State::Full => settings.eviction_rate,
        State::Partial if zone.ready + zone.not_ready > settings.large_cluster_size_threshold => {
            settings.secondary_eviction_rate
        }
        State::Partial => 0.0,
    };
    if rate <= 0.0 {
        return Turn::Never;
    }
    let pause = SignedDuration::from_secs_f64((1.0 / rate).min(A_YEAR));
    let due = world.recall::<Last>(&name).map_or(now, |last| last.0 + pause);
    match Duration::try_from(due.duration_since(now)) {
        Ok(left) if !left.is_zero() => Turn::Later(left),
        _ => Turn::Now(Some(Memo::new(&name, Last(now)))),
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Zone {
    ready: usize,
    not_ready: usize,
}

impl Zone {
    fn state(self, threshold: f64) -> State {
        let share = self.not_ready as f64 / (self.ready + self.not_ready) as f64;
        match self {
            Zone { ready: 0, not_ready } if not_ready > 0 => State::Full,
            Zone { not_ready, .. } if not_ready > 2 && share >= threshold => State::Partial,
            _ => State::Normal,
        }
    }
}

fn name(node: &Node) -> String {
    let label = |key: &str| {
        let labels = node.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(key)).map(String::as_str).unwrap_or_default()
    };
    let (region, zone) =
        (label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"));
    format!("{region}/{zone}")
}

fn zones(world: &World) -> BTreeMap<String, Zone> {
    let mut zones = BTreeMap::<String, Zone>::new();
    for node in world.all::<Node>() {
        let zone = zones.entry(name(&node)).or_default();
        match status_of(&node, "Ready") {
            Some("True") => zone.ready += 1,
            _ => zone.not_ready += 1,
        }
    }
    zones
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As upstream's `ComputeZoneState` has it.
    #[test]
    fn a_zone_is_as_well_as_its_nodes() {
        let state = |ready, not_ready| Zone { ready, not_ready }.state(0.55);
        assert_eq!(state(0, 0), State::Normal);
        assert_eq!(state(0, 1), State::Full);
        assert_eq!(state(1, 2), State::Normal);
        assert_eq!(state(2, 3), State::Partial);
        assert_eq!(state(3, 3), State::Normal);
    }
}
