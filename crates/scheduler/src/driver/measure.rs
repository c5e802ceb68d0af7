//! What upstream's scheduler counts, under its names (`pkg/scheduler/metrics`).
//!
//! | name | labels |
//! | --- | --- |
//! | `scheduler_schedule_attempts_total`, `scheduler_scheduling_attempt_duration_seconds` | `profile`, `result` |
//! | `scheduler_scheduling_algorithm_duration_seconds` | |
//! | `scheduler_pod_scheduling_sli_duration_seconds` | `attempts` |
//! | `scheduler_pod_scheduling_attempts` | |
//! | `scheduler_preemption_attempts_total`, `scheduler_preemption_victims` | |
//! | `scheduler_pending_pods` | `queue` |
//! | `scheduler_queue_incoming_pods_total` | `event`, `queue` |
//! | `scheduler_unschedulable_pods` | `plugin`, `profile` |
//! | `scheduler_cache_size` | `type` |
use crate::engine::{Engine, Task};
use crate::pod::PodInfo;
use client::Context;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often counts of what waits are taken: they are looked at every few seconds.
const OFTEN: SignedDuration = SignedDuration::from_secs(1);

/// One attempt to place a pod.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    begun: Instant,
    /// The first of them is 1.
    number: u32,
    /// When the pod could first be tried.
    since: Timestamp,
}

impl Attempt {
    pub fn of(engine: &Engine, pod: &PodInfo, begun: Instant, now: Timestamp) -> Attempt {
        let (number, since) = engine.queue.history(&pod.uid).unwrap_or((1, now));
        Attempt { begun, number, since }
    }

    /// The pod is bound.
    pub fn succeeded(&self, context: &Context, pod: &PodInfo) {
        self.ended(context, pod, "scheduled");
        let waited = context.now().duration_since(self.since).as_secs_f64().max(0.0);
        let attempts = self.number.min(16);
        let attempts = if attempts == 16 { "16+".to_owned() } else { attempts.to_string() };
        let metrics = context.metrics();
        let labels = [("attempts", attempts.as_str())];
        metrics.observe("scheduler_pod_scheduling_sli_duration_seconds", &labels, waited);
        metrics.observe("scheduler_pod_scheduling_attempts", &[], f64::from(self.number));
    }

    pub fn failed(&self, context: &Context, pod: &PodInfo) {
        self.ended(context, pod, "error");
    }

    fn ended(&self, context: &Context, pod: &PodInfo, result: &'static str) {
        let labels = [("profile", &*pod.wishes.scheduler), ("result", result)];
        let metrics = context.metrics();
        metrics.count("scheduler_schedule_attempts_total", &labels);
        let seconds = self.begun.elapsed().as_secs_f64();
        metrics.observe("scheduler_scheduling_attempt_duration_seconds", &labels, seconds);
    }
}

/// A decision was taken. An attempt that goes on to its binding is counted when that is through.
pub fn decided(context: &Context, engine: &Engine, tasks: &[Task], begun: Instant) {
    let metrics = context.metrics();
    let seconds = begun.elapsed().as_secs_f64();
    metrics.observe("scheduler_scheduling_algorithm_duration_seconds", &[], seconds);
    for task in tasks {
        let Task::Tell { pod, victims, reason, .. } = task else { continue };
        if !victims.is_empty() {
            metrics.count("scheduler_preemption_attempts_total", &[]);
            metrics.observe("scheduler_preemption_victims", &[], victims.len() as f64);
        }
        let result = if *reason == "Unschedulable" { "unschedulable" } else { "error" };
        Attempt::of(engine, pod, begun, context.now()).ended(context, pod, result);
    }
}

/// Counts of what waits, taken now and then.
#[derive(Default)]
pub struct Gauges {
    taken: Option<Timestamp>,
    /// Plugins that refused somebody when it was last looked: they are told of when they do not any more.
    refusing: BTreeSet<(Arc<str>, &'static str)>,
}

impl Gauges {
    /// How long it is until they should be taken again; none: they are as they should be.
    pub fn take(&mut self, context: &Context, engine: &mut Engine) -> Option<Duration> {
        let now = context.now();
        let next = self.taken.map(|taken| taken + OFTEN).filter(|next| *next > now);
        if let Some(next) = next {
            return Some(next.duration_since(now).unsigned_abs());
        }
        self.taken = Some(now);
        let metrics = context.metrics();
        for (queue, count) in engine.queue.counts() {
            metrics.set("scheduler_pending_pods", &[("queue", queue)], count as f64);
        }
        for ((event, queue), count) in std::mem::take(&mut engine.queue.incoming) {
            for _ in 0..count {
                let labels = [("event", event), ("queue", queue)];
                metrics.count("scheduler_queue_incoming_pods_total", &labels);
            }
        }
        let refused = engine.queue.refusing();
        for key in self.refusing.iter().filter(|key| !refused.contains_key(*key)) {
            let labels = [("plugin", key.1), ("profile", &*key.0)];
            metrics.set("scheduler_unschedulable_pods", &labels, 0.0);
        }
        for ((profile, plugin), count) in &refused {
            let labels = [("plugin", *plugin), ("profile", &**profile)];
            metrics.set("scheduler_unschedulable_pods", &labels, *count as f64);
        }
        self.refusing = refused.into_keys().collect();
        for (kind, count) in engine.decider.cluster.sizes() {
            metrics.set("scheduler_cache_size", &[("type", kind)], count as f64);
        }
        None
    }
}
