//! TLS: which certificate is shown, when it changes, and connections that are passed on unread.
use super::stage::{Stage, get, pod};
use crate::host::{Depth, Pattern};
use crate::table::{Action, Certificate, Protocol, Verified};
use api::names::NamespacedName;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A certificate that says whose it is.
fn certificate(name: &str) -> Certificate {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let key = crate::facts::certified(chain.as_bytes(), key.as_bytes()).expect("a pair");
    Certificate { secret: NamespacedName::new("default", name), key }
}

/// Believes everybody: what counts is what they show.
#[derive(Debug)]
struct Believing;

impl ServerCertVerifier for Believing {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}

async fn connect(to: SocketAddr, name: &str, alpn: &[&[u8]]) -> TlsStream<TcpStream> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Believing))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(to).await.expect("a connection");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.expect("a handshake")
}

/// The name in the certificate that is shown.
fn shown(stream: &TlsStream<TcpStream>) -> String {
    let certificates = stream.get_ref().1.peer_certificates().expect("certificates");
    let text = String::from_utf8_lossy(&certificates[0]).into_owned();
    let known = ["one.test", "two.test", "other.test", "skiff.invalid"];
    known.iter().find(|name| text.contains(*name)).map_or(text.clone(), |name| (*name).to_owned())
}

#[tokio::test]
async fn the_certificate_is_that_of_the_name_and_else_our_own() {
    let pod = pod().await;
    let mut stage = Stage::new();
    stage.service("web", &[pod]).rule("", "/", "web");
    let tls = stage.tls();
    tls.certificates.insert(&Pattern::parse("one.test", Depth::One), certificate("one.test"));
    tls.certificates.insert(&Pattern::parse("*.test", Depth::One), certificate("two.test"));
    stage.open();
    for (asked, expected) in [
        ("one.test", "one.test"),
        ("ONE.test", "one.test"),
        ("x.test", "two.test"),
        ("y.x.test", "skiff.invalid"),
        ("127.0.0.1", "skiff.invalid"),
    ] {
        let mut stream = connect(stage.address(), asked, &[b"http/1.1"]).await;
        assert_eq!(shown(&stream), expected, "{asked}");
        let request = b"GET / HTTP/1.1\r\nHost: one.test\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        // Who closes without saying so has said all the same.
        let _ = stream.read_to_string(&mut answer).await;
        assert!(answer.contains("x-forwarded-proto: https"), "{answer}");
    }
}

#[tokio::test]
async fn certificates_change_under_load_and_http2_is_agreed_on() {
    let pod = pod().await;
    let mut stage = Stage::new();
    stage.service("web", &[pod]);
    let name = Pattern::parse("a.test", Depth::One);
    let mut seen = Vec::new();
    let mut old = None;
    for round in ["one.test", "two.test", "one.test"] {
        stage.rule("", "/", "web");
        stage.tls().certificates.insert(&name, certificate(round));
        stage.open();
        let stream = connect(stage.address(), "a.test", &[b"h2", b"http/1.1"]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        seen.push(shown(&stream));
        let opened =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = opened.await.unwrap();
        tokio::spawn(connection);
        // Connections from before go on, whatever is shown to new ones.
        for sender in old.iter_mut().chain([&mut sender]) {
            let sender: &mut hyper::client::conn::http2::SendRequest<Empty<Bytes>> = sender;
            let request = Request::get("https://a.test/x").body(Empty::new()).unwrap();
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), 200);
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert!(body.starts_with(b"GET /x\nhost: a.test\n"), "{body:?}");
        }
        old = Some(sender);
    }
    assert_eq!(seen, ["one.test", "two.test", "one.test"]);
}

#[tokio::test]
async fn a_connection_to_one_listener_is_not_for_another() {
    let pod = pod().await;
    let mut stage = Stage::new();
    stage.service("web", &[pod]).rule("", "/", "web");
    for host in ["", "*.wild.test", "one.test"] {
        let pattern = Pattern::parse(host, Depth::Many);
        stage.tls().listeners.insert(&pattern.clone(), pattern);
    }
    stage.open();
    for (name, host, code) in [
        ("one.test", "one.test", "200"),
        ("one.test", "two.test", "421"),
        ("two.test", "one.test", "421"),
        ("two.test", "three.test", "200"),
        ("a.wild.test", "b.wild.test", "200"),
        ("a.wild.test", "one.test", "421"),
    ] {
        let mut stream = connect(stage.address(), name, &[]).await;
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        assert_eq!(answer.split(' ').nth(1), Some(code), "{name} {host}");
    }
}

#[tokio::test]
async fn connections_may_be_passed_on_unread() {
    // The pod's own proxy has the certificate.
    let inner_pod = pod().await;
    let mut inner = Stage::new();
    inner.service("web", &[inner_pod]).rule("", "/", "web");
    inner.tls().certificates.insert(&Pattern::Any, certificate("other.test"));
    inner.open();
    let mut stage = Stage::new();
    stage.speaking("secret", &[inner.address()], Protocol::Bytes);
    let action = Action { backends: vec![stage.backend("secret")], ..Action::default() };
    let tls = stage.tls();
    tls.passed.insert(&Pattern::parse("passed.test", Depth::Many), Arc::new(action));
    tls.certificates.insert(&Pattern::Any, certificate("one.test"));
    stage.open();
    let mut stream = connect(stage.address(), "passed.test", &[]).await;
    assert_eq!(shown(&stream), "other.test");
    stream.write_all(b"GET /x HTTP/1.1\r\nHost: y\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.contains("GET /x\n"), "{answer}");
    assert_eq!(shown(&connect(stage.address(), "else.test", &[]).await), "one.test");
    // Who speaks no TLS is let go.
    let mut plain = TcpStream::connect(stage.address()).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest).await;
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
}

#[tokio::test]
async fn pods_prove_to_be_whom_a_policy_names() {
    let inner_pod = pod().await;
    let own = certificate("one.test");
    let authority = api::pem::encode("CERTIFICATE", &own.key.cert[0]);
    let mut inner = Stage::new();
    inner.service("web", &[inner_pod]).rule("", "/", "web");
    inner.tls().certificates.insert(&Pattern::Any, own);
    inner.open();
    let other = api::pem::encode("CERTIFICATE", &certificate("one.test").key.cert[0]);
    let mut stage = Stage::new();
    for (name, asked, alternatives, authority, protocol) in [
        ("good", "one.test", vec![], &authority, Protocol::Http1),
        ("http2", "one.test", vec![], &authority, Protocol::Http2),
        ("alternative", "else.test", vec!["x.test", "one.test"], &authority, Protocol::Http1),
        ("misnamed", "else.test", vec![], &authority, Protocol::Http1),
        ("overruled", "one.test", vec!["x.test"], &authority, Protocol::Http1),
        ("stranger", "one.test", vec![], &other, Protocol::Http1),
    ] {
        let verified = Verified {
            name: asked.to_owned(),
            alternatives: alternatives.into_iter().map(str::to_owned).collect(),
            authorities: Some(authority.clone()),
        };
        stage.proving(name, &[inner.address()], protocol, Some(verified));
        stage.rule(&format!("{name}.test"), "/", name);
    }
    stage.open();
    for (name, code) in [
        ("good", 200),
        ("http2", 200),
        ("alternative", 200),
        ("misnamed", 502),
        ("overruled", 502),
        ("stranger", 502),
    ] {
        assert_eq!(get(&stage, &format!("{name}.test"), "/").await.0, code, "{name}");
    }
}
