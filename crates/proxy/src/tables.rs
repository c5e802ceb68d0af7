//! What the kernel's tables should hold: a pure function of services and their endpoints.
use netlink::nftables::AddressFamily;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One port of a service.
#[derive(Debug, Clone, Default)]
pub struct ServicePort {
    pub protocol: u8,
    pub port: u16,
    pub cluster_ips: Vec<IpAddr>,
    /// `externalIPs`, and those of a load balancer's ingress.
    pub external_ips: Vec<IpAddr>,
    pub node_port: Option<u16>,
    /// `sessionAffinity: ClientIP`, and for how many seconds.
    pub affinity: Option<u32>,
    pub internal_local: bool,
    pub external_local: bool,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone)]
pub struct Endpoint {
    pub address: IpAddr,
    pub port: u16,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    /// On this node.
    pub local: bool,
}

/// Where clients connect to; an unspecified address is every address of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chain {
    pub policy: Policy,
    pub endpoints: u32,
    pub affinity: Option<u32>,
    pub node_port: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// There are no endpoints.
    Reject,
    /// There are, on other nodes.
    Drop,
}

pub type Target = (IpAddr, u16);

/// Endpoints of this node have numbers from here on.
pub const LOCAL: u32 = 1 << 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables {
    pub services: BTreeMap<Frontend, Chain>,
    pub endpoints: BTreeMap<(Frontend, u32), Target>,
    /// Endpoints to which a client that was there before may come back.
    pub sticky: BTreeSet<(Frontend, Target)>,
    pub refused: BTreeMap<Frontend, Refusal>,
    /// Endpoints that may meet themselves.
    pub hairpin: BTreeSet<IpAddr>,
}

/// The tables of one address family.
pub fn desired(services: &[ServicePort], family: AddressFamily) -> Tables {
    let mut tables = Tables::default();
    let of_family = |address: &&IpAddr| AddressFamily::of(**address) == family;
    for service in services {
        let all = usable(service, family, |_| true);
        let local = usable(service, family, |endpoint| endpoint.local);
        let front = |address: IpAddr, port| Frontend { address, protocol: service.protocol, port };
        let (inside, lost) =
            if service.internal_local { (&local, Refusal::Drop) } else { (&all, Refusal::Reject) };
        let lost = if all.is_empty() { Refusal::Reject } else { lost };
        for address in service.cluster_ips.iter().filter(of_family) {
            let frontend = front(*address, service.port);
            tables.add(service, frontend, Policy::Internal, inside, &[], lost);
        }
        // Who asks from outside while the policy is local finds this node's endpoints only.
        let (policy, near): (Policy, &[Target]) = match service.external_local {
            true => (Policy::ExternalLocal { local: local.len() as u32 }, &local),
            false => (Policy::External, &[]),
        };
        let any: IpAddr = match family {
            AddressFamily::Ipv4 => Ipv4Addr::UNSPECIFIED.into(),
            AddressFamily::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let external = service.external_ips.iter().filter(of_family);
        let external = external.map(|address| front(*address, service.port));
        // A service has node ports in the families of its cluster IPs.
        let has_family = service.cluster_ips.iter().any(|address| of_family(&address));
        let node_port = service.node_port.filter(|_| has_family).map(|port| front(any, port));
        for frontend in external.chain(node_port) {
            tables.add(service, frontend, policy, &all, near, Refusal::Reject);
        }
    }
    tables
}

impl Tables {
    fn add(
        &mut self,
        service: &ServicePort,
        frontend: Frontend,
        policy: Policy,
        all: &[Target],
        local: &[Target],
        lost: Refusal,
    ) {
        // Two services may claim one external address: the first has it, whole.
        if self.services.contains_key(&frontend) || self.refused.contains_key(&frontend) {
            return;
        }
        if all.is_empty() {
            self.refused.insert(frontend, lost);
            return;
        }
        let (endpoints, node_port) = (all.len() as u32, frontend.is_node_port());
        let chain = Chain { policy, endpoints, affinity: service.affinity, node_port };
        self.services.insert(frontend, chain);
        for (list, first) in [(all, 0), (local, LOCAL)] {
            let numbered = (first..).zip(list);
            self.endpoints.extend(numbered.map(|(number, target)| ((frontend, number), *target)));
        }
        self.hairpin.extend(all.iter().map(|(address, _)| *address));
        if service.affinity.is_some() {
            self.sticky.extend(all.iter().map(|target| (frontend, *target)));
        }
    }
}

/// Those that are ready; if none is, those that still serve while they end.
fn usable(
    service: &ServicePort,
    family: AddressFamily,
    filter: impl Fn(&Endpoint) -> bool,
) -> Vec<Target> {
    let of_family = |one: &&Endpoint| AddressFamily::of(one.address) == family && filter(one);
    let targets = |usable: fn(&Endpoint) -> bool| -> BTreeSet<Target> {
        let endpoints = service.endpoints.iter().filter(of_family).filter(|one| usable(one));
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
                Endpoint { address, port: 8080, ready, serving, terminating, local }
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
        let tables = desired(&[service], AddressFamily::Ipv4);
        let mut text = String::new();
        for (Frontend { address, port, .. }, chain) in &tables.services {
            text += &format!("{address}:{port} {}\n", chain.name());
        }
        for ((Frontend { address, port, .. }, number), (to, at)) in &tables.endpoints {
            text += &format!("{address}:{port} #{number} -> {to}:{at}\n");
        }
        for (Frontend { address, port, .. }, refusal) in &tables.refused {
            text += &format!("{address}:{port} {refusal:?}\n");
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn a_service_leads_to_what_is_ready() {
        check(
            service("10.1.0.2 10.1.0.3/unready 10.1.0.4/ending fd01::2 10.1.0.5"),
            expect![[r#"
                10.0.0.1:80 internal-2
                10.0.0.1:80 #0 -> 10.1.0.2:8080
                10.0.0.1:80 #1 -> 10.1.0.5:8080
            "#]],
        );
    }

    #[test]
    fn what_is_ending_serves_when_nothing_else_does() {
        check(
            service("10.1.0.3/unready 10.1.0.4/ending"),
            expect![[r#"
                10.0.0.1:80 internal-1
                10.0.0.1:80 #0 -> 10.1.0.4:8080
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
                0.0.0.0:30080 local-1-of-2-node-sticky-60
                10.0.0.1:80 internal-2-sticky-60
                192.0.2.9:80 local-1-of-2-sticky-60
                0.0.0.0:30080 #0 -> 10.1.0.2:8080
                0.0.0.0:30080 #1 -> 10.1.0.3:8080
                0.0.0.0:30080 #65536 -> 10.1.0.3:8080
                10.0.0.1:80 #0 -> 10.1.0.2:8080
                10.0.0.1:80 #1 -> 10.1.0.3:8080
                192.0.2.9:80 #0 -> 10.1.0.2:8080
                192.0.2.9:80 #1 -> 10.1.0.3:8080
                192.0.2.9:80 #65536 -> 10.1.0.3:8080
            "#]],
        );
    }
}
