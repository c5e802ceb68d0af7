//! Event: the core group's, in which it is stored, and events.k8s.io's. Names differ, nothing else.
use super::moves::{Object, backward, forward};

/// core/v1 → events.k8s.io/v1.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("source", "deprecatedSource"),
    ("message", "note"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(super) fn from_core(event: &mut Object) {
    forward(event, NAMES);
}

pub(super) fn to_core(event: &mut Object) {
    backward(event, NAMES);
}

#[cfg(test)]
mod tests {
    use crate::convert::convert;
    use serde_json::json;

    #[test]
    fn an_event_keeps_everything_under_other_names() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "Pulled",
            "involvedObject": {"kind": "Pod", "name": "web"}, "message": "done", "count": 3,
            "source": {"component": "kubelet"}, "firstTimestamp": "2020-01-01T00:00:00Z",
            "lastTimestamp": "2020-01-01T00:00:00Z", "eventTime": null,
            "reportingComponent": "kubelet", "reportingInstance": "node-1",
            "series": {"count": 2, "lastObservedTime": "2020-01-01T00:00:00.000001Z"},
        });
        let newer = convert(core.clone(), "events.k8s.io/v1").unwrap();
        assert_eq!(newer["regarding"]["name"], "web");
        assert_eq!(newer["note"], "done");
        assert_eq!(newer["deprecatedCount"], 3);
        assert_eq!(newer["reportingController"], "kubelet");
        assert_eq!(convert(newer, "v1").unwrap(), core);
    }
}
