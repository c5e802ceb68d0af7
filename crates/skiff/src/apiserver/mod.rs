//! `skiff apiserver`: the API server alone, in the place of upstream's, with its flags.
mod audit;
mod authentication;
mod authorization;

use crate::alone::{Accepted, Strong, Upstreams};
use crate::logging::Verbosity;
use ::apiserver::admission::{Chain, TolerationSeconds};
use ::apiserver::encryption::Encryption;
use ::apiserver::listen::Connections;
use ::apiserver::pki::{Pki, own_address};
use ::apiserver::service_account::{Issuer, Keys, Lifetimes};
use ::apiserver::tls::{self, Pair};
use ::apiserver::{ApiServer, Debug};
use anyhow::{Context, bail};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use store::embedded::Embedded;
use tokio::net::TcpListener;

#[derive(clap::Args)]
#[command(rename_all = "kebab-case")]
pub struct Options {
    /// The address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// The address that the members of the cluster reach this server at.
    #[arg(long)]
    advertise_address: Option<IpAddr>,
    /// Where services get their addresses from: at most one network of each family.
    #[arg(long, value_delimiter = ',', default_value = "10.96.0.0/12")]
    service_cluster_ip_range: Vec<String>,
    /// The port to serve HTTPS on; 0 takes a free one.
    #[arg(long, default_value_t = 6443)]
    secure_port: u16,

    #[command(flatten)]
    etcd: crate::etcd::Flags,
    /// The file that says which resources are encrypted at rest, and with which keys.
    #[arg(long)]
    encryption_provider_config: Option<PathBuf>,
    /// Whether that file is read again when it changes.
    #[arg(long, requires = "encryption_provider_config", default_missing_value = "true",
        num_args = 0..=1, require_equals = true, default_value_t = false, action = clap::ArgAction::Set)]
    encryption_provider_config_automatic_reload: bool,
    /// Where the state is kept when there is no etcd.
    #[arg(long, default_value_os_t = crate::places::data_dir())]
    data_dir: PathBuf,

    /// The serving certificate, with its chain.
    #[arg(long, requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// The key of the serving certificate.
    #[arg(long, requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Where certificates are made, if they are not given.
    #[arg(long, default_value = "/var/run/kubernetes")]
    cert_dir: PathBuf,
    /// Clients that present a certificate of this CA are who it says.
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
    /// The client certificate for kubelets.
    #[arg(long, requires = "kubelet_client_key")]
    kubelet_client_certificate: Option<PathBuf>,
    /// The key of the client certificate for kubelets.
    #[arg(long, requires = "kubelet_client_certificate")]
    kubelet_client_key: Option<PathBuf>,
    /// The certificate that proves to aggregated API servers that this one may speak for its clients.
    #[arg(long, requires = "proxy_client_key_file")]
    proxy_client_cert_file: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, requires = "proxy_client_cert_file")]
    proxy_client_key_file: Option<PathBuf>,
    /// The CA that signed the kubelets' certificates; without it they are not checked.
    #[arg(long)]
    kubelet_certificate_authority: Option<PathBuf>,

    /// By which of their addresses kubelets are called: the first type that a node has.
    #[arg(long, value_delimiter = ',',
        default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP",
        value_parser = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"])]
    kubelet_preferred_address_types: Vec<String>,

    /// Who signs service accounts' tokens; the first signs, all are believed.
    #[arg(long, default_value = "https://kubernetes.default.svc", value_delimiter = ',')]
    service_account_issuer: Vec<String>,
    /// The private key that signs service accounts' tokens.
    #[arg(long)]
    service_account_signing_key_file: Option<PathBuf>,
    /// Keys that service accounts' tokens may be signed with.
    #[arg(long)]
    service_account_key_file: Vec<PathBuf>,
    /// Whom a token must be for to be believed; by default the issuer.
    #[arg(long, value_delimiter = ',')]
    api_audiences: Vec<String>,

    #[command(flatten)]
    audit: audit::Options,
    /// Admission plugins to run beside those that run by default; their order does not matter.
    #[arg(long, value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,
    /// Admission plugins not to run although they run by default.
    #[arg(long, value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// A file with an AdmissionConfiguration: what plugins are told.
    #[arg(long)]
    admission_control_config_file: Option<PathBuf>,
    /// How long a pod that does not say so stays on a node that is not ready, in seconds.
    #[arg(long, default_value_t = 300)]
    default_not_ready_toleration_seconds: i64,
    /// How long a pod that does not say so stays on a node that nobody hears of, in seconds.
    #[arg(long, default_value_t = 300)]
    default_unreachable_toleration_seconds: i64,

    /// How long events are kept.
    #[arg(long, default_value = "1h0m0s", value_parser = duration)]
    event_ttl: Duration,
    /// Whether tokens that kubelets ask for are good for a year, so that clients that read a token only once
    /// go on; their late use is remarked.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = true, action = clap::ArgAction::Set)]
    service_account_extend_token_expiration: bool,
    /// The longest that anybody may ask for a token.
    #[arg(long, value_parser = token_expiration)]
    service_account_max_token_expiration: Option<Duration>,
    /// How many requests that only read may be under way at once.
    #[arg(long, default_value_t = 400)]
    max_requests_inflight: usize,
    /// How many requests that write may be under way at once.
    #[arg(long, default_value_t = 200)]
    max_mutating_requests_inflight: usize,
    /// Whether those limits are shared by priority (FlowSchemas and PriorityLevelConfigurations).
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = true, action = clap::ArgAction::Set)]
    enable_priority_and_fairness: bool,
    /// How long a request may take; watches and streams may take longer.
    #[arg(long, default_value = "1m0s", value_parser = duration)]
    request_timeout: Duration,
    /// Serve profiles and the like below /debug, to those who are allowed there.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(default_value_t = false, action = clap::ArgAction::Set)]
    profiling: bool,
    #[command(flatten)]
    authentication: authentication::Flags,
    #[command(flatten)]
    authorization: authorization::Flags,
    #[command(flatten)]
    strong: Strong,
    #[command(flatten)]
    accepted: Accepted<OfApiServer>,
}

