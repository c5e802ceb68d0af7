//! The worker: for each pod, look, decide, do, look again, and tell the API.
//!
//! Work on one pod is serial, pods are worked on side by side. What is remembered of a pod between
//! two looks ([`Memory`]) is what nobody else knows: back-offs, probes' answers, why containers
//! wait. Everything else is asked of the API and of the runtime, so that a new process takes up
//! where the last one ended.
mod admit;
mod allocations;
mod attached;
mod called_off;
mod certificates;
mod claims;
mod deadline;
mod evict;
mod finish;
mod images;
mod kill;
mod local;
mod measured;
mod message;
mod mounts;
mod references;
mod remembered;
mod resize;
mod shrink;
mod start;
mod tell;
mod watched;

pub use attached::LOOKS;
pub use evict::Evicted;
pub use measured::{Measured, watch as measure_volumes};
pub use resize::Progress;

use crate::backoff::Backoff;
use crate::config::Config;
use crate::container::resources::Enforcement;
use crate::cpus::Cpus;
use crate::csi::Csi;
use crate::devices::Devices;
use crate::dra::Dra;
use crate::eviction::Pressure;
use crate::found::{self, Found};
use crate::garbage;
use crate::handler::Target;
use crate::manifests::Sources;
use crate::node::{self, Facts};
use crate::numa::Memories;
use crate::plan::{self, Plan, Probed, Step};
use crate::pod::{self, Role};
use crate::pods_api;
use crate::probes::Probes;
use crate::pulls::records::PullRecords;
use crate::runtime::{Runtime, RuntimeError};
use crate::server::Counters;
use crate::shutdown::GoingDown;
use crate::status::{self, Told};
use crate::users::{self, Users};
use crate::volumes::in_use::InUse;
use crate::volumes::iscsi::Iscsi;
use api::names::NamespacedName;
use api::status::Status;
use client::events::{Happening, Recorder};
use client::{Client, Context, Informer, WorkQueue};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus, ResourceRequirements, Service};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// How often an unchanged pod is looked at: its ConfigMaps may have changed, an event been missed.
const RESYNC: Duration = Duration::from_secs(60);
/// When to try again what failed.
const RETRY: Duration = Duration::from_secs(10);
/// When to see whether another has gone.
const SOON: Duration = Duration::from_secs(1);
/// Rounds of look, decide, do before others get their turn.
const ROUNDS: usize = 50;

pub struct Kubelet {
    pub config: Arc<Config>,
    pub context: Context,
    pub client: Client,
    pub runtime: Arc<dyn Runtime>,
    pub recorder: Recorder,
    pub pods: Informer<Pod>,
    pub by_uid: client::informer::Index,
    pub services: Informer<Service>,
    /// This machine's, as the API has it.
    pub node: Informer<Node>,
    pub queue: WorkQueue<String>,
    pub facts: Facts,
    pub runtime_name: String,
    /// Who has said already which pods are wanted.
    pub sources: Sources,
    /// Pods from manifests, by uid.
    pub static_pods: Mutex<BTreeMap<String, Arc<Pod>>>,
    pub counters: Counters,
    /// What happens to pods, for agents of the node.
    pub pod_watch: pods_api::Watched,
    /// What the node is under.
    pub pressure: Arc<Pressure>,
    pub csi: Arc<Csi>,
    pub iscsi: Iscsi,
    /// Volumes that the node's status says are in use.
    pub in_use: Arc<InUse>,
    pub devices: Arc<Devices>,
    pub dra: Dra,
    /// Whether the machine is going down.
    pub going_down: Arc<GoingDown>,
    pub cpus: Cpus,
    pub memory_grants: Memories,
    /// What pods have been given of what they ask for.
    pub allocations: allocations::Allocations,
    pub users: Users,
    /// How limits are enforced on this machine.
    pub enforcement: Enforcement,
    /// Who may use which images.
    pub pull_records: PullRecords,
    /// Pulls that may go on at once, if that is limited.
    pull_turns: Option<Semaphore>,
    /// When images were seen and used, for whoever removes them.
    pub images: tokio::sync::Mutex<garbage::Seen>,
    /// Held while a pod is admitted.
    admitting: Mutex<()>,
    memories: Mutex<HashMap<String, Arc<Memory>>>,
    watched: watched::Watched,
    trust: certificates::Trust,
}

