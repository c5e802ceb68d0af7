//! Informers that a component's parts share.
use super::{Informer, Progress};
use crate::context::Context;
use crate::resource::ApiResource;
use crate::source::{Collection, Source};
use api::object::{Keep, Object};
use api::rules::Form;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::sync::Arc;

/// One informer for each collection and what is kept of it; started when first asked for. Cheap
/// to clone.
#[derive(Clone)]
pub struct Informers {
    context: Context,
    source: Arc<dyn Source>,
    started: Arc<Mutex<Vec<Started>>>,
}

struct Started {
    kept: TypeId,
    of: Collection,
    informer: Box<dyn Any + Send>,
    progress: Arc<dyn Progress>,
}

impl Informers {
    pub fn new(context: &Context, source: Arc<dyn Source>) -> Informers {
        Informers { context: context.clone(), source, started: Arc::default() }
    }

    /// Typed forms of all objects of a kind.
    pub fn of<T: Form>(&self) -> Informer<T> {
        // Asked all the time: nothing is made to find one that is there.
        let found = self.started.lock().iter().find_map(|one| {
            let is_it = one.kept == TypeId::of::<T>() && one.of.resource.kind == T::KIND;
            (is_it && one.of.is_whole())
                .then(|| one.informer.downcast_ref::<Informer<T>>().cloned())?
        });
        if let Some(informer) = found {
            return informer;
        }
        self.keep(Collection::all(ApiResource::of::<T>()))
    }

    /// Objects of any kind as they are.
    pub fn objects(&self, of: Collection) -> Informer<Object> {
        self.keep(of)
    }

    /// What `K` makes of each object of a collection.
    pub fn keep<K: Keep>(&self, of: Collection) -> Informer<K> {
        let mut started = self.started.lock();
        let kept = TypeId::of::<K>();
        let mut same = started.iter().filter(|one| one.kept == kept && one.of == of);
        if let Some(informer) = same.find_map(|one| one.informer.downcast_ref::<Informer<K>>()) {
            return informer.clone();
        }
        let informer = Informer::<K>::start(&self.context, self.source.clone(), of.clone());
        let (held, progress) = (Box::new(informer.clone()), Arc::new(informer.clone()));
        started.push(Started { kept, of, informer: held, progress });
        informer
    }

    /// Ends the informers of a resource that is no more. Who asks for one again gets a new one.
    pub fn forget(&self, resource: &ApiResource) {
        let of_it = |one: &mut Started| one.of.resource == *resource;
        let gone: Vec<Started> = self.started.lock().extract_if(.., of_it).collect();
        gone.iter().for_each(|one| one.progress.end());
    }

    /// Until the first list of each that was asked for is complete.
    pub async fn synced(&self) {
        let waits: Vec<_> =
            self.started.lock().iter().map(|started| started.progress.progress()).collect();
        for mut progress in waits {
            let _ = progress.wait_for(|seen| seen.synced).await;
        }
    }
}
