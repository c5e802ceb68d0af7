//! `skiff scheduler`: the scheduler alone, in the place of upstream's.
use crate::alone;
use client::https::Https;
use client::{Context, Source};
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
    let config = alone::config(options.kubeconfig.as_deref())?;
    let context = Context::new();
    let source: Arc<dyn Source> = Arc::new(Https::new(&context, config.for_component(NAME))?);
    let own = source.clone();
    let settings = ::scheduler::Config::new(&alone::hostname());
    let work = move |term: Context| async move { ::scheduler::run(&term, own, settings).await };
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
