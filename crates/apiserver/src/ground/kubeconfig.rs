//! How to reach a service that a kubeconfig describes: webhooks are configured with one.
use crate::ground::towards::Anyone;
use api::kubeconfig::{self, Cluster, User};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long one call may take: upstream's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What an answer may weigh.
const MAX_ANSWER: usize = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read {file:?}: {source}")]
    Read { file: PathBuf, source: io::Error },
    #[error("invalid kubeconfig {file:?}: {cause}")]
    Invalid { file: PathBuf, cause: String },
}

/// What a file says about the service of its current context.
#[derive(Debug)]
pub struct Kubeconfig {
    file: PathBuf,
    cluster: Cluster,
    user: User,
}

/// Talks to the service; each call has a connection of its own.
pub struct Client {
    uri: Uri,
    host: String,
    port: u16,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    authorization: Option<HeaderValue>,
}

impl Kubeconfig {
    pub fn read(file: &Path) -> Result<Kubeconfig, Error> {
        let bytes =
            std::fs::read(file).map_err(|source| Error::Read { file: file.into(), source })?;
        let invalid = |cause: String| Error::Invalid { file: file.into(), cause };
        let read = kubeconfig::Kubeconfig::parse(&bytes).and_then(|config| config.context(None));
        let (_, cluster, user) = read.map_err(|error| invalid(error.to_string()))?;
        Ok(Kubeconfig { file: file.into(), cluster, user })
    }

    pub fn client(&self) -> Result<Client, Error> {
        let invalid = |cause: String| Error::Invalid { file: self.file.clone(), cause };
        let tls = self.tls().map_err(invalid)?;
        let mut client = Client::to(&self.cluster.server, tls).map_err(invalid)?;
        if let (Some((_, name)), Some(other)) = (&mut client.tls, &self.cluster.tls_server_name) {
            let other = ServerName::try_from(other.clone());
            *name = other.map_err(|error| invalid(error.to_string()))?;
        }
        client.authorization = self.authorization().map_err(invalid)?;
        Ok(client)
    }

    /// Data, or what a file beside the kubeconfig holds.
    fn bytes(&self, data: &Option<String>, path: &Option<PathBuf>) -> Result<Vec<u8>, String> {
        match (data, path) {
            (Some(data), _) => STANDARD.decode(data).map_err(|error| error.to_string()),
            (None, Some(path)) => {
                let folder = self.file.parent().unwrap_or(Path::new("."));
                std::fs::read(folder.join(path)).map_err(|error| error.to_string())
            }
            (None, None) => Ok(Vec::new()),
        }
    }

    fn tls(&self) -> Result<ClientConfig, String> {
        let shown = |error: &dyn std::fmt::Display| error.to_string();
        let (cluster, user) = (&self.cluster, &self.user);
        let builder = builder()?;
        let builder = if cluster.insecure_skip_tls_verify {
            let provider = builder.crypto_provider().clone();
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        } else {
            let ca =
                self.bytes(&cluster.certificate_authority_data, &cluster.certificate_authority)?;
            builder.with_root_certificates(roots(&ca)?)
        };
        let chain = self.bytes(&user.client_certificate_data, &user.client_certificate)?;
        if chain.is_empty() {
            return Ok(builder.with_no_client_auth());
        }
        let key = self.bytes(&user.client_key_data, &user.client_key)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| shown(&error))?;
        let chain = chain.map_err(|error| shown(&error))?;
        builder.with_client_auth_cert(chain, key).map_err(|error| shown(&error))
    }

    fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        let user = &self.user;
        let token = match (&user.token, &user.token_file) {
            (None, Some(_)) => {
                let bytes = self.bytes(&None, &user.token_file)?;
                Some(String::from_utf8_lossy(&bytes).trim().to_owned())
            }
            (token, _) => token.clone(),
        };
        let text = match (token, &user.username) {
            (Some(token), _) => format!("Bearer {token}"),
            (None, Some(name)) => {
                let password = user.password.as_deref().unwrap_or_default();
                format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
            }
            (None, None) => return Ok(None),
        };
        let mut value = HeaderValue::try_from(text).map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())
}

fn roots(ca: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(roots)
}

