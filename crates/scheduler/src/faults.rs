//! Faults, many at once and bounded: the API server refuses, loses answers, cuts watches or is away,
//! schedulers die between a decision and its binding, nodes come and go by the thousand. Somebody who knows
//! nothing of schedulers reads what is left: no pod is bound twice, no node has more than it can hold, and
//! everything that fits is placed.
//!
//! Time is paused; a seed is one course of events. `FAULT_SEEDS` says how many are tried; the default
//! suits CI.
use crate::testing::tree;
use crate::{Config, run};
use api::quantity::Quantity;
use client::source::{
    Answer, Call, Collection, List, Outcome, Page, Raw, RawAnswer, Source, Watch, WatchFrom,
};
use client::testing::World;
use client::{ApiResource, Context, Status};
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Every node has this many thousandths of a processor.
const ROOM: i64 = 4000;

/// What goes wrong, each with its chance.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    /// A request has no effect.
    refused: f64,
    /// A request has its effect, and nobody hears of it.
    lost: f64,
    /// An event is the last of its watch.
    cut: f64,
    /// With each pod: the server goes away for a minute.
    away: f64,
    /// With each pod: the scheduler is killed, and another begins.
    killed: f64,
    /// With each pod: a node goes, and comes back after a while.
    gone: f64,
}

/// The world, seen by one scheduler through the weather.
struct Faulty {
    world: World,
    context: Context,
    weather: Weather,
    is_bad: Arc<AtomicBool>,
    is_away: Arc<AtomicBool>,
    /// Its scheduler was killed: nothing that it still asks for is heard.
    is_killed: Arc<AtomicBool>,
    /// How often each pod was given a node.
    bound: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Faulty {
    fn happens(&self, chance: f64) -> bool {
        self.is_bad.load(Relaxed) && self.context.chance() < chance
    }

    fn is_cut_off(&self) -> bool {
        self.is_away.load(Relaxed) || self.is_killed.load(Relaxed)
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(self.context.number() % 20)).await;
    }

    /// What the server says to a binding of a pod that has a node.
    fn conflict(&self, call: &Call) -> Option<Status> {
        let pod = self.world.get::<Pod>(&call.namespace, &call.name)?;
        pod.spec.as_ref()?.node_name.as_ref()?;
        let of = call.resource.group_resource();
        Some(Status::conflict(of, &call.name, "it is already assigned to a node"))
    }
}

fn lost() -> Status {
    Status::service_unavailable("the connection was lost")
}

impl Source for Faulty {
    fn call(&self, call: Call) -> Answer<'_, Outcome> {
        async move {
            self.pause().await;
            if self.is_cut_off() || self.happens(self.weather.refused) {
                return Err(lost());
            }
            let is_binding = call.subresource == "binding";
            if is_binding {
                if let Some(conflict) = self.conflict(&call) {
                    return Err(conflict);
                }
                *self.bound.lock().expect("a lock").entry(call.name.clone()).or_default() += 1;
            }
            let done = self.world.call(call).await;
            self.pause().await;
            if self.is_cut_off() || self.happens(self.weather.lost) { Err(lost()) } else { done }
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
                async move { goes_on.then_some(event) }
            });
            Ok(cut.boxed())
        }
        .boxed()
    }

    fn raw(&self, request: Raw) -> Answer<'_, RawAnswer> {
        self.world.raw(request)
    }
}

/// A cluster in the weather, and the scheduler of the moment.
struct Course {
    seed: u64,
    lives: u64,
    world: World,
    weather: Weather,
    is_bad: Arc<AtomicBool>,
    is_away: Arc<AtomicBool>,
    is_killed: Arc<AtomicBool>,
    bound: Arc<Mutex<BTreeMap<String, usize>>>,
    running: Option<Context>,
}

impl Course {
    fn new(seed: u64, weather: Weather) -> Course {
        let start = "2026-01-01T12:00:00Z".parse().expect("a moment");
        Course {
            seed,
            lives: 0,
            world: World::new(&Context::simulated(start, seed)),
            weather,
            is_bad: Arc::new(AtomicBool::new(true)),
            is_away: Arc::default(),
            is_killed: Arc::default(),
            bound: Arc::default(),
            running: None,
        }
    }

    /// It dies with whatever it had decided and not yet written, and another begins.
    fn begin(&mut self) {
        self.is_killed.store(true, Relaxed);
        if let Some(running) = self.running.take() {
            running.stop();
        }
        self.is_killed = Arc::default();
        self.lives += 1;
        let start = "2026-01-01T12:00:00Z".parse().expect("a moment");
        let context = Context::simulated(start, self.seed * 1000 + self.lives);
        self.running = Some(context.clone());
        let source = Arc::new(Faulty {
            world: self.world.clone(),
            context: context.clone(),
            weather: self.weather,
            is_bad: self.is_bad.clone(),
            is_away: self.is_away.clone(),
            is_killed: self.is_killed.clone(),
            bound: self.bound.clone(),
        });
        tokio::spawn(async move { run(&context, source, Config::new("here")).await });
    }

