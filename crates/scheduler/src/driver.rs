//! The scheduler and the API: informers tell the engine, tasks do what it decides.
mod bind;
mod claims;
mod extender;
mod measure;
mod tell;

use crate::cluster::{Labelled, Owner};
use crate::config::Profile;
use crate::engine::{Engine, Task};
use crate::gang::Group;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::preemption::Budget;
use crate::{Config, event};
use api::codec::DecodeError;
use api::names::NamespacedName;
use api::object::{Keep, Object};
use api::rules::Form;
use api::selector::field;
use client::events::{Happening, Recorder, Reporter};
use client::source::Collection;
use client::{ApiResource, Change, Client, Context, Informer, Informers, Source};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use measure::{Attempt, Gauges};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};

/// Writes that are under way at once.
const WRITES: usize = 256;

/// Something that the engine is told.
type News = Box<dyn FnOnce(&mut Engine, Timestamp) + Send>;

/// What tasks work with.
struct Hands {
    context: Context,
    client: Client,
    /// One per profile, by scheduler name.
    recorders: HashMap<Box<str>, Recorder>,
    extenders: Option<extender::Http>,
    profiles: Vec<Arc<Profile>>,
    news: mpsc::UnboundedSender<News>,
    claims: Informer<PersistentVolumeClaim>,
    device_claims: Informer<ResourceClaim>,
    writes: Semaphore,
}

impl Hands {
    fn record(&self, pod: &PodInfo, happening: Happening) {
        if let Some(recorder) = self.recorders.get(&pod.wishes.scheduler) {
            recorder.record(happening);
        }
    }

    fn profile(&self, pod: &PodInfo) -> Option<&Arc<Profile>> {
        self.profiles.iter().find(|profile| profile.scheduler_name == pod.wishes.scheduler)
    }
}

/// Schedules pods until the context stops.
pub async fn run(context: &Context, source: Arc<dyn Source>, config: Config) {
    let informers = Informers::new(context, source.clone());
    let client = Client::new(source).managed_by("kube-scheduler");
    let Config { configuration, host, pending } = config;
    let recorder = |profile: &Arc<Profile>| {
        let name = &profile.scheduler_name;
        let reporter = Reporter::new(name, &format!("{name}-{host}"));
        (name.clone(), Recorder::series(context, client.clone(), reporter))
    };
    let (sender, mut news) = mpsc::unbounded_channel();
    watch(&informers, &sender);
    watch_devices(&informers, &sender);
    if configuration.gangs {
        on::<Group>(&informers, &sender, groups(), |engine, change, now| {
            engine.pod_group(&change.key, change.new, now);
        });
    }
    let extenders = match configuration.extenders.is_empty() {
        true => None,
        false => {
            let (pods, nodes) = (informers.objects(pods()), informers.objects(all::<Node>()));
            match extender::Http::new(&configuration.extenders, pods, nodes) {
                Ok(extenders) => Some(extenders),
                Err(problem) => {
                    tracing::error!(problem, "an extender cannot be reached: nothing is scheduled");
                    return;
                }
            }
        }
    };
    let hands = Arc::new(Hands {
        context: context.clone(),
        recorders: configuration.profiles.iter().map(recorder).collect(),
        extenders,
        profiles: configuration.profiles.clone(),
        client,
        news: sender,
        claims: informers.of::<PersistentVolumeClaim>(),
        device_claims: informers.of::<ResourceClaim>(),
        writes: Semaphore::new(WRITES),
    });
    tokio::select! {
        () = context.stopped() => return,
        () = informers.synced() => {}
    }
    let mut engine = Engine::new(&configuration, context.number());
    engine.pending = pending;
    let mut gauges = Gauges::default();
    while !context.is_stopped() {
        while let Ok(one) = news.try_recv() {
            one(&mut engine, context.now());
        }
        let begun = Instant::now();
        let next = match &hands.extenders {
            None => engine.next(context.now()),
            Some(extenders) => engine.next_with(context.now(), extenders).await,
        };
        let until = gauges.take(context, &mut engine);
        if let Some(tasks) = next {
            measure::decided(context, &engine, &tasks, begun);
            for task in tasks {
                start(&hands, &engine, task, begun);
            }
            // Whoever else is on this thread has a turn, too.
            tokio::task::yield_now().await;
            continue;
        }
        let due = engine.queue.due().map(|due| due.duration_since(context.now()));
        let rest = due.map_or(Duration::from_secs(60), |due| due.try_into().unwrap_or_default());
        let rest = until.map_or(rest, |until| until.min(rest));
        tokio::select! {
            () = context.stopped() => return,
            () = tokio::time::sleep(rest) => {}
            one = news.recv() => match one {
                Some(one) => one(&mut engine, context.now()),
                None => return,
            },
        }
    }
}

