//! NUMA: the parts of a machine that have processors, memory and devices near each other, and what
//! containers get of which (`pkg/kubelet/cm/topologymanager`, `memorymanager`).
//!
//! ```text
//!  hints    who can have it where; where all can have it together       (pure)
//!  memory   memory of their own for guaranteed pods                     (pure)
//! ```
pub mod hints;
pub mod memory;

use crate::admission::Refusal;
use crate::cpus::{self, topology::CpuSet};
use crate::pod::{self, Role};
use crate::worker::Kubelet;
use hints::{Hint, Nodes, Policy, hints, merge};
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What the configuration says: `topologyManagerPolicy` and its scope.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    pub policy: Policy,
    /// Whether all of a pod is to be near each other, or each container by itself.
    pub whole_pods: bool,
    /// The machine's.
    pub nodes: Nodes,
}

/// More are too many to try all of their combinations: upstream's.
const MOST_NODES: usize = 8;

impl Settings {
    pub fn new(policy: Policy, whole_pods: bool, most: Option<usize>) -> Result<Settings, String> {
        let nodes = nodes(Path::new("/sys/devices/system"));
        if policy != Policy::None && nodes.len() > most.unwrap_or(MOST_NODES) {
            return Err(format!(
                "unsupported on machines with more than {} NUMA Nodes",
                most.unwrap_or(MOST_NODES)
            ));
        }
        Ok(Settings { policy, whole_pods, nodes })
    }
}

fn nodes(system: &Path) -> Nodes {
    let entries = fs::read_dir(system.join("node")).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        entry.file_name().to_string_lossy().strip_prefix("node")?.parse::<u32>().ok()
    };
    let found: Nodes = entries.filter_map(number).collect();
    if found.is_empty() { Nodes::from([0]) } else { found }
}

/// Where containers' things come from, by container.
pub type Near = BTreeMap<String, Nodes>;

/// Devices of a resource that a container wants so many of: ids, and the nodes that they are near.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceWish {
    pub resource: String,
    pub count: usize,
    pub free: BTreeMap<String, Nodes>,
    pub all: BTreeMap<String, Nodes>,
}

impl DeviceWish {
    fn hints(&self, nodes: &Nodes, taken: &BTreeSet<(String, String)>) -> Option<Vec<Hint>> {
        // Devices that are nowhere in particular are near everything.
        if self.all.values().all(BTreeSet::is_empty) {
            return None;
        }
        let on = |devices: &BTreeMap<String, Nodes>, wanted: &Nodes, but_taken: bool| {
            let own = devices.iter().filter(|(id, near)| {
                let is_taken = taken.contains(&(self.resource.clone(), (*id).clone()));
                !(but_taken && is_taken) && (near.is_empty() || !near.is_disjoint(wanted))
            });
            own.count() as u64
        };
        let total = |wanted: &Nodes| on(&self.all, wanted, false);
        let free = |wanted: &Nodes| on(&self.free, wanted, true);
        Some(hints(nodes, self.count as u64, total, free))
    }
}

/// What is known when a pod is placed.
pub struct Place<'a> {
    pub settings: &'a Settings,
    pub cpus: Option<&'a cpus::Policy>,
    pub free_cpus: CpuSet,
    pub memory: Option<&'a memory::Policy>,
    pub memory_grants: memory::Grants,
    pub devices: &'a dyn Fn(&Container) -> Vec<DeviceWish>,
}

