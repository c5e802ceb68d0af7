//! Objects as JSON, requests as lines, paused time.
use super::*;
use crate::doors::request::{self, Target};
use crate::guard::fairness::flow;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn attributes(request: &str) -> Attributes {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let method = method.parse().expect("a method");
    match request::parse(api::kinds::built_in(), &method, path, query) {
        Target::Call(call) => Attributes::of_call(&call),
        _ => Attributes::of_path(&method, path),
    }
}

fn user(name: &str, groups: &str) -> User {
    let groups = groups.split(' ').map(str::to_owned).collect();
    User { name: name.into(), groups, ..User::default() }
}

fn of_kind<T: DeserializeOwned>(kind: &str, more: &[Value]) -> Vec<T> {
    let all = flow::objects().into_iter().chain(more.iter().cloned());
    all.filter(|object| object["kind"] == kind)
        .map(|object| serde_json::from_value(object).expect("it is typed"))
        .collect()
}

/// Upstream's objects and some more, with so many seats.
fn fairness(seats: u32, more: &[Value]) -> Arc<Fairness> {
    let fairness = Fairness::new(seats, Duration::from_secs(15));
    let schemas: Vec<FlowSchema> = of_kind("FlowSchema", more);
    let levels: Vec<PriorityLevelConfiguration> = of_kind("PriorityLevelConfiguration", more);
    fairness.configure(&schemas, &levels);
    fairness
}

/// A level with one seat or so, for everybody called `tester`.
fn small(queuing: Option<(i64, i64, i64)>) -> Vec<Value> {
    let response = match queuing {
        None => json!({ "type": "Reject" }),
        Some((queues, hand, length)) => json!({ "type": "Queue", "queuing": {
            "queues": queues, "handSize": hand, "queueLengthLimit": length } }),
    };
    vec![
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": { "name": "small", "uid": "level-uid" },
            "spec": { "type": "Limited", "limited": {
                "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": response } },
        }),
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": { "name": "testers", "uid": "schema-uid" },
            "spec": {
                "matchingPrecedence": 50, "priorityLevelConfiguration": { "name": "small" },
                "distinguisherMethod": { "type": "ByUser" },
                "rules": [{
                    "subjects": [{ "kind": "Group", "group": { "name": "testers" } }],
                    "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                        "namespaces": ["*"], "clusterScope": true }],
                }],
            },
        }),
    ]
}

async fn admit(fairness: &Arc<Fairness>, name: &str) -> Result<Admitted, Status> {
    let user = user(name, "testers system:authenticated");
    fairness.admit(&user, &attributes("GET /api/v1/nodes"), false, |_| 1).await.1
}

#[test]
fn a_request_belongs_to_the_first_schema_that_matches() {
    let fairness = fairness(600, &[]);
    let everybody = "system:authenticated";
    for (name, groups, request, expected) in [
        ("admin", "system:masters system:authenticated", "GET /api/v1/pods", "exempt"),
        ("system:anonymous", "system:unauthenticated", "GET /healthz", "probes"),
        (
            "system:kube-scheduler",
            everybody,
            "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a",
            "system-leader-election",
        ),
        (
            "system:node:a",
            "system:nodes system:authenticated",
            "PATCH /api/v1/nodes/a/status",
            "system-node-high",
        ),
        ("system:node:a", "system:nodes system:authenticated", "GET /api/v1/pods", "system-nodes"),
        (
            "system:kube-controller-manager",
            everybody,
            "GET /api/v1/pods",
            "kube-controller-manager",
        ),
        (
            "system:serviceaccount:kube-system:a",
            "system:serviceaccounts system:authenticated",
            "GET /api/v1/pods",
            "kube-system-service-accounts",
        ),
        (
            "system:serviceaccount:default:a",
            "system:serviceaccounts system:authenticated",
            "GET /api/v1/pods",
            "service-accounts",
        ),
        ("jane", everybody, "GET /api/v1/pods", "global-default"),
        ("jane", everybody, "GET /healthz/etcd", "probes"),
        ("jane", everybody, "GET /version", "global-default"),
        ("nobody", "strangers", "GET /version", "catch-all"),
    ] {
        let current = fairness.current();
        let schema = current.schema(&user(name, groups), &attributes(request));
        assert_eq!(schema.name, expected, "{name} {request}");
    }
}

#[test]
fn seats_are_shared_by_shares() {
    let fairness = fairness(600, &[]);
    let seats = |name: &str| fairness.current().levels[name].bounds;
    // 245 shares in all.
    assert_eq!(seats("workload-low"), level::Bounds { nominal: 245, least: 24, most: 845 });
    assert_eq!(seats("catch-all"), level::Bounds { nominal: 13, least: 13, most: 613 });
    assert_eq!(seats("exempt").nominal, 0);
    let limits: u32 = fairness.current().levels.values().map(|l| l.room.limit.load(Relaxed)).sum();
    assert!((590..=620).contains(&limits), "{limits}");
}

