//! Descriptions as upstream's kubectl v1.37 printed them of the same objects: `cases/cases.jsonl` has the
//! objects and what is around them, `cases/cases.txt` the texts.

use expect_test::{Expect, expect};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Around, DESCRIBERS, Fault, Slot, Want, describe, wants};

fn slot(name: &str) -> Slot {
    use Slot::*;
    let all = [
        Events,
        Pods,
        Lease,
        ResourceSlices,
        EndpointSlices,
        Services,
        ReplicaSets,
        Quotas,
        LimitRanges,
    ];
    all.into_iter().find(|slot| format!("{slot:?}") == name).expect("the slot is known")
}

fn found(slot: Slot, objects: Vec<Value>) -> (Want, Result<Vec<Value>, Fault>) {
    (Want::all(slot, "v1", "things", ""), Ok(objects))
}

#[test]
fn objects_are_described_as_upstream_describes_them() {
    let texts = include_str!("cases/cases.txt");
    let mut count = 0;
    for line in include_str!("cases/cases.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let title = format!("#### {}\n", case["title"].as_str().unwrap());
        let text = &texts[texts.find(&title).unwrap() + title.len()..];
        let expected = text.split("#### ").next().unwrap();
        let mut around = Around::default();
        for part in case["around"].as_array().unwrap() {
            let objects = part["objects"].as_array().unwrap().clone();
            let (want, found) = found(slot(part["slot"].as_str().unwrap()), objects);
            around.add(want, found);
        }
        let now: Timestamp = case["now"].as_str().unwrap().parse().unwrap();
        assert_eq!(describe(&case["object"], &around, now), expected, "{title}");
        count += 1;
    }
    assert!(count > 30, "the cases are there");
}

#[test]
fn every_kind_is_described_once_and_bears_an_empty_object() {
    for (i, row) in DESCRIBERS.iter().enumerate() {
        let same = DESCRIBERS
            .iter()
            .skip(i + 1)
            .find(|other| (other.group, other.kind) == (row.group, row.kind));
        assert!(same.is_none(), "{} is there twice", row.kind);
        let version =
            if row.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", row.group) };
        let object = json!({"apiVersion": version, "kind": row.kind, "metadata": {"name": "x"}});
        let text = describe(&object, &Around::default(), Timestamp::UNIX_EPOCH);
        assert!(text.starts_with("Name:"), "{}: {text}", row.kind);
        wants(&object, true);
    }
}

fn check_events(events: Value, expected: Expect) {
    let mut around = Around::default();
    let (want, found) = found(Slot::Events, events.as_array().cloned().unwrap_or_default());
    around.add(want, found);
    let map = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x", "namespace": "n"}});
    let now: Timestamp = "2026-01-02T12:00:00Z".parse().expect("it is a time");
    let text = describe(&map, &around, now);
    expected.assert_eq(&text[text.find("Events:").expect("there are events")..]);
}

#[test]
fn events_are_sorted_and_say_how_often_and_when() {
    check_events(
        json!([
            {"type": "Normal", "reason": "Often", "message": " many ", "count": 3, "source": {"component": "kubelet"},
             "firstTimestamp": "2026-01-02T11:50:00Z", "lastTimestamp": "2026-01-02T11:55:00Z",
             "involvedObject": {"fieldPath": "spec.containers{c}"}},
            {"type": "Warning", "reason": "Once", "message": "one", "count": 1, "source": {"component": "a"},
             "firstTimestamp": "2026-01-02T11:40:00Z", "lastTimestamp": "2026-01-02T11:40:00Z"},
            {"type": "Normal", "reason": "Series", "message": "s", "reportingComponent": "ctl",
             "eventTime": "2026-01-02T10:00:00.000000Z",
             "series": {"count": 4, "lastObservedTime": "2026-01-02T11:59:30.000000Z"}},
            {"type": "Normal", "reason": "Timeless", "message": "t"},
        ]),
        expect![[r#"
            Events:
              Type     Reason    Age                 From     Message
              ----     ------    ----                ----     -------
              Normal   Series    30s (x4 over 120m)  ctl      s
              Normal   Timeless  <unknown>                    t
              Warning  Once      20m                 a        one
              Normal   Often     5m (x3 over 10m)    kubelet  spec.containers{c}: many
        "#]],
    );
    check_events(
        json!([]),
        expect![[r#"
            Events:              <none>
        "#]],
    );
}

#[test]
fn what_cannot_be_fetched_is_told_where_upstream_tells_it() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let mut around = Around::default();
    for want in wants(&node, false) {
        let message = format!("{} are secret", want.resource);
        around.add(want, Err(Fault { message }));
    }
    let text = describe(&node, &around, Timestamp::UNIX_EPOCH);
    assert!(
        text.contains("Lease:              Failed to get lease: leases are secret\n"),
        "{text}"
    );
    assert!(text.contains("Pods:                         not authorized\n"), "{text}");
}

#[test]
fn terminals_are_not_told_what_to_do() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "\u{1b}[2J\r"}});
    let text = describe(&map, &Around::default(), Timestamp::UNIX_EPOCH);
    assert!(text.contains("a:\n----\n^[[2J\\r\n"), "{text}");
}

#[test]
fn events_of_nodes_and_mirror_pods_are_asked_for_by_their_other_names() {
    let asked = |object: Value| -> Vec<String> {
        let events = wants(&object, true).into_iter().filter(|want| want.slot == Slot::Events);
        events.map(|want| want.fields).collect()
    };
    assert_eq!(
        asked(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}})),
        [
            "involvedObject.kind=Node,involvedObject.name=n,involvedObject.namespace=,involvedObject.uid=u",
            "involvedObject.kind=Node,involvedObject.name=n,involvedObject.namespace=,involvedObject.uid=n",
        ]
    );
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "u",
        "annotations": {"kubernetes.io/config.mirror": "m"}}});
    assert_eq!(
        asked(pod),
        ["involvedObject.name=p,involvedObject.namespace=n,involvedObject.uid=m"]
    );
}
