//! TLS of the server, from files: its own serving certificate, whom it believes, and how it proves
//! itself to kubelets.
use crate::proxy::Anyone;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read {path}")]
    Read { path: String, source: rustls::pki_types::pem::Error },
    #[error("failed to set up TLS with {path}: {cause}")]
    Setup { path: String, cause: String },
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Pair {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|source| Error::Read { path: shown(&self.key), source })?;
        Ok((certificates(&self.certificate)?, key))
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = |source| Error::Read { path: shown(path), source };
    CertificateDer::pem_file_iter(path).map_err(read)?.collect::<Result<_, _>>().map_err(read)
}

fn setup(path: &Path, cause: &dyn std::fmt::Display) -> Error {
    Error::Setup { path: shown(path), cause: cause.to_string() }
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| setup(path, &error))?;
    }
    Ok(Arc::new(roots))
}

/// Serves with this certificate. A client may prove itself with one of `client_ca`; one that
/// presents another is turned away at once.
pub fn server(serving: &Pair, client_ca: Option<&Path>) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |error: &dyn std::fmt::Display| setup(&serving.certificate, error);
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(ca)?, provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| setup(ca, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = serving.read()?;
    let mut config = builder.with_single_cert(chain, key).map_err(|error| failed(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Talks to kubelets; without `ca` their certificates are not checked, as upstream does.
pub fn kubelet(client: Option<&Pair>, ca: Option<&Path>) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| setup(Path::new("the kubelet client"), &error))?;
    let builder = match ca {
        Some(ca) => builder.with_root_certificates(roots(ca)?),
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider))),
    };
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let (chain, key) = pair.read()?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| setup(&pair.certificate, &error))?
        }
    };
    Ok(Arc::new(config))
}
