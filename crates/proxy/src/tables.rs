//! What the kernel's tables should hold: a pure function of services and their endpoints.
use netlink::nftables::AddressFamily;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// An address and the length of its prefix.
pub type Network = (IpAddr, u8);

/// One port of a service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServicePort {
    pub protocol: u8,
    pub port: u16,
    pub cluster_ips: Vec<IpAddr>,
    pub external_ips: Vec<IpAddr>,
    /// Those of a load balancer's ingress that clients connect to as they are.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Who may use a load balancer's addresses; empty: everybody.
    pub source_ranges: Vec<Network>,
    pub node_port: Option<u16>,
    /// `sessionAffinity: ClientIP`, and for how many seconds.
    pub affinity: Option<u32>,
    pub internal_local: bool,
    pub external_local: bool,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    pub address: IpAddr,
    pub port: u16,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    /// On this node.
    pub local: bool,
    /// Whether it is meant for this node and for this node's zone; `None`: nobody says.
    pub for_node: Option<bool>,
    pub for_zone: Option<bool>,
}

/// Where clients connect to; an unspecified address is every address of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    pub address: IpAddr,
    pub protocol: u8,
    pub port: u16,
}

impl Frontend {
    pub fn is_node_port(&self) -> bool {
        self.address.is_unspecified()
    }
}

/// Who may go where, and whose source address is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// To any of the endpoints; who is no pod is masqueraded.
    Internal,
    /// To any of the endpoints, masqueraded: the answer must come back by this node.
    External,
    /// From outside to so many endpoints of this node, with the source kept; from pods and from
    /// this node to any.
    ExternalLocal { local: u32 },
}

/// What to do with a connection. Frontends with the same answer share a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chain {
    pub policy: Policy,
    pub endpoints: u32,
    pub affinity: Option<u32>,
    pub node_port: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// There are no endpoints.
    Reject,
    /// There are, on other nodes.
    Drop,
}

pub type Target = (IpAddr, u16);

/// Endpoints of this node have numbers from here on.
pub const LOCAL: u32 = 1 << 16;

/// What one frontend leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lead {
    pub to: Result<Chain, Refusal>,
    pub any: Arc<[Target]>,
    /// Those of this node, for whoever may not go elsewhere.
    pub near: Arc<[Target]>,
    /// Who may come; empty: everybody.
    pub allowed: Vec<Network>,
}

impl Lead {
    /// Each endpoint with its number.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, Target)> {
        let numbers = |first: u32, list: &Arc<[Target]>| (first..).zip(list.to_vec());
        numbers(0, &self.any).chain(numbers(LOCAL, &self.near))
    }

    /// Endpoints to which a client that was there before may come back.
    pub fn sticky(&self) -> &[Target] {
        match &self.to {
            Ok(chain) if chain.affinity.is_some() => &self.any,
            _ => &[],
        }
    }
}

/// What the frontends of a service's ports lead to, in one address family.
pub fn leads(ports: &[ServicePort], family: AddressFamily) -> BTreeMap<Frontend, Lead> {
    let mut leads = BTreeMap::new();
    ports.iter().for_each(|port| add(&mut leads, port, family));
    leads
}

