//! A server beside this one that answers for a group of its own.
use crate::admission::policy::type_checking;
use crate::doors::within::Within;
use crate::guard::authn::User;
use crate::testing::{Asked, Beside, Reply, Rude, Server, failure, reply, until};
use bytes::Bytes;
use client::Context;
use client::source::Source;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use std::future::ready;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.things.e.io";

/// A server of `things.e.io/v1`, as old ones are: without discovery of everything at once.
fn old_server(asked: &Asked) -> Reply {
    let path = asked.path.split('?').next().unwrap_or_default();
    match path {
        "/apis/things.e.io/v1" => reply(&json!({ "kind": "APIResourceList",
            "groupVersion": "things.e.io/v1", "resources": [{ "name": "things", "kind": "Thing",
                "singularName": "thing", "namespaced": true, "verbs": ["get", "list"] }] })),
        "/openapi/v3" => reply(&json!({ "paths": { "apis/things.e.io/v1": {
            "serverRelativeURL": "/openapi/v3/apis/things.e.io/v1?hash=1" } } })),
        "/openapi/v3/apis/things.e.io/v1" => reply(&json!({ "openapi": "3.0.0",
            "components": { "schemas": {
                "Thing": { "type": "object", "properties": {
                        "spec": { "allOf": [{ "$ref": "#/components/schemas/Spec" }] } },
                    "x-kubernetes-group-version-kind": [
                        { "group": "things.e.io", "version": "v1", "kind": "Thing" }] },
                "Spec": { "type": "object", "properties": { "size": { "type": "integer" } } },
            } } })),
        "/openapi/v2" => reply(&json!({ "paths": { "/apis/things.e.io/v1/things": {
            "get": { "schema": { "$ref": "#/definitions/Nowhere" } } } } })),
        "/apis/things.e.io/v1/away" => {
            let mut answer = failure(302, "");
            let away = HeaderValue::from_static("https://e.io/");
            answer.headers_mut().insert("location", away);
            answer
        }
        path if path.starts_with("/apis/things.e.io/v1/") => {
            reply(&json!({ "kind": "Thing", "path": asked.path, "body": asked.body }))
        }
        _ => failure(404, "no such page"),
    }
}

fn registration(beside: &Beside, more: Value) -> Value {
    let mut spec = json!({ "group": "things.e.io", "version": "v1", "caBundle": beside.bundle(),
        "groupPriorityMinimum": 2000, "versionPriority": 15,
        "service": { "name": "things", "namespace": "default", "port": 8443 } });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({ "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": NAME }, "spec": spec })
}

async fn condition(server: &Server) -> (String, String) {
    condition_of(server, NAME).await
}

async fn condition_of(server: &Server, name: &str) -> (String, String) {
    let said = server.get(&format!("{SERVICES}/{name}")).await;
    let conditions = said.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == "Available");
    let found = found.unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

/// A cluster with that server in it.
async fn start() -> (Server, Beside) {
    let folder = tempfile::TempDir::new().expect("a folder");
    let pki = crate::ground::pki::Pki::open(folder.path()).expect("certificates");
    let certificate = crate::ground::tls::client_certificate(&pki.pair("front-proxy-client"));
    let server = Server::start_with(|options| {
        options.proxy_client = Some(certificate.expect("a certificate"));
    })
    .await;
    server.allow_loopback();
    let beside = Beside::start(&["things.default.svc"], |asked| ready(old_server(&asked))).await;
    server.serve_at("things", 8443, beside.address).await;
    let said = server.create(SERVICES, registration(&beside, json!({}))).await;
    assert_eq!(said.code, 201, "{said:?}");
    until("it is available", async || condition(&server).await.0 == "Passed").await;
    (server, beside)
}

#[tokio::test]
async fn what_is_served_here_is_registered() {
    let server = Server::start().await;
    let said = server.get(&format!("{SERVICES}/v1.apps")).await;
    assert_eq!(said.body["spec"]["groupPriorityMinimum"], 17_800);
    let condition = &said.body["status"]["conditions"][0];
    assert_eq!(condition["reason"], "Local");
    assert_eq!(condition["message"], "Local APIServices are always available");
}

