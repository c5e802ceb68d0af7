//! Rights that are stretched: by the path, by the verb, by what an object says of itself.
use super::{APPLY, JSON, JSON_PATCH, MERGE, Who, Wire, grant};
use crate::cluster::Cluster;
use serde_json::json;

#[test]
fn rights_reach_as_far_as_they_were_given() {
    let cluster = Cluster::start();
    let wire = Wire::new(&cluster);
    cluster.kubectl("create namespace foo");
    let change = json!([{ "verbs": ["get", "update", "patch"], "apiGroups": ["", "coordination.k8s.io"],
        "resources": ["configmaps", "leases"] }]);
    grant(&cluster, &wire, "dave", Some("foo"), change);
    changing_is_not_making(&wire);

    let roles = json!([{ "verbs": ["get", "create", "update", "patch"],
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"] }]);
    grant(&cluster, &wire, "carol", None, roles);
    nobody_gathers_more_than_he_has(&cluster, &wire);
    a_secret_is_not_in_the_audit_log(&cluster, &wire);
}

fn changing_is_not_making(wire: &Wire) {
    let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"foo"}}"#;
    let lease = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l","namespace":"foo"},"spec":{}}"#;
    let maps = "/api/v1/namespaces/foo/configmaps/c?fieldManager=m";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/foo/leases/l";
    let refused = r#"configmaps \"c\" is forbidden: User \"dave\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"foo\""#;
    for (what, media, body, text) in [
        (format!("PATCH {maps}"), APPLY, map, refused),
        (format!("PUT {leases}"), JSON, lease, "cannot create resource"),
        (format!("PATCH {maps}&dryRun=All"), APPLY, map, refused),
    ] {
        let answer = wire.ask_as("dave", &what, &[media], body);
        assert_eq!(answer.code, 403, "{what}: {}", answer.body);
        assert!(answer.body.contains(text), "{what}: {}", answer.body);
    }
    // Who may make it does; then it may be changed.
    assert_eq!(wire.ask(Who::Admin, &format!("PATCH {maps}"), &[APPLY.as_bytes()], map).code, 201);
    assert_eq!(wire.ask(Who::Admin, &format!("PUT {leases}"), &[JSON.as_bytes()], lease).code, 201);
    assert_eq!(wire.ask_as("dave", &format!("PATCH {maps}"), &[APPLY], map).code, 200);
    assert_eq!(wire.ask_as("dave", &format!("PATCH {leases}"), &[MERGE], "{}").code, 200);
}

fn nobody_gathers_more_than_he_has(cluster: &Cluster, wire: &Wire) {
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let head = r#""apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole""#;
    let gathers = r#""aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}"#;
    let role =
        |name: &str, rest: &str| format!(r#"{{{head},"metadata":{{"name":"{name}"}}{rest}}}"#);
    let all = role("all", &format!(",{gathers}"));
    assert_eq!(
        wire.ask_as("carol", &format!("POST {path}"), &[JSON], &role("empty", "")).code,
        201
    );
    assert_eq!(wire.ask(Who::Admin, &format!("POST {path}"), &[JSON.as_bytes()], &all).code, 201);
    let patch = format!(
        r#"[{{"op":"add","path":"/aggregationRule","value":{}}}]"#,
        r#"{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}"#
    );
    for (what, media, body) in [
        (format!("POST {path}"), JSON, role("more", &format!(",{gathers}"))),
        (format!("PUT {path}/empty"), JSON, role("empty", &format!(",{gathers}"))),
        (format!("PATCH {path}/empty"), MERGE, format!("{{{gathers}}}")),
        (format!("PATCH {path}/empty"), JSON_PATCH, patch),
        (
            format!("PATCH {path}/empty?fieldManager=m"),
            APPLY,
            role("empty", &format!(",{gathers}")),
        ),
        // One that gathers is not for others to change, nor to stop.
        (format!("PATCH {path}/all"), MERGE, r#"{"aggregationRule":null}"#.to_owned()),
        (format!("PATCH {path}/all"), MERGE, r#"{"metadata":{"labels":{"a":"b"}}}"#.to_owned()),
    ] {
        let answer = wire.ask_as("carol", &what, &[media], &body);
        assert_eq!(answer.code, 403, "{what} {body}: {}", answer.body);
        let text = "must have cluster-admin privileges to use the aggregationRule";
        assert!(answer.body.contains(text), "{what} {body}: {}", answer.body);
    }
    let kept = cluster.json("get clusterrole empty");
    assert!(kept.get("aggregationRule").is_none(), "{kept}");
}

/// A patch that fails shows the object as it would have been; the log does not.
fn a_secret_is_not_in_the_audit_log(cluster: &Cluster, wire: &Wire) {
    cluster.kubectl("create secret generic s -n foo --from-literal=password=hunter2hunter2");
    let patch = r#"[{"op":"add","path":"/data/other","value":7}]"#;
    let path = "PATCH /api/v1/namespaces/foo/secrets/s";
    let answer =
        wire.ask(Who::Admin, path, &[JSON_PATCH.as_bytes(), b"Audit-ID: the-patch"], patch);
    assert_eq!(answer.code, 422, "{}", answer.body);
    let data = "aHVudGVyMmh1bnRlcjI";
    assert!(answer.body.contains(data), "{}", answer.body);
    let log = cluster.folder.path().join("audit/audit.log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    crate::access::wait_until(|| read().contains("the-patch"));
    assert!(!read().contains(data) && !read().contains("hunter2"), "the log quotes a secret");
}
