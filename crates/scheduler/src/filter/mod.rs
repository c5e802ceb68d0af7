//! Whether a pod may be on a node: one row per plugin, each a pure function.
//!
//! What a plugin works out once per pod (upstream's PreFilter) is in the [`Cycle`]; a plugin that
//! has nothing to say about a pod is not asked about any node.
pub mod devices;
pub mod hints;
mod interpod;
mod node;
mod resources;
mod spread;
#[cfg(test)]
mod tests;
pub mod volumes;

pub use interpod::{InterPod, selects};
pub use node::allowed;
pub use spread::{Constraints, HOSTNAME, is_included};

use crate::cluster::{Cluster, NodeRow};
use crate::config::Profile;
use crate::event;
use crate::pod::PodInfo;
use devices::Devices;
use jiff::Timestamp;
use smallvec::SmallVec;
use spread::HardSpread;
use std::borrow::Cow;
use std::sync::Arc;
use volumes::Volumes;

/// One plugin.
pub struct Filter {
    pub name: &'static str,
    /// Whether it has anything to say about the pod.
    concerns: fn(&Cycle<'_>) -> bool,
    check: fn(&Cycle<'_>, &NodeRow) -> Verdict,
    /// What may change its mind ([`crate::event`]).
    pub wakes: u32,
}

/// Every plugin, in upstream's order: the first that refuses a node is the one that is named.
pub static FILTERS: &[Filter] = &[
    Filter {
        name: "NodeName",
        concerns: |cycle| !cycle.pod.node.is_empty(),
        check: node::name,
        wakes: event::NODE_ADD,
    },
    Filter {
        name: "NodeUnschedulable",
        concerns: |_| true,
        check: node::unschedulable,
        wakes: event::NODE_ADD | event::NODE_TAINTS,
    },
    Filter {
        name: "TaintToleration",
        concerns: |_| true,
        check: node::taints,
        wakes: event::NODE_ADD | event::NODE_TAINTS,
    },
    Filter {
        name: "NodeAffinity",
        concerns: node::has_affinity,
        check: node::affinity,
        wakes: event::NODE_ADD | event::NODE_LABELS,
    },
    Filter {
        name: "NodePorts",
        concerns: |cycle| !cycle.pod.wishes.ports.is_empty(),
        check: node::ports,
        wakes: event::NODE_ADD | event::POD_GONE,
    },
    Filter {
        name: "NodeResourcesFit",
        concerns: |_| true,
        check: resources::fit,
        wakes: event::NODE_ADD | event::NODE_ALLOCATABLE | event::POD_GONE | event::POD_SHRUNK,
    },
    Filter {
        name: "VolumeRestrictions",
        concerns: |cycle| cycle.volumes.is_for_one_pod() || !cycle.pod.wishes.disks.is_empty(),
        check: volumes::restrictions,
        wakes: event::NODE_ADD | event::POD_GONE | event::CLAIM,
    },
    Filter {
        name: "NodeVolumeLimits",
        concerns: |cycle| cycle.volumes.has_claims || !cycle.pod.wishes.disks.is_empty(),
        check: volumes::limits,
        wakes: event::NODE_ADD
            | event::POD_GONE
            | event::CSI_NODE
            | event::CLAIM
            | event::ATTACHMENT,
    },
    Filter {
        name: "VolumeBinding",
        concerns: |cycle| cycle.volumes.has_claims,
        check: volumes::binding,
        wakes: event::NODE_ADD
            | event::NODE_LABELS
            | event::CLAIM
            | event::VOLUME
            | event::STORAGE_CLASS
            | event::CSI_NODE
            | event::CSI_CAPACITY,
    },
    Filter {
        name: "VolumeZone",
        concerns: |cycle| !cycle.volumes.zones.is_empty(),
        check: volumes::zone,
        wakes: event::NODE_ADD
            | event::NODE_LABELS
            | event::CLAIM
            | event::VOLUME
            | event::STORAGE_CLASS,
    },
    Filter {
        name: "PodTopologySpread",
        concerns: |cycle| !cycle.spread.is_empty(),
        check: spread::check,
        wakes: event::NODE_ADD
            | event::NODE_GONE
            | event::NODE_LABELS
            | event::NODE_TAINTS
            | event::POD_ADD
            | event::POD_GONE
            | event::POD_LABELS,
    },
    Filter {
        name: "InterPodAffinity",
        concerns: |cycle| cycle.interpod.is_needed(),
        check: interpod::check,
        wakes: event::NODE_ADD
            | event::NODE_LABELS
            | event::POD_ADD
            | event::POD_GONE
            | event::POD_LABELS
            | event::NAMESPACE,
    },
    Filter {
        name: "DynamicResources",
        concerns: |cycle| cycle.devices.is_needed(),
        check: devices::check,
        wakes: event::NODE_ADD
            | event::NODE_LABELS
            | event::NODE_ALLOCATABLE
            | event::NODE_TAINTS
            | event::DEVICE_CLAIM
            | event::DEVICE_CLASS
            | event::RESOURCE_SLICE,
    },
    Filter {
        name: "NodeDeclaredFeatures",
        concerns: |cycle| !cycle.pod.wishes.features.is_empty(),
        check: node::features,
        wakes: event::NODE_ADD | event::NODE_FEATURES,
    },
];

/// Instead of a row of [`FILTERS`]: an extender refused.
pub const EXTENDER: usize = usize::MAX;

pub type Verdict = Result<(), Refusal>;

/// Why a node is not for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The row of [`FILTERS`].
    pub filter: usize,
    pub reasons: SmallVec<[Cow<'static, str>; 1]>,
    /// It would help to take other pods away.
    pub preemption_helps: bool,
    /// Nothing can be said of the node: the attempt fails.
    pub is_error: bool,
}

impl Refusal {
    /// Pods that go may change it (upstream's `Unschedulable`).
    fn for_now(reason: &'static str) -> Refusal {
        Refusal {
            filter: 0,
            reasons: [reason.into()].into_iter().collect(),
            preemption_helps: true,
            is_error: false,
        }
    }

    /// In these words.
    pub fn said(reason: String, is_error: bool) -> Refusal {
        Refusal {
            filter: 0,
            reasons: [reason.into()].into_iter().collect(),
            preemption_helps: false,
            is_error,
        }
    }

    /// What is said of an attempt that fails for it.
    pub fn failure(&self) -> String {
        let plugin = FILTERS[self.filter].name;
        let reason = self.reasons.first().map_or("", |reason| reason);
        format!("running {plugin:?} filter plugin: {reason}")
    }

    /// Whoever goes (upstream's `UnschedulableAndUnresolvable`).
    fn anyway(reason: &'static str) -> Refusal {
        Refusal { preemption_helps: false, ..Refusal::for_now(reason) }
    }
}

/// What stops a pod before any node is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hopeless {
    pub filter: &'static str,
    pub message: String,
    /// It is not that the pod fits nowhere: the attempt fails.
    pub is_error: bool,
}

/// One pod's attempt: the pod, the cluster, and what plugins have worked out about both.
#[derive(Clone)]
pub struct Cycle<'a> {
    pub cluster: &'a Cluster,
    pub profile: &'a Profile,
    pub pod: &'a Arc<PodInfo>,
    pub volumes: Volumes,
    pub devices: Devices,
    /// How it is spread: as it says, or as its profile says.
    pub constraints: Constraints,
    spread: Vec<HardSpread>,
    interpod: InterPod,
    /// Rows of [`FILTERS`] that have something to say, in the profile's order. As upstream has it, they are
    /// found once: who had nothing to say is not asked again for pods that come or go in this attempt.
    asked: SmallVec<[u8; 16]>,
}

