//! Whom we believe, and how we prove who we are, as files say it now.
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// What connections are made with. As long as it is the same `Arc`, nothing has changed.
pub trait Tls: Send + Sync + 'static {
    fn config(&self) -> Result<Arc<ClientConfig>, String>;
}

impl Tls for Arc<ClientConfig> {
    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        Ok(self.clone())
    }
}

/// PEM that was given, or a file that holds it.
#[derive(Clone, PartialEq)]
pub enum Pem {
    Data(Vec<u8>),
    File(PathBuf),
}

impl Pem {
    pub fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Pem::Data(data) => Ok(data.clone()),
            Pem::File(path) => std::fs::read(path)
                .map_err(|error| format!("failed to read {}: {error}", path.display())),
        }
    }

    fn file(&self) -> Option<&Path> {
        match self {
            Pem::Data(_) => None,
            Pem::File(path) => Some(path),
        }
    }
}

#[derive(Clone)]
pub enum Believed {
    /// Certificates of these authorities.
    Authorities(Pem),
    /// Of those that the machine believes.
    System,
    /// Any.
    Anyone,
}

/// Where distributions keep the CAs that everybody believes.
const SYSTEM: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// TLS from files, which are read again when they change.
pub struct Files {
    believed: Believed,
    /// A certificate and its key.
    own: Option<(Pem, Pem)>,
    state: Mutex<Option<Read>>,
}

struct Read {
    at: Instant,
    stamps: Vec<Option<SystemTime>>,
    config: Arc<ClientConfig>,
}

/// Files that were looked at so recently are as they were.
const FRESH: Duration = Duration::from_secs(1);

impl Files {
    pub fn new(believed: Believed, own: Option<(Pem, Pem)>) -> Files {
        Files { believed, own, state: Mutex::default() }
    }

    fn stamps(&self) -> Vec<Option<SystemTime>> {
        let authorities = match &self.believed {
            Believed::Authorities(pem) => pem.file(),
            _ => None,
        };
        let own = self.own.iter().flat_map(|(certificate, key)| [certificate.file(), key.file()]);
        let files = own.flatten().chain(authorities);
        files.map(|path| std::fs::metadata(path).and_then(|file| file.modified()).ok()).collect()
    }

    fn build(&self) -> Result<Arc<ClientConfig>, String> {
        let own = match &self.own {
            None => None,
            Some((certificate, key)) => Some((certificate.read()?, key.read()?)),
        };
        client_config(&self.believed, own).map(Arc::new)
    }
}

impl Tls for Files {
    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let mut state = self.state.lock();
        if let Some(read) = &mut *state {
            if read.at.elapsed() < FRESH {
                return Ok(read.config.clone());
            }
            read.at = Instant::now();
            let stamps = self.stamps();
            if stamps != read.stamps {
                match self.build() {
                    Ok(config) => (read.config, read.stamps) = (config, stamps),
                    // Half of it may be written: what there was is good until the next look.
                    Err(error) => tracing::warn!(error, "failed to read files that have changed"),
                }
            }
            return Ok(read.config.clone());
        }
        let (stamps, config) = (self.stamps(), self.build()?);
        *state = Some(Read { at: Instant::now(), stamps, config: config.clone() });
        Ok(config)
    }
}

/// `own` is the PEM of a certificate and of its key.
pub fn client_config(
    believed: &Believed,
    own: Option<(Vec<u8>, Vec<u8>)>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match believed {
        Believed::Anyone => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        }
        Believed::Authorities(pem) => builder.with_root_certificates(roots(&pem.read()?)?),
        Believed::System => {
            let bundle = SYSTEM.iter().find_map(|path| std::fs::read(path).ok());
            let certificates = CertificateDer::pem_slice_iter(bundle.as_deref().unwrap_or(&[]));
            let mut roots = RootCertStore::empty();
            // Bundles hold some that are too old to be read.
            roots.add_parsable_certificates(certificates.filter_map(Result::ok));
            builder.with_root_certificates(roots)
        }
    };
    let Some((certificate, key)) = own else { return Ok(builder.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let chain = chain.map_err(|error| format!("invalid client certificate: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| format!("invalid client key: {error}"))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())
}

fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("invalid CA: {error}"))?;
        roots.add(certificate).map_err(|error| format!("invalid CA: {error}"))?;
    }
    Ok(roots)
}

/// Believes any certificate whose key the server holds: for those who were told not to check.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
