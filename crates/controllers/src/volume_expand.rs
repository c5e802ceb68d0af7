//! A claim that asks for more than it has waits for its driver's resizer; here that is said.
//!
//! No volume of ours grows by itself: every one that can is a CSI driver's, whose own controller
//! does it.
use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use api::quantity::Quantity;
use client::events::{Happening, reference};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

pub const CONTROLLER: Controller = Controller {
    name: "persistentvolume-expander-controller",
    account: "expand-controller",
    workers: 1,
    watch,
    reconcile,
};

fn watch(on: &Watching) {
    on.each::<PersistentVolumeClaim>(|_, change| {
        let Some(new) = &change.new else { return Vec::new() };
        let has_grown = change.old.as_ref().is_none_or(|old| asked(new) > asked(old));
        if has_grown { vec![change.key.clone()] } else { Vec::new() }
    });
    on.reads::<PersistentVolume>();
}

fn reconcile(key: &NamespacedName, world: &World, _: Timestamp) -> Vec<Action> {
    let Some(claim) = world.get::<PersistentVolumeClaim>(key) else { return Vec::new() };
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase != Some("Bound") || asked(&claim) <= has(&claim) {
        return Vec::new();
    }
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    let volume = volume.and_then(|name| world.find::<PersistentVolume>("", name));
    let named = volume.as_ref().and_then(|it| it.spec.as_ref()?.claim_ref.as_ref());
    if named.is_none_or(|named| named.uid != claim.metadata.uid) {
        return Vec::new();
    }
    let note = "waiting for an external controller to expand this PVC";
    vec![Action::Record(Happening::normal(reference(&*claim), "ExternalExpanding", note))]
}

fn asked(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    let requests = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    requests.get("storage")?.try_into().ok()
}

fn has(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    claim.status.as_ref()?.capacity.as_ref()?.get("storage")?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::expect;

    #[test]
    fn a_claim_that_grows_waits_for_its_driver() {
        let volume = "persistentvolume v spec.claimRef={\"namespace\":\"default\",\"name\":\"c\",\"uid\":\"c-uid\"}";
        let claim = |name: &str, size: &str, phase: &str| {
            format!(
                "persistentvolumeclaim {name} spec.volumeName=v spec.resources.requests.storage={size} status.capacity.storage=1Gi status.phase={phase}"
            )
        };
        let check = |claim: String, expect| {
            check_row(&CONTROLLER, &format!("{volume}\n{claim}"), &["default/c"], expect);
        };
        check(
            claim("c", "2Gi", "Bound"),
            expect![[r#"
                event ExternalExpanding waiting for an external controller to expand this PVC
            "#]],
        );
        check(claim("c", "1024Mi", "Bound"), expect![[""]]);
        check(claim("c", "2Gi", "Pending"), expect![[""]]);
    }
}
