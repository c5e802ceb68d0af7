//! The table of events at a description's end.

use jiff::Timestamp;
use serde_json::Value;

use super::common::{int, moment, since, text};
use super::writer::{Writer, put};

pub fn describe(w: &mut Writer, events: &[&Value], now: Timestamp) {
    if events.is_empty() {
        w.write(0, "Events:\t<none>\n");
        return;
    }
    w.flush();
    let mut events = events.to_vec();
    events.sort_by_key(|event| moment(&event["lastTimestamp"]));
    w.write(0, "Events:\n  Type\tReason\tAge\tFrom\tMessage\n");
    w.write(1, "----\t------\t----\t----\t-------\n");
    for event in events {
        let from = match text(&event["source"]["component"]) {
            "" => text(&event["reportingComponent"]),
            component => component,
        };
        let mut message = text(&event["message"]).trim().to_owned();
        let path = text(&event["involvedObject"]["fieldPath"]);
        if !path.is_empty() {
            message = format!("{path}: {message}");
        }
        let (kind, reason) = (text(&event["type"]), text(&event["reason"]));
        put!(w, 1, "{kind}\t{reason}\t{}\t{from}\t{message}\n", age(event, now));
    }
}

/// `5m (x3 over 10m)`, or when it was seen if that was once.
fn age(event: &Value, now: Timestamp) -> String {
    let first = match moment(&event["eventTime"]) {
        Some(_) => since(&event["eventTime"], now),
        None => since(&event["firstTimestamp"], now),
    };
    let series = &event["series"];
    if series.is_object() {
        let last = since(&series["lastObservedTime"], now);
        return format!("{last} (x{} over {first})", int(&series["count"]));
    }
    match int(&event["count"]) {
        count if count > 1 => {
            format!("{} (x{count} over {first})", since(&event["lastTimestamp"], now))
        }
        _ => first,
    }
}
