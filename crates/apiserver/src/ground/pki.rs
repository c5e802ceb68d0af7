//! A private PKI, made on first start and kept alive: CAs, the server's certificates, the
//! administrator's.
//!
//! Keys are ECDSA and readable by their owner only. A certificate is made again long before it
//! ends, and also when it is not valid at all, because it ran out while nobody looked or the
//! machine's clock was wrong when it was made. A CA keeps its key when it is made again, so that
//! what it has signed, and what others have of it, stays good. Whoever serves with these files
//! looks at them again ([`crate::ground::tls`]): nothing has to be restarted.
use crate::ground::tls::Pair;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use std::borrow::Cow;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("failed to read {path}")]
    Read { path: String, source: std::io::Error },
    #[error("failed to write {path}")]
    Write { path: String, source: std::io::Error },
}

/// The files of the PKI in a folder; upstream's names.
pub struct Pki {
    folder: PathBuf,
    /// Where servers are found, beside this machine's own addresses.
    addresses: Vec<IpAddr>,
    /// Names that the API server is found by, beside those that every one has.
    names: Vec<String>,
    /// The node that is this machine, if it is one.
    node: Option<String>,
}

const CA: &str = "ca";
const FRONT_PROXY_CA: &str = "front-proxy-ca";

/// The CAs: the file, and the name that they sign with.
const AUTHORITIES: &[(&str, &str)] =
    &[(CA, "kubernetes"), (FRONT_PROXY_CA, "kubernetes-front-proxy-ca")];

/// How often certificates are looked at: they are renewed months before they end.
const LOOK: Duration = Duration::from_secs(60 * 60);

const AUTHORITY_DAYS: i64 = 3650;
const CERTIFICATE_DAYS: i64 = 365;

/// A certificate of the PKI.
#[derive(Clone)]
struct Row {
    file: &'static str,
    authority: &'static str,
    name: Cow<'static, str>,
    organization: Option<&'static str>,
    usage: ExtendedKeyUsagePurpose,
}

const SUPERUSERS: Option<&str> = Some("system:masters");
const NODES: Option<&str> = Some("system:nodes");

/// What the server shows to kubelets is worth `system:kubelet-api-admin` and no more (`roles.txt`):
/// whoever is passed on to a node's address must not find the API server there as its own master.
#[rustfmt::skip]
const CERTIFICATES: &[Row] = &[
    Row { file: "apiserver", authority: CA, name: Cow::Borrowed("kube-apiserver"), organization: None, usage: ExtendedKeyUsagePurpose::ServerAuth },
    Row { file: "apiserver-kubelet-client", authority: CA, name: Cow::Borrowed("kube-apiserver-kubelet-client"), organization: None, usage: ExtendedKeyUsagePurpose::ClientAuth },
    Row { file: "apiserver-etcd-client", authority: CA, name: Cow::Borrowed("kube-apiserver-etcd-client"), organization: None, usage: ExtendedKeyUsagePurpose::ClientAuth },
    Row { file: "front-proxy-client", authority: FRONT_PROXY_CA, name: Cow::Borrowed("front-proxy-client"), organization: None, usage: ExtendedKeyUsagePurpose::ClientAuth },
    Row { file: "metrics-server", authority: CA, name: Cow::Borrowed("metrics-server"), organization: None, usage: ExtendedKeyUsagePurpose::ServerAuth },
    Row { file: "admin", authority: CA, name: Cow::Borrowed("kubernetes-admin"), organization: SUPERUSERS, usage: ExtendedKeyUsagePurpose::ClientAuth },
    Row { file: "controller-manager", authority: CA, name: Cow::Borrowed("system:kube-controller-manager"), organization: None, usage: ExtendedKeyUsagePurpose::ClientAuth },
    Row { file: "scheduler", authority: CA, name: Cow::Borrowed("system:kube-scheduler"), organization: None, usage: ExtendedKeyUsagePurpose::ClientAuth },
    Row { file: "proxy", authority: CA, name: Cow::Borrowed("system:kube-proxy"), organization: None, usage: ExtendedKeyUsagePurpose::ClientAuth },
];

