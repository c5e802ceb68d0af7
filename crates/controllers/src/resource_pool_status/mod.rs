//! How full a driver's pools of devices are, for who asks: a request is answered once, from slices,
//! claims and taints, and goes after an hour.
mod views;

use crate::action::Action;
use crate::driver::{Controller, Watching};
use crate::world::World;
use api::names::NamespacedName;
use api::status::Status;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::resource::v1::{Device, DeviceTaintRule, ResourceClaim, ResourceSlice};
use k8s_openapi::api::resource::v1alpha3::{
    PoolStatus, ResourcePoolStatusRequest, ResourcePoolStatusRequestStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use views::Pool;

pub const CONTROLLER: Controller = Controller {
    name: "resourcepoolstatusrequest-controller",
    account: "resourcepoolstatusrequest-controller",
    workers: 1,
    watch,
    reconcile,
};

/// Answered, and not: upstream's.
const ANSWERED: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);
/// Pools in an answer, unless the request says another number.
const LIMIT: i32 = 100;
/// What a pool's error may be long, in bytes.
const LONGEST: usize = 256;
const INCOMPLETE: &str = "PoolIncomplete:";

fn watch(on: &Watching) {
    on.objects::<ResourcePoolStatusRequest>();
    on.reads::<ResourceSlice>();
    on.reads::<ResourceClaim>();
    on.reads::<DeviceTaintRule>();
}

fn reconcile(key: &NamespacedName, world: &World, now: Timestamp) -> Vec<Action> {
    let Some(request) = world.get::<ResourcePoolStatusRequest>(key) else { return Vec::new() };
    let Some(due) = due(&request) else { return Vec::new() };
    let left = match Duration::try_from(due.duration_since(now)) {
        Ok(left) if !left.is_zero() => Action::Again(left),
        _ => return vec![Action::delete(&*request)],
    };
    if request.status.is_some() {
        return vec![left];
    }
    let status = answer(&request, world, now);
    let mut pools = status.pools.iter().flatten();
    let error = |pool: &PoolStatus| pool.validation_error.clone().unwrap_or_default();
    if pools.any(|pool| error(pool).starts_with(INCOMPLETE)) {
        let text = "incomplete pools detected, requeueing";
        return vec![Action::Fail(Status::internal_error(text))];
    }
    let new = ResourcePoolStatusRequest { status: Some(status), ..(*request).clone() };
    vec![Action::update_part("status", &new), left]
}

/// When a request has outlived its use.
fn due(request: &ResourcePoolStatusRequest) -> Option<Timestamp> {
    let made = request.metadata.creation_timestamp.as_ref().map(|made| made.0);
    let Some(status) = &request.status else { return made.map(|made| made + PENDING) };
    let is_end = |it: &&Condition| it.type_ == "Complete" || it.type_ == "Failed";
    let end = status.conditions.iter().flatten().find(is_end);
    end.map(|end| end.last_transition_time.0).or(made).map(|since| since + ANSWERED)
}

fn answer(
    request: &ResourcePoolStatusRequest,
    world: &World,
    now: Timestamp,
) -> ResourcePoolStatusRequestStatus {
    let spec = &request.spec;
    let slices = world.all::<ResourceSlice>();
    let rules = world.all::<DeviceTaintRule>();
    let claims = world.all::<ResourceClaim>();
    let asked = slices.iter().filter(|slice| {
        let pool = &slice.spec.pool.name;
        slice.spec.driver == spec.driver && spec.pool_name.as_ref().is_none_or(|name| name == pool)
    });
    let mut by_pool: BTreeMap<&str, Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in asked {
        by_pool.entry(&slice.spec.pool.name).or_default().push(slice);
    }
    let default = spec.default_partition_type_attribute.as_deref();
    let status = |(name, slices): (&&str, &Vec<&ResourceSlice>)| {
        status_of(&spec.driver, name, slices, &claims, &rules, default)
    };
    let mut pools: Vec<PoolStatus> = by_pool.iter().map(status).collect();
    let count = pools.len() as i32;
    pools.truncate(usize::try_from(spec.limit.unwrap_or(LIMIT)).unwrap_or_default());
    let broken = pools.iter().filter(|pool| pool.validation_error.is_some()).count();
    let message = match broken {
        0 => format!("Calculated status for {} pools", pools.len()),
        _ => format!("Calculated status for {} pools ({broken} incomplete)", pools.len()),
    };
    let complete = Condition {
        type_: "Complete".to_owned(),
        status: "True".to_owned(),
        last_transition_time: Time(now),
        reason: "CalculationComplete".to_owned(),
        message,
        observed_generation: None,
    };
    ResourcePoolStatusRequestStatus {
        pool_count: count,
        pools: (!pools.is_empty()).then_some(pools),
        conditions: Some(vec![complete]),
    }
}

