//! Moments that the server itself notes on a write, because the rules have no clock.
use crate::state::peculiar;
use api::kinds::Resource;
use api::rules::Part;
use jiff::Timestamp;
use serde_json::Value;

/// When what an update changes came to be so.
pub fn note(new: &mut Value, old: &Value, resource: &Resource, part: Part<'_>) {
    if let Some(note) = peculiar::of(resource).note {
        note(new, old, part, &|| moment(Timestamp::now()));
    }
}

/// What is a default that only a clock knows.
pub fn fill(object: &mut Value, resource: &Resource, now: Timestamp) {
    if let Some(fill) = peculiar::of(resource).fill {
        fill(object, &|| moment(now));
    }
}

fn moment(at: Timestamp) -> Value {
    api::time::format(at.as_second()).into()
}
