//! A resource's objects, kept up to date: one list, one watch, many readers.
//!
//! What is kept of an object is what [`Keep`] makes of it, once per version. Readers look into the
//! store under a lock that excludes only the one writer, and copy nothing. Whoever wants to know
//! of changes is told of each as (old, new), in order, by the informer's own task: a handler adds
//! a key to a queue and returns. The level counts, never the event: what happened while a watch
//! was broken is found by comparing the new list with what is kept.
mod reflect;
mod shared;
mod sink;
mod store;
#[cfg(test)]
mod tests;

pub use shared::Informers;
pub use store::{Index, Reading};

use crate::context::Context;
use crate::source::{Collection, Source};
use api::names::NamespacedName;
use api::object::Keep;
use parking_lot::{Mutex, RwLock};
use sink::Filled;
use std::sync::Arc;
use store::{Entry, Store};
use tokio::sync::watch;

/// Cheap to clone; a clone is the same informer.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    of: Collection,
    store: RwLock<Store<K>>,
    /// Held while a change is made and told, so that whoever comes new misses none and hears
    /// none twice. Readers do not take it: a handler may read the store.
    handlers: Mutex<Vec<Handler<K>>>,
    seen: watch::Sender<Seen>,
    /// Nobody wants to know any more.
    over: watch::Sender<bool>,
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// How far the informer is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The first list is complete, and its handlers have heard of it.
    pub synced: bool,
    /// Everything up to this revision is in the store.
    pub revision: u64,
    /// Lists that were begun, the first being 1.
    pub begun: u64,
    /// The last of them that was whole.
    pub listed: u64,
}

/// What became of one object. Another object of the same name (another uid) is a deletion and an
/// addition.
pub struct Change<K> {
    pub key: NamespacedName,
    pub old: Option<Arc<K>>,
    pub new: Option<Arc<K>>,
    /// Part of the first list, or of what there was when the handler came.
    pub initial: bool,
}

impl<K> Change<K> {
    /// What there is, or was.
    pub fn latest(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

impl<K: Keep> Informer<K> {
    /// Begins to list and watch, until the context stops.
    pub fn start(context: &Context, source: Arc<dyn Source>, of: Collection) -> Informer<K> {
        let informer = Informer::idle(of);
        let over = informer.shared.over.subscribe();
        let sink = Box::new(Filled { informer: informer.clone(), staged: Vec::new() });
        tokio::spawn(reflect::run(context.clone(), source, sink, over));
        informer
    }
}

impl<K: Send + Sync + 'static> Informer<K> {
    fn idle(of: Collection) -> Informer<K> {
        let shared = Shared {
            of,
            store: RwLock::new(Store::default()),
            handlers: Mutex::default(),
            seen: watch::Sender::default(),
            over: watch::Sender::default(),
        };
        Informer { shared: Arc::new(shared) }
    }

    /// What it is about.
    pub fn collection(&self) -> &Collection {
        &self.shared.of
    }

    /// Looks into the store; nothing changes meanwhile. Keep it for a decision, not for an IO.
    pub fn read(&self) -> Reading<'_, K> {
        Reading::new(self.shared.store.read())
    }

    pub fn get(&self, key: &NamespacedName) -> Option<Arc<K>> {
        self.read().get(key).cloned()
    }

    /// An index by what a function says of each object: the name of its node, the uid of its
    /// owner. The first index of a name counts; who asks again for one gets the same.
    pub fn index<V: Into<String>>(
        &self,
        name: &'static str,
        values: impl Fn(&NamespacedName, &K) -> Vec<V> + Send + Sync + 'static,
    ) -> Index {
        let values =
            move |key: &_, kept: &_| values(key, kept).into_iter().map(Into::into).collect();
        self.shared.store.write().index(name, Box::new(values))
    }

