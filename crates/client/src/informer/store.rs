//! What an informer keeps: objects by name, and by whatever else somebody looks for them.
use super::Change;
use api::codec::DecodeError;
use api::names::NamespacedName;
use api::object::{Keep, Object};
use parking_lot::RwLockReadGuard;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(super) struct Store<K> {
    entries: BTreeMap<NamespacedName, Entry<K>>,
    indexes: Vec<Indexed<K>>,
}

pub(super) struct Entry<K> {
    pub revision: u64,
    pub uid: Box<str>,
    pub deleting: bool,
    pub kept: Arc<K>,
}

struct Indexed<K> {
    name: &'static str,
    values: Values<K>,
    sets: HashMap<String, BTreeMap<NamespacedName, Arc<K>>>,
}

type Values<K> = Box<dyn Fn(&NamespacedName, &K) -> Vec<String> + Send + Sync>;

/// An index of one informer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index(usize);

impl<K: Keep> Entry<K> {
    pub fn of(object: &Arc<Object>) -> Result<Entry<K>, DecodeError> {
        let (revision, deleting) = (object.revision(), object.is_deleting());
        Ok(Entry { revision, uid: object.uid().into(), deleting, kept: K::keep(object)? })
    }
}

impl<K> Default for Store<K> {
    fn default() -> Store<K> {
        Store { entries: BTreeMap::new(), indexes: Vec::new() }
    }
}

impl<K> Store<K> {
    pub fn entry(&self, key: &NamespacedName) -> Option<&Entry<K>> {
        self.entries.get(key)
    }

    pub fn index(&mut self, name: &'static str, values: Values<K>) -> Index {
        if let Some(at) = self.indexes.iter().position(|index| index.name == name) {
            return Index(at);
        }
        let mut index = Indexed { name, values, sets: HashMap::new() };
        for (key, entry) in &self.entries {
            index.insert(key, &entry.kept);
        }
        self.indexes.push(index);
        Index(self.indexes.len() - 1)
    }

    /// Makes one change; what is no change gives none.
    pub fn apply(
        &mut self,
        key: NamespacedName,
        entry: Option<Entry<K>>,
        initial: bool,
    ) -> Vec<Change<K>> {
        let old = self.entries.get(&key);
        let another = match (old, &entry) {
            (None, None) => return Vec::new(),
            // The same again, or an older one: a list that a server behind the last one gave.
            (Some(old), Some(new)) if old.uid == new.uid && old.revision >= new.revision => {
                if new.revision > 0 {
                    return Vec::new();
                }
                false
            }
            (Some(old), Some(new)) => old.uid != new.uid,
            _ => false,
        };
        let old = self.entries.remove(&key).map(|entry| entry.kept);
        let new = entry.as_ref().map(|entry| entry.kept.clone());
        for index in &mut self.indexes {
            index.change(&key, old.as_ref(), new.as_ref());
        }
        if let Some(entry) = entry {
            self.entries.insert(key.clone(), entry);
        }
        let change = |old, new| Change { key: key.clone(), old, new, initial };
        match another {
            true => vec![change(old, None), change(None, new)],
            false => vec![change(old, new)],
        }
    }

    pub fn replace(
        &mut self,
        entries: Vec<(NamespacedName, Entry<K>)>,
        initial: bool,
    ) -> Vec<Change<K>> {
        let mut gone: BTreeMap<NamespacedName, ()> =
            self.entries.keys().map(|key| (key.clone(), ())).collect();
        let mut changes = Vec::new();
        for (key, entry) in entries {
            gone.remove(&key);
            changes.extend(self.apply(key, Some(entry), initial));
        }
        for (key, ()) in gone {
            changes.extend(self.apply(key, None, initial));
        }
        changes
    }
}

impl<K> Indexed<K> {
    fn insert(&mut self, key: &NamespacedName, kept: &Arc<K>) {
        for value in (self.values)(key, kept) {
            self.sets.entry(value).or_default().insert(key.clone(), kept.clone());
        }
    }

    fn change(&mut self, key: &NamespacedName, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
        for value in old.map(|old| (self.values)(key, old)).unwrap_or_default() {
            if let Some(set) = self.sets.get_mut(&value) {
                set.remove(key);
                if set.is_empty() {
                    self.sets.remove(&value);
                }
            }
        }
        if let Some(new) = new {
            self.insert(key, new);
        }
    }
}

/// A look into an informer's store.
pub struct Reading<'a, K>(RwLockReadGuard<'a, Store<K>>);

impl<'a, K> Reading<'a, K> {
    pub(super) fn new(store: RwLockReadGuard<'a, Store<K>>) -> Reading<'a, K> {
        Reading(store)
    }

    pub fn get(&self, key: &NamespacedName) -> Option<&Arc<K>> {
        self.0.entries.get(key).map(|entry| &entry.kept)
    }

    pub fn find(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.get(&NamespacedName::new(namespace, name))
    }

    /// In the order of namespaces and names.
    pub fn iter(&self) -> impl Iterator<Item = (&NamespacedName, &Arc<K>)> {
        self.0.entries.iter().map(|(key, entry)| (key, &entry.kept))
    }

    pub fn in_namespace(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = (&NamespacedName, &Arc<K>)> {
        let first = NamespacedName::new(namespace, "");
        let from = self.0.entries.range(first.clone()..);
        from.take_while(move |(key, _)| key.namespace == first.namespace)
            .map(|(key, entry)| (key, &entry.kept))
    }

    /// Objects that the index has under a value.
    pub fn by(
        &self,
        index: Index,
        value: &str,
    ) -> impl Iterator<Item = (&NamespacedName, &Arc<K>)> {
        self.0.indexes[index.0].sets.get(value).into_iter().flatten()
    }

    /// The values that an index has objects under.
    pub fn values(&self, index: Index) -> impl Iterator<Item = &str> {
        self.0.indexes[index.0].sets.keys().map(String::as_str)
    }

    pub fn len(&self) -> usize {
        self.0.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.entries.is_empty()
    }
}
