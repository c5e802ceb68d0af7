//! Definitions that are made to hurt: each is refused or served, soon, and the server is none the worse. And
//! one that changes its mind.
use crate::testing::{Beside, Rude, Said, Server, reply, until};
use http::Method;
use serde_json::{Value, json};
use std::future::ready;
use std::time::{Duration, Instant};

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/e.io/v1/namespaces/default/things";

/// How long a refusal may take, of a program that is not optimised on a machine that has other work.
const SOON: Duration = Duration::from_secs(60);

fn definition(spec: Value) -> Value {
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.e.io" },
        "spec": { "group": "e.io", "scope": "Namespaced",
            "names": { "plural": "things", "kind": "Thing" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } } } }] } })
}

/// Stores a definition of things with this `spec` and waits until it is served.
async fn define(server: &Server, spec: Value) {
    let said = server.create(DEFINITIONS, definition(spec)).await;
    assert_eq!(said.code, 201, "{said:?}");
    until("it is served", async || server.get(THINGS).await.code == 200).await;
}

async fn create(server: &Server, spec: Value) -> Said {
    let thing = json!({ "apiVersion": "e.io/v1", "kind": "Thing", "metadata": { "name": "a" },
        "spec": spec });
    server.create(THINGS, thing).await
}

fn text_with(rules: Vec<String>) -> Value {
    let rules: Vec<Value> = rules.iter().map(|rule| json!({ "rule": rule })).collect();
    json!({ "type": "string", "x-kubernetes-validations": rules })
}

/// A list of lists of lists …, with a rule that looks at every combination of items.
fn lists(depth: usize) -> Value {
    let inner = (0..depth)
        .fold(json!({ "type": "integer" }), |item, _| json!({ "type": "array", "items": item }));
    let (mut rule, mut value) = (String::new(), "self".to_owned());
    for level in 0..depth {
        rule += &format!("{value}.all(x{level}, ");
        value = format!("x{level}");
    }
    let rule = format!("{rule}{value} > 0{}", ")".repeat(depth));
    let mut list = inner;
    list["x-kubernetes-validations"] = json!([{ "rule": rule }]);
    list
}

#[tokio::test]
async fn a_definition_that_would_explode_is_refused() {
    let server = Server::start().await;
    let nested = |depth: usize| {
        (0..depth).fold(
            json!({ "type": "string" }),
            |inner, _| json!({ "type": "object", "properties": { "a": inner } }),
        )
    };
    let cases = [
        ("one too deep to be read", nested(api::depth::LIMIT), ""),
        ("lists of lists", lists(4), "estimated rule cost exceeds budget"),
        (
            "loops over loops",
            json!({ "type": "array", "items": { "type": "integer" }, "x-kubernetes-validations": [{
                "rule": "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d > 0))))" }] }),
            "estimated rule cost exceeds budget",
        ),
        (
            "a pattern of a pattern",
            text_with(vec!["self.matches('((a{1000}){1000}){1000}')".into()]),
            "invalid",
        ),
        (
            "a pattern in the schema",
            json!({ "type": "string", "pattern": "((a{1000}){1000}){1000}" }),
            "pattern",
        ),
        ("a long sum", text_with(vec![format!("1{} > 0", " + 1".repeat(30_000))]), "spec"),
        (
            "brackets in brackets",
            text_with(vec![format!("{}true{}", "(".repeat(5000), ")".repeat(5000))]),
            "spec",
        ),
        (
            "a text that doubles",
            text_with(vec![format!("'aa'{} == self", ".replace('a', 'aaaaaaaaaa')".repeat(60))]),
            "spec",
        ),
        (
            "a type in a type in a type",
            text_with(vec![format!("{}1{} == self", "[".repeat(240), "]".repeat(240))]),
            "spec",
        ),
    ];
    for (what, spec, expected) in cases {
        let begun = Instant::now();
        let said = server.create(DEFINITIONS, definition(spec)).await;
        assert!(begun.elapsed() < SOON, "{what}: {:?}", begun.elapsed());
        assert!((400..500).contains(&said.code), "{what}: {said:?}");
        assert!(said.message().contains(expected), "{what}: {}", said.message());
        // A refusal says what is wrong; it does not say all of it again.
        assert!(said.body.to_string().len() < 3 << 20, "{what}");
    }
    assert_eq!(server.get(DEFINITIONS).await.body["items"], json!([]));
}