/// Decides for each container of a pod, one after another, what it is near to.
pub fn place(pod: &Pod, mut place: Place<'_>) -> Result<Near, Refusal> {
    let mut near = Near::new();
    if place.settings.policy == Policy::None {
        return Ok(near);
    }
    let mut taken = BTreeSet::new();
    let mut whole: Option<Nodes> = None;
    for (role, container) in pod::containers(pod) {
        let count = place.cpus.map_or(0, |_| cpus::wanted(pod, container));
        let bytes = place.memory.map(|_| memory::wanted(pod, container)).unwrap_or_default();
        let devices = (place.devices)(container);
        let mut lists: Vec<Option<Vec<Hint>>> = Vec::new();
        if let Some(policy) = place.cpus.filter(|_| count > 0) {
            lists.push(Some(cpus::hints_of(
                policy,
                &place.free_cpus,
                count,
                &place.settings.nodes,
            )));
        }
        if let Some(policy) = place.memory {
            lists.extend(memory::hints_of(policy, &place.memory_grants, &bytes));
        }
        lists.extend(devices.iter().map(|wish| wish.hints(&place.settings.nodes, &taken)));
        // What was decided for its pod binds a container.
        if let Some(whole) = whole.as_ref().filter(|_| place.settings.whole_pods) {
            lists.push(Some(vec![Hint { nodes: whole.clone(), preferred: true }]));
        }
        if lists.is_empty() {
            continue;
        }
        let (nodes, may) = merge(place.settings.policy, &place.settings.nodes, &lists);
        if !may {
            return Err(Refusal {
                reason: "TopologyAffinityError".to_owned(),
                message: "Resources cannot be allocated with Topology locality".to_owned(),
            });
        }
        whole.get_or_insert_with(|| nodes.clone());
        // An init container has ended when others begin.
        if role != Role::Init {
            if let Some(policy) = place.cpus {
                let own = cpus::take_near(policy, &place.free_cpus, count, Some(&nodes));
                place.free_cpus.retain(|cpu| !own.as_ref().is_some_and(|own| own.contains(cpu)));
            }
            if let Some(policy) = place.memory
                && let Ok(blocks) = memory::grant(policy, &place.memory_grants, &bytes, &nodes)
            {
                let own = place.memory_grants.entry(String::new()).or_default();
                own.insert(container.name.clone(), blocks);
            }
            for wish in &devices {
                let on = wish.free.iter().filter(|(id, own)| {
                    (own.is_empty() || !own.is_disjoint(&nodes))
                        && !taken.contains(&(wish.resource.clone(), (*id).clone()))
                });
                let picked: Vec<_> = on.take(wish.count).map(|(id, _)| id.clone()).collect();
                taken.extend(picked.into_iter().map(|id| (wish.resource.clone(), id)));
            }
        }
        near.insert(container.name.clone(), nodes);
    }
    Ok(near)
}

const STATE: &str = "skiff_memory_state";

/// Who has memory of which node.
#[derive(Default)]
pub struct Memories(Mutex<memory::Grants>);

impl Memories {
    pub fn take_up(&self, root: &Path) {
        let read = fs::read(root.join(STATE)).ok();
        let grants = read.and_then(|text| serde_json::from_slice(&text).ok());
        *self.0.lock() = grants.unwrap_or_default();
    }

    fn write(&self, root: &Path) {
        let text = serde_json::to_vec(&*self.0.lock()).map_err(std::io::Error::other);
        let temporary = root.join(format!(".{STATE}"));
        let written = text.and_then(|text| fs::write(&temporary, text));
        let written = written.and_then(|()| fs::rename(&temporary, root.join(STATE)));
        if let Err(error) = written {
            tracing::warn!("failed to write whose memory is whose: {error}");
        }
    }

    /// The blocks that a container has.
    pub fn of(&self, pod: &Pod, container: &str) -> Vec<memory::Block> {
        memory::of(&self.0.lock(), pod, container).cloned().unwrap_or_default()
    }
}

impl Kubelet {
    /// Where the pod's containers get their things from.
    pub fn near(&self, pod: &Pod) -> Result<Near, Refusal> {
        let (cpus, memory) = (self.config.cpu_policy.as_ref(), self.config.memory_policy.as_ref());
        let place = Place {
            settings: &self.config.topology,
            cpus,
            free_cpus: cpus.map(|policy| self.cpus.free(policy)).unwrap_or_default(),
            memory,
            memory_grants: self.memory_grants.0.lock().clone(),
            devices: &|container| self.devices.wishes_by_node(pod, container),
        };
        self::place(pod, place)
    }

