//! Hooks as they are: HTTPS servers on this machine, asked by a whole API server.
use crate::testing::{Asked, Beside, Reply, Rude, Server, failure, reply, until};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use std::future::{pending, ready};
use std::sync::atomic::Ordering;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
        "data": { "a": "b" } })
}

/// What a hook answers to a question: these fields beside the question's own `uid`.
fn verdict(asked: &Asked, response: Value) -> Value {
    let mut response = response;
    response["uid"] = asked.body["request"]["uid"].clone();
    json!({ "kind": "AdmissionReview", "apiVersion": asked.body["apiVersion"],
        "response": response })
}

fn patch(operations: Value) -> Value {
    json!({ "allowed": true, "patchType": "JSONPatch",
        "patch": STANDARD.encode(operations.to_string()) })
}

/// A hook about ConfigMaps of the cluster, at a path of a server; `more` changes it.
fn hook(beside: &Beside, name: &str, path: &str, more: Value) -> Value {
    let mut hook = json!({
        "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": { "url": beside.url(path), "caBundle": beside.bundle() },
        "rules": [{ "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"] }],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        hook[field] = value.clone();
    }
    hook
}

/// Stores a configuration and waits until it counts.
async fn configure(server: &Server, kind: &str, name: &str, hooks: Vec<Value>) {
    let count = hooks.len();
    let path = format!("{CONFIGURATIONS}/{}webhookconfigurations", kind.to_lowercase());
    let object = json!({ "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{kind}WebhookConfiguration"), "metadata": { "name": name },
        "webhooks": hooks });
    let said = server.create(&path, object).await;
    assert_eq!(said.code, 201, "{said:?}");
    until("the configuration counts", async || {
        let now = server.api.extend().hooks.current();
        let hooks = if kind == "Mutating" { &now.mutating } else { &now.validating };
        hooks.iter().filter(|hook| hook.configuration == name).count() == count
    })
    .await;
}

