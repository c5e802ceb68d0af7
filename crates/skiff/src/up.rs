//! `skiff up`: a cluster on this machine, with nothing to configure.
use ::apiserver::admission::Chain;
use ::apiserver::audit::{Audit, LogOptions, Policy};
use ::apiserver::authn::{Authentication, FrontProxy};
use ::apiserver::encryption::{Encryption, own_configuration};
use ::apiserver::pki::{Pki, own_address};
use ::apiserver::service_account::{Issuer, Keys};
use ::apiserver::tls::Trust;
use ::apiserver::{ApiServer, listen, signing, tls};
use anyhow::Context;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use store::Store;
use store::embedded::Embedded;
use tokio::net::TcpListener;

#[derive(clap::Args)]
pub struct Options {
    /// Where the cluster's state and keys are kept.
    #[arg(long, default_value = "/var/lib/skiff")]
    data_dir: PathBuf,
    /// The API server's port; 0 takes a free one.
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// The address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,
    /// Where to write the administrator's kubeconfig; by default into the data directory.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let folder = &options.data_dir;
    let pki = Pki::open_for(&folder.join("pki"), &[options.bind_address])?;
    let engine = Embedded::open(&folder.join("store"), Default::default())
        .with_context(|| format!("failed to open the store in {}", folder.display()))?;
    let keys = Keys::read(&pki.service_account_key(), &[])?;
    let name = "https://kubernetes.default.svc".to_owned();
    let issuer = Issuer { keys, names: vec![name.clone()], audiences: vec![name] };
    let client = pki.pair("apiserver-kubelet-client");
    let clients = Trust::read(&pki.ca())?;
    let front_proxy =
        FrontProxy::standard(Trust::read(&pki.front_proxy_ca())?, "front-proxy-client");
    let trusts = [clients.clone(), front_proxy.trust.clone()];
    let encryption = Encryption::open(&own_configuration(folder)?, true).await?;
    let log = LogOptions::unattended(folder.join("audit/audit.log"));
    let audit = Audit::new(Some(Policy::metadata_of_everything()), Some(log), None)?;
    // Kubelets write only what is theirs: upstream's installers switch this on too.
    let admission = Chain::new(&["NodeRestriction".to_owned()], &[], None)?;
    let api = ApiServer::new(::apiserver::Options {
        encryption,
        audit,
        admission,
        kubelet_tls: tls::kubelet(Some(&client), Some(&pki.ca()))?,
        // Nobody here resolves the names of machines.
        kubelet_address_types: ["InternalIP", "ExternalIP", "Hostname"].map(str::to_owned).into(),
        authentication: Authentication {
            clients: Some(clients),
            front_proxy: Some(front_proxy),
            bootstrap_tokens: true,
            ..Authentication::default()
        },
        client_ca: std::fs::read_to_string(pki.ca())?,
        ..::apiserver::Options::new(Store::from(engine.clone()), issuer)?
    });
    ::apiserver::bootstrap(&api).await?;
    signing::start(&api, pki.authority()).await?;
    let listener = TcpListener::bind((options.bind_address, options.port))
        .await
        .with_context(|| format!("failed to listen on port {}", options.port))?;
    let address = listener.local_addr()?;
    let known_as = match options.bind_address.is_unspecified() {
        true => own_address().unwrap_or(options.bind_address),
        false => options.bind_address,
    };
    ::apiserver::advertise(&api, known_as, address.port()).await?;
    let kubeconfig = options.kubeconfig.unwrap_or_else(|| folder.join("kubeconfig"));
    pki.write_kubeconfig(&kubeconfig, &format!("https://{address}"))?;
    let stop = crate::stop_signal()?;
    let serving = tls::server(&pki.pair("apiserver"), &trusts.each_ref())?;
    let server = tokio::spawn(listen::listen(api.clone(), listener, serving));
    let shown = kubeconfig.display().to_string();
    tokio::spawn(async move {
        pki.keep(|pki| pki.write_kubeconfig(&kubeconfig, &format!("https://{address}"))).await;
    });
    println!("skiff is ready at https://{address}: export KUBECONFIG={shown}");
    stop.await;
    api.stop();
    server.await?;
    engine.close().await;
    Ok(())
}
