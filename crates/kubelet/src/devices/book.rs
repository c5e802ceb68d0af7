//! The book of devices: which there are, whose they are, and which a container gets. Nothing in here
//! asks anybody (`pkg/kubelet/cm/devicemanager`).
use crate::admission;
use crate::numa::DeviceWish;
use crate::numa::hints::Nodes;
use crate::pod::{self, Role};
use k8s_openapi::api::core::v1::{Container, Pod};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Devices by id, and whether they are well, if that is known.
pub type Health = Vec<(String, Option<bool>)>;

#[derive(Debug, Clone, Default)]
pub struct Book {
    pub resources: BTreeMap<String, Resource>,
    pub grants: Vec<Grant>,
}

/// The devices of one plugin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resource {
    pub devices: BTreeMap<String, Device>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Device {
    pub is_healthy: bool,
    /// The NUMA nodes that it is near.
    pub numa: Vec<i64>,
}

/// Devices that a container has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    pub pod: String,
    pub container: String,
    pub resource: String,
    pub devices: BTreeSet<String>,
    /// What the container needs to use them, as the plugin said.
    pub needs: Needs,
}

/// What a container needs to use its devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    pub envs: BTreeMap<String, String>,
    /// On the host, in the container, whether read-only.
    pub mounts: Vec<(String, String, bool)>,
    /// On the host, in the container, with what permissions.
    pub devices: Vec<(String, String, String)>,
    pub annotations: BTreeMap<String, String>,
    pub cdi: Vec<String>,
}

/// Devices that a container is to get.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    pub container: String,
    pub resource: String,
    /// Those that it may get, and those among them that it must.
    pub available: BTreeSet<String>,
    pub must: BTreeSet<String>,
    pub count: usize,
}

impl Book {
    /// How many devices there are and how many are well, by resource.
    pub fn amounts(&self) -> BTreeMap<String, (i64, i64)> {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let one = |resource: &Resource| {
            let healthy = resource.devices.values().filter(|device| device.is_healthy);
            (count(resource.devices.len()), count(healthy.count()))
        };
        self.resources.iter().map(|(name, resource)| (name.clone(), one(resource))).collect()
    }

    /// Whether a resource is devices, now or when the book was last written.
    fn knows(&self, resource: &str) -> bool {
        let granted = || self.grants.iter().any(|grant| grant.resource == resource);
        self.resources.contains_key(resource) || granted()
    }

    pub fn of_container(&self, pod: &str, container: &str) -> Vec<&Grant> {
        let own = |grant: &&Grant| grant.pod == pod && grant.container == container;
        self.grants.iter().filter(own).collect()
    }

    /// How the devices are that a container has: of each resource, by id, whether they are well;
    /// nothing is known of those that no plugin lists.
    pub fn health(&self, pod: &str, container: &str) -> Vec<(String, Health)> {
        let one = |grant: &Grant| {
            let known = self.resources.get(&grant.resource).map(|resource| &resource.devices);
            let well = |id: &String| known.and_then(|all| Some(all.get(id)?.is_healthy));
            let devices = grant.devices.iter().map(|id| (id.clone(), well(id))).collect();
            (grant.resource.clone(), devices)
        };
        self.of_container(pod, container).into_iter().map(one).collect()
    }

    /// What a container of a pod still has to get; `reusable` has devices of the init containers
    /// before it, which have ended when it begins.
    pub fn wishes(
        &self,
        pod: &Pod,
        container: &Container,
        reusable: &BTreeMap<String, BTreeSet<String>>,
    ) -> Result<Vec<Wish>, String> {
        let limits = container.resources.as_ref().and_then(|all| all.limits.as_ref());
        let mut wishes = Vec::new();
        for (resource, amount) in admission::amounts(limits) {
            let count = usize::try_from(amount).unwrap_or(0);
            if count == 0 || !self.knows(&resource) {
                continue;
            }
            let has = self.of_container(pod::uid(pod), &container.name);
            if has.iter().any(|grant| grant.resource == resource) {
                continue;
            }
            let known = self.resources.get(&resource).map(|one| &one.devices);
            let healthy: BTreeSet<String> = known
                .into_iter()
                .flatten()
                .filter(|(_, device)| device.is_healthy)
                .map(|(id, _)| id.clone())
                .collect();
            if healthy.is_empty() {
                return Err(format!(
                    "no healthy devices present; cannot allocate unhealthy devices {resource}"
                ));
            }
            let granted = self.grants.iter().filter(|grant| grant.resource == resource);
            let taken: BTreeSet<&String> = granted.flat_map(|grant| &grant.devices).collect();
            let again = reusable.get(&resource).cloned().unwrap_or_default();
            let again: BTreeSet<String> = again.intersection(&healthy).cloned().collect();
            let mut available: BTreeSet<String> =
                healthy.into_iter().filter(|id| !taken.contains(id)).collect();
            available.extend(again.iter().cloned());
            if available.len() < count {
                return Err(format!(
                    "requested number of devices unavailable for {resource}. Requested: {count}, Available: {}",
                    available.len()
                ));
            }
            let must = again.into_iter().take(count).collect();
            wishes.push(Wish {
                container: container.name.clone(),
                resource,
                available,
                must,
                count,
            });
        }
        Ok(wishes)
    }

