//! Every node has a part of the cluster's addresses for its pods.
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
use std::net::Ipv4Addr;

/// All nodes are one key: two that were looked at side by side could be given the same part.
pub const CONTROLLER: Controller = Controller {
    name: "node-ipam-controller",
    account: "node-controller",
    workers: 1,
    watch,
    reconcile,
};

/// Upstream's `--node-cidr-mask-size`.
const NODE_BITS: u32 = 24;

fn watch(on: &Watching) {
    on.each::<Node>(|_, change| match &change.new {
        Some(node) if cidr(node).is_some() => Vec::new(),
        _ => vec![NamespacedName::new("", "nodes")],
    });
}

fn cidr(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.pod_cidr.as_deref().filter(|cidr| !cidr.is_empty())
}

fn reconcile(_: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some((first, parts)) = parse(&world.settings.cluster_cidr) else { return Vec::new() };
    let nodes = world.all::<Node>();
    let mut used: BTreeSet<String> =
        nodes.iter().filter_map(|node| cidr(node)).map(str::to_owned).collect();
    let part = |i: u32| {
        let address = Ipv4Addr::from_bits(first.to_bits() | (i << (32 - NODE_BITS)));
        format!("{address}/{NODE_BITS}")
    };
    let mut free = (0..parts).map(part);
    let mut actions = Vec::new();
    for node in nodes.iter().filter(|node| cidr(node).is_none()) {
        let Some(part) = free.find(|part| !used.contains(part)) else {
            let note = format!(
                "Node {} status is now: CIDRNotAvailable",
                node.metadata.name.as_deref().unwrap_or_default()
            );
            let happening = Happening::normal(reference(&**node), "CIDRNotAvailable", note);
            actions.push(Action::Record(happening));
            continue;
        };
        let patch = json!({ "metadata": { "uid": node.metadata.uid },
            "spec": { "podCIDR": part, "podCIDRs": [part] } });
        let object = Target::of(&**node);
        actions.push(Action::Patch { object, part: "", patch: Patch::Strategic(patch) });
        used.insert(part);
    }
    actions
}

/// The first address of the cluster's, and how many nodes have a part of it.
fn parse(cidr: &str) -> Option<(Ipv4Addr, u32)> {
    let (address, bits) = cidr.split_once('/')?;
    let (address, bits) = (address.parse::<Ipv4Addr>().ok()?, bits.parse::<u32>().ok()?);
    let parts = 1_u32.checked_shl(NODE_BITS.checked_sub(bits)?)?;
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or_default();
    Some((Ipv4Addr::from_bits(address.to_bits() & mask), parts))
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
        assert_eq!(parse("10.244.3.1/16"), Some((Ipv4Addr::new(10, 244, 0, 0), 256)));
        assert_eq!(["", "x/16", "10.0.0.0/25", "fd00::/48"].map(parse), [None; 4]);
    }
}