    /// Tells of every object there is, then of every change. A handler must not block, nor add
    /// another handler to the same informer.
    pub fn on_change(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.shared.handlers.lock();
        let there: Vec<_> =
            self.read().iter().map(|(key, kept)| (key.clone(), kept.clone())).collect();
        for (key, kept) in there {
            handler(&Change { key, old: None, new: Some(kept), initial: true });
        }
        handlers.push(Box::new(handler));
    }

    pub fn has_synced(&self) -> bool {
        self.shared.seen.borrow().synced
    }

    /// Until the first list is complete.
    pub async fn synced(&self) {
        self.wait(|seen| seen.synced).await;
    }

    /// Everything up to this revision is in the store.
    pub fn revision(&self) -> u64 {
        self.shared.seen.borrow().revision
    }

    /// Until this revision has been seen.
    pub async fn seen(&self, revision: u64) {
        self.wait(|seen| seen.synced && seen.revision >= revision).await;
    }

    async fn wait(&self, until: impl FnMut(&Seen) -> bool) {
        // The sender is ours: it is there as long as we wait.
        let _ = self.shared.seen.subscribe().wait_for(until).await;
    }

    /// Ends it for everybody: its resource is no more, and so are its objects.
    fn end(&self) {
        self.shared.over.send_replace(true);
        self.begin();
        self.replace(Vec::new(), self.revision());
    }

    /// One object as it is now; `None`: it is gone.
    fn apply(&self, key: NamespacedName, entry: Option<Entry<K>>, revision: u64) {
        let handlers = self.shared.handlers.lock();
        let changes = self.shared.store.write().apply(key, entry, false);
        tell(&handlers, &changes);
        self.advance(revision);
    }

    /// A list is asked for.
    fn begin(&self) {
        self.shared.seen.send_modify(|seen| seen.begun += 1);
    }

    /// All objects there are: what is not among them is gone.
    fn replace(&self, entries: Vec<(NamespacedName, Entry<K>)>, revision: u64) {
        // A list that was under way when it ended is not one of what is there.
        let entries = if *self.shared.over.borrow() { Vec::new() } else { entries };
        let handlers = self.shared.handlers.lock();
        let initial = !self.has_synced();
        let changes = self.shared.store.write().replace(entries, initial);
        tell(&handlers, &changes);
        self.shared.seen.send_modify(|seen| {
            *seen = Seen { synced: true, revision, listed: seen.begun, ..*seen };
        });
    }

    /// An empty list has come, which was asked for now, or earlier.
    #[cfg(test)]
    pub(crate) fn list_came(&self, is_new: bool, revision: u64) {
        if is_new {
            self.begin();
        }
        self.replace(Vec::new(), revision);
    }

    /// Nothing happened up to this revision. It never goes back: a server that is behind is told
    /// from where on it is watched.
    fn advance(&self, revision: u64) {
        self.shared.seen.send_if_modified(|seen| {
            let newer = revision > seen.revision;
            seen.revision = seen.revision.max(revision);
            newer
        });
    }
}

fn tell<K>(handlers: &[Handler<K>], changes: &[Change<K>]) {
    for change in changes {
        handlers.iter().for_each(|handler| handler(change));
    }
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Informer<K> {
        Informer { shared: self.shared.clone() }
    }
}

/// An informer without its type: how far it is, and whether an object is still in it.
pub trait Progress: Send + Sync {
    /// Its resource is no more.
    fn end(&self);
    fn progress(&self) -> watch::Receiver<Seen>;
    /// No object of this uid is there, or it is on its way out.
    fn is_gone(&self, key: &NamespacedName, uid: &str) -> bool;
}

impl<K: Send + Sync + 'static> Progress for Informer<K> {
    fn end(&self) {
        Informer::end(self);
    }

    fn progress(&self) -> watch::Receiver<Seen> {
        self.shared.seen.subscribe()
    }

    fn is_gone(&self, key: &NamespacedName, uid: &str) -> bool {
        let store = self.shared.store.read();
        store.entry(key).is_none_or(|entry| *entry.uid != *uid || entry.deleting)
    }
}