#[tokio::test]
async fn a_great_many_rules_are_judged_one_by_one() {
    let server = Server::start().await;
    let rules = (0..2000).map(|n| format!("self != '{n}'")).collect();
    let mut spec = text_with(rules);
    spec["maxLength"] = 10.into();
    define(&server, spec).await;
    let begun = Instant::now();
    let said = create(&server, json!("1999")).await;
    assert_eq!(said.code, 422, "{said:?}");
    assert!(said.message().contains("failed rule: self != '1999'"), "{}", said.message());
    assert_eq!(create(&server, json!("good")).await.code, 201);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_an_object_brings_to_a_rule_is_bounded() {
    let server = Server::start().await;
    let text = || json!({ "type": "string" });
    let numbers = json!({ "type": "array", "maxItems": 1000, "items": { "type": "integer" } });
    define(
        &server,
        json!({ "type": "object", "properties": {
            "pattern": { "type": "string", "maxLength": 1000 }, "text": text(), "numbers": numbers },
            "x-kubernetes-validations": [
                { "rule": "!has(self.pattern) || 'aaaaaaaaaaaaaaaaaaaaaaaa!'.matches(self.pattern)" },
                { "rule": "!has(self.numbers) || self.numbers.all(a, self.numbers.exists(b, a == b))",
                  "messageExpression": "'x' + (has(self.text) ? self.text : '')" }] }),
    )
    .await;
    for (what, spec) in [
        ("a pattern that would be large", json!({ "pattern": "(((a{500}){2}){500}){2}" })),
        ("one that others are slow with", json!({ "pattern": "^(a+)+$" })),
        ("one that is none", json!({ "pattern": "(((((" })),
    ] {
        let begun = Instant::now();
        let said = create(&server, spec).await;
        assert!(begun.elapsed() < SOON, "{what}: {:?}", begun.elapsed());
        assert_eq!(said.code, 422, "{what}: {said:?}");
    }
    let numbers: Vec<u32> = (0..1000).collect();
    let begun = Instant::now();
    let said = create(&server, json!({ "numbers": numbers, "text": "y".repeat(1 << 20) })).await;
    assert!([201, 422].contains(&said.code), "{said:?}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

/// A definition in two versions whose objects a webhook converts.
async fn define_converted(server: &Server, beside: &Beside) {
    let mut definition = definition(json!({ "type": "string" }));
    let mut other = definition["spec"]["versions"][0].clone();
    other["name"] = "v2".into();
    other["storage"] = false.into();
    definition["spec"]["versions"].as_array_mut().expect("versions").push(other);
    definition["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": { "url": beside.url("/convert"), "caBundle": beside.bundle() } } });
    let said = server.create(DEFINITIONS, definition).await;
    assert_eq!(said.code, 201, "{said:?}");
    until("it is served", async || server.get(THINGS).await.code == 200).await;
    assert_eq!(create(server, json!("x")).await.code, 201);
}

#[tokio::test]
async fn a_converter_that_lies_is_found_out() {
    let server = Server::start().await;
    // What it does to an object is in the object: `spec` names a lie.
    let beside = Beside::start(&[], |asked| {
        let request = &asked.body["request"];
        let mut objects = request["objects"].as_array().cloned().unwrap_or_default();
        let lie = objects[0]["spec"].as_str().unwrap_or_default().to_owned();
        for object in &mut objects {
            object["apiVersion"] = request["desiredAPIVersion"].clone();
            match &*lie {
                "name" => object["metadata"]["name"] = "other".into(),
                "namespace" => object["metadata"]["namespace"] = "kube-system".into(),
                "uid" => object["metadata"]["uid"] = "0".into(),
                "kind" => object["kind"] = "Secret".into(),
                "group" => object["apiVersion"] = "v1".into(),
                "owner" => {
                    object["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1",
                        "kind": "Node", "name": "n", "uid": "1" }]);
                    object["metadata"]["resourceVersion"] = "1".into();
                    object["metadata"]["finalizers"] = json!(["e.io/never"]);
                }
                "labels" => object["metadata"]["labels"] = json!({ "a": 1 }),
                "metadata" => object["metadata"] = json!(["none"]),
                "nothing" => *object = Value::Null,
                _ => {}
            }
        }
        match &*lie {
            "less" => objects.clear(),
            "more" => objects.push(objects[0].clone()),
            _ => {}
        }
        let mut review = asked.body.clone();
        review["response"] = json!({ "uid": request["uid"], "convertedObjects": objects,
            "result": { "status": "Success" } });
        if lie == "review" {
            review["response"]["uid"] = "another".into();
        }
        ready(reply(&review))
    })
    .await;
    define_converted(&server, &beside).await;
    let (path, media) = (format!("{THINGS}/a"), "application/merge-patch+json");
    let other = path.replace("/v1/", "/v2/");
    for (lie, words) in [
        ("name", "must have the same name: a != other"),
        ("namespace", "must have the same namespace: default != kube-system"),
        ("uid", "must have the same UID"),
        ("kind", "invalid kind (expected Thing, received Secret)"),
        ("group", "invalid groupVersion (expected e.io/v2, received v1)"),
        ("labels", "metadata.labels[a] must be a string, but is int64"),
        ("metadata", "must have the same name: a != "),
        ("nothing", "unexpected end of JSON input"),
        ("less", "returned 0 objects, expected 1"),
        ("more", "returned 2 objects, expected 1"),
        ("review", "expected response.uid="),
    ] {
        let said = server.ask_as(Method::PATCH, &path, media, json!({ "spec": lie })).await;
        assert_eq!(said.code, 200, "{lie}: {said:?}");
        let said = server.get(&other).await;
        // Upstream's code for it: the server cannot show what is there.
        assert_eq!(said.code, 500, "{lie}: {said:?}");
        assert!(said.message().contains(words), "{lie}: {}", said.message());
        // Who reads it is told where it is, who lists it that it was in the list, who writes it neither.
        let begin = "Internal error occurred: StorageError: corrupt object, Code: 7, Key: /e.io/things/default/a, ";
        assert!(said.message().starts_with(begin), "{lie}: {}", said.message());
        let dry = format!("{other}?dryRun=All");
        let said = server.ask_as(Method::PATCH, &dry, media, json!({ "spec": "x" })).await;
        assert!(said.message().starts_with(begin), "{lie}: {}", said.message());
        let said = server.ask_as(Method::PATCH, &other, media, json!({ "spec": "x" })).await;
        assert!(said.message().starts_with("object not decodable revision="), "{lie}: {said:?}");
        let said = server.get(&THINGS.replace("/v1/", "/v2/")).await;
        assert_eq!(said.body["reason"], "StorageReadError", "{lie}: {said:?}");
        let key = "/registry/e.io/things/default/a";
        assert_eq!(said.body["details"]["causes"][0]["field"], key, "{lie}: {said:?}");
        // As it is stored it can be read all the while, and so can all else.
        assert_eq!(server.get(&path).await.body["spec"], lie);
    }
    let before = server.ask_as(Method::PATCH, &path, media, json!({ "spec": "owner" })).await;
    let said = server.get(&other).await;
    assert_eq!(said.code, 200, "{said:?}");
    for field in ["ownerReferences", "finalizers", "resourceVersion", "uid"] {
        assert_eq!(said.body["metadata"][field], before.body["metadata"][field], "{field}");
    }
}