#[tokio::test]
async fn requests_are_passed_on_in_their_clients_name() {
    let (server, beside) = start().await;
    assert_eq!(condition(&server).await.1, "all checks passed");
    let request = Request::builder()
        .method(Method::POST)
        .uri("/apis/things.e.io/v1/namespaces/a/things?x=%2Fy&z=1")
        .header("authorization", "Bearer mine")
        .header("x-remote-user", "forged")
        .header("x-remote-group", "system:masters")
        .header("connection", "x-remote-user")
        .body(Full::new(Bytes::from_static(b"{\"a\":1}")))
        .expect("a request");
    // A token that nobody knows would be refused: the connection says who it is.
    let mut request = request;
    request.headers_mut().remove("authorization");
    let said = server.send(request).await;
    assert_eq!(said.code, 200, "{said:?}");
    assert_eq!(said.body["path"], "/apis/things.e.io/v1/namespaces/a/things?x=%2Fy&z=1");
    assert_eq!(said.body["body"], json!({ "a": 1 }));
    let asked = beside.questions();
    let passed = asked.iter().rfind(|asked| asked.path.contains("namespaces")).expect("passed on");
    let all = |name: &str| -> Vec<&str> {
        passed.headers.get_all(name).iter().map(|value| value.to_str().expect("text")).collect()
    };
    assert!(asked.iter().all(|asked| asked.is_certified));
    assert_eq!(all("x-remote-user"), ["admin"]);
    assert_eq!(all("x-remote-group"), ["system:masters", "system:authenticated"]);
    let said = server.get("/apis/things.e.io/v1/away").await;
    assert_eq!(said.code, 503, "{said:?}");
    let said = server.get("/apis/things.e.io/v1").await;
    assert_eq!(said.body["resources"][0]["name"], "things");
}

#[tokio::test]
async fn a_request_that_is_passed_on_has_a_seat_and_an_end() {
    let server =
        Server::start_with(|options| options.request_timeout = Duration::from_secs(2)).await;
    server.allow_loopback();
    let beside = Beside::start(&["things.default.svc"], |asked| async move {
        match asked.path.contains("/slow") {
            true => std::future::pending().await,
            false => old_server(&asked),
        }
    })
    .await;
    server.serve_at("things", 8443, beside.address).await;
    let said = server.create(SERVICES, registration(&beside, json!({}))).await;
    assert_eq!(said.code, 201, "{said:?}");
    until("it is available", async || condition(&server).await.0 == "Passed").await;
    let under_way = || server.api.fairness().map_or((0, 0), |fairness| fairness.now());
    let has_seat = until("it has a seat", async || under_way().0 > 0);
    let slow = server.get("/apis/things.e.io/v1/slow");
    let (said, ()) = tokio::join!(slow, has_seat);
    let text = "Timeout: request did not complete within the allotted timeout";
    assert_eq!((said.code, said.message()), (504, text));
    until("it is given back", async || under_way().0 == 0).await;
}

#[tokio::test]
async fn streams_pass_through() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (server, _beside) = start().await;
    let mut stream = server.upgrade("/apis/things.e.io/v1/namespaces/a/things/b/console").await;
    stream.write_all(b"hello").await.expect("written");
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).await.expect("read");
    assert_eq!(&heard, b"hello");
}

#[tokio::test]
async fn discovery_and_descriptions_are_one() {
    let (server, beside) = start().await;
    let said = server.get("/apis").await;
    let groups = said.body["groups"].as_array().expect("groups");
    assert_eq!(groups.last().expect("a group")["name"], "things.e.io");
    let said = server.get("/apis/things.e.io").await;
    assert_eq!(said.body["preferredVersion"]["groupVersion"], "things.e.io/v1");
    let shown = async || {
        let request = Request::builder()
            .uri("/apis")
            .header(
                "accept",
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            )
            .body(Full::default())
            .expect("a request");
        let said = server.send(request).await;
        let items = said.body["items"].as_array().expect("items").clone();
        items.last().expect("a group")["versions"][0].clone()
    };
    until("it is heard", async || shown().await["freshness"] == "Current").await;
    assert_eq!(shown().await["resources"][0]["resource"], "things");
    until("it is described", async || {
        let index = server.get("/openapi/v3").await.body;
        index["paths"]["apis/things.e.io/v1"]["serverRelativeURL"]
            == "/openapi/v3/apis/things.e.io/v1?hash=1"
    })
    .await;
    let said = server.get("/openapi/v3/apis/things.e.io/v1").await;
    assert_eq!(said.body["openapi"], "3.0.0");
    let said = server.get("/openapi/v2").await;
    let schema = &said.body["paths"]["/apis/things.e.io/v1/things"]["get"]["schema"];
    assert_eq!((said.code, schema), (200, &json!({ "type": "object" })));
    assert!(said.body["definitions"]["io.k8s.api.core.v1.Pod"].is_object());
    drop(beside);
}

