//! TLS on both sides: certificates by name towards clients, and pods that have to prove who they are.
use super::Proxy;
use crate::table::{Certificate, Protocol, Verified};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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

/// TLS of a port. Certificates are looked up in the table of the moment.
pub fn server(proxy: &Arc<Proxy>, port: u16) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ByName { proxy: proxy.clone(), port }));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

struct ByName {
    proxy: Arc<Proxy>,
    port: u16,
}

impl std::fmt::Debug for ByName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ByName").field(&self.port).finish()
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().unwrap_or_default().to_ascii_lowercase();
        let table = self.proxy.table();
        let tls = table.ports.get(&self.port).and_then(|port| port.tls.as_ref())?;
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
            None => Some(self.proxy.unnamed.clone()),
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
    let mut roots = RootCertStore::empty();
    let machine = match &verified.authorities {
        Some(_) => String::new(),
        None => tokio::task::spawn_blocking(machine_roots).await.unwrap_or_default(),
    };
    let authorities = verified.authorities.as_ref().unwrap_or(&machine);
    for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()).flatten() {
        // One that cannot be read vouches for nobody.
        let _ = roots.add(certificate);
    }
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let inner = inner.build().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let verifier = Arc::new(AnyOf { inner, names: verified.alternatives.clone() });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = match protocol {
        Protocol::Http2 => vec![b"h2".to_vec()],
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Bytes => Vec::new(),
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
    names: Vec<String>,
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
        let verify = |name: &ServerName<'_>| {
            self.inner.verify_server_cert(certificate, intermediates, name, stapled, now)
        };
        if self.names.is_empty() {
            return verify(asked);
        }
        let mut outcome = Err(rustls::Error::General("no name to verify".to_owned()));
        for name in &self.names {
            if let Ok(name) = ServerName::try_from(name.as_str()) {
                outcome = verify(&name);
            }
            if outcome.is_ok() {
                return outcome;
            }
        }
        outcome
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
