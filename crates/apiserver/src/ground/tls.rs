//! TLS of the server, from files: its own serving certificate, whom it believes, and how it proves
//! itself to kubelets.
//!
//! The files may be replaced while the server runs, by its own PKI or by whoever runs it. They are
//! looked at when a handshake needs them, and not more often than [`FRESH`]: an idle server looks at
//! nothing.
pub use super::strength::Strength;
use super::towards::Anyone;
use rustls::client::ResolvesClientCert;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme, SupportedCipherSuite,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

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

/// A file that has been looked at so recently is as it was.
const FRESH: Duration = Duration::from_secs(1);

/// What was read from a file, and is read again when the file has changed.
struct Fresh<T> {
    path: PathBuf,
    read: Box<dyn Fn() -> Result<T, Error> + Send + Sync>,
    state: Mutex<(Instant, Option<SystemTime>, T)>,
}

impl<T: Clone> Fresh<T> {
    fn new(
        path: &Path,
        read: impl Fn() -> Result<T, Error> + Send + Sync + 'static,
    ) -> Result<Fresh<T>, Error> {
        let state = Mutex::new((Instant::now(), modified(path), read()?));
        Ok(Fresh { path: path.to_owned(), read: Box::new(read), state })
    }

    fn get(&self) -> T {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if state.0.elapsed() >= FRESH {
            state.0 = Instant::now();
            let changed = modified(&self.path);
            if changed != state.1 {
                match (self.read)() {
                    Ok(value) => (state.1, state.2) = (changed, value),
                    // Half of it may be written: what there was is good until the next look.
                    Err(error) => tracing::warn!(%error, "failed to read a file that has changed"),
                }
            }
        }
        state.2.clone()
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// A CA, as a judge of certificates that clients show.
#[derive(Clone)]
pub struct Trust(Arc<Fresh<Arc<dyn ClientCertVerifier>>>);

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Trust").field(&self.0.path).finish()
    }
}

impl Trust {
    pub fn read(ca: &Path) -> Result<Trust, Error> {
        let path = ca.to_owned();
        let read = move || {
            WebPkiClientVerifier::builder_with_provider(roots(&path)?, provider())
                .build()
                .map_err(|error| setup(&path, &error))
        };
        Ok(Trust(Arc::new(Fresh::new(ca, read)?)))
    }

    pub fn path(&self) -> &Path {
        &self.0.path
    }

    pub fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<(), rustls::Error> {
        let now = UnixTime::now();
        self.0.get().verify_client_cert(certificate, intermediates, now).map(drop)
    }

    fn subjects(&self) -> Vec<DistinguishedName> {
        self.0.get().root_hint_subjects().to_vec()
    }
}

/// Asks clients for certificates that these have signed, and takes any.
pub fn ask_for(believed: &[&Trust], provider: Arc<CryptoProvider>) -> Arc<dyn ClientCertVerifier> {
    let subjects = believed.iter().flat_map(|trust| trust.subjects()).collect();
    Arc::new(Presented { subjects, provider })
}

/// Takes any certificate whose key the client holds; what it is worth is decided later, per request.
#[derive(Debug)]
struct Presented {
    /// Of the CAs that are believed: a client with several certificates picks one of theirs.
    subjects: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Presented {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A certificate with its key, as it is in its files now.
struct Certified(Fresh<Arc<CertifiedKey>>);

impl std::fmt::Debug for Certified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Certified").field(&self.0.path).finish()
    }
}

impl Certified {
    fn read(pair: &Pair) -> Result<Arc<Certified>, Error> {
        let files = pair.clone();
        let read = move || {
            let (chain, key) = files.read()?;
            let failed = |error: rustls::Error| setup(&files.certificate, &error);
            let key = provider().key_provider.load_private_key(key).map_err(failed)?;
            let certified = CertifiedKey::new(chain, key);
            certified.keys_match().map_err(failed)?;
            Ok(Arc::new(certified))
        };
        Ok(Arc::new(Certified(Fresh::new(&pair.certificate, read)?)))
    }
}

impl ResolvesServerCert for Certified {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.get())
    }
}

impl ResolvesClientCert for Certified {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.get())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Ciphers in the order in which a server takes them, whatever order its client has: upstream's.
/// AES-256 guards nothing better here than AES-128, and takes two fifths more rounds.
fn in_order(mut provider: CryptoProvider) -> Arc<CryptoProvider> {
    let rank = |suite: &SupportedCipherSuite| {
        let name = suite.suite().as_str().unwrap_or_default();
        ["AES_128", "AES_256"].iter().position(|cipher| name.contains(cipher)).unwrap_or(2)
    };
    provider.cipher_suites.sort_by_key(rank);
    Arc::new(provider)
}

/// Serves with this certificate. A client may prove itself with one of its own: whom that makes it
/// is for those to say who believe its CA.
pub fn server(serving: &Pair, believed: &[&Trust]) -> Result<Arc<ServerConfig>, Error> {
    server_as(serving, believed, &Strength::default())
}

/// The same, as strong as somebody wants it.
pub fn server_as(
    serving: &Pair,
    believed: &[&Trust],
    strength: &Strength,
) -> Result<Arc<ServerConfig>, Error> {
    let mut provider = rustls::crypto::ring::default_provider();
    strength.limit(&mut provider);
    let provider = in_order(provider);
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(strength.versions())
        .map_err(|error| setup(&serving.certificate, &error))?;
    let builder = if believed.is_empty() {
        builder.with_no_client_auth()
    } else {
        builder.with_client_cert_verifier(ask_for(believed, provider))
    };
    let mut config = builder.with_cert_resolver(Certified::read(serving)?);
    config.ignore_client_order = true;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Serves with this certificate, and only those whom a certificate of this CA proves.
pub fn server_for(serving: &Pair, ca: &Path) -> Result<Arc<ServerConfig>, Error> {
    let provider = in_order(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(ca)?, provider.clone());
    let verifier = verifier.build().map_err(|error| setup(ca, &error))?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| setup(&serving.certificate, &error))?;
    let mut config =
        builder.with_client_cert_verifier(verifier).with_cert_resolver(Certified::read(serving)?);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What a client proves itself with, as it is in its files whenever it does.
pub fn client_certificate(pair: &Pair) -> Result<Arc<dyn ResolvesClientCert>, Error> {
    Ok(Certified::read(pair)?)
}

/// Talks to kubelets; without `ca` their certificates are not checked, as upstream does.
pub fn kubelet(client: Option<&Pair>, ca: Option<&Path>) -> Result<Arc<ClientConfig>, Error> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| setup(Path::new("the kubelet client"), &error))?;
    let builder = match ca {
        Some(ca) => builder.with_root_certificates(roots(ca)?),
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider))),
    };
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(pair) => builder.with_client_cert_resolver(Certified::read(pair)?),
    };
    Ok(Arc::new(config))
}
