//! `skiff controller-manager`: the control loops alone, in the place of upstream's.
use crate::stop_signal;
use anyhow::{Context as _, anyhow};
use client::https::{Config, Https};
use client::leader::{Election, Elector, End};
use client::{Client, Context, Source};
use controllers::{Settings, Sources};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Options {
    /// Where the API server is and who we are to it; in a pod, its service account by default.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Which control loops run: `*` for all, a name for one, `-name` for all but one.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// The certificates that pods trust the API server by.
    #[arg(long)]
    root_ca_file: Option<PathBuf>,
    /// Where pods' addresses are from; without it nodes get no part of it.
    #[arg(long, default_value = "")]
    cluster_cidr: String,
    /// Whether several of us agree on one that acts.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = true, action = clap::ArgAction::Set)]
    leader_elect: bool,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let config = match &options.kubeconfig {
        Some(file) => Config::from_kubeconfig(file, None)?,
        None => Config::in_cluster()?,
    };
    let context = Context::new();
    let https = Https::new(&context, config.for_component("kube-controller-manager"))?;
    let source: Arc<dyn Source> = Arc::new(https);
    let root_ca = match &options.root_ca_file {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| format!("failed to read {}", file.display()))?,
        None => String::new(),
    };
    let settings = Settings { root_ca, cluster_cidr: options.cluster_cidr.clone() };
    // Misspelt names are told before anybody waits to lead.
    controllers::select(&options.controllers)?;
    let work = {
        let (context, elector_source) = (context.clone(), source.clone());
        let lead = move |term: Context| {
            let running =
                controllers::start(&term, &Sources::one(source), &options.controllers, settings);
            async move {
                match running {
                    Ok(running) => running.await,
                    Err(error) => tracing::error!(%error, "no control loop runs"),
                }
            }
        };
        async move {
            if !options.leader_elect {
                lead(context).await;
                return Ok(());
            }
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            let name = "kube-controller-manager";
            let election = Election::new(&context, "kube-system", name, host.trim());
            let client = Client::new(elector_source).managed_by(name);
            let elector = Elector::new(&context, client, election).map_err(|e| anyhow!(e))?;
            match elector.run(lead).await {
                End::Stopped => Ok(()),
                // Whoever restarts us starts with nothing half known.
                End::Lost => Err(anyhow!("leaderelection lost")),
            }
        }
    };
    tokio::pin!(work);
    tokio::select! {
        () = stop => context.stop(),
        outcome = &mut work => return outcome,
    }
    work.await
}
