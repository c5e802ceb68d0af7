//! Policies as text, requests as lines, events as JSON.
use super::event::{Event, Level, Stage};
use super::*;
use crate::doors::request::{self, Target};
use crate::guard::authn::User;
use crate::guard::authz::Attributes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn attributes(request: &str) -> Attributes {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let method = method.parse().expect("a method");
    match request::parse(api::kinds::built_in(), &method, path, query) {
        Target::Call(call) => Attributes::of_call(&call),
        _ => Attributes::of_path(&method, path),
    }
}

fn user(name: &str) -> User {
    let groups = vec!["system:authenticated".into(), format!("{name}s")];
    User { name: name.into(), groups, ..User::default() }
}

/// The level at which a policy of these rules records a request of `jane`.
fn check(rules: &str, requests: &[(&str, &str)]) {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}");
    let policy = Policy::parse(text.as_bytes()).expect("a valid policy");
    for (request, expected) in requests {
        let verdict = policy.evaluate(Some(&user("jane")), &attributes(request));
        assert_eq!(format!("{:?}", verdict.level), *expected, "{request}");
    }
}

#[test]
fn the_first_rule_that_matches_counts() {
    check(
        r#"
- {level: None, users: [john]}
- {level: None, userGroups: [janes], verbs: [watch]}
- {level: Request, resources: [{group: "", resources: [pods/log, "services/*", "*/scale"]}]}
- {level: RequestResponse, namespaces: [kube-system], resources: [{group: "*", resources: [configmaps]}]}
- {level: None, resources: [{group: "", resources: [configmaps], resourceNames: [noise]}]}
- {level: Metadata, resources: [{group: apps}]}
- {level: Metadata, nonResourceURLs: ["/api*", /version]}
- {level: Request, resources: [{group: "", resources: ["*"]}]}
"#,
        &[
            ("GET /api/v1/pods?watch=1", "None"),
            ("GET /api/v1/namespaces/a/pods/p/log", "Request"),
            ("GET /api/v1/namespaces/a/services/s/proxy", "Request"),
            ("GET /apis/apps/v1/namespaces/a/deployments/d/scale", "Metadata"),
            ("GET /api/v1/namespaces/kube-system/configmaps/c", "RequestResponse"),
            ("GET /api/v1/namespaces/a/configmaps/noise", "None"),
            ("GET /api/v1/namespaces/a/configmaps/other", "Request"),
            ("GET /apis/apps/v1/deployments", "Metadata"),
            ("GET /apis", "Metadata"),
            ("GET /version", "Metadata"),
            ("GET /metrics", "None"),
            ("GET /apis/batch/v1/jobs", "None"),
        ],
    );
}

#[test]
fn a_rule_about_nothing_in_particular_is_about_everything() {
    check(
        "- {level: Metadata}",
        &[("GET /metrics", "Metadata"), ("POST /api/v1/nodes", "Metadata")],
    );
}

#[test]
fn stages_and_owners_of_fields_are_left_out_where_that_is_said() {
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n- {level: Request, verbs: [get], omitStages: [Panic], omitManagedFields: false}\n- {level: Request}";
    let policy = Policy::parse(text.as_bytes()).expect("a valid policy");
    let verdict = policy.evaluate(Some(&user("jane")), &attributes("GET /version"));
    assert_eq!(verdict.omit_stages, [Stage::RequestReceived, Stage::Panic]);
    assert!(!verdict.omit_managed_fields);
    assert!(policy.evaluate(None, &attributes("POST /version")).omit_managed_fields);
}

#[test]
fn what_a_policy_may_not_say() {
    for (text, expected) in [
        ("rules: []", "loaded illegal policy with 0 rules"),
        ("rules: [{}]", "rules[0].level: Required value"),
        (
            "rules: [{level: Some}]",
            "rules[0].level: Unsupported value: \"Some\": supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\"",
        ),
        (
            "rules: [{level: None, nonResourceURLs: [version]}]",
            "non-resource URL rules must begin with a '/' character",
        ),
        (
            "rules: [{level: None, nonResourceURLs: ['/a*b']}]",
            "non-resource URL wildcards '*' must be the final character of the rule",
        ),
        (
            "rules: [{level: None, nonResourceURLs: ['/a'], namespaces: [a]}]",
            "rules cannot apply to both regular resources and non-resource URLs",
        ),
        (
            "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
            "using resourceNames requires at least one resource",
        ),
        (
            "omitStages: [Late]\nrules: [{level: None}]",
            "omitStages[0]: Invalid value: \"Late\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic",
        ),
    ] {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{text}");
        let failure = Policy::parse(text.as_bytes()).expect_err("it is not valid");
        assert!(failure.contains(expected), "{failure}");
    }
    Policy::metadata_of_everything();
}

