//! What pods' volumes hold. It is measured now and then, and who asks is told what was measured last: to count
//! files takes its time, and a driver may take minutes (`pkg/kubelet/server/stats`).
use super::claims::claim_of;
use super::{Kubelet, Memory};
use crate::pod;
use crate::volumes::usage::{self, Measure, Usage};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// How often it is seen whether there is something to measure: a pod that is new does not wait for a whole period.
const LOOK: Duration = Duration::from_secs(5);

/// One volume of a pod, when it was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub volume: String,
    /// The claim that it is of, in the pod's namespace.
    pub claim: Option<String>,
    /// What it holds counts to what the pod may have of the node's disk.
    pub is_ephemeral: bool,
    pub at: Timestamp,
    pub usage: Usage,
}

/// The volumes that a pod has now.
#[derive(Default)]
pub struct Volumes {
    measures: Mutex<BTreeMap<String, Measure>>,
    last: Mutex<Arc<Vec<Measured>>>,
    began: Mutex<Option<Instant>>,
    /// Held while they are measured. The server of a network's file system may never answer: then the pod is not
    /// measured again, and others are.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Volumes {
    pub(super) fn know(&self, measures: BTreeMap<String, Measure>) {
        *self.measures.lock() = measures;
    }

    /// They are taken away.
    pub(super) fn clear(&self) {
        self.measures.lock().clear();
        *self.last.lock() = Arc::default();
    }

    pub fn last(&self) -> Arc<Vec<Measured>> {
        self.last.lock().clone()
    }

    fn turn(&self, period: Duration) -> Option<OwnedMutexGuard<()>> {
        let mut began = self.began.lock();
        let is_due = began.is_none_or(|began| began.elapsed() >= period);
        if !is_due || self.measures.lock().is_empty() {
            return None;
        }
        let turn = self.turn.clone().try_lock_owned().ok()?;
        *began = Some(Instant::now());
        Some(turn)
    }
}

/// Until the context stops.
pub async fn watch(kubelet: &Arc<Kubelet>) {
    let Some(period) = kubelet.config.volume_stats_period else { return };
    while kubelet.context.sleep(LOOK.min(period)).await {
        for (uid, memory) in kubelet.all_memories() {
            let Some(pod) = kubelet.pod(&uid) else { continue };
            if let Some(turn) = memory.volumes.turn(period) {
                tokio::spawn(measure(kubelet.clone(), pod, memory, turn));
            }
        }
    }
}

async fn measure(
    kubelet: Arc<Kubelet>,
    pod: Arc<Pod>,
    memory: Arc<Memory>,
    _turn: OwnedMutexGuard<()>,
) {
    let measures = memory.volumes.measures.lock().clone();
    let mut rows = Vec::new();
    for volume in pod::spec(&pod).volumes.iter().flatten() {
        let Some(measure) = measures.get(&volume.name) else { continue };
        let began = Instant::now();
        let usage = kubelet.measured(measure.clone()).await;
        if let Some(source) = measure.source() {
            kubelet.context.metrics().observe(
                "kubelet_volume_metric_collection_duration_seconds",
                &[("metric_source", source)],
                began.elapsed().as_secs_f64(),
            );
        }
        match usage {
            Ok(None) => {}
            Ok(Some(usage)) => rows.push(Measured {
                volume: volume.name.clone(),
                claim: claim_of(&pod, volume),
                is_ephemeral: usage::is_ephemeral(volume),
                at: kubelet.context.now(),
                usage,
            }),
            Err(why) => {
                let (pod, volume) = (pod::name(&pod), &volume.name);
                tracing::debug!(pod, "failed to measure volume {volume}: {why}");
            }
        }
    }
    // What is the node's comes first, as upstream tells it.
    rows.sort_by_key(|row| !row.is_ephemeral);
    let measures = memory.volumes.measures.lock();
    // Unless the pod has ended meanwhile.
    if !measures.is_empty() {
        *memory.volumes.last.lock() = Arc::new(rows);
    }
}

impl Kubelet {
    /// Pods that something is remembered of, by uid.
    pub(super) fn all_memories(&self) -> Vec<(String, Arc<Memory>)> {
        let memories = self.memories.lock();
        memories.iter().map(|(uid, memory)| (uid.clone(), memory.clone())).collect()
    }

    /// What the volumes of each pod held when they were measured last, by uid.
    pub fn measured_volumes(&self) -> BTreeMap<String, Arc<Vec<Measured>>> {
        let all = self.all_memories().into_iter();
        all.map(|(uid, memory)| (uid, memory.volumes.last())).collect()
    }

    async fn measured(&self, measure: Measure) -> Result<Option<Usage>, String> {
        if let Measure::Csi { driver, handle, path } = &measure {
            return self.csi.usage(driver, handle, path).await;
        }
        let read = move || match &measure {
            Measure::Files(path) => usage::files(path),
            Measure::FileSystem(path) => usage::file_system(path),
            Measure::Device(path) => usage::device(path),
            Measure::Csi { .. } => unreachable!("its driver was asked"),
        };
        let read = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
        read.map(Some).map_err(|error| error.to_string())
    }
}