impl<'a> Cycle<'a> {
    pub fn new(
        cluster: &'a Cluster,
        profile: &'a Profile,
        pod: &'a Arc<PodInfo>,
        constraints: Constraints,
        now: Timestamp,
    ) -> Result<Cycle<'a>, Hopeless> {
        let is_asked = |name: &str| profile.pre_filters & mask(name) != 0;
        if is_asked("NodeAffinity") {
            node::conflict(pod)?;
        }
        let volumes = Volumes::of(cluster, pod, is_asked)?;
        let timeout = profile.args.binding_timeout;
        let devices = match Devices::of(cluster, pod, timeout, now) {
            Err(hopeless) if is_asked(hopeless.filter) => return Err(hopeless),
            devices => devices.unwrap_or_default(),
        };
        let runs = |name: &str| {
            let row = FILTERS.iter().position(|filter| filter.name == name);
            row.is_some_and(|row| profile.filters.contains(&(row as u8)))
        };
        let spread = match runs("PodTopologySpread") {
            true => spread::count(cluster, pod, &constraints),
            false => Vec::new(),
        };
        let interpod = match runs("InterPodAffinity") {
            true => InterPod::count(cluster, pod),
            false => InterPod::default(),
        };
        let asked = SmallVec::new();
        let mut cycle =
            Cycle { cluster, profile, pod, volumes, devices, constraints, spread, interpod, asked };
        cycle.find_asked();
        Ok(cycle)
    }

    /// The pod without anything that other pods have to do with.
    fn alone(cluster: &'a Cluster, profile: &'a Profile, pod: &'a Arc<PodInfo>) -> Cycle<'a> {
        Cycle {
            cluster,
            profile,
            pod,
            volumes: Volumes::default(),
            devices: Devices::default(),
            constraints: Constraints::default(),
            spread: Vec::new(),
            interpod: InterPod::default(),
            asked: SmallVec::new(),
        }
    }

    fn find_asked(&mut self) {
        let rows = self.profile.filters.iter().copied();
        self.asked = rows.filter(|at| (FILTERS[usize::from(*at)].concerns)(self)).collect();
    }

    /// Asks every plugin about a node; the first refusal counts.
    pub fn check(&self, row: &NodeRow) -> Verdict {
        for at in &self.asked {
            let at = usize::from(*at);
            if let Err(refusal) = (FILTERS[at].check)(self, row) {
                return Err(Refusal { filter: at, ..refusal });
            }
        }
        Ok(())
    }

    /// The same if pods are to come to the node that this one has to leave room for. It must fit
    /// with them and without: they may come or not (upstream's
    /// `RunFilterPluginsWithNominatedPods`).
    pub fn check_with_nominated(&self, row: &NodeRow) -> Verdict {
        if self.cluster.has_nominated() {
            let waiting = self.cluster.nominated(&row.node.name).iter();
            let mut first = waiting
                .filter(|other| {
                    other.uid != self.pod.uid && other.wishes.priority >= self.pod.wishes.priority
                })
                .peekable();
            if first.peek().is_some() {
                let (mut cycle, mut row) = (self.clone(), row.clone());
                first.for_each(|other| cycle.add(&mut row, other));
                cycle.check(&row)?;
            }
        }
        self.check(row)
    }

    /// A pod more on the node, in this attempt only.
    pub fn add(&mut self, row: &mut NodeRow, pod: &Arc<PodInfo>) {
        row.add(pod);
        self.changed(row, pod, 1);
    }

    /// A pod less.
    pub fn remove(&mut self, row: &mut NodeRow, pod: &Arc<PodInfo>) {
        row.remove(&pod.uid);
        self.changed(row, pod, -1);
    }

    fn changed(&mut self, row: &NodeRow, pod: &PodInfo, by: i64) {
        let (own, cluster) = (self.pod, self.cluster);
        for spread in &mut self.spread {
            spread.changed(own, row, pod, by);
        }
        self.interpod.changed(cluster, own, row, pod, by);
        self.volumes.changed(own, pod, by);
    }
}

/// What the rows of a mask can be woken by.
pub fn wakes(filters: u32) -> u32 {
    let asked = FILTERS.iter().enumerate().filter(|(at, _)| filters & (1 << at) != 0);
    asked.fold(0, |all, (_, filter)| all | filter.wakes)
}

/// The plugins of a mask.
pub fn names(filters: u32) -> impl Iterator<Item = &'static str> {
    let all = FILTERS.iter().enumerate();
    all.filter(move |(at, _)| filters & (1 << at) != 0).map(|(_, filter)| filter.name)
}

/// The mask of one row.
pub fn mask(name: &str) -> u32 {
    FILTERS.iter().position(|filter| filter.name == name).map_or(0, |at| 1 << at)
}