impl Pki {
    /// Opens the PKI in a folder, or makes it there.
    pub fn open(folder: &Path) -> Result<Pki, Error> {
        Pki::open_for(folder, &[])
    }

    /// The same, for servers that are also found at these addresses.
    pub fn open_for(folder: &Path, addresses: &[IpAddr]) -> Result<Pki, Error> {
        let named = addresses.iter().copied().filter(|address| !address.is_unspecified());
        let addresses = named.collect();
        let pki = Pki { folder: folder.to_owned(), addresses, names: Vec::new(), node: None };
        let written = |source| Error::Write { path: folder.display().to_string(), source };
        std::fs::create_dir_all(folder).map_err(written)?;
        pki.renew(Timestamp::now())?;
        Ok(pki)
    }

    /// The API server is also found by these names.
    pub fn with_names(self, names: &[String]) -> Result<Pki, Error> {
        let pki = Pki { names: names.to_vec(), ..self };
        pki.renew(Timestamp::now())?;
        Ok(pki)
    }

    /// This machine is a node: its kubelet serves as `kubelet` and asks as `kubelet-client`.
    pub fn with_node(self, name: &str) -> Result<Pki, Error> {
        let pki = Pki { node: Some(name.to_owned()), ..self };
        pki.renew(Timestamp::now())?;
        Ok(pki)
    }

    /// The PKI that is in a folder, as the certificates in it say: for whom, and found where.
    pub fn existing(folder: &Path) -> Result<Pki, Error> {
        let (addresses, names) = (Vec::new(), Vec::new());
        let mut pki = Pki { folder: folder.to_owned(), addresses, names, node: None };
        pki.read("ca.key")?;
        let of = |file: &str| shown(&folder.join(format!("{file}.crt")));
        if let Some(shown) = of("apiserver") {
            (pki.addresses, pki.names) = (shown.addresses, shown.names);
        }
        let node = of("kubelet")
            .and_then(|shown| Some(shown.name.strip_prefix("system:node:")?.to_owned()));
        pki.node = node;
        Ok(pki)
    }

    /// What the certificates of this PKI say, the authorities' first.
    pub fn certificates(&self) -> Vec<Shown> {
        let files = AUTHORITIES.iter().map(|(file, _)| *file);
        let rows = self.rows();
        let files = files.chain(rows.iter().map(|row| row.file));
        files.filter_map(|file| shown(&self.folder.join(format!("{file}.crt")))).collect()
    }

    /// Where the API server is found, as its certificate says.
    pub fn servers(&self) -> Vec<IpAddr> {
        shown(&self.folder.join("apiserver.crt")).map(|shown| shown.addresses).unwrap_or_default()
    }

