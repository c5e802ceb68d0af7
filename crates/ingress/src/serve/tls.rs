//! TLS on both sides: certificates by name towards clients, and pods that have to prove who they are.
use super::Proxy;
use crate::table::{Alternative, Certificate, Clients, Inside, Protocol, Site, Table, Verified};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor, verify_server_name,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    Acceptor, ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore,
    ServerConfig, SignatureScheme,
};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::extensions::GeneralName;

/// What a port shows to those whom no certificate is meant for.
pub fn self_signed() -> Result<Arc<CertifiedKey>, rcgen::Error> {
    let names = vec!["skiff.invalid".to_owned()];
    let mut parameters = rcgen::CertificateParams::new(names)?;
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "Skiff Ingress Default");
    let key = rcgen::KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    let (chain, key) = (certificate.pem(), key.serialize_pem());
    let certified = crate::facts::certified(chain.as_bytes(), key.as_bytes());
    certified.map_err(|_| rcgen::Error::CouldNotParseKeyPair)
}

/// On which terms a client is spoken to.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Terms {
    pub site: Site,
    pub inside: Inside,
    pub clients: Option<Arc<Clients>>,
}

impl Terms {
    /// The table has a use for them.
    pub fn are_of(&self, table: &Table) -> bool {
        let tls = table.ports.get(&self.site).and_then(|port| port.tls.as_ref());
        tls.is_some_and(|tls| {
            let mut wanted = tls.listeners.all().map(|listener| &listener.clients);
            self.clients.is_none() || wanted.any(|clients| *clients == self.clients)
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TermsError {
    #[error("failed to set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("no certificate of an authority can be used to know clients: {0}")]
    Authorities(#[from] rustls::server::VerifierBuilderError),
}

/// TLS on these terms. Certificates are looked up in the table of the moment.
pub fn server(proxy: &Arc<Proxy>, terms: &Terms) -> Result<Arc<ServerConfig>, TermsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = match &terms.clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let roots = Arc::new(roots(&clients.authorities));
            let known = WebPkiClientVerifier::builder_with_provider(roots, provider).build()?;
            builder.with_client_cert_verifier(match clients.is_optional {
                true => Arc::new(Anybody(known)),
                false => known,
            })
        }
    };
    let by_name = ByName { proxy: Arc::downgrade(proxy), site: terms.site };
    let mut config = builder.with_cert_resolver(Arc::new(by_name));
    if terms.inside == Inside::Requests {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    Ok(Arc::new(config))
}

fn roots(authorities: &str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()).flatten() {
        // One that cannot be read vouches for nobody.
        let _ = roots.add(certificate);
    }
    roots
}

/// Asks clients for a certificate, and takes them whatever they show (`AllowInsecureFallback`).
#[derive(Debug)]
struct Anybody(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Anybody {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
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
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

struct ByName {
    /// The proxy keeps what this is in.
    proxy: Weak<Proxy>,
    site: Site,
}

impl std::fmt::Debug for ByName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ByName").field(&self.site).finish()
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().unwrap_or_default().to_ascii_lowercase();
        let proxy = self.proxy.upgrade()?;
        let table = proxy.table();
        let tls = table.ports.get(&self.site).and_then(|port| port.tls.as_ref())?;
        let mut all = tls.certificates.of(&name);
        // One name may have certificates of several kinds, of which a client knows some.
        let first = all.next();
        let is_known =
            |one: &&Certificate| one.key.key.choose_scheme(hello.signature_schemes()).is_some();
        let chosen = first.filter(is_known).or_else(|| all.find(is_known)).or(first);
        match chosen {
            Some(one) => {
                tracing::trace!(name, secret = %one.secret, "a client is shown a certificate");
                Some(one.key.clone())
            }
            None => Some(proxy.unnamed.clone()),
        }
    }
}

/// Reads as much of a connection as says whom its client is looking for; nothing is answered.
pub async fn looked_for(stream: &mut TcpStream) -> io::Result<(Option<String>, Vec<u8>)> {
    /// No client needs so much to say hello.
    const LARGEST: usize = 32 << 10;
    let mut acceptor = Acceptor::default();
    let mut seen = Vec::new();
    loop {
        let begun = seen.len();
        if stream.read_buf(&mut seen).await? == 0 || seen.len() > LARGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut new = &seen[begun..];
        while !new.is_empty() {
            acceptor.read_tls(&mut new)?;
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                return Ok((name, seen));
            }
            Err((error, _)) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }
}

/// A stream of which the beginning has been read.
pub struct Rewound {
    pub seen: Vec<u8>,
    pub at: usize,
    pub inner: TcpStream,
}

impl AsyncRead for Rewound {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let left = this.seen.get(this.at..).unwrap_or_default();
        if left.is_empty() {
            return Pin::new(&mut this.inner).poll_read(context, buffer);
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        this.at += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

/// TLS to a pod that proves to be whom a policy names.
pub async fn verify(
    stream: TcpStream,
    verified: &Verified,
    protocol: Protocol,
) -> io::Result<TlsStream<TcpStream>> {
    let failed = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let machine = match &verified.authorities {
        Some(_) => String::new(),
        None => tokio::task::spawn_blocking(machine_roots).await.unwrap_or_default(),
    };
    let authorities = verified.authorities.as_ref().unwrap_or(&machine);
    let trusted = Arc::new(roots(authorities));
    let inner = WebPkiServerVerifier::builder_with_provider(trusted.clone(), provider.clone());
    let inner = inner.build().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let verifier = Arc::new(AnyOf { inner, trusted, names: verified.alternatives.clone() });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &verified.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let shown = SingleCertAndKey::from((*identity.key).clone());
            builder.with_client_cert_resolver(Arc::new(shown))
        }
    };
    config.alpn_protocols = match protocol {
        Protocol::Http2 => vec![b"h2".to_vec()],
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Bytes | Protocol::Datagrams => Vec::new(),
    };
    let name = ServerName::try_from(verified.name.clone());
    let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Where distributions keep what their machines believe.
const MACHINE_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

fn machine_roots() -> String {
    MACHINE_ROOTS.iter().find_map(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
}

/// Verifies the chain as usual, and that the certificate is for one of these names, where there are any.
#[derive(Debug)]
struct AnyOf {
    inner: Arc<WebPkiServerVerifier>,
    trusted: Arc<RootCertStore>,
    names: Vec<Alternative>,
}

impl AnyOf {
    fn is_for(&self, certificate: &ParsedCertificate<'_>, raw: &CertificateDer<'_>) -> bool {
        self.names.iter().any(|name| match name {
            Alternative::Host(host) => ServerName::try_from(host.as_str())
                .is_ok_and(|name| verify_server_name(certificate, &name).is_ok()),
            Alternative::Uri(uri) => has_uri(raw, uri),
        })
    }
}

fn has_uri(certificate: &CertificateDer<'_>, wanted: &str) -> bool {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return false };
    let Ok(Some(names)) = parsed.subject_alternative_name() else { return false };
    let mut names = names.value.general_names.iter();
    names.any(|name| matches!(name, GeneralName::URI(uri) if *uri == wanted))
}

impl ServerCertVerifier for AnyOf {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        asked: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.names.is_empty() {
            return self.inner.verify_server_cert(certificate, intermediates, asked, stapled, now);
        }
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let (trusted, all) = (&self.trusted, algorithms.all);
        verify_server_cert_signed_by_trust_anchor(&parsed, trusted, intermediates, now, all)?;
        match self.is_for(&parsed, certificate) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
