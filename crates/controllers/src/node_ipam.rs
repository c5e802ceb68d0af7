//! Every node has a part of the cluster's addresses for its pods.
use crate::Settings;
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use client::events::{Happening, reference};
use client::source::Patch;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All nodes are one key: two that were looked at side by side could be given the same part.
pub const CONTROLLER: Controller = Controller {
    name: "node-ipam-controller",
    account: "node-controller",
    workers: 1,
    watch,
    reconcile,
};

fn watch(on: &Watching) {
    on.each::<Node>(|_, change| match &change.new {
        Some(node) if cidr(node).is_some() => Vec::new(),
        _ => vec![NamespacedName::new("", "nodes")],
    });
}

fn cidr(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.pod_cidr.as_deref().filter(|cidr| !cidr.is_empty())
}

fn cidrs(node: &Node) -> Vec<String> {
    let all = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default();
    if all.is_empty() { cidr(node).map(str::to_owned).into_iter().collect() } else { all }
}

fn reconcile(_: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Settings { cluster_cidr, node_cidr_mask_ipv4, node_cidr_mask_ipv6, .. } = &*world.settings;
    let range = |text: &str| Range::parse(text.trim(), *node_cidr_mask_ipv4, *node_cidr_mask_ipv6);
    let ranges: Vec<_> = cluster_cidr.split(',').filter_map(range).collect();
    if ranges.is_empty() || !world.settings.allocate_node_cidrs {
        return Vec::new();
    }
    let nodes = world.all::<Node>();
    let used: BTreeSet<String> = nodes.iter().flat_map(|node| cidrs(node)).collect();
    let free = |range: &Range| {
        let range = *range;
        (0..range.parts).map(move |i| range.part(i)).filter(|part| !used.contains(part))
    };
    let mut free: Vec<_> = ranges.iter().map(free).collect();
    let mut actions = Vec::new();
    for node in nodes.iter().filter(|node| cidr(node).is_none()) {
        let parts: Vec<_> = free.iter_mut().filter_map(Iterator::next).collect();
        if parts.len() < ranges.len() {
            let note = format!(
                "Node {} status is now: CIDRNotAvailable",
                node.metadata.name.as_deref().unwrap_or_default()
            );
            let happening = Happening::normal(reference(&**node), "CIDRNotAvailable", note);
            actions.push(Action::Record(happening));
            continue;
        }
        let patch = json!({ "metadata": { "uid": node.metadata.uid },
            "spec": { "podCIDR": parts[0], "podCIDRs": parts } });
        let object = Target::of(&**node);
        actions.push(Action::Patch { object, part: "", patch: Patch::Strategic(patch) });
    }
    actions
}

/// The cluster's addresses of one family, cut into parts for nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    first: IpAddr,
    mask: u32,
    parts: u64,
}

impl Range {
    fn parse(cidr: &str, mask_ipv4: u32, mask_ipv6: u32) -> Option<Range> {
        let (address, bits) = cidr.split_once('/')?;
        let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse::<u32>().ok()?);
        let (mask, length) = if address.is_ipv4() { (mask_ipv4, 32) } else { (mask_ipv6, 128) };
        if mask > length || bits > mask {
            return None;
        }
        let parts = 1_u64.checked_shl(mask - bits)?;
        let first = match address {
            IpAddr::V4(it) => {
                let keep = u32::MAX.checked_shl(32 - bits).unwrap_or_default();
                Ipv4Addr::from_bits(it.to_bits() & keep).into()
            }
            IpAddr::V6(it) => {
                let keep = u128::MAX.checked_shl(128 - bits).unwrap_or_default();
                Ipv6Addr::from_bits(it.to_bits() & keep).into()
            }
        };
        Some(Range { first, mask, parts })
    }

    fn part(&self, i: u64) -> String {
        let address: IpAddr = match self.first {
            IpAddr::V4(it) => {
                let offset = (i as u32).checked_shl(32 - self.mask).unwrap_or_default();
                Ipv4Addr::from_bits(it.to_bits() | offset).into()
            }
            IpAddr::V6(it) => {
                let offset = u128::from(i).checked_shl(128 - self.mask).unwrap_or_default();
                Ipv6Addr::from_bits(it.to_bits() | offset).into()
            }
        };
        format!("{address}/{}", self.mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn nodes_get_parts_that_nobody_has() {
        check_row(
            &CONTROLLER,
            "node a
             node b spec.podCIDR=10.244.0.0/24
             node c
             node d spec.podCIDR=10.244.2.0/24",
            &["nodes"],
            expect![[r#"
                patch nodes a {"metadata":{"uid":"a-uid"},"spec":{"podCIDR":"10.244.1.0/24","podCIDRs":["10.244.1.0/24"]}}
                patch nodes c {"metadata":{"uid":"c-uid"},"spec":{"podCIDR":"10.244.3.0/24","podCIDRs":["10.244.3.0/24"]}}
            "#]],
        );
    }

    #[test]
    fn ranges_are_cut_into_parts() {
        let parts = |text: &str| {
            let range = Range::parse(text, 24, 64)?;
            Some(format!("{} {} … {}", range.parts, range.part(0), range.part(range.parts - 1)))
        };
        let found = ["10.244.3.1/16", "fd00:10:244::/48", "10.0.0.0/24"].map(parts);
        let found = found.map(|found| found.expect("a range"));
        assert_eq!(found[0], "256 10.244.0.0/24 … 10.244.255.0/24");
        assert_eq!(found[1], "65536 fd00:10:244::/64 … fd00:10:244:ffff::/64");
        assert_eq!(found[2], "1 10.0.0.0/24 … 10.0.0.0/24");
        assert_eq!(["", "x/16", "10.0.0.0/25", "fd00::/65"].map(parts), [None, None, None, None]);
    }
}
