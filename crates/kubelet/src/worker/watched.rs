//! ConfigMaps and Secrets that pods show in volumes: who refers to one is woken up when it changes.
//! Each is watched by its name, which is all that a node may do, and once for all pods.
use super::Kubelet;
use super::references::names;
use crate::pod;
use api::codec::DecodeError;
use api::object::{Keep, Object};
use api::selector::field::Selector;
use client::source::Collection;
use client::{ApiResource, Context, Informer, NamespacedName};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Whether it is a Secret, and its name.
type Key = (bool, NamespacedName);

#[derive(Default)]
pub struct Watched(Mutex<HashMap<Key, Entry>>);

struct Entry {
    /// Stops the watch.
    context: Context,
    /// Uids of those who refer to it.
    pods: BTreeSet<String>,
}

/// That there was a change is all that is kept of it.
struct Changed;

impl Keep for Changed {
    fn keep(_: &Arc<Object>) -> Result<Arc<Changed>, DecodeError> {
        Ok(Arc::new(Changed))
    }
}

impl Kubelet {
    /// From now on the pod hears of changes of what its volumes show.
    pub(super) fn watch_references(self: &Arc<Self>, pod: &Pod) {
        let uid = pod::uid(pod);
        let volumes = serde_json::json!(pod::spec(pod).volumes);
        for (is_secret, name) in names(&volumes) {
            let key = (is_secret, NamespacedName::new(pod::namespace(pod), &name));
            let mut all = self.watched.0.lock();
            if let Some(entry) = all.get_mut(&key) {
                entry.pods.insert(uid.to_owned());
                continue;
            }
            let entry =
                Entry { context: self.context.part(), pods: BTreeSet::from([uid.to_owned()]) };
            let context = entry.context.clone();
            all.insert(key.clone(), entry);
            drop(all);
            let resource = match is_secret {
                true => ApiResource::of::<Secret>(),
                false => ApiResource::of::<ConfigMap>(),
            };
            let of = Collection::all(resource)
                .in_namespace(&key.1.namespace)
                .with_fields(Selector::equals("metadata.name", &name));
            let source = self.client.source().clone();
            let informer = Informer::<Changed>::start(&context, source, of);
            let kubelet = Arc::downgrade(self);
            informer.on_change(move |_| {
                let Some(kubelet) = kubelet.upgrade() else { return };
                let all = kubelet.watched.0.lock();
                let pods = all.get(&key).map(|entry| entry.pods.clone()).unwrap_or_default();
                drop(all);
                pods.into_iter().for_each(|uid| kubelet.queue.add(uid));
            });
        }
    }

    /// The pod is gone; what nobody refers to any more is not watched any more.
    pub(super) fn unwatch(&self, uid: &str) {
        self.watched.0.lock().retain(|_, entry| {
            entry.pods.remove(uid);
            if entry.pods.is_empty() {
                entry.context.stop();
            }
            !entry.pods.is_empty()
        });
    }
}