fn add(leads: &mut BTreeMap<Frontend, Lead>, port: &ServicePort, family: AddressFamily) {
    let of_family = |address: &&IpAddr| AddressFamily::of(**address) == family;
    let (all, local) = (cluster_wide(port, family), usable(port, family, |one| one.local));
    let (all, local): (Arc<[Target]>, Arc<[Target]>) = (all.into(), local.into());
    let front =
        |address: IpAddr, number| Frontend { address, protocol: port.protocol, port: number };
    let mut lead =
        |frontend: Frontend, policy, any: &Arc<[Target]>, near: &[Target], lost, allowed| {
            let (endpoints, node_port) = (any.len() as u32, frontend.is_node_port());
            let to = match any.is_empty() {
                true => Err(lost),
                false => Ok(Chain { policy, endpoints, affinity: port.affinity, node_port }),
            };
            let near = if any.is_empty() { Arc::default() } else { near.into() };
            // Two ports may claim one external address: the first has it, whole.
            leads.entry(frontend).or_insert(Lead { to, any: any.clone(), near, allowed });
        };
    let (inside, lost) =
        if port.internal_local { (&local, Refusal::Drop) } else { (&all, Refusal::Reject) };
    let lost = if all.is_empty() { Refusal::Reject } else { lost };
    for address in port.cluster_ips.iter().filter(of_family) {
        let frontend = front(*address, port.port);
        lead(frontend, Policy::Internal, inside, &[], lost, Vec::new());
    }
    // Who asks from outside while the policy is local finds this node's endpoints only.
    let (policy, near): (Policy, &[Target]) = match port.external_local {
        true => (Policy::ExternalLocal { local: local.len() as u32 }, &local),
        false => (Policy::External, &[]),
    };
    let any: IpAddr = match family {
        AddressFamily::Ipv4 => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let external = port.external_ips.iter().filter(of_family);
    let external = external.map(|address| front(*address, port.port));
    // A service has node ports in the families of its cluster IPs.
    let has_family = port.cluster_ips.iter().any(|address| of_family(&address));
    let node_port = port.node_port.filter(|_| has_family).map(|port| front(any, port));
    for frontend in external.chain(node_port) {
        lead(frontend, policy, &all, near, Refusal::Reject, Vec::new());
    }
    for address in port.load_balancer_ips.iter().filter(of_family) {
        // Ranges of the other family allow nobody of this one.
        let allowed = port.source_ranges.clone();
        lead(front(*address, port.port), policy, &all, near, Refusal::Reject, allowed);
    }
}

/// Where connections may go that may go anywhere: if every endpoint says for whom it is meant, to
/// those that are meant for us (`pkg/proxy/topology.go`).
fn cluster_wide(port: &ServicePort, family: AddressFamily) -> Vec<Target> {
    let of_family = |one: &&Endpoint| AddressFamily::of(one.address) == family;
    let ready = || port.endpoints.iter().filter(of_family).filter(|one| one.ready);
    for hint in [|one: &Endpoint| one.for_node, |one: &Endpoint| one.for_zone] {
        let all_say = ready().all(|one| hint(one).is_some());
        if all_say && ready().any(|one| hint(one) == Some(true)) {
            return usable(port, family, |one| one.ready && hint(one) == Some(true));
        }
    }
    usable(port, family, |_| true)
}

/// Those that are ready; if none is, those that still serve while they end.
fn usable(
    port: &ServicePort,
    family: AddressFamily,
    filter: impl Fn(&Endpoint) -> bool,
) -> Vec<Target> {
    let of_family = |one: &&Endpoint| AddressFamily::of(one.address) == family && filter(one);
    let targets = |usable: fn(&Endpoint) -> bool| -> BTreeSet<Target> {
        let endpoints = port.endpoints.iter().filter(of_family).filter(|one| usable(one));
        endpoints.map(|endpoint| (endpoint.address, endpoint.port)).collect()
    };
    let mut found = targets(|endpoint| endpoint.ready);
    if found.is_empty() {
        found = targets(|endpoint| endpoint.serving && endpoint.terminating);
    }
    found.into_iter().take(LOCAL as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn endpoints(text: &str) -> Vec<Endpoint> {
        text.split_whitespace()
            .map(|word| {
                let mut parts = word.split('/');
                let address = parts.next().unwrap().parse().unwrap();
                let words: Vec<_> = parts.collect();
                let has = |word| words.contains(&word);
                let (terminating, local) = (has("ending"), has("local"));
                let ready = !terminating && !has("unready");
                let serving = !has("unready");
                let hint = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
                let for_node = hint("node=").map(|node| node == "here");
                let for_zone = hint("zone=").map(|zone| zone == "here");
                Endpoint {
                    address,
                    port: 8080,
                    ready,
                    serving,
                    terminating,
                    local,
                    for_node,
                    for_zone,
                }
            })
            .collect()
    }

    fn service(endpoints_are: &str) -> ServicePort {
        ServicePort {
            protocol: 6,
            port: 80,
            cluster_ips: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            endpoints: endpoints(endpoints_are),
            ..ServicePort::default()
        }
    }

    fn check(service: ServicePort, expected: Expect) {
        let leads = leads(&[service], AddressFamily::Ipv4);
        let mut text = String::new();
        for (Frontend { address, port, .. }, lead) in &leads {
            let to = lead.to.map_or_else(|refusal| format!("{refusal:?}"), |chain| chain.name());
            text += &format!("{address}:{port} {to}");
            for (number, (to, at)) in lead.numbered() {
                text += &format!(" #{number}={to}:{at}");
            }
            if !lead.allowed.is_empty() {
                text += &format!(" from {:?}", lead.allowed);
            }
            text += "\n";
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn a_service_leads_to_what_is_ready() {
        check(
            service("10.1.0.2 10.1.0.3/unready 10.1.0.4/ending fd01::2 10.1.0.5"),
            expect![[r#"
                10.0.0.1:80 internal-2 #0=10.1.0.2:8080 #1=10.1.0.5:8080
            "#]],
        );
    }

    #[test]
    fn what_is_ending_serves_when_nothing_else_does() {
        check(
            service("10.1.0.3/unready 10.1.0.4/ending"),
            expect![[r#"
                10.0.0.1:80 internal-1 #0=10.1.0.4:8080
            "#]],
        );
    }

    #[test]
    fn without_endpoints_it_is_refused() {
        let node_port = Some(30080);
        check(
            ServicePort { node_port, ..service("10.1.0.3/unready") },
            expect![[r#"
                0.0.0.0:30080 Reject
                10.0.0.1:80 Reject
            "#]],
        );
        let internal_local = true;
        check(
            ServicePort { internal_local, ..service("10.1.0.3") },
            expect![[r#"
                10.0.0.1:80 Drop
            "#]],
        );
    }

    #[test]
    fn local_policies_keep_to_the_node() {
        let service = ServicePort {
            node_port: Some(30080),
            external_ips: vec!["192.0.2.9".parse().unwrap()],
            external_local: true,
            affinity: Some(60),
            ..service("10.1.0.2 10.1.0.3/local")
        };
        check(
            service,
            expect![[r#"
                0.0.0.0:30080 local-1-of-2-node-sticky-60 #0=10.1.0.2:8080 #1=10.1.0.3:8080 #65536=10.1.0.3:8080
                10.0.0.1:80 internal-2-sticky-60 #0=10.1.0.2:8080 #1=10.1.0.3:8080
                192.0.2.9:80 local-1-of-2-sticky-60 #0=10.1.0.2:8080 #1=10.1.0.3:8080 #65536=10.1.0.3:8080
            "#]],
        );
    }

    #[test]
    fn hints_keep_connections_near_if_all_endpoints_have_them() {
        let zones = "10.1.0.2/zone=here 10.1.0.3/zone=there";
        check(
            service(zones),
            expect![[r#"
                10.0.0.1:80 internal-1 #0=10.1.0.2:8080
            "#]],
        );
        check(
            service("10.1.0.2/zone=here/node=there 10.1.0.3/zone=there/node=here"),
            expect![[r#"
                10.0.0.1:80 internal-1 #0=10.1.0.3:8080
            "#]],
        );
        for ignored in ["10.1.0.2/zone=here 10.1.0.3", "10.1.0.2/zone=there 10.1.0.3/zone=there"] {
            check(
                service(ignored),
                expect![[r#"
                    10.0.0.1:80 internal-2 #0=10.1.0.2:8080 #1=10.1.0.3:8080
                "#]],
            );
        }
        check(
            service("10.1.0.2/zone=here/unready 10.1.0.3/ending/zone=there"),
            expect![[r#"
                10.0.0.1:80 internal-1 #0=10.1.0.3:8080
            "#]],
        );
    }

    #[test]
    fn a_load_balancer_may_be_for_some_only() {
        check(
            ServicePort {
                load_balancer_ips: vec!["192.0.2.9".parse().unwrap()],
                source_ranges: vec![("198.51.100.0".parse().unwrap(), 24)],
                ..service("10.1.0.2")
            },
            expect![[r#"
                10.0.0.1:80 internal-1 #0=10.1.0.2:8080
                192.0.2.9:80 external-1 #0=10.1.0.2:8080 from [(198.51.100.0, 24)]
            "#]],
        );
    }
}
