//! Eviction: before the machine runs out of memory, disk or processes, pods end, those first that
//! take more than they asked for (`pkg/kubelet/eviction`).
//!
//! ```text
//!  thresholds  signals, and below what they are too low            (what a user says)
//!  observe     what is left, and what pods use
//!  decide      which thresholds are met, for how long               (pure)
//!  rank        which pod goes first, and what it is told            (pure)
//! ```
//! One pod goes at a time; then everything is looked at again. Dead containers and unused images go
//! before pods do. Pods that use more disk than they may go whatever the node has left.
pub(crate) mod decide;
mod observe;
pub(crate) mod rank;
#[cfg(test)]
mod tests;
pub mod thresholds;

pub use observe::disk_use;

use crate::garbage;
use crate::pod;
use crate::worker::{Evicted, Kubelet};
use client::events::Happening;
use decide::Course;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use thresholds::{MEMORY_PRESSURE, Threshold, Wishes};

pub const REASON: &str = "Evicted";
/// What a pod has left that goes at once: upstream's.
const AT_ONCE: i64 = 1;
/// How long an evicted pod is waited for before the next one goes.
const CLEAN_UP: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct Config {
    pub thresholds: Vec<Threshold>,
    /// How long a node stays under pressure after the last sign of it.
    pub transition: Duration,
    /// Seconds that a pod has at most which goes for a soft threshold.
    pub max_grace: i64,
    /// Between two looks.
    pub period: Duration,
}

impl Config {
    /// For a machine that has other uses than pods: upstream's thresholds, but disks may be full to
    /// the last twentieth, as in other small distributions.
    pub fn of_a_whole_cluster() -> Config {
        let mut hard = thresholds::default_hard();
        for disk in ["nodefs.available", "imagefs.available"] {
            hard.insert(disk.to_owned(), "5%".to_owned());
        }
        let wishes = Wishes { hard, ..Wishes::default() };
        let thresholds = thresholds::parse(&wishes).expect("defaults are right");
        Config { thresholds, ..Config::default() }
    }
}

impl Default for Config {
    fn default() -> Config {
        let wishes = Wishes { hard: thresholds::default_hard(), ..Wishes::default() };
        Config {
            thresholds: thresholds::parse(&wishes).expect("defaults are right"),
            transition: Duration::from_secs(5 * 60),
            max_grace: 0,
            period: Duration::from_secs(10),
        }
    }
}

/// The conditions of the node that are true, for whoever asks.
#[derive(Debug, Default)]
pub struct Pressure(Mutex<Vec<&'static str>>);

impl Pressure {
    pub fn now(&self) -> Vec<&'static str> {
        self.0.lock().clone()
    }

    /// Why a pod may not run here now.
    pub fn refuses(&self, pod: &Pod) -> Option<String> {
        let now = self.now();
        if now.is_empty() || rank::is_critical(pod) {
            return None;
        }
        let may = now == [MEMORY_PRESSURE]
            && (crate::container::resources::qos(pod) != "BestEffort" || tolerates_memory(pod));
        (!may).then(|| format!("The node had condition: [{}]. ", now.join(" ")))
    }
}

fn tolerates_memory(pod: &Pod) -> bool {
    let taint = k8s_openapi::api::core::v1::Taint {
        key: "node.kubernetes.io/memory-pressure".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Default::default()
    };
    let mut all = pod::spec(pod).tolerations.iter().flatten();
    all.any(|toleration| api::placement::tolerates(toleration, &taint))
}

/// Until the context stops.
pub async fn watch(kubelet: &Arc<Kubelet>) {
    let mut course = Course::default();
    loop {
        let gone = look(kubelet, &mut course).await;
        for uid in &gone {
            kubelet.until_over(uid, CLEAN_UP).await;
        }
        if gone.is_empty() && !kubelet.context.sleep(kubelet.config.eviction.period).await
            || kubelet.context.is_stopped()
        {
            return;
        }
    }
}