#[tokio::test]
async fn a_hook_refuses_and_is_told_all_about_it() {
    let server = Server::start().await;
    let beside = Beside::start(&[], |asked| {
        let refused = json!({ "allowed": false, "warnings": ["careful"],
            "status": { "message": "not today", "code": 403, "reason": "Forbidden" } });
        let allowed = json!({ "allowed": true, "warnings": ["fine"] });
        let name = &asked.body["request"]["object"]["metadata"]["name"];
        let response = if *name == "bad" { refused } else { allowed };
        ready(reply(&verdict(&asked, response)))
    })
    .await;
    configure(&server, "Validating", "c", vec![hook(&beside, "h.e.io", "/judge", json!({}))]).await;
    let said = server.create(CONFIG_MAPS, config_map("bad")).await;
    assert_eq!(said.code, 403);
    assert_eq!(said.message(), "admission webhook \"h.e.io\" denied the request: not today");
    assert_eq!(said.warnings(), ["299 - \"careful\""]);
    let said = server.create(&format!("{CONFIG_MAPS}?fieldManager=m"), config_map("good")).await;
    assert_eq!((said.code, said.warnings()), (201, vec!["299 - \"fine\"".to_owned()]));
    let said = server.ask(Method::DELETE, &format!("{CONFIG_MAPS}/good"), Value::Null).await;
    assert_eq!((said.code, said.warnings().len()), (200, 1), "{said:?}");
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/good")).await.code, 404);
    let questions = beside.questions();
    assert_eq!(questions.len(), 3);
    assert_eq!((&*questions[1].path, questions[1].is_certified), ("/judge?timeout=10s", false));
    let request = &questions[1].body["request"];
    assert_eq!(request["operation"], "CREATE");
    assert_eq!((&request["namespace"], &request["name"]), (&json!("default"), &json!("good")));
    assert_eq!(request["userInfo"]["username"], "admin");
    assert_eq!(
        request["options"],
        json!({ "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "m" })
    );
    assert_eq!(request["object"]["metadata"]["managedFields"][0]["manager"], "m");
    let request = &questions[2].body["request"];
    assert_eq!(request["operation"], "DELETE");
    assert_eq!(request["object"], Value::Null);
    assert_eq!(request["oldObject"]["metadata"]["name"], "good");
    assert_eq!(request["options"]["kind"], "DeleteOptions");
    // All over one connection.
    assert_eq!(beside.connections.load(Ordering::Relaxed), 1);
    let counts = server.api.extend().counts.text();
    for line in [
        r#"apiserver_admission_webhook_rejection_count{error_type="no_error",name="h.e.io",operation="CREATE",rejection_code="403",type="validating"} 1"#,
        r#"apiserver_admission_webhook_request_total{code="200",name="h.e.io",operation="DELETE",rejected="false",type="validating"} 1"#,
        r#"apiserver_admission_webhook_admission_duration_seconds_count{name="h.e.io",operation="CREATE",rejected="true",type="validating"} 1"#,
    ] {
        assert!(counts.lines().any(|told| told == line), "{line}\n{counts}");
    }
}

#[tokio::test]
async fn hooks_that_their_conditions_leave_out_are_counted() {
    let server = Server::start().await;
    let beside =
        Beside::start(&[], |asked| ready(reply(&verdict(&asked, json!({ "allowed": true })))))
            .await;
    let only = |expression: &str| json!({ "failurePolicy": "Ignore", "matchConditions": [{ "name": "c", "expression": expression }] });
    let hooks = vec![
        hook(&beside, "other.e.io", "/a", only("object.metadata.name == 'other'")),
        hook(&beside, "odd.e.io", "/b", only("object.data.none == 'x'")),
        hook(&beside, "asked.e.io", "/c", only("object.metadata.name == 'a'")),
    ];
    configure(&server, "Validating", "v", hooks).await;
    assert_eq!(server.create(CONFIG_MAPS, config_map("a")).await.code, 201);
    assert_eq!(beside.questions().len(), 1);
    let counts = server.api.extend().counts.text();
    let labels = |name: &str| {
        format!("{{kind=\"webhook\",name=\"{name}.e.io\",operation=\"CREATE\",type=\"validate\"}}")
    };
    let is_told = |metric: &str, name: &str| {
        let line = format!("apiserver_admission_match_condition_{metric}{} 1", labels(name));
        counts.lines().any(|told| told == line)
    };
    for (name, errs, excludes) in
        [("other", false, true), ("odd", true, true), ("asked", false, false)]
    {
        assert!(is_told("evaluation_seconds_count", name), "{name}\n{counts}");
        assert_eq!(is_told("evaluation_errors_total", name), errs, "{name}\n{counts}");
        assert_eq!(is_told("exclusions_total", name), excludes, "{name}\n{counts}");
    }
}

#[tokio::test]
async fn a_hook_is_asked_as_whoever_the_kubeconfig_says() {
    let beside = Beside::start(&[], |asked| {
        let response = json!({ "allowed": true });
        ready(reply(&verdict(&asked, response)))
    })
    .await;
    let folder = tempfile::TempDir::new().expect("a folder");
    let file = folder.path().join("kubeconfig");
    let pki = crate::ground::pki::Pki::open(&folder.path().join("pki")).expect("certificates");
    let pair = pki.pair("front-proxy-client");
    let user = json!({ "token": "secret", "client-certificate": pair.certificate,
        "client-key": pair.key });
    let config = json!({ "apiVersion": "v1", "kind": "Config", "users": [
        { "name": beside.address.to_string(), "user": user }] });
    std::fs::write(&file, config.to_string()).expect("written");
    let clients = crate::extend::backend::Clients::read(&file).expect("a kubeconfig");
    let server = Server::start_with(|options| {
        options.admission.settings.webhooks.validating = clients;
    })
    .await;
    configure(&server, "Validating", "v", vec![hook(&beside, "v.e.io", "/v", json!({}))]).await;
    configure(&server, "Mutating", "m", vec![hook(&beside, "m.e.io", "/m", json!({}))]).await;
    let said = server.create(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(said.code, 201, "{said:?}");
    for asked in beside.questions() {
        let is_known = asked.path.starts_with("/v");
        let token = asked.headers.get("authorization").and_then(|value| value.to_str().ok());
        assert_eq!(token, is_known.then_some("Bearer secret"));
        assert_eq!(asked.is_certified, is_known);
    }
    assert_eq!((beside.questions().len(), beside.connections.load(Ordering::Relaxed)), (2, 2));
}

#[tokio::test]
async fn hooks_change_an_object_by_name_and_see_each_others_changes() {
    let server = Server::start().await;
    let beside = Beside::start(&[], |asked| {
        let step = |from: &str, to: &str| {
            let found = &asked.body["request"]["object"]["data"];
            match found.get(from).is_some() && found.get(to).is_none() {
                true => patch(json!([
                    { "op": "add", "path": format!("/data/{to}"), "value": "yes" },
                    { "op": "add", "path": "/unknown", "value": "dropped" },
                ])),
                false => json!({ "allowed": true }),
            }
        };
        let response = match &*asked.path {
            path if path.starts_with("/first") => step("start", "first"),
            path if path.starts_with("/second") => step("first", "second"),
            // Only a second round shows it what came after it.
            _ => step("second", "seen"),
        };
        ready(reply(&verdict(&asked, response)))
    })
    .await;
    let again = json!({ "reinvocationPolicy": "IfNeeded" });
    let hooks = vec![
        hook(&beside, "again.e.io", "/again", again),
        hook(&beside, "first.e.io", "/first", json!({})),
    ];
    configure(&server, "Mutating", "a", hooks).await;
    let hooks = vec![hook(&beside, "second.e.io", "/second", json!({}))];
    configure(&server, "Mutating", "b", hooks).await;
    let mut object = config_map("c");
    object["data"] = json!({ "start": "yes" });
    let said = server.create(CONFIG_MAPS, object).await;
    assert_eq!(said.code, 201, "{said:?}");
    let expected = json!({ "start": "yes", "first": "yes", "second": "yes", "seen": "yes" });
    assert_eq!(said.body["data"], expected);
    assert_eq!(said.body.get("unknown"), None);
    let paths: Vec<String> = beside.questions().into_iter().map(|asked| asked.path).collect();
    let paths: Vec<&str> = paths.iter().map(|path| path.split('?').next().unwrap_or("")).collect();
    assert_eq!(paths, ["/again", "/first", "/second", "/again"]);
    // A patch goes the same way.
    let merge = json!({ "data": { "first": null, "second": null, "seen": null } });
    let path = format!("{CONFIG_MAPS}/c");
    let media = "application/merge-patch+json";
    let said = server.ask_as(Method::PATCH, &path, media, merge).await;
    assert_eq!((said.code, &said.body["data"]), (200, &expected));
}

#[tokio::test]
async fn what_a_hook_adds_to_a_pod_gets_its_defaults() {
    let server = Server::start().await;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "default" } });
    server.create("/api/v1/namespaces/default/serviceaccounts", account).await;
    let beside = Beside::start(&[], |asked| {
        let added = json!([{ "op": "add", "path": "/spec/initContainers",
            "value": [{ "image": "i", "name": "added" }] }]);
        ready(reply(&verdict(&asked, patch(added))))
    })
    .await;
    let rules = json!({ "rules": [{ "operations": ["CREATE"], "apiGroups": [""],
        "apiVersions": ["v1"], "resources": ["pods"] }] });
    configure(&server, "Mutating", "c", vec![hook(&beside, "h.e.io", "/", rules)]).await;
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let said = server.create("/api/v1/namespaces/default/pods", pod).await;
    let added = &said.body["spec"]["initContainers"][0];
    assert_eq!((said.code, &added["name"]), (201, &json!("added")), "{said:?}");
    assert_eq!(added["terminationMessagePolicy"], "File");
}