#[tokio::test]
async fn nobody_is_served_whose_webhook_cannot_be_believed() {
    let server = Server::start().await;
    let mut definition = definition(json!({ "type": "string" }));
    definition["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": { "url": "https://localhost/", "caBundle": "bm90aGluZw==" } } });
    assert_eq!(server.create(DEFINITIONS, definition).await.code, 201);
    let path = format!("{DEFINITIONS}/things.e.io");
    let established = async || {
        let there = server.get(&path).await.body;
        let condition = api::custom::accept::condition(&there, "Established").cloned();
        condition.unwrap_or_default()
    };
    until("it is told", async || established().await["reason"] == "InvalidCABundle").await;
    let condition = established().await;
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["message"], "The conversion webhook CABundle is invalid");
    assert_eq!(server.get(THINGS).await.code, 404);
    let patch = json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": null } } } } });
    let media = "application/merge-patch+json";
    assert_eq!(server.ask_as(Method::PATCH, &path, media, patch).await.code, 200);
    until("it is told", async || established().await["reason"] == "InitialNamesAccepted").await;
    // It was served before.
    assert_eq!(server.get(THINGS).await.code, 200);
}

#[tokio::test]
async fn an_object_is_converted_once_for_all_who_list_it() {
    let server = Server::start().await;
    let beside = Beside::start(&[], |asked| {
        let request = &asked.body["request"];
        let mut objects = request["objects"].as_array().cloned().unwrap_or_default();
        for object in &mut objects {
            object["apiVersion"] = request["desiredAPIVersion"].clone();
        }
        let mut review = asked.body.clone();
        review["response"] = json!({ "uid": request["uid"], "convertedObjects": objects,
            "result": { "status": "Success" } });
        ready(reply(&review))
    })
    .await;
    define_converted(&server, &beside).await;
    let other = THINGS.replace("/v1/", "/v2/");
    let list = async || {
        let said = server.get(&other).await;
        assert_eq!(said.body["items"][0]["apiVersion"], "e.io/v2", "{said:?}");
        said.body["items"][0]["spec"].clone()
    };
    let asked = || beside.questions().len();
    for _ in 0..3 {
        assert_eq!((list().await, asked()), (json!("x"), 1));
    }
    // Whoever reads it alone sees what the webhook makes of it now.
    assert_eq!(server.get(&format!("{other}/a")).await.code, 200);
    assert_eq!(asked(), 2);
    let media = "application/merge-patch+json";
    let patch = json!({ "spec": "y" });
    let said = server.ask_as(Method::PATCH, &format!("{THINGS}/a"), media, patch).await;
    assert_eq!((said.code, asked()), (200, 2), "{said:?}");
    // All at once: one asks, the others wait for what it hears.
    let lists = futures_util::future::join_all((0..8).map(|_| list())).await;
    assert_eq!((lists, asked()), (vec![json!("y"); 8], 3));
}

