//! TLS: which certificate is shown, when it changes, and connections that are passed on unread.
use super::stage::{Stage, get, pod};
use crate::host::{Depth, Pattern};
use crate::table::{
    Action, Alternative, Certificate, Clients, Identity, Inside, Listener, Passed, Protocol,
    Verified,
};
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

fn certificate_with_uri(name: &str, uri: &str) -> Certificate {
    let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let uri = uri.try_into().expect("ASCII");
    parameters.subject_alt_names.push(rcgen::SanType::URI(uri));
    let key = rcgen::KeyPair::generate().expect("a key");
    let chain = parameters.self_signed(&key).expect("a certificate").pem();
    let key = crate::facts::certified(chain.as_bytes(), key.serialize_pem().as_bytes());
    Certificate { secret: NamespacedName::new("default", name), key: key.expect("a pair") }
}

fn listen(stage: &mut Stage, host: &str, inside: Inside, clients: Option<Arc<Clients>>) {
    let host = Pattern::parse(host, Depth::Many);
    let listener = Listener { host: host.clone(), inside, clients };
    stage.tls().listeners.insert(&host, Arc::new(listener));
}

fn pass(stage: &mut Stage, host: &str, action: Action) {
    let passed = Passed { except: Arc::default(), action: Arc::new(action) };
    stage.tls().passed.insert(&Pattern::parse(host, Depth::Many), passed);
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
        listen(&mut stage, host, Inside::Requests, None);
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
    listen(&mut stage, "passed.test", Inside::Unknown, None);
    pass(&mut stage, "passed.test", action);
    stage.tls().is_open = true;
    stage.tls().certificates.insert(&Pattern::Any, certificate("one.test"));
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
    let alternative = |text: &str| match text.contains("://") {
        true => Alternative::Uri(text.to_owned()),
        false => Alternative::Host(text.to_owned()),
    };
    let own = certificate_with_uri("one.test", "spiffe://one.test/a");
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
        ("uri", "x", vec!["x.test", "spiffe://one.test/a"], &authority, Protocol::Http1),
        ("other-uri", "one.test", vec!["spiffe://one.test/b"], &authority, Protocol::Http1),
        ("strange-uri", "x", vec!["spiffe://one.test/a"], &other, Protocol::Http1),
        ("stranger", "one.test", vec![], &other, Protocol::Http1),
    ] {
        let verified = Verified {
            name: asked.to_owned(),
            alternatives: alternatives.into_iter().map(alternative).collect(),
            authorities: Some(authority.clone()),
            identity: None,
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
        ("uri", 200),
        ("other-uri", 502),
        ("strange-uri", 502),
        ("stranger", 502),
    ] {
        assert_eq!(get(&stage, &format!("{name}.test"), "/").await.0, code, "{name}");
    }
}

/// An authority, and certificates that it has signed.
struct Authority {
    pem: String,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).expect("no names");
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        Authority { pem: certificate.pem(), issuer: rcgen::Issuer::new(parameters, key) }
    }

    fn sign(&self, name: &str) -> Arc<rustls::sign::CertifiedKey> {
        let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let key = rcgen::KeyPair::generate().expect("a key");
        let signed = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        let (chain, key) = (signed.pem(), key.serialize_pem());
        crate::facts::certified(chain.as_bytes(), key.as_bytes()).expect("a pair")
    }

    fn clients(&self, is_optional: bool) -> Option<Arc<Clients>> {
        Some(Arc::new(Clients { authorities: self.pem.clone(), is_optional }))
    }
}

/// A client that asks again and again by the same configuration, and so may take up sessions.
struct Showing(TlsConnector);

impl Showing {
    fn new(shown: Option<&Arc<rustls::sign::CertifiedKey>>) -> Showing {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Believing));
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some(key) => {
                let one = rustls::sign::SingleCertAndKey::from((**key).clone());
                builder.with_client_cert_resolver(Arc::new(one))
            }
        };
        Showing(TlsConnector::from(Arc::new(config)))
    }

    /// The code of the answer for this name and host; nothing, if there is no connection.
    async fn get(&self, stage: &Stage, name: &str, host: &str) -> Option<String> {
        let stream = TcpStream::connect(stage.address()).await.expect("a connection");
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut stream = self.0.connect(name, stream).await.ok()?;
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer.split(' ').nth(1).map(str::to_owned)
    }
}

/// What a rule behind such a listener is for.
fn prove(stage: &mut Stage, host: &str, clients: &Option<Arc<Clients>>) {
    let backends = vec![stage.backend("web")];
    let action = Action { backends, ..Action::default() };
    stage.action_for(host, "/", action, clients.clone());
}