    /// Makes certificates again although they are good: those that are named, or all. The authorities
    /// stay as they are, and with them everything that others have signed by them.
    pub fn reissue(&self, files: &[String], now: Timestamp) -> Result<Vec<&'static str>, Error> {
        let mut made = Vec::new();
        for (file, name) in AUTHORITIES {
            let issuer = Issuer::new(authority(name, now)?, self.key(file)?.0);
            for row in self.rows().iter().filter(|row| row.authority == *file) {
                if files.is_empty() || files.iter().any(|name| name == row.file) {
                    self.issue(row, &self.addresses_of(row), &issuer, now)?;
                    made.push(row.file);
                }
            }
        }
        Ok(made)
    }

    fn rows(&self) -> Vec<Row> {
        let of_node = self.node.iter().flat_map(|node| {
            let usages = [
                ("kubelet", ExtendedKeyUsagePurpose::ServerAuth),
                ("kubelet-client", ExtendedKeyUsagePurpose::ClientAuth),
            ];
            let name: Cow<'static, str> = Cow::Owned(format!("system:node:{node}"));
            usages.map(|(file, usage)| Row {
                file,
                authority: CA,
                name: name.clone(),
                organization: NODES,
                usage,
            })
        });
        CERTIFICATES.iter().cloned().chain(of_node).collect()
    }

    /// Makes what is missing, not valid now, or about to end. Returns whether that was anything.
    pub fn renew(&self, now: Timestamp) -> Result<bool, Error> {
        if !self.service_account_key().exists() {
            self.write("sa.key", &KeyPair::generate()?.serialize_pem())?;
        }
        // By kubeadm's name, for upstream's API server, which finds no public key in a private one.
        let public = self.folder.join("sa.pub");
        let key = std::fs::read_to_string(self.service_account_key()).unwrap_or_default();
        if let Ok(key) = KeyPair::from_pem(&key)
            && std::fs::read_to_string(public).ok() != Some(key.public_key_pem())
        {
            self.write("sa.pub", &key.public_key_pem())?;
        }
        let mut renewed = false;
        for (file, name) in AUTHORITIES {
            let (key, is_new) = self.key(file)?;
            let issuer = Issuer::new(authority(name, now)?, key);
            if is_new || !self.is_good(file, now, (name, None), &[]) {
                let certificate = authority(name, now)?.self_signed(issuer.key())?;
                self.write(&format!("{file}.crt"), &certificate.pem())?;
                renewed = true;
            }
            for row in self.rows().iter().filter(|row| row.authority == *file) {
                let addresses = self.addresses_of(row);
                let subject = (&*row.name, row.organization);
                let is_good = self.is_good(row.file, now, subject, &addresses)
                    && (row.file != "apiserver" || self.is_named(row.file));
                if is_new || !is_good {
                    self.issue(row, &addresses, &issuer, now)?;
                    renewed = true;
                }
            }
        }
        Ok(renewed)
    }

    /// Renews for as long as the process runs, and says when it did. Servers read the files again by
    /// themselves.
    pub async fn keep(&self, renewed: impl Fn(&Pki) -> Result<(), Error>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let outcome = match self.renew(Timestamp::now()) {
                Ok(true) => renewed(self),
                other => other.map(drop),
            };
            if let Err(error) = outcome {
                tracing::error!(%error, "failed to renew certificates");
            }
        }
    }

    /// The key of a CA, and whether it was made just now.
    fn key(&self, file: &str) -> Result<(KeyPair, bool), Error> {
        let path = self.folder.join(format!("{file}.key"));
        match std::fs::read_to_string(&path) {
            Ok(pem) => Ok((KeyPair::from_pem(&pem)?, false)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let key = KeyPair::generate()?;
                self.write(&format!("{file}.key"), &key.serialize_pem())?;
                Ok((key, true))
            }
            Err(source) => Err(Error::Read { path: path.display().to_string(), source }),
        }
    }

    /// Whether a certificate is there with its key, valid now, for two thirds of its time at most, for
    /// whom it should be, and for these addresses.
    fn is_good(
        &self,
        file: &str,
        now: Timestamp,
        (name, organization): (&str, Option<&str>),
        addresses: &[IpAddr],
    ) -> bool {
        let path = |extension: &str| self.folder.join(format!("{file}.{extension}"));
        let Ok(pem) = std::fs::read(path("crt")) else { return false };
        let Ok((_, block)) = x509_parser::pem::parse_x509_pem(&pem) else { return false };
        let Ok((_, parsed)) = X509Certificate::from_der(&block.contents) else { return false };
        let (start, end) =
            (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
        let now = now.as_second();
        let is_current = start <= now && now < end - (end - start) / 3;
        let subject = parsed.subject();
        let is_whose = subject.iter_common_name().map(|found| found.as_str().ok()).eq([Some(name)])
            && subject
                .iter_organization()
                .map(|found| found.as_str().ok())
                .eq(organization.map(Some));
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.map_or(&[][..], |extension| &extension.value.general_names);
        let is_for = |address: &IpAddr| {
            let octets = match address {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            };
            names.iter().any(|name| matches!(name, GeneralName::IPAddress(ip) if *ip == octets))
        };
        path("key").exists() && is_current && is_whose && addresses.iter().all(is_for)
    }

    /// Whether a certificate has the names that were asked for.
    fn is_named(&self, file: &str) -> bool {
        let shown = shown(&self.folder.join(format!("{file}.crt")));
        shown.is_some_and(|shown| self.names.iter().all(|name| shown.names.contains(name)))
    }

    /// Where a server is found. The service of the API server has the first address of the default
    /// network.
    fn addresses_of(&self, row: &Row) -> Vec<IpAddr> {
        if !row.is_server() {
            return Vec::new();
        }
        let local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let service = (row.file == "apiserver").then(|| Ipv4Addr::new(10, 96, 0, 1).into());
        let mut all: Vec<IpAddr> = local.into_iter().chain(service).chain(own_address()).collect();
        all.extend(
            self.addresses
                .iter()
                .filter(|address| !all.contains(address))
                .copied()
                .collect::<Vec<_>>(),
        );
        all
    }

    fn names_of(&self, row: &Row) -> Vec<String> {
        const API_SERVER: [&str; 5] = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        const METRICS_SERVER: [&str; 2] =
            ["metrics-server.kube-system.svc", "metrics-server.kube-system.svc.cluster.local"];
        match (row.is_server(), &self.node) {
            (false, _) => Vec::new(),
            (true, Some(node)) if row.file == "kubelet" => vec![node.clone()],
            (true, _) if row.file == "metrics-server" => METRICS_SERVER.map(String::from).to_vec(),
            (true, _) => {
                let mut names = API_SERVER.map(String::from).to_vec();
                let more = self.names.iter().filter(|name| !API_SERVER.contains(&name.as_str()));
                names.extend(more.cloned());
                names
            }
        }
    }

    fn issue(
        &self,
        row: &Row,
        addresses: &[IpAddr],
        issuer: &Issuer<'_, KeyPair>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mut params = CertificateParams::new(self.names_of(row))?;
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.distinguished_name.push(DnType::CommonName, &*row.name);
        if let Some(organization) = row.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![row.usage.clone()];
        params.use_authority_key_identifier_extension = true;
        for_days(&mut params, now, CERTIFICATE_DAYS);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, issuer)?;
        // A server shows its CA too: whoever knows the CA by its hash alone can check it.
        let chain = match row.is_server() {
            true => self.read(&format!("{}.crt", row.authority))?,
            false => String::new(),
        };
        // The certificate last: whoever looks for a change looks at it.
        self.write(&format!("{}.key", row.file), &key.serialize_pem())?;
        self.write(&format!("{}.crt", row.file), &(certificate.pem() + &chain))
    }

    fn read(&self, name: &str) -> Result<String, Error> {
        let path = self.folder.join(name);
        let failed = |source| Error::Read { path: path.display().to_string(), source };
        std::fs::read_to_string(&path).map_err(failed)
    }

    fn write(&self, name: &str, pem: &str) -> Result<(), Error> {
        let path = self.folder.join(name);
        write_private(&path, pem)
            .map_err(|source| Error::Write { path: path.display().to_string(), source })
    }

    /// The CA of front proxies.
    pub fn front_proxy_ca(&self) -> PathBuf {
        self.folder.join("front-proxy-ca.crt")
    }

    /// The CA with its key, for whoever signs with it.
    pub fn authority(&self) -> Pair {
        self.pair(CA)
    }

    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.crt")
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

    /// A kubeconfig for whom a client's certificate is, with everything in it.
    pub fn write_kubeconfig(&self, path: &Path, server: &str, client: &str) -> Result<(), Error> {
        let failed = |source| Error::Write { path: path.display().to_string(), source };
        let read = |name: &str| {
            use base64::Engine as _;
            let bytes = std::fs::read(self.folder.join(name)).map_err(failed)?;
            Ok::<_, Error>(base64::engine::general_purpose::STANDARD.encode(bytes))
        };
        let user = format!("skiff-{client}");
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "skiff",
            "clusters": [{ "name": "skiff", "cluster": {
                "server": server, "certificate-authority-data": read("ca.crt")? } }],
            "users": [{ "name": user, "user": {
                "client-certificate-data": read(&format!("{client}.crt"))?,
                "client-key-data": read(&format!("{client}.key"))? } }],
            "contexts": [{ "name": "skiff", "context": { "cluster": "skiff", "user": user } }],
        });
        write_private(path, &api::codec::yaml::encode(&config)).map_err(failed)
    }
}

