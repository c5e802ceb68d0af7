//! `skiff scheduler`: the scheduler alone, in the place of upstream's.
use crate::stop_signal;
use anyhow::anyhow;
use client::https::{Config, Https};
use client::leader::{Election, Elector, End};
use client::{Client, Context, Source};
use std::path::PathBuf;
use std::sync::Arc;

const NAME: &str = "kube-scheduler";

#[derive(clap::Args)]
pub struct Options {
    /// Where the API server is and who we are to it; in a pod, its service account by default.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
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
    let https = Https::new(&context, config.for_component(NAME))?;
    let source: Arc<dyn Source> = Arc::new(https);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let work = {
        let (context, elector_source) = (context.clone(), source.clone());
        let settings = ::scheduler::Config::new(host.trim());
        let lead = move |term: Context| async move {
            ::scheduler::run(&term, source, settings).await;
        };
        async move {
            if !options.leader_elect {
                lead(context).await;
                return Ok(());
            }
            let election = Election::new(&context, "kube-system", NAME, host.trim());
            let client = Client::new(elector_source).managed_by(NAME);
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