    fn put(&self, line: &str) {
        let (kind, mut tree) = tree(line);
        let resource = match kind.as_str() {
            "pod" => ApiResource::of::<Pod>(),
            _ => ApiResource::of::<Node>(),
        };
        if !resource.is_namespaced() {
            tree["metadata"].as_object_mut().expect("metadata").remove("namespace");
        }
        self.world.put_tree(&resource, tree);
    }

    /// Reads pods and bindings, and knows nothing else; how many pods have a node.
    fn check(&self) -> usize {
        let mut used: HashMap<String, i64> = HashMap::new();
        let mut with_node = 0;
        for pod in self.world.all::<Pod>() {
            let spec = pod.spec.clone().unwrap_or_default();
            let Some(node) = spec.node_name else { continue };
            with_node += 1;
            let requests = spec.containers[0].resources.clone().unwrap_or_default().requests;
            let cpu = requests.unwrap_or_default()["cpu"].0.clone();
            *used.entry(node).or_default() +=
                Quantity::parse(&cpu).expect("an amount").milli_value();
        }
        for (node, used) in used {
            assert!(used <= ROOM, "seed {}: {node} has {used} of {ROOM}", self.seed);
        }
        for (pod, times) in &*self.bound.lock().expect("a lock") {
            assert_eq!(*times, 1, "seed {}: {pod} was bound {times} times", self.seed);
        }
        with_node
    }

    /// The weather is fine from now on.
    async fn clear(&self) {
        self.is_bad.store(false, Relaxed);
        self.is_away.store(false, Relaxed);
        // Longer than anything waits that was refused, or was never heard of again.
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
}

fn seeds() -> u64 {
    std::env::var("FAULT_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// Pods of half a processor come while the weather is bad; all of them have a node in the end.
async fn course(seed: u64, weather: Weather) {
    const NODES: usize = 40;
    const PODS: usize = 300;
    let mut course = Course::new(seed, weather);
    for node in 0..NODES {
        course.put(&format!("node n{node} cpu=4"));
    }
    course.begin();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut back, mut home) = (Vec::new(), None);
    for pod in 0..PODS {
        course.put(&format!("pod p{pod} cpu=500m"));
        if random.f64() < weather.killed {
            course.begin();
        }
        if random.f64() < weather.gone {
            let node = random.usize(..NODES);
            course.world.remove::<Node>("", &format!("n{node}"));
            back.push(node);
        }
        if random.f64() < weather.away {
            course.is_away.store(true, Relaxed);
            home = Some(tokio::time::Instant::now() + Duration::from_secs(60));
        }
        if home.is_some_and(|home| home < tokio::time::Instant::now()) {
            course.is_away.store(false, Relaxed);
        }
        if random.u8(..4) == 0 {
            tokio::time::sleep(Duration::from_millis(random.u64(..4000))).await;
            for node in back.drain(..) {
                course.put(&format!("node n{node} cpu=4"));
            }
        }
    }
    for node in back {
        course.put(&format!("node n{node} cpu=4"));
    }
    course.clear().await;
    assert_eq!(course.check(), PODS, "seed {seed}: everything that fits has a node");
}

#[tokio::test(start_paused = true)]
async fn requests_are_refused() {
    for seed in 0..seeds() {
        course(seed, Weather { refused: 0.2, ..Weather::default() }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_lost() {
    for seed in 0..seeds() {
        course(seed, Weather { lost: 0.2, ..Weather::default() }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_is_away() {
    for seed in 0..seeds() {
        course(seed, Weather { away: 0.05, cut: 0.02, ..Weather::default() }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn schedulers_die_between_a_decision_and_its_binding() {
    for seed in 0..seeds() {
        course(seed, Weather { killed: 0.1, ..Weather::default() }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn everything_goes_wrong_at_once() {
    let all = Weather { refused: 0.1, lost: 0.1, cut: 0.02, away: 0.02, killed: 0.03, gone: 0.1 };
    for seed in 0..seeds() {
        course(seed, all).await;
    }
}

/// A thousand nodes come, half of them go, others come in their place, while pods that need a whole node
/// each want one.
#[tokio::test(start_paused = true)]
async fn nodes_come_and_go_by_the_thousand() {
    for seed in 0..seeds() {
        let mut course = Course::new(seed, Weather { cut: 0.001, ..Weather::default() });
        course.begin();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pods = 0;
        for wave in 0..4 {
            for node in 0..1000 {
                course.put(&format!("node w{wave}-{node} cpu=4"));
                if wave > 0 && node % 2 == 0 {
                    course.world.remove::<Node>("", &format!("w{}-{node}", wave - 1));
                }
                if random.u8(..10) == 0 {
                    course.put(&format!("pod p{pods} cpu=4"));
                    pods += 1;
                }
                if random.u8(..50) == 0 {
                    tokio::time::sleep(Duration::from_millis(random.u64(..30))).await;
                }
            }
        }
        course.clear().await;
        assert_eq!(course.check(), pods, "seed {seed}: every pod has a node of its own");
    }
}
