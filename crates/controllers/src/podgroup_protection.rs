//! A group of pods that was deleted stays while pods of it run: a finalizer keeps it.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;

pub const CONTROLLER: Controller = Controller {
    name: "podgroup-protection-controller",
    account: "podgroup-protection-controller",
    workers: 20,
    watch,
    reconcile,
};

const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

fn watch(on: &Watching) {
    on.objects::<PodGroup>();
    on.each::<Pod>(|_, change| {
        let pods = change.old.iter().chain(&change.new);
        let mut keys: Vec<_> = pods.filter_map(|pod| group_of(pod)).collect();
        keys.dedup();
        keys
    });
}

fn group_of(pod: &Pod) -> Option<NamespacedName> {
    let group = pod.spec.as_ref()?.scheduling_group.as_ref()?.pod_group_name.as_deref()?;
    Some(NamespacedName::new(pod.metadata.namespace.as_deref()?, group))
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(group) = world.get::<PodGroup>(key) else { return Vec::new() };
    let mut finalizers = group.metadata.finalizers.clone().unwrap_or_default();
    let is_kept = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    if group.metadata.deletion_timestamp.is_none() || !is_kept {
        return Vec::new();
    }
    let pods = world.in_namespace::<Pod>(&key.namespace);
    let is_used = |pod: &Pod| !pods::is_finished(pod) && group_of(pod).as_ref() == Some(key);
    if pods.iter().any(|pod| is_used(pod)) {
        return Vec::new();
    }
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    let mut new = (*group).clone();
    new.metadata.finalizers = (!finalizers.is_empty()).then_some(finalizers);
    vec![Action::update(&new)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::{Expect, expect};

    fn check(pods: &str, expect: Expect) {
        let world = format!(
            "podgroup g finalizers={FINALIZER} deleting
             podgroup other finalizers={FINALIZER}
             {pods}"
        );
        check_row(&CONTROLLER, &world, &["default/g", "default/other"], expect);
    }

    #[test]
    fn a_group_stays_while_one_of_its_pods_runs() {
        check("pod p spec.schedulingGroup.podGroupName=g", expect![[""]]);
        check(
            "pod p spec.schedulingGroup.podGroupName=g phase=Succeeded",
            expect![[r#"
                update podgroups.scheduling.k8s.io g
            "#]],
        );
        check(
            "pod p spec.schedulingGroup.podGroupName=other",
            expect![[r#"
                update podgroups.scheduling.k8s.io g
            "#]],
        );
    }
}