/// What people give upstream's that has no effect here, so that its manifests work as they are.
pub struct OfApiServer;

impl Upstreams for OfApiServer {
    #[rustfmt::skip]
    const FLAGS: &[&str] = &[
        "allow-privileged", "apiserver-count", "contention-profiling", "default-watch-cache-size",
        "delete-collection-workers", "emulated-version", "enable-aggregator-routing",
        "enable-garbage-collector", "endpoint-reconciler-type", "etcd-compaction-interval",
        "etcd-count-metric-poll-period", "etcd-db-metric-poll-interval", "etcd-healthcheck-timeout",
        "etcd-readycheck-timeout", "external-hostname", "feature-gates", "goaway-chance",
        "http2-max-streams-per-connection", "kubelet-timeout", "lease-reuse-duration-seconds",
        "livez-grace-period", "logging-format", "min-request-timeout", "permit-address-sharing",
        "permit-port-sharing", "runtime-config", "service-account-lookup", "shutdown-delay-duration", "shutdown-send-retry-after",
        "storage-backend", "storage-media-type", "watch-cache", "watch-cache-sizes",
    ];
}

/// A duration as Go writes it: `1h0m0s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration: api::duration::Duration = text.parse().map_err(|error| format!("{error}"))?;
    u64::try_from(duration.nanos).map(Duration::from_nanos).map_err(|_| "it is negative".into())
}

/// In upstream's bounds (`pkg/kubeapiserver/options/authentication.go`).
fn token_expiration(text: &str) -> Result<Duration, String> {
    let longest = duration(text)?;
    match (60 * 60..=1 << 32).contains(&longest.as_secs()) {
        true => Ok(longest),
        false => Err("it must be between 1 hour and 2^32 seconds".to_owned()),
    }
}