/// A hook that fails like this is told of like that; and if failures are ignored, not at all.
async fn check_failure(answer: fn(&Asked) -> Option<Reply>, timeout: u64, expected: &[&str]) {
    let server = Server::start().await;
    let beside = Beside::start(&[], move |asked| async move {
        match answer(&asked) {
            Some(reply) => reply,
            None => pending().await,
        }
    })
    .await;
    check_failure_of(&server, &beside, timeout, expected).await;
}

async fn check_failure_of(server: &Server, beside: &Beside, timeout: u64, expected: &[&str]) {
    let more = json!({ "timeoutSeconds": timeout });
    configure(server, "Validating", "c", vec![hook(beside, "h.e.io", "/x", more)]).await;
    let said = server.create(CONFIG_MAPS, config_map("c")).await;
    assert_eq!((said.code, &said.body["reason"]), (500, &json!("InternalError")), "{said:?}");
    let begin = "Internal error occurred: failed calling webhook \"h.e.io\": ";
    assert!(said.message().starts_with(begin), "{}", said.message());
    for words in expected {
        let words = words.replace("URL", &beside.url("/x"));
        assert!(said.message().contains(&words), "{}: {words}", said.message());
    }
    let more = json!({ "timeoutSeconds": timeout, "failurePolicy": "Ignore" });
    let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/c");
    let removed = server.ask(Method::DELETE, &path, Value::Null).await;
    assert_eq!(removed.code, 200, "{removed:?}");
    configure(server, "Validating", "d", vec![hook(beside, "h.e.io", "/x", more)]).await;
    until("the other is gone", async || server.api.extend().hooks.current().validating.len() == 1)
        .await;
    let said = server.create(CONFIG_MAPS, config_map("c")).await;
    assert_eq!(said.code, 201, "{said:?}");
}