    /// Gives a pod's containers memory of their own, if they are to have some.
    pub fn grant_memory(&self, pod: &Pod, near: &Near) -> Result<(), Refusal> {
        let Some(policy) = &self.config.memory_policy else { return Ok(()) };
        let mut grants = self.memory_grants.0.lock();
        grants.retain(|uid, _| self.holds(uid));
        if grants.contains_key(pod::uid(pod)) {
            return Ok(());
        }
        let mut scratch = grants.clone();
        let mut own = BTreeMap::new();
        for (role, container) in pod::containers(pod) {
            let wanted = memory::wanted(pod, container);
            if wanted.is_empty() {
                continue;
            }
            let nodes = near.get(&container.name).cloned().unwrap_or_else(|| policy.all());
            let blocks =
                memory::grant(policy, &scratch, &wanted, &nodes).map_err(|why| Refusal {
                    reason: "UnexpectedAdmissionError".to_owned(),
                    message: format!("Allocate failed due to {why}, which is unexpected"),
                })?;
            if !memory::is_over_before(role) {
                let counted = scratch.entry(pod::uid(pod).to_owned()).or_default();
                counted.insert(container.name.clone(), blocks.clone());
            }
            own.insert(container.name.clone(), blocks);
        }
        if !own.is_empty() {
            grants.insert(pod::uid(pod).to_owned(), own);
            drop(grants);
            self.memory_grants.write(&self.config.root);
        }
        Ok(())
    }

    /// A pod has ended: what it had for itself is others'.
    pub fn free_memory(&self, uid: &str) {
        if self.memory_grants.0.lock().remove(uid).is_some() {
            self.memory_grants.write(&self.config.root);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::topology::Cpu;
    use serde_json::json;

    /// Two nodes of four processors; the first of the first is reserved.
    fn machine() -> cpus::Policy {
        let one = |cpu| (cpu, Cpu { core: cpu, socket: cpu / 4, numa: cpu / 4, cache: cpu / 4 });
        let topology = (0..8).map(one).collect();
        cpus::Policy { topology, reserved: [0].into(), ..cpus::Policy::default() }
    }

    fn check(
        policy: Policy,
        whole_pods: bool,
        free: &str,
        wants: &[&str],
        devices: &[u32],
        expected: &str,
    ) {
        let containers: Vec<_> = wants
            .iter()
            .enumerate()
            .map(|(i, cpu)| {
                let all = json!({ "cpu": cpu, "memory": "1Mi" });
                json!({ "name": format!("c{i}"), "resources": { "requests": all, "limits": all } })
            })
            .collect();
        let pod = json!({ "metadata": { "uid": "u" }, "spec": { "containers": containers } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let settings = Settings { policy, whole_pods, nodes: [0, 1].into() };
        let machine = machine();
        let all: BTreeMap<String, Nodes> =
            devices.iter().enumerate().map(|(i, node)| (format!("d{i}"), [*node].into())).collect();
        let wishes = |_: &Container| match all.is_empty() {
            true => Vec::new(),
            false => vec![DeviceWish {
                resource: "r".to_owned(),
                count: 1,
                free: all.clone(),
                all: all.clone(),
            }],
        };
        let place = Place {
            settings: &settings,
            cpus: Some(&machine),
            free_cpus: cpus::topology::parse(free).unwrap(),
            memory: None,
            memory_grants: memory::Grants::new(),
            devices: &wishes,
        };
        let said = match super::place(&pod, place) {
            Ok(near) => {
                let one = |(name, nodes): (&String, &Nodes)| {
                    let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
                    format!("{name}={}", nodes.join(","))
                };
                near.iter().map(one).collect::<Vec<_>>().join(" ")
            }
            Err(refusal) => refusal.reason,
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn containers_get_their_things_from_one_place() {
        let refused = "TopologyAffinityError";
        check(Policy::None, false, "1-7", &["4"], &[1], "");
        check(Policy::SingleNumaNode, false, "1-7", &["3"], &[], "c0=0");
        check(Policy::SingleNumaNode, false, "1-7", &["4"], &[], "c0=1");
        check(Policy::SingleNumaNode, false, "1-7", &["2"], &[1], "c0=1");
        check(Policy::SingleNumaNode, false, "1-7", &["4"], &[0], refused);
        check(Policy::BestEffort, false, "1-7", &["4"], &[0], "c0=0");
        // The second gets what the first left.
        check(Policy::SingleNumaNode, false, "1-7", &["3", "3"], &[], "c0=0 c1=1");
        check(Policy::SingleNumaNode, true, "1-7", &["3", "3"], &[], refused);
        check(Policy::SingleNumaNode, true, "1-7", &["2", "1"], &[], "c0=0 c1=0");
        check(Policy::Restricted, false, "1-7", &["6"], &[], "c0=0,1");
        check(Policy::Restricted, false, "3-4", &["2"], &[], refused);
    }
}