/// The warnings about an expression for `things`, as a control loop learns them.
async fn warnings(server: &Server, expression: &str) -> Vec<Value> {
    let groups = vec!["system:masters".into(), "system:authenticated".into()];
    let user = User { name: "component".into(), groups, ..User::default() };
    let door = Within::new(server.connections(), &Context::new(), "component", &user);
    let door = door.expect("a door");
    let spec = json!({
        "matchConstraints": { "resourceRules": [{ "apiGroups": ["things.e.io"],
            "apiVersions": ["v1"], "resources": ["things"] }]},
        "validations": [{ "expression": expression }],
    });
    let spec = serde_json::from_value(spec).expect("a spec");
    let mut answers = type_checking::Answers::new();
    loop {
        let questions = match type_checking::warnings(&spec, &answers) {
            Ok(warnings) => return warnings,
            Err(questions) => questions,
        };
        for question in questions {
            let path = question.path.clone();
            let answer = async { door.raw(question).await?.bytes().await };
            answers.insert(path, answer.await.ok());
        }
    }
}

#[tokio::test]
async fn policies_are_checked_with_its_types() {
    let (server, _beside) = start().await;
    until("its kinds are known", async || {
        !warnings(&server, "object.spec.nope == 1").await.is_empty()
    })
    .await;
    assert_eq!(warnings(&server, "object.spec.size > 1").await, Vec::<Value>::new());
    let found = warnings(&server, "object.spec.size > 'a'").await;
    let text = found[0]["warning"].as_str().expect("a text");
    let expected = "things.e.io/v1, Kind=Thing: ERROR: <input>:1:18: found no matching overload for '_>_' applied to '(int, string)'";
    assert_eq!(text.lines().next(), Some(expected));
}

#[tokio::test]
async fn one_that_is_not_to_be_had_spoils_nothing() {
    let server = Server::start().await;
    server.allow_loopback();
    let beside = Beside::start(&["things.default.svc"], |asked| async move {
        match &*asked.path {
            "/apis/things.e.io/v1" => failure(500, "out of order"),
            _ => Response::new(Full::default()),
        }
    })
    .await;
    let said = server.create(SERVICES, registration(&beside, json!({}))).await;
    assert_eq!(said.code, 201, "{said:?}");
    until("nobody is there", async || condition(&server).await.0 == "ServiceNotFound").await;
    assert_eq!(condition(&server).await.1, "service/things in \"default\" is not present");
    server.serve_at("things", 8443, beside.address).await;
    until("it fails", async || condition(&server).await.0 == "FailedDiscoveryCheck").await;
    let page = server.get("/metrics").await.body;
    let line = format!("aggregator_unavailable_apiservice{{name=\"{NAME}\"}} 1");
    assert!(page.as_str().is_some_and(|page| page.lines().any(|told| told == line)), "{page}");
    let line = "aggregator_unavailable_apiservice{name=\"v1.apps\"} 0";
    assert!(page.as_str().is_some_and(|page| page.lines().any(|told| told == line)), "{page}");
    let url = format!("https://{}/apis/things.e.io/v1", beside.address);
    assert_eq!(
        condition(&server).await.1,
        format!("failing or missing response from {url}: bad status from {url}: 500")
    );
    assert_eq!(warnings(&server, "object.spec.nope == 1").await, Vec::<Value>::new());
    let said = server.get("/apis/things.e.io/v1/things").await;
    assert_eq!((said.code, &said.body), (503, &json!("service unavailable\n")));
    assert_eq!(server.get("/openapi/v2").await.code, 200);
    assert_eq!(server.get("/apis").await.code, 200);
    // What others say of it stays.
    let path = format!("{SERVICES}/{NAME}/status");
    let mut status = server.get(&path).await.body;
    let own = json!({ "type": "StatusUpdated", "status": "True", "reason": "E2E", "message": "x" });
    status["status"]["conditions"].as_array_mut().expect("conditions").push(own.clone());
    let said = server.ask(Method::PUT, &path, status).await;
    assert_eq!(said.code, 200, "{said:?}");
    server.api.extend().aggregation.current().values().for_each(|remote| remote.nudge());
    until("it was looked at again", async || {
        let found = server.get(&path).await.body;
        let conditions = found["status"]["conditions"].as_array().expect("conditions").clone();
        conditions.len() == 2 && conditions[1]["reason"] == "E2E"
    })
    .await;
    let said = server.ask(Method::DELETE, &format!("{SERVICES}/{NAME}"), Value::Null).await;
    assert_eq!(said.code, 200, "{said:?}");
    until("it is forgotten", async || server.api.extend().aggregation.current().is_empty()).await;
    assert_eq!(server.get("/apis/things.e.io/v1").await.code, 404);
}

