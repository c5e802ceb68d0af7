//! The server's state: the store, and a watch cache for every resource that was asked for.
use api::kinds::Resource;
use api::status::Status;
use std::collections::HashMap;
use std::sync::Arc;
use store::cache::{CacheOptions, WatchCache};
use store::{KeyRange, Store};
use tokio::sync::{Mutex, OnceCell, watch};

/// A handle on the server; clones share it.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    /// By storage prefix: two versions of a resource share one.
    caches: Mutex<HashMap<&'static str, Arc<OnceCell<WatchCache>>>>,
    /// True once the server is told to stop: readiness falls, watches end.
    stopping: watch::Sender<bool>,
}

impl ApiServer {
    pub fn new(store: Store) -> Self {
        let stopping = watch::Sender::new(false);
        ApiServer { shared: Arc::new(Shared { store, caches: Mutex::default(), stopping }) }
    }

    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// The resource's cache, started when it is first asked for: an idle resource costs nothing.
    pub async fn cache(&self, resource: &Resource) -> Result<WatchCache, Status> {
        let cell = self.shared.caches.lock().await.entry(resource.storage).or_default().clone();
        let start = || async {
            let options = CacheOptions::new(resource.key_prefix().as_str());
            WatchCache::start(self.shared.store.clone(), options).await
        };
        cell.get_or_try_init(start).await.cloned().map_err(|error| status_of(error, resource))
    }

    /// Asks the server to stop: no new work, watches end.
    pub fn stop(&self) {
        self.shared.stopping.send_replace(true);
    }

    pub fn is_stopping(&self) -> bool {
        *self.shared.stopping.borrow()
    }

    /// Resolves when the server is asked to stop.
    pub async fn stopping(&self) {
        let mut stopping = self.shared.stopping.subscribe();
        // The sender lives as long as the server.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}

/// The keys of a namespace's objects, or of all.
pub fn range(resource: &Resource, namespace: &str) -> KeyRange {
    match namespace {
        "" => KeyRange::prefix(resource.key_prefix().as_str()),
        namespace => KeyRange::prefix(format!("{}{namespace}/", resource.key_prefix()).as_str()),
    }
}

/// What a failure of the store means to a client.
pub fn status_of(error: store::Error, resource: &Resource) -> Status {
    match error {
        store::Error::Compacted { requested, .. } => Status::expired(format!(
            "The resourceVersion for the provided list is too old ({requested})."
        )),
        store::Error::FutureRevision { requested, current } => {
            Status::too_large_resource_version(requested, current, 1)
        }
        store::Error::TooLarge { .. } => {
            Status::request_entity_too_large("etcdserver: request is too large")
        }
        store::Error::NoSpace(_) => Status::internal_error(error),
        store::Error::Unavailable(_) => {
            Status::server_timeout(resource.group_resource(), "access", 1)
        }
        other => Status::internal_error(other),
    }
}