/// What a certificate says.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The file's name without its ending.
    pub file: String,
    /// The common name of whom it is for, and of who signed it.
    pub name: String,
    pub issuer: String,
    pub ends: Timestamp,
    pub addresses: Vec<IpAddr>,
    pub names: Vec<String>,
}

/// Reads the first certificate of a file.
pub fn shown(path: &Path) -> Option<Shown> {
    let pem = std::fs::read(path).ok()?;
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let (_, parsed) = X509Certificate::from_der(&block.contents).ok()?;
    let common = |name: &x509_parser::x509::X509Name<'_>| {
        let first = name.iter_common_name().next()?;
        Some(first.as_str().ok()?.to_owned())
    };
    let names = parsed.subject_alternative_name().ok().flatten();
    let names = names.map_or(&[][..], |extension| &extension.value.general_names);
    let address = |name: &GeneralName<'_>| match name {
        GeneralName::IPAddress(octets) => match octets.len() {
            4 => <[u8; 4]>::try_from(*octets).ok().map(IpAddr::from),
            16 => <[u8; 16]>::try_from(*octets).ok().map(IpAddr::from),
            _ => None,
        },
        _ => None,
    };
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    };
    Some(Shown {
        file: path.file_stem()?.to_string_lossy().into_owned(),
        name: common(parsed.subject()).unwrap_or_default(),
        issuer: common(parsed.issuer()).unwrap_or_default(),
        ends: Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()?,
        addresses: names.iter().filter_map(address).collect(),
        names: names.iter().filter_map(dns).collect(),
    })
}

