//! Processors of their own for containers of guaranteed pods that ask for whole ones: the `static`
//! policy of upstream's CPU manager (`pkg/kubelet/cm/cpumanager/policy_static.go`). Everybody else
//! shares the rest.
mod options;
mod take;
pub mod topology;

pub use options::Options;

use crate::admission::{self, Refusal};
use crate::container::resources;
use crate::found::{CONTAINER_NAME, POD_UID};
use crate::numa::hints::{Hint, Nodes, hints};
use crate::numa::{self, Near};
use crate::pod::{self, Role};
use crate::runtime::cri;
use crate::worker::Kubelet;
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use take::Choice;
use topology::{CpuSet, Topology, shown};

/// What the policy is told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    pub topology: Topology,
    /// Never a container's own.
    pub reserved: CpuSet,
    pub options: Options,
}

impl Policy {
    /// The machine's processors: those of a list are reserved, or else so many.
    pub fn new(
        listed: Option<CpuSet>,
        reserved_milli: i64,
        options: Options,
    ) -> Result<Policy, String> {
        let topology = topology::read(Path::new("/sys/devices/system"));
        let all: CpuSet = topology.keys().copied().collect();
        let count =
            usize::try_from(reserved_milli.div_euclid(1000) + i64::from(reserved_milli % 1000 > 0));
        let reserved = match listed {
            Some(listed) => listed,
            None => {
                let usual = Choice::default();
                usual.take(&topology, &all, count.unwrap_or(0)).unwrap_or_default()
            }
        };
        if reserved.is_empty() {
            return Err("the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero".to_owned());
        }
        Ok(Policy { topology, reserved, options })
    }

    /// Which are taken of those that are free.
    fn take(&self, free: &CpuSet, count: usize) -> Option<CpuSet> {
        let options = &self.options;
        let group = if options.whole_cores { self.per_core() } else { 1 };
        let choice = Choice {
            spread: options.across_cores,
            by_cache: options.by_cache,
            evenly: options.across_numa.then_some(group),
            by_socket: options.by_socket,
        };
        choice.take(&self.topology, free, count)
    }

    /// The sockets that NUMA nodes are on.
    fn sockets(&self, nodes: &Nodes) -> BTreeSet<u32> {
        let own = self.topology.values().filter(|cpu| nodes.contains(&cpu.numa));
        own.map(|cpu| cpu.socket).collect()
    }

    /// Whether the options suit this machine, and how containers are to be near their devices.
    pub fn check(&self, topology: numa::hints::Policy) -> Result<(), String> {
        if !self.options.by_socket {
            return Ok(());
        }
        if topology == numa::hints::Policy::SingleNumaNode {
            return Err("Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option".to_owned());
        }
        let nodes: Nodes = self.topology.values().map(|cpu| cpu.numa).collect();
        if self.sockets(&nodes).len() > nodes.len() {
            return Err("Align by socket is not compatible with hardware where number of sockets are more than number of NUMA".to_owned());
        }
        Ok(())
    }

    /// Processors that share a core with each other.
    fn per_core(&self) -> usize {
        let cores: BTreeSet<_> = self.topology.values().map(|cpu| (cpu.socket, cpu.core)).collect();
        (self.topology.len() / cores.len().max(1)).max(1)
    }

    /// Those of cores that are free as a whole.
    fn of_whole_cores(&self, free: &CpuSet) -> CpuSet {
        let core = |cpu: &u32| self.topology.get(cpu).map(|place| (place.socket, place.core));
        let used: BTreeSet<_> =
            self.topology.keys().filter(|cpu| !free.contains(cpu)).map(core).collect();
        free.iter().filter(|cpu| !used.contains(&core(cpu))).copied().collect()
    }
}

/// Who has which, by pod and container.
type Grants = BTreeMap<String, BTreeMap<String, CpuSet>>;

#[derive(Default)]
pub struct Cpus {
    grants: Mutex<Grants>,
}

/// What everybody shares.
fn shared(policy: &Policy, grants: &Grants) -> CpuSet {
    let own: CpuSet = grants.values().flat_map(BTreeMap::values).flatten().copied().collect();
    let is_kept = |cpu: &u32| policy.options.strict_reservation && policy.reserved.contains(cpu);
    policy.topology.keys().filter(|cpu| !own.contains(cpu) && !is_kept(cpu)).copied().collect()
}