#[tokio::test]
async fn clients_show_certificates_where_a_listener_wants_them() {
    let pod = pod().await;
    let (known, other) = (Authority::new(), Authority::new());
    let mut stage = Stage::new();
    stage.service("web", &[pod]);
    let (strict, lax) = (known.clients(false), known.clients(true));
    for (host, clients) in [
        ("strict.test", &strict),
        ("lax.test", &lax),
        ("open.test", &None),
        ("2.test", &other.clients(false)),
    ] {
        listen(&mut stage, host, Inside::Requests, clients.clone());
        prove(&mut stage, host, clients);
    }
    stage.tls().is_open = true;
    // A rule for those who have proved something, for a host that nobody listens for.
    prove(&mut stage, "stolen.test", &strict);
    stage.tls().certificates.insert(&Pattern::Any, certificate("one.test"));
    stage.open();
    let (good, bad) = (known.sign("client"), other.sign("client"));
    let (none, good, bad) =
        (Showing::new(None), Showing::new(Some(&good)), Showing::new(Some(&bad)));
    // Twice: what was agreed on once is not taken up on other terms.
    for _ in 0..2 {
        for (who, shown, name, host, code) in [
            ("none", &none, "open.test", "open.test", Some("200")),
            ("none", &none, "strict.test", "strict.test", None),
            ("bad", &bad, "strict.test", "strict.test", None),
            ("good", &good, "strict.test", "strict.test", Some("200")),
            ("none", &none, "lax.test", "lax.test", Some("200")),
            ("bad", &bad, "lax.test", "lax.test", Some("200")),
            ("bad", &bad, "2.test", "2.test", Some("200")),
            ("good", &good, "2.test", "2.test", None),
            // Neither by another name, nor by none, does one get behind a listener.
            ("none", &none, "open.test", "strict.test", Some("421")),
            ("none", &none, "lax.test", "strict.test", Some("421")),
            ("bad", &bad, "2.test", "strict.test", Some("421")),
            ("none", &none, "127.0.0.1", "strict.test", Some("404")),
            ("none", &none, "unknown.test", "strict.test", Some("421")),
            ("none", &none, "stolen.test", "stolen.test", Some("404")),
            ("good", &good, "open.test", "open.test", Some("200")),
        ] {
            let said = shown.get(&stage, name, host).await;
            assert_eq!(said.as_deref(), code, "{who} {name} {host}");
        }
    }
}

#[tokio::test]
async fn authorities_that_cannot_be_read_let_nobody_in() {
    let pod = pod().await;
    let mut stage = Stage::new();
    stage.service("web", &[pod]).rule("", "/", "web");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (host, text) in [("empty.test", ""), ("broken.test", broken)] {
        let clients = Some(Arc::new(Clients { authorities: text.to_owned(), is_optional: false }));
        listen(&mut stage, host, Inside::Requests, clients);
    }
    stage.tls().is_open = true;
    stage.open();
    let client = Showing::new(Some(&Authority::new().sign("client")));
    assert_eq!(client.get(&stage, "empty.test", "empty.test").await, None);
    assert_eq!(client.get(&stage, "broken.test", "broken.test").await, None);
    assert_eq!(client.get(&stage, "else.test", "else.test").await.as_deref(), Some("200"));
}

#[tokio::test]
async fn pods_are_shown_a_certificate_if_they_ask_for_one() {
    let inner_pod = pod().await;
    let (own, authority) = (certificate("one.test"), Authority::new());
    let roots = api::pem::encode("CERTIFICATE", &own.key.cert[0]);
    let mut inner = Stage::new();
    inner.service("web", &[inner_pod]);
    let clients = authority.clients(false);
    listen(&mut inner, "", Inside::Requests, clients.clone());
    prove(&mut inner, "", &clients);
    inner.tls().certificates.insert(&Pattern::Any, own);
    inner.open();
    let identity = |name: &str, key: Arc<rustls::sign::CertifiedKey>| Identity {
        secret: NamespacedName::new("default", name),
        key,
    };
    let mut stage = Stage::new();
    for (name, identity) in [
        ("good", Some(identity("good", authority.sign("gateway")))),
        ("bad", Some(identity("bad", Authority::new().sign("gateway")))),
        ("none", None),
    ] {
        let verified = Verified {
            name: "one.test".to_owned(),
            alternatives: Vec::new(),
            authorities: Some(roots.clone()),
            identity,
        };
        stage.proving(name, &[inner.address()], Protocol::Http1, Some(verified));
        stage.rule(&format!("{name}.test"), "/", name);
    }
    stage.open();
    for (name, code) in [("good", 200), ("bad", 502), ("none", 502)] {
        assert_eq!(get(&stage, &format!("{name}.test"), "/").await.0, code, "{name}");
    }
}

#[tokio::test]
async fn tls_may_end_here_and_what_is_inside_be_passed_on() {
    let inner_pod = pod().await;
    let mut stage = Stage::new();
    stage.speaking("bytes", &[inner_pod], Protocol::Bytes);
    let action = || Action { backends: vec![stage.backend("bytes")], ..Action::default() };
    let (here, there) = (action(), action());
    listen(&mut stage, "ended.test", Inside::Bytes, None);
    pass(&mut stage, "ended.test", here);
    // A route's host that another listener names better is that listener's.
    listen(&mut stage, "*.test", Inside::Unknown, None);
    let except = [Pattern::parse("kept.test", Depth::Many)].into();
    let passed = Passed { except, action: Arc::new(there) };
    stage.tls().passed.insert(&Pattern::parse("kept.test", Depth::Many), passed);
    listen(&mut stage, "empty.test", Inside::Bytes, None);
    stage.tls().certificates.insert(&Pattern::Any, certificate("one.test"));
    stage.open();
    // Whatever it speaks: nothing is agreed on in its place.
    let mut stream = connect(stage.address(), "ended.test", &[b"postgresql"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), None);
    stream.write_all(b"GET /x HTTP/1.1\r\nHost: y\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.contains("GET /x\n") && !answer.contains("x-forwarded"), "{answer}");
    for name in ["kept.test", "empty.test", "nobody-s.example"] {
        assert_eq!(Showing::new(None).get(&stage, name, name).await, None, "{name}");
    }
}
