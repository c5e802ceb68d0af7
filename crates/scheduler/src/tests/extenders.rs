//! Extenders, as servers of their own.
use super::{condition, node_of, put};
use crate::{Config, run};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::Context;
use client::testing::World;
use k8s_openapi::api::core::v1::Pod;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

type Heard = Arc<Mutex<Vec<String>>>;

/// Answers every request with the same, and remembers paths and bodies. An empty answer is none.
async fn server(answer: &'static str) -> (String, Heard) {
    let (listener, address) = listen().await;
    let heard = Heard::default();
    let all = heard.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream, answer, all.clone()));
        }
    });
    (format!("http://{address}/prefix"), heard)
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &'static str, heard: Heard) {
    let mut text = String::new();
    let mut buffer = vec![0; 65536];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim())?.parse().ok()
        });
        if body.len() < length.unwrap_or(0) {
            continue;
        }
        let path = head.split(' ').nth(1).unwrap_or_default();
        heard.lock().expect("a lock").push(format!("{path} {body}"));
        text.clear();
        if answer.is_empty() {
            continue;
        }
        let length = answer.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{answer}");
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// A world with an extender, in real time: it is a server of its own.
async fn extended(text: &str, extender: &str) -> World {
    let context = Context::new();
    let world = World::new(&context);
    put(&world, text);
    let file = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{extender}]\n"
    );
    let configuration = crate::Configuration::read(file.as_bytes()).expect("a configuration");
    let config = Config { configuration, ..Config::new("here") };
    let source = world.source();
    tokio::spawn(async move { run(&context, source, config).await });
    world
}

async fn until(what: impl Fn() -> bool) {
    for _ in 0..1000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come to pass");
}