impl Row {
    fn is_server(&self) -> bool {
        self.usage == ExtendedKeyUsagePurpose::ServerAuth
    }
}

fn authority(name: &str, now: Timestamp) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    for_days(&mut params, now, AUTHORITY_DAYS);
    Ok(params)
}

const DAY: i64 = 24 * 60 * 60;

/// From yesterday, so that clocks may differ, for so many days.
fn for_days(params: &mut CertificateParams, now: Timestamp, days: i64) {
    let now = now.as_second();
    set_validity(params, now - DAY, now + days * DAY);
}

/// Valid between these seconds of the epoch.
fn set_validity(params: &mut CertificateParams, start: i64, end: i64) {
    let at = |second: i64| date_time_ymd(1970, 1, 1) + Duration::from_secs(second.max(0) as u64);
    (params.not_before, params.not_after) = (at(start), at(end));
}

/// A certificate that nobody else signed, and its key: what a server has that was given none. It is
/// kept in the folder and made again when it is about to end.
pub fn self_signed(folder: &Path, file: &str, names: &[String]) -> Result<Pair, Error> {
    let at = |ending: &str| folder.join(format!("{file}.{ending}"));
    let pair = Pair { certificate: at("crt"), key: at("key") };
    let now = Timestamp::now();
    let ends = std::fs::read(&pair.certificate).ok().and_then(|pem| {
        let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
        Some(pem.parse_x509().ok()?.validity().not_after.timestamp())
    });
    if pair.key.exists() && ends.is_some_and(|end| end > now.as_second() + RENEW_DAYS * DAY) {
        return Ok(pair);
    }
    let written = |source| Error::Write { path: folder.display().to_string(), source };
    std::fs::create_dir_all(folder).map_err(written)?;
    let mut params = CertificateParams::new(names)?;
    let name = names.first().map_or("localhost", String::as_str);
    params.distinguished_name.push(DnType::CommonName, format!("{name}@{}", now.as_second()));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for_days(&mut params, now, CERTIFICATE_DAYS);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    write_private(&pair.key, &key.serialize_pem()).map_err(written)?;
    write_private(&pair.certificate, &certificate.pem()).map_err(written)?;
    Ok(pair)
}

/// A self-signed certificate with less time left than this is made again.
const RENEW_DAYS: i64 = 30;

/// The address that this machine is known by to others, if it has one. Nothing is sent for that.
pub fn own_address() -> Option<IpAddr> {
    own_address_of(true).or_else(|| own_address_of(false))
}