    /// The same with the nodes that devices are near, as far as there are devices.
    pub fn wishes_by_node(&self, pod: &Pod, container: &Container) -> Vec<DeviceWish> {
        let wishes = self.wishes(pod, container, &BTreeMap::new()).unwrap_or_default();
        let one = |wish: Wish| {
            let known = self.resources.get(&wish.resource).cloned().unwrap_or_default();
            let near = |device: &Device| {
                device.numa.iter().filter_map(|node| u32::try_from(*node).ok()).collect()
            };
            let all: BTreeMap<String, Nodes> =
                known.devices.iter().map(|(id, device)| (id.clone(), near(device))).collect();
            let free = all.iter().filter(|(id, _)| wish.available.contains(*id));
            DeviceWish {
                free: free.map(|(id, nodes)| (id.clone(), nodes.clone())).collect(),
                all,
                resource: wish.resource,
                count: wish.count,
            }
        };
        wishes.into_iter().map(one).collect()
    }

    /// Keeps of what may be chosen what is near these nodes, if that is enough.
    pub fn bring_near(&self, wish: &mut Wish, near: &Nodes) {
        let Some(known) = self.resources.get(&wish.resource) else { return };
        let is_near = |id: &String| {
            let nodes = known.devices.get(id).map(|device| device.numa.as_slice());
            let nodes = nodes.unwrap_or_default();
            let on = |node: &i64| u32::try_from(*node).is_ok_and(|node| near.contains(&node));
            nodes.is_empty() || nodes.iter().any(on) || wish.must.contains(id)
        };
        let close: BTreeSet<String> =
            wish.available.iter().filter(|id| is_near(id)).cloned().collect();
        if close.len() >= wish.count {
            wish.available = close;
        }
    }

    /// The pods that are still here keep what they have.
    pub fn keep(&mut self, is_here: impl Fn(&str) -> bool) -> bool {
        let before = self.grants.len();
        self.grants.retain(|grant| is_here(&grant.pod));
        before != self.grants.len()
    }
}

impl Wish {
    /// What is taken if the plugin prefers nothing else.
    pub fn choose(&self, preferred: &[String]) -> BTreeSet<String> {
        let wanted = preferred.iter().filter(|id| self.available.contains(*id));
        let order = self.must.iter().chain(wanted).chain(&self.available);
        let mut chosen = BTreeSet::new();
        for id in order {
            if chosen.len() == self.count {
                break;
            }
            chosen.insert(id.clone());
        }
        chosen
    }
}

/// Whether a container has ended before others of its pod begin: they may have its devices.
pub fn is_over_before(role: Role) -> bool {
    role == Role::Init
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn book(devices: &[(&str, bool)]) -> Book {
        let one = |(id, is_healthy): &(&str, bool)| {
            (String::from(*id), Device { is_healthy: *is_healthy, numa: Vec::new() })
        };
        let resource = Resource { devices: devices.iter().map(one).collect() };
        Book { resources: [("a.b/c".to_owned(), resource)].into(), grants: Vec::new() }
    }

    fn pod(count: &str) -> Pod {
        let resources = json!({ "limits": { "a.b/c": count, "cpu": "1" } });
        serde_json::from_value(json!({ "metadata": { "uid": "u" }, "spec": { "containers": [
            { "name": "c", "resources": resources } ] } }))
        .unwrap()
    }

    fn wish(book: &Book, pod: &Pod) -> Result<Vec<Wish>, String> {
        book.wishes(pod, &pod::spec(pod).containers[0], &BTreeMap::new())
    }

    #[test]
    fn what_is_well_and_free_is_chosen() {
        let mut book = book(&[("d0", true), ("d1", false), ("d2", true), ("d3", true)]);
        assert_eq!(book.amounts()["a.b/c"], (4, 3));
        let wishes = wish(&book, &pod("2")).unwrap();
        assert_eq!(wishes.len(), 1);
        let ids = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(ids(wishes[0].choose(&[])), "d0 d2");
        assert_eq!(ids(wishes[0].choose(&["d3".to_owned(), "x".to_owned()])), "d0 d3");
        book.grants.push(Grant {
            pod: "other".into(),
            resource: "a.b/c".into(),
            devices: ["d0".to_owned()].into(),
            ..Grant::default()
        });
        assert_eq!(ids(wish(&book, &pod("1")).unwrap()[0].choose(&[])), "d2");
        assert_eq!(
            wish(&book, &pod("3")).unwrap_err(),
            "requested number of devices unavailable for a.b/c. Requested: 3, Available: 2"
        );
        assert!(book.keep(|pod| pod != "other"));
        assert_eq!(ids(wish(&book, &pod("1")).unwrap()[0].choose(&[])), "d0");
    }

    #[test]
    fn nothing_well_is_refused_and_the_unknown_is_nobodys() {
        assert_eq!(
            wish(&book(&[("d0", false)]), &pod("1")).unwrap_err(),
            "no healthy devices present; cannot allocate unhealthy devices a.b/c"
        );
        assert_eq!(wish(&Book::default(), &pod("1")), Ok(Vec::new()));
    }
}
