//! Definitions beside what else there is: policies and their parameters, names that others have, discovery and
//! descriptions that follow at once.
use crate::extend::definitions::tests::DEFINITIONS;
use crate::testing::{Beside, Server, reply, until};
use http::Method;
use serde_json::{Value, json};
use std::future::ready;
use std::time::{Duration, Instant};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";

fn version(name: &str, storage: bool) -> Value {
    json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true } } })
}

/// A definition of objects in a namespace that may hold anything.
fn definition(group: &str, plural: &str, kind: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> =
        versions.iter().enumerate().map(|(at, name)| version(name, at == 0)).collect();
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}"), "annotations": {
            "api-approved.kubernetes.io": "unapproved, a test" } },
        "spec": { "group": group, "scope": "Namespaced",
            "names": { "plural": plural, "kind": kind }, "versions": versions } })
}

async fn store(server: &Server, path: &str, object: Value) {
    let said = server.create(path, object).await;
    assert_eq!(said.code, 201, "{said:?}");
}

async fn define(server: &Server, definition: Value) {
    let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
    let word = |value: &Value| value.as_str().expect("a word").to_owned();
    let first = word(&definition["spec"]["versions"][0]["name"]);
    let path = format!("/apis/{}/{first}/{}", word(group), word(plural));
    store(server, DEFINITIONS, definition).await;
    until("it is served", async || server.get(&path).await.code == 200).await;
}

/// A policy about objects of a version, with a binding that denies.
async fn bind(server: &Server, kind: &str, spec: Value, binding: Value) {
    let api_version = "admissionregistration.k8s.io/v1";
    let lower = kind.to_lowercase();
    for (path, kind, spec) in [
        (format!("{lower}admissionpolicies"), format!("{kind}AdmissionPolicy"), spec),
        (
            format!("{lower}admissionpolicybindings"),
            format!("{kind}AdmissionPolicyBinding"),
            binding,
        ),
    ] {
        let object = json!({ "apiVersion": api_version, "kind": kind,
            "metadata": { "name": "p" }, "spec": spec });
        store(server, &format!("{ADMISSION}/{path}"), object).await;
    }
}

fn about(group: &str, version: &str, resource: &str) -> Value {
    json!({ "resourceRules": [{ "operations": ["CREATE", "UPDATE"], "apiGroups": [group],
        "apiVersions": [version], "resources": [resource] }] })
}

