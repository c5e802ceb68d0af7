//! The scheduler and the API: informers tell the engine, tasks do what it decides.
mod bind;
mod tell;

use crate::cluster::{Labelled, Owner};
use crate::engine::{Engine, Task};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::preemption::Budget;
use crate::{Config, event};
use api::codec::DecodeError;
use api::names::NamespacedName;
use api::object::{Keep, Object};
use api::rules::Form;
use api::selector::field;
use client::events::{Recorder, Reporter};
use client::source::Collection;
use client::{ApiResource, Change, Client, Context, Informer, Informers, Source};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

/// Writes that are under way at once.
const WRITES: usize = 256;

/// Something that the engine is told.
type News = Box<dyn FnOnce(&mut Engine, Timestamp) + Send>;

/// What tasks work with.
struct Hands {
    context: Context,
    client: Client,
    recorder: Recorder,
    news: mpsc::UnboundedSender<News>,
    claims: Informer<PersistentVolumeClaim>,
    writes: Semaphore,
    scheduler_name: String,
}

/// Schedules pods until the context stops.
pub async fn run(context: &Context, source: Arc<dyn Source>, config: Config) {
    let informers = Informers::new(context, source.clone());
    let client = Client::new(source).managed_by("kube-scheduler");
    let reporter = Reporter::new(&config.scheduler_name, &config.instance);
    let (sender, mut news) = mpsc::unbounded_channel();
    watch(&informers, &sender);
    let hands = Arc::new(Hands {
        context: context.clone(),
        recorder: Recorder::series(context, client.clone(), reporter),
        client,
        news: sender,
        claims: informers.of::<PersistentVolumeClaim>(),
        writes: Semaphore::new(WRITES),
        scheduler_name: config.scheduler_name.clone(),
    });
    tokio::select! {
        () = context.stopped() => return,
        () = informers.synced() => {}
    }
    let mut engine = Engine::new(&config.scheduler_name, context.number());
    while !context.is_stopped() {
        while let Ok(one) = news.try_recv() {
            one(&mut engine, context.now());
        }
        let begun = std::time::Instant::now();
        if let Some(tasks) = engine.next(context.now()) {
            measure(context, &config.scheduler_name, &tasks, begun.elapsed());
            tasks.into_iter().for_each(|task| start(&hands, task));
            // Whoever else is on this thread has a turn, too.
            tokio::task::yield_now().await;
            continue;
        }
        let due = engine.queue.due().map(|due| due.duration_since(context.now()));
        let rest = due.map_or(Duration::from_secs(60), |due| due.try_into().unwrap_or_default());
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

/// What came of an attempt, under upstream's names.
fn measure(context: &Context, profile: &str, tasks: &[Task], took: Duration) {
    let metrics = context.metrics();
    let result = tasks.iter().find_map(|task| match task {
        Task::Bind { .. } => Some("scheduled"),
        Task::Tell { victims, .. } => {
            if !victims.is_empty() {
                metrics.count("scheduler_preemption_attempts_total", &[]);
                metrics.observe("scheduler_preemption_victims", &[], victims.len() as f64);
            }
            Some("unschedulable")
        }
        Task::Unnominate(_) => None,
    });
    let Some(result) = result else { return };
    let labels = [("profile", profile), ("result", result)];
    metrics.count("scheduler_schedule_attempts_total", &labels);
    let seconds = took.as_secs_f64();
    metrics.observe("scheduler_scheduling_algorithm_duration_seconds", &[], seconds);
}

fn start(hands: &Arc<Hands>, task: Task) {
    let hands = hands.clone();
    match task {
        Task::Bind { pod, node, volumes } => {
            tokio::spawn(async move { bind::bind(&hands, &pod, &node, volumes).await });
        }
        Task::Tell { pod, message, nomination, victims } => {
            tokio::spawn(async move {
                tell::refused(&hands, &pod, "Unschedulable", &message, &nomination).await;
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
    // Pods that are over hold nothing.
    let fields = field::Selector::parse("status.phase!=Succeeded,status.phase!=Failed");
    let pods = Collection::all(ApiResource::of::<Pod>())
        .with_fields(fields.unwrap_or_else(|_| field::Selector::everything()));
    on::<PodInfo>(informers, news, pods, |engine, change, now| {
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
    on::<CSIStorageCapacity>(
        informers,
        news,
        all::<CSIStorageCapacity>(),
        |engine, change, now| {
            let capacities = &mut engine.decider.cluster.storage.capacities;
            keep(capacities, change.key, change.new);
            engine.queue.wake(event::CSI_CAPACITY, now);
        },
    );
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
