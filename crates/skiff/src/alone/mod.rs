//! What components have in common that run alone: where the API is, who leads, where health and metrics
//! are, which flags there were, when it ends.
mod accepted;
pub mod flags;
mod leading;
mod serving;
mod strength;

pub use accepted::{Accepted, Upstreams};
pub use leading::Leading;
pub use serving::{Served, Serving};
pub use strength::Strong;

use client::Context;
use client::https::Config;
use jiff::SignedDuration;
use std::path::Path;
use std::time::Duration;

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
    match tokio::time::timeout(crate::DRAIN, work).await {
        Ok(ended) => Ok(ended?),
        // An API server that does not answer keeps nobody alive.
        Err(_) => {
            tracing::warn!("something has not come to its end; what it held ends by itself");
            Ok(())
        }
    }
}

/// The machine's own name.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// As Go writes it: `1m30s`.
pub fn span(text: &str) -> Result<SignedDuration, String> {
    let parsed = api::duration::Duration::parse(text).map_err(|error| error.to_string())?;
    Ok(SignedDuration::from_nanos(parsed.nanos))
}

pub fn duration(text: &str) -> Result<Duration, String> {
    Duration::try_from(span(text)?).map_err(|_| format!("{text} is before now"))
}
