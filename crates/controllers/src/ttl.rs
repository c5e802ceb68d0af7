//! How long a kubelet may use a Secret or ConfigMap that it has read: the longer, the more nodes
//! there are to read them.
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use client::source::Patch;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

pub const CONTROLLER: Controller = Controller {
    name: "ttl-controller",
    account: "ttl-controller",
    workers: 5,
    watch: |on: &Watching| on.objects::<Node>(),
    reconcile,
};

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
/// Nodes from, nodes to, seconds: upstream's. They overlap, so that a node that comes and goes
/// does not change all of them each time.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(node) = world.get::<Node>(key) else { return Vec::new() };
    let annotations = node.metadata.annotations.as_ref();
    let old = annotations.and_then(|all| all.get(ANNOTATION)?.parse().ok());
    let wanted = seconds(world.informer::<Node>().read().iter().count(), old);
    if old == Some(wanted) {
        return Vec::new();
    }
    let patch = json!({ "metadata": { "annotations": { ANNOTATION: wanted.to_string() } } });
    vec![Action::Patch { object: Target::of(&*node), part: "", patch: Patch::Strategic(patch) }]
}

/// What a node has stays while it is one of the right ones.
fn seconds(nodes: usize, old: Option<u32>) -> u32 {
    let mut right = STEPS.iter().filter(|(from, to, _)| (*from..=*to).contains(&nodes));
    let kept = right.clone().find(|(_, _, seconds)| Some(*seconds) == old);
    kept.or_else(|| right.next()).map_or(0, |(_, _, seconds)| *seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn the_more_nodes_the_longer() {
        for (nodes, old, wanted) in [
            (1, None, 0),
            (100, None, 0),
            (101, Some(0), 15),
            (95, Some(15), 15),
            (89, Some(15), 0),
            (600, Some(7), 30),
            (5000, None, 300),
        ] {
            assert_eq!(seconds(nodes, old), wanted, "{nodes} {old:?}");
        }
    }

    #[test]
    fn a_node_is_told_once() {
        check_row(
            &CONTROLLER,
            "node a\n node b annotation:node.alpha.kubernetes.io/ttl=\"0\"",
            &["a", "b"],
            expect![[r#"
                patch nodes a {"metadata":{"annotations":{"node.alpha.kubernetes.io/ttl":"0"}}}
            "#]],
        );
    }
}