#[tokio::test]
async fn an_extender_has_a_say_about_nodes() {
    let answer = r#"{"NodeNames":["b"],"FailedNodes":{"a":"too hot"}}"#;
    let (url, asked) = server(answer).await;
    let extender = format!("{{urlPrefix: '{url}', filterVerb: filter, nodeCacheCapable: true}}");
    let world = extended("node a\nnode b\npod p cpu=1", &extender).await;
    until(|| !node_of(&world, "p").is_empty()).await;
    assert_eq!(node_of(&world, "p"), "b");
    let asked = asked.lock().expect("a lock").clone();
    assert!(asked[0].starts_with("/prefix/filter {"), "{asked:?}");
    assert!(asked[0].contains(r#""NodeNames":["#) && asked[0].contains(r#""Nodes":null"#));
}

#[tokio::test]
async fn what_an_extender_refuses_is_told_and_a_bound_pod_is_its_own() {
    let answer = r#"{"NodeNames":[],"FailedAndUnresolvableNodes":{"a":"too hot"}}"#;
    let (url, _) = server(answer).await;
    let extender = format!("{{urlPrefix: '{url}', filterVerb: filter, nodeCacheCapable: true}}");
    let world = extended("node a\npod p cpu=1", &extender).await;
    until(|| !condition(&world, "p").is_empty()).await;
    let told = condition(&world, "p");
    assert!(told.starts_with("False Unschedulable: 0/1 nodes are available: 1 too hot."), "{told}");
    // Whoever binds is asked to, with the pod's name.
    let (url, asked) = server("{}").await;
    let extender = format!("{{urlPrefix: '{url}', bindVerb: bind}}");
    let world = extended("node a\npod p cpu=1", &extender).await;
    until(|| !asked.lock().expect("a lock").is_empty()).await;
    let asked = asked.lock().expect("a lock")[0].clone();
    assert!(asked.starts_with("/prefix/bind ") && asked.contains(r#""Node":"a""#), "{asked}");
    assert_eq!(node_of(&world, "p"), "", "the extender binds it");
}

#[tokio::test]
async fn an_extender_that_hangs_fails_the_attempt_or_is_ignored() {
    let (url, _) = server("").await;
    let fields = format!("urlPrefix: '{url}', filterVerb: filter, httpTimeout: 100ms");
    let world = extended("node a\npod p cpu=1", &format!("{{{fields}}}")).await;
    until(|| !condition(&world, "p").is_empty()).await;
    let told = condition(&world, "p");
    assert!(
        told.contains("SchedulerError") && told.contains("context deadline exceeded"),
        "{told}"
    );
    let world = extended("node a\npod p cpu=1", &format!("{{{fields}, ignorable: true}}")).await;
    until(|| node_of(&world, "p") == "a").await;
}

#[tokio::test]
async fn an_extender_compares_nodes() {
    let (url, asked) = server(r#"[{"Host":"a","Score":0},{"Host":"b","Score":10}]"#).await;
    let text = "node a cpu=8\nnode b cpu=8\npod x cpu=6 node=b\npod p cpu=1";
    let extender = format!(
        "{{urlPrefix: '{url}', prioritizeVerb: compare, weight: 5, nodeCacheCapable: true}}"
    );
    let world = extended(text, &extender).await;
    until(|| !node_of(&world, "p").is_empty()).await;
    assert_eq!(node_of(&world, "p"), "b", "its word weighs more than what is free");
    let asked = asked.lock().expect("a lock").clone();
    assert!(asked[0].starts_with("/prefix/compare {"), "{asked:?}");
    // Without weight enough it does not.
    let (url, _) = server(r#"[{"Host":"b","Score":1}]"#).await;
    let extender = format!("{{urlPrefix: '{url}', prioritizeVerb: compare, weight: 1}}");
    let world = extended(text, &extender).await;
    until(|| !node_of(&world, "p").is_empty()).await;
    assert_eq!(node_of(&world, "p"), "a");
    // One that does not answer has nothing to say.
    let (url, _) = server("").await;
    let extender =
        format!("{{urlPrefix: '{url}', prioritizeVerb: compare, weight: 5, httpTimeout: 100ms}}");
    let world = extended(text, &extender).await;
    until(|| !node_of(&world, "p").is_empty()).await;
    assert_eq!(node_of(&world, "p"), "a");
}

#[tokio::test]
async fn an_extender_has_a_say_about_who_goes() {
    let text = "node a cpu=2\nnode b cpu=2\npod low-a cpu=2 node=a priority=1\n\
                pod low-b cpu=2 node=b priority=2\npod high cpu=2 priority=10";
    let answer =
        r#"{"NodeNameToMetaVictims":{"b":{"Pods":[{"UID":"low-b-uid"}],"NumPDBViolations":0}}}"#;
    let (url, asked) = server(answer).await;
    let verbs = format!("urlPrefix: '{url}', preemptVerb: preempt");
    let world = extended(text, &format!("{{{verbs}, nodeCacheCapable: true}}")).await;
    until(|| node_of(&world, "high") == "b").await;
    assert!(world.get::<Pod>("default", "low-b").is_none());
    assert!(world.get::<Pod>("default", "low-a").is_some(), "it would have been the cheaper one");
    let first = asked.lock().expect("a lock")[0].clone();
    assert!(first.starts_with("/prefix/preempt {"), "{first}");
    for part in [
        r#""NodeNameToVictims":null"#,
        r#""a":{"NumPDBViolations":0,"Pods":[{"UID":"low-a-uid"}]}"#,
    ] {
        assert!(first.contains(part), "{first}");
    }
    // Who knows no nodes is sent whole pods, and still answers with their uids.
    let (url, asked) = server(answer).await;
    let world = extended(text, &format!("{{urlPrefix: '{url}', preemptVerb: preempt}}")).await;
    until(|| node_of(&world, "high") == "b").await;
    let first = asked.lock().expect("a lock")[0].clone();
    assert!(first.contains(r#""NodeNameToMetaVictims":null"#), "{first}");
    assert!(first.contains(r#""uid":"low-a-uid""#), "{first}");
}

#[tokio::test]
async fn an_extender_that_names_a_strange_victim_fails_the_attempt() {
    let text = "node a cpu=2\npod low cpu=2 node=a priority=1\npod high cpu=2 priority=10";
    let (url, _) = server(r#"{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"nobody"}]}}}"#).await;
    let world = extended(text, &format!("{{urlPrefix: '{url}', preemptVerb: preempt}}")).await;
    until(|| !condition(&world, "high").is_empty()).await;
    let told = condition(&world, "high");
    assert!(told.contains("extender claims to preempt pod (UID: nobody) on node: a"), "{told}");
    assert!(world.get::<Pod>("default", "low").is_some());
}

/// An authority, and a certificate and a key that it signed for this machine and for a client.
struct Signed {
    authority: rcgen::Certificate,
    certificate: rcgen::Certificate,
    key: rcgen::KeyPair,
}

fn signed() -> Signed {
    let root = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&root).expect("a certificate");
    let issuer = rcgen::Issuer::from_ca_cert_pem(&authority.pem(), &root).expect("an issuer");
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["127.0.0.1".to_owned(), "extender.example".to_owned()];
    let params = rcgen::CertificateParams::new(names).expect("names");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    Signed { authority, certificate, key }
}

/// The same as [`server`] over TLS, for clients whom the authority has signed.
async fn secure_server(signed: &Signed, answer: &'static str) -> (String, Heard) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(signed.authority.der().clone()).expect("an authority");
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .expect("a verifier");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signed.key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![signed.certificate.der().clone()], key)
        .expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, address) = listen().await;
    let heard = Heard::default();
    let all = heard.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, all) = (acceptor.clone(), all.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    talk(stream, answer, all).await;
                }
            });
        }
    });
    (format!("https://{address}/prefix"), heard)
}

#[tokio::test]
async fn an_extender_over_tls_is_checked_and_checks() {
    let (signed, stranger) = (signed(), signed());
    let data = |pem: String| STANDARD.encode(pem);
    let own = format!(
        "certData: {}, keyData: {}",
        data(signed.certificate.pem()),
        data(signed.key.serialize_pem())
    );
    let answer = r#"{"NodeNames":["a"]}"#;
    let (url, asked) = secure_server(&signed, answer).await;
    let verbs = format!(
        "urlPrefix: '{url}', filterVerb: filter, nodeCacheCapable: true, enableHTTPS: true"
    );
    let believed = format!("caData: {}", data(signed.authority.pem()));
    let text = "node a\npod p cpu=1";
    let world = extended(text, &format!("{{{verbs}, tlsConfig: {{{believed}, {own}}}}}")).await;
    until(|| node_of(&world, "p") == "a").await;
    assert!(!asked.lock().expect("a lock").is_empty());
    // By another name than its address.
    let other = format!("{believed}, {own}, serverName: extender.example");
    let world = extended(text, &format!("{{{verbs}, tlsConfig: {{{other}}}}}")).await;
    until(|| node_of(&world, "p") == "a").await;
    asked.lock().expect("a lock").clear();
    // Nobody believes a server of another authority; the server believes nobody without a certificate.
    let wrong = format!("caData: {}, {own}", data(stranger.authority.pem()));
    for tls in [wrong, format!("{believed}, {own}, serverName: wrong.example"), believed] {
        let world = extended(text, &format!("{{{verbs}, tlsConfig: {{{tls}}}}}")).await;
        until(|| !condition(&world, "p").is_empty()).await;
        let told = condition(&world, "p");
        assert!(told.starts_with("False SchedulerError: Post"), "{told}");
        assert_eq!(node_of(&world, "p"), "");
    }
    assert!(asked.lock().expect("a lock").is_empty());
}
