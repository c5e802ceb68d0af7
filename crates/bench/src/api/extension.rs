//! `bench -- extension`: what users add to an API server, on one or on two side by side.
//!
//! ```text
//! bench extension --kubeconfig A [--against B] [--pid P] [--against-pid P,P]
//!                 [--objects 5000] [--connections 32] [--seconds 5] [--writes 500] [--definitions 1000]
//! ```
//! Custom objects are created, read and listed like `bench -- api` does it with config maps. Then config
//! maps are created one after the other, first plainly and then past ten policies and two webhooks, which
//! are an HTTPS server in this process: what they add is the difference. At last so many definitions are
//! stored and what each of them weighs is read from the processes.
use super::load::{Call, Until, name};
use super::{LISTERS, Options, Rows, Side, load, prepare};
use crate::measured::Measured;
use crate::report::Report;
use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::client::{Connection, JSON};
use tokio::net::TcpListener;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const POLICIES: usize = 10;
const HOOKS: usize = 2;
/// How long a server has to put something in force.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn run(arguments: &[String], report: &mut Report) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be started");
    if let Err(error) = runtime.block_on(compare(&Options(arguments), report)) {
        eprintln!("bench extension: {error:#}");
        std::process::exit(1);
    }
}

async fn compare(options: &Options<'_>, report: &mut Report) -> Result<()> {
    let mut sides = Vec::new();
    let measured = match prepare(options, &mut sides).await {
        Ok(()) => workloads(options, &sides, report).await,
        failed => failed,
    };
    // Whatever went wrong, nothing is left behind; what was measured is told all the same.
    for side in &sides {
        let cleared = async {
            clear(side).await?;
            side.place.remove(&side.endpoint).await
        };
        if let Err(error) = cleared.await {
            eprintln!("bench extension: failed to clear {}: {error:#}", side.name);
        }
    }
    measured
}

async fn workloads(options: &Options<'_>, sides: &[Side], report: &mut Report) -> Result<()> {
    let objects = options.number("--objects", 5_000);
    let connections = options.number("--connections", 32);
    let writes = options.number("--writes", 500);
    let definitions = options.number("--definitions", 1_000);
    let during = Until::Time(Duration::from_secs(options.number("--seconds", 5) as u64));

    let mut rows = Rows { sides, report, only: None, measured: Vec::new(), seconds: Vec::new() };
    rows.memory("at the start");
    for side in sides {
        define(side, 0).await?;
        wait(side, &things(side)).await?;
    }
    let all = Until::Calls(objects);
    rows.load("custom create", connections, all, |side| create(things(side), thing)).await?;
    let get = |side: &Side| {
        let path = things(side);
        move |_| Call::get(format!("{path}/{}", name(fastrand::usize(..objects))), JSON)
    };
    rows.load("custom get", connections, during, get).await?;
    let list = |side: &Side| {
        let path = things(side);
        move |_| Call::get(path.clone(), JSON)
    };
    rows.load(&format!("custom list of {objects}"), LISTERS, during, list).await?;
    for side in sides {
        ask(side, Method::DELETE, &things(side), Value::Null).await?;
    }

    let plain = |prefix: &'static str| move |side: &Side| create(maps(side), config_map(prefix));
    let one_by_one = Until::Calls(writes);
    let before = latencies(&mut rows, "config map create", one_by_one, plain("plain")).await?;
    let hooks = Hooks::start().await?;
    for side in sides {
        hooks.register(side).await?;
    }
    let what = format!("the same past {POLICIES} policies and {HOOKS} webhooks");
    let after = latencies(&mut rows, &what, one_by_one, plain("judged")).await?;
    for (side, (before, after)) in sides.iter().zip(before.iter().zip(&after)) {
        let name = format!("{}: added by policies and webhooks", side.name);
        rows.report.row(name, &[("p50 ms", after - before)]);
    }
    for side in sides {
        clear(side).await?;
    }

    rows.memory("without definitions");
    let mut weights = Vec::new();
    for side in sides {
        let (begun, before) = (Instant::now(), side.resident_mb());
        for number in 1..=definitions {
            define(side, number).await?;
        }
        wait(side, &format!("/apis/bench.io/v1/things{definitions}")).await?;
        let took = begun.elapsed().as_secs_f64();
        let each = (side.resident_mb() - before) / definitions.max(1) as f64;
        let name = format!("{}: {definitions} definitions until the last is served", side.name);
        rows.report.row(name, &[("seconds", took), ("MB each", each)]);
        weights.push(each);
    }
    rows.ratio("MB of a definition", &weights);
    rows.memory(&format!("with {definitions} definitions"));
    Ok(())
}