pub async fn run(options: Options, verbosity: Verbosity) -> anyhow::Result<()> {
    options.accepted.warn();
    let (reads, writes) = (options.max_requests_inflight, options.max_mutating_requests_inflight);
    if options.enable_priority_and_fairness && reads + writes == 0 {
        bail!(
            "invalid configuration: MaxRequestsInFlight={reads} and MaxMutatingRequestsInFlight={writes}; they must add up to something positive"
        );
    }
    let mut admission = Chain::new(
        &options.enable_admission_plugins,
        &options.disable_admission_plugins,
        options.admission_control_config_file.as_deref(),
    )?;
    admission.settings.toleration_seconds = TolerationSeconds {
        not_ready: options.default_not_ready_toleration_seconds,
        unreachable: options.default_unreachable_toleration_seconds,
    };
    let (store, engine) = options.store().await?;
    // What is named comes first, then what somebody has put into the folder, as upstream has it.
    let serving = pair(&options.tls_cert_file, &options.tls_private_key_file);
    let found = pair_in(&options.cert_dir).filter(|_| serving.is_none());
    let own_folder = match found {
        Some(_) => options.cert_dir.join("skiff"),
        None => options.cert_dir.clone(),
    };
    let serving = serving.or(found);
    let given = serving.is_some()
        && options.client_ca_file.is_some()
        && options.service_account_signing_key_file.is_some();
    let addresses = [Some(options.bind_address), options.advertise_address];
    let addresses: Vec<IpAddr> = addresses.into_iter().flatten().collect();
    let pki = if given { None } else { Some(Pki::open_for(&own_folder, &addresses)?) };
    let issuer = options.issuer(pki.as_ref())?;
    let serving = match (serving, &pki) {
        (Some(pair), _) => pair,
        (None, Some(pki)) => pki.pair("apiserver"),
        (None, None) => bail!("--tls-cert-file is missing"),
    };
    let client_ca = options.client_ca_file.clone().or(pki.as_ref().map(Pki::ca));
    let kubelet = pair(&options.kubelet_client_certificate, &options.kubelet_client_key);
    let kubelet_ca = options.kubelet_certificate_authority.as_deref();
    let proxy_client = pair(&options.proxy_client_cert_file, &options.proxy_client_key_file)
        .or_else(|| pki.as_ref().map(|pki| pki.pair("front-proxy-client")));
    let client_ca_text = match &client_ca {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("failed to read {}", path.display()))?,
        None => String::new(),
    };
    let authentication = options.authentication.read(client_ca.as_deref())?;
    let trusts = [
        authentication.clients.clone(),
        authentication.front_proxy.as_ref().map(|proxy| proxy.trust.clone()),
    ];
    let encryption = match &options.encryption_provider_config {
        Some(file) => {
            let reload = options.encryption_provider_config_automatic_reload;
            Encryption::open(file, reload).await?
        }
        None => Arc::default(),
    };
    let api = ApiServer::new(::apiserver::Options {
        encryption,
        audit: options.audit.audit()?,
        client_ca: client_ca_text,
        authentication,
        authorizers: options.authorization.read()?,
        service_cidrs: options.service_cluster_ip_range.clone(),
        kubelet_tls: tls::kubelet(kubelet.as_ref(), kubelet_ca)?,
        proxy_client: proxy_client.as_ref().map(tls::client_certificate).transpose()?,
        kubelet_address_types: options.kubelet_preferred_address_types.clone(),
        admission,
        event_ttl: options.event_ttl,
        max_reads: options.max_requests_inflight,
        max_writes: options.max_mutating_requests_inflight,
        priority_and_fairness: options.enable_priority_and_fairness,
        request_timeout: options.request_timeout,
        debug: options
            .profiling
            .then(|| Debug { set_verbosity: Arc::new(move |level| verbosity.set(level)) }),
        flags: crate::alone::flags::given(),
        ..::apiserver::Options::new(store, issuer)?
    });
    ::apiserver::bootstrap(&api).await?;
    let listener = TcpListener::bind((options.bind_address, options.secure_port))
        .await
        .with_context(|| format!("failed to listen on port {}", options.secure_port))?;
    let address = listener.local_addr()?;
    let known_as = options.advertise_address.or_else(|| {
        let any = options.bind_address.is_unspecified();
        if any { own_address() } else { Some(options.bind_address) }
    });
    if let Some(known_as) = known_as {
        ::apiserver::advertise(&api, known_as, address.port()).await?;
    }
    if let Some(pki) = pki {
        tokio::spawn(async move { pki.keep(|_| Ok(())).await });
    }
    let stop = crate::stop_signal()?;
    let trusts: Vec<_> = trusts.iter().flatten().collect();
    let serving = tls::server_as(&serving, &trusts, &options.strong.strength()?)?;
    let server = {
        let connections = Connections::new(api.clone());
        tokio::spawn(async move { connections.listen(listener, serving).await })
    };
    println!("the API server is ready at https://{address}");
    stop.await;
    api.stop();
    server.await?;
    if let Some(engine) = engine {
        engine.close().await;
    }
    Ok(())
}

/// The certificate that is in a folder, unless the folder is one of ours: those have the authority's key,
/// and what is in them is kept up to date.
fn pair_in(folder: &Path) -> Option<Pair> {
    let [certificate, key, authority] =
        ["apiserver.crt", "apiserver.key", "ca.key"].map(|name| folder.join(name));
    let is_given = certificate.exists() && key.exists() && !authority.exists();
    is_given.then_some(Pair { certificate, key })
}

fn pair(certificate: &Option<PathBuf>, key: &Option<PathBuf>) -> Option<Pair> {
    Some(Pair { certificate: certificate.clone()?, key: key.clone()? })
}

impl Options {
    fn issuer(&self, pki: Option<&Pki>) -> anyhow::Result<Issuer> {
        let signing = match (&self.service_account_signing_key_file, pki) {
            (Some(path), _) => path.clone(),
            (None, Some(pki)) => pki.service_account_key(),
            (None, None) => bail!("--service-account-signing-key-file is missing"),
        };
        let believed: Vec<&Path> =
            self.service_account_key_file.iter().map(PathBuf::as_path).collect();
        let names = self.service_account_issuer.clone();
        let audiences = match self.api_audiences.is_empty() {
            true => names.iter().take(1).cloned().collect(),
            false => self.api_audiences.clone(),
        };
        let lifetimes = Lifetimes {
            extended: self.service_account_extend_token_expiration,
            longest: self.service_account_max_token_expiration.map(|it| it.as_secs().cast_signed()),
        };
        Ok(Issuer { keys: Keys::read(&signing, &believed)?, names, audiences, lifetimes })
    }

    /// The store, and the embedded engine if it is that, which wants to be closed.
    async fn store(&self) -> anyhow::Result<(Store, Option<Embedded>)> {
        if let Some(store) = self.etcd.store().await? {
            return Ok((store, None));
        }
        let engine = Embedded::open(&self.data_dir.join("store"), Default::default())
            .with_context(|| format!("failed to open the store in {}", self.data_dir.display()))?;
        Ok((Store::from(engine.clone()), Some(engine)))
    }
}
