//! Who a kubelet is: certificates that it asks the cluster for, and renews (`pkg/kubelet/certificate`).
//!
//! ```text
//!  a token ─► CertificateSigningRequest ─► the client's certificate ─► everything else
//!                                     ├──► the server's, once the Node says which addresses it has
//!                                     └──► that of whoever else runs here as somebody else
//! ```
//! Files are written whole; whoever uses them reads them again when they change.
mod csr;

pub use csr::{IdentityError, Purpose, Signed};

use client::{Client, Context, Informer};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A certificate and its key, in files.
#[derive(Debug, Clone)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Files of the certificates that a kubelet renews, as far as it does.
#[derive(Debug, Clone, Default)]
pub struct Renewed {
    pub client: Option<PathBuf>,
    pub server: Option<PathBuf>,
}

/// Seconds that are left to a certificate: fewer than none after its end, and without end if there is none that can
/// be read, as upstream tells it.
pub fn seconds_left(certificate: &Path, now: Timestamp) -> Option<i64> {
    let text = std::fs::read(certificate).ok()?;
    let block = api::pem::blocks(&text).next()?;
    let read = api::x509::certificate(&block.bytes).ok()?;
    Some(read.not_after.saturating_sub(now.as_second()))
}

/// After a failure: by then somebody may have approved it, or mended what was wrong.
const RETRY: Duration = Duration::from_secs(5);
/// A clock that stands still must not keep anybody busy.
const LEAST: Duration = Duration::from_secs(1);

impl Files {
    pub fn at(folder: &Path, name: &str) -> Files {
        let file = |ending: &str| folder.join(format!("{name}.{ending}"));
        Files { certificate: file("crt"), key: file("key") }
    }

    /// When the certificate wants to be renewed; `None` if there is none that is good.
    pub fn renewal(&self, now: Timestamp) -> Option<Timestamp> {
        let text = std::fs::read(&self.certificate).ok().filter(|_| self.key.exists())?;
        let block = api::pem::blocks(&text).next()?;
        let read = api::x509::certificate(&block.bytes).ok()?;
        let (start, end) = (read.not_before, read.not_after);
        // Upstream's is between seven and nine tenths of its life, too.
        let renewal = Timestamp::from_second(start + (end - start) / 10 * 8).ok()?;
        (end > now.as_second()).then_some(renewal)
    }

    fn keep(&self, signed: &Signed) -> std::io::Result<()> {
        if let Some(folder) = self.key.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // Upstream's kubelet has both in one file, the certificate first.
        if self.key == self.certificate {
            return write_private(&self.key, &format!("{}{}", signed.certificate, signed.key));
        }
        // The certificate last: whoever looks for a change looks at it.
        write_private(&self.key, &signed.key)?;
        write_private(&self.certificate, &signed.certificate)
    }
}

/// Asks for a certificate with whatever the client is now, unless there is a good one.
pub async fn introduce(
    context: &Context,
    client: &Client,
    node: &str,
    purpose: &Purpose,
    files: &Files,
) -> Result<(), IdentityError> {
    if files.renewal(context.now()).is_some() {
        return Ok(());
    }
    let signed = csr::request(context, client, node, purpose).await?;
    files.keep(&signed).map_err(|source| IdentityError::Keep(files.key.clone(), source))
}

/// Renews a client's certificate until the context stops.
pub async fn renew(context: Context, client: Client, node: String, purpose: Purpose, files: Files) {
    loop {
        let now = context.now();
        let wait = files.renewal(now).map_or(SignedDuration::ZERO, |at| at.duration_since(now));
        if !context.sleep(Duration::try_from(wait).unwrap_or_default().max(LEAST)).await {
            return;
        }
        if files.renewal(context.now()).is_some_and(|at| at > context.now()) {
            continue;
        }
        let signed = csr::request(&context, &client, &node, &purpose).await;
        pause_after(&context, &purpose, &files, signed).await;
    }
}

/// Asks for the server's certificate, for the addresses that the Node has, and renews it until the
/// context stops.
pub async fn keep_server(
    context: Context,
    client: Client,
    nodes: Informer<Node>,
    name: String,
    files: Files,
) {
    let mut asked: Option<Purpose> = None;
    loop {
        let node = nodes.get(&api::names::NamespacedName::new("", &name));
        let purpose = node.as_deref().and_then(csr::server_of);
        let now = context.now();
        let due = files.renewal(now).is_none_or(|at| at <= now);
        match purpose {
            Some(purpose) if due || asked.as_ref() != Some(&purpose) => {
                let signed = csr::request(&context, &client, &name, &purpose).await;
                if pause_after(&context, &purpose, &files, signed).await {
                    asked = Some(purpose);
                }
            }
            // The Node has no address yet, or there is nothing to do.
            _ => {
                let pause = if asked.is_none() { LEAST } else { 12 * RETRY };
                if !context.sleep(pause).await {
                    return;
                }
            }
        }
        if context.is_stopped() {
            return;
        }
    }
}

async fn pause_after(
    context: &Context,
    purpose: &Purpose,
    files: &Files,
    signed: Result<Signed, IdentityError>,
) -> bool {
    let kept = signed.and_then(|signed| {
        files.keep(&signed).map_err(|source| IdentityError::Keep(files.key.clone(), source))
    });
    if let Err(error) = &kept {
        tracing::warn!("failed to get a certificate: {error}");
        let counter = match purpose {
            Purpose::Client => Some("kubelet_certificate_manager_client_expiration_renew_errors"),
            Purpose::Server { .. } => Some("kubelet_server_expiration_renew_errors"),
            Purpose::Proxy => None,
        };
        counter.into_iter().for_each(|name| context.metrics().count(name, &[]));
        context.sleep(RETRY).await;
    }
    kept.is_ok()
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

    #[test]
    fn what_is_left_of_a_certificate_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubelet.crt");
        assert_eq!(seconds_left(&file, Timestamp::UNIX_EPOCH), None);
        std::fs::write(&file, "no certificate").unwrap();
        assert_eq!(seconds_left(&file, Timestamp::UNIX_EPOCH), None);
        let mut wanted = rcgen::CertificateParams::new(vec!["n1".to_owned()]).unwrap();
        wanted.not_after = rcgen::date_time_ymd(2026, 1, 2);
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(&file, wanted.self_signed(&key).unwrap().pem()).unwrap();
        let left = |now: &str| seconds_left(&file, now.parse().unwrap());
        assert_eq!(left("2026-01-01T00:00:00Z"), Some(86400));
        assert_eq!(left("2026-01-02T00:00:10Z"), Some(-10));
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_renewed_is_counted() {
        let registry = std::sync::Arc::new(client::Registry::default());
        let context = Context::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1)
            .with_metrics(registry.clone());
        let folder = tempfile::tempdir().unwrap();
        let files = Files::at(folder.path(), "kubelet");
        let server = Purpose::Server { names: Default::default(), addresses: Default::default() };
        for purpose in [Purpose::Client, server, Purpose::Proxy] {
            let late = Err(IdentityError::Late("csr-1".to_owned()));
            assert!(!pause_after(&context, &purpose, &files, late).await);
        }
        let text = registry.text();
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "kubelet_certificate_manager_client_expiration_renew_errors 1",
            "kubelet_server_expiration_renew_errors 1",
        ];
        assert_eq!(rows, expected);
    }
}
