//! A whole API server in this process, and servers beside it that say what a test wants.
use crate::doors::listen::Connections;
use crate::guard::authn::User;
use crate::guard::service_account::{Issuer, Keys};
use crate::server::{ApiServer, Options};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, IsCa, Issuer as Authority, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use store::Store;
use store::embedded::Embedded;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// An API server with everything that a new cluster has.
pub struct Server {
    pub api: ApiServer,
    connections: Connections,
    _folder: TempDir,
}

/// What an API server answered.
#[derive(Debug)]
pub struct Said {
    pub code: u16,
    pub body: Value,
    pub headers: HeaderMap,
}

impl Said {
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    pub fn warnings(&self) -> Vec<String> {
        let all = self.headers.get_all("warning").iter();
        all.map(|value| value.to_str().expect("text").to_owned()).collect()
    }
}

impl Server {
    pub async fn start() -> Server {
        Server::start_with(|_| ()).await
    }

    pub async fn start_with(change: impl FnOnce(&mut Options)) -> Server {
        let folder = TempDir::new().expect("a folder");
        let key = folder.path().join("sa.key");
        std::fs::write(&key, KeyPair::generate().expect("a key").serialize_pem()).expect("written");
        let keys = Keys::read(&key, &[]).expect("keys");
        let name = vec!["https://kubernetes.default.svc".to_owned()];
        let issuer =
            Issuer { keys, names: name.clone(), audiences: name, lifetimes: Default::default() };
        let engine = Embedded::open(&folder.path().join("store"), Default::default());
        let store = Store::from(engine.expect("a store"));
        let mut options = Options::new(store, issuer).expect("options");
        change(&mut options);
        let api = ApiServer::new(options);
        crate::bootstrap(&api).await.expect("a cluster");
        Server { connections: Connections::new(api.clone()), api, _folder: folder }
    }

    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Sends a request as somebody who may do everything.
    pub async fn ask(&self, method: Method, path: &str, body: Value) -> Said {
        self.ask_as(method, path, "application/json", body).await
    }

    pub async fn ask_as(&self, method: Method, path: &str, media: &str, body: Value) -> Said {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "api")
            .header("content-type", media)
            .header("accept", "application/json")
            .body(Full::new(body))
            .expect("a request");
        self.send(request).await
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let groups = vec!["system:masters".into(), "system:authenticated".into()];
        let user = User { name: "admin".into(), groups, ..User::default() };
        let stream = TokioIo::new(self.connections.within(user));
        let (mut sender, connection) = http1::handshake(stream).await.expect("a connection");
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.expect("an answer")
    }

    /// Goes on in a protocol of its own.
    pub async fn upgrade(&self, path: &str) -> TokioIo<Upgraded> {
        let request = Request::builder()
            .uri(path)
            .header("host", "api")
            .header("connection", "Upgrade")
            .header("upgrade", "echo")
            .body(Full::default())
            .expect("a request");
        let answer = self.answer(request).await;
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        TokioIo::new(hyper::upgrade::on(answer).await.expect("a stream"))
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> Said {
        let answer = self.answer(request).await;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        let body = serde_json::from_slice(&body).unwrap_or_else(|_| text());
        Said { code: head.status.as_u16(), body, headers: head.headers }
    }

    pub async fn create(&self, path: &str, object: Value) -> Said {
        self.ask(Method::POST, path, object).await
    }

    pub async fn get(&self, path: &str) -> Said {
        self.ask(Method::GET, path, Value::Null).await
    }

    /// Lets services be on this machine.
    pub fn allow_loopback(&self) {
        self.api.extend().backends.allowed.anywhere.store(true, Ordering::Relaxed);
    }

    /// A service whose one endpoint is at an address of this machine.
    pub async fn serve_at(&self, name: &str, port: u16, address: SocketAddr) {
        let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": { "ports": [{ "port": port, "name": "https" }] } });
        let said = self.create("/api/v1/namespaces/default/services", service).await;
        assert_eq!(said.code, 201, "{said:?}");
        let labels = json!({ "kubernetes.io/service-name": name });
        let slice = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": name, "labels": labels }, "addressType": "IPv4",
            "ports": [{ "name": "https", "port": address.port() }],
            "endpoints": [{ "addresses": [address.ip().to_string()] }] });
        // No client may name such an endpoint; it is written as a controller would.
        let resource = api::kinds::find_kind("discovery.k8s.io/v1", "EndpointSlice");
        let mut slice = slice;
        slice["metadata"]["namespace"] = "default".into();
        let made = crate::state::objects::first(&self.api, resource.expect("a kind"), slice).await;
        made.expect("a slice");
    }
}

/// Asks until it is so.
pub async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What a server beside the API server answers.
pub type Reply = Response<Full<Bytes>>;

pub fn reply(value: &Value) -> Reply {
    let mut answer = Response::new(Full::new(Bytes::from(value.to_string())));
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    answer
}

pub fn failure(code: u16, text: &'static str) -> Reply {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *answer.status_mut() = StatusCode::from_u16(code).expect("a code");
    answer
}

/// One question, as such a server got it.
#[derive(Debug, Clone)]
pub struct Asked {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
    /// Whether its client showed a certificate.
    pub is_certified: bool,
}

/// An HTTPS server on this machine.
pub struct Beside {
    pub address: SocketAddr,
    /// The CA that vouches for it, PEM.
    pub ca: String,
    pub asked: Arc<Mutex<Vec<Asked>>>,
    pub connections: Arc<AtomicUsize>,
}

type Answering = Arc<dyn Fn(Asked) -> BoxFuture<'static, Reply> + Send + Sync>;

