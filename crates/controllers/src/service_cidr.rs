//! A range of services' addresses is kept while addresses of it are in use, and says whether it is
//! ready.
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use client::source::Patch;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;
use std::net::IpAddr;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "service-cidr-controller",
    account: "service-cidrs-controller",
    workers: 5,
    watch,
    reconcile,
};

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Until every API server has heard that it is going.
const GRACE: SignedDuration = SignedDuration::from_secs(10);
const STUCK: &str = "There are still IPAddresses referencing the ServiceCIDR, please remove them \
                     or create a new ServiceCIDR";
const READY: &str = "Kubernetes Service CIDR is ready";

fn watch(on: &Watching) {
    on.each::<ServiceCIDR>(|world, change| {
        let mut keys = vec![change.key.clone()];
        // Others may have waited for a larger one.
        let ranges: Vec<_> = change.new.iter().flat_map(|it| ranges(it)).collect();
        let all = world.informer::<ServiceCIDR>();
        let read = all.read();
        let overlaps = |other: &ServiceCIDR| {
            let theirs = self::ranges(other);
            theirs.iter().any(|a| ranges.iter().any(|b| a.holds(b) || b.holds(a)))
        };
        keys.extend(read.iter().filter(|(_, it)| overlaps(it)).map(|(key, _)| key.clone()));
        keys
    });
    on.each::<IPAddress>(|world, change| {
        if change.old.is_some() && change.new.is_some() {
            return Vec::new();
        }
        let Ok(address) = change.key.name.parse::<IpAddr>() else { return Vec::new() };
        let all = world.informer::<ServiceCIDR>();
        let read = all.read();
        let holding = read.iter().filter(|(_, it)| has(it, address));
        holding.map(|(key, _)| key.clone()).collect()
    });
}

/// The first bits of an address, as a number of their family's length.
#[derive(Debug, PartialEq)]
struct Range {
    address: IpAddr,
    bits: u32,
}

impl Range {
    fn parse(text: &str) -> Option<Range> {
        let (address, bits) = text.split_once('/')?;
        Some(Range { address: address.parse().ok()?, bits: bits.parse().ok()? })
    }

    fn has(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, length: u32| {
            self.bits == 0 || (self.bits <= length && (a ^ b) >> (length - self.bits) == 0)
        };
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }

    fn holds(&self, other: &Range) -> bool {
        self.bits <= other.bits && self.has(other.address)
    }
}

fn ranges(cidr: &ServiceCIDR) -> Vec<Range> {
    let texts = cidr.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    texts.filter_map(|text| Range::parse(text)).collect()
}

fn has(cidr: &ServiceCIDR, address: IpAddr) -> bool {
    ranges(cidr).iter().any(|range| range.has(address))
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(cidr) = world.get::<ServiceCIDR>(key) else { return Vec::new() };
    let is_kept = cidr.metadata.finalizers.iter().flatten().any(|it| it == FINALIZER);
    let Some(deleted) = &cidr.metadata.deletion_timestamp else {
        let mut actions = Vec::new();
        if !is_kept {
            actions.push(finalizers(&cidr, true));
        }
        actions.extend(condition(&cidr, "True", "", READY, now));
        return actions;
    };
    if !is_kept {
        return Vec::new();
    }
    if !may_go(&cidr, world) {
        return condition(&cidr, "False", "Terminating", STUCK, now).into_iter().collect();
    }
    match Duration::try_from((deleted.0 + GRACE).duration_since(now)) {
        Ok(left) if !left.is_zero() => vec![Action::Again(left)],
        _ => vec![finalizers(&cidr, false)],
    }
}

/// Either other ranges hold all of it, or no address is in it alone.
fn may_go(cidr: &ServiceCIDR, world: &World) -> bool {
    let all = world.all::<ServiceCIDR>();
    let others: Vec<_> = all.iter().filter(|it| it.metadata.name != cidr.metadata.name).collect();
    let is_held = |range: &Range| {
        others.iter().any(|other| ranges(other).iter().any(|larger| larger.holds(range)))
    };
    if ranges(cidr).iter().all(is_held) {
        return true;
    }
    let is_ours = |address: &IPAddress| {
        let labels = address.metadata.labels.as_ref();
        let by = labels.and_then(|labels| labels.get("ipaddress.kubernetes.io/managed-by"));
        by.is_some_and(|by| by == "ipallocator.k8s.io")
    };
    let addresses = world.all::<IPAddress>();
    let mut named = addresses
        .iter()
        .filter(|address| is_ours(address))
        .filter_map(|address| address.metadata.name.as_deref()?.parse::<IpAddr>().ok());
    !named.any(|address| has(cidr, address) && !others.iter().any(|other| has(other, address)))
}

