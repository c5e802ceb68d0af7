//! How a machine comes to trust a cluster, and the cluster the machine.
//!
//! The server shows its CA behind its own certificate. The token carries the hash of that CA's public
//! key, so what is shown can be checked before anything is said.
use anyhow::{Context as _, bail, ensure};
use api::pem;
use client::http::tls::{Believed, Pem};
use client::https::{Config, Https, Proof};
use client::{Client, Context};
use kubelet::identity::{self, Files, Purpose};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpStream;

/// `HASH.ID.SECRET`: the CA's hash, and a bootstrap token.
#[derive(Debug, PartialEq)]
pub struct Token {
    pub authority: String,
    pub id: String,
    pub secret: String,
}

impl FromStr for Token {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Token> {
        let parts: Vec<&str> = text.trim().split('.').collect();
        let is_of = |text: &str, length: usize| {
            text.len() == length
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        match parts[..] {
            [authority, id, secret]
                if is_of(authority, 64) && is_of(id, 6) && is_of(secret, 16) =>
            {
                Ok(Token { authority: authority.into(), id: id.into(), secret: secret.into() })
            }
            _ => bail!("this is no token to join with: `skiff token create` prints one"),
        }
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.authority, self.id, self.secret)
    }
}

/// Checks the server's CA, keeps it, and asks for the node's certificate.
pub async fn introduce(
    context: &Context,
    server: &str,
    token: &Token,
    node: &str,
    ca: &Path,
    files: &Files,
) -> anyhow::Result<()> {
    let shown = authority_of(server).await?;
    ensure!(
        hash(&shown)? == token.authority,
        "{server} is of another cluster than the token: its CA has another hash"
    );
    if let Some(folder) = ca.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(ca, pem::encode("CERTIFICATE", &shown))?;
    let bearer = client::https::Token::Given(format!("{}.{}", token.id, token.secret));
    let proof = Proof { token: Some(bearer), ..Proof::default() };
    let config = Config::new(server, Believed::Authorities(Pem::File(ca.to_owned())), proof);
    let client = Client::new(Arc::new(Https::new(context, config.for_component("kubelet"))?));
    identity::introduce(context, &client, node, &Purpose::Client, files)
        .await
        .context("the server gave this node no certificate")
}

/// Who we are once we have a certificate; its files are read again when they change.
pub fn config(server: &str, ca: &Path, files: &Files) -> Config {
    let (certificate, key) = (Pem::File(files.certificate.clone()), Pem::File(files.key.clone()));
    let proof = Proof { certificate: Some((certificate, key)), ..Proof::default() };
    Config::new(server, Believed::Authorities(Pem::File(ca.to_owned())), proof)
}

/// SHA-256 of a certificate's public key, as kubeadm's tokens have it.
pub fn hash(certificate: &[u8]) -> anyhow::Result<String> {
    let read = api::x509::certificate(certificate).map_err(|error| anyhow::anyhow!(error))?;
    let digest = Sha256::digest(read.key.der());
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The last certificate of those that a server shows. Nothing is said to it.
async fn authority_of(server: &str) -> anyhow::Result<Vec<u8>> {
    let url: http::Uri = server.parse().with_context(|| format!("{server} is no address"))?;
    let host = url.host().with_context(|| format!("{server} names no host"))?;
    let host = host.trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host.as_str(), url.port_u16().unwrap_or(6443)))
        .await
        .with_context(|| format!("failed to reach {server}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let looker = Arc::new(Looker { provider: provider.clone(), shown: Mutex::default() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(looker.clone())
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(ServerName::try_from(host)?, stream).await?;
    let shown = looker.shown.lock().map_err(|_| anyhow::anyhow!("nobody else has it"))?.clone();
    ensure!(!shown.is_empty(), "{server} shows no CA behind its certificate");
    Ok(shown)
}

/// Looks at what a server shows; whether it is right is decided by the hash, before anything is said.
#[derive(Debug)]
struct Looker {
    provider: Arc<CryptoProvider>,
    shown: Mutex<Vec<u8>>,
}

impl ServerCertVerifier for Looker {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let (Some(last), Ok(mut shown)) = (intermediates.last(), self.shown.lock()) {
            *shown = last.to_vec();
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_three_parts() {
        let hash = "ab".repeat(32);
        let text = format!("{hash}.abcdef.0123456789abcdef");
        assert_eq!(text.parse::<Token>().unwrap().to_string(), text);
        for wrong in ["", "abcdef.0123456789abcdef", "x.abcdef.0123456789abcdef"] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
    }
}
