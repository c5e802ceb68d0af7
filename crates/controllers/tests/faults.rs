//! Workloads on an API server that refuses, loses answers and cuts watches, at random: everything comes to
//! what was asked for, and a pod too many is made only where an answer was lost.
//!
//! Time is paused, so that an hour of back-off takes no time; a seed is one course of events.
//! `FAULT_SEEDS` says how many are tried; the default suits CI.
#![allow(clippy::unwrap_used, reason = "a test: a panic is the report")]
use api::status::Status;
use client::source::{
    Answer, Ask, Call, Collection, List, Outcome, Page, Raw, RawAnswer, Source, Watch, WatchFrom,
};
use client::testing::World;
use client::{ApiResource, Context};
use controllers::{Settings, Sources};
use futures_util::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{
    ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet,
};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use testkit::hollow;

/// One request in so many is refused, and of one in so many the answer is lost.
const REFUSED: f64 = 0.2;
const LOST: f64 = 0.1;
/// One event in so many is the last of its watch.
const CUT: f64 = 0.05;
const NODES: usize = 4;

/// The world behind a bad line.
struct Faulty {
    world: World,
    context: Context,
    is_bad: Arc<AtomicBool>,
    made: Arc<Mutex<BTreeMap<String, Made>>>,
}

/// Pods that were made for an owner.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Made {
    all: usize,
    /// Their maker does not know.
    unheard: usize,
}

impl Faulty {
    fn happens(&self, chance: f64) -> bool {
        self.is_bad.load(Relaxed) && self.context.chance() < chance
    }

    fn refusal(&self, call: &Call) -> Status {
        let of = call.resource.group_resource();
        match self.context.number() % 4 {
            0 => Status::too_many_requests("too many", 1),
            1 => Status::server_timeout(of, "write", 0),
            2 if matches!(call.ask, Ask::Update(..) | Ask::Patch(..)) => {
                Status::conflict(of, &call.name, "the object has been modified")
            }
            _ => lost(),
        }
    }
}

fn lost() -> Status {
    Status::service_unavailable("the connection was lost")
}

/// Whose pod is made by a call.
fn owner(call: &Call) -> Option<String> {
    let Ask::Create(body, _) = &call.ask else { return None };
    let is_pod = &*call.resource.kind == "Pod" && call.subresource.is_empty();
    let owner = &body["metadata"]["ownerReferences"][0];
    is_pod.then(|| format!("{} {}", owner["kind"], owner["name"]).replace('"', ""))
}

impl Source for Faulty {
    fn call(&self, call: Call) -> Answer<'_, Outcome> {
        async move {
            // Others have their turn while a request is on its way.
            tokio::time::sleep(Duration::from_millis(self.context.number() % 20)).await;
            if self.happens(REFUSED) {
                return Err(self.refusal(&call));
            }
            let owner = owner(&call);
            let done = self.world.call(call).await;
            tokio::time::sleep(Duration::from_millis(self.context.number() % 20)).await;
            let is_lost = self.happens(LOST);
            if let (Some(owner), Ok(_)) = (owner, &done) {
                let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
                let made = made.entry(owner).or_default();
                made.all += 1;
                made.unheard += usize::from(is_lost);
            }
            if is_lost { Err(lost()) } else { done }
        }
        .boxed()
    }

    fn list(&self, of: Collection, page: Page) -> Answer<'_, List> {
        async move {
            if self.happens(REFUSED) { Err(lost()) } else { self.world.list(of, page).await }
        }
        .boxed()
    }

    fn watch(&self, of: Collection, from: WatchFrom) -> Answer<'_, Watch> {
        async move {
            if self.happens(REFUSED) {
                return Err(lost());
            }
            let (context, is_bad) = (self.context.clone(), self.is_bad.clone());
            let watch = self.world.watch(of, from).await?;
            let cut = watch.scan(false, move |is_over, event| {
                let goes_on = !*is_over;
                *is_over = is_bad.load(Relaxed) && context.chance() < CUT;
                let late = Duration::from_millis(context.number() % 10);
                async move {
                    tokio::time::sleep(late).await;
                    goes_on.then_some(event)
                }
            });
            Ok(cut.boxed())
        }
        .boxed()
    }

    fn raw(&self, request: Raw) -> Answer<'_, RawAnswer> {
        self.world.raw(request)
    }
}

