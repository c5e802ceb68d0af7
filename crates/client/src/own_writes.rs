//! Whether one's own writes have come back.
//!
//! A controller that decides before its informers have seen what it just did does it again. So it
//! remembers what each of its keys has written, and the key's next turn waits until every informer
//! concerned is as far: resource versions are numbers that can be compared. However long that takes: a
//! server that is away for an hour makes nobody do things twice. A store that was set back to an earlier
//! day does not keep it waiting: a list that was begun after the write has what there is of it.
use crate::informer::{Informer, Progress};
use api::names::NamespacedName;
use api::object::Object;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// By the key of a controller's queue.
pub struct OwnWrites<Q = NamespacedName> {
    awaited: Mutex<HashMap<Q, Vec<Awaited>>>,
}

#[derive(Clone)]
struct Awaited {
    informer: Arc<dyn Progress>,
    until: Until,
    /// The last list that may not know of it.
    begun: u64,
}

#[derive(Clone)]
enum Until {
    Revision(u64),
    /// A deletion answers with no revision: its object is to be gone, or going.
    Gone(NamespacedName, Box<str>),
}

impl Awaited {
    fn is_over(&self) -> bool {
        let seen = *self.informer.progress().borrow();
        let is_seen = match &self.until {
            Until::Revision(revision) => seen.revision >= *revision,
            Until::Gone(key, uid) => self.informer.is_gone(key, uid),
        };
        seen.synced && (is_seen || seen.listed > self.begun)
    }
}

impl<Q: Clone + Eq + Hash> OwnWrites<Q> {
    pub fn new() -> OwnWrites<Q> {
        OwnWrites { awaited: Mutex::default() }
    }

    /// `key` created or changed an object that this informer has, or will have.
    pub fn wrote<K>(&self, key: &Q, informer: &Informer<K>, object: &Object)
    where
        K: Send + Sync + 'static,
    {
        self.await_(key, informer, Until::Revision(object.revision()));
    }

    /// `key` deleted an object, or asked for its deletion.
    pub fn deleted<K>(&self, key: &Q, informer: &Informer<K>, name: &NamespacedName, uid: &str)
    where
        K: Send + Sync + 'static,
    {
        self.await_(key, informer, Until::Gone(name.clone(), uid.into()));
    }

    fn await_<K: Send + Sync + 'static>(&self, key: &Q, informer: &Informer<K>, until: Until) {
        let begun = informer.progress().borrow().begun;
        let awaited = Awaited { informer: Arc::new(informer.clone()), until, begun };
        if !awaited.is_over() {
            self.awaited.lock().entry(key.clone()).or_default().push(awaited);
        }
    }

    /// Everything that `key` wrote has been seen.
    pub fn are_visible(&self, key: &Q) -> bool {
        let mut awaited = self.awaited.lock();
        let Some(own) = awaited.get_mut(key) else { return true };
        own.retain(|awaited| !awaited.is_over());
        let none = own.is_empty();
        if none {
            awaited.remove(key);
        }
        none
    }

    /// Until everything that `key` wrote has been seen; false if `patience` ran out first. What is
    /// missing is still waited for then: the key is to come again, and others have their turn.
    pub async fn visible(&self, key: &Q, patience: Duration) -> bool {
        let all = async {
            while !self.are_visible(key) {
                let first = self.awaited.lock().get(key).and_then(|own| own.first().cloned());
                let Some(awaited) = first else { return };
                let mut progress = awaited.informer.progress();
                progress.borrow_and_update();
                // Between the question and the subscription it may have come.
                if !awaited.is_over() && progress.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(patience, all).await.is_ok()
    }
}

impl<Q: Clone + Eq + Hash> Default for OwnWrites<Q> {
    fn default() -> OwnWrites<Q> {
        OwnWrites::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::resource::ApiResource;
    use crate::source::{Collection, Delete};
    use crate::testing::World;
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    const PATIENCE: Duration = Duration::from_secs(5);

    async fn world() -> (World, Informer<Object>, OwnWrites<&'static str>) {
        let context = Context::simulated(Timestamp::UNIX_EPOCH, 1);
        let world = World::new(&context);
        let of = Collection::all(ApiResource::of::<ConfigMap>());
        let informer = Informer::<Object>::start(&context, world.source(), of);
        informer.synced().await;
        world.hold_watches(true);
        (world, informer, OwnWrites::new())
    }

    fn config_map() -> ConfigMap {
        let (name, namespace) = (Some("c".to_owned()), Some("n".to_owned()));
        ConfigMap {
            metadata: ObjectMeta { name, namespace, ..ObjectMeta::default() },
            ..ConfigMap::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_what_it_wrote() {
        let (world, informer, own) = world().await;
        let made = world.client().create(&config_map()).await.unwrap();
        own.wrote(&"key", &informer, &made);
        assert!(!own.are_visible(&"key") && own.are_visible(&"another"));
        let waiting = own.visible(&"key", PATIENCE);
        world.hold_watches(false);
        assert!(waiting.await);
        assert_eq!(informer.read().len(), 1);
        // What has been seen is not waited for.
        own.wrote(&"key", &informer, &made);
        assert!(own.are_visible(&"key"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_is_waited_for_by_uid() {
        let (world, informer, own) = world().await;
        world.hold_watches(false);
        let made = world.client().create(&config_map()).await.unwrap();
        informer.seen(made.revision()).await;
        world.hold_watches(true);
        world.client().delete::<ConfigMap>("n", "c", Delete::default()).await.unwrap();
        let name = NamespacedName::of(&made);
        own.deleted(&"key", &informer, &name, "another");
        assert!(own.are_visible(&"key"), "another object of that name is gone already");
        own.deleted(&"key", &informer, &name, made.uid());
        assert!(!own.are_visible(&"key"));
        world.hold_watches(false);
        assert!(own.visible(&"key", PATIENCE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends_and_the_key_still_waits() {
        let (world, informer, own) = world().await;
        let made = world.client().create(&config_map()).await.unwrap();
        own.wrote(&"key", &informer, &made);
        assert!(!own.visible(&"key", PATIENCE).await);
        assert!(!own.are_visible(&"key"), "it was not seen");
        world.hold_watches(false);
        assert!(own.visible(&"key", PATIENCE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_was_set_back_keeps_nobody_waiting() {
        let (world, informer, own) = world().await;
        let made = world.client().create(&config_map()).await.unwrap();
        own.wrote(&"key", &informer, &made);
        // One that was under way says nothing of the write.
        informer.list_came(false, made.revision() - 1);
        assert!(!own.are_visible(&"key"));
        informer.list_came(true, made.revision() - 1);
        assert!(own.are_visible(&"key"));
    }
}
