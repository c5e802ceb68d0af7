//! Requests against quotas: what is charged, and what is refused.
use super::*;
use serde_json::json;

fn quota(name: &str, spec: Value, hard: Value, used: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec, "status": {"hard": hard, "used": used}})
}

fn pod(cpu: &str) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "a", "resources": {"requests": {"cpu": cpu}}}]}})
}

/// What each quota holds afterwards, or why not.
fn check(quotas: &[Value], object: Value, old: Option<Value>, limited: Value) -> String {
    let limited: Vec<Limited> = serde_json::from_value(limited).unwrap();
    let request = Request { object: &object, old: old.as_ref(), part: "", resource: ("", "pods") };
    match decide(
        &Evaluator::Own(api::quota::Uses::Pods),
        quotas,
        &request,
        &limited,
        Timestamp::UNIX_EPOCH,
    ) {
        Ok(usages) => {
            let shown = usages.iter().map(|usage| usage.as_ref().map_or("-".into(), printed));
            shown.collect::<Vec<_>>().join(" | ")
        }
        Err(Forbidden(cause)) => cause,
        Err(Plain(cause)) => format!("plain: {cause}"),
    }
}

#[test]
fn a_pod_is_charged_to_each_quota_it_is_under() {
    let quotas = [
        quota(
            "a",
            json!({}),
            json!({"cpu": "3", "pods": "5"}),
            json!({"cpu": "500m", "pods": "1"}),
        ),
        quota("b", json!({"scopes": ["BestEffort"]}), json!({"pods": "1"}), json!({"pods": "1"})),
        quota("c", json!({}), json!({"services": "1"}), json!({"services": "1"})),
    ];
    assert_eq!(check(&quotas, pod("1"), None, json!([])), "cpu=1500m,pods=2 | - | -");
}

#[test]
fn what_exceeds_is_told() {
    let full = quota(
        "a",
        json!({}),
        json!({"cpu": "1", "pods": "9"}),
        json!({"cpu": "500m", "pods": "1"}),
    );
    assert_eq!(
        check(&[full], pod("1"), None, json!([])),
        "exceeded quota: a, requested: cpu=1, used: cpu=500m, limited: cpu=1"
    );
}

#[test]
fn a_quota_without_status_charges_nobody() {
    let new = quota("a", json!({}), json!({"cpu": "1", "pods": "9"}), json!({"pods": "0"}));
    assert_eq!(
        check(&[new], pod("1"), None, json!([])),
        "status unknown for quota: a, resources: cpu,pods"
    );
    let unseen = quota("a", json!({"hard": {"cpu": "1"}}), json!({}), json!({}));
    assert_eq!(check(&[unseen], pod("1"), None, json!([])), "-");
}

#[test]
fn a_pod_has_to_say_what_is_limited() {
    let memory =
        quota("a", json!({}), json!({"limits.memory": "1Gi"}), json!({"limits.memory": "0"}));
    assert_eq!(
        check(&[memory], pod("1"), None, json!([])),
        "failed quota: a: must specify limits.memory for: a"
    );
}

#[test]
fn an_update_is_charged_what_it_adds() {
    let quotas =
        [quota("a", json!({}), json!({"cpu": "3", "pods": "1"}), json!({"cpu": "1", "pods": "1"}))];
    assert_eq!(check(&quotas, pod("2"), Some(pod("1")), json!([])), "cpu=2,pods=1");
    assert_eq!(check(&quotas, pod("1"), Some(pod("2")), json!([])), "-");
}

#[test]
fn a_quota_that_a_pod_comes_under_is_charged_all_of_it() {
    let spec = json!({"scopes": ["Terminating"]});
    let quotas = [quota("a", spec, json!({"pods": "2"}), json!({"pods": "0"}))];
    let mut ending = pod("1");
    ending["spec"]["activeDeadlineSeconds"] = 5.into();
    assert_eq!(check(&quotas, ending.clone(), Some(pod("1")), json!([])), "pods=1");
    assert_eq!(check(&quotas, pod("1"), Some(ending), json!([])), "-");
}

#[test]
fn what_is_limited_needs_a_quota() {
    let limited = json!([{"resource": "pods", "matchContains": ["cpu"]}]);
    assert_eq!(
        check(&[], pod("1"), None, limited.clone()),
        "insufficient quota to consume: cpu,requests.cpu"
    );
    let covering = quota(
        "a",
        json!({}),
        json!({"cpu": "2", "requests.cpu": "2"}),
        json!({"cpu": "0", "requests.cpu": "0"}),
    );
    assert_eq!(check(&[covering], pod("1"), None, limited), "cpu=1,requests.cpu=1");
    let scopes = json!([{"resource": "pods", "matchScopes": [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}]);
    assert_eq!(check(&[], pod("1"), None, scopes.clone()), "");
    let mut high = pod("1");
    high["spec"]["priorityClassName"] = "high".into();
    assert_eq!(
        check(&[], high, None, scopes),
        "plain: insufficient quota to match these scopes: [{PriorityClass In [high]}]"
    );
}
