//! Claims that come with a pod and go with it.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::pods::{claims, controller_ref};
use crate::world::World;
use api::names::NamespacedName;
use api::owner;
use client::events::{Happening, reference};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimTemplate, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::time::Duration;

pub const CONTROLLER: Controller = Controller {
    name: "ephemeral-volume-controller",
    account: "ephemeral-volume-controller",
    workers: 5,
    watch,
    reconcile,
};

/// When another's claim is in the way, it may go.
const RETRY: Duration = Duration::from_secs(15);

fn watch(on: &Watching) {
    on.each::<Pod>(|_, change| {
        let has_any = change.new.as_ref().is_some_and(|pod| claims(pod).iter().any(|it| it.1));
        if has_any { vec![change.key.clone()] } else { Vec::new() }
    });
    on.each::<PersistentVolumeClaim>(|_, change| {
        let owners = change.latest().and_then(|claim| claim.metadata.owner_references.as_deref());
        let pod = owner::controller_of(owners).filter(|owner| owner.kind == "Pod");
        pod.map(|pod| NamespacedName::new(&change.key.namespace, &pod.name)).into_iter().collect()
    });
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(pod) = world.get::<Pod>(key) else { return Vec::new() };
    if pod.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut actions = Vec::new();
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let template = volume.ephemeral.as_ref();
        let Some(template) = template.and_then(|it| it.volume_claim_template.as_ref()) else {
            continue;
        };
        let name = format!("{}-{}", key.name, volume.name);
        let Some(claim) = world.find::<PersistentVolumeClaim>(&key.namespace, &name) else {
            actions.push(make(&pod, &volume.name, name, template));
            continue;
        };
        let owner = owner::controller_of(claim.metadata.owner_references.as_deref());
        if owner.is_none_or(|owner| Some(&owner.uid) != pod.metadata.uid.as_ref()) {
            let note = format!(
                "ephemeral volume {}: PVC {}/{name} was not created for pod {}/{} (pod is not \
                 owner)",
                volume.name, key.namespace, key.namespace, key.name
            );
            let told = Happening::warning(reference(&*pod), "FailedBinding", note);
            actions.extend([Action::Record(told), Action::Again(RETRY)]);
            return actions;
        }
    }
    actions
}

fn make(pod: &Pod, volume: &str, name: String, template: &PersistentVolumeClaimTemplate) -> Action {
    let given = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(name.clone()),
        namespace: pod.metadata.namespace.clone(),
        owner_references: Some(vec![controller_ref(pod)]),
        annotations: given.annotations,
        labels: given.labels,
        ..ObjectMeta::default()
    };
    let spec = Some(template.spec.clone());
    let claim = PersistentVolumeClaim { metadata, spec, status: None };
    let (about, volume) = (reference(pod), volume.to_owned());
    let otherwise = Box::new(move |failure: &api::status::Status| {
        let note = format!("ephemeral volume {volume}: create PVC {name}: {}", failure.message);
        vec![Action::Record(Happening::warning(about, "FailedBinding", note))]
    });
    Action::Several { actions: vec![Action::create(&claim)], otherwise: Some(otherwise) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_row, check_run};
    use expect_test::expect;

    const POD: &str = "pod web spec.volumes=[{\"name\":\"tmp\",\"ephemeral\":{\"volumeClaimTemplate\":{\"spec\":{}}}}]";

    #[test]
    fn a_pod_gets_its_claim() {
        check_run(
            &CONTROLLER,
            POD,
            expect![[r#"
            create persistentvolumeclaims default/web-tmp
        "#]],
        );
    }

    #[test]
    fn another_claim_of_that_name_is_not_its() {
        check_row(
            &CONTROLLER,
            &format!("{POD}\n persistentvolumeclaim web-tmp"),
            &["default/web"],
            expect![[r#"
                event FailedBinding ephemeral volume tmp: PVC default/web-tmp was not created for pod default/web (pod is not owner)
                again after 15s
            "#]],
        );
        check_row(
            &CONTROLLER,
            &format!("{POD}\n persistentvolumeclaim web-tmp owner=pod/web"),
            &["default/web"],
            expect![[""]],
        );
    }
}
