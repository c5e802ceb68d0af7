//! A ClusterRole that names others by their labels has all of their rules.
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use api::selector::label::Selector;
use client::source::Patch;
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::json;

pub const CONTROLLER: Controller = Controller {
    name: "clusterrole-aggregation-controller",
    account: "clusterrole-aggregation-controller",
    workers: 5,
    watch,
    reconcile,
};

/// Any role may be part of any that aggregates.
fn watch(on: &Watching) {
    on.each::<ClusterRole>(|world, change| {
        let roles = world.informer::<ClusterRole>();
        let read = roles.read();
        let aggregating = read.iter().filter(|(_, role)| role.aggregation_rule.is_some());
        let keys = aggregating.map(|(key, _)| key.clone());
        keys.chain([change.key.clone()]).collect()
    });
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(role) = world.get::<ClusterRole>(key) else { return Vec::new() };
    let Some(rule) = &role.aggregation_rule else { return Vec::new() };
    let all = world.all::<ClusterRole>();
    let mut rules = Vec::new();
    for selector in rule.cluster_role_selectors.iter().flatten() {
        let Ok(selector) = Selector::from_label_selector(Some(selector)) else { continue };
        let others = all.iter().filter(|other| other.metadata.name != role.metadata.name);
        for other in others.filter(|other| selector.matches(&other.metadata.labels)) {
            for rule in other.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    // The same rules in another order are the same.
    let old = role.rules.as_deref().unwrap_or_default();
    if old.len() == rules.len() && rules.iter().all(|rule| old.contains(rule)) {
        return Vec::new();
    }
    let patch = json!({ "metadata": { "resourceVersion": role.metadata.resource_version },
        "rules": rules });
    vec![Action::Patch { object: Target::of(&*role), part: "", patch: Patch::Merge(patch) }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_row, check_run};
    use expect_test::expect;

    const WORLD: &str = "clusterrole sum aggregationRule={\"clusterRoleSelectors\":[{\"matchLabels\":{\"to\":\"sum\"}}]}
        clusterrole a label:to=sum rules=[{\"verbs\":[\"get\"],\"resources\":[\"a\"]}]
        clusterrole b label:to=sum rules=[{\"verbs\":[\"get\"],\"resources\":[\"b\"]},{\"verbs\":[\"get\"],\"resources\":[\"a\"]}]
        clusterrole c rules=[{\"verbs\":[\"get\"],\"resources\":[\"c\"]}]";

    #[test]
    fn rules_are_gathered_by_label_each_once() {
        check_row(
            &CONTROLLER,
            WORLD,
            &["sum", "a"],
            expect![[r#"
            patch clusterroles.rbac.authorization.k8s.io sum {"metadata":{"resourceVersion":"2"},"rules":[{"resources":["a"],"verbs":["get"]},{"resources":["b"],"verbs":["get"]}]}
        "#]],
        );
        check_run(
            &CONTROLLER,
            WORLD,
            expect![[r#"
            patch clusterroles.rbac.authorization.k8s.io sum
        "#]],
        );
    }
}
