//! A private PKI, made on first start: a CA, the server's certificate, the administrator's.
//!
//! Keys are ECDSA and readable by their owner only. The server trusts client certificates of this
//! CA and nothing else.
use crate::tls::Pair;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("failed to write {path}")]
    Write { path: String, source: std::io::Error },
}

/// The files of the PKI in a folder; upstream's names.
pub struct Pki {
    folder: PathBuf,
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
        // The service of the API server has the first address of the default network.
        let service = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1));
        let local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        for address in local.into_iter().chain([service]).chain(own_address()) {
            params.subject_alt_names.push(SanType::IpAddress(address));
        }
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params, &ca, "apiserver")?;

        self.write("sa.key", &KeyPair::generate()?.serialize_pem())?;
        // The administrator's last: its presence says that all is there.
        for (file, name) in [
            ("apiserver-kubelet-client", "kube-apiserver-kubelet-client"),
            ("admin", "kubernetes-admin"),
        ] {
            let mut params = CertificateParams::new(Vec::new())?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.distinguished_name.push(DnType::OrganizationName, "system:masters");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            self.issue(params, &ca, file)?;
        }
        Ok(())
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

    pub fn ca(&self) -> PathBuf {
        self.folder.join(CA)
    }

    /// The key that signs service accounts' tokens.
    pub fn service_account_key(&self) -> PathBuf {
        self.folder.join("sa.key")
    }

    /// A certificate of this PKI and its key: `apiserver`, `apiserver-kubelet-client`, `admin`.
    pub fn pair(&self, name: &str) -> Pair {
        let file = |extension: &str| self.folder.join(format!("{name}.{extension}"));
        Pair { certificate: file("crt"), key: file("key") }
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

/// The address that this machine is known by to others, if it has one. Nothing is sent for that.
pub fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    Some(address).filter(|address| !address.is_loopback() && !address.is_unspecified())
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
