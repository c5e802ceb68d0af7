use super::*;
use crate::testing::{Server, until};
use api::kinds::RESOURCES;
use http::Method;
use serde_json::json;

#[test]
fn every_row_is_about_a_kind_that_there_is() {
    for row in ROWS {
        let is_it = |resource: &Resource| resource.is(row.group, row.kind);
        assert!(RESOURCES.iter().any(is_it), "{}/{}", row.group, row.kind);
    }
}

const GROUP: &str = "e.io";

/// Kinds of another group that have the names of built-in ones: kind, plural, whether it has namespaces,
/// and what one says that would mean something if it were the other.
fn namesakes() -> Vec<(&'static str, &'static str, bool, Value)> {
    vec![
        ("Event", "events", true, json!({ "involvedObject": { "kind": "Pod", "namespace": "x" } })),
        ("Namespace", "namespaces", false, json!({ "spec": { "finalizers": ["kubernetes"] } })),
        ("Binding", "bindings", true, json!({ "target": { "kind": "Node", "name": "n" } })),
        ("Secret", "secrets", true, json!({ "data": { "a": "no base64" }, "type": "Opaque" })),
        (
            "Pod",
            "pods",
            true,
            json!({ "spec": { "nodeName": "n", "hostNetwork": true, "terminationGracePeriodSeconds": 30,
                "containers": [{ "name": "c", "securityContext": { "privileged": true } }] } }),
        ),
        ("Service", "services", true, json!({ "spec": { "type": "ClusterIP", "ports": [] } })),
        ("Node", "nodes", false, json!({ "spec": { "podCIDR": "none" } })),
        ("Lease", "leases", true, json!({ "spec": { "holderIdentity": "a", "renewTime": "x" } })),
        ("LimitRange", "limitranges", true, json!({ "spec": { "limits": "none" } })),
        ("Role", "roles", true, json!({ "rules": [{ "verbs": ["*"] }] })),
        ("TokenReview", "tokenreviews", false, json!({ "spec": { "token": "x" } })),
        (
            "ReplicationController",
            "replicationcontrollers",
            true,
            json!({ "spec": { "replicas": 3 } }),
        ),
        ("CertificateSigningRequest", "certificatesigningrequests", false, json!({ "spec": {} })),
    ]
}

async fn define(server: &Server, kind: &str, plural: &str, is_namespaced: bool) {
    let scope = if is_namespaced { "Namespaced" } else { "Cluster" };
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": { "group": GROUP, "scope": scope,
            "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": open } }] } });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let said = server.create(path, definition).await;
    assert_eq!(said.code, 201, "{kind}: {}", said.body);
    let served = async || server.get(&format!("/apis/{GROUP}/v1/{plural}")).await.code == 200;
    until(&format!("{kind} is served"), served).await;
}

/// A custom resource that is called as a built-in kind is is kept as it was given, changed and deleted
/// like any other.
#[tokio::test]
async fn a_namesake_of_a_built_in_kind_is_nobody_else() {
    let server = Server::start().await;
    for (kind, plural, is_namespaced, said) in namesakes() {
        define(&server, kind, plural, is_namespaced).await;
        let place = if is_namespaced { "namespaces/default/" } else { "" };
        let all = format!("/apis/{GROUP}/v1/{place}{plural}");
        let mut object = said.clone();
        object["apiVersion"] = format!("{GROUP}/v1").into();
        object["kind"] = kind.into();
        // Whoever needs a name needs one.
        object["metadata"] = json!({});
        let nameless = server.create(&all, object.clone()).await;
        assert_eq!(nameless.code, 422, "{kind}: {}", nameless.body);
        object["metadata"] = json!({ "name": "one" });
        let made = server.create(&all, object.clone()).await;
        assert_eq!(made.code, 201, "{kind}: {}", made.body);
        assert_eq!(made.warnings(), [""; 0], "{kind}");
        let one = format!("{all}/one");
        let found = server.get(&one).await;
        for (field, value) in said.as_object().expect("fields") {
            assert_eq!(found.body[field], *value, "{kind}: {}", found.body);
        }
        assert_eq!(found.body.get("status"), None, "{kind}: {}", found.body);
        // It is there until it is deleted.
        let registry = server.api.registry();
        let row = registry.find(GROUP, "v1", plural).expect("a row");
        let namespace = if is_namespaced { "default" } else { "" };
        let key = row.key(namespace, "one");
        let stored =
            server.api.store().get(key.as_bytes()).await.expect("a store").expect("it is there");
        assert_eq!(stored.lease, 0, "{kind}");
        // It has no parts but those of its definition.
        for part in [
            "status", "log", "proxy", "token", "eviction", "binding", "scale", "finalize",
            "approval",
        ] {
            let said = server.get(&format!("{one}/{part}")).await;
            assert_eq!(said.code, 404, "{kind}/{part}: {}", said.body);
        }
        // Its fields are its own.
        let selected = server.get(&format!("{all}?fieldSelector=spec.nodeName%3Dn")).await;
        assert_eq!(selected.code, 400, "{kind}: {}", selected.body);
        let mut changed = found.body.clone();
        changed["note"] = "changed".into();
        let said = server.ask(Method::PUT, &one, changed).await;
        assert_eq!(
            (said.code, &said.body["note"]),
            (200, &json!("changed")),
            "{kind}: {}",
            said.body
        );
        // Nobody has to stop or empty it first.
        let gone = server.ask(Method::DELETE, &one, Value::Null).await;
        assert_eq!(
            (gone.code, &gone.body["status"]),
            (200, &json!("Success")),
            "{kind}: {}",
            gone.body
        );
        assert_eq!(server.get(&one).await.code, 404, "{kind}");
    }
}

/// The path of a namespace leads to an object of that name in the namespace of that name, as upstream reads it.
#[tokio::test]
async fn a_namesake_of_namespaces_that_has_one_is_found_by_it_as_well() {
    let server = Server::start().await;
    define(&server, "Namespace", "namespaces", true).await;
    let all = format!("/apis/{GROUP}/v1/namespaces");
    let object = json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Namespace",
        "metadata": { "name": "default" } });
    let made = server.create(&format!("{all}/default/namespaces"), object).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let found = server.get(&format!("{all}/default")).await;
    assert_eq!((found.code, &found.body["metadata"]["namespace"]), (200, &json!("default")));
    let nothing = server.get(&format!("{all}/x")).await;
    assert_eq!((nothing.code, &nothing.body["reason"]), (404, &json!("NotFound")));
}