/// How many a container wants for itself.
pub fn wanted(pod: &Pod, container: &Container) -> usize {
    let requests = container.resources.as_ref().and_then(|all| all.requests.as_ref());
    let milli = admission::amounts(requests).get("cpu").copied().unwrap_or(0);
    match resources::qos(pod) == "Guaranteed" && milli % 1000 == 0 {
        true => usize::try_from(milli / 1000).unwrap_or(0),
        false => 0,
    }
}

/// Where so many can come from.
pub fn hints_of(policy: &Policy, free: &CpuSet, count: usize, nodes: &Nodes) -> Vec<Hint> {
    let on = |cpus: &dyn Fn(&u32) -> bool, nodes: &Nodes| {
        let own =
            policy.topology.iter().filter(|(cpu, place)| nodes.contains(&place.numa) && cpus(cpu));
        own.count() as u64
    };
    let total = |nodes: &Nodes| on(&|_| true, nodes);
    let mut found = hints(nodes, count as u64, total, |nodes| on(&|cpu| free.contains(cpu), nodes));
    if policy.options.by_socket {
        // All that takes no more sockets than it has to is as good.
        let least = found.iter().filter(|hint| hint.preferred).map(|hint| hint.nodes.len()).min();
        let per_socket = (nodes.len() / policy.sockets(nodes).len().max(1)).max(1);
        let sockets = least.unwrap_or(nodes.len()).div_ceil(per_socket);
        for hint in &mut found {
            hint.preferred |= policy.sockets(&hint.nodes).len() == sockets;
        }
    }
    found
}

/// So many of those that are free, from these nodes first.
pub fn take_near(
    policy: &Policy,
    free: &CpuSet,
    count: usize,
    near: Option<&Nodes>,
) -> Option<CpuSet> {
    let Some(near) = near else { return policy.take(free, count) };
    let sockets = policy.sockets(near);
    let is_near = |cpu: &&u32| {
        policy.topology.get(cpu).is_some_and(|place| match policy.options.by_socket {
            true => sockets.contains(&place.socket),
            false => near.contains(&place.numa),
        })
    };
    let first: CpuSet = free.iter().filter(is_near).copied().collect();
    let mut taken = policy.take(&first, count.min(first.len()))?;
    let rest: CpuSet = free.difference(&taken).copied().collect();
    taken.extend(policy.take(&rest, count - taken.len())?);
    Some(taken)
}

/// What a pod's containers get; init containers have ended before the others begin.
fn grant(
    policy: &Policy,
    grants: &Grants,
    pod: &Pod,
    near: &Near,
) -> Result<BTreeMap<String, CpuSet>, Refusal> {
    let mut free: CpuSet = shared(policy, grants).difference(&policy.reserved).copied().collect();
    if policy.options.whole_cores {
        free = policy.of_whole_cores(&free);
    }
    let mut again = CpuSet::new();
    let mut own = BTreeMap::new();
    for (role, container) in pod::containers(pod) {
        let count = wanted(pod, container);
        if count == 0 {
            continue;
        }
        if policy.options.whole_cores {
            whole(policy, count, free.len() + again.len())?;
        }
        let mut cpus = policy.take(&again, count.min(again.len())).unwrap_or_default();
        let missing = count - cpus.len();
        let more =
            take_near(policy, &free, missing, near.get(&container.name)).ok_or_else(|| {
                let available = free.len() + cpus.len();
                Refusal::new(
                    "UnexpectedAdmissionError",
                    format!("Allocate failed due to not enough cpus available to satisfy request: requested={count}, available={available}, which is unexpected"),
                )
            })?;
        free.retain(|cpu| !more.contains(cpu));
        cpus.extend(more);
        match role {
            Role::Init => again.extend(&cpus),
            _ => again.retain(|cpu| !cpus.contains(cpu)),
        }
        own.insert(container.name.clone(), cpus);
    }
    Ok(own)
}

/// Whether so many are whole cores, and there are as many.
fn whole(policy: &Policy, count: usize, available: usize) -> Result<(), Refusal> {
    let per_core = policy.per_core();
    let why = match (count % per_core, count <= available) {
        (0, true) => return Ok(()),
        (0, false) => format!(
            "not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = {count}, CPUs per core = {per_core}"
        ),
        _ => format!("requested {count} cpus not multiple cpus per core = {per_core}"),
    };
    Err(Refusal::new("SMTAlignmentError", format!("SMT Alignment Error: {why}")))
}

impl Cpus {
    pub fn take_up(&self, root: &Path) {
        let read = fs::read(root.join(STATE)).ok();
        let grants = read.and_then(|text| serde_json::from_slice(&text).ok());
        *self.grants.lock() = grants.unwrap_or_default();
    }