#[test]
fn what_is_mandatory_cannot_be_taken_away() {
    let fairness = Fairness::new(10, Duration::from_secs(1));
    let mut bad = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": { "name": "exempt", "uid": "u" },
        "spec": { "matchingPrecedence": 9999, "priorityLevelConfiguration": { "name": "nowhere" }, "rules": [] },
    });
    let schema: FlowSchema = serde_json::from_value(bad.clone()).expect("it is typed");
    bad["metadata"]["name"] = "lost".into();
    let lost: FlowSchema = serde_json::from_value(bad).expect("it is typed");
    let found = fairness.configure(&[schema, lost], &[]);
    assert!(found.contains(&("exempt".into(), "exempt".into(), false)));
    assert!(found.contains(&("lost".into(), "nowhere".into(), true)), "{found:?}");
    let current = fairness.current();
    let schema = current.schema(&user("a", "system:masters"), &attributes("GET /version"));
    assert_eq!((schema.name.as_str(), schema.uid.as_bytes()), ("exempt", &b"u"[..]));
}

#[tokio::test(start_paused = true)]
async fn without_queues_who_finds_no_seat_is_refused() {
    let fairness = fairness(100, &small(None));
    let limit = fairness.current().levels["small"].room.limit.load(Relaxed);
    let mut seats = Vec::new();
    for _ in 0..limit {
        seats.push(admit(&fairness, "jane").await.expect("a seat"));
    }
    let refused = admit(&fairness, "jane").await.err().expect("none is left");
    assert_eq!((refused.code, refused.suggests_client_delay()), (429, Some(1)));
    assert_eq!(refused.message, "Too many requests, please try again later.");
    seats.pop();
    assert!(admit(&fairness, "jane").await.is_ok());
    assert!(fairness.metrics().contains("apiserver_flowcontrol_rejected_requests_total{flow_schema=\"testers\",priority_level=\"small\",reason=\"concurrency-limit\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn who_waits_gets_the_seat_that_is_given_back_or_gives_up() {
    let fairness = fairness(100, &small(Some((4, 1, 2))));
    let limit = fairness.current().levels["small"].room.limit.load(Relaxed);
    let mut seats = Vec::new();
    for _ in 0..limit {
        seats.push(admit(&fairness, "jane").await.expect("a seat"));
    }
    let waiter = |name: &'static str| {
        let fairness = fairness.clone();
        tokio::spawn(async move { admit(&fairness, name).await.map(drop) })
    };
    let (first, second) = (waiter("jane"), waiter("jane"));
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    let room = fairness.current().levels["small"].room.clone();
    assert_eq!(room.waiting.load(Relaxed), 2);
    let refused = admit(&fairness, "jane").await.err().expect("the queue is full");
    assert_eq!(refused.code, 429);
    let dump = dump_requests(&fairness);
    assert_eq!(dump.matches("testers,").count(), 2, "{dump}");
    assert!(priority_levels(&fairness).contains("small,"), "{dump}");
    // One goes away while it waits.
    first.abort();
    assert!(first.await.is_err());
    assert_eq!(room.waiting.load(Relaxed), 1);
    seats.pop();
    second.await.expect("it ran").expect("it got the seat");
    seats.push(admit(&fairness, "jane").await.expect("a seat"));
    // And one waits too long.
    let late = waiter("john").await.expect("it ran").expect_err("its patience is over");
    assert_eq!(late.code, 429);
    drop(seats);
    assert_eq!(room.in_use.load(Relaxed), 0);
    assert_eq!(room.waiting.load(Relaxed), 0);
    assert_eq!(fairness.now(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_flood_leaves_another_its_turn() {
    let fairness = fairness(100, &small(Some((64, 6, 50))));
    let limit = fairness.current().levels["small"].room.limit.load(Relaxed);
    let order = Arc::new(Mutex::new(Vec::new()));
    let run = |name: &'static str| {
        let (fairness, order) = (fairness.clone(), order.clone());
        tokio::spawn(async move {
            let seat = admit(&fairness, name).await.expect("a seat, in the end");
            tokio::time::sleep(Duration::from_millis(3)).await;
            order.lock().expect("nobody panicked").push(name);
            drop(seat);
        })
    };
    let mut all: Vec<_> = (0..200).map(|_| run("flood")).collect();
    tokio::task::yield_now().await;
    all.extend((0..3).map(|_| run("other")));
    for one in all {
        one.await.expect("it ran");
    }
    let order = order.lock().expect("nobody panicked");
    let last = order.iter().rposition(|name| *name == "other").expect("it was served");
    assert!(last < 30 + limit as usize, "served as number {last} of {}", order.len());
}

#[tokio::test(start_paused = true)]
async fn a_level_under_pressure_borrows() {
    let mut more = small(Some((4, 1, 50)));
    more[0]["spec"]["limited"].as_object_mut().expect("an object").remove("borrowingLimitPercent");
    let fairness = fairness(100, &more);
    let room = fairness.current().levels["small"].room.clone();
    let before = room.limit.load(Relaxed);
    let mut waiting = Vec::new();
    for _ in 0..30 {
        let fairness = fairness.clone();
        waiting.push(tokio::spawn(async move {
            let seat = admit(&fairness, "jane").await;
            std::future::pending::<()>().await;
            drop(seat);
        }));
    }
    tokio::task::yield_now().await;
    assert!(room.waiting.load(Relaxed) > 0);
    fairness.lend();
    tokio::task::yield_now().await;
    let after = room.limit.load(Relaxed);
    assert!(after > before, "{before} {after}");
    assert!(room.executing.load(Relaxed) > before);
    for one in waiting {
        one.abort();
    }
}
