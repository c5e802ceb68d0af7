//! `DynamicResources`: whether the devices that a pod's claims ask for can be had on a node.
use super::{Cycle, Hopeless, Refusal, Verdict};
use crate::cluster::{Cluster, NodeRow};
use crate::devices::{self, Failure, PodClaim, extended, ledger};
use crate::pod::PodInfo;
use crate::selectors::NodeTerm;
use api::names::NamespacedName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ContainerExtendedResourceRequest;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClaim, DeviceRequestAllocationResult, ResourceClaim, ResourceClaimSpec,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a claim for extended resources is called before it is made.
const EXTENDED: &str = "<extended-resources>";

/// Said where a claim has devices that a node cannot use.
const ELSEWHERE: &str = "resourceclaim not available on the node";

/// Pods that may use a claim at once: upstream's `ResourceClaimReservedForMaxSize`.
const MOST_USERS: usize = 256;

/// What a pod's claims have come to so far.
#[derive(Clone, Default)]
pub struct Devices {
    pub claims: Vec<Wish>,
    /// It asks for resources that devices stand for; the claim for them is made with its node.
    has_extended: bool,
}

#[derive(Clone)]
pub struct Wish {
    pub claim: Arc<ResourceClaim>,
    /// Where its devices can be used, if it has some.
    nodes: Option<Vec<NodeTerm>>,
    is_allocated: bool,
    /// Its devices did not become ready, or not in time.
    is_stuck: bool,
}

/// What is to be written before a pod may run on its node.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Claims, and the devices that they get if they have none.
    pub claims: Vec<(Arc<ResourceClaim>, Option<Arc<AllocationResult>>)>,
    pub extended: Option<Box<ExtendedPlan>>,
}

/// A claim that is made for extended resources.
#[derive(Debug, Clone)]
pub struct ExtendedPlan {
    pub claim: ResourceClaim,
    pub allocation: Arc<AllocationResult>,
    pub mappings: Vec<ContainerExtendedResourceRequest>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.extended.is_none()
    }

    /// The devices that claims get: claim, request, driver, pool and name.
    pub fn devices(&self) -> Vec<String> {
        let own = self.claims.iter().flat_map(|(claim, allocation)| {
            let claim = claim.metadata.name.as_deref().unwrap_or_default();
            let results = allocation.iter().flat_map(|it| devices::results(it));
            results.map(move |it| (format!("{claim} {}", it.request), it))
        });
        let extended = self.extended.iter().flat_map(|it| devices::results(&it.allocation));
        let extended = extended.map(|it| match it.share_id {
            Some(_) => ("extended shared".to_owned(), it),
            None => ("extended".to_owned(), it),
        });
        let all = own.chain(extended);
        all.map(|(of, it)| format!("{of} {}/{}/{}", it.driver, it.pool, it.device)).collect()
    }

    /// The devices that it promises, by claim.
    pub fn promises(
        &self,
        pod: &PodInfo,
    ) -> impl Iterator<Item = (NamespacedName, Arc<AllocationResult>)> {
        let own = self
            .claims
            .iter()
            .filter_map(|(claim, allocation)| Some((ledger::key_of(claim), allocation.clone()?)));
        let extended = self.extended.iter().map(|it| (extended_key(pod), it.allocation.clone()));
        own.chain(extended)
    }
}

/// No name of a claim: it has none yet.
pub fn extended_key(pod: &PodInfo) -> NamespacedName {
    NamespacedName::new(&pod.key.namespace, &format!("{EXTENDED}/{}", pod.uid))
}

/// Whether all claims of a pod are there; else why not (upstream's `foreachPodResourceClaim`).
pub fn missing(cluster: &Cluster, pod: &PodInfo) -> Option<String> {
    pod.device_claims.iter().find_map(|claim| find(cluster, pod, claim).err())
}