    /// Those that a container could have for itself.
    pub fn free(&self, policy: &Policy) -> CpuSet {
        shared(policy, &self.grants.lock()).difference(&policy.reserved).copied().collect()
    }

    /// The containers of a pod that have some for themselves.
    pub fn exclusive(&self, uid: &str) -> BTreeSet<String> {
        self.grants.lock().get(uid).into_iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    /// Those that a container has for itself.
    pub fn ids(&self, uid: &str, container: &str) -> Vec<i64> {
        let grants = self.grants.lock();
        let own = grants.get(uid).and_then(|pod| pod.get(container));
        own.into_iter().flatten().map(|cpu| i64::from(*cpu)).collect()
    }

    /// Those that a container runs on, if that matters.
    pub fn of(&self, policy: Option<&Policy>, pod: &Pod, container: &Container) -> Option<String> {
        let grants = self.grants.lock();
        let own = grants.get(pod::uid(pod)).and_then(|pod| pod.get(&container.name));
        Some(match own {
            Some(own) => shown(own),
            None => shown(&shared(policy?, &grants)),
        })
    }
}

const STATE: &str = "skiff_cpu_state";

impl Kubelet {
    /// Gives a pod's containers processors of their own, if they are to have some.
    pub async fn grant_cpus(&self, pod: &Pod, near: &Near) -> Result<(), Refusal> {
        let Some(policy) = &self.config.cpu_policy else { return Ok(()) };
        let changed = {
            let mut grants = self.cpus.grants.lock();
            let before = grants.len();
            grants.retain(|uid, _| self.holds(uid));
            let freed = before != grants.len();
            if grants.contains_key(pod::uid(pod)) {
                freed
            } else {
                let own = grant(policy, &grants, pod, near)?;
                let has_some = !own.is_empty();
                if has_some {
                    grants.insert(pod::uid(pod).to_owned(), own);
                }
                freed || has_some
            }
        };
        if changed {
            self.share_cpus(policy).await;
        }
        Ok(())
    }

    /// A pod has ended: what it had for itself is everybody's.
    pub async fn free_cpus(&self, uid: &str) {
        let Some(policy) = &self.config.cpu_policy else { return };
        if self.cpus.grants.lock().remove(uid).is_some() {
            self.share_cpus(policy).await;
        }
    }

