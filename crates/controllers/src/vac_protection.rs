//! A class of volume attributes that a volume or a claim has stays, though it was deleted: a finalizer
//! keeps it.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;

pub const CONTROLLER: Controller = Controller {
    name: "volumeattributesclass-protection-controller",
    account: "volumeattributesclass-protection-controller",
    workers: 1,
    watch,
    reconcile,
};

const FINALIZER: &str = "kubernetes.io/vac-protection";

fn watch(on: &Watching) {
    on.objects::<VolumeAttributesClass>();
    // Who has let go of a class may have been the last one.
    on.each::<PersistentVolume>(|_, change| {
        change.old.iter().flat_map(|volume| of_volume(volume)).map(key_of).collect()
    });
    on.each::<PersistentVolumeClaim>(|_, change| {
        change.old.iter().flat_map(|claim| of_claim(claim)).map(key_of).collect()
    });
}

fn key_of(class: &str) -> NamespacedName {
    NamespacedName::new("", class)
}

fn of_volume(volume: &PersistentVolume) -> impl Iterator<Item = &str> {
    volume.spec.iter().filter_map(|spec| spec.volume_attributes_class_name.as_deref())
}

/// The class that a claim asks for, has, or is on its way to.
fn of_claim(claim: &PersistentVolumeClaim) -> impl Iterator<Item = &str> {
    let asked = claim.spec.iter().filter_map(|spec| spec.volume_attributes_class_name.as_deref());
    let told = claim.status.iter().flat_map(|status| {
        let aim = status.modify_volume_status.as_ref();
        let aim = aim.and_then(|change| change.target_volume_attributes_class_name.as_deref());
        status.current_volume_attributes_class_name.as_deref().into_iter().chain(aim)
    });
    asked.chain(told)
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(class) = world.get::<VolumeAttributesClass>(key) else { return Vec::new() };
    let mut finalizers = class.metadata.finalizers.clone().unwrap_or_default();
    let is_kept = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    match class.metadata.deletion_timestamp.is_some() {
        true if is_kept && !is_used(&key.name, world) => finalizers.retain(|it| it != FINALIZER),
        false if !is_kept => finalizers.push(FINALIZER.to_owned()),
        _ => return Vec::new(),
    }
    let mut new = (*class).clone();
    new.metadata.finalizers = (!finalizers.is_empty()).then_some(finalizers);
    vec![Action::update(&new)]
}

fn is_used(class: &str, world: &World) -> bool {
    let volumes = world.all::<PersistentVolume>();
    let claims = world.all::<PersistentVolumeClaim>();
    volumes.iter().any(|volume| of_volume(volume).any(|used| used == class))
        || claims.iter().any(|claim| of_claim(claim).any(|used| used == class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_tree;
    use expect_test::expect;

    #[test]
    fn a_class_in_use_is_kept() {
        let check = |line: &str, others: &str, expect| {
            let world = format!("volumeattributesclass c driverName=d {line}\n{others}");
            check_tree(&CONTROLLER, &world, "c", "metadata", expect);
        };
        let kept = "finalizers=kubernetes.io/vac-protection deleting";
        check(
            "",
            "",
            expect![[r#"
            update volumeattributesclasses.storage.k8s.io c
              {"creationTimestamp":"2026-01-01T11:00:00Z","finalizers":["kubernetes.io/vac-protection"],"generation":1,"name":"c","resourceVersion":"2","uid":"c-uid"}
        "#]],
        );
        check(kept, "persistentvolume v spec.volumeAttributesClassName=c", expect![[""]]);
        check(
            kept,
            "persistentvolumeclaim p status.currentVolumeAttributesClassName=c",
            expect![[""]],
        );
        check(
            kept,
            "persistentvolume v spec.volumeAttributesClassName=other",
            expect![[r#"
            update volumeattributesclasses.storage.k8s.io c
              {"creationTimestamp":"2026-01-01T11:00:00Z","deletionTimestamp":"2026-01-01T11:59:55Z","generation":1,"name":"c","resourceVersion":"2","uid":"c-uid"}
        "#]],
        );
    }
}