fn event() -> Event {
    let mut event = Event::new(
        Level::RequestResponse,
        "id".into(),
        "2026-01-31T12:00:00.5Z".parse().expect("a time"),
    );
    event.verb = "create".into();
    event.user = (&user("jane")).into();
    event.request_object = serde_json::value::to_raw_value(&json!({"a": "x".repeat(500)})).ok();
    event
}

fn log(folder: &std::path::Path, mode: Mode, truncate: Option<usize>) -> LogOptions {
    let truncate =
        truncate.map(|max_event_size| Truncate { max_event_size, max_batch_size: 1 << 20 });
    let mut options = LogOptions::unattended(folder.join("audit.log"));
    options.batch.mode = mode;
    LogOptions { truncate, ..options }
}

#[tokio::test]
async fn an_event_is_a_line_in_every_mode() {
    for mode in [Mode::Batch, Mode::Blocking, Mode::BlockingStrict] {
        let folder = tempfile::tempdir().expect("a folder");
        let backend = Backend::log(log(folder.path(), mode, None)).expect("a log");
        for _ in 0..3 {
            assert!(backend.take(backend.line(&event()).expect("a line")).await);
        }
        backend.flush().await;
        let text = std::fs::read_to_string(folder.path().join("audit.log")).expect("a log");
        assert_eq!(text.lines().count(), 3);
        let line: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        assert_eq!(line["kind"], "Event");
        assert_eq!(line["requestReceivedTimestamp"], "2026-01-31T12:00:00.500000Z");
        assert_eq!(
            line["user"],
            json!({"username": "jane", "groups": ["system:authenticated", "janes"]})
        );
        assert!(line.get("impersonatedUser").is_none() && line.get("annotations").is_none());
    }
}

#[tokio::test]
async fn an_event_that_is_too_large_loses_its_objects_or_is_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = Backend::log(log(folder.path(), Mode::Blocking, Some(500))).expect("a log");
    let line = backend.line(&event()).expect("it fits without its object");
    let line: Value = serde_json::from_slice(&line).expect("JSON");
    assert_eq!(line["annotations"]["audit.k8s.io/truncated"], "true");
    assert!(line.get("requestObject").is_none());
    let backend = Backend::log(log(folder.path(), Mode::Blocking, Some(100))).expect("a log");
    assert!(backend.line(&event()).is_none());
    assert_eq!(backend.errors.load(Relaxed), 1);
}

#[test]
fn the_older_form_is_one_line_of_text() {
    let mut event = event();
    event.request_uri = "/api/v1/pods".into();
    event.source_ips = vec!["10.0.0.1".into()];
    let line = String::from_utf8(event.legacy()).expect("text");
    assert_eq!(
        line,
        r#"2026-01-31T12:00:00.5Z AUDIT: id="id" stage="RequestReceived" ip="10.0.0.1" method="create" user="jane" groups="\"system:authenticated\",\"janes\"" as="<self>" asgroups="<lookup>" user-agent="" namespace="<none>" uri="/api/v1/pods" response="<deferred>""#
    );
}

#[tokio::test]
async fn a_client_that_brings_an_id_finds_it_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let policy =
        Policy::parse(b"{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}");
    let log = log(folder.path(), Mode::Blocking, None);
    let audit = Audit::new(Some(policy.expect("a policy")), Some(log), None).expect("a log");
    let audit = std::sync::Arc::new(audit);
    let request = http::Request::get("/version?a=b")
        .header("audit-id", "mine")
        .header("x-forwarded-for", "10.0.0.1, 10.0.0.2")
        .header("user-agent", "a".repeat(2000))
        .body(())
        .expect("a request");
    let mut trail = Trail::new(audit.clone(), request.headers());
    let begun = trail.begin(&user("jane"), &attributes("GET /version"), &request, false).await;
    begun.expect("it is recorded");
    let record = trail.record().expect("it is recorded");
    record.annotate("a", "first");
    record.annotate("a", "second");
    let answer =
        trail.answered(crate::answer::bytes(http::StatusCode::OK, "text/plain", "ok"), None).await;
    assert_eq!(answer.headers()["audit-id"], "mine");
    let text = std::fs::read_to_string(folder.path().join("audit.log")).expect("a log");
    let events: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!([&events[0]["stage"], &events[1]["stage"]], ["RequestReceived", "ResponseComplete"]);
    let last = &events[1];
    assert_eq!((&last["auditID"], &last["requestURI"]), (&json!("mine"), &json!("/version?a=b")));
    assert_eq!(last["sourceIPs"], json!(["10.0.0.1", "10.0.0.2"]));
    assert_eq!(last["annotations"], json!({"a": "first"}));
    assert_eq!(last["userAgent"].as_str().map(str::len), Some(1024 + "...TRUNCATED".len()));
    let other = Trail::new(audit, &http::HeaderMap::new());
    let answer =
        other.answered(crate::answer::bytes(http::StatusCode::OK, "text/plain", "ok"), None).await;
    assert_eq!(answer.headers()["audit-id"].len(), 36);
}