/// One request after the other; the median of each side in milliseconds.
async fn latencies<C: Fn(usize) -> Call + Send + Sync + 'static>(
    rows: &mut Rows<'_>,
    name: &str,
    until: Until,
    call: impl Fn(&Side) -> C,
) -> Result<Vec<f64>> {
    let mut medians = Vec::new();
    for side in rows.sides {
        rows.begin(side);
        let mut measured: Measured = load::run(&side.endpoint, 1, until, call(side)).await?;
        measured.latencies.sort_unstable();
        let median = measured.latencies.get(measured.latencies.len() / 2).copied();
        medians.push(f64::from(median.unwrap_or_default()) / 1000.0);
        rows.add(measured);
    }
    rows.end(&format!("{name}, 1 connection"));
    Ok(medians)
}

fn things(side: &Side) -> String {
    format!("/apis/bench.io/v1/namespaces/{}/things0", side.place.namespace)
}

fn maps(side: &Side) -> String {
    side.place.collection.clone()
}

fn create(path: String, body: impl Fn(&str) -> Value) -> impl Fn(usize) -> Call {
    move |number| Call {
        method: Method::POST,
        path: path.clone(),
        accept: JSON,
        body: body(&name(number)).to_string().into(),
    }
}

/// About as much as `bench -- api` puts into a config map.
fn thing(name: &str) -> Value {
    let filler = "0123456789abcdef".repeat(64);
    json!({ "apiVersion": "bench.io/v1", "kind": "Thing0",
        "metadata": { "name": name, "labels": { "app": "bench" } },
        "spec": { "size": 4, "filler": filler, "parts": [{ "key": "a", "value": "b" }] } })
}

fn config_map(prefix: &'static str) -> impl Fn(&str) -> Value {
    move |name| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("{prefix}-{name}"), "labels": { "app": "bench" } },
            "data": { "a": "b" } })
    }
}

/// A definition with a schema of some depth, a rule, a column and a status.
async fn define(side: &Side, number: usize) -> Result<()> {
    let text = || json!({ "type": "string", "maxLength": 2000, "description": "What it is." });
    let part = json!({ "type": "object", "required": ["key"],
        "properties": { "key": text(), "value": text() } });
    let spec = json!({ "type": "object", "required": ["size"],
        "properties": { "size": { "type": "integer", "minimum": 1 }, "color": text(),
            "filler": text(), "mode": { "type": "string", "default": "auto" },
            "parts": { "type": "array", "items": part, "maxItems": 10,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"] } },
        "x-kubernetes-validations": [{ "rule": "self.size < 1000", "message": "too large" }] });
    let (plural, kind) = (format!("things{number}"), format!("Thing{number}"));
    let definition = json!({ "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.bench.io"), "labels": { "app": "bench" } },
        "spec": { "group": "bench.io", "scope": "Namespaced",
            "names": { "plural": plural, "kind": kind },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "additionalPrinterColumns":
                    [{ "name": "Size", "type": "integer", "jsonPath": ".spec.size" }],
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec,
                    "status": { "type": "object",
                        "x-kubernetes-preserve-unknown-fields": true } } } } }] } });
    ask(side, Method::POST, DEFINITIONS, definition).await
}