fn start(hands: &Arc<Hands>, engine: &Engine, task: Task, begun: Instant) {
    let hands = hands.clone();
    match task {
        Task::Bind { pod, node, plan } => {
            let attempt = Attempt::of(engine, &pod, begun, hands.context.now());
            tokio::spawn(async move { bind::bind(&hands, &pod, &node, plan, attempt).await });
        }
        Task::Free(claim) => {
            tokio::spawn(async move { claims::free(&hands, &claim).await });
        }
        Task::Tell { pod, reason, message, nomination, victims } => {
            tokio::spawn(async move {
                tell::refused(&hands, &pod, reason, &message, &nomination).await;
                if !victims.is_empty() {
                    tell::preempt(&hands, &pod, &nomination, victims).await;
                }
            });
        }
        Task::Unnominate(pod) => {
            tokio::spawn(async move { tell::unnominate(&hands, &pod).await });
        }
    }
}

/// Every kind that a decision looks at, and what a change of it means to the engine.
fn watch(informers: &Informers, news: &mpsc::UnboundedSender<News>) {
    on::<PodInfo>(informers, news, pods(), |engine, change, now| {
        engine.pod(change.old.as_ref(), change.new.as_ref(), now);
    });
    on::<NodeInfo>(informers, news, all::<Node>(), |engine, change, now| {
        engine.node(change.old.as_deref(), change.new.as_ref(), now);
    });
    on::<Labelled>(informers, news, all::<Namespace>(), |engine, change, now| {
        engine.namespace(&change.key.name, change.new.as_ref(), now);
    });
    let owners = [
        all::<Service>(),
        all::<ReplicationController>(),
        all::<ReplicaSet>(),
        all::<StatefulSet>(),
    ];
    for kind in owners {
        on::<Owner>(informers, news, kind, |engine, change, _| {
            engine.owner(change.old.as_deref(), change.new.as_ref());
        });
    }
    on::<Budget>(informers, news, all::<PodDisruptionBudget>(), |engine, change, _| {
        let budgets = &mut engine.decider.cluster.budgets;
        match change.new {
            Some(new) => drop(budgets.insert(change.key, new)),
            None => drop(budgets.remove(&change.key)),
        }
    });
    on::<PersistentVolumeClaim>(
        informers,
        news,
        all::<PersistentVolumeClaim>(),
        |engine, change, now| {
            engine.decider.cluster.storage.set_claim(&change.key, change.new);
            engine.queue.wake(event::CLAIM, now);
        },
    );
    on::<PersistentVolume>(informers, news, all::<PersistentVolume>(), |engine, change, now| {
        engine.decider.cluster.storage.set_volume(&change.key.name, change.new);
        engine.queue.wake(event::VOLUME, now);
    });
    on::<StorageClass>(informers, news, all::<StorageClass>(), |engine, change, now| {
        let classes = &mut engine.decider.cluster.storage.classes;
        keep(classes, change.key.name, change.new);
        engine.queue.wake(event::STORAGE_CLASS, now);
    });
    on::<CSINode>(informers, news, all::<CSINode>(), |engine, change, now| {
        let nodes = &mut engine.decider.cluster.storage.csi_nodes;
        keep(nodes, change.key.name, change.new);
        engine.queue.wake(event::CSI_NODE, now);
    });
    on::<CSIDriver>(informers, news, all::<CSIDriver>(), |engine, change, now| {
        let drivers = &mut engine.decider.cluster.storage.csi_drivers;
        keep(drivers, change.key.name, change.new);
        engine.queue.wake(event::CSI_CAPACITY, now);
    });
    on::<VolumeAttachment>(informers, news, all::<VolumeAttachment>(), |engine, change, now| {
        let Owned { key, old, new } = change;
        let is_gone = new.is_none();
        engine.decider.cluster.storage.set_attachment(key.name, old.as_deref(), new);
        if is_gone {
            engine.queue.wake(event::ATTACHMENT, now);
        }
    });
    on::<CSIStorageCapacity>(
        informers,
        news,
        all::<CSIStorageCapacity>(),
        |engine, change, now| {
            let capacities = &mut engine.decider.cluster.storage.capacities;
            keep_sorted(capacities, change.key, change.new);
            engine.queue.wake(event::CSI_CAPACITY, now);
        },
    );
}

