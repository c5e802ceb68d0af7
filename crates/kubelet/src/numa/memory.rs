//! Memory of their own nodes for containers of guaranteed pods: the `Static` policy of upstream's
//! memory manager (`pkg/kubelet/cm/memorymanager`). It is a promise that the book is kept: the kernel
//! takes a container's pages from the nodes that it is told, and from no others.
use super::hints::{Hint, Nodes, hints};
use crate::admission;
use crate::container::resources;
use crate::pod::{self, Role};
use k8s_openapi::api::core::v1::{Container, Pod};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Bytes by resource: `memory`, `hugepages-2Mi`.
pub type Amounts = BTreeMap<String, u64>;

/// What pods can have, by node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    pub nodes: BTreeMap<u32, Amounts>,
}

impl Policy {
    /// The machine's memory less what is reserved on each node: `reservedMemory`.
    pub fn new(system: &Path, reserved: &BTreeMap<u32, Amounts>) -> Result<Policy, String> {
        let mut nodes = read(system);
        if reserved.is_empty() {
            return Err("the Static policy requires reservedMemory to be set".to_owned());
        }
        for (node, amounts) in reserved {
            let known = nodes.get_mut(node).ok_or_else(|| {
                format!("reservedMemory names NUMA node {node}, which is not there")
            })?;
            for (name, amount) in amounts {
                let there = known.get_mut(name).filter(|there| **there >= *amount);
                let there = there.ok_or_else(|| format!("NUMA node {node} has less {name}"))?;
                *there -= amount;
            }
        }
        Ok(Policy { nodes })
    }

    pub fn all(&self) -> Nodes {
        self.nodes.keys().copied().collect()
    }
}

/// As the kernel tells below `/sys/devices/system`.
fn read(system: &Path) -> BTreeMap<u32, Amounts> {
    let mut nodes = BTreeMap::new();
    for entry in fs::read_dir(system.join("node")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_prefix("node").and_then(|id| id.parse().ok()) else { continue };
        let text = fs::read_to_string(entry.path().join("meminfo")).unwrap_or_default();
        let line = text.lines().find(|line| line.contains("MemTotal:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().rev().nth(1)?.parse().ok());
        let mut amounts = Amounts::new();
        let mut huge = 0;
        for pages in fs::read_dir(entry.path().join("hugepages")).into_iter().flatten().flatten() {
            let name = pages.file_name().to_string_lossy().into_owned();
            let size = name.strip_prefix("hugepages-").and_then(|name| name.strip_suffix("kB"));
            let size = size.and_then(|size| size.parse::<u64>().ok()).unwrap_or(0) * 1024;
            let count = fs::read_to_string(pages.path().join("nr_hugepages")).unwrap_or_default();
            let bytes = size * count.trim().parse::<u64>().unwrap_or(0);
            let shown = match size {
                size if size >= 1 << 30 => format!("hugepages-{}Gi", size >> 30),
                size => format!("hugepages-{}Mi", size >> 20),
            };
            huge += bytes;
            amounts.insert(shown, bytes);
        }
        // What is in huge pages is nobody's memory otherwise.
        let memory = kilobytes.unwrap_or(0u64) * 1024;
        amounts.insert("memory".to_owned(), memory.saturating_sub(huge));
        nodes.insert(id, amounts);
    }
    nodes
}

/// A container's memory: of a resource, so many bytes of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    pub resource: String,
    pub node: u32,
    pub bytes: u64,
}

/// Who has what, by pod and container.
pub type Grants = BTreeMap<String, BTreeMap<String, Vec<Block>>>;

/// What a container wants for itself.
pub fn wanted(pod: &Pod, container: &Container) -> Amounts {
    if resources::qos(pod) != "Guaranteed" {
        return Amounts::new();
    }
    let requests = container.resources.as_ref().and_then(|all| all.requests.as_ref());
    let all = admission::amounts(requests).into_iter();
    let own = all.filter(|(name, _)| name == "memory" || name.starts_with("hugepages-"));
    own.filter_map(|(name, amount)| Some((name, u64::try_from(amount).ok()?))).collect()
}

fn free(policy: &Policy, grants: &Grants, resource: &str, node: u32) -> u64 {
    let there = policy.nodes.get(&node).and_then(|all| all.get(resource)).copied().unwrap_or(0);
    let blocks = grants.values().flat_map(BTreeMap::values).flatten();
    let taken = blocks.filter(|one| one.node == node && one.resource == resource);
    there.saturating_sub(taken.map(|one| one.bytes).sum())
}

/// Where each of them can come from.
pub fn hints_of(policy: &Policy, grants: &Grants, wanted: &Amounts) -> Vec<Option<Vec<Hint>>> {
    let one = |(resource, amount): (&String, &u64)| {
        let total = |nodes: &Nodes| {
            let on = |node: &u32| policy.nodes.get(node).and_then(|all| all.get(resource)).copied();
            nodes.iter().filter_map(on).sum()
        };
        let left =
            |nodes: &Nodes| nodes.iter().map(|node| free(policy, grants, resource, *node)).sum();
        Some(hints(&policy.all(), *amount, total, left))
    };
    wanted.iter().map(one).collect()
}

/// What a container gets of these nodes; of all if that is not enough.
pub fn grant(
    policy: &Policy,
    grants: &Grants,
    wanted: &Amounts,
    near: &Nodes,
) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    for (resource, amount) in wanted {
        let mut missing = *amount;
        let others = policy.nodes.keys().filter(|node| !near.contains(node));
        for node in near.iter().chain(others) {
            let bytes = free(policy, grants, resource, *node).min(missing);
            if bytes > 0 {
                blocks.push(Block { resource: resource.clone(), node: *node, bytes });
                missing -= bytes;
            }
        }
        if missing > 0 {
            return Err(format!("not enough {resource} available on NUMA nodes"));
        }
    }
    Ok(blocks)
}

