//! A claim that a pod uses stays, though it was deleted: a finalizer keeps it.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use client::ApiResource;
use client::source::Collection;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

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

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(claim) = world.get::<PersistentVolumeClaim>(key) else { return Vec::new() };
    if let Some(status) = use_of(&claim, world, now) {
        return vec![status];
    }
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

/// The `Unused` condition says since when no pod names a claim; one that is used and always was has
/// none. It is left alone before both ends are bound, which is somebody else's to write.
fn use_of(claim: &PersistentVolumeClaim, world: &World, now: Timestamp) -> Option<Action> {
    let phase = claim.status.as_ref()?.phase.as_deref();
    if claim.metadata.deletion_timestamp.is_some() || phase != Some("Bound") {
        return None;
    }
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let pods = world.in_namespace::<Pod>(namespace);
    let is_used = pods.iter().any(|pod| !pods::is_finished(pod) && names(pod, claim));
    let conditions = claim.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    let known = conditions.iter().find(|it| it.type_ == UNUSED).map(|it| &*it.status);
    let (status, reason, message) = match (is_used, known) {
        (true, Some("True")) => ("False", "PodUsingPVC", "A pod is currently referencing this PVC"),
        (false, known) if known != Some("True") => {
            ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC")
        }
        _ => return None,
    };
    let mut new = claim.clone();
    let conditions = new.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.retain(|one| one.type_ != UNUSED);
    conditions.push(PersistentVolumeClaimCondition {
        type_: UNUSED.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: None,
        last_transition_time: Some(Time(now)),
    });
    Some(Action::update_part("status", &new))
}

const UNUSED: &str = "Unused";

/// Whether a pod names a claim; one that a pod brought is that pod's alone.
fn names(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let owners = claim.metadata.owner_references.as_deref();
    let controller = api::owner::controller_of(owners).map(|owner| &owner.uid);
    let is_its_own = controller.is_some() && controller == pod.metadata.uid.as_ref();
    let is_it = |(name, is_ephemeral): &(String, bool)| {
        Some(name) == claim.metadata.name.as_ref() && (!is_ephemeral || is_its_own)
    };
    pods::claims(pod).iter().any(is_it)
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
    fn since_when_nobody_uses_a_claim_is_noted() {
        let claim =
            "persistentvolumeclaim data finalizers=kubernetes.io/pvc-protection status.phase=Bound";
        let uses =
            "spec.volumes=[{\"name\":\"v\",\"persistentVolumeClaim\":{\"claimName\":\"data\"}}]";
        let unused = "status.conditions=[{\"type\":\"Unused\",\"status\":\"True\"}]";
        let check = |world: &str, expect: Expect| {
            check_row(&CONTROLLER, world, &["default/data"], expect);
        };
        check(
            claim,
            expect![[r#"
            update persistentvolumeclaims/status data {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"No pods are currently referencing this PVC","reason":"NoPodsUsingPVC","status":"True","type":"Unused"}],"phase":"Bound"}
        "#]],
        );
        check(&format!("{claim} {unused}"), expect![[""]]);
        check(&format!("{claim}\n pod a {uses}"), expect![[""]]);
        check(
            &format!("{claim} {unused}\n pod a {uses}"),
            expect![[r#"
            update persistentvolumeclaims/status data {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"A pod is currently referencing this PVC","reason":"PodUsingPVC","status":"False","type":"Unused"}],"phase":"Bound"}
        "#]],
        );
        // A pod that is done uses nothing; a claim that waits is left alone.
        check(
            &format!("{claim}\n pod a phase=Succeeded {uses}"),
            expect![[r#"
            update persistentvolumeclaims/status data {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"No pods are currently referencing this PVC","reason":"NoPodsUsingPVC","status":"True","type":"Unused"}],"phase":"Bound"}
        "#]],
        );
        check(&claim.replace("Bound", "Pending"), expect![[""]]);
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
