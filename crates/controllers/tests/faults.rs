//! Workloads in bad weather: an API server that refuses, loses answers, cuts watches or is away, others who
//! write at the same moment, a manager that is killed, a clock that is set. Everything comes to what was
//! asked for, and a pod too many is made only where an answer was lost.
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
use jiff::{SignedDuration, Timestamp};
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

const NODES: usize = 4;
/// How long people change things, and the weather is as it is said to be; in tenths of a second.
const TROUBLE: usize = 300;

/// What goes wrong, each with its chance.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    /// A request has no effect.
    refused: f64,
    /// A request has its effect, and nobody hears of it.
    lost: f64,
    /// An event is the last of its watch.
    cut: f64,
    /// Somebody else writes an object just before a write to it.
    contested: f64,
    /// In a tenth of a second, the API server goes away for a minute.
    away: f64,
    /// In a tenth of a second, the manager is killed, and another started.
    killed: f64,
    /// In a tenth of a second, the clock is set, by up to an hour in either direction.
    set: f64,
}

/// The world, seen by one manager through the weather.
struct Faulty {
    world: World,
    context: Context,
    weather: Weather,
    is_bad: Arc<AtomicBool>,
    is_away: Arc<AtomicBool>,
    /// Its manager was killed: nothing that it still asks for is heard.
    is_killed: Arc<AtomicBool>,
    made: Arc<Mutex<BTreeMap<String, Made>>>,
}

/// Pods that were made for an owner.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Made {
    all: usize,
    /// Made, or removed, without the owner's knowledge: it may do it once more.
    unheard: usize,
}

impl Faulty {
    fn happens(&self, chance: f64) -> bool {
        self.is_bad.load(Relaxed) && self.context.chance() < chance
    }

    fn is_cut_off(&self) -> bool {
        self.is_away.load(Relaxed) || self.is_killed.load(Relaxed)
    }

    /// Somebody else notes something on the object that a call is about to write.
    fn contest(&self, call: &Call) {
        if !matches!(call.ask, Ask::Update(..) | Ask::Patch(..)) {
            return;
        }
        let found = self.world.get_tree(&call.resource, &call.namespace, &call.name);
        if let Some(mut tree) = found {
            tree["metadata"]["annotations"]["seen"] = self.context.number().to_string().into();
            self.world.put_tree(&call.resource, tree);
        }
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

/// Whose pod is made, or removed, by a call.
fn owner(world: &World, call: &Call) -> Option<String> {
    if &*call.resource.kind != "Pod" || !call.subresource.is_empty() {
        return None;
    }
    let found = || world.get_tree(&call.resource, &call.namespace, &call.name);
    let pod = match &call.ask {
        Ask::Create(body, _) => body.clone(),
        Ask::Delete(..) => found()?,
        _ => return None,
    };
    let owner = &pod["metadata"]["ownerReferences"][0];
    Some(format!("{} {}", owner["kind"], owner["name"]).replace('"', ""))
}

impl Source for Faulty {
    fn call(&self, call: Call) -> Answer<'_, Outcome> {
        async move {
            // Others have their turn while a request is on its way.
            tokio::time::sleep(Duration::from_millis(self.context.number() % 20)).await;
            if self.is_cut_off() {
                return Err(lost());
            }
            if self.happens(self.weather.refused) {
                return Err(self.refusal(&call));
            }
            if self.happens(self.weather.contested) {
                self.contest(&call);
            }
            let owner = owner(&self.world, &call);
            let is_made = matches!(call.ask, Ask::Create(..));
            let done = self.world.call(call).await;
            tokio::time::sleep(Duration::from_millis(self.context.number() % 20)).await;
            let is_lost = self.is_cut_off() || self.happens(self.weather.lost);
            if let (Some(owner), Ok(_)) = (owner, &done) {
                let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
                let made = made.entry(owner).or_default();
                made.all += usize::from(is_made);
                made.unheard += usize::from(is_lost);
            }
            if is_lost { Err(lost()) } else { done }
        }
        .boxed()
    }

    fn list(&self, of: Collection, page: Page) -> Answer<'_, List> {
        async move {
            let is_refused = self.is_cut_off() || self.happens(self.weather.refused);
            if is_refused { Err(lost()) } else { self.world.list(of, page).await }
        }
        .boxed()
    }