impl Beside {
    /// Serves as these names and as its address.
    pub async fn start<F: Future<Output = Reply> + Send + 'static>(
        names: &[&str],
        answer: impl Fn(Asked) -> F + Send + Sync + 'static,
    ) -> Beside {
        let (ca, config) = certified(names);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (asked, connections) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::default());
        let answer: Answering = Arc::new(move |asked| Box::pin(answer(asked)));
        let beside = Beside { address, ca, asked: asked.clone(), connections };
        let count = beside.connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (acceptor, asked, answer) = (acceptor.clone(), asked.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let is_certified = stream.get_ref().1.peer_certificates().is_some();
                    let service = service_fn(move |request| {
                        serve(request, is_certified, asked.clone(), answer.clone())
                    });
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server
                        .serve_connection(TokioIo::new(stream), service)
                        .with_upgrades()
                        .await;
                });
            }
        });
        beside
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub fn questions(&self) -> Vec<Asked> {
        self.asked.lock().expect("not poisoned").clone()
    }

    /// The CA as a configuration has it.
    pub fn bundle(&self) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(&self.ca)
    }
}

/// What a server without manners does with a question.
#[derive(Clone)]
pub enum Rude {
    /// Says this and waits for the next question.
    Say(Vec<u8>),
    /// Says this, which may be half of an answer or none, and hangs up.
    SayAndClose(Vec<u8>),
    /// Says nothing ever.
    Hang,
    /// Begins an answer that never ends.
    Flood,
}

impl Rude {
    /// A whole answer, as it should be.
    pub fn json(value: &Value) -> Vec<u8> {
        let (body, head) = (value.to_string(), "HTTP/1.1 200 OK\r\ncontent-type: application/json");
        format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }
}

impl Beside {
    /// A server that sends whatever it likes, byte for byte, to whoever asks for a path.
    pub async fn rude(
        names: &[&str],
        answer: impl Fn(&str) -> Rude + Send + Sync + 'static,
    ) -> Beside {
        let (ca, config) = certified(names);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let beside = Beside { address, ca, asked: Arc::default(), connections: Arc::default() };
        let (count, answer) = (beside.connections.clone(), Arc::new(answer));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    // That its client goes is nothing to it.
                    let _ = misbehave(tokio::io::BufReader::new(stream), &*answer).await;
                });
            }
        });
        beside
    }
}

async fn misbehave(
    mut stream: tokio::io::BufReader<tokio_rustls::server::TlsStream<tokio::net::TcpStream>>,
    answer: &(impl Fn(&str) -> Rude + Sync),
) -> std::io::Result<()> {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if stream.read_line(&mut first).await? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        stream.read_exact(&mut vec![0; length]).await?;
        let path = first.split(' ').nth(1).unwrap_or_default();
        match answer(path.split('?').next().unwrap_or_default()) {
            Rude::Say(bytes) => stream.write_all(&bytes).await?,
            Rude::SayAndClose(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.flush().await;
            }
            Rude::Hang => std::future::pending().await,
            Rude::Flood => {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[")
                    .await?;
                loop {
                    stream.write_all(&[b' '; 64 << 10]).await?;
                }
            }
        }
        stream.flush().await?;
    }
}

async fn serve(
    mut request: Request<Incoming>,
    is_certified: bool,
    asked: Arc<Mutex<Vec<Asked>>>,
    answer: Answering,
) -> Result<Reply, Infallible> {
    if request.headers().contains_key("upgrade") {
        let stream = hyper::upgrade::on(&mut request);
        // Says again whatever it hears.
        tokio::spawn(async move {
            let stream = TokioIo::new(stream.await.expect("a stream"));
            let (mut heard, mut said) = tokio::io::split(stream);
            let _ = tokio::io::copy(&mut heard, &mut said).await;
        });
        let mut answer = failure(101, "");
        for (name, value) in [("connection", "Upgrade"), ("upgrade", "echo")] {
            answer.headers_mut().insert(name, http::HeaderValue::from_static(value));
        }
        return Ok(answer);
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let (path, headers) = (head.uri.to_string(), head.headers);
    let question = Asked { path, headers, body, is_certified };
    asked.lock().expect("not poisoned").push(question.clone());
    Ok(answer(question).await)
}

fn certified(names: &[&str]) -> (String, ServerConfig) {
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).expect("names");
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params
    };
    let authority_key = KeyPair::generate().expect("a key");
    let ca = authority().self_signed(&authority_key).expect("a CA").pem();
    let issuer = Authority::new(authority(), authority_key);
    let mut all: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    all.push("127.0.0.1".into());
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(all).expect("names").signed_by(&key, &issuer);
    let chain = vec![leaf.expect("a certificate").der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(Arc::new(anyone::Client(provider)))
        .with_single_cert(chain, key)
        .expect("a configuration");
    (ca, config)
}

/// Takes whatever certificate a client shows.
mod anyone {
    use rustls::client::danger::HandshakeSignatureValid;
    use rustls::crypto::CryptoProvider;
    use rustls::pki_types::{CertificateDer, UnixTime};
    use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
    use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
    use std::sync::Arc;

    #[derive(Debug)]
    pub struct Client(pub Arc<CryptoProvider>);

    impl ClientCertVerifier for Client {
        fn client_auth_mandatory(&self) -> bool {
            false
        }

        fn root_hint_subjects(&self) -> &[DistinguishedName] {
            &[]
        }

        fn verify_client_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: UnixTime,
        ) -> Result<ClientCertVerified, Error> {
            Ok(ClientCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
}