/// Once: the pods that have to go, which have been told so.
async fn look(kubelet: &Arc<Kubelet>, course: &mut Course) -> Vec<String> {
    let config = &kubelet.config.eviction;
    let machine = observe::node(kubelet).await;
    let now = kubelet.context.now();
    let decision = course.decide(&config.thresholds, &machine.seen, config.transition, now);
    press(kubelet, decision.pressures);
    let mut pods = active(kubelet);
    let gone = keep_limits(kubelet, &pods, machine.has_image_disk).await;
    if !gone.is_empty() {
        return gone;
    }
    let met: Vec<&Threshold> = decision.reclaim.iter().map(|at| &config.thresholds[*at]).collect();
    let Some(first) = met.first() else { return Vec::new() };
    let resource = first.signal.resource();
    let note = format!("Attempting to reclaim {resource}");
    let event = Happening::warning(reference(kubelet), "EvictionThresholdMet", note);
    kubelet.recorder.record(event);
    if first.signal.condition() == thresholds::DISK_PRESSURE
        && reclaim(kubelet, first, machine.has_image_disk).await
    {
        return Vec::new();
    }
    let counts_files = first.signal.condition() == thresholds::DISK_PRESSURE;
    let uses = observe::pods(kubelet, &pods, counts_files).await;
    rank::rank(&mut pods, &uses, first.signal, machine.has_image_disk);
    let Some(pod) = pods.iter().find(|pod| !rank::is_critical(pod)) else {
        tracing::warn!("{resource} is low, and there is no pod that may be evicted");
        return Vec::new();
    };
    let own = pod::spec(pod).termination_grace_period_seconds;
    let grace = match first.is_hard() {
        true => AT_ONCE,
        false => own.map_or(config.max_grace, |own| own.min(config.max_grace)),
    };
    let message = rank::message(pod, uses.get(pod::uid(pod)), &met, &machine.seen);
    kubelet.evict(
        pod,
        Evicted { reason: REASON, message, grace, for_the_node: true },
        first.signal.name(),
    );
    vec![pod::uid(pod).to_owned()]
}

/// Tells whoever shows the node what it is under, if that changed.
fn press(kubelet: &Kubelet, pressures: Vec<&'static str>) {
    let mut now = kubelet.pressure.0.lock();
    if *now != pressures {
        *now = pressures;
        kubelet.config.look_again.notify_one();
    }
}

/// Pods that have something which runs, or will.
fn active(kubelet: &Kubelet) -> Vec<Arc<Pod>> {
    kubelet.all_pods().into_iter().filter(|pod| kubelet.is_active(pod)).collect()
}

/// Pods that use more disk than they may.
async fn keep_limits(kubelet: &Kubelet, pods: &[Arc<Pod>], has_image_disk: bool) -> Vec<String> {
    let limited: Vec<Arc<Pod>> =
        pods.iter().filter(|pod| rank::has_disk_limit(pod)).cloned().collect();
    if limited.is_empty() {
        return Vec::new();
    }
    let uses = observe::pods(kubelet, &limited, true).await;
    let mut gone = Vec::new();
    for pod in limited.iter().filter(|pod| !rank::is_critical(pod)) {
        let used = uses.get(pod::uid(pod));
        let over = used.and_then(|used| rank::over_limit(pod, used, has_image_disk));
        if let Some((signal, message)) = over {
            let evicted = Evicted { reason: REASON, message, grace: AT_ONCE, for_the_node: false };
            kubelet.evict(pod, evicted, signal);
            gone.push(pod::uid(pod).to_owned());
        }
    }
    gone
}

/// Dead containers and unused images go first; true if that was enough.
async fn reclaim(kubelet: &Kubelet, threshold: &Threshold, has_image_disk: bool) -> bool {
    use thresholds::Signal::{NodeFs, NodeFsInodes};
    if has_image_disk && matches!(threshold.signal, NodeFs | NodeFsInodes) {
        return false;
    }
    garbage::free_disk(kubelet).await;
    let after = observe::node(kubelet).await;
    let all = &kubelet.config.eviction.thresholds;
    !all.iter().any(|threshold| decide::met(threshold, &after.seen, true))
}

/// The node as events name it: upstream's have its name in place of its uid.
pub fn reference(kubelet: &Kubelet) -> ObjectReference {
    let name = kubelet.config.node_name.clone();
    ObjectReference {
        kind: Some("Node".to_owned()),
        api_version: Some("v1".to_owned()),
        uid: Some(name.clone()),
        name: Some(name),
        ..ObjectReference::default()
    }
}