#[tokio::test]
async fn a_hook_that_hangs_is_waited_for_so_long() {
    let late = "failed to call webhook: Post \"URL?timeout=1s\": context deadline exceeded";
    check_failure(|_| None, 1, &[late]).await;
}

#[tokio::test]
async fn a_hook_that_talks_nonsense_fails() {
    let garbage = |_: &Asked| Some(Response::new(Full::new(Bytes::from_static(b"<html>"))));
    check_failure(garbage, 5, &["failed to call webhook: couldn't get version/kind; json parse"])
        .await;
    let other = |asked: &Asked| {
        let mut answer = verdict(asked, json!({ "allowed": true }));
        answer["response"]["uid"] = "another".into();
        Some(reply(&answer))
    };
    check_failure(other, 5, &["received invalid webhook response: expected response.uid="]).await;
}

#[tokio::test]
async fn a_hook_that_breaks_off_or_speaks_another_protocol_fails() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"kind\":";
    let broken = "failed to call webhook: Post \"URL?timeout=5s\": ";
    for (says, words) in [
        (
            &half[..],
            "failed to call webhook: unexpected error when reading response body. Please \
            retry. Original error: unexpected EOF",
        ),
        (b"", "EOF"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", ""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -7\r\n\r\n", ""),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "response body"),
    ] {
        let server = Server::start().await;
        let beside = Beside::rude(&[], |_| Rude::SayAndClose(says.to_vec())).await;
        let begin = if words.contains("response body") { "" } else { broken };
        check_failure_of(&server, &beside, 5, &[begin, words]).await;
    }
}

#[tokio::test]
async fn a_hook_that_says_too_much_is_cut_short() {
    let endless =
        |_: &Asked| Some(Response::new(Full::new(Bytes::from(vec![b' '; 100 * 1024 * 1024]))));
    check_failure(
        endless,
        10,
        &["failed to call webhook: Post \"URL?timeout=10s\": the answer is"],
    )
    .await;
}

#[tokio::test]
async fn a_hook_that_leads_elsewhere_is_not_followed() {
    let elsewhere = |_: &Asked| {
        let mut answer = failure(302, "");
        answer.headers_mut().insert("location", http::HeaderValue::from_static("https://e.io/"));
        Some(answer)
    };
    check_failure(elsewhere, 5, &["failed to call webhook: the server responded with the status"])
        .await;
    let broken = |_: &Asked| Some(failure(500, "out of order"));
    check_failure(
        broken,
        5,
        &["failed to call webhook: an error on the server (\"out of order\")"],
    )
    .await;
}

#[tokio::test]
async fn a_hook_must_be_who_it_should_be() {
    let server = Server::start().await;
    let beside =
        Beside::start(&[], |asked| ready(reply(&verdict(&asked, json!({ "allowed": true })))))
            .await;
    let other = Beside::start(&[], |_| pending()).await;
    let config = json!({ "clientConfig": { "url": beside.url("/x"), "caBundle": other.bundle() } });
    configure(&server, "Validating", "c", vec![hook(&beside, "h.e.io", "/", config)]).await;
    let said = server.create(CONFIG_MAPS, config_map("c")).await;
    let unknown =
        "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    assert!(said.message().ends_with(unknown), "{}", said.message());
    assert_eq!(beside.questions().len(), 0);
}