/// A service that takes batches; the first answer is a failure.
#[tokio::test]
async fn a_webhook_gets_batches_and_is_tried_again() {
    use http_body_util::BodyExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, mut batches) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut refuse = true;
        while let Ok((stream, _)) = listener.accept().await {
            let (sender, refused) = (sender.clone(), std::mem::take(&mut refuse));
            let service =
                hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let sender = sender.clone();
                    async move {
                        let token = request.headers()["authorization"].clone();
                        let body = request.into_body().collect().await.expect("a body").to_bytes();
                        let batch: Value = serde_json::from_slice(&body).expect("JSON");
                        let _ = sender.send((token, batch));
                        let code = if refused { 500 } else { 200 };
                        let answer = http::Response::builder().status(code).body(String::new());
                        Ok::<_, std::convert::Infallible>(answer.expect("an answer"))
                    }
                });
            let stream = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(stream, service),
            );
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let config_file = folder.path().join("webhook.yaml");
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: b, user: c}}}}]\nclusters: [{{name: b, cluster: {{server: 'http://{address}/audit'}}}}]\nusers: [{{name: c, user: {{token: secret}}}}]\n"
    );
    std::fs::write(&config_file, config).expect("a file");
    let batch = BatchOptions {
        mode: Mode::Batch,
        buffer_size: 10,
        max_size: 2,
        max_wait: Duration::from_secs(3600),
        throttle: Some((1000.0, 10)),
    };
    let initial_backoff = Duration::from_millis(1);
    let options = WebhookOptions { config_file, initial_backoff, batch, truncate: None };
    let backend = Backend::webhook(options).expect("a webhook");
    for _ in 0..3 {
        assert!(backend.take(backend.line(&event()).expect("a line")).await);
    }
    backend.flush().await;
    let mut sizes = Vec::new();
    while let Ok((token, batch)) = batches.try_recv() {
        assert_eq!(token, "Bearer secret");
        assert_eq!(batch["kind"], "EventList");
        sizes.push(batch["items"].as_array().expect("items").len());
    }
    // Two batches, one of them sent twice.
    sizes.sort_unstable();
    assert!(sizes == [1, 2, 2] || sizes == [1, 1, 2], "{sizes:?}");
}

/// What a failure says may hold the very object: a patch that does not fit is shown as it would have
/// been. Of secrets that is written at no level that does not record answers.
#[test]
fn what_is_secret_is_not_quoted() {
    let quoted = |code: i32| {
        let text = "Invalid value: \"{\\\"data\\\":{\\\"password\\\":\\\"c2VjcmV0\\\"}}\"";
        let mut status = api::status::Status { code, message: text.into(), ..Default::default() };
        let causes = json!({ "causes": [{ "field": "patch", "message": text }] });
        status.details = serde_json::from_value(causes).expect("details");
        status
    };
    let audit = Arc::new(Audit::default());
    for (resource, part, level, code, is_quoted) in [
        ("secrets", "", Level::Metadata, 422, false),
        ("secrets", "", Level::Request, 422, false),
        ("secrets", "", Level::Metadata, 400, false),
        ("secrets", "", Level::Metadata, 500, false),
        ("secrets", "", Level::RequestResponse, 422, true),
        ("secrets", "", Level::Metadata, 409, true),
        ("serviceaccounts", "token", Level::Metadata, 400, false),
        ("serviceaccounts", "", Level::Metadata, 400, true),
        ("tokenreviews", "", Level::Metadata, 400, false),
        ("pods", "", Level::Metadata, 422, true),
    ] {
        let mut event = Event::new(level, "id".into(), jiff::Timestamp::UNIX_EPOCH);
        let reference = event.object_ref.get_or_insert_default();
        reference.resource = resource.into();
        reference.subresource = part.into();
        let (omit_stages, omit_managed_fields) = (Vec::new(), false);
        let verdict = policy::Verdict { level, omit_stages, omit_managed_fields };
        let record = Record::new(audit.clone(), verdict, event);
        record.response_status(&quoted(code));
        let line = String::from_utf8(record.lock().json()).expect("text");
        assert_eq!(
            line.contains("c2VjcmV0"),
            is_quoted,
            "{resource}/{part} {level:?} {code}: {line}"
        );
    }
}
