//! `skiff controller-manager`: the control loops alone, in the place of upstream's.
use crate::alone;
use anyhow::Context as _;
use client::https::Https;
use client::{Context, Source};
use controllers::csr::Authority;
use controllers::{Settings, Sources};
use std::path::PathBuf;
use std::sync::Arc;

const NAME: &str = "kube-controller-manager";

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
    /// The CA that certificates are signed with, and its key; without them nobody signs.
    #[arg(long, requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    #[arg(long, requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// Whether several of us agree on one that acts.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = true, action = clap::ArgAction::Set)]
    leader_elect: bool,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let config = alone::config(options.kubeconfig.as_deref())?;
    let context = Context::new();
    let source: Arc<dyn Source> = Arc::new(Https::new(&context, config.for_component(NAME))?);
    let read = |file: &PathBuf| {
        std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
    };
    let authority = match (&options.cluster_signing_cert_file, &options.cluster_signing_key_file) {
        (Some(certificate), Some(key)) => {
            Some(Authority { certificate: read(certificate)?, key: read(key)? })
        }
        _ => None,
    };
    let settings = Settings {
        root_ca: options.root_ca_file.as_ref().map(read).transpose()?.unwrap_or_default(),
        cluster_cidr: options.cluster_cidr.clone(),
        authority,
        approve_of_nodes: false,
        ..Settings::default()
    };
    // Misspelt names are told before anybody waits to lead.
    controllers::select(&options.controllers)?;
    let own = source.clone();
    let work = move |term: Context| {
        let sources = Sources::one(own);
        let running = controllers::start(&term, &sources, &options.controllers, settings);
        async move {
            match running {
                Ok(running) => running.await,
                Err(error) => tracing::error!(%error, "no control loop runs"),
            }
        }
    };
    alone::until_stopped(&context, async {
        match options.leader_elect {
            true => alone::lead(&context, source, NAME, work).await,
            false => {
                work(context.clone()).await;
                Ok(())
            }
        }
    })
    .await
}
