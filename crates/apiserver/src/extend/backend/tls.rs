//! Whom we believe to be the server that a configuration names.
use crate::ground::kubeconfig;
use crate::ground::towards::Tls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore};
use rustls::{DistinguishedName, SignatureScheme};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

const HTTP1: &[u8] = b"http/1.1";

/// TLS to a server that this bundle vouches for; an empty one leaves that to the machine's, and to
/// one that is believed whatever it shows. The client may show a certificate of its own.
pub fn client_config(
    bundle: &[u8],
    believes_anyone: bool,
    certificate: Option<Arc<dyn ResolvesClientCert>>,
) -> Result<ClientConfig, String> {
    let mut config = match bundle {
        _ if believes_anyone => of_anyone()?,
        [] => kubeconfig::trusting(None)?,
        bundle => of_bundle(bundle)?,
    };
    config.alpn_protocols = vec![HTTP1.to_vec()];
    if let Some(certificate) = certificate {
        config.client_auth_cert_resolver = certificate;
    }
    Ok(config)
}

fn of_anyone() -> Result<ClientConfig, String> {
    let config = Tls::Unverified.config().map_err(|error| error.to_string())?;
    Ok(Arc::unwrap_or_clone(config))
}

fn of_bundle(bundle: &[u8]) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let mut own = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok) {
        own.push(certificate.clone().into_owned());
        // One that cannot be an authority may still be the server's own.
        let _ = roots.add(certificate);
    }
    if own.is_empty() {
        // Go's words for a bundle with nothing in it.
        return Err("unable to load root certificates: unable to parse bytes as PEM block".into());
    }
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    if roots.is_empty() {
        return Err("unable to load root certificates: no authority in the bundle".into());
    }
    let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let authorities = authorities.build().map_err(|error| error.to_string())?;
    let verifier = Arc::new(Bundle { authorities, own });
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// A bundle of authorities, or of the very certificate that the server has: many make one that signs
/// itself and is its own authority, which Go takes and webpki alone does not.
#[derive(Debug)]
struct Bundle {
    authorities: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.own.contains(certificate) {
            return self.authorities.verify_server_cert(certificate, chain, name, ocsp, now);
        }
        let (_, read) = X509Certificate::from_der(certificate)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let valid = read.validity();
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if !(valid.not_before.timestamp()..=valid.not_after.timestamp()).contains(&seconds) {
            return Err(Error::InvalidCertificate(CertificateError::Expired));
        }
        let parsed = ParsedCertificate::try_from(certificate)?;
        rustls::client::verify_server_name(&parsed, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.authorities.root_hint_subjects()
    }
}