#[tokio::test]
async fn a_definition_is_published_as_soon_as_it_is_established() {
    let server = Server::start().await;
    // The documents of what is built in are made once, which takes its time.
    for path in ["/openapi/v2", "/openapi/v3"] {
        assert_eq!(server.get(path).await.code, 200);
    }
    for number in 0..10 {
        let (group, plural) = (format!("g{number}.e.io"), format!("things{number}"));
        let kind = format!("Thing{number}");
        store(&server, DEFINITIONS, definition(&group, &plural, &kind, &["v1"])).await;
        let own = format!("{DEFINITIONS}/{plural}.{group}");
        until("it is established", async || {
            let conditions = server.get(&own).await.body["status"]["conditions"].clone();
            let all = conditions.as_array().cloned().unwrap_or_default();
            all.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
        })
        .await;
        // Whoever has seen that finds it everywhere, at the first look.
        let begun = Instant::now();
        let resources = server.get(&format!("/apis/{group}/v1")).await.body["resources"].clone();
        assert_eq!(resources[0]["kind"], *kind, "{resources}");
        let groups = server.get("/apis").await.body["groups"].to_string();
        assert!(groups.contains(&group), "{groups}");
        let index = server.get("/openapi/v3").await.body["paths"].clone();
        assert!(index[format!("apis/{group}/v1")].is_object(), "{group}");
        let v3 = server.get(&format!("/openapi/v3/apis/{group}/v1")).await;
        assert!(v3.body["components"].to_string().contains(&kind), "{}", v3.body);
        let v2 = server.get("/openapi/v2").await;
        let model = format!("io.e.g{number}.v1.{kind}");
        assert!(v2.body["definitions"][&model].is_object(), "{model}");
        // Within a second, in a program that is optimised on a machine that is not busy.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_definition_takes_nothing_from_what_is_built_in() {
    let server = Server::start().await;
    store(&server, DEFINITIONS, definition("networking.k8s.io", "ingresses", "Ingress", &["v1"]))
        .await;
    define(&server, definition("e.io", "namespaces", "Namespace", &["v1"])).await;
    define(&server, definition("e.io", "pods", "Pod", &["v1"])).await;
    // An ingress is still what it was.
    let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let said =
        server.create(path, json!({ "metadata": { "name": "a" }, "spec": { "x": 1 } })).await;
    assert_eq!(said.code, 422, "{said:?}");
    let resources = server.get("/apis/networking.k8s.io/v1").await.body["resources"].clone();
    let ingresses = resources.as_array().into_iter().flatten();
    assert_eq!(ingresses.filter(|row| row["name"] == "ingresses").count(), 1, "{resources}");
    // A thing called Namespace or Pod is nobody else's.
    for (plural, kind) in [("namespaces", "Namespace"), ("pods", "Pod")] {
        let path = format!("/apis/e.io/v1/namespaces/default/{plural}");
        let object = json!({ "apiVersion": "e.io/v1", "kind": kind, "metadata": { "name": "x" },
            "spec": { "finalizers": ["kubernetes"], "nodeName": "n" } });
        store(&server, &path, object).await;
        let own = format!("{path}/x");
        assert_eq!(server.get(&own).await.body["spec"]["nodeName"], "n");
        assert_eq!(server.ask(Method::DELETE, &own, Value::Null).await.code, 200);
        assert_eq!(server.get(&own).await.code, 404);
    }
    assert_eq!(server.get("/api/v1/namespaces/x").await.code, 404);
    assert_eq!(server.get("/api/v1/namespaces/default").await.code, 200);
}

#[tokio::test]
async fn a_policy_has_custom_objects_as_its_parameters() {
    let server = Server::start().await;
    define(&server, definition("e.io", "limits", "Limit", &["v1", "v2"])).await;
    let spec = json!({ "paramKind": { "apiVersion": "e.io/v2", "kind": "Limit" },
        "matchConstraints": about("", "v1", "configmaps"),
        "matchConditions": [{ "name": "here", "expression": "request.namespace == 'default'" }],
        "validations": [{
            "expression": "object.data.size() <= params.most && params.apiVersion == 'e.io/v2'",
            "messageExpression": "'at most ' + string(params.most)" }] });
    let binding = json!({ "policyName": "p", "validationActions": ["Deny"], "paramRef": {
        "selector": { "matchLabels": { "in": "force" } }, "parameterNotFoundAction": "Deny" } });
    bind(&server, "Validating", spec, binding).await;
    let maps = "/api/v1/namespaces/default/configmaps?dryRun=All";
    let map = |data: Value| json!({ "metadata": { "name": "m" }, "data": data });
    until("the policy counts", async || server.create(maps, map(json!({}))).await.code != 201)
        .await;
    let said = server.create(maps, map(json!({}))).await;
    let nobody = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed to configure \
                  binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert!(said.message().ends_with(nobody), "{}", said.message());
    let limits = "/apis/e.io/v1/namespaces/default/limits";
    let limit = json!({ "apiVersion": "e.io/v1", "kind": "Limit", "metadata": { "name": "l",
        "labels": { "in": "force" } }, "most": 1 });
    store(&server, limits, limit).await;
    assert_eq!(server.create(maps, map(json!({ "a": "" }))).await.code, 201);
    let said = server.create(maps, map(json!({ "a": "", "b": "" }))).await;
    assert!(said.message().ends_with("denied request: at most 1"), "{}", said.message());
    // By name, and no longer there.
    let by_name = json!({ "spec": { "paramRef": { "name": "l", "selector": null } } });
    let path = format!("{ADMISSION}/validatingadmissionpolicybindings/p");
    assert_eq!(server.ask_as(Method::PATCH, &path, MERGE, by_name).await.code, 200);
    assert_eq!(server.ask(Method::DELETE, &format!("{limits}/l"), Value::Null).await.code, 200);
    until("the limit is gone", async || {
        server.create(maps, map(json!({ "a": "", "b": "" }))).await.message().ends_with(nobody)
    })
    .await;
}

#[tokio::test]
async fn a_policy_about_another_version_sees_that_one() {
    for by_webhook in [false, true] {
        let server = Server::start().await;
        let beside = Beside::start(&[], |asked| {
            let request = &asked.body["request"];
            let mut objects = request["objects"].clone();
            for object in objects.as_array_mut().into_iter().flatten() {
                object["apiVersion"] = request["desiredAPIVersion"].clone();
                object["converted"] = true.into();
            }
            let mut review = asked.body.clone();
            review["response"] = json!({ "uid": request["uid"], "convertedObjects": objects,
                "result": { "status": "Success" } });
            ready(reply(&review))
        })
        .await;
        let mut things = definition("e.io", "things", "Thing", &["v1", "v2"]);
        if by_webhook {
            things["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": { "url": beside.url("/"), "caBundle": beside.bundle() } } });
        }
        define(&server, things).await;
        let constraints = about("e.io", "v2", "things");
        let expression = "object.apiVersion == 'e.io/v2' && request.kind.version == 'v2' && \
                          request.requestKind.version == 'v1' && object.size < 5";
        let spec = json!({ "matchConstraints": constraints,
            "validations": [{ "expression": expression, "message": "too large" }] });
        let binding = json!({ "policyName": "p", "validationActions": ["Deny"] });
        bind(&server, "Validating", spec, binding.clone()).await;
        let mutation = json!({ "patchType": "JSONPatch", "jsonPatch": { "expression":
            "[JSONPatch{op: 'add', path: '/seen', value: object.apiVersion}]" } });
        let spec = json!({ "matchConstraints": constraints, "reinvocationPolicy": "Never",
            "mutations": [mutation] });
        bind(&server, "Mutating", spec, json!({ "policyName": "p" })).await;
        let path = "/apis/e.io/v1/namespaces/default/things?dryRun=All";
        let thing = |size: u8| {
            json!({ "apiVersion": "e.io/v1", "kind": "Thing",
            "metadata": { "name": "t" }, "size": size })
        };
        until("both count", async || {
            let refused = server.create(path, thing(9)).await.code != 201;
            refused && server.create(path, thing(1)).await.body["seen"] == "e.io/v2"
        })
        .await;
        let said = server.create(path, thing(9)).await;
        assert!(said.message().ends_with("denied request: too large"), "{}", said.message());
        let said = server.create(path, thing(1)).await;
        assert_eq!((said.code, &said.body["apiVersion"]), (201, &json!("e.io/v1")), "{said:?}");
        assert_eq!(said.body["converted"] == true, by_webhook, "{said:?}");
    }
}

