//! Probes: for each running container and each kind of probe a task that asks, counts, and tells
//! the worker when the answer changes (`pkg/kubelet/prober`).
use crate::handler::{Outcome, Target};
use crate::pod::{self, Role};
use crate::worker::{Kubelet, Memory};
use k8s_openapi::api::core::v1::{Pod, Probe};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Startup,
    Readiness,
    Liveness,
}

/// The tasks of one pod's probes, by container id and kind.
#[derive(Default)]
pub struct Probes {
    tasks: Mutex<HashMap<(String, Kind), AbortHandle>>,
}

impl Probes {
    /// Begins what has not begun.
    pub fn watch(
        &self,
        kubelet: &Arc<Kubelet>,
        pod: &Arc<Pod>,
        memory: &Arc<Memory>,
        role: Role,
        target: Target,
        started_at: i64,
    ) {
        let container = &target.container;
        let rows = [
            (Kind::Startup, &container.startup_probe),
            (Kind::Readiness, &container.readiness_probe),
            (Kind::Liveness, &container.liveness_probe),
        ];
        for (kind, probe) in rows {
            let (Some(probe), false) = (probe, role == Role::Init) else { continue };
            let mut tasks = self.tasks.lock();
            tasks.entry((target.id.clone(), kind)).or_insert_with(|| {
                let asking = Asking {
                    kubelet: kubelet.clone(),
                    pod: pod.clone(),
                    memory: Arc::downgrade(memory),
                    role,
                    kind,
                    probe: probe.clone(),
                    target: target.clone(),
                    started_at,
                };
                tokio::spawn(asking.run()).abort_handle()
            });
        }
    }

    /// Ends those of containers that do not live any more.
    pub fn keep(&self, living: &[String]) {
        self.tasks.lock().retain(|(id, _), task| {
            let lives = living.contains(id);
            if !lives {
                task.abort();
            }
            lives
        });
    }

    /// The pod is to end: whether it is alive is nobody's concern any more, whether it is ready is
    /// (`StopLivenessAndStartup` in upstream's `pkg/kubelet/prober/prober_manager.go`).
    pub fn only_readiness(&self) {
        for ((_, kind), task) in self.tasks.lock().iter() {
            if *kind != Kind::Readiness {
                task.abort();
            }
        }
    }

    pub fn stop(&self) {
        self.keep(&[]);
    }
}

struct Asking {
    kubelet: Arc<Kubelet>,
    pod: Arc<Pod>,
    memory: std::sync::Weak<Memory>,
    role: Role,
    kind: Kind,
    probe: Probe,
    target: Target,
    /// When the container was started, in nanoseconds since 1970.
    started_at: i64,
}

