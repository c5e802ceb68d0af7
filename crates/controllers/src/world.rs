//! What a decision may look at: the objects that informers keep, and the cluster's settings.
use crate::Settings;
use api::names::NamespacedName;
use api::object::{Keep, Object};
use api::owner;
use api::rules::Form;
use client::source::Collection;
use client::{ApiResource, Informer, Informers, OwnWrites};
use jiff::Timestamp;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Cheap to clone; a clone is the same world. What a row reads, its `watch` has to have named:
/// only that is there.
#[derive(Clone)]
pub struct World {
    pub settings: Arc<Settings>,
    /// Since when anybody looks.
    pub started: Timestamp,
    informers: Informers,
    kept: Arc<Mutex<KeptByResource>>,
    memory: Arc<Mutex<HashMap<(TypeId, String), Remembered>>>,
}

type Remembered = Arc<dyn Any + Send + Sync>;

/// One thing to be remembered, by its type and a key; nothing: it is to be forgotten.
pub struct Memo {
    of: (TypeId, String),
    text: String,
    value: Option<Remembered>,
}

impl Memo {
    pub fn new<T: fmt::Debug + Send + Sync + 'static>(key: &str, value: T) -> Memo {
        let text = format!("remember {value:?}");
        Memo { of: (TypeId::of::<T>(), key.to_owned()), text, value: Some(Arc::new(value)) }
    }

    pub fn nothing<T: 'static>(key: &str) -> Memo {
        let of = (TypeId::of::<T>(), key.to_owned());
        Memo { of, text: format!("forget {key}"), value: None }
    }
}

impl fmt::Display for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A resource may be kept in several forms.
type KeptByResource = HashMap<ApiResource, Vec<Arc<dyn Kept>>>;

impl World {
    pub fn new(informers: Informers, settings: Settings, started: Timestamp) -> World {
        World {
            settings: Arc::new(settings),
            started,
            informers,
            kept: Arc::default(),
            memory: Arc::default(),
        }
    }

    /// The informer of a kind's typed forms.
    pub fn informer<T: Form>(&self) -> Informer<T> {
        self.keep(Collection::all(ApiResource::of::<T>()))
    }

    /// The informer of what `K` makes of a collection.
    pub fn keep<K: Keep>(&self, of: Collection) -> Informer<K> {
        let informer = self.informers.keep::<K>(of.clone());
        // Who keeps a part of a collection may never see what was written to another part.
        if !of.is_whole() {
            return informer;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let same = kept.entry(of.resource).or_default();
        if !same.iter().any(|kept| kept.keeps() == TypeId::of::<K>()) {
            same.push(Arc::new(informer.clone()));
        }
        informer
    }

    /// Nothing is kept of a resource that is no more.
    pub fn forget(&self, resource: &ApiResource) {
        self.informers.forget(resource);
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(resource);
    }

    pub async fn synced(&self) {
        self.informers.synced().await;
    }

    pub fn get<T: Form>(&self, key: &NamespacedName) -> Option<Arc<T>> {
        self.read::<T>().get(key)
    }

    pub fn find<T: Form>(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.get(&NamespacedName::new(namespace, name))
    }

    pub fn all<T: Form>(&self) -> Vec<Arc<T>> {
        self.read::<T>().read().iter().map(|(_, object)| object.clone()).collect()
    }

    pub fn in_namespace<T: Form>(&self, namespace: &str) -> Vec<Arc<T>> {
        let informer = self.read::<T>();
        informer.read().in_namespace(namespace).map(|(_, object)| object.clone()).collect()
    }

    /// Objects whose controller has this uid.
    pub fn controlled<T: Form>(&self, uid: &str) -> Vec<Arc<T>> {
        self.by_controller(uid)
    }

    /// Objects of a namespace that nobody controls.
    pub fn orphans<T: Form>(&self, namespace: &str) -> Vec<Arc<T>> {
        self.by_controller(&format!("/{namespace}"))
    }

    /// What a row asked to be remembered. It is gone when the process is: nothing may depend on it
    /// but how long something takes.
    pub fn recall<T: Send + Sync + 'static>(&self, key: &str) -> Option<Arc<T>> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get(&(TypeId::of::<T>(), key.to_owned())).cloned()?.downcast().ok()
    }

    pub fn remember(&self, memo: Memo) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        match memo.value {
            Some(value) => drop(memory.insert(memo.of, value)),
            None => drop(memory.remove(&memo.of)),
        }
    }

    fn by_controller<T: Form>(&self, value: &str) -> Vec<Arc<T>> {
        let informer = self.read::<T>();
        let index = informer.index("controller", |key: &NamespacedName, object: &T| {
            let owners = object.metadata().owner_references.as_deref();
            let controller = owner::controller_of(owners);
            vec![controller.map_or_else(|| format!("/{}", key.namespace), |it| it.uid.clone())]
        });
        informer.read().by(index, value).map(|(_, object)| object.clone()).collect()
    }

    fn read<T: Form>(&self) -> Informer<T> {
        let informer = self.informers.of::<T>();
        debug_assert!(informer.has_synced(), "a row reads {}s and does not watch them", T::KIND);
        informer
    }

    /// What a key wrote is to be waited for, if anybody here keeps such objects.
    pub fn wrote(
        &self,
        own: &OwnWrites<Arc<str>>,
        key: &Arc<str>,
        of: &ApiResource,
        object: &Object,
    ) {
        self.each_kept(of, |kept| kept.wrote(own, key, object));
    }

    pub fn deleted(&self, own: &OwnWrites<Arc<str>>, key: &Arc<str>, gone: &Gone<'_>) {
        self.each_kept(gone.resource, |kept| kept.deleted(own, key, gone));
    }

    fn each_kept(&self, of: &ApiResource, mut with: impl FnMut(&dyn Kept)) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(of).into_iter().flatten().for_each(|kept| with(&**kept));
    }
}

/// An object whose deletion was asked for.
pub struct Gone<'a> {
    pub resource: &'a ApiResource,
    pub name: &'a NamespacedName,
    pub uid: &'a str,
}

/// An informer, whatever it keeps.
trait Kept: Send + Sync {
    fn keeps(&self) -> TypeId;
    fn wrote(&self, own: &OwnWrites<Arc<str>>, key: &Arc<str>, object: &Object);
    fn deleted(&self, own: &OwnWrites<Arc<str>>, key: &Arc<str>, gone: &Gone<'_>);
}

impl<K: Send + Sync + 'static> Kept for Informer<K> {
    fn keeps(&self) -> TypeId {
        TypeId::of::<K>()
    }

    fn wrote(&self, own: &OwnWrites<Arc<str>>, key: &Arc<str>, object: &Object) {
        own.wrote(key, self, object);
    }

    fn deleted(&self, own: &OwnWrites<Arc<str>>, key: &Arc<str>, gone: &Gone<'_>) {
        own.deleted(key, self, gone.name, gone.uid);
    }
}
