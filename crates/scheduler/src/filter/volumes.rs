//! Claims of a pod: whether its volumes can be used from a node, or had there.
use super::{Cycle, Hopeless, Refusal, Verdict};
use crate::cluster::{Cluster, NodeRow, storage};
use crate::disks::{Disk, MIGRATED};
use crate::pod::{ClaimName, PodInfo};
use crate::selectors::{NodeTerm, selector};
use api::names::NamespacedName;
use api::quantity::Quantity as Amount;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a pod's claims have come to so far.
#[derive(Clone, Default)]
pub struct Volumes {
    pub has_claims: bool,
    /// Claims for one pod alone that another one uses.
    pub once_conflicts: i64,
    once: Vec<Box<str>>,
    /// Where volumes that are bound can be used, for those that are not everywhere.
    bound: Arc<Vec<Vec<NodeTerm>>>,
    /// Bound to volumes that are not there.
    missing: bool,
    /// Bound, or provided for, when the pod has a node; the smallest first.
    delayed: Arc<Vec<Delayed>>,
    /// Labels of volumes that say where they are, and the values that will do.
    pub zones: Vec<(&'static str, Vec<String>)>,
    /// Volumes by driver, as drivers count them.
    csi: BTreeSet<(String, String)>,
}

/// A claim that is bound when its pod has a node.
struct Delayed {
    claim: Arc<PersistentVolumeClaim>,
    requested: i64,
    /// Volumes that name the claim: the first that is not taken is the claim's, or none is.
    own: Vec<Candidate>,
    /// Volumes that name nobody and will do if they can be used from the node, the smaller ones first.
    free: Vec<Candidate>,
}

struct Candidate {
    volume: Arc<PersistentVolume>,
    /// Where it can be used; `None`: everywhere.
    nodes: Option<Vec<NodeTerm>>,
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
    /// Plugins that are not asked stop nothing.
    pub fn of(
        cluster: &Cluster,
        pod: &PodInfo,
        is_asked: impl Fn(&str) -> bool,
    ) -> Result<Volumes, Hopeless> {
        let mut all = Volumes { has_claims: !pod.wishes.claims.is_empty(), ..Volumes::default() };
        let hopeless = |filter, message| Err(Hopeless { filter, message, is_error: false });
        // This plugin comes first, so that a claim that is not there goes before one that is wrong.
        for ClaimName { name, .. } in pod.wishes.claims.iter().filter(|it| !it.is_ephemeral) {
            let key = NamespacedName::new(&pod.key.namespace, name);
            if is_asked("VolumeRestrictions") && !cluster.storage.claims.contains_key(&key) {
                let message = format!("persistentvolumeclaim {name:?} not found");
                return hopeless("VolumeRestrictions", message);
            }
        }
        let (mut bound, mut delayed) = (Vec::new(), Vec::new());
        let (mut immediate, mut gone) = (false, None);
        for name in &pod.wishes.claims {
            let claim = match claim(cluster, pod, &name.name, name.is_ephemeral) {
                Err(message) if is_asked("VolumeBinding") => {
                    return hopeless("VolumeBinding", message);
                }
                Err(_) => continue,
                Ok(claim) => claim,
            };
            let key = NamespacedName::new(&pod.key.namespace, &name.name);
            if is_for_one_pod(claim) && !name.is_ephemeral && !all.once.contains(&name.name) {
                all.once.push(name.name.clone());
                let in_use = cluster.is_claim_in_use(&pod.key.namespace, &name.name);
                all.once_conflicts += i64::from(in_use);
            }
            all.csi.extend(csi_volume(cluster, &key));
            if storage::is_fully_bound(claim) {
                match volume_of(cluster, claim) {
                    Some(volume) => {
                        if !name.is_ephemeral {
                            zones(volume, &mut all.zones);
                        }
                        bound.extend(nodes_of(volume));
                    }
                    None => {
                        all.missing = true;
                        let volume = storage::volume_name(claim).filter(|_| !name.is_ephemeral);
                        gone = gone.or(volume);
                    }
                }
            } else if storage::volume_name(claim).is_none() && waits(cluster, claim) {
                delayed.push(Delayed::of(cluster, claim));
            } else {
                immediate = true;
            }
        }
        // The smallest first, so that it does not take the place of a larger one.
        delayed.sort_by_key(|it| it.requested);
        (all.bound, all.delayed) = (Arc::new(bound), Arc::new(delayed));
        if immediate && is_asked("VolumeBinding") {
            let message = "pod has unbound immediate PersistentVolumeClaims".to_owned();
            return hopeless("VolumeBinding", message);
        }
        if let Some(volume) = gone.filter(|_| is_asked("VolumeZone")) {
            return hopeless("VolumeZone", format!("persistentvolume {volume:?} not found"));
        }
        Ok(all)
    }

