//! Asks the webhook that a kubeconfig leads to.
use api::codec::yaml;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const PATIENCE: Duration = Duration::from_secs(30);
const MAX_ANSWER: usize = 1 << 20;

pub struct Client {
    uri: Uri,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    authorization: Option<String>,
}

/// Why there is no answer, and whether it may be there the next time.
pub struct Failure {
    pub cause: String,
    pub passes: bool,
}

impl Client {
    pub fn read(path: &Path) -> Result<Client, String> {
        let shown = path.display();
        let bytes = std::fs::read(path).map_err(|error| format!("open {shown}: {error}"))?;
        let config = yaml::decode_untyped(&bytes).map_err(|error| error.to_string())?.value;
        let named = |list: &str, name: &Value, field: &str| {
            let all = config[list].as_array().into_iter().flatten();
            all.into_iter().find(|entry| entry["name"] == *name).map(|entry| entry[field].clone())
        };
        let context = named("contexts", &config["current-context"], "context")
            .ok_or("invalid configuration: no configuration has been provided")?;
        let cluster = named("clusters", &context["cluster"], "cluster")
            .ok_or("invalid configuration: the cluster of the current context is missing")?;
        let user = named("users", &context["user"], "user").unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new("."));
        let server = cluster["server"].as_str().unwrap_or_default();
        let uri: Uri = server.parse().map_err(|error| format!("{server}: {error}"))?;
        let host = uri.host().ok_or("the server has no host")?.trim_matches(['[', ']']).to_owned();
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let tls = match secure {
            false => None,
            true => {
                let name = cluster["tls-server-name"].as_str().unwrap_or(&host).to_owned();
                let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
                Some((TlsConnector::from(tls(&cluster, &user, folder)?), name))
            }
        };
        let authorization = user["token"].as_str().map(|token| format!("Bearer {token}"));
        Ok(Client { uri, host, port, tls, authorization })
    }

    pub async fn post(&self, review: &Value) -> Result<Value, Failure> {
        match tokio::time::timeout(PATIENCE, self.exchange(review)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure {
                cause: "Error contacting webhook: i/o timeout".into(),
                passes: false,
            }),
        }
    }

    async fn exchange(&self, review: &Value) -> Result<Value, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure {
            cause: format!("Post {:?}: {error}", self.uri.to_string()),
            passes: true,
        };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| failed(&error))?;
        let mut sender = match &self.tls {
            None => begin(TokioIo::new(stream)).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                begin(TokioIo::new(stream.map_err(|error| failed(&error))?)).await
            }
        }
        .map_err(|error| failed(&error))?;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::post(path)
            .header(header::HOST, self.uri.authority().map_or("", |authority| authority.as_str()))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(Bytes::from(review.to_string())));
        let request = request.map_err(|error| failed(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
        let code = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| failed(&error))?.to_bytes();
        if !(200..300).contains(&code) {
            let cause = format!("Error contacting webhook: {code}");
            return Err(Failure { cause, passes: matches!(code, 429 | 500) });
        }
        serde_json::from_slice(&body)
            .map_err(|error| Failure { cause: error.to_string(), passes: false })
    }
}

async fn begin<S>(stream: TokioIo<S>) -> hyper::Result<http1::SendRequest<Full<Bytes>>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(stream).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to the image policy webhook ended");
        }
    });
    Ok(sender)
}

fn tls(cluster: &Value, user: &Value, folder: &Path) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let ca = pem(cluster, "certificate-authority", folder)?
        .ok_or("the webhook's cluster has no certificate-authority")?;
    for certificate in CertificateDer::pem_slice_iter(&ca) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let certificate = pem(user, "client-certificate", folder)?;
    let config = match (certificate, pem(user, "client-key", folder)?) {
        (Some(chain), Some(key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| error.to_string())?;
            builder
                .with_client_auth_cert(chain.map_err(|error| error.to_string())?, key)
                .map_err(|error| error.to_string())?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// What a kubeconfig gives inline, or in a file beside it.
fn pem(entry: &Value, field: &str, folder: &Path) -> Result<Option<Vec<u8>>, String> {
    if let Some(text) = entry[format!("{field}-data")].as_str() {
        return STANDARD.decode(text).map(Some).map_err(|error| error.to_string());
    }
    let Some(file) = entry[field].as_str() else { return Ok(None) };
    let path = folder.join(file);
    std::fs::read(&path).map(Some).map_err(|error| format!("open {}: {error}", path.display()))
}
