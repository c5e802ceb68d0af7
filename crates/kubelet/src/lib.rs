//! The kubelet: pods that are bound to this node → ordered steps on a container runtime.
//!
//! **It may not know** the insides of the API server, nor which runtime it has: it reaches the one
//! through `client`, the other through [`runtime::Runtime`], the verbs of CRI as an object.
//!
//! ```text
//!  node/       this machine as a Node: facts, status, lease
//!  plan        pod + what the runtime has of it + clock → steps            (pure)
//!  admission/  pod + the others + the node → may it run                   (pure)
//!  status      pod + what the runtime has of it → its status               (pure)
//!  container/  pod → CRI's configuration of sandbox and containers         (pure)
//!  worker/     for each pod: look, decide, do, look again, tell the API
//!  volumes/    folders that containers share; files that show objects
//!  csi/        volumes of drivers that run beside us
//!  cgroups/    control groups of pods, made here or by systemd
//!  dbus        as much of it as systemd and logind need
//!  cpus/       processors that containers have for themselves
//!  numa/       memory of their own; what is near each other
//!  devices/    devices of plugins, and which containers have them
//!  dra/        claims that drivers prepare for pods
//!  plugins     drivers that come and go
//!  users       users of their own, for pods that ask for them
//!  turns       work on one thing, one at a time
//!  pulls/      credentials for registries; whose the images are
//!  relist      what happened in a runtime that does not tell
//!  probes, handler   what is asked of containers, and how
//!  eviction/   which pods go when memory, disk or processes run low
//!  shutdown/   which pods end when the machine goes down, and when
//!  oom         the machine runs out of memory
//!  log_links   where collectors of logs look for them
//!  garbage/    what goes while pods go on: dead containers, long logs, unused images
//!  pods_api    pods as the node knows them, for its agents
//!  sockets     gRPC for programs of the node
//!  server/     logs, exec, attach, port-forward, stats and metrics over HTTPS
//!  identity/   the certificates that the kubelet asks the cluster for
//!  manifests   static pods; the worker makes their mirrors
//! ```
//! The level counts, never the event: whatever wakes the worker up (a change in the API, an event
//! of the runtime, a probe, time), it looks at everything again. So a kubelet that was restarted
//! takes up what runs, from the labels and annotations that are on it ([`found`]).
#![forbid(unsafe_code)]

mod admission;
mod backoff;
mod cgroups;
pub mod config;
mod container;
pub mod cpus;
mod csi;
mod dbus;
mod devices;
mod dra;
pub mod eviction;
#[cfg(test)]
mod fake;
pub mod folder;
mod found;
mod garbage;
mod handler;
pub mod identity;
pub mod log_links;
mod manifests;
mod node;
pub mod numa;
mod oom;
mod plan;
mod plugins;
mod pod;
mod pods_api;
mod probes;
pub mod pulls;
mod relist;
pub mod runtime;
pub mod server;
pub mod shutdown;
mod sockets;
mod status;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod turns;
mod users;
mod volumes;
mod watchdog;
mod worker;

pub use admission::sysctl;
pub use config::Config;
pub use container::resources::Enforcement;
pub use server::{Server, ServerConfig};
pub use volumes::iscsi;

use crate::runtime::{Patient, Runtime, RuntimeError, cri};
use client::events::{Recorder, Reporter};
use client::source::{Collection, Source};
use client::{ApiResource, Client, Context, Informers};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use worker::Kubelet;

const HOUSEKEEPING: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_secs(1);

/// Why a kubelet cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the container runtime does not answer: {0}")]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Listen(#[from] server::ListenError),
    #[error("failed to make {}", folder.display())]
    Folder { folder: PathBuf, source: io::Error },
}

/// A folder that the machine's other users keep out of: tokens and Secrets are below it, and programs that run as
/// root whoever starts them, if a container wants that. Upstream's have the same mode.
fn own_folder(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o750))
}

