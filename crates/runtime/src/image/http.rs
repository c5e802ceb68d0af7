//! One HTTP request over plain TCP or TLS. A registry is asked seldom and for long answers, so a
//! connection serves one request: nothing is pooled, nothing goes stale.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::config::{Host, Tls};

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("{0} is not a URL")]
    Url(String),
    #[error("failed to connect to {host}")]
    Connect { host: String, source: std::io::Error },
    #[error("{0} did not answer in time")]
    Timeout(String),
    #[error("request to {host} failed")]
    Request { host: String, source: hyper::Error },
    #[error("failed to read {path}")]
    Authorities { path: String, source: rustls::pki_types::pem::Error },
}

/// Until a connection stands, and until an answer starts.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where systems keep the authorities they trust.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub struct Http {
    hosts: BTreeMap<String, Host>,
}

impl Http {
    pub fn new(hosts: BTreeMap<String, Host>) -> Self {
        Http { hosts }
    }

    pub async fn send(
        &self,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, HttpError> {
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        tokio::time::timeout(PATIENCE, self.send_patiently(request))
            .await
            .map_err(|_| HttpError::Timeout(host))?
    }

    async fn send_patiently(
        &self,
        mut request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, HttpError> {
        let uri = request.uri().clone();
        let url = || HttpError::Url(uri.to_string());
        let authority = uri.authority().ok_or_else(url)?.clone();
        let encrypted = uri.scheme_str() == Some("https");
        let name = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let failed = |source| HttpError::Connect { host: authority.to_string(), source };
        let stream = TcpStream::connect((name.as_str(), port)).await.map_err(failed)?;
        let value = http::HeaderValue::from_str(authority.as_str()).map_err(|_| url())?;
        request.headers_mut().insert(http::header::HOST, value);
        *request.uri_mut() =
            uri.path_and_query().map_or(Uri::from_static("/"), |path| Uri::from(path.clone()));
        let broken = |source| HttpError::Request { host: authority.to_string(), source };
        if encrypted {
            let tls = self.hosts.get(authority.as_str()).map(|host| host.tls.clone());
            let connector = TlsConnector::from(client_config(&tls.unwrap_or_default())?);
            let server = ServerName::try_from(name).map_err(|_| url())?;
            let stream = connector.connect(server, stream).await.map_err(failed)?;
            exchange(TokioIo::new(stream), request).await.map_err(broken)
        } else {
            exchange(TokioIo::new(stream), request).await.map_err(broken)
        }
    }
}

async fn exchange(
    stream: impl hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Incoming>, hyper::Error> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    // Ends with the answer's body, or when the answer is dropped.
    tokio::spawn(connection);
    sender.send_request(request).await
}

fn client_config(tls: &Tls) -> Result<Arc<rustls::ClientConfig>, HttpError> {
    let mut roots = rustls::RootCertStore::empty();
    let bundle = std::env::var("SSL_CERT_FILE").ok();
    let system = bundle
        .as_deref()
        .into_iter()
        .chain(BUNDLES)
        .find(|path| std::path::Path::new(path).is_file());
    for path in system
        .map(str::to_owned)
        .into_iter()
        .chain(tls.ca_file.as_ref().map(|path| path.display().to_string()))
    {
        let broken = |source| HttpError::Authorities { path: path.clone(), source };
        for certificate in CertificateDer::pem_file_iter(&path).map_err(broken)? {
            // One that rustls does not read is one that nobody can be verified by.
            let _ = roots.add(certificate.map_err(broken)?);
        }
    }
    let mut config =
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    if tls.insecure_skip_verify {
        config.dangerous().set_certificate_verifier(Arc::new(Unverified));
    }
    Ok(Arc::new(config))
}

/// For hosts whose configuration says that nobody shall be verified.
#[derive(Debug)]
struct Unverified;

impl rustls::client::danger::ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
