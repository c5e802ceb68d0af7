//! A packet that a policy dropped: from whom, to whom, and whose policies they were.
use super::facts::{pod, policy};
use super::{Policy, Traffic};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use netlink::log::Logged;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where a packet came from and went to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    pub traffic: Traffic,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    /// Of the destination; 0 where the protocol has none.
    pub port: u16,
    /// The policy of the cluster that denied it; empty: those of the pod's namespace did.
    pub by: String,
}

impl Flow {
    /// `None`: it is no packet of a policy's.
    pub fn read(logged: &Logged) -> Option<Flow> {
        let traffic =
            Traffic::BOTH.into_iter().find(|one| logged.prefix.starts_with(one.name()))?;
        let packet = &logged.packet;
        let (source, destination, protocol, rest): (IpAddr, IpAddr, u8, usize) =
            match packet.first()? >> 4 {
                4 => {
                    let at = |from: usize| -> Option<Ipv4Addr> {
                        Some(<[u8; 4]>::try_from(packet.get(from..from + 4)?).ok()?.into())
                    };
                    let header = usize::from(packet[0] & 0xf) * 4;
                    (at(12)?.into(), at(16)?.into(), *packet.get(9)?, header)
                }
                6 => {
                    let at = |from: usize| -> Option<Ipv6Addr> {
                        Some(<[u8; 16]>::try_from(packet.get(from..from + 16)?).ok()?.into())
                    };
                    (at(8)?.into(), at(24)?.into(), *packet.get(6)?, 40)
                }
                _ => return None,
            };
        let has_ports = [6, 17, 132].contains(&protocol);
        let port = packet.get(rest + 2..rest + 4).filter(|_| has_ports);
        let port = port.map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let by = logged.prefix.strip_prefix(traffic.name())?;
        let by = by.strip_prefix(' ').unwrap_or_default().to_owned();
        Some(Flow { traffic, source, destination, protocol, port, by })
    }

    /// The pod that was to be protected, or kept in.
    fn isolated(&self) -> IpAddr {
        match self.traffic {
            Traffic::Ingress => self.destination,
            Traffic::Egress => self.source,
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A line about a packet: `ingress default/stranger -> default/web TCP 8080 dropped by default/web`.
pub fn dropped(flow: &Flow, pods: &[ApiPod], policies: &[NetworkPolicy]) -> String {
    let at = |address: IpAddr| pods.iter().find(|one| pod(one).pod.addresses.contains(&address));
    let name = |address: IpAddr| match at(address) {
        Some(pod) => named(&pod.metadata),
        None => address.to_string(),
    };
    let protocol = match flow.protocol {
        6 => format!("TCP {}", flow.port),
        17 => format!("UDP {}", flow.port),
        132 => format!("SCTP {}", flow.port),
        1 | 58 => "ICMP".to_owned(),
        other => format!("protocol {other}"),
    };
    let isolated = at(flow.isolated());
    let about = |one: &&NetworkPolicy| {
        let Some(isolated) = isolated else { return false };
        let Policy { pods, ingress, egress } = policy(one);
        let is_about = match flow.traffic {
            Traffic::Ingress => ingress.is_some(),
            Traffic::Egress => egress.is_some(),
        };
        is_about
            && one.metadata.namespace == isolated.metadata.namespace
            && pods.matches(&pod(isolated).pod.labels)
    };
    let by: Vec<String> = policies.iter().filter(about).map(|one| named(&one.metadata)).collect();
    let by = match (flow.by.as_str(), by.is_empty()) {
        ("", true) => "a policy that is gone".to_owned(),
        ("", false) => by.join(", "),
        (cluster, _) => cluster.to_owned(),
    };
    let (from, to) = (name(flow.source), name(flow.destination));
    format!("{} {from} -> {to} {protocol} dropped by {by}", flow.traffic)
}

fn named(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.namespace), text(&metadata.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn packet(version: u8) -> Vec<u8> {
        let mut bytes = match version {
            4 => vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 1, 0, 2, 10, 1, 0, 3],
            _ => {
                let mut bytes = vec![0x60, 0, 0, 0, 0, 20, 17, 64];
                bytes.extend("fd00::2".parse::<Ipv6Addr>().unwrap().octets());
                bytes.extend("fd00::3".parse::<Ipv6Addr>().unwrap().octets());
                bytes
            }
        };
        bytes.extend([0xc0, 0, 0x1f, 0x90]);
        bytes
    }

    #[test]
    fn a_packet_is_told_with_whose_it_is_and_by_which_policy() {
        let pod = |name: &str, ips: [&str; 2]| -> ApiPod {
            serde_json::from_value(json!({
                "metadata": { "name": name, "namespace": "x", "labels": { "app": name } },
                "status": { "podIPs": [{ "ip": ips[0] }, { "ip": ips[1] }] },
            }))
            .unwrap()
        };
        let policy = |name: &str, spec| -> NetworkPolicy {
            let metadata = json!({ "name": name, "namespace": "x" });
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
        };
        let pods = [pod("a", ["10.1.0.2", "fd00::2"]), pod("b", ["10.1.0.3", "fd00::3"])];
        let app = |name| json!({ "matchLabels": { "app": name } });
        let policies = [
            policy("all", json!({ "podSelector": {} })),
            policy("only-b", json!({ "podSelector": app("b") })),
            policy("quiet", json!({ "podSelector": app("a"), "policyTypes": ["Egress"] })),
        ];
        let told = |prefix: &str, version| {
            let logged = Logged { prefix: prefix.to_owned(), packet: packet(version) };
            Flow::read(&logged).map(|flow| dropped(&flow, &pods, &policies))
        };
        assert_eq!(
            told("ingress-1", 4).unwrap(),
            "ingress x/a -> x/b TCP 8080 dropped by x/all, x/only-b"
        );
        assert_eq!(told("egress-7", 6).unwrap(), "egress x/a -> x/b UDP 8080 dropped by x/quiet");
        assert_eq!(
            told("egress AdminNetworkPolicy/strict", 4).unwrap(),
            "egress x/a -> x/b TCP 8080 dropped by AdminNetworkPolicy/strict"
        );
        assert_eq!(told("other", 4), None);
        let flow = Flow::read(&Logged { prefix: "ingress-1".to_owned(), packet: packet(4) });
        assert_eq!(
            dropped(&flow.unwrap(), &[], &policies),
            "ingress 10.1.0.2 -> 10.1.0.3 TCP 8080 dropped by a policy that is gone"
        );
        for length in 0..packet(6).len() {
            for version in [4, 6] {
                let cut = packet(version).into_iter().take(length).collect();
                let _ = Flow::read(&Logged { prefix: "ingress-1".to_owned(), packet: cut });
            }
        }
    }
}