#[tokio::test]
async fn one_that_is_not_believed_is_not_asked() {
    let server = Server::start().await;
    server.allow_loopback();
    let beside = Beside::start(&["another.default.svc"], |asked| ready(old_server(&asked))).await;
    server.serve_at("things", 8443, beside.address).await;
    server.create(SERVICES, registration(&beside, json!({}))).await;
    until("it is refused", async || condition(&server).await.0 == "FailedDiscoveryCheck").await;
    let (_, message) = condition(&server).await;
    let name =
        "x509: certificate is valid for another.default.svc, 127.0.0.1, not things.default.svc";
    assert!(message.ends_with(name), "{message}");
    assert_eq!(beside.questions().len(), 0);
    let more = json!({ "insecureSkipTLSVerify": true, "caBundle": null });
    let media = "application/merge-patch+json";
    let path = format!("{SERVICES}/{NAME}");
    let said = server.ask_as(Method::PATCH, &path, media, json!({ "spec": more })).await;
    assert_eq!(said.code, 200, "{said:?}");
    until("it is available", async || condition(&server).await.0 == "Passed").await;
}

#[tokio::test]
async fn requests_share_connections() {
    let (server, beside) = start().await;
    for turn in 0..50 {
        let path = format!("/apis/things.e.io/v1/namespaces/a/things/{turn}");
        let said = match turn % 2 {
            0 => server.get(&path).await,
            _ => server.create(&path, json!({ "turn": turn })).await,
        };
        assert_eq!((said.code, said.body["path"].as_str()), (200, Some(&*path)), "{said:?}");
    }
    // Some were open for what the server itself asks; one answer may be on its way out still.
    let connections = beside.connections.load(Ordering::Relaxed);
    assert!(connections < 10, "{connections} connections");
}

#[tokio::test]
async fn a_connection_that_is_closed_between_requests_is_nobodys_loss() {
    let server = Server::start().await;
    server.allow_loopback();
    // It hangs up after each answer and does not say so before.
    let beside = Beside::rude(&["things.default.svc"], |path| {
        Rude::SayAndClose(Rude::json(&json!({ "kind": "Thing", "path": path })))
    })
    .await;
    server.serve_at("things", 8443, beside.address).await;
    server.create(SERVICES, registration(&beside, json!({}))).await;
    until("it is available", async || condition(&server).await.0 == "Passed").await;
    for turn in 0..30 {
        let path = format!("/apis/things.e.io/v1/things/{turn}");
        let said = server.get(&path).await;
        assert_eq!((said.code, said.body["path"].as_str()), (200, Some(&*path)), "{said:?}");
    }
}

