//! The daemon's side: what exists, what it is doing, and everything CRI asks of it.
//!
//! ```text
//!  root/   images/ blobs/ layers/     what was fetched
//!          places/                    below every image: where things are mounted
//!          sandboxes/ID               the record
//!          containers/ID/             record, upper/, work/
//!          trash/                     what is being removed
//!  state/  ID/                        shim.sock, spec.json, netns, shm, hosts, resolv.conf …:
//!                                     gone after a reboot, and of no use then
//! ```
//! There is no database. What has no record, or one without its end, was never finished and is
//! cleared away ([`recover`]). What runs is asked of the shims, how something ended is read from
//! its record; the maps in memory only save reading.
//!
//! One task per sandbox listens to its shim ([`watch`]) and is the only one that says "exited".
mod calls;
mod containers;
mod images;
mod metrics;
mod names;
mod records;
mod recover;
mod sandboxes;
pub(crate) mod shims;
mod snapshot;
mod stats;
mod status;
mod streams;
mod trash;
mod watch;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::cri::v1::{ContainerEventResponse, PodSandboxConfig};
use crate::files::{Others, own_folder};
use crate::image::digest::Digest;
use crate::image::{ImageError, Images, RegistriesConfig};
use crate::network::Network;
pub use records::{Container, Sandbox};
pub use snapshot::Snapshotter;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("failed to {operation} {}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("another runtime uses {}", .0.display())]
    Locked(PathBuf),
    #[error("runtime handler {name:?} is {}, which is not a program", path.display())]
    Handler { name: String, path: PathBuf },
    #[error(transparent)]
    Images(#[from] ImageError),
}

pub struct Options {
    /// What survives a reboot.
    pub root: PathBuf,
    /// What does not. A short path: sockets are in it.
    pub state: PathBuf,
    pub registries: RegistriesConfig,
    pub network: Arc<dyn Network>,
    pub snapshotter: Snapshotter,
    /// The control group below which sandboxes are that were given none: `/skiff`.
    pub cgroup_root: String,
    /// Other OCI runtimes, by the names that sandboxes call them by.
    pub handlers: BTreeMap<String, PathBuf>,
    /// The executable that is run as `skiff shim`.
    pub executable: PathBuf,
}

/// The runtime. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    images: Images,
    /// Whether the built-in images are there.
    builtin: tokio::sync::OnceCell<()>,
    /// Images that are being pulled, by the names they are asked for.
    pulls: Mutex<HashMap<String, Arc<images::Blobs>>>,
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    containers: Mutex<BTreeMap<String, Arc<Container>>>,
    trash: trash::Trash,
    events: broadcast::Sender<ContainerEventResponse>,
    /// Where exec, attach and port-forward are served.
    streaming: OnceLock<crate::streaming::Server>,
    _lock: File,
}

/// How long a predecessor may take to be gone.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Events kept for a listener that is slow; one that is slower misses some, and lists.
const EVENTS: usize = 1024;

impl Service {
    /// Opens the runtime, takes up what runs and clears away what was half made.
    pub async fn open(mut options: Options) -> Result<Self, OpenError> {
        for folder in [&options.root, &options.state] {
            fs::create_dir_all(folder).map_err(failed("create", folder))?;
        }
        for (name, others) in [("sandboxes", Others::Nobody), ("containers", Others::Passing)] {
            let folder = options.root.join(name);
            own_folder(&folder, others).map_err(failed("create", &folder))?;
        }
        crate::files::scatter(&options.root.join("containers"));
        for (name, path) in &options.handlers {
            if name.is_empty() || !crate::shim::oci::is_program(path) {
                return Err(OpenError::Handler { name: name.clone(), path: path.clone() });
            }
        }
        let path = options.root.join("lock");
        let lock = File::create(&path).map_err(failed("create", &path))?;
        take(&lock).await.map_err(|()| OpenError::Locked(options.root.clone()))?;
        let chosen = options.snapshotter.open(&options.root);
        options.snapshotter = chosen.map_err(failed("prepare", &options.root))?;
        let images = Images::open(&options.root, options.registries.clone())?;
        let trash = trash::Trash::open(&options.root).map_err(failed("open", &options.root))?;
        let service = Service {
            inner: Arc::new(Inner {
                images,
                trash,
                builtin: tokio::sync::OnceCell::new(),
                pulls: Mutex::default(),
                sandboxes: Mutex::default(),
                containers: Mutex::default(),
                events: broadcast::channel(EVENTS).0,
                streaming: OnceLock::new(),
                _lock: lock,
                options,
            }),
        };
        service.recover().await;
        let known = service.inner.sandboxes.lock().keys().cloned().collect();
        if let Err(error) = service.inner.options.network.keep_only(known).await {
            tracing::warn!("addresses of sandboxes that are gone may not be free: {error}");
        }
        service.collect();
        Ok(service)
    }

    /// Lets clients stream: exec, attach, port-forward. Without it those calls fail.
    pub async fn serve_streams(&self) -> io::Result<()> {
        let server = crate::streaming::Server::bind(self.clone()).await?;
        // A second call changes nothing.
        let _ = self.inner.streaming.set(server);
        Ok(())
    }

    pub fn images(&self) -> &Images {
        &self.inner.images
    }

    fn root(&self) -> &Path {
        &self.inner.options.root
    }

    /// Clears away layers and blobs that nobody needs.
    fn collect(&self) {
        let in_use = || -> HashSet<Digest> {
            let containers = self.inner.containers.lock();
            containers.values().flat_map(|c| c.record.image.layers.clone()).collect()
        };
        if let Err(error) = self.inner.images.collect(in_use) {
            tracing::warn!("failed to collect images: {error}");
        }
    }
}

/// The layers that containers use, read from their records: for somebody who is not the runtime.
pub fn layers_in_use(root: &Path) -> HashSet<Digest> {
    let folders = fs::read_dir(root.join("containers")).into_iter().flatten().flatten();
    let records = folders.filter_map(|folder| records::read_container(&folder.path()));
    records.flat_map(|(record, _, _)| record.image.layers).collect()
}

/// What a sandbox was made of, read from its record: for somebody who is not the runtime.
pub(crate) fn sandbox_config(record: &Path) -> Option<PodSandboxConfig> {
    records::read_sandbox(record).0
}

/// Takes the lock. A daemon that was killed may leave a child that has not yet become a shim and
/// holds the lock for a moment longer.
async fn take(lock: &File) -> Result<(), ()> {
    use rustix::fs::{FlockOperation, flock};
    let taking = async {
        while flock(lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LOCK_PATIENCE, taking).await.map_err(drop)
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Io { operation, path, source }
}

/// Now, as CRI counts time.
pub(crate) fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// An error with its causes, in one line: CRI's errors are text.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