#[tokio::test]
async fn what_is_only_tried_is_shown_to_hooks_without_side_effects() {
    let server = Server::start().await;
    let beside =
        Beside::start(&[], |asked| ready(reply(&verdict(&asked, json!({ "allowed": true })))))
            .await;
    configure(&server, "Validating", "c", vec![hook(&beside, "h.e.io", "/", json!({}))]).await;
    let said = server.create(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("c")).await;
    assert_eq!(said.code, 201, "{said:?}");
    let request = &beside.questions()[0].body["request"];
    assert_eq!(
        (&request["dryRun"], &request["options"]["dryRun"]),
        (&json!(true), &json!(["All"]))
    );
    // No configuration says so any more, but old ones did.
    let mut some = hook(&beside, "s.e.io", "/", json!({ "sideEffects": "Some" }));
    some["failurePolicy"] = "Ignore".into();
    let id = "c/s.e.io/0".to_owned();
    let backends = &server.api.extend().backends;
    let clients = crate::extend::backend::Clients::default();
    let hook = super::configuration::Hook::read("c", id, &some, (backends, &clients));
    server.api.extend().hooks.put_validating(hook);
    let said = server.create(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("c")).await;
    assert_eq!(said.code, 400);
    assert_eq!(said.message(), "admission webhook \"s.e.io\" does not support dry run");
}

#[tokio::test]
async fn a_stream_is_asked_about_with_what_it_wants() {
    let server = Server::start().await;
    let beside = Beside::start(&[], |asked| {
        let refused = json!({ "allowed": false, "status": { "message": "no attaching" } });
        ready(reply(&verdict(&asked, refused)))
    })
    .await;
    let rules = json!({ "rules": [{ "operations": ["CONNECT"], "apiGroups": [""],
        "apiVersions": ["v1"], "resources": ["pods/attach"] }] });
    configure(&server, "Validating", "c", vec![hook(&beside, "h.e.io", "/", rules)]).await;
    let path = "/api/v1/namespaces/default/pods/p/attach?container=c&stdin=true&stdout=true";
    let said = server.ask(Method::POST, path, Value::Null).await;
    let denied = "admission webhook \"h.e.io\" denied the request: no attaching";
    assert_eq!((said.code, said.message()), (400, denied));
    let request = &beside.questions()[0].body["request"];
    assert_eq!(
        request["kind"],
        json!({ "group": "", "version": "v1", "kind": "PodAttachOptions" })
    );
    assert_eq!(request["subResource"], "attach");
    assert_eq!((&request["name"], &request["namespace"]), (&json!("p"), &json!("default")));
    let object = &request["object"];
    assert_eq!((&object["container"], &object["stdin"]), (&json!("c"), &json!(true)));
    let exec = "/api/v1/namespaces/default/pods/p/exec?command=ls";
    assert_eq!(server.ask(Method::POST, exec, Value::Null).await.code, 404);
}

#[tokio::test]
async fn a_service_is_asked_at_its_endpoints_and_never_on_this_machine() {
    let server = Server::start().await;
    let beside = Beside::start(&["hooks.default.svc"], |asked| {
        ready(reply(&verdict(&asked, json!({ "allowed": true }))))
    })
    .await;
    let service = json!({ "name": "hooks", "namespace": "default", "path": "/x", "port": 8443 });
    let config = json!({ "clientConfig": { "service": service, "caBundle": beside.bundle() } });
    configure(&server, "Validating", "c", vec![hook(&beside, "h.e.io", "/", config)]).await;
    let failed = async || {
        let said = server.create(CONFIG_MAPS, config_map("c")).await;
        let begin = "Internal error occurred: failed calling webhook \"h.e.io\": failed to call \
                     webhook: Post \"https://hooks.default.svc:8443/x?timeout=10s\": ";
        let cause = said.message().strip_prefix(begin).unwrap_or(said.message()).to_owned();
        (said.code, cause)
    };
    assert_eq!(failed().await, (500, "service \"hooks\" not found".into()));
    server.serve_at("hooks", 8443, beside.address).await;
    assert_eq!(failed().await, (500, "address not allowed".into()));
    server.allow_loopback();
    assert_eq!(failed().await, (201, String::new()));
    let headers = &beside.questions()[0].headers;
    assert_eq!(headers.get("host").expect("a host"), "hooks.default.svc:8443");
}

