//! What is recorded of requests.
use crate::apiserver;
use crate::cluster::Cluster;
use serde_json::{Value, json};
use std::fs;

/// The recorded events that the condition holds for; waits until there are so many.
fn events(cluster: &Cluster, count: usize, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let path = cluster.folder.path().join("audit/audit.log");
    let begun = std::time::Instant::now();
    loop {
        let text = fs::read_to_string(&path).unwrap_or_default();
        // The last line may be half written.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found: Vec<Value> = lines.filter(&wanted).collect();
        if found.len() >= count {
            return found;
        }
        assert!(begun.elapsed().as_secs() < 30, "only {found:?}");
    }
}

#[test]
fn everything_is_recorded_by_default_and_no_secret_is() {
    let cluster = Cluster::start();
    cluster.kubectl("create secret generic s -n default --from-literal=a=under-the-mattress");
    let about = |verb: &'static str| {
        move |event: &Value| event["objectRef"]["resource"] == "secrets" && event["verb"] == verb
    };
    let event = events(&cluster, 1, about("create")).remove(0);
    assert_eq!(event["kind"], "Event");
    assert_eq!(event["apiVersion"], "audit.k8s.io/v1");
    assert_eq!(
        (&event["level"], &event["stage"]),
        (&json!("Metadata"), &json!("ResponseComplete"))
    );
    assert_eq!(event["user"]["username"], "kubernetes-admin");
    assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
    assert!(event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("kubectl")));
    assert!(
        event["requestURI"]
            .as_str()
            .is_some_and(|uri| uri.starts_with("/api/v1/namespaces/default/secrets?"))
    );
    assert_eq!(
        event["objectRef"],
        json!({"resource": "secrets", "namespace": "default", "name": "s", "apiVersion": "v1"})
    );
    assert_eq!(event["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(
        event["annotations"],
        json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""})
    );
    cluster.kubectl("get secrets -n default --as=jane --as-group=readers");
    let event = events(&cluster, 1, about("list")).remove(0);
    assert_eq!(event["impersonatedUser"]["username"], "jane");
    assert_eq!(
        event["authenticationMetadata"],
        json!({"impersonationConstraint": "impersonate:user-info"})
    );
    assert_eq!(event["user"]["username"], "kubernetes-admin");
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(event["responseStatus"]["code"], 403);
    assert_eq!(event["responseStatus"]["reason"], "Forbidden");
    let text = fs::read_to_string(cluster.folder.path().join("audit/audit.log")).expect("a log");
    assert!(!text.contains("under-the-mattress") && !text.contains("dW5kZXItdGhl"));
}

#[test]
fn a_watch_is_recorded_when_it_begins_and_when_it_ends() {
    let cluster = Cluster::start();
    let (mut child, _output) = cluster.stream("get configmaps -n default --watch");
    let watch =
        |event: &Value| event["verb"] == "watch" && event["objectRef"]["resource"] == "configmaps";
    let first = events(&cluster, 1, watch).remove(0);
    assert_eq!(first["stage"], "ResponseStarted");
    child.kill().expect("a running process");
    child.wait().expect("a killed process");
    let both = events(&cluster, 2, watch);
    assert_eq!(both[1]["stage"], "ResponseComplete");
    assert_eq!(both[0]["auditID"], both[1]["auditID"]);
}

#[test]
fn a_policy_says_how_much_is_recorded() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    let rules = r#"{apiVersion: audit.k8s.io/v1, kind: Policy, omitManagedFields: true, rules: [
        {level: RequestResponse, resources: [{group: "", resources: [configmaps]}]}]}"#;
    fs::write(&policy, rules).expect("a file");
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let policy = format!("--audit-policy-file={}", policy.display());
    let path = format!("--audit-log-path={}", log.display());
    let (_server, address) = apiserver::server(folder.path(), &[&data, &policy, &path]);
    let kubectl = |arguments: &str| apiserver::kubectl(folder.path(), &address, arguments);
    kubectl("create configmap c -n default --from-literal=a=b");
    kubectl("create secret generic s -n default --from-literal=a=b");
    kubectl("delete configmap c -n default");
    let text = fs::read_to_string(&log).expect("a log");
    let events: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(events.iter().all(|event| event["objectRef"]["resource"] == "configmaps"), "{text}");
    let find = |verb: &str, stage: &str| {
        let found = events.iter().find(|event| event["verb"] == verb && event["stage"] == stage);
        found.unwrap_or_else(|| panic!("no {verb} at {stage}: {text}"))
    };
    assert!(find("create", "RequestReceived").get("requestObject").is_none());
    let created = find("create", "ResponseComplete");
    assert_eq!(created["requestObject"]["data"], json!({"a": "b"}));
    assert_eq!(created["responseObject"]["kind"], "ConfigMap");
    assert!(created["responseObject"]["metadata"]["uid"].is_string());
    assert!(created["responseObject"]["metadata"].get("managedFields").is_none());
    let deleted = find("delete", "ResponseComplete");
    assert_eq!(deleted["responseStatus"]["status"], "Success");
    assert_eq!(deleted["responseStatus"]["details"]["name"], "c");
    assert_eq!(deleted["requestObject"]["kind"], "DeleteOptions");
}