fn find<'a>(
    cluster: &'a Cluster,
    pod: &PodInfo,
    wanted: &PodClaim,
) -> Result<Option<&'a Arc<ResourceClaim>>, String> {
    let (name, is_made) = match &wanted.source {
        ledger::Source::Named(name) => (name, false),
        ledger::Source::Made(name) => (name, true),
        ledger::Source::NotNeeded => return Ok(None),
        ledger::Source::NotYet => {
            return Err(format!("pod \"{}\": ResourceClaim not created yet", pod.key));
        }
        ledger::Source::Unknown => {
            return Err(format!(
                "pod \"{}\", spec.resourceClaim {:?}: none of the supported fields are set",
                pod.key, wanted.name
            ));
        }
    };
    let key = NamespacedName::new(&pod.key.namespace, name);
    let claim = cluster.devices.claim(&key).ok_or_else(|| {
        format!("could not find resourceclaim.resource.k8s.io {:?}", key.to_string())
    })?;
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("resourceclaim {name:?} is being deleted"));
    }
    let owner = api::owner::controller_of(claim.metadata.owner_references.as_deref());
    if is_made && owner.is_none_or(|owner| *owner.uid != *pod.uid) {
        return Err(format!(
            "ResourceClaim {key} was not created for Pod {} (Pod is not owner)",
            pod.key
        ));
    }
    Ok(Some(claim))
}

impl Devices {
    pub fn of(
        cluster: &Cluster,
        pod: &PodInfo,
        timeout: Duration,
        now: Timestamp,
    ) -> Result<Devices, Hopeless> {
        let scalars = pod.wishes.requests.scalars.iter();
        let has_extended = !pod.wishes.containers.is_empty()
            && scalars.into_iter().any(|(name, amount)| {
                *amount != 0
                    && extended::may_be_devices(name)
                    && cluster.devices.class_of(name).is_some()
            });
        let mut all = Devices { claims: Vec::new(), has_extended };
        if pod.device_claims.is_empty() {
            return Ok(all);
        }
        let hopeless =
            |message: String| Hopeless { filter: "DynamicResources", message, is_error: false };
        for wanted in &pod.device_claims {
            let Some(claim) = find(cluster, pod, wanted).map_err(hopeless)? else { continue };
            // A claim that the pod names twice has its devices once.
            if !all.claims.iter().any(|wish| wish.claim.metadata.uid == claim.metadata.uid) {
                all.claims.push(Wish::of(claim, timeout, now));
            }
        }
        for Wish { claim, is_allocated, .. } in &all.claims {
            let key = ledger::key_of(claim);
            if *is_allocated {
                let status = claim.status.as_ref();
                let users = status.and_then(|status| status.reserved_for.as_deref());
                let users = users.unwrap_or_default();
                let is_ours = users.iter().any(|user| *user.uid == *pod.uid);
                if users.len() >= MOST_USERS && !is_ours {
                    return Err(hopeless("resourceclaim in use".to_owned()));
                }
                continue;
            }
            if cluster.devices.is_pending(&key) {
                return Err(hopeless(format!(
                    "resource claim {key} is in the process of being allocated"
                )));
            }
            for request in devices::requests(claim) {
                let class =
                    |class: &str, name: &str| match cluster.devices.classes.contains_key(class) {
                        true => Ok(()),
                        false => Err(hopeless(format!(
                            "request {name}: device class {class} does not exist"
                        ))),
                    };
                if let Some(exactly) = &request.exactly {
                    class(&exactly.device_class_name, &request.name)?;
                    continue;
                }
                let subs = request.first_available.as_deref().unwrap_or_default();
                if subs.is_empty() {
                    return Err(hopeless(format!(
                        "resource claim {key}, request {}: unknown request type",
                        request.name
                    )));
                }
                for sub in subs {
                    let name = format!("{}/{}", request.name, sub.name);
                    class(&sub.device_class_name, &name)?;
                }
            }
        }
        Ok(all)
    }

    pub fn is_needed(&self) -> bool {
        self.has_extended || !self.claims.is_empty()
    }