    /// One of its claims is for one pod alone.
    pub fn is_for_one_pod(&self) -> bool {
        !self.once.is_empty()
    }

    /// Another pod of the same claim came or went.
    pub fn changed(&mut self, own: &PodInfo, pod: &PodInfo, by: i64) {
        if self.once.is_empty() || own.key.namespace != pod.key.namespace {
            return;
        }
        let used = pod.wishes.claims.iter();
        let used = used.filter(|claim| !claim.is_ephemeral && self.once.contains(&claim.name));
        self.once_conflicts += by * used.count() as i64;
    }
}

fn claim<'a>(
    cluster: &'a Cluster,
    pod: &PodInfo,
    name: &str,
    is_ephemeral: bool,
) -> Result<&'a Arc<PersistentVolumeClaim>, String> {
    let key = NamespacedName::new(&pod.key.namespace, name);
    let Some(claim) = cluster.storage.claims.get(&key) else {
        return Err(match is_ephemeral {
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
        return Err(text);
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    match not_owned(claim, &key, pod).filter(|_| is_ephemeral) {
        Some(text) => Err(text),
        None => Ok(claim),
    }
}

/// What is wrong about a claim that should have been made for the pod.
fn not_owned(claim: &PersistentVolumeClaim, key: &NamespacedName, pod: &PodInfo) -> Option<String> {
    let owner = api::owner::controller_of(claim.metadata.owner_references.as_deref());
    let text = || format!("PVC {key} was not created for pod {} (pod is not owner)", pod.key);
    owner.is_none_or(|it| *it.uid != *pod.uid).then(text)
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

pub fn restrictions(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    let own = &cycle.pod.wishes.disks;
    let mut others = row.pods.iter().flat_map(|pod| &pod.wishes.disks);
    if !own.is_empty() && others.any(|other| own.iter().any(|disk| disk.conflicts(other))) {
        return Err(Refusal::for_now("node(s) had no available disk"));
    }
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
    // A volume that is gone, or not there yet, is counted by the claim's class.
    if let Some(volume) = volume_of(cluster, claim) {
        let csi = volume.spec.as_ref()?.csi.as_ref()?;
        return Some((csi.driver.clone(), csi.volume_handle.clone()));
    }
    let class = cluster.storage.classes.get(storage::class_of(claim))?;
    let migrated = MIGRATED.iter().find(|(before, _)| *before == class.provisioner);
    let driver = migrated.map_or(class.provisioner.as_str(), |(_, driver)| driver);
    Some((driver.to_owned(), key.to_string()))
}

/// Drivers say how many of their volumes a node can have, and some want to be there first.
pub fn limits(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    let storage = &cycle.cluster.storage;
    let csi_node = storage.csi_nodes.get(&*row.node.name);
    // Disks that pods name themselves are their drivers', where the node has any.
    let own = cycle.pod.wishes.disks.iter().filter_map(Disk::migrated);
    let mut wanted = Cow::Borrowed(&cycle.volumes.csi);
    if csi_node.is_some() && !cycle.pod.wishes.disks.is_empty() {
        wanted.to_mut().extend(own);
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let drivers = csi_node.map(|node| node.spec.drivers.as_slice()).unwrap_or_default();
    for (name, _) in &*wanted {
        let driver = storage.csi_drivers.get(name.as_str());
        let insists =
            driver.is_some_and(|it| it.spec.prevent_pod_scheduling_if_missing == Some(true));
        if insists && !drivers.iter().any(|it| it.name == *name) {
            let reason = format!("{name} CSI driver is not installed on the node");
            return Err(Refusal { preemption_helps: true, ..Refusal::said(reason, false) });
        }
    }
    let limit = |driver: &str| {
        let driver = drivers.iter().find(|it| it.name == driver)?;
        usize::try_from(driver.allocatable.as_ref()?.count?).ok()
    };
    // Whose they are matters not: with any limit on the node, all its pods' volumes are looked at.
    if drivers.iter().all(|driver| limit(&driver.name).is_none()) {
        return Ok(());
    }
    let mut used = BTreeSet::new();
    for (pod, ClaimName { name, is_ephemeral }) in
        row.pods.iter().flat_map(|pod| pod.wishes.claims.iter().map(move |claim| (pod, claim)))
    {
        let key = NamespacedName::new(&pod.key.namespace, name);
        let Some(claim) = storage.claims.get(&key) else { continue };
        if *is_ephemeral && let Some(text) = not_owned(claim, &key, pod) {
            return Err(Refusal::said(text, true));
        }
        used.extend(csi_volume(cycle.cluster, &key));
    }
    used.extend(row.pods.iter().flat_map(|pod| &pod.wishes.disks).filter_map(Disk::migrated));
    // What is attached and used by no pod: it takes its place all the same.
    let attached = storage.attachments(&row.node.name).filter_map(|attachment| {
        let name = attachment.spec.source.persistent_volume_name.as_deref()?;
        let csi = storage.volumes.get(name)?.spec.as_ref()?.csi.as_ref()?;
        let volume = (attachment.spec.attacher.clone(), csi.volume_handle.clone());
        (!volume.0.is_empty() && !used.contains(&volume)).then_some(volume)
    });
    let attached: BTreeSet<_> = attached.collect();
    let count = |volumes: &BTreeSet<(String, String)>, driver: &str| {
        volumes.iter().filter(|(name, _)| name == driver).count()
    };
    let new: BTreeSet<_> = wanted.difference(&used).cloned().collect();
    let exceeds = |driver: &str| {
        let has = count(&used, driver) + count(&attached, driver) + count(&new, driver);
        limit(driver).is_some_and(|limit| has > limit)
    };
    match new.iter().any(|(driver, _)| exceeds(driver)) {
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
    let mut reasons: smallvec::SmallVec<[Cow<'static, str>; 1]> = smallvec::SmallVec::new();
    if !volumes.bound.iter().all(|terms| is_among(terms, row)) {
        reasons.push("node(s) didn't match PersistentVolume's node affinity".into());
    }
    let mut plan = Plan::default();
    match bind_delayed(cycle, row, &mut plan) {
        Outcome::Fits => {}
        Outcome::NoVolume => {
            reasons.push("node(s) didn't find available persistent volumes to bind".into());
        }
        Outcome::NoSpace => reasons.push("node(s) did not have enough free storage".into()),
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

enum Outcome {
    Fits,
    NoVolume,
    NoSpace,
}

fn bind_delayed(cycle: &Cycle<'_>, row: &NodeRow, plan: &mut Plan) -> Outcome {
    let (cluster, delayed) = (cycle.cluster, &cycle.volumes.delayed);
    // Claims whose node is chosen are provided for before the others: the first that cannot be is named.
    for Delayed { claim, .. } in &**delayed {
        match selected_node(cluster, claim) {
            Some(node) if *node != *row.node.name => return Outcome::NoVolume,
            Some(_) => plan.provide.push(claim.clone()),
            None => {}
        }
    }
    for delayed in delayed.iter().filter(|it| selected_node(cluster, &it.claim).is_none()) {
        match delayed.find(row, &plan.give) {
            Some(volume) => plan.give.push((volume.clone(), delayed.claim.clone())),
            None => plan.provide.push(delayed.claim.clone()),
        }
    }
    for claim in &plan.provide {
        let class = cluster.storage.classes.get(storage::class_of(claim));
        let Some(class) = class.filter(|class| can_provide(class, row)) else {
            return Outcome::NoVolume;
        };
        if !has_capacity(cluster, class, claim, row) {
            return Outcome::NoSpace;
        }
    }
    Outcome::Fits
}

/// The node that a claim is to be provided for on, as the API says or as we have decided.
fn selected_node<'a>(cluster: &'a Cluster, claim: &'a PersistentVolumeClaim) -> Option<&'a str> {
    let assumed = || cluster.storage.selected.get(&key(claim)).map(String::as_str);
    storage::selected_node(claim).or_else(assumed)
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

/// Where a volume can be used; `None`: everywhere.
fn nodes_of(volume: &PersistentVolume) -> Option<Vec<NodeTerm>> {
    let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required.as_ref()?;
    Some(required.node_selector_terms.iter().map(NodeTerm::of).collect())
}

/// Volumes know nodes by their labels alone: upstream's `CheckNodeAffinity` has no name to compare, and
/// what asks for one is passed over.
fn is_among(terms: &[NodeTerm], row: &NodeRow) -> bool {
    terms.iter().any(|term| term.matches_labels(&row.node.labels))
}

impl Delayed {
    /// Which volumes will do, but for the node (upstream's `volume.FindMatchingVolume`).
    fn of(cluster: &Cluster, claim: &Arc<PersistentVolumeClaim>) -> Delayed {
        let requested = requested(claim);
        let (own, free) = (Vec::new(), Vec::new());
        let mut delayed = Delayed { claim: claim.clone(), requested, own, free };
        let Some(spec) = claim.spec.as_ref() else { return delayed };
        let selector = spec.selector.as_ref().map(|it| selector(Some(it)));
        let key = key(claim);
        let mode = |mode: &Option<String>| mode.clone().unwrap_or("Filesystem".to_owned());
        let attributes = |class: &Option<String>| class.clone().unwrap_or_default();
        let mut sizes = Vec::new();
        for (name, volume) in &cluster.storage.volumes {
            let Some(has) = volume.spec.as_ref() else { continue };
            let size = has.capacity.as_ref().and_then(|list| list.get("storage"));
            let size = size.map_or(0, |it| bytes(&it.0));
            if cluster.storage.given.get(&**name).is_some_and(|other| *other != key)
                || volume.metadata.deletion_timestamp.is_some()
                || size < requested
                || storage::class_of_volume(volume) != storage::class_of(claim)
                || mode(&has.volume_mode) != mode(&spec.volume_mode)
                || attributes(&has.volume_attributes_class_name)
                    != attributes(&spec.volume_attributes_class_name)
            {
                continue;
            }
            let candidate = || Candidate { nodes: nodes_of(volume), volume: volume.clone() };
            if has.claim_ref.is_some() {
                // Who named the claim has chosen: access modes, labels and phase are not asked about.
                if names(volume, claim) {
                    delayed.own.push(candidate());
                }
                continue;
            }
            let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
            let modes = has.access_modes.as_deref().unwrap_or_default();
            if phase == Some("Available")
                && selector.as_ref().is_none_or(|it| it.matches(&volume.metadata.labels))
                && spec.access_modes.iter().flatten().all(|mode| modes.contains(mode))
            {
                sizes.push((size, candidate()));
            }
        }
        sizes.sort_by_key(|(size, _)| *size);
        delayed.free = sizes.into_iter().map(|(_, candidate)| candidate).collect();
        delayed
    }

    fn find(
        &self,
        row: &NodeRow,
        taken: &[(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)],
    ) -> Option<&Arc<PersistentVolume>> {
        let is_left = |candidate: &&Candidate| {
            let name = &candidate.volume.metadata.name;
            !taken.iter().any(|(other, _)| other.metadata.name == *name)
        };
        let fits = |candidate: &&Candidate| {
            candidate.nodes.as_ref().is_none_or(|terms| is_among(terms, row))
        };
        // A volume that names the claim and cannot be used from the node: no other stands in for it.
        let found = match self.own.iter().find(is_left) {
            Some(own) => Some(own).filter(fits),
            None => self.free.iter().filter(is_left).find(fits),
        };
        found.map(|candidate| &candidate.volume)
    }
}

/// The volume is for the claim, by name, and by uid if it says one (upstream's `IsVolumeBoundToClaim`).
fn names(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let uid = |uid: &String| uid.is_empty() || claim.metadata.uid.as_ref() == Some(uid);
    reference.is_some_and(|it| {
        it.name == claim.metadata.name
            && it.namespace == claim.metadata.namespace
            && it.uid.as_ref().is_none_or(uid)
    })
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
