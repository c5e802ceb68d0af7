//! Claims of a pod: whether its volumes can be used from a node, or had there.
use super::{Cycle, Hopeless, Refusal, Verdict};
use crate::cluster::{Cluster, NodeRow, storage};
use crate::pod::PodInfo;
use crate::selectors::{NodeTerm, selector};
use api::names::NamespacedName;
use api::quantity::Quantity as Amount;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a pod's claims have come to so far.
#[derive(Clone, Default)]
pub struct Volumes {
    pub has_claims: bool,
    /// Claims for one pod alone that another one uses.
    pub once_conflicts: i64,
    once: Vec<Box<str>>,
    bound: Vec<Arc<PersistentVolume>>,
    /// Bound to volumes that are not there.
    missing: bool,
    /// Bound, or provided for, when the pod has a node.
    delayed: Vec<Arc<PersistentVolumeClaim>>,
    /// Labels of volumes that say where they are, and the values that will do.
    pub zones: Vec<(&'static str, Vec<String>)>,
    /// Volumes by driver, as drivers count them.
    csi: BTreeSet<(String, String)>,
}

/// What is to be done about a pod's volumes before it may run on its node.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Volumes to be given to claims.
    pub give: Vec<(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)>,
    /// Claims to be provided for on the node.
    pub provide: Vec<Arc<PersistentVolumeClaim>>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.give.is_empty() && self.provide.is_empty()
    }
}

impl Volumes {
    pub fn of(cluster: &Cluster, pod: &PodInfo) -> Result<Volumes, Hopeless> {
        let mut all = Volumes { has_claims: !pod.wishes.claims.is_empty(), ..Volumes::default() };
        let mut immediate = false;
        for name in &pod.wishes.claims {
            let claim = claim(cluster, pod, &name.name, name.is_ephemeral)?;
            let key = NamespacedName::new(&pod.key.namespace, &name.name);
            if is_for_one_pod(claim) {
                all.once.push(name.name.clone());
                let in_use = cluster.is_claim_in_use(&pod.key.namespace, &name.name);
                all.once_conflicts += i64::from(in_use);
            }
            all.csi.extend(csi_volume(cluster, &key));
            if storage::is_fully_bound(claim) {
                match volume_of(cluster, claim) {
                    Some(volume) => {
                        zones(volume, &mut all.zones);
                        all.bound.push(volume.clone());
                    }
                    None => all.missing = true,
                }
            } else if storage::volume_name(claim).is_none() && waits(cluster, claim) {
                all.delayed.push(claim.clone());
            } else {
                immediate = true;
            }
        }
        if immediate {
            let message = "pod has unbound immediate PersistentVolumeClaims".to_owned();
            return Err(Hopeless { filter: "VolumeBinding", message, is_error: false });
        }
        Ok(all)
    }

    /// Another pod of the same claim came or went.
    pub fn changed(&mut self, own: &PodInfo, pod: &PodInfo, by: i64) {
        if self.once.is_empty() || own.key.namespace != pod.key.namespace {
            return;
        }
        let used = pod.wishes.claims.iter().filter(|claim| self.once.contains(&claim.name));
        self.once_conflicts += by * used.count() as i64;
    }
}

fn claim<'a>(
    cluster: &'a Cluster,
    pod: &PodInfo,
    name: &str,
    is_ephemeral: bool,
) -> Result<&'a Arc<PersistentVolumeClaim>, Hopeless> {
    let hopeless = |message| Err(Hopeless { filter: "VolumeBinding", message, is_error: false });
    let key = NamespacedName::new(&pod.key.namespace, name);
    let Some(claim) = cluster.storage.claims.get(&key) else {
        return hopeless(match is_ephemeral {
            true => format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
            ),
            false => format!("persistentvolumeclaim {name:?} not found"),
        });
    };
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase == Some("Lost") {
        let volume = storage::volume_name(claim).unwrap_or_default();
        let text = format!(
            "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
        );
        return hopeless(text);
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return hopeless(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    let owners = claim.metadata.owner_references.as_deref();
    if is_ephemeral && api::owner::controller_of(owners).is_none_or(|it| *it.uid != *pod.uid) {
        return hopeless(format!(
            "PVC {key} was not created for pod {} (pod is not owner)",
            pod.key
        ));
    }
    Ok(claim)
}

fn is_for_one_pod(claim: &PersistentVolumeClaim) -> bool {
    let modes = claim.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten());
    modes.into_iter().any(|mode| mode == "ReadWriteOncePod")
}