fn put<T: api::rules::Form>(world: &World, name: &str, more: Value) {
    let mut tree = match T::KIND {
        "CronJob" | "Service" => json!({ "metadata": {}, "spec": {} }),
        _ => json!({ "metadata": { "labels": { "app": name } },
            "spec": { "selector": { "matchLabels": { "app": name } },
                "template": { "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "c", "image": "i" }] } } } }),
    };
    if let Some(old) = world.get::<T>("default", name) {
        tree = serde_json::to_value(&*old).unwrap();
        let generation = &mut tree["metadata"]["generation"];
        *generation = json!(generation.as_i64().unwrap_or_default() + 1);
    } else {
        tree["metadata"]["generation"] = json!(1);
    }
    tree["metadata"]["name"] = name.into();
    tree["metadata"]["namespace"] = "default".into();
    merge(&mut tree, more);
    world.put_tree(&ApiResource::of::<T>(), tree);
}

fn merge(tree: &mut Value, more: Value) {
    match more {
        Value::Object(more) => {
            more.into_iter().for_each(|(key, value)| merge(&mut tree[key], value))
        }
        more => *tree = more,
    }
}

/// What a pod does, for [`hollow`].
fn does(what: &str) -> Value {
    json!({ "metadata": { "annotations": { hollow::DOES: what } },
        "spec": { "restartPolicy": "Never" } })
}

fn begin(world: &World) {
    put::<ReplicaSet>(world, "plain", json!({ "spec": { "replicas": 6 } }));
    put::<Deployment>(
        world,
        "web",
        json!({ "spec": { "replicas": 5, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600_000,
            "strategy": { "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 1 } } } }),
    );
    put::<Deployment>(
        world,
        "again",
        json!({ "spec": { "replicas": 3, "strategy": { "type": "Recreate" } } }),
    );
    put::<StatefulSet>(
        world,
        "db",
        json!({ "spec": { "replicas": 3, "serviceName": "db", "podManagementPolicy": "OrderedReady",
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } } } }),
    );
    put::<DaemonSet>(
        world,
        "agent",
        json!({ "spec": { "updateStrategy": { "type": "RollingUpdate",
            "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 } } } }),
    );
    let job = |what: &str, more: Value| {
        let mut job = json!({ "spec": { "template": does(what), "backoffLimit": 2, "suspend": false,
            "completionMode": "NonIndexed", "podReplacementPolicy": "TerminatingOrFailed" } });
        merge(&mut job["spec"], more);
        job
    };
    put::<Job>(world, "work", job("exit=0", json!({ "completions": 9, "parallelism": 4 })));
    put::<Job>(
        world,
        "indexed",
        job("exit=0", json!({ "completions": 6, "parallelism": 6, "completionMode": "Indexed" })),
    );
    put::<Job>(world, "failing", job("exit=1", json!({ "completions": 1, "parallelism": 1 })));
    put::<Service>(
        world,
        "web",
        json!({ "spec": { "selector": { "app": "web" }, "clusterIP": "10.96.0.7", "type": "ClusterIP",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{ "port": 80, "targetPort": 80, "protocol": "TCP" }] } }),
    );
    let template = json!({ "metadata": { "labels": { "app": "tick" } }, "spec": { "template": does("exit=0") } });
    let mut cron = json!({ "spec": { "schedule": "* * * * *", "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1, "suspend": false } });
    cron["spec"]["jobTemplate"] = template;
    merge(
        &mut cron["spec"]["jobTemplate"]["spec"],
        json!({ "completions": 1, "parallelism": 1, "backoffLimit": 6,
            "selector": { "matchLabels": { "app": "tick" } },
            "template": { "metadata": { "labels": { "app": "tick" } },
                "spec": { "containers": [{ "name": "c", "image": "i" }] } } }),
    );
    put::<CronJob>(world, "tick", cron);
}

/// What people want next.
fn change(world: &World) {
    let other = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "j" }] } } } });
    put::<Deployment>(world, "web", other.clone());
    put::<Deployment>(world, "web", json!({ "spec": { "replicas": 7 } }));
    put::<Deployment>(world, "again", other.clone());
    put::<StatefulSet>(world, "db", other.clone());
    put::<DaemonSet>(world, "agent", other);
}

/// Pods without a node get the one that they must have, or any.
fn place(world: &World) {
    for (at, pod) in world.all::<Pod>().iter().enumerate() {
        let mut tree = serde_json::to_value(&**pod).unwrap();
        if tree["spec"]["nodeName"].is_string() || !tree["metadata"]["deletionTimestamp"].is_null()
        {
            continue;
        }
        let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/\
                     nodeSelectorTerms/0/matchFields/0/values/0";
        let meant = tree.pointer(terms).and_then(Value::as_str).map(str::to_owned);
        tree["spec"]["nodeName"] = meant.unwrap_or(format!("hollow-{}", at % NODES)).into();
        world.put_tree(&ApiResource::of::<Pod>(), tree);
    }
}

/// What is not as it should be, if anything is not.
fn wrong(world: &World) -> Option<String> {
    for (name, replicas) in [("web", 7), ("again", 3)] {
        let found = world.get::<Deployment>("default", name)?;
        let status = found.status.clone().unwrap_or_default();
        let numbers = [status.replicas, status.updated_replicas, status.available_replicas];
        if numbers != [Some(replicas); 3] || status.observed_generation != found.metadata.generation
        {
            return Some(format!("{name}: {status:?}"));
        }
        let sets = world.all::<ReplicaSet>();
        let mine = sets.iter().filter(|set| {
            set.metadata.owner_references.iter().flatten().any(|owner| owner.name == name)
        });
        let used: Vec<_> = mine
            .clone()
            .filter(|set| set.spec.replicas != Some(0))
            .map(|set| set.spec.replicas)
            .collect();
        if used != [Some(replicas)] || mine.count() != 2 {
            return Some(format!("ReplicaSets of {name}: {used:?}"));
        }
    }
    let db = world.get::<StatefulSet>("default", "db")?.status.clone().unwrap_or_default();
    if (db.replicas, db.ready_replicas, db.updated_replicas) != (3, Some(3), Some(3))
        || db.current_revision != db.update_revision
    {
        return Some(format!("db: {db:?}"));
    }
    let agent = world.get::<DaemonSet>("default", "agent")?.status.clone().unwrap_or_default();
    let nodes = NODES as i32;
    if (agent.number_available, agent.updated_number_scheduled) != (Some(nodes), Some(nodes)) {
        return Some(format!("agent: {agent:?}"));
    }
    for (name, end, succeeded, failed) in [
        ("work", "Complete", Some(9), None),
        ("indexed", "Complete", Some(6), None),
        ("failing", "Failed", None, Some(3)),
    ] {
        let status = world.get::<Job>("default", name)?.status.clone().unwrap_or_default();
        let is_over = status.conditions.iter().flatten().any(|it| it.type_ == end);
        if !is_over || (status.succeeded, status.failed) != (succeeded, failed) {
            return Some(format!("{name}: {status:?}"));
        }
    }
    let pods = world.all::<Pod>();
    for (kind, name, count) in [
        ("ReplicaSet", "plain", 6),
        ("ReplicaSet", "web", 7),
        ("ReplicaSet", "again", 3),
        ("StatefulSet", "db", 3),
        ("DaemonSet", "agent", NODES),
    ] {
        let is_of = |pod: &Pod| {
            let owners = pod.metadata.owner_references.iter().flatten();
            owners.clone().any(|it| it.kind == kind && it.name.starts_with(name))
        };
        let found = pods.iter().filter(|pod| is_of(pod)).count();
        if found != count {
            return Some(format!("{found} pods of {kind} {name}"));
        }
    }
    let is_held = |pod: &Pod| pod.metadata.finalizers.iter().flatten().next().is_some();
    let held = pods.iter().filter(|pod| is_held(pod)).find(|pod| {
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        !owners.iter().any(|owner| owner.name.starts_with("tick"))
    });
    if let Some(pod) = held {
        return Some(format!("{:?} is held for nobody", pod.metadata.name));
    }
    let slices = world.all::<EndpointSlice>();
    let endpoints: usize = slices.iter().filter_map(|it| it.endpoints.as_ref()).map(Vec::len).sum();
    if endpoints != 7 {
        return Some(format!("{endpoints} endpoints"));
    }
    (world.all::<ControllerRevision>().len() != 4).then(|| "revisions".to_owned())
}

/// One course of events; how many pods were made for whom.
async fn course(seed: u64) -> BTreeMap<String, Made> {
    let origin: Timestamp = "2026-01-01T12:00:30Z".parse().unwrap();
    let context = Context::simulated(origin, seed);
    let world = World::new(&context);
    let is_bad = Arc::new(AtomicBool::new(true));
    let made: Arc<Mutex<BTreeMap<String, Made>>> = Arc::default();
    let source: Arc<dyn Source> = Arc::new(Faulty {
        world: world.clone(),
        context: context.clone(),
        is_bad: is_bad.clone(),
        made: made.clone(),
    });
    let nodes = hollow::Options { nodes: NODES, workers: 4, ..hollow::Options::default() };
    hollow::start(&context, world.source(), nodes).await.expect("nodes");
    begin(&world);
    let names = [
        "deployment",
        "replicaset",
        "statefulset",
        "daemonset",
        "job",
        "cronjob",
        "endpointslice",
        "ttl-after-finished",
        "garbage-collector",
        "disruption",
    ];
    let names: Vec<String> = names.iter().map(|name| format!("{name}-controller")).collect();
    let running = controllers::start(&context, &Sources::one(source), &names, Settings::default());
    tokio::spawn(running.expect("these are controllers"));
    let began = context.now();
    for turn in 0.. {
        tokio::time::sleep(Duration::from_millis(100)).await;
        place(&world);
        if turn == 200 {
            change(&world);
        }
        if turn < 300 || turn % 10 != 0 {
            continue;
        }
        let Some(last) = wrong(&world) else { break };
        let passed = context.now().duration_since(began);
        assert!(passed.as_hours() < 3, "seed {seed}, after {passed:#}: {last}");
    }
    let lines = world.written().len();
    // Nothing more happens, but for what the clock brings.
    is_bad.store(false, Relaxed);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    place(&world);
    assert_eq!(wrong(&world), None, "seed {seed}, an hour later");
    let ticks = world.all::<Job>();
    let ticks = ticks.iter().filter(|job| job.metadata.name.as_ref().unwrap().starts_with("tick"));
    assert!((1..=3).contains(&ticks.count()), "seed {seed}");
    assert!(lines < 20_000, "seed {seed}: {lines} writes");
    context.stop();
    made.lock().unwrap().clone()
}

#[test]
fn workloads_come_to_what_was_asked_for_over_a_bad_line() {
    let count = std::env::var("FAULT_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    for seed in 1..=count {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let made = runtime.block_on(course(seed));
        for (owner, wanted) in
            [("ReplicaSet plain", 6), ("Job work", 9), ("Job indexed", 6), ("Job failing", 3)]
        {
            let Made { all, unheard } = made[owner];
            assert!(
                all >= wanted && all <= wanted + unheard,
                "seed {seed}: {owner} {all}, {unheard} unheard"
            );
        }
    }
}
