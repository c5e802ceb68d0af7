//! A private PKI, made on first start: a CA, the server's certificate, the administrator's.
//!
//! Keys are ECDSA and readable by their owner only. The server trusts client certificates of this
//! CA and nothing else.
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("failed to write {path}")]
    Write { path: String, source: std::io::Error },
    #[error("failed to read {path}; delete the folder to have the certificates made anew")]
    Read { path: String, source: rustls::pki_types::pem::Error },
    #[error("failed to set up TLS: {0}")]
    Tls(String),
}

/// The files of the PKI in a folder; upstream's names.
pub struct Pki {
    folder: std::path::PathBuf,
}

const CA: &str = "ca.crt";

impl Pki {
    /// Opens the PKI in a folder, or makes it there.
    pub fn open(folder: &Path) -> Result<Pki, Error> {
        let pki = Pki { folder: folder.to_owned() };
        if !folder.join("admin.key").exists() {
            pki.make()?;
        }
        Ok(pki)
    }

    fn make(&self) -> Result<(), Error> {
        let written = |source| Error::Write { path: self.folder.display().to_string(), source };
        std::fs::create_dir_all(&self.folder).map_err(written)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        self.write(CA, &ca.pem())?;
        self.write("ca.key", &ca.key().serialize_pem())?;

        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(String::from).to_vec())?;
        for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            params.subject_alt_names.push(SanType::IpAddress(address));
        }
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params, &ca, "apiserver")?;

        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "kubernetes-admin");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        // Last, so that its presence says that all is there.
        self.issue(params, &ca, "admin")
    }

    fn issue(
        &self,
        params: CertificateParams,
        ca: &CertifiedIssuer<'_, KeyPair>,
        name: &str,
    ) -> Result<(), Error> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, ca)?;
        self.write(&format!("{name}.crt"), &certificate.pem())?;
        self.write(&format!("{name}.key"), &key.serialize_pem())
    }

    fn write(&self, name: &str, pem: &str) -> Result<(), Error> {
        let path = self.folder.join(name);
        write_private(&path, pem)
            .map_err(|source| Error::Write { path: path.display().to_string(), source })
    }

    pub fn server_config(&self) -> Result<Arc<ServerConfig>, Error> {
        let tls = |error: &dyn std::fmt::Display| Error::Tls(error.to_string());
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate(CA)?).map_err(|e| tls(&e))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .build()
                .map_err(|e| tls(&e))?;
        let path = self.folder.join("apiserver.key");
        let key = PrivateKeyDer::from_pem_file(&path)
            .map_err(|source| Error::Read { path: path.display().to_string(), source })?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| tls(&e))?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![self.certificate("apiserver.crt")?], key)
            .map_err(|e| tls(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn certificate(&self, name: &str) -> Result<CertificateDer<'static>, Error> {
        let path = self.folder.join(name);
        CertificateDer::from_pem_file(&path)
            .map_err(|source| Error::Read { path: path.display().to_string(), source })
    }

    /// A kubeconfig for the administrator, with everything in it.
    pub fn write_kubeconfig(&self, path: &Path, server: &str) -> Result<(), Error> {
        let failed = |source| Error::Write { path: path.display().to_string(), source };
        let read = |name: &str| {
            use base64::Engine as _;
            let bytes = std::fs::read(self.folder.join(name)).map_err(failed)?;
            Ok::<_, Error>(base64::engine::general_purpose::STANDARD.encode(bytes))
        };
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "skiff",
            "clusters": [{ "name": "skiff", "cluster": {
                "server": server, "certificate-authority-data": read(CA)? } }],
            "users": [{ "name": "skiff-admin", "user": {
                "client-certificate-data": read("admin.crt")?, "client-key-data": read("admin.key")? } }],
            "contexts": [{ "name": "skiff", "context": { "cluster": "skiff", "user": "skiff-admin" } }],
        });
        write_private(path, &api::codec::yaml::encode(&config)).map_err(failed)
    }
}

/// Written whole or not at all, readable by its owner only.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    let _ = std::fs::remove_file(&temporary);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}
