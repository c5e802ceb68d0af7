//! Nodes that are played: thousands of kubelets in one process, against any API server.
//!
//! Each node is registered with its capacity and renews its lease; a pod that is bound to one becomes
//! Running and Ready with an address, ends if it says so, and goes when it is deleted. There is one watch
//! of pods and one of nodes, whatever the number of nodes. Nothing runs.
//!
//! What a pod does is said by its annotation [`DOES`]: `exit=0`, `exit=1 after=500ms`, `ready=never`,
//! `ready=2s` (words in any order). Without it, it runs and is ready at once.
mod node;
mod pod;

pub use pod::DOES;

use ::client::source::{Collection, Patch};
use ::client::{ApiResource, Client, Context, Informer, NamespacedName, Source, Status, WorkQueue};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use node::Seen;
use pod::{Played, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Options {
    pub nodes: usize,
    /// What nodes' names begin with; a number follows.
    pub name: String,
    /// Nodes take turns in so many zones.
    pub zones: usize,
    pub cpu: String,
    pub memory: String,
    pub pods: usize,
    /// How often each lease is renewed. Nodes count as lost after 50 seconds.
    pub renewal: Duration,
    /// Pods that are written about at once.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            nodes: 100,
            name: "hollow-".to_owned(),
            zones: 3,
            cpu: "32".to_owned(),
            memory: "256Gi".to_owned(),
            pods: 110,
            renewal: Duration::from_secs(20),
            workers: 64,
        }
    }
}

/// Nodes that are registered at once.
const AT_ONCE: usize = 32;

/// Registers the nodes, and plays none of them: pods that are bound there stay as they are.
pub async fn register(client: &Client, options: &Options) -> Result<(), Status> {
    stream::iter(0..options.nodes)
        .map(|index| node::register(client, options, index))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await
        .map(drop)
}

/// Registers the nodes, then plays them until the context stops.
pub async fn start(
    context: &Context,
    source: Arc<dyn Source>,
    options: Options,
) -> Result<(), Status> {
    let client = Client::new(source.clone()).managed_by("hollow");
    register(&client, &options).await?;
    let fleet = Arc::new(Fleet {
        client,
        pods: Informer::start(context, source.clone(), all::<Pod>()),
        nodes: Informer::start(context, source, all::<Node>()),
        // A fleet that is started again gives addresses that the one before did not.
        next: AtomicU32::new((context.now().as_second() as u32).wrapping_mul(1024)),
        context: context.clone(),
        options,
    });
    let pods = WorkQueue::new(context, "hollow-pods");
    let (queue, name) = (pods.clone(), fleet.options.name.clone());
    fleet.pods.on_change(move |change| {
        if change.new.as_ref().is_some_and(|pod| pod.node.starts_with(&name)) {
            queue.add(change.key.clone());
        }
    });
    let nodes = WorkQueue::new(context, "hollow-nodes");
    let (queue, name) = (nodes.clone(), fleet.options.name.clone());
    fleet.nodes.on_change(move |change| {
        if change.key.name.starts_with(&name) {
            queue.add(change.key.clone());
        }
    });
    for _ in 0..fleet.options.workers.max(1) {
        tokio::spawn(fleet.clone().play_pods(pods.clone()));
    }
    tokio::spawn(fleet.clone().play_nodes(nodes));
    tokio::spawn(fleet.renew());
    Ok(())
}

fn all<T: api::rules::Form>() -> Collection {
    Collection::all(ApiResource::of::<T>())
}

struct Fleet {
    context: Context,
    client: Client,
    options: Options,
    pods: Informer<Played>,
    nodes: Informer<Seen>,
    /// The last address that was given to a pod.
    next: AtomicU32,
}

impl Fleet {
    async fn play_pods(self: Arc<Fleet>, queue: WorkQueue) {
        while let Some(key) = queue.take().await {
            let Some(pod) = self.pods.get(&key) else { continue };
            let now = self.context.now();
            let done = match pod::decide(&pod, now) {
                Step::Nothing => Ok(()),
                Step::Later(after) => {
                    queue.add_after(key.clone(), after);
                    Ok(())
                }
                Step::Say(what) => {
                    let host = node::address(&self.options, &pod.node);
                    let patch = pod::status(&pod, what, now, &self.address(&pod, &host), &host);
                    let (namespace, name) = (&key.namespace, &key.name);
                    let said = self.client.patch_status::<Pod>(namespace, name, patch).await;
                    said.map(drop)
                }
                Step::Remove => {
                    let options = ::client::source::Delete::uid(&pod.uid).after(0);
                    let (namespace, name) = (&key.namespace, &key.name);
                    self.client.delete::<Pod>(namespace, name, options).await.map(drop)
                }
            };
            match done {
                Ok(()) => queue.forget(&key),
                // Gone, or another of its name: the watch will say so.
                Err(status) if status.is_not_found() || status.is_conflict() => queue.forget(&key),
                Err(_) => queue.add_rate_limited(key.clone()),
            }
        }
    }

    /// A pod keeps its address; a new one gets the next.
    fn address(&self, pod: &Played, host: &str) -> String {
        match (&*pod.ip, pod.host_network) {
            ("", true) => host.to_owned(),
            // 10.128.0.0/9, without the first and the last.
            ("", false) => {
                let number = self.next.fetch_add(1, Relaxed) % ((1 << 23) - 2) + 1;
                std::net::Ipv4Addr::from((10 << 24 | 128 << 16) + number).to_string()
            }
            (ip, _) => ip.to_owned(),
        }
    }

    /// A node that somebody says is not ready says that it is.
    async fn play_nodes(self: Arc<Fleet>, queue: WorkQueue) {
        while let Some(key) = queue.take().await {
            let Some(node) = self.nodes.get(&key) else { continue };
            if node.ready {
                continue;
            }
            let patch = Patch::Strategic(node::ready(self.context.now()));
            match self.client.patch_status::<Node>("", &key.name, patch).await {
                Ok(_) => queue.forget(&key),
                Err(_) => queue.add_rate_limited(key.clone()),
            }
        }
    }

    /// Leases are renewed evenly over the period.
    async fn renew(self: Arc<Fleet>) {
        let pause = self.options.renewal / self.options.nodes.max(1) as u32;
        let mut tick = tokio::time::interval(pause.max(Duration::from_micros(100)));
        let round = async {
            for index in (0..self.options.nodes).cycle() {
                tick.tick().await;
                let name = node::name(&self.options, index);
                // One that fails is renewed in the next round; three may be missed.
                if self.nodes.get(&NamespacedName::new("", &name)).is_some() {
                    let _ = node::renew(&self.client, &name, self.context.now()).await;
                }
            }
        };
        tokio::select! {
            () = round => {}
            () = self.context.stopped() => {}
        }
    }
}