#[tokio::test]
async fn what_an_apply_changes_is_seen_in_the_versions_of_those_who_own_it() {
    let server = Server::start().await;
    // It converts to the newer version, and not back.
    let beside = Beside::start(&[], |asked| {
        let request = &asked.body["request"];
        let to = request["desiredAPIVersion"].clone();
        let mut objects = request["objects"].as_array().cloned().unwrap_or_default();
        objects.iter_mut().for_each(|object| object["apiVersion"] = to.clone());
        let result = match to == "e.io/v1" {
            true => json!({ "status": "Failure", "message": "not back" }),
            false => json!({ "status": "Success" }),
        };
        let mut review = asked.body.clone();
        review["response"] =
            json!({ "uid": request["uid"], "convertedObjects": objects, "result": result });
        ready(reply(&review))
    })
    .await;
    define_converted(&server, &beside).await;
    let path = format!("{THINGS}/a?fieldManager=me&force=true").replace("/v1/", "/v2/");
    let config = json!({ "apiVersion": "e.io/v2", "kind": "Thing", "metadata": { "name": "a" },
        "spec": "y" });
    let said = server.ask_as(Method::PATCH, &path, "application/apply-patch+yaml", config).await;
    assert_eq!(said.code, 500, "{said:?}");
    assert_eq!(said.message(), "conversion webhook for e.io/v2, Kind=Thing failed: not back");
}