    /// The claim that is given back, so that its devices may be found elsewhere: one that nobody
    /// else uses, and that is all that a node does not have.
    pub fn to_free(
        &self,
        cluster: &Cluster,
        pod: &PodInfo,
        refused: &[(usize, Refusal)],
    ) -> Option<Arc<ResourceClaim>> {
        let missed = || {
            let said =
                refused.iter().filter(|(_, it)| it.reasons.iter().any(|it| *it == ELSEWHERE));
            said.map(|(slot, _)| cluster.row(*slot))
        };
        let is_free = |wish: &&Wish| {
            let status = wish.claim.status.as_ref();
            let users = status.and_then(|status| status.reserved_for.as_deref());
            let users = users.unwrap_or_default();
            wish.is_allocated
                && missed().any(|row| wish.is_unavailable(row))
                && users.iter().all(|user| *user.uid == *pod.uid)
        };
        self.claims.iter().find(is_free).map(|wish| wish.claim.clone())
    }
}

impl Wish {
    fn of(claim: &Arc<ResourceClaim>, timeout: Duration, now: Timestamp) -> Wish {
        let allocation = ledger::allocation(claim);
        let selector = allocation.and_then(|it| it.node_selector.as_ref());
        Wish {
            nodes: selector.map(|it| it.node_selector_terms.iter().map(NodeTerm::of).collect()),
            is_allocated: allocation.is_some(),
            is_stuck: allocation.is_some()
                && match readiness(claim) {
                    Readiness::Ready => false,
                    Readiness::Failed(_) => true,
                    Readiness::Waiting => is_late(claim, timeout, now),
                },
            claim: claim.clone(),
        }
    }

    fn is_unavailable(&self, row: &NodeRow) -> bool {
        let matches = |term: &NodeTerm| term.matches(&row.node.name, &row.node.labels);
        self.is_stuck || self.nodes.as_ref().is_some_and(|terms| !terms.iter().any(matches))
    }
}

/// Whether devices that have to be made ready are.
#[derive(Debug, PartialEq)]
pub enum Readiness {
    Ready,
    Waiting,
    Failed(String),
}

pub fn readiness(claim: &ResourceClaim) -> Readiness {
    let Some(allocation) = ledger::allocation(claim) else { return Readiness::Waiting };
    let states = claim.status.iter().flat_map(|status| status.devices.iter().flatten());
    let states: Vec<_> = states.collect();
    for result in devices::results(allocation) {
        let wanted = result.binding_conditions.as_deref().unwrap_or_default();
        if wanted.is_empty() {
            continue;
        }
        let DeviceRequestAllocationResult { device, driver, pool, .. } = result;
        let state = states
            .iter()
            .find(|it| it.device == *device && it.driver == *driver && it.pool == *pool);
        let Some(state) = state else { return Readiness::Waiting };
        let conditions = state.conditions.as_deref().unwrap_or_default();
        let held =
            |name: &String| conditions.iter().find(|it| it.type_ == *name && it.status == "True");
        let failures = result.binding_failure_conditions.iter().flatten();
        if let Some(failed) = failures.into_iter().find_map(held) {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            return Readiness::Failed(format!(
                "device binding failed: claim={name}, reason={}, message={:?}",
                failed.reason, failed.message
            ));
        }
        if !wanted.iter().all(|name| held(name).is_some()) {
            return Readiness::Waiting;
        }
    }
    Readiness::Ready
}

pub fn is_late(claim: &ResourceClaim, timeout: Duration, now: Timestamp) -> bool {
    let since = ledger::allocation(claim).and_then(|it| it.allocation_timestamp.as_ref());
    since.is_some_and(|since| now.duration_since(since.0).unsigned_abs() > timeout && now > since.0)
}

/// Devices that are to be used somewhere.
type Found =
    (Vec<Arc<AllocationResult>>, Option<(ResourceClaim, Vec<ContainerExtendedResourceRequest>)>);

pub fn check(cycle: &Cycle<'_>, row: &NodeRow) -> Verdict {
    search(cycle, row).map(drop)
}

