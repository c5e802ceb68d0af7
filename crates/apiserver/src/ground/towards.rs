//! TLS towards those who answer for us.
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;

/// How sure the server is of whom it talks to.
#[derive(Clone)]
pub enum Tls {
    /// A kubelet: with the server's own certificate, and the kubelet's checked.
    Kubelet(Arc<ClientConfig>),
    /// A server beside this one: with whatever its APIService says of it.
    Verified(Arc<ClientConfig>),
    /// A pod or service: nobody says what its certificate should be, so it only encrypts.
    Unverified,
}

impl Tls {
    pub fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        match self {
            Tls::Kubelet(config) | Tls::Verified(config) => Ok(config.clone()),
            Tls::Unverified => {
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let config = ClientConfig::builder_with_provider(provider.clone())
                    .with_safe_default_protocol_versions()?
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
                    .with_no_client_auth();
                Ok(Arc::new(config))
            }
        }
    }
}

/// Takes any certificate, but not a forged handshake.
#[derive(Debug)]
pub struct Anyone(pub Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
