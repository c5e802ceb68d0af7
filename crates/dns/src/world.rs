//! What can be asked for, changed one service at a time.
use api::names::NamespacedName;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct World {
    /// `cluster.local`, in lower case.
    domain: String,
    /// By what is before `.svc` in a question: `web.default`.
    services: HashMap<String, Service>,
    namespaces: HashSet<String>,
    /// Whose an address is, by namespace and name; only where somebody wants to know.
    pods: HashMap<IpAddr, HashSet<NamespacedName>>,
    /// Whole names by address.
    reverse: HashMap<IpAddr, Vec<String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// Empty for a headless one.
    pub cluster_ips: Vec<IpAddr>,
    /// Of type ExternalName.
    pub external_name: Option<String>,
    pub ports: Vec<Port>,
    /// What a headless service's name stands for, and who can be asked for by hostname: those that
    /// are ready, or that are published although they are not.
    pub backends: Vec<Backend>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    /// `tcp`.
    pub protocol: String,
    pub number: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// The pod's hostname, if its subdomain is the service; else made of its address.
    pub hostname: Option<String>,
    pub address: IpAddr,
    /// Its own, which may be others than the service's; shared with its neighbours.
    pub ports: Arc<[Port]>,
}

impl Backend {
    /// Its label below the service's name.
    pub fn label(&self) -> String {
        let made = || self.address.to_string().replace(['.', ':'], "-");
        self.hostname.clone().unwrap_or_else(made)
    }
}

impl World {
    pub fn new(domain: &str) -> World {
        let domain = domain.trim_matches('.').to_ascii_lowercase();
        World { domain, ..World::default() }
    }

    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// By `web.default`.
    pub fn service(&self, name_and_namespace: &str) -> Option<&Service> {
        self.services.get(name_and_namespace)
    }

    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }

    /// Whether a pod of the namespace has the address.
    pub fn has_pod(&self, namespace: &str, address: IpAddr) -> bool {
        let pods = self.pods.get(&address);
        pods.is_some_and(|pods| pods.iter().any(|pod| *pod.namespace == *namespace))
    }

    /// A pod had these addresses, and has those.
    pub fn set_pod(&mut self, key: &NamespacedName, old: &[IpAddr], new: &[IpAddr]) {
        for address in old {
            if let Some(pods) = self.pods.get_mut(address) {
                pods.remove(key);
                if pods.is_empty() {
                    self.pods.remove(address);
                }
            }
        }
        for address in new {
            self.pods.entry(*address).or_default().insert(key.clone());
        }
    }

    /// The names of an address.
    pub fn names(&self, address: IpAddr) -> Option<&[String]> {
        self.reverse.get(&address).map(Vec::as_slice)
    }

    pub fn set_namespace(&mut self, name: &str, is_there: bool) {
        match is_there {
            true => drop(self.namespaces.insert(name.to_owned())),
            false => drop(self.namespaces.remove(name)),
        }
    }

    /// What a service is now; `None`: it is gone.
    pub fn set_service(&mut self, namespace: &str, name: &str, service: Option<Service>) {
        let key = format!("{name}.{namespace}");
        let whole = format!("{key}.svc.{}", self.domain);
        let old = match service {
            Some(service) => {
                for (address, name) in reverse_of(&whole, &service) {
                    let names = self.reverse.entry(address).or_default();
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                let old = self.services.remove(&key);
                let new = self.services.entry(key).or_insert(service);
                let kept: HashSet<_> = reverse_of(&whole, new).collect();
                old.into_iter()
                    .flat_map(|old| reverse_of(&whole, &old).collect::<Vec<_>>())
                    .filter(|one| !kept.contains(one))
                    .collect::<Vec<_>>()
            }
            None => {
                let old = self.services.remove(&key);
                old.map(|old| reverse_of(&whole, &old).collect()).unwrap_or_default()
            }
        };
        for (address, name) in old {
            if let Some(names) = self.reverse.get_mut(&address) {
                names.retain(|other| *other != name);
                if names.is_empty() {
                    self.reverse.remove(&address);
                }
            }
        }
    }
}

/// An endpoint has a name of its own if its pod asked for one (CoreDNS's rule).
fn reverse_of(whole: &str, service: &Service) -> impl Iterator<Item = (IpAddr, String)> {
    let own = service.cluster_ips.iter().map(|address| (*address, whole.to_owned()));
    let backends = service.backends.iter().filter_map(move |backend| {
        let hostname = backend.hostname.as_ref()?;
        Some((backend.address, format!("{hostname}.{whole}")))
    });
    own.chain(backends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_their_services() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let service = |addresses: &[&str]| Service {
            cluster_ips: addresses.iter().map(|one| ip(one)).collect(),
            ..Service::default()
        };
        let mut world = World::new("Cluster.Local.");
        world.set_service("default", "web", Some(service(&["10.0.0.1", "10.0.0.2"])));
        world.set_service("default", "other", Some(service(&["10.0.0.2"])));
        assert_eq!(world.names(ip("10.0.0.1")).unwrap(), ["web.default.svc.cluster.local"]);
        assert_eq!(world.names(ip("10.0.0.2")).unwrap().len(), 2);
        world.set_service("default", "web", Some(service(&["10.0.0.3"])));
        assert_eq!(world.names(ip("10.0.0.1")), None);
        assert_eq!(world.names(ip("10.0.0.2")).unwrap(), ["other.default.svc.cluster.local"]);
        world.set_service("default", "web", None);
        assert_eq!(world.names(ip("10.0.0.3")), None);
        assert!(world.service("web.default").is_none());
    }
}