#[tokio::test]
async fn no_hook_stands_in_the_way_of_its_own_configuration() {
    let server = Server::start().await;
    let beside =
        Beside::start(&[], |asked| ready(reply(&verdict(&asked, json!({ "allowed": false })))))
            .await;
    let rules = || {
        json!({ "rules": [{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": ["*/*"] }] })
    };
    configure(&server, "Validating", "c", vec![hook(&beside, "h.e.io", "/", rules())]).await;
    configure(&server, "Mutating", "c", vec![hook(&beside, "h.e.io", "/", rules())]).await;
    let said = server.create(CONFIG_MAPS, config_map("c")).await;
    let denied = "admission webhook \"h.e.io\" denied the request without explanation";
    assert_eq!((said.code, said.message()), (400, denied));
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    assert_eq!(server.create(path, review).await.code, 201);
    for kind in ["validating", "mutating"] {
        let path = format!("{CONFIGURATIONS}/{kind}webhookconfigurations/c");
        let said = server.ask(Method::DELETE, &path, Value::Null).await;
        assert_eq!(said.code, 200, "{said:?}");
    }
}

#[tokio::test]
async fn a_namespace_may_spare_its_objects_and_a_scale_is_shown_as_one() {
    let server = Server::start().await;
    let beside =
        Beside::start(&[], |asked| ready(reply(&verdict(&asked, json!({ "allowed": false })))))
            .await;
    let selector = json!({ "matchExpressions": [
        { "key": "spared", "operator": "DoesNotExist" }] });
    let rules = json!([
        { "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps", "namespaces"] },
        { "operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
            "resources": ["deployments/scale"] }]);
    let more = json!({ "namespaceSelector": selector, "rules": rules });
    configure(&server, "Validating", "c", vec![hook(&beside, "h.e.io", "/", more)]).await;
    let namespace = |name: &str, labels: Value| {
        json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": labels } })
    };
    let namespaces = "/api/v1/namespaces";
    let said = server.create(namespaces, namespace("a", json!({}))).await;
    assert_eq!(said.code, 400, "{said:?}");
    let said = server.create(namespaces, namespace("b", json!({ "spared": "yes" }))).await;
    assert_eq!(said.code, 201, "{said:?}");
    assert_eq!(server.create(CONFIG_MAPS, config_map("c")).await.code, 400);
    let said = server.create("/api/v1/namespaces/b/configmaps", config_map("c")).await;
    assert_eq!(said.code, 201, "{said:?}");
    let labels = json!({ "a": "b" });
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "d" }, "spec": { "replicas": 2, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "c", "image": "i" }] } } } });
    let path = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(server.create(path, deployment).await.code, 201);
    let media = "application/merge-patch+json";
    let more = json!({ "spec": { "replicas": 5 } });
    let said = server.ask_as(Method::PATCH, &format!("{path}/d/scale"), media, more).await;
    assert_eq!(said.code, 400, "{said:?}");
    let asked = beside.questions();
    let request = &asked.last().expect("a question").body["request"];
    assert_eq!(
        (&request["kind"]["kind"], &request["subResource"]),
        (&json!("Scale"), &json!("scale"))
    );
    assert_eq!(request["object"]["spec"]["replicas"], 5);
    assert_eq!(request["oldObject"]["spec"]["replicas"], 2);
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of `widgets.e.io` in `v1` and `v2`, the first of which is stored.
async fn define(server: &Server, conversion: Value) {
    let data = json!({ "size": { "type": "string" },
        "color": { "type": "string", "default": "red" } });
    define_with(server, conversion, [data.clone(), data]).await;
}

/// The same with the properties that `data` has in either.
async fn define_with(server: &Server, conversion: Value, [v1, v2]: [Value; 2]) {
    let version = |name: &str, storage: bool, data: Value| {
        let schema = json!({ "openAPIV3Schema": { "type": "object", "properties": {
            "data": { "type": "object", "properties": data } } } });
        json!({ "name": name, "served": true, "storage": storage, "schema": schema })
    };
    let definition = json!({ "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": { "name": "widgets.e.io" },
        "spec": { "group": "e.io", "scope": "Namespaced", "conversion": conversion,
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [version("v1", true, v1), version("v2", false, v2)] } });
    let said = server.create(DEFINITIONS, definition).await;
    assert_eq!(said.code, 201, "{said:?}");
    until("it is served", async || server.get("/apis/e.io/v1/widgets").await.code == 200).await;
}

fn widget(version: &str, name: &str) -> Value {
    json!({ "apiVersion": format!("e.io/{version}"), "kind": "Widget",
        "metadata": { "name": name }, "data": { "size": "1" } })
}

#[tokio::test]
async fn custom_objects_are_changed_pruned_and_defaulted_like_any_other() {
    let server = Server::start().await;
    define(&server, json!({ "strategy": "None" })).await;
    let beside = Beside::start(&[], |asked| {
        let added = json!([
            { "op": "replace", "path": "/data", "value": { "size": "2" } },
            { "op": "add", "path": "/data/unknown", "value": "dropped" }]);
        ready(reply(&verdict(&asked, patch(added))))
    })
    .await;
    let rules = json!({ "matchPolicy": "Equivalent", "rules": [{ "operations": ["CREATE"],
        "apiGroups": ["e.io"], "apiVersions": ["v1"], "resources": ["widgets"] }] });
    configure(&server, "Mutating", "c", vec![hook(&beside, "h.e.io", "/", rules)]).await;
    for version in ["v1", "v2"] {
        let path = format!("/apis/e.io/{version}/namespaces/default/widgets");
        let said = server.create(&path, widget(version, version)).await;
        assert_eq!(said.code, 201, "{said:?}");
        assert_eq!(said.body["apiVersion"], format!("e.io/{version}"));
        assert_eq!(said.body["data"], json!({ "size": "2", "color": "red" }));
    }
    // Whatever the client speaks, the hook speaks what its rules name.
    for asked in beside.questions() {
        let request = &asked.body["request"];
        assert_eq!(request["kind"]["version"], "v1");
        assert_eq!(request["object"]["apiVersion"], "e.io/v1");
    }
    assert_eq!(beside.questions()[1].body["request"]["requestKind"]["version"], "v2");
    let registered = "/apis/apiregistration.k8s.io/v1/apiservices/v2.e.io";
    until("it is registered", async || server.get(registered).await.code == 200).await;
}

#[tokio::test]
async fn what_a_hooks_version_does_not_know_comes_back() {
    let server = Server::start().await;
    let text = |default: &str| json!({ "type": "string", "default": default });
    let data = [json!({ "size": text("d") }), json!({ "tint": text("red") })];
    define_with(&server, json!({ "strategy": "None" }), data).await;
    let beside = Beside::start(&[], |asked| {
        // The second hook sees what the first made of the object, with the defaults of their version.
        let data = &asked.body["request"]["object"]["data"];
        let seen = data["tint"].as_str().unwrap_or("none").to_owned();
        let more = json!([{ "op": "add", "path": "/metadata/labels", "value": { "seen": seen } }]);
        ready(reply(&verdict(&asked, patch(more))))
    })
    .await;
    let rules = json!({ "matchPolicy": "Equivalent", "rules": [{ "operations": ["CREATE"],
        "apiGroups": ["e.io"], "apiVersions": ["v2"], "resources": ["widgets"] }] });
    let hooks = ["a.e.io", "b.e.io"].map(|name| hook(&beside, name, "/", rules.clone()));
    configure(&server, "Mutating", "c", hooks.into()).await;
    let path = "/apis/e.io/v1/namespaces/default/widgets";
    let said = server.create(path, widget("v1", "a")).await;
    assert_eq!((said.code, &said.body["data"]), (201, &json!({ "size": "1" })), "{said:?}");
    assert_eq!(said.body["metadata"]["labels"], json!({ "seen": "red" }));
}

#[tokio::test]
async fn custom_objects_are_converted_by_their_webhook_wherever_they_are_read() {
    let server = Server::start().await;
    let beside = Beside::start(&[], |asked| {
        let request = &asked.body["request"];
        let mut objects = request["objects"].clone();
        for object in objects.as_array_mut().into_iter().flatten() {
            object["apiVersion"] = request["desiredAPIVersion"].clone();
            object["data"]["size"] =
                format!("{}+", object["data"]["size"].as_str().unwrap_or("")).into();
        }
        let mut review = asked.body.clone();
        review["response"] = json!({ "uid": request["uid"], "convertedObjects": objects,
            "result": { "status": "Success" } });
        ready(reply(&review))
    })
    .await;
    let conversion = json!({ "strategy": "Webhook", "webhook": { "conversionReviewVersions": ["v1"],
        "clientConfig": { "url": beside.url("/convert"), "caBundle": beside.bundle() } } });
    define(&server, conversion).await;
    let path = |version: &str| format!("/apis/e.io/{version}/namespaces/default/widgets");
    // Stored as v1: converted on its way there, and back for its client.
    let said = server.create(&path("v2"), widget("v2", "a")).await;
    assert_eq!((said.code, &said.body["apiVersion"]), (201, &json!("e.io/v2")), "{said:?}");
    let said = server.create(&path("v1"), widget("v1", "b")).await;
    assert_eq!((said.code, &said.body["data"]["size"]), (201, &json!("1")), "{said:?}");
    let size = async |version: &str, name: &str| {
        let said = server.get(&format!("{}/{name}", path(version))).await;
        assert_eq!(said.body["apiVersion"], format!("e.io/{version}"), "{said:?}");
        said.body["data"]["size"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!((size("v1", "a").await, size("v1", "b").await), ("1+".into(), "1".into()));
    assert_eq!((size("v2", "a").await, size("v2", "b").await), ("1++".into(), "1+".into()));
    let said = server.get(&path("v2")).await;
    let items = said.body["items"].as_array().expect("items").clone();
    assert!(items.iter().all(|item| item["apiVersion"] == "e.io/v2"), "{items:?}");
    assert_eq!(items.len(), 2);
    let media = "application/merge-patch+json";
    let label = json!({ "metadata": { "labels": { "x": "y" } } });
    let said = server.ask_as(Method::PATCH, &format!("{}/b", path("v2")), media, label).await;
    assert_eq!((said.code, &said.body["metadata"]["labels"]["x"]), (200, &json!("y")), "{said:?}");
}

#[tokio::test]
async fn a_hook_changes_an_object_but_neither_its_kind_nor_its_place() {
    let server = Server::start().await;
    // What it changes is in the object.
    let beside = Beside::start(&[], |asked| {
        let object = &asked.body["request"]["object"];
        let wanted = object["data"]["patch"].as_str().unwrap_or("[]");
        let operations = serde_json::from_str(wanted).expect("JSON");
        ready(reply(&verdict(&asked, patch(operations))))
    })
    .await;
    configure(&server, "Mutating", "c", vec![hook(&beside, "h.e.io", "/x", json!({}))]).await;
    let moved =
        "the namespace of the provided object does not match the namespace sent on the request";
    for (code, operations, expected) in [
        (201, json!([{ "op": "remove", "path": "/kind" }]), ""),
        (201, json!([{ "op": "replace", "path": "/metadata/namespace", "value": "" }]), ""),
        (400, json!([{ "op": "replace", "path": "/metadata/namespace", "value": "other" }]), moved),
        (
            500,
            json!([{ "op": "replace", "path": "/kind", "value": "Service" }]),
            "converting (v1.Service) to (core.ConfigMap): unknown conversion",
        ),
        (
            500,
            json!([{ "op": "replace", "path": "/kind", "value": "None" }]),
            "Internal error occurred: no kind \"None\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
    ] {
        let mut map = config_map("m");
        map["data"] = json!({ "patch": operations.to_string() });
        let said = server.create(&format!("{CONFIG_MAPS}?dryRun=All"), map).await;
        assert_eq!((said.code, said.message()), (code, expected), "{operations}");
    }
    let versioned = json!([{ "op": "add", "path": "/metadata/resourceVersion", "value": "7" }]);
    let mut map = config_map("m");
    map["data"] = json!({ "patch": versioned.to_string() });
    let said = server.create(CONFIG_MAPS, map.clone()).await;
    let expected = "resourceVersion should not be set on objects to be created";
    assert_eq!((said.code, said.message()), (400, expected));
    let said = server.create(CONFIG_MAPS, config_map("m")).await;
    assert_eq!(said.code, 201, "{said:?}");
    let said = server.ask(Method::PUT, &format!("{CONFIG_MAPS}/m"), map).await;
    assert_eq!((said.code, &said.body["reason"]), (409, &json!("Conflict")), "{said:?}");
}