fn volume_of<'a>(
    cluster: &'a Cluster,
    claim: &PersistentVolumeClaim,
) -> Option<&'a Arc<PersistentVolume>> {
    cluster.storage.volumes.get(storage::volume_name(claim)?)
}

/// Its class wants it bound when a pod has a node.
fn waits(cluster: &Cluster, claim: &PersistentVolumeClaim) -> bool {
    let class = cluster.storage.classes.get(storage::class_of(claim));
    let mode = class.and_then(|class| class.volume_binding_mode.as_deref());
    mode == Some("WaitForFirstConsumer")
}

const ZONES: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

fn zones(volume: &PersistentVolume, all: &mut Vec<(&'static str, Vec<String>)>) {
    let labels = volume.metadata.labels.as_ref();
    for key in ZONES {
        if let Some(values) = labels.and_then(|labels| labels.get(key)) {
            all.push((key, values.split("__").map(str::to_owned).collect()));
        }
    }
}

pub fn zone(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    // A cluster without zones is one zone.
    if ZONES.iter().all(|key| row.label(key).is_none()) {
        return Ok(());
    }
    let fits = |(key, values): &(&'static str, Vec<String>)| {
        let newer = match *key {
            "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
            "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
            key => key,
        };
        let value = row.label(key).or_else(|| row.label(newer));
        value.is_some_and(|value| values.iter().any(|other| other == value))
    };
    match cycle.volumes.zones.iter().all(fits) {
        true => Ok(()),
        false => Err(Refusal::anyway("node(s) had no available volume zone")),
    }
}

pub fn restrictions(cycle: &Cycle<'_>, _: &NodeRow) -> Verdict {
    match cycle.volumes.once_conflicts > 0 {
        false => Ok(()),
        true => Err(Refusal::for_now(
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
        )),
    }
}

/// The driver of a claim's volume, and what the driver calls it.
fn csi_volume(cluster: &Cluster, key: &NamespacedName) -> Option<(String, String)> {
    let claim = cluster.storage.claims.get(key)?;
    if storage::volume_name(claim).is_some() {
        let csi = volume_of(cluster, claim)?.spec.as_ref()?.csi.as_ref()?;
        return Some((csi.driver.clone(), csi.volume_handle.clone()));
    }
    let class = cluster.storage.classes.get(storage::class_of(claim))?;
    Some((class.provisioner.clone(), key.to_string()))
}

/// Drivers say how many of their volumes a node can have.
pub fn limits(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    let Some(csi_node) = cycle.cluster.storage.csi_nodes.get(&*row.node.name) else {
        return Ok(());
    };
    let limits = csi_node.spec.drivers.iter().filter_map(|driver| {
        let count = driver.allocatable.as_ref()?.count?;
        Some((driver.name.as_str(), count as usize))
    });
    let mut limits = limits.filter(|(name, _)| cycle.volumes.csi.iter().any(|(it, _)| it == name));
    if limits.clone().next().is_none() {
        return Ok(());
    }
    let claims = row.pods.iter().flat_map(|pod| {
        let claims = pod.wishes.claims.iter();
        claims.map(|claim| NamespacedName::new(&pod.key.namespace, &claim.name))
    });
    let used: BTreeSet<_> = claims.filter_map(|key| csi_volume(cycle.cluster, &key)).collect();
    let exceeds = |(driver, limit): (&str, usize)| {
        let of_driver = |volumes: &BTreeSet<(String, String)>| -> BTreeSet<(String, String)> {
            volumes.iter().filter(|(name, _)| name == driver).cloned().collect()
        };
        let mut all = of_driver(&used);
        let before = all.len();
        all.extend(of_driver(&cycle.volumes.csi));
        all.len() > before && all.len() > limit
    };
    match limits.any(exceeds) {
        false => Ok(()),
        true => Err(Refusal::for_now("node(s) exceed max volume count")),
    }
}

pub fn binding(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    plan(cycle, row).map(drop)
}

/// How the pod's claims are bound if it comes to the node.
pub fn plan(cycle: &Cycle<'_>, row: &NodeRow) -> Result<Plan, Refusal> {
    let volumes = &cycle.volumes;
    let mut reasons: smallvec::SmallVec<[std::borrow::Cow<'static, str>; 1]> =
        smallvec::SmallVec::new();
    if !volumes.bound.iter().all(|volume| is_reachable(volume, row)) {
        reasons.push("node(s) didn't match PersistentVolume's node affinity".into());
    }
    let mut plan = Plan::default();
    match bind_delayed(cycle, row, &mut plan) {
        Delayed::Fits => {}
        Delayed::NoVolume => {
            reasons.push("node(s) didn't find available persistent volumes to bind".into());
        }
        Delayed::NoSpace => reasons.push("node(s) did not have enough free storage".into()),
    }
    if volumes.missing {
        reasons.push(
            "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)".into(),
        );
    }
    match reasons.is_empty() {
        true => Ok(plan),
        false => Err(Refusal { filter: 0, reasons, preemption_helps: false, is_error: false }),
    }
}

enum Delayed {
    Fits,
    NoVolume,
    NoSpace,
}

fn bind_delayed(cycle: &Cycle<'_>, row: &NodeRow, plan: &mut Plan) -> Delayed {
    let cluster = cycle.cluster;
    let mut claims = cycle.volumes.delayed.clone();
    // The smallest first, so that it does not take the place of a larger one.
    claims.sort_by_key(|claim| requested(claim));
    for claim in claims {
        let key = key(&claim);
        let assumed = cluster.storage.selected.get(&key).map(String::as_str);
        match storage::selected_node(&claim).or(assumed) {
            Some(node) if *node != *row.node.name => return Delayed::NoVolume,
            Some(_) => plan.provide.push(claim),
            None => match find_volume(cluster, &claim, row, &plan.give) {
                Some(volume) => plan.give.push((volume.clone(), claim)),
                None => plan.provide.push(claim),
            },
        }
    }
    for claim in &plan.provide {
        let class = cluster.storage.classes.get(storage::class_of(claim));
        let Some(class) = class.filter(|class| can_provide(class, row)) else {
            return Delayed::NoVolume;
        };
        if !has_capacity(cluster, class, claim, row) {
            return Delayed::NoSpace;
        }
    }
    Delayed::Fits
}

/// Of volumes that are given: class, asked for, and what they have.
pub fn given_space(plan: &Plan) -> impl Iterator<Item = (String, i64, i64)> {
    plan.give.iter().map(|(volume, claim)| {
        let spec = volume.spec.as_ref();
        let class = spec.and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default();
        let has = spec.and_then(|spec| spec.capacity.as_ref()?.get("storage"));
        (class, requested(claim), has.map_or(0, |it| bytes(&it.0)))
    })
}

/// Of volumes that are provided where their driver says how much there is: class, asked for, there is.
pub fn free_space(cycle: &Cycle<'_>, plan: &Plan, row: &NodeRow) -> Vec<(String, i64, i64)> {
    let storage = &cycle.cluster.storage;
    let of = |claim: &Arc<PersistentVolumeClaim>| {
        let class = storage.classes.get(storage::class_of(claim))?;
        let driver = storage.csi_drivers.get(class.provisioner.as_str())?;
        driver.spec.storage_capacity.filter(|is| *is)?;
        let found = capacity_for(cycle.cluster, class, claim, row)?;
        let has = found.capacity.as_ref().map_or(0, |it| bytes(&it.0));
        Some((storage::class_of(claim).to_owned(), requested(claim), has))
    };
    plan.provide.iter().filter_map(of).collect()
}

fn key(claim: &PersistentVolumeClaim) -> NamespacedName {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    NamespacedName::new(&text(&claim.metadata.namespace), &text(&claim.metadata.name))
}

fn requested(claim: &PersistentVolumeClaim) -> i64 {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    requests.and_then(|list| list.get("storage")).map_or(0, |it| bytes(&it.0))
}

fn bytes(quantity: &str) -> i64 {
    Amount::parse(quantity).map_or(0, |amount| amount.value())
}

fn is_reachable(volume: &PersistentVolume, row: &NodeRow) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else {
        return true;
    };
    let mut terms = required.node_selector_terms.iter().map(NodeTerm::of);
    terms.any(|term| term.matches(&row.node.name, &row.node.labels))
}

/// The smallest volume that will do (upstream's `volume.FindMatchingVolume`).
fn find_volume<'a>(
    cluster: &'a Cluster,
    claim: &PersistentVolumeClaim,
    row: &NodeRow,
    taken: &[(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)],
) -> Option<&'a Arc<PersistentVolume>> {
    let spec = claim.spec.as_ref()?;
    let wanted = requested(claim);
    let selector = spec.selector.as_ref().map(|it| selector(Some(it)));
    let own = key(claim);
    let mut best: Option<(i64, &Arc<PersistentVolume>)> = None;
    for (name, volume) in &cluster.storage.volumes {
        let Some(has) = volume.spec.as_ref() else { continue };
        let is_taken = taken.iter().any(|(other, _)| other.metadata.name == volume.metadata.name)
            || cluster.storage.given.get(&**name).is_some_and(|other| *other != own);
        let class = has.storage_class_name.as_deref().unwrap_or_default();
        let mode = |mode: &Option<String>| mode.clone().unwrap_or("Filesystem".to_owned());
        let modes = has.access_modes.as_deref().unwrap_or_default();
        let size = has.capacity.as_ref().and_then(|list| list.get("storage"));
        let size = size.map_or(0, |it| bytes(&it.0));
        if is_taken
            || volume.metadata.deletion_timestamp.is_some()
            || size < wanted
            || class != storage::class_of(claim)
            || mode(&has.volume_mode) != mode(&spec.volume_mode)
            || !spec.access_modes.iter().flatten().all(|mode| modes.contains(mode))
            || !is_reachable(volume, row)
        {
            continue;
        }
        if let Some(reference) = &has.claim_ref {
            let is_ours = reference.name.as_deref() == Some(&own.name)
                && reference.namespace.as_deref() == Some(&own.namespace)
                && (reference.uid.is_none() || reference.uid == claim.metadata.uid);
            if is_ours {
                return Some(volume);
            }
            continue;
        }
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let is_selected =
            selector.as_ref().is_none_or(|selector| selector.matches(&volume.metadata.labels));
        if phase == Some("Available")
            && is_selected
            && best.is_none_or(|(smallest, _)| size < smallest)
        {
            best = Some((size, volume));
        }
    }
    best.map(|(_, volume)| volume)
}

