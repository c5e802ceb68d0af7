//! A claim that a pod uses stays, though it was deleted: a finalizer keeps it.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use client::ApiResource;
use client::source::Collection;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

pub const CONTROLLER: Controller = Controller {
    name: "persistentvolumeclaim-protection-controller",
    account: "pvc-protection-controller",
    workers: 1,
    watch,
    reconcile,
};

const FINALIZER: &str = "kubernetes.io/pvc-protection";

fn watch(on: &Watching) {
    on.objects::<PersistentVolumeClaim>();
    on.each::<Pod>(|_, change| {
        let pods = change.old.iter().chain(&change.new);
        let claims = pods.flat_map(|pod| pods::claims(pod));
        let mut keys: Vec<_> =
            claims.map(|(name, _)| NamespacedName::new(&change.key.namespace, &name)).collect();
        keys.dedup();
        keys
    });
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(claim) = world.get::<PersistentVolumeClaim>(key) else { return Vec::new() };
    let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
    let is_kept = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    let is_going = claim.metadata.deletion_timestamp.is_some();
    if is_kept != is_going {
        return Vec::new();
    }
    let mut new = (*claim).clone();
    if !is_going {
        finalizers.push(FINALIZER.to_owned());
        new.metadata.finalizers = Some(finalizers);
        return vec![Action::update(&new)];
    }
    if world.in_namespace::<Pod>(&key.namespace).iter().any(|pod| keeps(pod, &claim)) {
        return Vec::new();
    }
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    new.metadata.finalizers = (!finalizers.is_empty()).then_some(finalizers);
    // A pod may be so young that we have not heard of it: the server is asked before data is lost.
    let pods = Collection::all(ApiResource::of::<Pod>()).in_namespace(&key.namespace);
    let then = Box::new(move |lists: Vec<(Collection, Vec<std::sync::Arc<client::Object>>)>| {
        let mut all = lists.iter().flat_map(|(_, pods)| pods);
        let is_used = all.any(|pod| pod.typed::<Pod>().is_ok_and(|pod| keeps(&pod, &claim)));
        if is_used { Vec::new() } else { vec![Action::update(&new)] }
    });
    vec![Action::Gather { of: vec![pods], then }]
}

/// A pod that has no node yet will not get far with a claim that is going. One that a pod brought
/// goes with it.
fn keeps(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let owners = claim.metadata.owner_references.as_deref();
    let controller = api::owner::controller_of(owners).map(|owner| &owner.uid);
    let is_its_own = controller.is_some() && controller == pod.metadata.uid.as_ref();
    let is_shut_down = pod.metadata.deletion_timestamp.is_some()
        && pod.metadata.deletion_grace_period_seconds == Some(0);
    let uses = |(name, is_ephemeral): &(String, bool)| {
        Some(name) == claim.metadata.name.as_ref()
            && (!is_ephemeral || (is_its_own && !is_shut_down))
    };
    !pods::node(pod).is_empty() && pods::claims(pod).iter().any(uses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_row, check_run};
    use expect_test::{Expect, expect};

    const GOING: &str =
        "persistentvolumeclaim data deleting finalizers=kubernetes.io/pvc-protection";

    #[test]
    fn a_claim_is_kept_while_a_pod_on_a_node_uses_it() {
        let check = |world: &str, expect: Expect| {
            check_row(&CONTROLLER, world, &["default/data"], expect);
        };
        let uses =
            "spec.volumes=[{\"name\":\"v\",\"persistentVolumeClaim\":{\"claimName\":\"data\"}}]";
        check(
            "persistentvolumeclaim data",
            expect![[r#"
            update persistentvolumeclaims data
        "#]],
        );
        check(&format!("{GOING}\n pod a node=n {uses}"), expect![[""]]);
        check(
            &format!("{GOING}\n pod a {uses}\n pod b node=n"),
            expect![[r#"
            gather 1 lists
        "#]],
        );
    }

    #[test]
    fn a_claim_that_nobody_uses_goes() {
        check_run(
            &CONTROLLER,
            GOING,
            expect![[r#"
            update persistentvolumeclaims default/data
        "#]],
        );
    }
}