/// What is remembered of one pod.
#[derive(Default)]
pub struct Memory {
    pub notes: Mutex<Notes>,
    /// The pod was changed or deleted: what waits for it to end looks again.
    pub changed: Notify,
    /// A probe says something else than before: it is told also while containers are being ended.
    pub probed: Notify,
    /// Nothing of it runs any more.
    pub over: Notify,
    pub probes: Probes,
    /// What is mounted for it, and how full that is.
    pub volumes: measured::Volumes,
}

#[derive(Default)]
pub struct Notes {
    pub backoff: Backoff,
    pub probed: Probed,
    pub waiting: BTreeMap<String, (String, String)>,
    pub failed: Option<(String, String)>,
    /// It has to go, and how.
    evicted: Option<Evicted>,
    /// Nothing of it runs, and nothing will.
    is_over: bool,
    pulls: images::Pulls,
    tokens: references::Tokens,
    remembered: remembered::Remembered,
    issued: certificates::Issued,
    ending_since: Option<Timestamp>,
    /// It may run here.
    admitted: bool,
    /// What the pod as a whole is limited to, as far as this process knows.
    enforced: Option<ResourceRequirements>,
    /// How far it is on the way to what it asks for.
    resize: resize::Resize,
    /// The API's answer to the last status that was written, which the informer may not have seen yet.
    told: Option<Told>,
    /// A status that the API has not answered to yet.
    untold: Option<PodStatus>,
    /// This process looked at the pod: what the API says of it is not hearsay.
    is_looked_at: bool,
}

impl Memory {
    /// Nothing of the pod runs any more: whoever waits for that goes on.
    fn end(&self) {
        self.notes.lock().is_over = true;
        self.volumes.clear();
        self.over.notify_waiters();
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("{}", .0.message)]
    Api(Box<Status>),
    #[error("{0}")]
    Other(String),
}

impl From<Status> for SyncError {
    fn from(status: Status) -> SyncError {
        SyncError::Api(Box::new(status))
    }
}

impl Kubelet {
    #[allow(clippy::too_many_arguments, reason = "it is made in one place")]
    pub fn new(
        config: Arc<Config>,
        context: Context,
        client: Client,
        runtime: Arc<dyn Runtime>,
        recorder: Recorder,
        pods: Informer<Pod>,
        services: Informer<Service>,
        node: Informer<Node>,
        runtime_name: String,
    ) -> Arc<Kubelet> {
        let by_uid = pods.index("uid", |_, pod: &Pod| vec![pod::uid(pod).to_owned()]);
        let queue = WorkQueue::new(&context, "kubelet");
        let facts = config.machine.read(&config.root);
        let (static_pods, memories) = (Mutex::default(), Mutex::default());
        let pull_records = PullRecords::new(&config.root, config.pull_policy.clone());
        let pull_turns = config.parallel_pulls.map(Semaphore::new);
        let users = Users::new(config.users_per_pod, config.max_pods);
        let sources = Sources::new(config.manifest_url.is_some());
        let allocations = allocations::Allocations::take_up(&config.root);
        let iscsi = Iscsi::new(config.iscsi_host.clone());
        let enforcement = Enforcement {
            memory: facts.memory,
            swap: facts.swap,
            allocatable: node::allocatable(&config, &facts).get("memory").copied().unwrap_or(0),
            is_unified: ::runtime::cgroup::is_unified(),
            ..config.enforcement.clone()
        };
        Arc::new(Kubelet {
            config,
            context,
            client,
            runtime,
            recorder,
            pods,
            by_uid,
            services,
            node,
            queue,
            facts,
            runtime_name,
            sources,
            static_pods,
            counters: Counters::default(),
            pod_watch: pods_api::Watched::default(),
            pressure: Arc::default(),
            csi: Arc::default(),
            iscsi,
            in_use: Arc::default(),
            devices: Arc::default(),
            dra: Dra::default(),
            going_down: Arc::default(),
            cpus: Cpus::default(),
            memory_grants: Memories::default(),
            allocations,
            users,
            enforcement,
            pull_records,
            pull_turns,
            images: Default::default(),
            admitting: Mutex::default(),
            memories,
            watched: watched::Watched::default(),
            trust: certificates::Trust::default(),
        })
    }

