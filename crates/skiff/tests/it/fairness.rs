//! Priority and fairness, as it is seen from outside.
use crate::cluster::Cluster;
use serde_json::{Value, json};

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed().as_secs() < 30, "{what} never happened");
    }
}

fn dangling(cluster: &Cluster, name: &str) -> Value {
    let schema = cluster.json(&format!("get flowschema {name}"));
    schema["status"]["conditions"][0]["status"].clone()
}

#[test]
fn an_answer_says_where_its_request_belongs() {
    let cluster = Cluster::start();
    let output = cluster.command("get --raw /version -v=8").output().expect("kubectl runs");
    let talk = String::from_utf8_lossy(&output.stderr).to_lowercase();
    let uid = |kind: &str| {
        let object = cluster.json(&format!("get {kind} exempt"));
        object["metadata"]["uid"].as_str().expect("a uid").to_owned()
    };
    for (header, kind) in [
        ("x-kubernetes-pf-flowschema-uid", "flowschema"),
        ("x-kubernetes-pf-prioritylevel-uid", "prioritylevelconfiguration"),
    ] {
        let line =
            talk.lines().find(|line| line.contains(header)).unwrap_or_else(|| panic!("{talk}"));
        assert!(line.contains(&uid(kind)), "{line}");
    }
    assert!(talk.contains("audit-id"), "{talk}");
}

#[test]
fn a_schema_says_whether_its_level_exists_and_the_mandatory_ones_stay() {
    let cluster = Cluster::start();
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": { "name": "mine" },
        "spec": {
            "matchingPrecedence": 500, "priorityLevelConfiguration": { "name": "mine" },
            "rules": [{
                "subjects": [{ "kind": "User", "user": { "name": "jane" } }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            }],
        },
    });
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": { "name": "mine" },
        "spec": { "type": "Limited", "limited": {
            "nominalConcurrencyShares": 10, "limitResponse": { "type": "Reject" } } },
    });
    cluster.kubectl_with("create -f -", &schema.to_string());
    wait_until("that it dangles", || dangling(&cluster, "mine") == "True");
    cluster.kubectl_with("create -f -", &level.to_string());
    wait_until("that it does not", || dangling(&cluster, "mine") == "False");
    assert_eq!(dangling(&cluster, "exempt"), "False");
    let levels =
        || cluster.kubectl("get --raw /debug/api_priority_and_fairness/dump_priority_levels");
    assert!(levels().contains("mine,"), "{}", levels());
    for table in ["dump_queues", "dump_requests"] {
        let text = cluster.kubectl(&format!("get --raw /debug/api_priority_and_fairness/{table}"));
        assert!(text.starts_with("PriorityLevelName,"), "{text}");
    }
    let jane = "get --raw /debug/api_priority_and_fairness/dump_queues --as=jane";
    assert!(cluster.kubectl(jane).contains("Forbidden"));
    cluster.kubectl("delete flowschema catch-all");
    wait_until("that it is back", || {
        cluster
            .kubectl("get flowschemas -o name")
            .contains("flowschema.flowcontrol.apiserver.k8s.io/catch-all")
    });
    let metrics = cluster.kubectl("get --raw /metrics");
    for name in ["nominal_limit_seats", "current_limit_seats", "dispatched_requests_total"] {
        assert!(metrics.contains(&format!("apiserver_flowcontrol_{name}{{")), "{name}");
    }
}