/// What the server answers for itself, at once and whole, whoever else does not.
async fn check_own_documents(server: &Server, usual: Option<&[Duration]>) -> Vec<Duration> {
    let mut took = Vec::new();
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for (path, accept, expected) in [
        ("/api", "application/json", "\"v1\""),
        ("/api", aggregated, "\"pods\""),
        ("/apis", "application/json", "\"apps\""),
        ("/apis", aggregated, "\"deployments\""),
        ("/apis/apps", "application/json", "apps/v1"),
        ("/openapi/v2", "application/json", "io.k8s.api.apps.v1.Deployment"),
        ("/openapi/v3", "application/json", "apis/apps/v1"),
        ("/openapi/v3/apis/apps/v1", "application/json", "io.k8s.api.apps.v1.Deployment"),
        ("/api/v1/namespaces", "application/json", "kube-system"),
    ] {
        let request = Request::builder().uri(path).header("host", "api").header("accept", accept);
        let begun = Instant::now();
        let said = server.send(request.body(Full::default()).expect("a request")).await;
        took.push(begun.elapsed());
        // Less than the patience that anybody has with a server that hangs; a machine that has other
        // work takes its time for what it always does.
        let usual = usual.map_or(Duration::MAX, |usual| usual[took.len() - 1].saturating_mul(10));
        let limit = usual.saturating_add(Duration::from_secs(4));
        assert!(begun.elapsed() < limit, "{path}: {:?} of {limit:?}", begun.elapsed());
        assert_eq!(said.code, 200, "{path}: {said:?}");
        assert!(said.body.to_string().contains(expected), "{path}: {expected}");
        let groups = said.body["items"].as_array().into_iter().flatten();
        for version in groups.flat_map(|group| group["versions"].as_array()).flatten() {
            for resource in version["resources"].as_array().into_iter().flatten() {
                assert!(resource["resource"].is_string(), "{path}: {resource}");
                assert!(resource["verbs"].is_array(), "{path}: {resource}");
            }
        }
    }
    took
}

#[tokio::test]
async fn servers_without_manners_spoil_nothing() {
    let server = Server::start().await;
    server.allow_loopback();
    let usual = check_own_documents(&server, None).await;
    let half = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let away = b"HTTP/1.1 302 Found\r\nlocation: https://e.io/\r\ncontent-length: 0\r\n\r\n";
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let lies = json!({ "kind": "APIGroupDiscoveryList", "paths": { "/apis/lies.e.io/v1/x": 5 },
        "definitions": 3, "items": [{ "metadata": { "name": "lies.e.io" }, "versions": [
            { "version": "v1", "resources": [{ "resource": 5, "verbs": "all" }] }] },
            { "metadata": { "name": "apps" }, "versions": "none" }] })
    .to_string();
    let lies = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {aggregated}\r\ncontent-length: {}\r\n\r\n{lies}",
        lies.len()
    );
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let deep = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{deep}", deep.len());
    let all = [
        ("hang", Rude::Hang),
        ("flood", Rude::Flood),
        ("gone", Rude::SayAndClose(Vec::new())),
        ("half", Rude::SayAndClose(half.to_vec())),
        ("garbage", Rude::SayAndClose(b"\x00\xff SSH-2.0 nobody\r\n\r\n".to_vec())),
        ("away", Rude::Say(away.to_vec())),
        ("lies", Rude::Say(lies.into_bytes())),
        ("deep", Rude::Say(deep.into_bytes())),
        ("good", Rude::Say(Rude::json(&json!({ "kind": "Thing" })))),
    ];
    let mut servers = Vec::new();
    for (name, manner) in &all {
        let manner = manner.clone();
        let (root, service) = (format!("/apis/{name}.e.io/v1"), format!("{name}.default.svc"));
        // It looks well, or else nobody would ask it anything more.
        let beside = Beside::rude(&[&service], move |path| match path == root {
            true => Rude::Say(Rude::json(&json!({ "kind": "APIResourceList" }))),
            false => manner.clone(),
        })
        .await;
        server.serve_at(name, 443, beside.address).await;
        let mut registered = registration(
            &beside,
            json!({ "group": format!("{name}.e.io"),
            "service": { "name": name, "namespace": "default", "port": 443 } }),
        );
        registered["metadata"]["name"] = format!("v1.{name}.e.io").into();
        let said = server.create(SERVICES, registered).await;
        assert_eq!(said.code, 201, "{said:?}");
        servers.push(beside);
    }
    for (name, _) in &all {
        let name = format!("v1.{name}.e.io");
        until("all look well", async || condition_of(&server, &name).await.0 == "Passed").await;
    }
    check_own_documents(&server, Some(&usual)).await;
    assert_eq!(server.get("/apis/good.e.io/v1/things").await.body["kind"], "Thing");
    // Their own clients are told, in good time and not by our fault.
    for (name, code) in [("gone", 503), ("garbage", 503), ("away", 503)] {
        let said = server.get(&format!("/apis/{name}.e.io/v1/things")).await;
        assert_eq!(said.code, code, "{name}: {said:?}");
        assert!(said.body.is_string(), "{name}: {said:?}");
    }
    // And once more, now that all has been heard.
    check_own_documents(&server, Some(&usual)).await;
}