/// Asks until the path is served.
async fn wait(side: &Side, path: &str) -> Result<()> {
    let begun = Instant::now();
    while ask(side, Method::GET, path, Value::Null).await.is_err() {
        if begun.elapsed() > PATIENCE {
            bail!("{}: {path} is not served", side.name);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn ask(side: &Side, method: Method, path: &str, body: Value) -> Result<()> {
    let mut connection = Connection::open(&side.endpoint).await?;
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    connection.call(method, path, body).await.map(drop)
}

/// Removes what was registered and defined.
async fn clear(side: &Side) -> Result<()> {
    for path in [
        format!("{ADMISSION}/validatingadmissionpolicybindings"),
        format!("{ADMISSION}/validatingadmissionpolicies"),
        format!("{ADMISSION}/validatingwebhookconfigurations"),
        format!("{ADMISSION}/mutatingwebhookconfigurations"),
        DEFINITIONS.to_owned(),
    ] {
        ask(side, Method::DELETE, &format!("{path}?labelSelector=app%3Dbench"), Value::Null)
            .await?;
    }
    let begun = Instant::now();
    let gone = format!("{DEFINITIONS}/things0.bench.io");
    while ask(side, Method::GET, &gone, Value::Null).await.is_ok() {
        if begun.elapsed() > PATIENCE {
            bail!("{}: a definition does not go", side.name);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Webhooks that allow everything, served by this process.
struct Hooks {
    url: String,
    bundle: String,
}

impl Hooks {
    async fn start() -> Result<Hooks> {
        let key = rcgen::KeyPair::generate()?;
        let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()])?;
        let certificate = params.self_signed(&key)?;
        let secret = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], secret)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}/", listener.local_addr()?);
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let _ = stream.set_nodelay(true);
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let server = hyper::server::conn::http1::Builder::new();
                    // A server under test that hangs up is done with us.
                    let _ = server.serve_connection(TokioIo::new(stream), service_fn(allow)).await;
                });
            }
        });
        Ok(Hooks { url, bundle: STANDARD.encode(certificate.pem()) })
    }

    /// Ten policies and two webhooks about config maps, in force when this returns.
    async fn register(&self, side: &Side) -> Result<()> {
        let rules = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["CREATE", "UPDATE"] }]);
        let metadata = |name: &str| json!({ "name": name, "labels": { "app": "bench" } });
        for number in 0..POLICIES {
            let name = format!("bench-{number}");
            let policy = json!({ "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingAdmissionPolicy", "metadata": metadata(&name),
                "spec": { "matchConstraints": { "resourceRules": rules }, "validations": [
                    { "expression": format!("!has(object.data) || !('bad{number}' in object.data)"),
                      "message": "bad" },
                    { "expression": "has(object.metadata.labels) && object.metadata.labels.all(k, k.size() < 64)" }] } });
            ask(side, Method::POST, &format!("{ADMISSION}/validatingadmissionpolicies"), policy)
                .await?;
            let binding = json!({ "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata(&name),
                "spec": { "policyName": name, "validationActions": ["Deny"] } });
            let path = format!("{ADMISSION}/validatingadmissionpolicybindings");
            ask(side, Method::POST, &path, binding).await?;
        }
        for kind in ["Validating", "Mutating"] {
            let word = kind.to_lowercase();
            let url = format!("{}{word}", self.url);
            let configuration = json!({ "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": format!("{kind}WebhookConfiguration"), "metadata": metadata("bench"),
                "webhooks": [{ "name": "bench.bench.io", "sideEffects": "None",
                    "admissionReviewVersions": ["v1"], "rules": rules,
                    "clientConfig": { "url": url, "caBundle": self.bundle } }] });
            let path = format!("{ADMISSION}/{word}webhookconfigurations");
            ask(side, Method::POST, &path, configuration).await?;
        }
        for number in 0..POLICIES {
            let mut map = config_map("probe")("x");
            map["data"] = json!({ format!("bad{number}"): "" });
            self.refused(side, map).await?;
        }
        let mut map = config_map("probe")("x");
        for hook in ["validating", "mutating"] {
            map["metadata"]["annotations"] = json!({ "refuse": hook });
            self.refused(side, map.clone()).await?;
        }
        Ok(())
    }

    /// Waits until a config map is refused.
    async fn refused(&self, side: &Side, map: Value) -> Result<()> {
        let path = format!("{}?dryRun=All", side.place.collection);
        let begun = Instant::now();
        while ask(side, Method::POST, &path, map.clone()).await.is_ok() {
            if begun.elapsed() > PATIENCE {
                bail!("{}: a policy or webhook is not in force", side.name);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// Allows what does not ask to be refused.
async fn allow(
    request: http::Request<hyper::body::Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let hook = request.uri().path().trim_start_matches('/').to_owned();
    let answer = async {
        let body = request.into_body().collect().await?.to_bytes();
        let review: Value = serde_json::from_slice(&body)?;
        let asked = &review["request"];
        let refuses = asked["object"]["metadata"]["annotations"]["refuse"] == *hook;
        let uid = asked["uid"].as_str().context("a review has a uid")?;
        anyhow::Ok(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": { "uid": uid, "allowed": !refuses } }))
    };
    let (code, text) = match answer.await {
        Ok(review) => (StatusCode::OK, review.to_string()),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    Ok(response)
}