    /// Works until the context stops.
    pub async fn work(self: &Arc<Self>) {
        while let Some(uid) = self.queue.take().await {
            let kubelet = self.clone();
            tokio::spawn(async move {
                let began = tokio::time::Instant::now();
                let kind = kubelet.kind_of_work(&uid);
                let synced = Box::pin(kubelet.sync(&uid)).await;
                kubelet.context.metrics().observe(
                    "kubelet_pod_worker_duration_seconds",
                    &[("operation_type", kind)],
                    began.elapsed().as_secs_f64(),
                );
                let next = match synced {
                    Ok(next) => next,
                    Err(error) => {
                        tracing::warn!(pod = %*uid, "failed to sync a pod: {error}");
                        Some(RETRY)
                    }
                };
                if let Some(next) = next {
                    kubelet.queue.add_after(uid.clone(), next);
                }
            });
        }
    }

    /// Upstream's word for what is about to be done.
    fn kind_of_work(&self, uid: &str) -> &'static str {
        match self.pod(uid) {
            None => "kill",
            Some(pod) if pod::is_deleting(&pod) => "kill",
            Some(pod) if pod::status(&pod).start_time.is_none() => "create",
            Some(_) => "sync",
        }
    }

    pub fn memory(&self, uid: &str) -> Arc<Memory> {
        let longest = self.config.longest_backoff;
        let mut memories = self.memories.lock();
        let known = memories.entry(uid.to_owned()).or_insert_with(|| {
            let memory = Memory::default();
            memory.notes.lock().backoff = Backoff::up_to(longest);
            Arc::new(memory)
        });
        known.clone()
    }

    /// The pod's own users, if it has some.
    fn users_of(&self, pod: &Pod) -> Result<Option<users::Map>, SyncError> {
        let folder = self.config.pod_folder(pod::uid(pod));
        self.users.of(pod, &folder).map_err(SyncError::Other)
    }

    pub fn forget(&self, uid: &str) {
        self.counters.forget(uid);
        self.pod_watch.ended(uid);
        self.unwatch(uid);
        self.allocations.forget(uid);
        if let Some(memory) = self.memories.lock().remove(uid) {
            memory.probes.stop();
            memory.end();
        }
    }

    /// The pod as it is wanted: from a manifest, or from the API. A mirror is no pod to run.
    pub fn pod(&self, uid: &str) -> Option<Arc<Pod>> {
        if let Some(pod) = self.static_pods.lock().get(uid) {
            return Some(pod.clone());
        }
        let reading = self.pods.read();
        let mut found = reading.by(self.by_uid, uid).map(|(_, pod)| pod);
        found.next().filter(|pod| !pod::is_mirror(pod)).cloned()
    }

    /// The pod that is known by a name: the static one, if that is its mirror's.
    pub fn named(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let key = NamespacedName::new(namespace, name);
        let shown = self.pods.read().get(&key).cloned();
        match shown.as_deref().and_then(|pod| pod::annotation(pod, pod::MIRROR)) {
            Some(hash) => self.static_with(hash).and_then(|uid| self.pod(&uid)),
            None => shown.or_else(|| {
                let all = self.static_pods.lock();
                all.values().find(|pod| pod::key(pod) == key).cloned()
            }),
        }
    }

    /// Every pod that is wanted here: from the API and from manifests.
    pub fn all_pods(&self) -> Vec<Arc<Pod>> {
        let reading = self.pods.read();
        let from_api = reading.iter().map(|(_, pod)| pod).filter(|pod| !pod::is_mirror(pod));
        from_api.cloned().chain(self.static_pods.lock().values().cloned()).collect()
    }

    /// When to look again; `None`: when something happens.
    async fn sync(self: &Arc<Self>, uid: &str) -> Result<Option<Duration>, SyncError> {
        // A folder is named after it: nothing else may be meant by it.
        if uid.is_empty() || uid.contains(['/', '.']) {
            return Ok(None);
        }
        let memory = self.memory(uid);
        for _ in 0..ROUNDS {
            let Some(pod) = self.pod(uid) else {
                // Who has not been asked yet may want it. All are looked at again then.
                if self.sources.are_complete() {
                    self.clean_up(uid).await?;
                }
                return Ok(None);
            };
            // Variables of services have to be known before anything of the API's starts.
            if !self.sources.has_api() && !pod::is_static(&pod) {
                return Ok(None);
            }
            let mut found = found::find(&*self.runtime, uid).await?;
            if pod::is_static(&pod)
                && found.sandboxes.is_empty()
                && self.has_predecessor(&pod).await?
            {
                return Ok(Some(SOON));
            }
            message::read(&mut found);
            self.admit(&pod, &found, &memory).await?;
            let pod = self.allocate(&pod, &memory);
            self.resize_pod(&pod, &found, &memory).await;
            let left = self.deadline(&pod, &memory);
            let plan = self.decide(&pod, &found, &memory);
            self.follow_resize(&pod, &plan, &memory);
            self.note_waits(&pod, &plan, &memory);
            self.watch_over(&pod, &found, &memory);
            if plan.steps.is_empty() {
                let next = self.settle(&pod, &found, &memory, &plan).await?;
                return Ok(next.into_iter().chain(left).min());
            }
            // That all of a pod begins again, or gets more or less, is told while it can be seen.
            let begins_again = matches!(plan.steps[0], Step::Remove { .. });
            let is_new = pod::status(&pod).start_time.is_none() && !pod::is_deleting(&pod);
            if is_new || begins_again || plan.resizes() {
                self.tell(&pod, &found, &memory).await?;
            }
            let carried = Box::pin(self.carry_out(&pod, &found, &memory, plan.steps));
            if !self.telling_meanwhile(&pod, &memory, carried).await? {
                let found = found::find(&*self.runtime, uid).await?;
                self.tell(&pod, &found, &memory).await?;
                return Ok(Some(RETRY));
            }
        }
        Ok(Some(RETRY))
    }

    fn decide(&self, pod: &Pod, found: &Found, memory: &Memory) -> Plan {
        let notes = memory.notes.lock();
        let ending = pod::is_deleting(pod) || notes.failed.is_some();
        let (probed, backoff) = (&notes.probed, &notes.backoff);
        let (now, enforcement) = (self.context.now(), &self.enforcement);
        let with_cpus = &self.cpus.exclusive(pod::uid(pod));
        plan::plan(&plan::Look { pod, found, probed, backoff, ending, enforcement, with_cpus, now })
    }

    fn note_waits(&self, pod: &Pod, plan: &Plan, memory: &Memory) {
        for wait in &plan.waits {
            let (name, shown) = (&wait.container, pod::shown(pod));
            let delay = go_duration(wait.delay);
            let message =
                format!("back-off {delay} restarting failed container={name} pod={shown}");
            let note = format!("Back-off restarting failed container {name} in pod {shown}");
            let reason = "CrashLoopBackOff".to_owned();
            let before =
                memory.notes.lock().waiting.insert(name.clone(), (reason, message.clone()));
            if before.is_none_or(|(_, before)| before != message) {
                self.warn(pod, Some((wait.role, name)), "BackOff", &note);
            }
        }
    }

    /// Containers that run are probed; what ended is forgotten.
    fn watch_over(self: &Arc<Self>, pod: &Arc<Pod>, found: &Found, memory: &Arc<Memory>) {
        let ips = self.ips(pod, found);
        let is_ending = pod::is_deleting(pod) || memory.notes.lock().failed.is_some();
        if is_ending {
            memory.probes.only_readiness();
        }
        let told = self.last_status(pod);
        status::remembered(&told, found, &mut memory.notes.lock().probed);
        let mut living = Vec::new();
        for one in found.running() {
            memory.notes.lock().waiting.remove(&one.name);
            living.push(one.id.clone());
            if is_ending {
                continue;
            }
            if let Some((role, container)) = pod::container(pod, &one.name) {
                let target = Target {
                    id: one.id.clone(),
                    ip: ips.first().cloned().unwrap_or_default(),
                    container,
                };
                memory.probes.watch(self, pod, memory, role, target, one.started_at);
            }
        }
        memory.probes.keep(&living);
        let mut notes = memory.notes.lock();
        let Probed { ready, started, live } = &mut notes.probed;
        for answers in [ready, started, live] {
            answers.retain(|id, _| living.contains(id));
        }
    }

    /// False if something failed that has to be tried again later.
    async fn carry_out(
        self: &Arc<Self>,
        pod: &Arc<Pod>,
        found: &Found,
        memory: &Arc<Memory>,
        steps: Vec<Step>,
    ) -> Result<bool, SyncError> {
        let (kills, others): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| matches!(step, Step::Kill { .. }));
        self.kill_all(pod, found, memory, kills).await?;
        let mut all_well = true;
        let shrinks = self.may_shrink(pod, found, &others).await;
        if let Err(error) = &shrinks {
            all_well = false;
            self.resize_failed(pod, memory, error);
        }
        for step in others {
            match step {
                Step::Kill { .. } => {}
                Step::Resize { .. } if shrinks.is_err() => {}
                Step::Remove { id, name } => self.remove(pod, &id, &name).await?,
                Step::Resize { id, limits } => {
                    if let Err(error) = self.resize(pod, &id, *limits).await {
                        all_well = false;
                        self.resize_failed(pod, memory, &error);
                    }
                }
                Step::StopSandbox { id } => self.stop_sandbox(&id).await?,
                Step::CreateSandbox { attempt } => self.create_sandbox(pod, attempt).await?,
                Step::Start { .. } if self.is_called_off(pod, memory) => return Ok(true),
                Step::Start { container, role, restarts } => {
                    let started =
                        Box::pin(self.start(pod, found, memory, &container, role, restarts)).await;
                    if let Err(fault) = started {
                        if self.is_called_off(pod, memory) {
                            return Ok(true);
                        }
                        all_well = false;
                        tracing::debug!(
                            pod = pod::name(pod),
                            "failed to start {}: {}",
                            container.name,
                            fault.message
                        );
                        let why = (fault.reason, fault.message);
                        memory.notes.lock().waiting.insert(container.name.clone(), why);
                    }
                }
            }
        }
        Ok(all_well)
    }

    /// Nothing is left to do for now.
    async fn settle(
        self: &Arc<Self>,
        pod: &Arc<Pod>,
        found: &Found,
        memory: &Arc<Memory>,
        plan: &Plan,
    ) -> Result<Option<Duration>, SyncError> {
        if plan.is_over {
            // Whoever hears that the pod has ended may give its claims to others.
            self.unprepare_claims(pod::uid(pod)).await.map_err(SyncError::Other)?;
        }
        self.tell(pod, found, memory).await?;
        if plan.is_over {
            self.release(pod::uid(pod)).await?;
            self.free_cpus(pod::uid(pod)).await;
            self.free_memory(pod::uid(pod));
            memory.end();
            self.pod_watch.ended(pod::uid(pod));
        }
        if plan.is_over && pod::is_deleting(pod) {
            self.finish(pod).await?;
            return Ok(Some(RETRY));
        }
        if plan.is_over {
            self.wake_deferred();
        } else {
            self.refresh_volumes(pod, found, memory).await;
            self.watch_references(pod);
        }
        let now = self.context.now();
        let next =
            plan.waits.iter().map(|wait| wait.until.duration_since(now).unsigned_abs()).min();
        Ok(Some(next.unwrap_or(RESYNC).min(RESYNC)))
    }

    pub fn note(
        &self,
        pod: &Pod,
        container: Option<(Role, &str)>,
        reason: &str,
        note: impl Into<String>,
    ) {
        self.recorder.record(Happening::normal(pod::reference(pod, container), reason, note));
    }

    pub fn warn(&self, pod: &Pod, container: Option<(Role, &str)>, reason: &str, note: &str) {
        self.recorder.record(Happening::warning(pod::reference(pod, container), reason, note));
    }
}

/// `1m20s`, as Go writes it.
pub fn go_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}