/// Runs until the context stops. Containers go on: the next kubelet takes them up.
pub async fn run(
    mut config: Config,
    source: Arc<dyn Source>,
    context: Context,
    runtime: Arc<dyn Runtime>,
) -> Result<(), Error> {
    let server = match &config.server {
        Some(server) => Some(Server::bind(server).await?),
        None => None,
    };
    let port = server.as_ref().map(Server::port);
    let client = Client::new(source.clone()).managed_by("kubelet");
    let reporter = Reporter::new("kubelet", &config.node_name);
    let recorder = Recorder::core(&context, client.clone(), reporter);
    let context = context.with_metrics(config.registry.clone());
    let patient = Patient::new(runtime, config.runtime_patience, context.clone());
    let runtime: Arc<dyn Runtime> = Arc::new(patient);
    let name = runtime.version(cri::VersionRequest::default()).await?.runtime_name;
    if config.cgroups_per_qos {
        config.by_systemd = wants_systemd(&*runtime).await.unwrap_or(config.by_systemd);
        if config.by_systemd {
            config.cgroup_root = cgroups::slices_of(&config.cgroup_root);
        }
    }
    let config = Arc::new(config);
    let informers = Informers::new(&context, source);
    let fields = api::selector::field::Selector::equals("spec.nodeName", &config.node_name);
    let pods = informers.keep::<Pod>(Collection::all(ApiResource::of::<Pod>()).with_fields(fields));
    let services = informers.of::<Service>();
    let own = api::selector::field::Selector::equals("metadata.name", &config.node_name);
    let node = informers.keep::<Node>(Collection::all(ApiResource::of::<Node>()).with_fields(own));
    let kubelet = Kubelet::new(
        config.clone(),
        context.clone(),
        client.clone(),
        runtime.clone(),
        recorder.clone(),
        pods,
        services,
        node,
        name,
    );
    for folder in ["pods", "plugins", server::CHECKPOINTS] {
        let folder = config.root.join(folder);
        own_folder(&folder).map_err(|source| Error::Folder { folder, source })?;
    }
    csi::take_up(&config.root, &kubelet.in_use);
    iscsi::take_up(&config.root, &kubelet.in_use);
    kubelet.devices.take_up(&config.root);
    kubelet.cpus.take_up(&config.root);
    kubelet.dra.take_up(&config.root, context.now());
    kubelet.memory_grants.take_up(&config.root);
    kubelet.users.take_up(&config.root.join("pods"));
    let mut limited = None;
    if config.cgroups_per_qos {
        // What the kubelet itself sees of the machine: capacity less what is reserved.
        let left = node::without_reserved(&config, &kubelet.facts);
        let made = cgroups::prepare(&config.cgroup_root, &left);
        if let Err(error) = &made {
            tracing::warn!("failed to limit {}: {error}", config.cgroup_root);
        }
        limited = Some(made.map_err(|error| error.to_string()));
    }
    if kubelet.pull_records.were_interrupted()
        && let Ok(listed) = runtime.list_images(Default::default()).await
    {
        let names = |one: cri::Image| (one.id, [one.repo_tags, one.repo_digests].concat());
        let images: Vec<_> = listed.images.into_iter().map(names).collect();
        kubelet.pull_records.take_up(&images, context.now());
    }
    let node = node::NodeLoop {
        config,
        context: context.clone(),
        client,
        runtime,
        recorder,
        port,
        pressure: kubelet.pressure.clone(),
        in_use: kubelet.in_use.clone(),
        devices: kubelet.devices.clone(),
        going_down: kubelet.going_down.clone(),
        limited,
    };
    let serve = async {
        match server {
            Some(server) => server.serve(kubelet.clone()).await,
            None => context.stopped().await,
        }
    };
    // Static pods run without the API server, which may be one of them.
    let work = async {
        manifests::load(&kubelet);
        tokio::join!(
            kubelet.work(),
            kubelet.add_all(),
            listen(&kubelet),
            manifests::keep(&kubelet),
            eviction::watch(&kubelet),
            shutdown::watch(&kubelet),
            oom::watch(&kubelet),
            worker::measure_volumes(&kubelet),
            watchdog::feed(&context),
            pods_api::serve(&kubelet),
        )
    };
    // What nobody wants can be told only when it is known what is wanted.
    let follow = async {
        informers.synced().await;
        kubelet.sources.api_answered();
        tokio::join!(
            hear(&kubelet),
            house_keep(&kubelet),
            garbage::collect(&kubelet),
            plugins::watch(&kubelet),
            devices::serve(&kubelet),
            devices::serve_resources(&kubelet),
        )
    };
    tokio::select! {
        () = context.stopped() => {}
        _ = async { tokio::join!(node.run(), serve, work, follow) } => {}
    }
    Ok(())
}

/// Whether the runtime leaves control groups to systemd, if it says it: containerd does since 2.0.
async fn wants_systemd(runtime: &dyn Runtime) -> Option<bool> {
    let answer = runtime.runtime_config(cri::RuntimeConfigRequest::default()).await;
    let linux = answer.ok()?.linux?;
    Some(linux.cgroup_driver() == cri::CgroupDriver::Systemd)
}

/// Changes of pods in the API.
async fn hear(kubelet: &Arc<Kubelet>) {
    let weak = Arc::downgrade(kubelet);
    kubelet.pods.on_change(move |change| {
        let (Some(kubelet), Some(pod)) = (weak.upgrade(), change.latest()) else { return };
        // What the kubelet itself wrote is no reason to look again.
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && !pod::differs(old, new)
            && !kubelet.is_overwritten(new)
        {
            return;
        }
        let uid = match pod::annotation(pod, pod::MIRROR) {
            // A mirror that changed is its static pod's business.
            Some(hash) => kubelet.static_with(hash).unwrap_or_default(),
            None => pod::uid(pod).to_owned(),
        };
        kubelet.memory(&uid).changed.notify_waiters();
        kubelet.queue.add(uid);
    });
    // What runs and nobody wants any more ends; what is wanted is taken up.
    kubelet.add_all().await;
}

/// What happens in the runtime.
async fn listen(kubelet: &Arc<Kubelet>) {
    let mut listed = relist::Listed::default();
    loop {
        let tells = match kubelet.runtime.events().await {
            Ok(mut events) => {
                while let Some(uid) = events.next().await {
                    kubelet.queue.add(uid);
                }
                true
            }
            Err(_) => false,
        };
        if !kubelet.context.sleep(PAUSE).await {
            return;
        }
        match tells {
            // Something may have been missed.
            true => kubelet.add_all().await,
            // A runtime that has no events (containerd before 1.7) is asked what it has.
            false => relist::changed(kubelet, &mut listed).await,
        }
    }
}

async fn house_keep(kubelet: &Arc<Kubelet>) {
    loop {
        kubelet.house_keep().await;
        if !kubelet.context.sleep(HOUSEKEEPING).await {
            return;
        }
    }
}
