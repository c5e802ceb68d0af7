//! Moments that the server itself notes, because the rules have no clock.
use super::Clock;
use api::rules::Part;
use serde_json::Value;

/// When a volume entered its phase.
pub fn phase(new: &mut Value, old: &Value, part: Part<'_>, now: Clock<'_>) {
    if part != Part::Sub("status") {
        return;
    }
    const FIELD: &str = "lastPhaseTransitionTime";
    let (status, before) = (&new["status"], &old["status"]);
    let given = status.get(FIELD);
    let moved = status["phase"] != before["phase"];
    if !moved && given.is_none() {
        api::rules::prepare::put(&mut new["status"], FIELD, before.get(FIELD));
    } else if moved && (given.is_none() || given == before.get(FIELD)) {
        new["status"][FIELD] = now();
    }
}

/// Since when each condition holds.
pub fn conditions(new: &mut Value, old: &Value, part: Part<'_>, now: Clock<'_>) {
    if part == Part::Main {
        return;
    }
    let before = &old["status"]["conditions"];
    let conditions = new["status"].get_mut("conditions").and_then(Value::as_array_mut);
    conditions.into_iter().flatten().for_each(|each| condition(each, before, now));
}

/// Since when a taint holds that an update makes another.
pub fn another_taint(new: &mut Value, old: &Value, part: Part<'_>, now: Clock<'_>) {
    if part == Part::Main {
        taint(&mut new["spec"]["taint"], Some(&old["spec"]["taint"]), now);
    }
}

/// A taint that does not say so holds from now on.
pub fn of_rule(rule: &mut Value, now: Clock<'_>) {
    taint(&mut rule["spec"]["taint"], None, now);
}

pub fn of_slice(slice: &mut Value, now: Clock<'_>) {
    let devices = slice["spec"].get_mut("devices").and_then(Value::as_array_mut);
    for device in devices.into_iter().flatten() {
        let taints = device.get_mut("taints").and_then(Value::as_array_mut);
        taints.into_iter().flatten().for_each(|each| taint(each, None, now));
    }
}

/// A condition was last said now, and holds since it was first said.
fn condition(condition: &mut Value, before: &Value, now: Clock<'_>) {
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
fn taint(taint: &mut Value, before: Option<&Value>, now: Clock<'_>) {
    let same_time = before.is_some_and(|before| before.get("timeAdded") == taint.get("timeAdded"));
    let another = before.is_some_and(|before| before["effect"] != taint["effect"]);
    if taint.is_object() && (taint["timeAdded"].is_null() || another && same_time) {
        taint["timeAdded"] = now();
    }
}
