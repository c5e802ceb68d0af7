//! What the loop behind an informer fills: an informer, whatever it keeps of an object. The loop itself is
//! compiled once, not for every kind in every crate.
use super::{Entry, Informer};
use crate::source::Collection;
use api::names::NamespacedName;
use api::object::{Keep, Object};
use std::sync::Arc;

pub(super) trait Sink: Send + Sync {
    fn collection(&self) -> &Collection;
    fn revision(&self) -> u64;

    /// A list is about to be asked for, or to be asked for anew.
    fn begin(&mut self);
    /// One object of it. What is kept of it is kept now: the objects of a long list are not all there
    /// at once.
    fn stage(&mut self, object: &Arc<Object>);
    fn unstage(&mut self, object: &Arc<Object>);
    /// It is whole: what is staged is all there is.
    fn settle(&mut self, revision: u64);

    fn put(&self, object: &Arc<Object>);
    fn remove(&self, object: &Arc<Object>);
    fn advance(&self, revision: u64);
}

pub(super) struct Filled<K> {
    pub informer: Informer<K>,
    pub staged: Vec<(NamespacedName, Entry<K>)>,
}

impl<K: Keep> Filled<K> {
    fn entry(&self, object: &Arc<Object>) -> Option<Entry<K>> {
        match Entry::of(object) {
            Ok(entry) => Some(entry),
            Err(error) => {
                let of = &self.informer.collection().resource;
                tracing::warn!(%error, %of, ?object, "an object cannot be read and is left out");
                None
            }
        }
    }
}

impl<K: Keep> Sink for Filled<K> {
    fn collection(&self) -> &Collection {
        self.informer.collection()
    }

    fn revision(&self) -> u64 {
        self.informer.revision()
    }

    fn begin(&mut self) {
        self.staged.clear();
        self.informer.begin();
    }

    fn stage(&mut self, object: &Arc<Object>) {
        if let Some(entry) = self.entry(object) {
            self.staged.push((NamespacedName::of(object), entry));
        }
    }

    fn unstage(&mut self, object: &Arc<Object>) {
        let key = NamespacedName::of(object);
        self.staged.retain(|(other, _)| *other != key);
    }

    fn settle(&mut self, revision: u64) {
        self.informer.replace(std::mem::take(&mut self.staged), revision);
    }

    fn put(&self, object: &Arc<Object>) {
        // What cannot be read is not there.
        self.informer.apply(NamespacedName::of(object), self.entry(object), object.revision());
    }

    fn remove(&self, object: &Arc<Object>) {
        self.informer.apply(NamespacedName::of(object), None, object.revision());
    }

    fn advance(&self, revision: u64) {
        self.informer.advance(revision);
    }
}