fn can_provide(class: &StorageClass, row: &NodeRow) -> bool {
    let topologies = class.allowed_topologies.as_deref().unwrap_or_default();
    let fits = |term: &k8s_openapi::api::core::v1::TopologySelectorTerm| {
        let mut wanted = term.match_label_expressions.iter().flatten();
        wanted
            .all(|it| row.label(&it.key).is_some_and(|value| it.values.iter().any(|v| v == value)))
    };
    !matches!(class.provisioner.as_str(), "" | "kubernetes.io/no-provisioner")
        && (topologies.is_empty() || topologies.iter().any(fits))
}

/// Drivers that say how much there is are believed.
fn has_capacity(
    cluster: &Cluster,
    class: &StorageClass,
    claim: &PersistentVolumeClaim,
    row: &NodeRow,
) -> bool {
    let driver = cluster.storage.csi_drivers.get(class.provisioner.as_str());
    if driver.is_none_or(|driver| driver.spec.storage_capacity != Some(true)) {
        return true;
    }
    capacity_for(cluster, class, claim, row).is_some()
}

/// The first that will do; the order is the objects' own, so that it is the same each time.
fn capacity_for<'a>(
    cluster: &'a Cluster,
    class: &StorageClass,
    claim: &PersistentVolumeClaim,
    row: &NodeRow,
) -> Option<&'a Arc<CSIStorageCapacity>> {
    let wanted = requested(claim);
    cluster.storage.capacities.values().find(|capacity| {
        let space = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
        Some(&capacity.storage_class_name) == class.metadata.name.as_ref()
            && space.is_some_and(|space| bytes(&space.0) >= wanted)
            && capacity
                .node_topology
                .as_ref()
                .is_some_and(|nodes| selector(Some(nodes)).matches(&row.node.labels))
    })
}
