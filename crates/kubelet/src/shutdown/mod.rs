//! The machine goes down: its pods end first, in the order of their priorities, each group within its
//! time, and no others begin (`pkg/kubelet/nodeshutdown`).
//!
//! ```text
//!  logind   delays the shutdown until we are done; tells when one begins       (over dbus)
//! ```
mod logind;
#[cfg(test)]
mod tests;

use crate::admission::Refusal;
use crate::pod;
use crate::worker::{Evicted, Kubelet};
use client::events::Happening;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use logind::Logind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// A pause before the bus is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Of `system-cluster-critical`.
const CRITICAL: i32 = 2_000_000_000;
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// How long pods of at least this priority have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    pub priority: i32,
    pub seconds: i64,
}

/// What the configuration says; nothing happens without groups.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The lowest first.
    groups: Vec<Group>,
    /// The bus that logind is on; none to be asked by `begin` alone.
    pub bus: Option<PathBuf>,
    /// Rung by whoever knows that the machine goes down.
    pub begin: Arc<Notify>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { groups: Vec::new(), bus: Some(logind::socket()), begin: Arc::default() }
    }
}

impl Settings {
    /// By priorities, if any are given; else so many seconds, the last of them for critical pods.
    pub fn new(mut groups: Vec<Group>, all: i64, critical: i64) -> Result<Settings, String> {
        if groups.is_empty() && all > 0 {
            if critical > all {
                return Err(format!(
                    "shutdownGracePeriodCriticalPods {critical}s must be <= shutdownGracePeriod {all}s"
                ));
            }
            let first = Group { priority: 0, seconds: all - critical };
            groups = vec![first, Group { priority: CRITICAL, seconds: critical }];
        }
        groups.sort_by_key(|group| group.priority);
        Ok(Settings { groups, ..Settings::default() })
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn longest(&self) -> Duration {
        let seconds: i64 = self.groups.iter().map(|group| group.seconds.max(0)).sum();
        Duration::from_secs(seconds.unsigned_abs())
    }

    /// The pods of each group: those of its priority and above, up to the next.
    fn by_group(&self, pods: Vec<Arc<Pod>>) -> Vec<(Group, Vec<Arc<Pod>>)> {
        let mut all: Vec<_> = self.groups.iter().map(|group| (*group, Vec::new())).collect();
        for pod in pods {
            let priority = pod::spec(&pod).priority.unwrap_or(0);
            let own = all.iter().rposition(|(group, _)| group.priority <= priority);
            // What is below the lowest goes with the lowest.
            if let Some((_, members)) = all.get_mut(own.unwrap_or(0)) {
                members.push(pod);
            }
        }
        all.retain(|(_, members)| !members.is_empty());
        all
    }
}

/// Whether the machine is going down.
#[derive(Debug, Default)]
pub struct GoingDown(AtomicBool);

impl GoingDown {
    pub fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Why no pod may begin.
    pub fn refusal(&self) -> Option<Refusal> {
        self.is().then(|| Refusal {
            reason: "NodeShutdown".to_owned(),
            message: "Pod was rejected as the node is shutting down.".to_owned(),
        })
    }
}

/// Until the context stops.
pub async fn watch(kubelet: &Arc<Kubelet>) {
    let settings = &kubelet.config.shutdown;
    if settings.groups.is_empty() {
        return kubelet.context.stopped().await;
    }
    tokio::select! {
        () = kubelet.context.stopped() => {}
        () = by_bell(kubelet, settings) => {}
        () = by_logind(kubelet, settings) => {}
    }
}

async fn by_bell(kubelet: &Arc<Kubelet>, settings: &Settings) {
    loop {
        settings.begin.notified().await;
        begin(kubelet, true);
        end_pods(kubelet, settings).await;
    }
}

async fn by_logind(kubelet: &Arc<Kubelet>, settings: &Settings) {
    let Some(bus) = settings.bus.as_ref().filter(|bus| bus.exists()) else {
        return std::future::pending().await;
    };
    loop {
        let ended = async {
            let mut logind = Logind::delay(bus, settings.longest()).await?;
            loop {
                let is_beginning = logind.next().await?;
                begin(kubelet, is_beginning);
                match is_beginning {
                    true => {
                        end_pods(kubelet, settings).await;
                        logind.let_go();
                    }
                    false => logind.hold().await?,
                }
            }
        };
        let ended: std::io::Result<()> = ended.await;
        if let Err(error) = ended {
            tracing::warn!("failed to watch for the machine's shutdown: {error}");
        }
        if !kubelet.context.sleep(PAUSE).await {
            return;
        }
    }
}

fn begin(kubelet: &Kubelet, is_beginning: bool) {
    kubelet.going_down.0.store(is_beginning, Ordering::Relaxed);
    let what = if is_beginning { "event" } else { "cancellation" };
    let about = ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some(kubelet.config.node_name.clone()),
        uid: Some(kubelet.config.node_name.clone()),
        ..ObjectReference::default()
    };
    let note = format!("Shutdown manager detected shutdown {what}");
    kubelet.recorder.record(Happening::normal(about, "NodeShutdown", note));
    // The node is not ready any more, or again.
    kubelet.config.look_again.notify_one();
}

async fn end_pods(kubelet: &Arc<Kubelet>, settings: &Settings) {
    let pods = kubelet.all_pods().into_iter().filter(|pod| kubelet.is_active(pod)).collect();
    for (group, members) in settings.by_group(pods) {
        tracing::info!(
            priority = group.priority,
            pods = members.len(),
            "pods end with the machine"
        );
        let limit = Duration::from_secs(group.seconds.unsigned_abs());
        for pod in &members {
            let own = pod::spec(pod).termination_grace_period_seconds;
            let grace = own.map_or(group.seconds, |own| own.min(group.seconds));
            let evicted = Evicted {
                reason: "Terminated",
                message: MESSAGE.to_owned(),
                grace,
                for_the_node: true,
            };
            kubelet.end_early(pod, evicted);
        }
        let over = members.iter().map(|pod| kubelet.until_over(pod::uid(pod), limit));
        futures_util::future::join_all(over).await;
    }
}