fn finalizers(cidr: &ServiceCIDR, keep: bool) -> Action {
    let mut all = cidr.metadata.finalizers.clone().unwrap_or_default();
    all.retain(|finalizer| finalizer != FINALIZER);
    all.extend(keep.then(|| FINALIZER.to_owned()));
    let patch = json!({ "metadata": { "finalizers": all,
        "resourceVersion": cidr.metadata.resource_version } });
    Action::Patch { object: Target::of(cidr), part: "", patch: Patch::Merge(patch) }
}

fn condition(
    cidr: &ServiceCIDR,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Option<Action> {
    let known = cidr.status.as_ref().and_then(|status| status.conditions.as_deref());
    let known = known.unwrap_or_default();
    let old = known.iter().find(|one| one.type_ == "Ready");
    if old.is_some_and(|old| old.status == status && old.reason == reason && old.message == message)
    {
        return None;
    }
    let since = old.filter(|old| old.status == status).map(|old| old.last_transition_time.clone());
    let mut conditions: Vec<_> = known.iter().filter(|one| one.type_ != "Ready").cloned().collect();
    conditions.push(Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since.unwrap_or(Time(now)),
        observed_generation: None,
    });
    let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
    Some(Action::Patch { object: Target::of(cidr), part: "status", patch })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::{Expect, expect};

    fn check(world: &str, expect: Expect) {
        check_row(&CONTROLLER, world, &["a"], expect);
    }

    #[test]
    fn a_range_is_kept_and_ready() {
        check(
            "servicecidr a spec.cidrs=[\"10.96.0.0/16\"]",
            expect![[r#"
            patch servicecidrs.networking.k8s.io a {"metadata":{"finalizers":["networking.k8s.io/service-cidr-finalizer"],"resourceVersion":"2"}}
            patch servicecidrs.networking.k8s.io/status a {"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Kubernetes Service CIDR is ready","reason":"","status":"True","type":"Ready"}]}}
        "#]],
        );
    }

    #[test]
    fn a_range_goes_when_no_address_depends_on_it() {
        let going = format!(
            "servicecidr a spec.cidrs=[\"10.96.0.0/16\",\"fd00::/112\"] finalizers={FINALIZER} metadata.deletionTimestamp="
        );
        let (late, just) = ("2026-01-01T11:59:00Z", "2026-01-01T11:59:55Z");
        let address = |name: &str| {
            format!("ipaddress {name} label:ipaddress.kubernetes.io/managed-by=ipallocator.k8s.io")
        };
        check(
            &format!("{going}{late}"),
            expect![[r#"
            patch servicecidrs.networking.k8s.io a {"metadata":{"finalizers":[],"resourceVersion":"2"}}
        "#]],
        );
        check(
            &format!("{going}{just}"),
            expect![[r#"
            again after 5s
        "#]],
        );
        let stuck = format!("{going}{late}\n {}", address("10.96.0.7"));
        check(
            &stuck,
            expect![[r#"
            patch servicecidrs.networking.k8s.io/status a {"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR","reason":"Terminating","status":"False","type":"Ready"}]}}
        "#]],
        );
        check(
            &format!("{going}{late}\n {}", address("10.97.0.7")),
            expect![[r#"
            patch servicecidrs.networking.k8s.io a {"metadata":{"finalizers":[],"resourceVersion":"2"}}
        "#]],
        );
        check(
            &format!("{stuck}\n servicecidr b spec.cidrs=[\"10.96.0.0/24\"]"),
            expect![[r#"
            patch servicecidrs.networking.k8s.io a {"metadata":{"finalizers":[],"resourceVersion":"2"}}
        "#]],
        );
        check(
            &format!("{stuck}\n servicecidr b spec.cidrs=[\"10.0.0.0/8\",\"fd00::/64\"]"),
            expect![[r#"
                patch servicecidrs.networking.k8s.io a {"metadata":{"finalizers":[],"resourceVersion":"2"}}
            "#]],
        );
    }
}