    fn watch(&self, of: Collection, from: WatchFrom) -> Answer<'_, Watch> {
        async move {
            if self.is_cut_off() || self.happens(self.weather.refused) {
                return Err(lost());
            }
            let (context, is_bad, chance) =
                (self.context.clone(), self.is_bad.clone(), self.weather.cut);
            let (is_away, is_killed) = (self.is_away.clone(), self.is_killed.clone());
            let watch = self.world.watch(of, from).await?;
            let cut = watch.scan(false, move |is_over, event| {
                let goes_on = !*is_over && !is_away.load(Relaxed) && !is_killed.load(Relaxed);
                *is_over = is_bad.load(Relaxed) && context.chance() < chance;
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
        // In trouble for long enough, a template may be another one before anything was made of the first.
        if used != [Some(replicas)] || mine.clone().count() > 2 {
            let all: Vec<_> = mine.map(|set| (&set.metadata, &set.spec, &set.status)).collect();
            return Some(format!("ReplicaSets of {name}: {used:?} of {all:?}, {status:?}"));
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
        // A pod too many, made because an answer was lost, ends like the others or is taken away, which is a failure;
        // how many of those there may be is counted at the end. What has indexes counts those.
        let number = |count: Option<i32>| count.unwrap_or(0);
        let is_enough = |found, wanted| number(found) >= number(wanted);
        let has_succeeded = match name {
            "indexed" => status.succeeded == succeeded,
            _ => is_enough(status.succeeded, succeeded),
        };
        if !is_over || !has_succeeded || !is_enough(status.failed, failed) {
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
    let revisions = world.all::<ControllerRevision>();
    (!(2..=4).contains(&revisions.len())).then(|| format!("revisions: {revisions:?}"))
}

/// The loops, as one process of them.
struct Manager {
    context: Context,
    is_killed: Arc<AtomicBool>,
}

impl Manager {
    fn start(course: &Course) -> Manager {
        let (context, is_killed) = (course.context.part(), Arc::new(AtomicBool::new(false)));
        let source: Arc<dyn Source> = Arc::new(Faulty {
            world: course.world.clone(),
            context: course.context.clone(),
            weather: course.weather,
            is_bad: course.is_bad.clone(),
            is_away: course.is_away.clone(),
            is_killed: is_killed.clone(),
            made: course.made.clone(),
        });
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
        let settings = Settings::default();
        let running = controllers::start(&context, &Sources::one(source), &names, settings);
        tokio::spawn(running.expect("these are controllers"));
        Manager { context, is_killed }
    }

    fn kill(&self) {
        self.is_killed.store(true, Relaxed);
        self.context.stop();
    }
}

/// One course of events.
struct Course {
    seed: u64,
    weather: Weather,
    context: Context,
    world: World,
    is_bad: Arc<AtomicBool>,
    is_away: Arc<AtomicBool>,
    made: Arc<Mutex<BTreeMap<String, Made>>>,
}

impl Course {
    fn new(weather: Weather, seed: u64) -> Course {
        let origin: Timestamp = "2026-01-01T12:00:30Z".parse().unwrap();
        let context = Context::simulated(origin, seed);
        Course {
            seed,
            weather,
            world: World::new(&context),
            context,
            is_bad: Arc::new(AtomicBool::new(true)),
            is_away: Arc::default(),
            made: Arc::default(),
        }
    }

    fn happens(&self, chance: f64) -> bool {
        chance > 0.0 && self.context.chance() < chance
    }

    /// A tenth of a second, with whatever may happen in it.
    async fn pass(&self, manager: &mut Manager) {
        tokio::time::sleep(Duration::from_millis(self.context.number() % 200)).await;
        if self.happens(self.weather.killed) {
            manager.kill();
            *manager = Manager::start(self);
        }
        if self.happens(self.weather.set) {
            let seconds = (self.context.number() % 7200).cast_signed() - 3600;
            self.context.set_clock(SignedDuration::from_secs(seconds));
        }
        if self.happens(self.weather.away) {
            self.is_away.store(true, Relaxed);
            self.world.end_watches();
            tokio::time::sleep(Duration::from_secs(60)).await;
            self.is_away.store(false, Relaxed);
        }
    }

    /// Until all is well; how many pods were made for whom.
    async fn run(self) -> BTreeMap<String, Made> {
        let (seed, world, weather) = (self.seed, &self.world, self.weather);
        let nodes = hollow::Options { nodes: NODES, workers: 4, ..hollow::Options::default() };
        hollow::start(&self.context, world.source(), nodes).await.expect("nodes");
        begin(world);
        let mut manager = Manager::start(&self);
        let (began, mut seen) = (tokio::time::Instant::now(), 0);
        let mut furthest = self.context.now();
        for turn in 0.. {
            if turn == TROUBLE {
                // What was noted down is not in the future any more: nobody waits for it to come.
                let behind = furthest.duration_since(self.context.now());
                self.context.set_clock(behind.max(SignedDuration::ZERO));
            }
            if turn < TROUBLE {
                self.pass(&mut manager).await;
                furthest = furthest.max(self.context.now());
            } else {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            if std::mem::replace(&mut seen, world.revision()) != world.revision() {
                place(world);
            }
            if turn == TROUBLE * 2 / 3 {
                change(world);
            }
            if turn < TROUBLE {
                continue;
            }
            let Some(last) = wrong(world) else { break };
            let passed = began.elapsed();
            let patience = Duration::from_secs(3 * 3600);
            assert!(passed < patience, "{weather:?}, seed {seed}, after {passed:?}: {last}");
        }
        let lines = world.written().len();
        // Nothing more happens, but for what the clock brings.
        self.is_bad.store(false, Relaxed);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        place(world);
        assert_eq!(wrong(world), None, "{weather:?}, seed {seed}, an hour later");
        let ticks = world.all::<Job>();
        let is_tick = |job: &&Arc<Job>| job.metadata.name.as_ref().unwrap().starts_with("tick");
        assert!(
            (1..=3).contains(&ticks.iter().filter(is_tick).count()),
            "{weather:?}, seed {seed}"
        );
        assert!(lines < 20_000, "{weather:?}, seed {seed}: {lines} writes");
        self.context.stop();
        self.made.lock().unwrap().clone()
    }
}

fn comes_to_what_was_asked_for(weather: Weather) {
    let count = std::env::var("FAULT_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in 1..=count {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let made = runtime.block_on(async { Course::new(weather, seed).run().await });
        for (owner, wanted) in
            [("ReplicaSet plain", 6), ("Job work", 9), ("Job indexed", 6), ("Job failing", 3)]
        {
            let Made { all, unheard } = made[owner];
            assert!(
                all >= wanted && all <= wanted + unheard,
                "{weather:?}, seed {seed}: {owner} {all}, {unheard} unheard"
            );
        }
    }
}

#[test]
fn over_a_bad_line() {
    let weather = Weather { refused: 0.2, lost: 0.1, cut: 0.05, ..Weather::default() };
    comes_to_what_was_asked_for(weather);
}

#[test]
fn while_others_write_the_same_objects() {
    comes_to_what_was_asked_for(Weather { contested: 0.5, ..Weather::default() });
}

#[test]
fn while_the_api_server_goes_away() {
    comes_to_what_was_asked_for(Weather { away: 0.02, ..Weather::default() });
}

/// Some hundred times a course.
#[test]
fn while_the_manager_is_killed() {
    comes_to_what_was_asked_for(Weather { killed: 0.4, ..Weather::default() });
}

#[test]
fn while_the_clock_is_set() {
    comes_to_what_was_asked_for(Weather { set: 0.05, ..Weather::default() });
}

#[test]
fn in_all_of_it_at_once() {
    let weather = Weather {
        refused: 0.1,
        lost: 0.05,
        cut: 0.02,
        contested: 0.2,
        away: 0.005,
        killed: 0.02,
        set: 0.02,
    };
    comes_to_what_was_asked_for(weather);
}