fn search(cycle: &Cycle<'_>, row: &NodeRow) -> Result<Found, Refusal> {
    let devices = &cycle.devices;
    let extended = extended_claim(cycle, row);
    if extended.is_none() && devices.claims.is_empty() {
        return Ok((Vec::new(), None));
    }
    let open = devices.claims.iter().filter(|wish| !wish.is_allocated).map(|wish| &*wish.claim);
    let mut claims: Vec<&ResourceClaim> = open.collect();
    claims.extend(extended.iter().map(|(claim, _)| claim));
    let mut allocations = Vec::new();
    if !claims.is_empty() {
        let timeout = cycle.profile.args.filter_timeout;
        let deadline = (!timeout.is_zero()).then(|| Instant::now() + timeout);
        let found = devices::allocate(&cycle.cluster.devices, row, &claims, deadline);
        match found {
            Ok(Some(found)) => allocations = found.into_iter().map(Arc::new).collect(),
            Ok(None) => return Err(Refusal::anyway("cannot allocate all claims")),
            Err(Failure::Node(text)) => return Err(Refusal::said(text, false)),
            Err(Failure::Error(text)) => return Err(Refusal::said(text, true)),
            Err(Failure::Timeout) => {
                let node = &row.node.name;
                let text = format!("node {node}: timed out trying to allocate devices");
                return Err(Refusal::said(text, true));
            }
        }
    }
    if devices.claims.iter().any(|wish| wish.is_unavailable(row)) {
        return Err(Refusal::anyway(ELSEWHERE));
    }
    Ok((allocations, extended))
}

/// What is to be written if the pod comes to the node.
pub fn plan(cycle: &Cycle<'_>, row: &NodeRow) -> Result<Plan, Refusal> {
    if !cycle.devices.is_needed() {
        return Ok(Plan::default());
    }
    let (allocations, extended) = search(cycle, row)?;
    let mut allocations = allocations.into_iter();
    let claims = cycle.devices.claims.iter();
    let claims = claims
        .map(|wish| {
            let own = if wish.is_allocated { None } else { allocations.next() };
            (wish.claim.clone(), own)
        })
        .collect();
    let extended = extended.zip(allocations.next());
    let extended = extended.map(|((claim, mappings), allocation)| {
        Box::new(ExtendedPlan { claim, allocation, mappings })
    });
    Ok(Plan { claims, extended })
}

fn extended_claim(
    cycle: &Cycle<'_>,
    row: &NodeRow,
) -> Option<(ResourceClaim, Vec<ContainerExtendedResourceRequest>)> {
    if !cycle.devices.has_extended {
        return None;
    }
    let pod = cycle.pod;
    let scalars = pod.wishes.requests.scalars.iter();
    let resources: Vec<&str> = scalars
        .filter(|(name, amount)| *amount != 0 && cycle.is_backed_by_devices(row, name))
        .map(|(name, _)| &**name)
        .collect();
    if resources.is_empty() {
        return None;
    }
    let (requests, mappings) =
        extended::requests(&cycle.cluster.devices, &pod.wishes.containers, &resources);
    let mut claim = ResourceClaim {
        spec: Some(ResourceClaimSpec {
            devices: Some(DeviceClaim { requests: Some(requests), ..DeviceClaim::default() }),
        }),
        ..ResourceClaim::default()
    };
    let metadata = &mut claim.metadata;
    metadata.namespace = Some(pod.key.namespace.to_string());
    metadata.name = Some(EXTENDED.to_owned());
    metadata.generate_name = Some(format!("{}-extended-resources-", pod.key.name));
    let annotation = "resource.kubernetes.io/extended-resource-claim";
    metadata.annotations = Some([(annotation.to_owned(), "true".to_owned())].into());
    metadata.owner_references =
        Some(vec![k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: pod.key.name.to_string(),
            uid: pod.uid.to_string(),
            controller: Some(true),
            block_owner_deletion: None,
        }]);
    Some((claim, mappings))
}

impl Cycle<'_> {
    /// The node has none of the resource, and devices of a class stand for it.
    pub fn is_backed_by_devices(&self, row: &NodeRow, name: &str) -> bool {
        self.devices.has_extended
            && row.node.allocatable.scalar(name) == 0
            && extended::may_be_devices(name)
            && self.cluster.devices.class_of(name).is_some()
    }

    /// How many devices stand for a resource on the node, and how many of them are taken.
    pub fn devices_offered(&self, row: &NodeRow, name: &str) -> Option<(i64, i64)> {
        let class = self.cluster.devices.class_of(name)?;
        let (all, taken) = devices::allocate::of_class(&self.cluster.devices, row, class);
        (all > 0).then_some((all, taken))
    }
}
