//! A volume that is bound stays, though it was deleted: a finalizer keeps it.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;

pub const CONTROLLER: Controller = Controller {
    name: "persistentvolume-protection-controller",
    account: "pv-protection-controller",
    workers: 1,
    watch: |on: &Watching| on.objects::<PersistentVolume>(),
    reconcile,
};

const FINALIZER: &str = "kubernetes.io/pv-protection";

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(volume) = world.get::<PersistentVolume>(key) else { return Vec::new() };
    let mut finalizers = volume.metadata.finalizers.clone().unwrap_or_default();
    let is_kept = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    match volume.metadata.deletion_timestamp.is_some() {
        true if is_kept && phase != Some("Bound") => finalizers.retain(|it| it != FINALIZER),
        false if !is_kept => finalizers.push(FINALIZER.to_owned()),
        _ => return Vec::new(),
    }
    let mut new = (*volume).clone();
    new.metadata.finalizers = (!finalizers.is_empty()).then_some(finalizers);
    vec![Action::update(&new)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_tree;
    use expect_test::expect;

    #[test]
    fn a_bound_volume_is_kept() {
        let check = |line: &str, expect| {
            check_tree(&CONTROLLER, &format!("persistentvolume v {line}"), "v", "metadata", expect);
        };
        check(
            "",
            expect![[r#"
            update persistentvolumes v
              {"creationTimestamp":"2026-01-01T11:00:00Z","finalizers":["kubernetes.io/pv-protection"],"generation":1,"name":"v","resourceVersion":"2","uid":"v-uid"}
        "#]],
        );
        check("finalizers=kubernetes.io/pv-protection", expect![[""]]);
        check("finalizers=kubernetes.io/pv-protection deleting phase=Bound", expect![[""]]);
        check(
            "finalizers=kubernetes.io/pv-protection deleting phase=Released",
            expect![[r#"
            update persistentvolumes v
              {"creationTimestamp":"2026-01-01T11:00:00Z","deletionTimestamp":"2026-01-01T11:59:55Z","generation":1,"name":"v","resourceVersion":"2","uid":"v-uid"}
        "#]],
        );
        check("finalizers=x deleting", expect![[""]]);
    }
}
