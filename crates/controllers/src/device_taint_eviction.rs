//! Pods that do not tolerate what their devices have come to are deleted, at once or after a while.
//!
//! A driver taints its devices in ResourceSlices, an administrator any device by a DeviceTaintRule.
//! What a claim tolerates was noted when it was allocated.
use crate::action::{Action, Target};
use crate::driver::{Controller, Watching};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use client::events::{Happening, reference};
use client::source::{Delete, Patch};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, DeviceTaint, DeviceTaintRule, DeviceToleration, ResourceClaim,
    ResourceSlice,
};
use serde_json::json;

pub const CONTROLLER: Controller = Controller {
    name: "device-taint-eviction-controller",
    account: "device-taint-eviction-controller",
    workers: 8,
    watch,
    reconcile,
};

fn watch(on: &Watching) {
    on.each::<Pod>(|_, change| match &change.new {
        Some(pod) if asks(pod) => vec![change.key.clone()],
        _ => Vec::new(),
    });
    on.each::<ResourceClaim>(|_, change| {
        let status = change.new.as_ref().and_then(|claim| claim.status.as_ref());
        let holders = status.and_then(|status| status.reserved_for.as_ref()).into_iter().flatten();
        let pods = holders.filter(|it| it.resource == "pods");
        pods.map(|pod| NamespacedName::new(&change.key.namespace, &pod.name)).collect()
    });
    on.each::<ResourceSlice>(|world, _| askers(world));
    on.each::<DeviceTaintRule>(|world, _| askers(world));
}

fn asks(pod: &Pod) -> bool {
    let claims = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_ref());
    claims.is_some_and(|claims| !claims.is_empty())
}

/// Every pod that has to do with devices.
fn askers(world: &World) -> Vec<NamespacedName> {
    let pods = world.informer::<Pod>();
    let read = pods.read();
    read.iter().filter(|(_, pod)| asks(pod)).map(|(key, _)| key.clone()).collect()
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(pod) = world.get::<Pod>(key) else { return Vec::new() };
    if pods::node(&pod).is_empty() || !pods::is_active(&pod) {
        return Vec::new();
    }
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let claims = world.in_namespace::<ResourceClaim>(&key.namespace);
    let is_held = |claim: &ResourceClaim| {
        let status = claim.status.as_ref();
        let held = status.and_then(|status| status.reserved_for.as_ref());
        held.into_iter().flatten().any(|holder| holder.uid == uid)
    };
    let held = claims.iter().filter(|claim| is_held(claim));
    match held.filter_map(|claim| due(claim, world, now)).min() {
        None => Vec::new(),
        Some(at) if at > now => {
            vec![Action::Again(at.duration_since(now).try_into().unwrap_or_default())]
        }
        Some(_) => evict(&pod, now),
    }
}

/// When whoever uses a claim has to go; `None`: they may stay.
fn due(claim: &ResourceClaim, world: &World, now: Timestamp) -> Option<Timestamp> {
    let allocation = claim.status.as_ref()?.allocation.as_ref()?;
    let devices = allocation.devices.as_ref()?.results.as_deref().unwrap_or_default();
    let of_device = |device: &DeviceRequestAllocationResult| {
        let tolerations = device.tolerations.as_deref().unwrap_or_default();
        let taints = taints(device, world);
        let times = taints.iter().filter(|taint| taint.effect == "NoExecute");
        times.filter_map(|taint| until(tolerations, taint, now)).min()
    };
    devices.iter().filter_map(of_device).min()
}

fn until(
    tolerations: &[DeviceToleration],
    taint: &DeviceTaint,
    now: Timestamp,
) -> Option<Timestamp> {
    let since = taint.time_added.as_ref().map_or(now, |time| time.0);
    let matching = tolerations
        .iter()
        .filter(|it| it.effect.as_deref() == Some("NoExecute") && tolerates(it, taint));
    let seconds: Vec<_> = matching.map(|it| it.toleration_seconds).collect();
    // One that says for ever is enough, unlike with nodes.
    if seconds.contains(&None) {
        return None;
    }
    let least = seconds.into_iter().flatten().min().unwrap_or(0);
    Some(since + SignedDuration::from_secs(least.clamp(0, 1 << 31)))
}

fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let key = text(&toleration.key);
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match text(&toleration.operator).as_str() {
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

/// What a device has come to, by its driver and by the rules.
fn taints(of: &DeviceRequestAllocationResult, world: &World) -> Vec<DeviceTaint> {
    let slices = world.all::<ResourceSlice>();
    let pool = || {
        let of_pool =
            slices.iter().filter(|it| it.spec.driver == of.driver && it.spec.pool.name == of.pool);
        of_pool.map(|slice| &slice.spec)
    };
    // Slices of an older generation are on their way out.
    let newest = pool().map(|spec| spec.pool.generation).max();
    let current = pool().filter(|spec| Some(spec.pool.generation) == newest);
    let devices = current.flat_map(|spec| spec.devices.iter().flatten());
    let device = devices.filter(|device| device.name == of.device);
    let by_driver = device.flat_map(|device| device.taints.iter().flatten()).cloned();
    let rules = world.all::<DeviceTaintRule>();
    let is_about = |rule: &&std::sync::Arc<DeviceTaintRule>| {
        let same = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|it| it == is);
        rule.spec.device_selector.as_ref().is_some_and(|selector| {
            same(&selector.driver, &of.driver)
                && same(&selector.pool, &of.pool)
                && same(&selector.device, &of.device)
        })
    };
    let by_rule = rules.iter().filter(is_about).map(|rule| rule.spec.taint.clone());
    by_driver.chain(by_rule).collect()
}

/// The pod says why it goes, then it is deleted.
fn evict(pod: &Pod, now: Timestamp) -> Vec<Action> {
    let target = Target::of(pod);
    let condition = json!({ "type": "DisruptionTarget", "status": "True",
        "reason": "DeletionByDeviceTaintManager",
        "message": "Device Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": api::time::format_timestamp(now) });
    let patch = json!({ "metadata": { "uid": target.uid },
        "status": { "conditions": [condition] } });
    let options = Delete::uid(&target.uid);
    let told =
        Happening::normal(reference(pod), "DeviceTaintManagerEviction", "Marking for deletion");
    vec![
        Action::Record(told),
        Action::Patch { object: target.clone(), part: "status", patch: Patch::Strategic(patch) },
        Action::Delete { object: target, options, tell: None },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_row;
    use expect_test::{Expect, expect};
    use serde_json::Value;

    const POD: &str =
        "pod p node=n spec.resourceClaims=[{\"name\":\"gpu\",\"resourceClaimName\":\"c\"}]";

    fn claim(tolerations: &Value) -> String {
        let device = json!({ "request": "r", "driver": "d", "pool": "n", "device": "gpu-0",
            "tolerations": tolerations });
        let status = json!({ "allocation": { "devices": { "results": [device] } },
            "reservedFor": [{ "resource": "pods", "name": "p", "uid": "p-uid" }] });
        format!("resourceclaim c status={status}")
    }

    fn slice(taints: &Value) -> String {
        let spec = json!({ "driver": "d", "pool": { "name": "n", "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": "gpu-0", "taints": taints }] });
        format!("resourceslice s spec={spec}")
    }

    fn check(lines: &[String], expect: Expect) {
        check_row(&CONTROLLER, &lines.join("\n"), &["default/p"], expect);
    }

    fn taint(effect: &str) -> Value {
        json!({ "key": "broken", "effect": effect, "timeAdded": "2026-01-01T11:59:30Z" })
    }

    #[test]
    fn pods_leave_a_device_that_they_do_not_tolerate() {
        let bad = slice(&json!([taint("NoExecute")]));
        let pod = || POD.to_owned();
        check(
            &[pod(), claim(&json!([])), bad.clone()],
            expect![[r#"
            event DeviceTaintManagerEviction Marking for deletion
            patch pods/status p {"metadata":{"uid":"p-uid"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Device Taint manager: deleting due to NoExecute taint","reason":"DeletionByDeviceTaintManager","status":"True","type":"DisruptionTarget"}]}}
            delete pods default/p
        "#]],
        );
        check(&[pod(), claim(&json!([])), slice(&json!([taint("NoSchedule")]))], expect![[""]]);
        let for_a_minute =
            json!([{ "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60 }]);
        check(
            &[pod(), claim(&for_a_minute), bad.clone()],
            expect![[r#"
            again after 30s
        "#]],
        );
        let ever = json!([{ "key": "broken", "operator": "Exists", "effect": "NoExecute" }]);
        check(&[pod(), claim(&ever), bad], expect![[""]]);
    }

    #[test]
    fn a_rule_taints_what_it_selects() {
        let rule = |device: &str| {
            format!(
                "devicetaintrule r spec={}",
                json!({ "deviceSelector": { "driver": "d", "device": device }, "taint": taint("NoExecute") })
            )
        };
        let world = |rule: String| [POD.to_owned(), claim(&json!([])), rule];
        check(&world(rule("gpu-1")), expect![[""]]);
        check(
            &world(rule("gpu-0")),
            expect![[r#"
            event DeviceTaintManagerEviction Marking for deletion
            patch pods/status p {"metadata":{"uid":"p-uid"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Device Taint manager: deleting due to NoExecute taint","reason":"DeletionByDeviceTaintManager","status":"True","type":"DisruptionTarget"}]}}
            delete pods default/p
        "#]],
        );
    }
}
