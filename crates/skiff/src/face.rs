//! `skiff etcd`: the embedded store alone, in the place of an etcd of one member, with its flags. For tools
//! that bring an etcd along and want it quickly, such as the tests of operators.
use crate::alone::{Accepted, Upstreams};
use anyhow::Context as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use store::embedded::{self, Embedded};
use store::face::{Face, FaceTls, Listen};

#[derive(clap::Args)]
pub struct Options {
    /// Where the state is kept.
    #[arg(long, default_value = "default.etcd")]
    data_dir: PathBuf,
    /// Where clients are served: a loopback address, or `unix:///path`.
    #[arg(long, default_value = "http://localhost:2379")]
    listen_client_urls: String,
    /// The serving certificate.
    #[arg(long, requires = "key_file")]
    cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, requires = "cert_file")]
    key_file: Option<PathBuf>,
    /// Clients must show a certificate of this CA.
    #[arg(long, requires = "cert_file")]
    trusted_ca_file: Option<PathBuf>,
    /// Write faster, and lose what was written last if the power is cut.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        action = clap::ArgAction::Set, default_value_t = false)]
    unsafe_no_fsync: bool,
    #[command(flatten)]
    accepted: Accepted<OfEtcd>,
}

/// There is one member, so whatever is said of others has no effect.
pub struct OfEtcd;

impl Upstreams for OfEtcd {
    #[rustfmt::skip]
    const FLAGS: &[&str] = &[
        "name", "advertise-client-urls", "listen-peer-urls", "initial-advertise-peer-urls",
        "initial-cluster", "initial-cluster-state", "initial-cluster-token", "client-cert-auth",
        "peer-cert-file", "peer-key-file", "peer-trusted-ca-file", "peer-client-cert-auth",
        "snapshot-count", "heartbeat-interval", "election-timeout", "quota-backend-bytes",
        "auto-compaction-mode", "auto-compaction-retention", "log-level",
        "logger", "listen-metrics-urls", "max-request-bytes", "max-txn-ops",
        "experimental-initial-corrupt-check", "experimental-watch-progress-notify-interval",
        "feature-gates", "watch-progress-notify-interval",
    ];
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let stop = crate::stop_signal()?;
    options.accepted.warn();
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
    };
    let tls = match (&options.cert_file, &options.key_file) {
        (Some(certificate), Some(key)) => Some(FaceTls {
            certificate: read(certificate)?,
            key: read(key)?,
            client_ca: options.trusted_ca_file.as_ref().map(read).transpose()?,
        }),
        _ => None,
    };
    let settings = embedded::Options { is_durable: !options.unsafe_no_fsync, ..Default::default() };
    let engine = Embedded::open(&options.data_dir, settings)
        .with_context(|| format!("failed to open the store in {}", options.data_dir.display()))?;
    let face = Face::bind(listen(&options.listen_client_urls)?, tls).await?;
    println!("etcd's API is served at {}", face.url());
    face.serve(engine.clone(), stop).await?;
    engine.close().await;
    Ok(())
}

/// The first of the URLs.
fn listen(urls: &str) -> anyhow::Result<Listen> {
    let url = urls.split(',').next().unwrap_or_default();
    if let Some(path) = url.strip_prefix("unix://") {
        return Ok(Listen::Unix(path.into()));
    }
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host =
        host.with_context(|| format!("{url:?} begins with none of http://, https:// and unix://"))?;
    let host = host.trim_end_matches('/');
    let found: Vec<SocketAddr> = host
        .to_socket_addrs()
        .with_context(|| format!("{host} is no address with a port"))?
        .collect();
    // A name may mean both families; clients try the old one first.
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    Ok(Listen::Tcp(*first.with_context(|| format!("{host} leads nowhere"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_served_where_etcd_would_serve_them() {
        let shown = |urls: &str| format!("{:?}", listen(urls).unwrap());
        assert_eq!(shown("http://127.0.0.1:2379,http://10.0.0.1:2379"), "Tcp(127.0.0.1:2379)");
        assert_eq!(shown("https://[::1]:7/"), "Tcp([::1]:7)");
        assert_eq!(shown("unix:///run/x"), "Unix(\"/run/x\")");
        for wrong in ["", "127.0.0.1:2379", "http://127.0.0.1"] {
            assert!(listen(wrong).is_err(), "{wrong}");
        }
    }
}
