//! What components have in common that run alone: where the API is, who leads, when it ends.
use anyhow::anyhow;
use client::https::Config;
use client::leader::{Election, Elector, End};
use client::{Client, Context, Source};
use std::path::Path;
use std::sync::Arc;

/// Where the API server is and who we are to it: what a kubeconfig says, or in a pod its service
/// account.
pub fn config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    Ok(match kubeconfig {
        Some(file) => Config::from_kubeconfig(file, None)?,
        None => Config::in_cluster()?,
    })
}

/// Works until it is done, or until somebody asks the process to stop: then it comes to its end.
pub async fn until_stopped<E>(
    context: &Context,
    work: impl Future<Output = Result<(), E>>,
) -> anyhow::Result<()>
where
    anyhow::Error: From<E>,
{
    let stop = crate::stop_signal()?;
    tokio::pin!(work);
    tokio::select! {
        () = stop => context.stop(),
        ended = &mut work => return Ok(ended?),
    }
    Ok(work.await?)
}

/// Works while it is the one of several that may.
pub async fn lead<F>(
    context: &Context,
    source: Arc<dyn Source>,
    name: &str,
    work: impl FnOnce(Context) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let election = Election::new(context, "kube-system", name, &hostname());
    lead_as(context, source, name, election, work).await
}

/// The same, on a lease and with durations of somebody's choice.
pub async fn lead_as<F>(
    context: &Context,
    source: Arc<dyn Source>,
    name: &str,
    election: Election,
    work: impl FnOnce(Context) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let client = Client::new(source).managed_by(name);
    let elector = Elector::new(context, client, election).map_err(|error| anyhow!(error))?;
    match elector.run(work).await {
        End::Stopped => Ok(()),
        // Whoever restarts us starts with nothing half known.
        End::Lost => Err(anyhow!("leaderelection lost")),
    }
}

/// The machine's own name.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