    /// Writes down who has what, and moves everybody else to the rest.
    async fn share_cpus(&self, policy: &Policy) {
        let grants = self.cpus.grants.lock().clone();
        let written = serde_json::to_vec(&grants).map_err(std::io::Error::other);
        let written = written.and_then(|text| fs::write(self.config.root.join(STATE), text));
        if let Err(error) = written {
            tracing::warn!("failed to write which processors containers have: {error}");
        }
        let rest = shown(&shared(policy, &grants));
        let Ok(listed) = self.runtime.list_containers(Default::default()).await else { return };
        let running = listed
            .containers
            .into_iter()
            .filter(|one| one.state() == cri::ContainerState::ContainerRunning);
        for one in running {
            let label = |key: &str| one.labels.get(key).cloned();
            let (Some(uid), Some(name)) = (label(POD_UID), label(CONTAINER_NAME)) else { continue };
            if grants.get(&uid).is_some_and(|pod| pod.contains_key(&name)) {
                continue;
            }
            let linux = cri::LinuxContainerResources {
                cpuset_cpus: rest.clone(),
                ..cri::LinuxContainerResources::default()
            };
            let request = cri::UpdateContainerResourcesRequest {
                container_id: one.id,
                linux: Some(linux),
                ..cri::UpdateContainerResourcesRequest::default()
            };
            if let Err(error) = self.runtime.update_container_resources(request).await {
                tracing::warn!("failed to move container {name} to other processors: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use topology::Cpu;

    fn policy(count: u32) -> Policy {
        let topology = (0..count).map(|cpu| (cpu, Cpu { core: cpu, ..Cpu::default() })).collect();
        Policy { topology, reserved: [0].into(), ..Policy::default() }
    }

    fn pod(uid: &str, init: Option<&str>, cpus: &[&str]) -> Pod {
        let one = |name: String, cpu: &str| {
            let all = json!({ "cpu": cpu, "memory": "1Mi" });
            json!({ "name": name, "resources": { "limits": all, "requests": all } })
        };
        let containers: Vec<_> =
            cpus.iter().enumerate().map(|(i, cpu)| one(format!("c{i}"), cpu)).collect();
        let init: Vec<_> = init.into_iter().map(|cpu| one("init".to_owned(), cpu)).collect();
        serde_json::from_value(json!({ "metadata": { "uid": uid },
            "spec": { "containers": containers, "initContainers": init } }))
        .unwrap()
    }

    fn check(grants: &mut Grants, pod: &Pod, expected: &str) {
        check_by(&policy(6), grants, pod, expected);
    }

    fn check_by(policy: &Policy, grants: &mut Grants, pod: &Pod, expected: &str) {
        let said = match grant(policy, grants, pod, &Near::new()) {
            Ok(own) => {
                let text: Vec<_> =
                    own.iter().map(|(name, cpus)| format!("{name}={}", shown(cpus))).collect();
                grants.insert(pod::uid(pod).to_owned(), own);
                text.join(" ")
            }
            Err(why) => format!("{}: {}", why.reason, why.message),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn whole_processors_are_a_containers_own() {
        let mut grants = Grants::new();
        check(&mut grants, &pod("a", Some("3"), &["2", "500m"]), "c0=1-2 init=1-3");
        check(&mut grants, &pod("b", None, &["1500m"]), "");
        check(
            &mut grants,
            &pod("c", None, &["3"]),
            "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: requested=3, available=2, which is unexpected",
        );
        check(&mut grants, &pod("d", None, &["2"]), "c0=4-5");
        assert_eq!(shown(&shared(&policy(6), &grants)), "0");
        grants.remove("d");
        assert_eq!(shown(&shared(&policy(6), &grants)), "0,4-5");
    }

    #[test]
    fn whole_cores_are_shared_with_nobody() {
        // Processors 0 and 4 share a core, 1 and 5, and so on.
        let place = |cpu: u32| (cpu, Cpu { core: cpu % 4, ..Cpu::default() });
        let mut policy = Policy {
            topology: (0..8).map(place).collect(),
            ..Policy { reserved: [0].into(), ..Policy::default() }
        };
        policy.options =
            Options { whole_cores: true, strict_reservation: true, ..Options::default() };
        let mut grants = Grants::new();
        let said = "SMTAlignmentError: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2";
        check_by(&policy, &mut grants, &pod("a", None, &["3"]), said);
        check_by(&policy, &mut grants, &pod("b", None, &["4"]), "c0=1-2,5-6");
        let said = "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, CPUs per core = 2";
        check_by(&policy, &mut grants, &pod("c", None, &["4"]), said);
        assert_eq!(shown(&shared(&policy, &grants)), "3-4,7");
    }

    #[test]
    fn sockets_are_enough_where_they_are_aligned() {
        // Two sockets of two NUMA nodes of two processors.
        let place = |cpu: u32| Cpu { core: cpu, socket: cpu / 4, numa: cpu / 2, ..Cpu::default() };
        let mut policy =
            Policy { topology: (0..8).map(|cpu| (cpu, place(cpu))).collect(), ..Policy::default() };
        let nodes: Nodes = (0..4).collect();
        let liked = |policy: &Policy| {
            let free = policy.topology.keys().copied().collect();
            let hints = hints_of(policy, &free, 2, &nodes).into_iter();
            hints.filter(|hint| hint.preferred).map(|hint| shown(&hint.nodes)).collect::<Vec<_>>()
        };
        assert_eq!(liked(&policy), ["0", "1", "2", "3"]);
        let near = [0].into();
        let taken = |policy: &Policy| {
            let free = topology::parse("1-7").unwrap();
            take_near(policy, &free, 2, Some(&near)).map(|cpus| shown(&cpus)).unwrap_or_default()
        };
        assert_eq!(taken(&policy), "1-2");
        policy.options.by_socket = true;
        assert_eq!(liked(&policy), ["0", "1", "0-1", "2", "3", "2-3"]);
        assert_eq!(taken(&policy), "2-3", "of the same socket, and a whole node");
        assert_eq!(policy.check(numa::hints::Policy::Restricted), Ok(()));
        let said = "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option";
        assert_eq!(policy.check(numa::hints::Policy::SingleNumaNode), Err(said.to_owned()));
        policy.topology.values_mut().for_each(|cpu| cpu.numa = 0);
        let said = policy.check(numa::hints::Policy::None).unwrap_err();
        assert!(said.starts_with("Align by socket is not compatible with hardware"), "{said}");
    }
}