/// The same of one address family. Nothing is sent: the addresses asked for are documentation's.
pub fn own_address_of(is_ipv4: bool) -> Option<IpAddr> {
    let (any, far): (IpAddr, IpAddr) = match is_ipv4 {
        true => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        false => (
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1).into(),
        ),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((far, 9)).ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::ToSpan;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_certificate_of_ones_own_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["node".to_owned(), "10.0.0.1".to_owned()];
        let pair = self_signed(folder.path(), "kubelet", &names).unwrap();
        let first = std::fs::read(&pair.certificate).unwrap();
        crate::ground::tls::server(&pair, &[]).expect("a server can use it");
        self_signed(folder.path(), "kubelet", &names).unwrap();
        assert_eq!(std::fs::read(&pair.certificate).unwrap(), first);
        // What cannot be read is made again.
        std::fs::write(&pair.certificate, "").unwrap();
        self_signed(folder.path(), "kubelet", &names).unwrap();
        assert!(std::fs::metadata(&pair.certificate).unwrap().len() > 0);
    }

    #[test]
    fn certificates_are_renewed_long_before_they_end_and_after() {
        let folder = tempfile::tempdir().expect("a folder");
        let pki = Pki::open(folder.path()).expect("a PKI");
        let read = |file: &str| std::fs::read(folder.path().join(file)).expect("a file");
        let now = Timestamp::now();
        let later = |days: i64| now.checked_add((days * 24).hours()).expect("a time");
        let (ca_key, admin) = (read("ca.key"), read("admin.crt"));
        let public = read("sa.pub");
        assert!(public.starts_with(b"-----BEGIN PUBLIC KEY-----"), "{public:?}");
        assert!(!pki.renew(now).expect("nothing to do"));
        assert!(!pki.renew(later(200)).expect("nothing to do"));
        assert_eq!(read("admin.crt"), admin);
        // The clock was wrong before, long before and long after.
        for days in [300, -1000, 0, 20_000, 0] {
            assert!(pki.renew(later(days)).expect("renewed"), "{days}");
            let admin = ("kubernetes-admin", SUPERUSERS);
            assert!(pki.is_good("admin", later(days), admin, &[]));
            assert!(pki.is_good("ca", later(days), ("kubernetes", None), &[]));
            assert!(!pki.renew(later(days)).expect("nothing to do"), "{days}");
        }
        assert_ne!(read("admin.crt"), admin);
        assert_eq!(read("ca.key"), ca_key);
        for entry in std::fs::read_dir(folder.path()).expect("a folder") {
            let entry = entry.expect("an entry");
            let mode = entry.metadata().expect("metadata").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{:?}", entry.path());
        }
    }

    #[test]
    fn a_certificate_for_somebody_or_somewhere_else_is_made_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let address: IpAddr = "192.0.2.7".parse().expect("an address");
        let pki = Pki::open(folder.path()).expect("a PKI");
        let server = ("kube-apiserver", None);
        assert!(!pki.is_good("apiserver", Timestamp::now(), server, &[address]));
        let pki = Pki::open_for(folder.path(), &[address, "0.0.0.0".parse().expect("an address")])
            .expect("a PKI");
        assert!(pki.is_good("apiserver", Timestamp::now(), server, &[address]));
        // As it was made before: a master's.
        for file in ["apiserver-kubelet-client.crt", "apiserver-kubelet-client.key"] {
            let master = file.replace("apiserver-kubelet-client", "admin");
            std::fs::copy(folder.path().join(master), folder.path().join(file)).expect("copied");
        }
        assert!(pki.renew(Timestamp::now()).expect("renewed"));
        let client = ("kube-apiserver-kubelet-client", None);
        assert!(pki.is_good("apiserver-kubelet-client", Timestamp::now(), client, &[]));
    }

    #[test]
    fn what_was_signed_before_is_good_under_a_renewed_ca() {
        let folder = tempfile::tempdir().expect("a folder");
        let pki = Pki::open(folder.path()).expect("a PKI");
        let admin = std::fs::read(folder.path().join("admin.crt")).expect("a certificate");
        std::fs::remove_file(pki.ca()).expect("removed");
        assert!(pki.renew(Timestamp::now()).expect("renewed"));
        let trust = crate::ground::tls::Trust::read(&pki.ca()).expect("a CA");
        let (_, block) = x509_parser::pem::parse_x509_pem(&admin).expect("PEM");
        trust.verify(&block.contents.into(), &[]).expect("still believed");
    }
}