/// The nodes that a container's pages come from, as the kernel reads it.
pub fn shown(blocks: &[Block]) -> String {
    let nodes: crate::cpus::topology::CpuSet = blocks.iter().map(|one| one.node).collect();
    crate::cpus::topology::shown(&nodes)
}

/// Whether others may have a container's memory when they begin.
pub fn is_over_before(role: Role) -> bool {
    role == Role::Init
}

/// `--reserved-memory 0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=1Gi`
pub fn parse(text: &str) -> Result<BTreeMap<u32, Amounts>, String> {
    let mut all = BTreeMap::new();
    for node in text.split(';').filter(|part| !part.is_empty()) {
        let (id, list) = node.split_once(':').ok_or("it must be NODE:RESOURCE=AMOUNT")?;
        let id = id.trim().parse::<u32>().map_err(|error| error.to_string())?;
        let amounts: &mut Amounts = all.entry(id).or_default();
        for one in list.split(',') {
            let (name, amount) = one.split_once('=').ok_or("it must be NODE:RESOURCE=AMOUNT")?;
            let amount =
                api::quantity::Quantity::parse(amount).map_err(|error| error.to_string())?;
            let bytes = u64::try_from(amount.value()).map_err(|error| error.to_string())?;
            amounts.insert(name.to_owned(), bytes);
        }
    }
    Ok(all)
}

/// What a pod's container has, of those that the pod has.
pub fn of<'a>(grants: &'a Grants, pod: &Pod, container: &str) -> Option<&'a Vec<Block>> {
    grants.get(pod::uid(pod))?.get(container)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy() -> Policy {
        let node = |bytes| Amounts::from([("memory".to_owned(), bytes)]);
        Policy { nodes: [(0, node(100)), (1, node(100))].into() }
    }

    fn check(grants: &mut Grants, name: &str, bytes: u64, near: &[u32], expected: &str) {
        let wanted = Amounts::from([("memory".to_owned(), bytes)]);
        let near = near.iter().copied().collect();
        let said = match grant(&policy(), grants, &wanted, &near) {
            Ok(blocks) => {
                let text: Vec<_> =
                    blocks.iter().map(|one| format!("{}={}", one.node, one.bytes)).collect();
                let text = format!("{} mems={}", text.join(" "), shown(&blocks));
                grants.entry(name.to_owned()).or_default().insert("c".to_owned(), blocks);
                text
            }
            Err(why) => why,
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn memory_is_taken_from_near_nodes_first() {
        let mut grants = Grants::new();
        check(&mut grants, "a", 60, &[1], "1=60 mems=1");
        check(&mut grants, "b", 60, &[0], "0=60 mems=0");
        check(&mut grants, "c", 50, &[1], "1=40 0=10 mems=0-1");
        check(&mut grants, "d", 50, &[0], "not enough memory available on NUMA nodes");
        grants.remove("a");
        check(&mut grants, "d", 50, &[1], "1=50 mems=1");
    }

    #[test]
    fn only_guaranteed_pods_have_memory_of_their_own() {
        let pod = |resources: serde_json::Value| -> Pod {
            let spec = json!({ "containers": [{ "name": "c", "resources": resources }] });
            serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
        };
        let of = |pod: &Pod| wanted(pod, &pod::spec(pod).containers[0]);
        let all = json!({ "cpu": "1", "memory": "1Ki", "hugepages-2Mi": "2Mi" });
        let sure = of(&pod(json!({ "requests": all, "limits": all })));
        assert_eq!(sure, parse("0:memory=1Ki,hugepages-2Mi=2Mi").unwrap()[&0]);
        assert_eq!(of(&pod(json!({ "requests": all }))), Amounts::new());
    }

    #[test]
    fn what_is_reserved_is_nobodys() {
        let system = Path::new("/sys/devices/system");
        let there = read(system);
        if let Some(memory) = there.get(&0).map(|all| all["memory"]) {
            let made = Policy::new(system, &parse("0:memory=1Mi").unwrap()).unwrap();
            assert_eq!(made.nodes[&0]["memory"], memory - (1 << 20));
        }
        assert!(Policy::new(system, &BTreeMap::new()).is_err());
        assert!(Policy::new(system, &parse("77:memory=1Mi").unwrap()).is_err());
        assert!(parse("x").is_err() && parse("0:memory").is_err());
    }
}