impl Asking {
    async fn run(self) {
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(value.map_or(default, |value| value.unsigned_abs().into()))
        };
        let context = &self.kubelet.context;
        let period = seconds(self.probe.period_seconds, 10).max(Duration::from_secs(1));
        let mut count = Count::new(&self.probe);
        // Until the first answer a container is alive, and else what was told of it.
        let delay = seconds(self.probe.initial_delay_seconds, 0).saturating_sub(self.age());
        if !context.sleep(delay).await {
            return;
        }
        loop {
            let Some(memory) = self.memory.upgrade() else { return };
            let started = memory.notes.lock().probed.started.get(&self.target.id).copied();
            if self.kind == Kind::Startup && started == Some(true) {
                return;
            }
            let held = self.target.container.startup_probe.is_some() && started != Some(true);
            drop(memory);
            if self.kind == Kind::Startup || !held {
                if let Some(success) = self.judge(&self.ask().await) {
                    self.count(success);
                    if let Some(verdict) = count.add(success) {
                        self.record(verdict);
                    }
                }
                // A container that is to be killed is left alone.
                match (self.kind, count.verdict) {
                    (Kind::Startup, Some(_)) | (Kind::Liveness, Some(false)) => return,
                    _ => {}
                }
            }
            if !context.sleep(period).await {
                return;
            }
        }
    }

    /// How long the container has been running: the kubelet may be younger.
    fn age(&self) -> Duration {
        let now = self.kubelet.context.now().as_nanosecond();
        u64::try_from(now - i128::from(self.started_at))
            .map_or(Duration::ZERO, Duration::from_nanos)
    }

    /// What cannot be asked is asked again, at most so often: upstream's.
    async fn ask(&self) -> Outcome {
        const TRIES: usize = 3;
        for _ in 1..TRIES {
            let said = self.ask_once().await;
            if !matches!(said, Outcome::Unknown(_)) {
                return said;
            }
        }
        self.ask_once().await
    }

    async fn ask_once(&self) -> Outcome {
        let timeout = self.probe.timeout_seconds.map_or(1, |value| value.unsigned_abs().max(1));
        let timeout = Duration::from_secs(timeout.into());
        if let Some(action) = &self.probe.exec {
            return self.target.probe(&self.kubelet, action, timeout).await;
        }
        if let Some(action) = &self.probe.http_get {
            return self.target.http(action, timeout, "kube-probe/1.37").await;
        }
        if let Some(action) = &self.probe.tcp_socket {
            return self.target.tcp(action, timeout).await;
        }
        if let Some(action) = &self.probe.grpc {
            return self.target.grpc(action, timeout, "kube-probe/1.37").await;
        }
        let (pod, name) = (pod::shown(&self.pod), &self.target.container.name);
        Outcome::Unknown(format!("missing probe handler for {pod}:{name}"))
    }

    /// Whether the container is as it is asked to be; nothing, if that is not known.
    fn judge(&self, outcome: &Outcome) -> Option<bool> {
        let kind = self.kind;
        let (success, event) = match outcome {
            Outcome::Success(_) => (Some(true), None),
            Outcome::Warning(why) => {
                (Some(true), Some(("ProbeWarning", format!("{kind:?} probe warning: {why}"))))
            }
            Outcome::Failure(why) => {
                (Some(false), Some(("Unhealthy", format!("{kind:?} probe failed: {why}"))))
            }
            Outcome::Unknown(why) => {
                let note = format!("{kind:?} probe errored and resulted in unknown state: {why}");
                (None, Some(("Unhealthy", note)))
            }
        };
        if let Some((reason, note)) = event {
            let about = Some((self.role, self.target.container.name.as_str()));
            self.kubelet.warn(&self.pod, about, reason, &note);
        }
        success
    }

    /// For `/metrics/probes`.
    fn count(&self, succeeded: bool) {
        let result = if succeeded { "successful" } else { "failed" };
        self.kubelet.counters.probe(format!(
            "container=\"{}\",namespace=\"{}\",pod=\"{}\",pod_uid=\"{}\",probe_type=\"{:?}\",result=\"{result}\"",
            self.target.container.name,
            pod::namespace(&self.pod),
            pod::name(&self.pod),
            pod::uid(&self.pod),
            self.kind,
        ));
    }

    fn record(&self, verdict: bool) {
        let Some(memory) = self.memory.upgrade() else { return };
        let id = self.target.id.clone();
        let probed = &mut memory.notes.lock().probed;
        match self.kind {
            Kind::Readiness => drop(probed.ready.insert(id, verdict)),
            Kind::Liveness => drop(probed.live.insert(id, verdict)),
            Kind::Startup => {
                probed.started.insert(id.clone(), verdict);
                if !verdict {
                    probed.live.insert(id, false);
                }
            }
        }
        memory.probed.notify_one();
        self.kubelet.queue.add(pod::uid(&self.pod).to_owned());
    }
}

/// Answers in a row.
struct Count {
    success_threshold: u32,
    failure_threshold: u32,
    last: Option<bool>,
    run: u32,
    verdict: Option<bool>,
}

impl Count {
    fn new(probe: &Probe) -> Count {
        let at_least_one =
            |value: Option<i32>, default: u32| value.map_or(default, i32::unsigned_abs).max(1);
        Count {
            success_threshold: at_least_one(probe.success_threshold, 1),
            failure_threshold: at_least_one(probe.failure_threshold, 3),
            last: None,
            run: 0,
            verdict: None,
        }
    }

    /// The new verdict, if it changed.
    fn add(&mut self, success: bool) -> Option<bool> {
        self.run = if self.last == Some(success) { self.run + 1 } else { 1 };
        self.last = Some(success);
        let threshold = if success { self.success_threshold } else { self.failure_threshold };
        if self.run < threshold || self.verdict == Some(success) {
            return None;
        }
        self.verdict = Some(success);
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_count_answers_in_a_row() {
        let probe =
            Probe { success_threshold: Some(2), failure_threshold: Some(3), ..Probe::default() };
        let mut count = Count::new(&probe);
        let said: Vec<_> =
            [true, false, true, true, true, false, false, true, false, false, false, false]
                .into_iter()
                .map(|answer| match count.add(answer) {
                    Some(true) => '+',
                    Some(false) => '-',
                    None => '.',
                })
                .collect();
        assert_eq!(said.iter().collect::<String>(), "...+......-.");
    }
}
