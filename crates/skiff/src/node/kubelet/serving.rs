//! How the kubelet is reached: its certificate, whom it believes, its ports.
use crate::alone::Strong;
use ::apiserver::pki;
use ::apiserver::tls::{self, Pair, Strength, Trust};
use kubelet::ServerConfig;
use kubelet::server::Authorization;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Serving {
    /// Whether the kubelet serves at all.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    enable_server: bool,
    /// The address that the kubelet serves on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    address: IpAddr,
    /// The port that the kubelet serves on; 0 takes a free one, which the Node tells.
    #[arg(long, default_value_t = 10250)]
    port: u16,
    /// The kubelet's certificate; without one it signs its own.
    #[arg(long, requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    #[arg(long, requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Where a certificate is kept that the kubelet signed itself.
    #[arg(long, default_value = "/var/lib/kubelet/pki")]
    pub cert_dir: PathBuf,
    /// The CA of clients' certificates.
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
    /// Whether those are served who do not say who they are.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    anonymous_auth: bool,
    /// Whether the API server is asked whose a token is.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    authentication_token_webhook: bool,
    /// Whether the API server is asked what a client may do.
    #[arg(long, value_enum, default_value = "Webhook")]
    authorization_mode: Mode,
    /// A port for `/healthz`; 0 for none.
    #[arg(long, default_value_t = 10248)]
    healthz_port: u16,
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    healthz_bind_address: IpAddr,
    /// A port for pods, stats and metrics that everybody may read; 0 for none.
    #[arg(long, default_value_t = 0)]
    read_only_port: u16,
    /// Whether commands can be run in containers through this kubelet, and logs and what runs be read.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    enable_debugging_handlers: bool,
    /// Whether `/logs/` shows the files of `/var/log`.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    enable_system_log_handler: bool,
    /// Whether `/logs/?query=` shows the journals of the machine's services.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    enable_system_log_query: bool,
    #[command(flatten)]
    strong: Strong,
}

#[derive(Clone, Copy, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Mode {
    AlwaysAllow,
    Webhook,
}

/// With a certificate and a CA from files, which are read again when they change, on upstream's
/// ports.
pub fn serving(pair: &Pair, client_ca: Option<&Path>) -> Result<ServerConfig, tls::Error> {
    serving_as(pair, client_ca, &Strength::default())
}

fn serving_as(
    pair: &Pair,
    client_ca: Option<&Path>,
    strength: &Strength,
) -> Result<ServerConfig, tls::Error> {
    let trust = client_ca.map(Trust::read).transpose()?;
    let believed: Vec<&Trust> = trust.iter().collect();
    // HTTP/2 is among what it offers, as upstream's does: upstream's API server hands a log on to a WebSocket
    // whole only if its end comes apart from its bytes (`wsstream.messageCopy`), which HTTP/1.1 does not promise.
    // Whoever asks for a stream, which takes over its connection, offers HTTP/1.1 alone.
    let tls = tls::server_as(pair, &believed, strength)?;
    let believes = trust.map(|trust| -> kubelet::server::Believes {
        Arc::new(move |certificate, others| trust.verify(certificate, others).is_ok())
    });
    Ok(ServerConfig::new(tls, believes))
}

impl Serving {
    /// Nothing: it is not to be reached.
    pub fn config(&self, node: &str, address: IpAddr) -> anyhow::Result<Option<ServerConfig>> {
        if !self.enable_server {
            return Ok(None);
        }
        let pair = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                Pair { certificate: certificate.clone(), key: key.clone() }
            }
            _ => {
                let names = [node.to_owned(), address.to_string(), "127.0.0.1".to_owned()];
                pki::self_signed(&self.cert_dir, "kubelet", &names)?
            }
        };
        Ok(Some(ServerConfig {
            // On every address of the node's own family, if nothing else was said.
            address: match (self.address.is_unspecified(), address) {
                (true, IpAddr::V6(_)) => std::net::Ipv6Addr::UNSPECIFIED.into(),
                _ => self.address,
            },
            port: self.port,
            anonymous_auth: self.anonymous_auth,
            authorization: match self.authorization_mode {
                Mode::AlwaysAllow => Authorization::AlwaysAllow,
                Mode::Webhook => Authorization::Webhook,
            },
            token_webhook: self.authentication_token_webhook,
            healthz_port: Some(self.healthz_port).filter(|port| *port > 0),
            healthz_address: self.healthz_bind_address,
            read_only_port: Some(self.read_only_port).filter(|port| *port > 0),
            debugging_handlers: self.enable_debugging_handlers,
            system_log_handler: self.enable_system_log_handler,
            system_log_query: self.enable_system_log_query,
            ..serving_as(&pair, self.client_ca_file.as_deref(), &self.strong.strength()?)?
        }))
    }
}