/// Devices and who has them.
fn watch_devices(informers: &Informers, news: &mpsc::UnboundedSender<News>) {
    on::<ResourceClaim>(informers, news, all::<ResourceClaim>(), |engine, change, now| {
        engine.device_claim(&change.key, change.new, now);
    });
    on::<DeviceClass>(informers, news, all::<DeviceClass>(), |engine, change, now| {
        let classes = &mut engine.decider.cluster.devices.classes;
        keep_sorted(classes, change.key.name, change.new);
        engine.queue.wake(event::DEVICE_CLASS, now);
    });
    on::<ResourceSlice>(informers, news, all::<ResourceSlice>(), |engine, change, now| {
        engine.decider.cluster.devices.set_slice(change.key.name, change.new);
        engine.queue.wake(event::RESOURCE_SLICE, now);
    });
    on::<DeviceTaintRule>(informers, news, all::<DeviceTaintRule>(), |engine, change, now| {
        let rules = &mut engine.decider.cluster.devices.rules;
        keep_sorted(rules, change.key.name, change.new);
        engine.queue.wake(event::RESOURCE_SLICE, now);
    });
}

fn keep_sorted<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}

/// Served only where it is asked for, so that there is no row of it.
fn groups() -> Collection {
    let (group, version) = ("scheduling.k8s.io", "v1beta1");
    let scope = api::kinds::Scope::Namespaced;
    Collection::all(ApiResource::custom(group, version, "podgroups", "PodGroup", scope))
}

/// Pods that are over hold nothing.
fn pods() -> Collection {
    let fields = field::Selector::parse("status.phase!=Succeeded,status.phase!=Failed");
    all::<Pod>().with_fields(fields.unwrap_or_else(|_| field::Selector::everything()))
}

fn keep<K: Eq + Hash, V>(map: &mut HashMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}

fn all<T: Form>() -> Collection {
    Collection::all(ApiResource::of::<T>())
}

/// A change that may be taken elsewhere.
struct Owned<K> {
    key: NamespacedName,
    old: Option<Arc<K>>,
    new: Option<Arc<K>>,
}

fn on<K: Keep>(
    informers: &Informers,
    news: &mpsc::UnboundedSender<News>,
    of: Collection,
    tell: fn(&mut Engine, Owned<K>, Timestamp),
) {
    let news = news.clone();
    informers.keep::<K>(of).on_change(move |change: &Change<K>| {
        let Change { key, old, new, .. } = change;
        let owned = Owned { key: key.clone(), old: old.clone(), new: new.clone() };
        // Nobody listens any more when the scheduler stops.
        let _ = news.send(Box::new(move |engine, now| tell(engine, owned, now)));
    });
}

impl Keep for Labelled {
    fn keep(object: &Arc<Object>) -> Result<Arc<Labelled>, DecodeError> {
        Ok(Arc::new(Labelled { labels: object.metadata().labels.clone() }))
    }
}
