//! Moments that the server itself notes on an update, because the rules have no clock.
use api::kinds::Resource;
use api::rules::Part;
use jiff::Timestamp;
use serde_json::Value;

/// When a volume entered its phase, and when a taint came to be.
pub fn note(new: &mut Value, old: &Value, resource: &Resource, part: Part<'_>) {
    let now = || Value::from(api::time::format(Timestamp::now().as_second()));
    match (resource.built_in_kind(), part) {
        ("PersistentVolume", Part::Sub("status")) => {
            let (status, before) = (&new["status"], &old["status"]);
            let given = status.get("lastPhaseTransitionTime");
            let moved = status["phase"] != before["phase"];
            if !moved && given.is_none() {
                let kept = before.get("lastPhaseTransitionTime").cloned();
                api::rules::prepare::put(
                    &mut new["status"],
                    "lastPhaseTransitionTime",
                    kept.as_ref(),
                );
            } else if moved && (given.is_none() || given == before.get("lastPhaseTransitionTime")) {
                new["status"]["lastPhaseTransitionTime"] = now();
            }
        }
        ("CertificateSigningRequest", Part::Sub(_)) => {
            let before = old["status"]["conditions"].clone();
            let conditions = new["status"].get_mut("conditions").and_then(Value::as_array_mut);
            conditions.into_iter().flatten().for_each(|each| condition(each, &before, now));
        }
        ("DeviceTaintRule", Part::Main) => {
            let before = old["spec"]["taint"].clone();
            taint(&mut new["spec"]["taint"], Some(&before), now);
        }
        _ => {}
    }
}

/// What is a default that only a clock knows: a taint that does not say so holds from now on.
pub fn fill(object: &mut Value, resource: &Resource, now: Timestamp) {
    let now = || Value::from(api::time::format(now.as_second()));
    match resource.built_in_kind() {
        "DeviceTaintRule" => taint(&mut object["spec"]["taint"], None, now),
        "ResourceSlice" => {
            let devices = object["spec"].get_mut("devices").and_then(Value::as_array_mut);
            for device in devices.into_iter().flatten() {
                let taints = device.get_mut("taints").and_then(Value::as_array_mut);
                taints.into_iter().flatten().for_each(|each| taint(each, None, now));
            }
        }
        _ => {}
    }
}

/// A condition was last said now, and holds since it was first said.
fn condition(condition: &mut Value, before: &Value, now: impl Fn() -> Value) {
    if !condition.is_object() {
        return;
    }
    if condition["lastUpdateTime"].is_null() {
        condition["lastUpdateTime"] = now();
    }
    if condition["lastTransitionTime"].is_null() {
        let same =
            |old: &&Value| old["type"] == condition["type"] && old["status"] == condition["status"];
        let since = before.as_array().into_iter().flatten().find(same);
        let since = since.map(|old| old["lastTransitionTime"].clone());
        condition["lastTransitionTime"] = since.filter(|time| !time.is_null()).unwrap_or_else(now);
    }
}

/// A taint holds from when it is made, or made another, unless it says otherwise.
fn taint(taint: &mut Value, before: Option<&Value>, now: impl Fn() -> Value) {
    let same_time = before.is_some_and(|before| before.get("timeAdded") == taint.get("timeAdded"));
    let another = before.is_some_and(|before| before["effect"] != taint["effect"]);
    if taint.is_object() && (taint["timeAdded"].is_null() || another && same_time) {
        taint["timeAdded"] = now();
    }
}
