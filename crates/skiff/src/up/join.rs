//! How a machine comes to trust a cluster, and the cluster the machine.
//!
//! The server shows its CA behind its own certificate. The token carries the hash of that CA's public
//! key, so what is shown can be checked before anything is said. A token without that hash, as kubeadm's are,
//! is checked otherwise: the cluster signs with every token what it says of itself to everybody
//! (`kube-public/cluster-info`), and nobody can who does not know the token. It is not shown to anybody before.
use anyhow::{Context as _, anyhow, bail, ensure};
use api::pem;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use client::http::tls::{Believed, Pem};
use client::https::{Config, Https, Proof};
use client::source::Raw;
use client::{Client, Context, Source as _};
use kubelet::identity::{self, Files, Purpose};
use ring::hmac;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpStream;

/// `HASH.ID.SECRET`: the CA's hash, and a bootstrap token; `ID.SECRET` is the token alone.
#[derive(Debug, PartialEq)]
pub struct Token {
    pub authority: Option<String>,
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
                let authority = Some(authority.to_owned());
                Ok(Token { authority, id: id.into(), secret: secret.into() })
            }
            [id, secret] if is_of(id, 6) && is_of(secret, 16) => {
                Ok(Token { authority: None, id: id.into(), secret: secret.into() })
            }
            _ => bail!("this is no token to join with: `skiff token create` prints one"),
        }
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(authority) = &self.authority {
            write!(f, "{authority}.")?;
        }
        write!(f, "{}.{}", self.id, self.secret)
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
    let authority = match &token.authority {
        Some(authority) => {
            let shown = authority_of(server).await?;
            ensure!(
                hash(&shown)? == *authority,
                "{server} is of another cluster than the token: its CA has another hash"
            );
            pem::encode("CERTIFICATE", &shown)
        }
        None => signed_authority(context, server, token).await?,
    };
    if let Some(folder) = ca.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(ca, authority)?;
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

/// A token that was just made signs a moment later.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);
/// What a stranger says is read up to here.
const LARGEST: usize = 1 << 20;

/// The CA, PEM, as the cluster says it to everybody and has signed it with the token.
async fn signed_authority(
    context: &Context,
    server: &str,
    token: &Token,
) -> anyhow::Result<String> {
    let stranger = Config::new(server, Believed::Anyone, Proof::default());
    let source = Https::new(context, stranger.for_component("skiff-join"))?;
    let path = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    for _ in 0..TRIES {
        let told = |status: api::status::Status| anyhow!("{server}: {}", status.message);
        let answer = source.raw(Raw::get(path)).await.map_err(told)?;
        let answer = answer.at_most(LARGEST).await.map_err(told)?;
        let info: Value = serde_json::from_slice(&answer)?;
        if let Some(signature) = info["data"][format!("jws-kubeconfig-{}", token.id)].as_str() {
            let content = info["data"]["kubeconfig"].as_str().unwrap_or_default();
            ensure!(
                is_signed(content, signature, token),
                "{server} does not know the token: it may be another cluster"
            );
            let kubeconfig: Value = serde_saphyr::from_str(content)?;
            let authority = &kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"];
            let authority = STANDARD.decode(authority.as_str().unwrap_or_default())?;
            return Ok(String::from_utf8(authority)?);
        }
        if !context.sleep(PAUSE).await {
            break;
        }
    }
    bail!(
        "{server} has not signed anything with the token: it may have ended, or be of another cluster; \
         `skiff token create` there prints another"
    )
}

/// Whether somebody who knows the token has signed that (a JSON Web Signature without its content).
fn is_signed(content: &str, signature: &str, token: &Token) -> bool {
    let Some((header, tag)) = signature.split_once("..") else { return false };
    let read = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let (Some(said), Some(tag)) = (read(header), read(tag)) else { return false };
    let said: Value = serde_json::from_slice(&said).unwrap_or_default();
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret.as_bytes());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    said["alg"] == "HS256"
        && said["kid"] == *token.id
        && hmac::verify(&key, signed.as_bytes(), &tag).is_ok()
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
    fn a_token_is_three_parts_or_the_last_two_of_them() {
        let hash = "ab".repeat(32);
        let text = format!("{hash}.abcdef.0123456789abcdef");
        assert_eq!(text.parse::<Token>().unwrap().to_string(), text);
        let short = "abcdef.0123456789abcdef".parse::<Token>().unwrap();
        assert_eq!((short.authority.as_deref(), &*short.id), (None, "abcdef"));
        assert_eq!(short.to_string(), "abcdef.0123456789abcdef");
        for wrong in ["", "abcdef", "abcdef.0123456789ABCDEF", "x.abcdef.0123456789abcdef"] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
    }

    /// The signature is that of upstream's test (`cluster-bootstrap/token/jws`).
    #[test]
    fn only_who_knows_the_token_can_have_signed() {
        let text = "Hello from the other side. I must have called a thousand times.";
        let token = |secret: &str, id: &str| Token {
            authority: None,
            id: id.to_owned(),
            secret: secret.to_owned(),
        };
        let signature =
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8";
        assert!(is_signed(text, signature, &token("my voice is my passcode", "joshua")));
        assert!(!is_signed("another", signature, &token("my voice is my passcode", "joshua")));
        assert!(!is_signed(text, signature, &token("another", "joshua")));
        assert!(!is_signed(text, signature, &token("my voice is my passcode", "other")));
        for wrong in ["", "..", "a..b"] {
            assert!(
                !is_signed(text, wrong, &token("my voice is my passcode", "joshua")),
                "{wrong}"
            );
        }
    }
}