/// Where distributions keep the CAs that everybody believes.
const SYSTEM_CAS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// TLS to a service of this CA, or of one that the machine believes.
pub fn trusting(ca: Option<&[u8]>) -> Result<ClientConfig, String> {
    let roots = match ca {
        Some(ca) => roots(ca)?,
        None => {
            let mut all = RootCertStore::empty();
            let bundle = SYSTEM_CAS.iter().find_map(|path| std::fs::read(path).ok());
            let certificates = CertificateDer::pem_slice_iter(bundle.as_deref().unwrap_or(&[]))
                .filter_map(Result::ok)
                .collect::<Vec<_>>();
            // Bundles hold some that are too old to be read.
            all.add_parsable_certificates(certificates);
            all
        }
    };
    Ok(builder()?.with_root_certificates(roots).with_no_client_auth())
}

/// The first pause before a question is asked again: upstream's.
pub const PAUSE: Duration = Duration::from_millis(500);
/// How often it is asked, how much longer each pause is, and by how much they differ.
const TRIES: u32 = 5;
const FACTOR: f64 = 1.5;
const JITTER: f64 = 0.2;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Client {
    /// To a service at this address; `tls` is of use if it is an `https` one.
    pub fn to(address: &str, tls: ClientConfig) -> Result<Client, String> {
        let uri: Uri = address.parse().map_err(|error| format!("{address:?}: {error}"))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let tls = match secure {
            false => None,
            true => {
                let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
                Some((Arc::new(tls), name))
            }
        };
        Ok(Client { uri, host, port, tls, authorization: None })
    }

    /// Posts JSON to the service's URL.
    pub async fn post(&self, body: Bytes) -> io::Result<Response<Bytes>> {
        self.timed(Method::POST, body).await
    }

    /// Reads what is at the service's URL.
    pub async fn get(&self) -> io::Result<Response<Bytes>> {
        self.timed(Method::GET, Bytes::new()).await
    }

    /// Asks with a review, which comes back with its status. A service that cannot answer now is
    /// asked again, `pause` later at first.
    pub async fn review(
        &self,
        review: &serde_json::Value,
        pause: Duration,
    ) -> Result<serde_json::Value, String> {
        let passes = |code: StatusCode| code.is_server_error() || code.as_u16() == 429;
        let answer = self.post_again(Bytes::from(review.to_string()), pause, passes).await?;
        serde_json::from_slice(&answer).map_err(|error| error.to_string())
    }

    /// Posts until it is taken, or refused with a code that does not pass.
    pub async fn post_again(
        &self,
        body: Bytes,
        mut pause: Duration,
        passes: impl Fn(StatusCode) -> bool,
    ) -> Result<Bytes, String> {
        let mut left = TRIES;
        loop {
            left -= 1;
            let (cause, passes) = match self.post(body.clone()).await {
                Ok(answer) if answer.status().is_success() => return Ok(answer.into_body()),
                Ok(answer) => {
                    let code = answer.status();
                    (format!("Error contacting webhook: {}", code.as_u16()), passes(code))
                }
                Err(error) => (error.to_string(), true),
            };
            if !passes || left == 0 {
                return Err(cause);
            }
            tokio::time::sleep(pause.mul_f64(1.0 + JITTER * fastrand::f64())).await;
            pause = pause.mul_f64(FACTOR);
        }
    }

    async fn timed(&self, method: Method, body: Bytes) -> io::Result<Response<Bytes>> {
        let timed_out = || io::Error::new(io::ErrorKind::TimedOut, "the service does not answer");
        let call = self.call(method, body);
        tokio::time::timeout(TIMEOUT, call).await.unwrap_or_else(|_| Err(timed_out()))
    }

    async fn call(&self, method: Method, body: Bytes) -> io::Result<Response<Bytes>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(stream),
            Some((config, name)) => {
                let connector = TlsConnector::from(config.clone());
                Box::new(connector.connect(name.clone(), stream).await?)
            }
        };
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let connection = tokio::spawn(connection);
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.uri.authority().map_or(self.host.as_str(), |a| a.as_str()))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(body)).map_err(io::Error::other)?;
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(io::Error::other)?;
        connection.abort();
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}