#[tokio::test]
async fn a_converter_without_manners_is_told_of_and_hurts_nobody_else() {
    for (what, manner, words) in [
        ("gone", Rude::SayAndClose(Vec::new()), "EOF"),
        ("flood", Rude::Flood, "the answer is larger than"),
        (
            "half",
            Rude::SayAndClose(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{".to_vec()),
            "unexpected EOF",
        ),
        (
            "away",
            Rude::Say(b"HTTP/1.1 307 Away\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n".to_vec()),
            "the server responded with the status code 307",
        ),
    ] {
        let server = Server::start().await;
        let beside = Beside::rude(&[], move |_| manner.clone()).await;
        define_converted(&server, &beside).await;
        let said = server.get(&THINGS.replace("/v1/", "/v2/")).await;
        assert_eq!(said.code, 500, "{what}: {said:?}");
        assert!(said.message().contains(words), "{what}: {}", said.message());
        assert_eq!(server.get(THINGS).await.code, 200, "{what}");
        assert_eq!(server.get("/api/v1/namespaces").await.code, 200, "{what}");
        assert_eq!(server.get("/openapi/v2").await.code, 200, "{what}");
    }
}
#[tokio::test]
async fn defaults_make_no_mountain_of_a_small_object() {
    let server = Server::start().await;
    define(
        &server,
        json!({ "type": "array", "items": { "type": "object", "properties": {
            "a": { "type": "string", "default": "x".repeat(100_000) } } } }),
    )
    .await;
    // Two megabytes that would become fifty gigabytes.
    let said = create(&server, json!(vec![json!({}); 500_000])).await;
    assert_eq!(said.code, 400, "{said:?}");
    assert!(said.message().contains("the defaults of its schema"), "{}", said.message());
    let said = create(&server, json!([{}, {}])).await;
    assert_eq!(said.code, 201, "{said:?}");
    let patch = json!({ "spec": vec![json!({}); 500_000] });
    let media = "application/merge-patch+json";
    let said = server.ask_as(Method::PATCH, &format!("{THINGS}/a"), media, patch).await;
    assert!((400..500).contains(&said.code), "{said:?}");
}

#[tokio::test]
async fn the_rules_of_a_definition_are_counted() {
    let server = Server::start().await;
    let rule = json!([{ "rule": "self != 'bad'" }]);
    define(&server, json!({ "type": "string", "x-kubernetes-validations": rule })).await;
    let counts = |what: &str| {
        let text = server.api.extend().counts.text();
        let line = format!("apiserver_cel_{what}_duration_seconds_count ");
        let found = text.lines().find_map(|told| told.strip_prefix(&line));
        found.map_or(0, |count| count.parse::<u64>().expect("a number"))
    };
    // Once when the definition is written; nobody has written an object yet.
    assert_eq!((counts("compilation"), counts("evaluation")), (1, 0));
    assert_eq!(create(&server, json!("bad")).await.code, 422);
    assert_eq!(create(&server, json!("good")).await.code, 201);
    assert_eq!((counts("compilation"), counts("evaluation")), (2, 2));
}

#[tokio::test]
async fn objects_are_read_by_what_their_definition_says_now() {
    let server = Server::start().await;
    let text = json!({ "type": "string" });
    let spec = |properties: Value| json!({ "type": "object", "properties": properties });
    define(&server, spec(json!({ "a": text, "b": text }))).await;
    assert_eq!(create(&server, json!({ "a": "1", "b": "2" })).await.code, 201);
    let read = async || {
        let list = server.get(THINGS).await.body["items"][0]["spec"].clone();
        let one = server.get(&format!("{THINGS}/a")).await.body["spec"].clone();
        assert_eq!(list, one);
        list
    };
    // Twice: the first look finds out that it is as it was stored.
    for _ in 0..2 {
        assert_eq!(read().await, json!({ "a": "1", "b": "2" }));
    }
    let path = format!("{DEFINITIONS}/things.e.io");
    let mut there = server.get(&path).await.body;
    let c = json!({ "type": "string", "default": "3" });
    let schema = &mut there["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"] = spec(json!({ "a": text, "c": c }));
    let said = server.ask(Method::PUT, &path, there).await;
    assert_eq!(said.code, 200, "{said:?}");
    until("it says something else", async || read().await == json!({ "a": "1", "c": "3" })).await;
}