fn status_of(
    driver: &str,
    name: &str,
    slices: &[&ResourceSlice],
    claims: &[Arc<ResourceClaim>],
    rules: &[Arc<DeviceTaintRule>],
    default_attribute: Option<&str>,
) -> PoolStatus {
    let generation =
        slices.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or_default();
    // Slices of older generations are on their way out.
    let current: Vec<&ResourceSlice> =
        slices.iter().copied().filter(|it| it.spec.pool.generation == generation).collect();
    let nodes: BTreeSet<_> = current.iter().map(|slice| slice.spec.node_name.as_deref()).collect();
    let node = if nodes.len() == 1 { nodes.first().copied().flatten() } else { None };
    let mut status = PoolStatus {
        driver: driver.to_owned(),
        pool_name: name.to_owned(),
        generation,
        node_name: node.filter(|node| !node.is_empty()).map(str::to_owned),
        ..PoolStatus::default()
    };
    let expected = current.first().map_or(0, |slice| slice.spec.pool.resource_slice_count);
    if (current.len() as i64) < expected {
        let text = format!(
            "{INCOMPLETE} pool {driver}/{name} is incomplete: observed {}/{expected} slices at \
             generation {generation}",
            current.len()
        );
        status.validation_error = Some(shortened(text));
        return status;
    }
    let pool = Pool::new(driver, name, &current, claims, default_attribute);
    let devices = || current.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let total = devices().count() as i32;
    let unavailable = devices().filter(|it| is_unavailable(driver, name, it, rules)).count() as i32;
    let allocated = pool.in_use.len() as i32;
    status.resource_slice_count = Some(current.len() as i32);
    status.total_devices = Some(total);
    status.allocated_devices = Some(allocated);
    status.available_devices = Some((total - allocated - unavailable).max(0));
    status.unavailable_devices = Some(unavailable);
    let views = pool.views();
    status.partition_summary = views.partitions;
    status.shareable_summary = views.shareable;
    status.validation_error = views.error.map(shortened);
    status
}

/// Cut at a character, if it is too long.
fn shortened(mut text: String) -> String {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or_default());
    text
}