#[tokio::test]
async fn a_name_that_becomes_free_is_given_to_one_of_those_who_wait() {
    let server = Server::start().await;
    for (plural, kind) in [("firsts", "First"), ("seconds", "Second"), ("thirds", "Third")] {
        let mut made = definition("e.io", plural, kind, &["v1"]);
        if plural == "firsts" {
            made["spec"]["names"]["shortNames"] = json!(["x"]);
        }
        define(&server, made).await;
    }
    let owners = async || {
        let resources = server.get("/apis/e.io/v1").await.body["resources"].clone();
        let all = resources.as_array().cloned().unwrap_or_default();
        let short = |row: &&Value| row["shortNames"] == json!(["x"]);
        all.iter().filter(short).map(|row| row["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(owners().await, ["firsts"]);
    let wants = json!({ "spec": { "names": { "shortNames": ["x"] } } });
    for plural in ["seconds", "thirds"] {
        let path = format!("{DEFINITIONS}/{plural}.e.io");
        assert_eq!(server.ask_as(Method::PATCH, &path, MERGE, wants.clone()).await.code, 200);
        until("it is told that the name is taken", async || {
            server.get(&path).await.body["status"].to_string().contains("is already in use")
        })
        .await;
    }
    assert_eq!(owners().await, ["firsts"]);
    let path = format!("{DEFINITIONS}/firsts.e.io");
    assert_eq!(server.ask(Method::DELETE, &path, Value::Null).await.code, 200);
    until("somebody has it", async || owners().await == ["seconds"]).await;
    // Served all the while, with its schema.
    assert_eq!(server.get("/apis/e.io/v1/seconds").await.code, 200);
    assert_eq!(server.get("/apis/e.io/v1/thirds").await.code, 200);
}