/// It has a taint that keeps claims away, of its own or by a rule.
fn is_unavailable(
    driver: &str,
    pool: &str,
    device: &Device,
    rules: &[Arc<DeviceTaintRule>],
) -> bool {
    let keeps_away = |effect: &str| effect == "NoSchedule" || effect == "NoExecute";
    let is = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|it| it == name);
    device.taints.iter().flatten().any(|taint| keeps_away(&taint.effect))
        || rules.iter().any(|rule| {
            keeps_away(&rule.spec.taint.effect)
                && rule.spec.device_selector.as_ref().is_some_and(|selector| {
                    is(&selector.driver, driver)
                        && is(&selector.pool, pool)
                        && is(&selector.device, &device.name)
                })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{after, check_row};
    use expect_test::{Expect, expect};

    fn check(world: &str, expect: Expect) {
        let mut out = String::new();
        after(
            &CONTROLLER,
            &format!("resourcepoolstatusrequest r spec.driver=d\n{world}"),
            |_| {},
            |server| {
                let request = server.all::<ResourcePoolStatusRequest>().remove(0);
                let status = request.status.clone().unwrap_or_default();
                for pool in status.pools.iter().flatten() {
                    out += &format!("{}\n", serde_json::to_string(pool).expect("JSON"));
                }
                for condition in status.conditions.iter().flatten() {
                    out += &format!("{}: {}\n", condition.type_, condition.message);
                }
            },
        );
        expect.assert_eq(&out);
    }

    fn slice(name: &str, pool: &str, generation: u32, count: u32, devices: &str) -> String {
        format!(
            "resourceslice {name} spec={{\"driver\":\"d\",\"nodeName\":\"n\",\"pool\":{{\"name\":\"{pool}\",\"generation\":{generation},\"resourceSliceCount\":{count}}},\"devices\":[{devices}]}}\n"
        )
    }

    #[test]
    fn devices_are_counted_by_pool_and_those_in_use_once() {
        let result = |device: &str, more: &str| {
            format!(
                "{{\"driver\":\"d\",\"pool\":\"p\",\"device\":\"{device}\",\"request\":\"r\"{more}}}"
            )
        };
        let claim = |name: &str, results: &str| {
            format!(
                "resourceclaim {name} spec={{}} status.allocation.devices.results=[{results}]\n"
            )
        };
        let world = slice("old", "p", 1, 1, "{\"name\":\"x\"},{\"name\":\"y\"}")
            + &slice(
                "new",
                "p",
                2,
                1,
                "{\"name\":\"a\"},{\"name\":\"b\"},{\"name\":\"c\"},{\"name\":\"e\",\"taints\":[{\"key\":\"k\",\"effect\":\"NoSchedule\"}]}",
            )
            + &claim("one", &result("a", ""))
            + &claim("two", &result("a", ""))
            + &claim("watcher", &result("b", ",\"adminAccess\":true"))
            + "devicetaintrule r spec={\"deviceSelector\":{\"pool\":\"p\",\"device\":\"c\"},\"taint\":{\"key\":\"k\",\"effect\":\"NoExecute\"}}";
        check(
            &world,
            expect![[r#"
                {"allocatedDevices":1,"availableDevices":1,"driver":"d","generation":2,"nodeName":"n","poolName":"p","resourceSliceCount":1,"totalDevices":4,"unavailableDevices":2}
                Complete: Calculated status for 1 pools
            "#]],
        );
    }

    #[test]
    fn partitions_fit_while_counters_last() {
        let device = |name: &str, kind: &str, cost: &str| {
            format!(
                "{{\"name\":\"{name}\",\"attributes\":{{\"kind\":{{\"string\":\"{kind}\"}}}},\"consumesCounters\":[{{\"counterSet\":\"s\",\"counters\":{{\"m\":{{\"value\":\"{cost}\"}}}}}}]}}"
            )
        };
        let devices = [
            device("a", "half", "4Gi"),
            device("b", "half", "4Gi"),
            device("c", "quarter", "2Gi"),
            device("e", "quarter", "2Gi"),
        ];
        let world = slice("s", "p", 1, 1, &devices.join(",")).replace(
            "\"devices\"",
            "\"partitionTypeAttribute\":\"d/kind\",\"sharedCounters\":[{\"name\":\"s\",\"counters\":{\"m\":{\"value\":\"8Gi\"}}}],\"devices\"",
        ) + "resourceclaim one spec={} status.allocation.devices.results=[{\"driver\":\"d\",\"pool\":\"p\",\"device\":\"a\",\"request\":\"r\"}]";
        check(
            &world,
            expect![[r#"
                {"allocatedDevices":1,"availableDevices":3,"driver":"d","generation":1,"nodeName":"n","partitionSummary":[{"allocatable":1,"attribute":"d/kind","total":2,"type":"half"},{"allocatable":2,"attribute":"d/kind","total":2,"type":"quarter"}],"poolName":"p","resourceSliceCount":1,"totalDevices":4,"unavailableDevices":0}
                Complete: Calculated status for 1 pools
            "#]],
        );
    }

    #[test]
    fn capacity_of_shared_devices_is_summed() {
        let device = |name: &str| {
            format!(
                "{{\"name\":\"{name}\",\"allowMultipleAllocations\":true,\"capacity\":{{\"memory\":{{\"value\":\"8Gi\"}}}}}}"
            )
        };
        let world = slice("s", "p", 1, 1, &[device("a"), device("b")].join(","))
            + "resourceclaim one spec={} status.allocation.devices.results=[{\"driver\":\"d\",\"pool\":\"p\",\"device\":\"a\",\"request\":\"r\",\"consumedCapacity\":{\"memory\":\"3Gi\"}}]";
        check(
            &world,
            expect![[r#"
                {"allocatedDevices":1,"availableDevices":1,"driver":"d","generation":1,"nodeName":"n","poolName":"p","resourceSliceCount":1,"shareableSummary":{"capacity":[{"available":"13Gi","consumed":"3Gi","name":"memory","total":"16Gi"}],"fullyAvailableDevices":1,"partiallyAvailableDevices":1},"totalDevices":2,"unavailableDevices":0}
                Complete: Calculated status for 1 pools
            "#]],
        );
    }

    #[test]
    fn a_pool_that_is_still_being_published_is_waited_for() {
        check(&slice("s", "p", 1, 2, ""), expect![[""]]);
    }

    #[test]
    fn answered_requests_go_after_an_hour_and_others_after_a_day() {
        let answered = |at: &str| {
            format!(
                "status={{\"poolCount\":0,\"conditions\":[{{\"type\":\"Complete\",\"status\":\"True\",\"reason\":\"r\",\"message\":\"m\",\"lastTransitionTime\":\"{at}\"}}]}}"
            )
        };
        check_row(
            &CONTROLLER,
            &format!(
                "resourcepoolstatusrequest old spec.driver=d {}
                 resourcepoolstatusrequest young spec.driver=d {}
                 resourcepoolstatusrequest stuck spec.driver=d age=90000",
                answered("2026-01-01T10:00:00Z"),
                answered("2026-01-01T11:30:00Z"),
            ),
            &["old", "young", "stuck"],
            expect![[r#"
                delete resourcepoolstatusrequests.resource.k8s.io old
                again after 1800s
                delete resourcepoolstatusrequests.resource.k8s.io stuck
            "#]],
        );
    }
}
