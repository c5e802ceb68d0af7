//! Services that rules lead to, and where their pods are.
use crate::facts::{PortFacts, PortName, ServiceFacts, SliceFacts};
use crate::table::{Destination, Protocol};
use api::names::NamespacedName;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

/// A port of a service that connections are made to, if it has that one.
pub fn destination(
    key: &NamespacedName,
    service: &ServiceFacts,
    port: &PortName,
) -> Option<Arc<Destination>> {
    let is_it = |known: &&PortFacts| match port {
        PortName::Number(number) => known.number == *number,
        PortName::Name(name) => known.name == *name,
    };
    let mut by_tcp = service.ports.iter().filter(|known| !known.is_udp);
    let found = by_tcp.find(is_it).filter(|_| !service.is_external)?;
    Some(Arc::new(Destination {
        service: key.clone(),
        port: found.number,
        protocol: protocol(&found.app_protocol),
        tls: None,
    }))
}

/// A port of a service that datagrams are sent to.
pub fn datagrams(
    key: &NamespacedName,
    service: &ServiceFacts,
    number: u16,
) -> Option<Arc<Destination>> {
    let mut by_udp = service.ports.iter().filter(|known| known.is_udp);
    by_udp.find(|known| known.number == number).filter(|_| !service.is_external)?;
    let protocol = Protocol::Datagrams;
    Some(Arc::new(Destination { service: key.clone(), port: number, protocol, tls: None }))
}

/// What pods speak behind a port (`appProtocol`; Kubernetes' own names are in KEP-3726).
fn protocol(app_protocol: &str) -> Protocol {
    match app_protocol {
        "kubernetes.io/h2c" | "h2c" | "grpc" => Protocol::Http2,
        _ => Protocol::Http1,
    }
}

/// The pods behind a port of a service: those that are ready; if none is, those that still answer on their
/// way out, as upstream's proxies have it.
pub fn addresses<'s>(
    service: &ServiceFacts,
    (port, is_udp): (u16, bool),
    slices: impl Iterator<Item = &'s Arc<SliceFacts>>,
) -> Vec<SocketAddr> {
    let is_it = |known: &&PortFacts| known.number == port && known.is_udp == is_udp;
    let Some(port) = service.ports.iter().find(is_it) else {
        return Vec::new();
    };
    let (mut ready, mut serving) = (BTreeSet::new(), BTreeSet::new());
    for slice in slices {
        let numbers = slice.ports.iter().filter(|(name, _)| *name == port.name);
        for number in numbers.map(|(_, number)| *number) {
            for endpoint in &slice.endpoints {
                let set = match (endpoint.ready, endpoint.serving) {
                    (true, _) => &mut ready,
                    (false, true) => &mut serving,
                    (false, false) => continue,
                };
                // The others of one endpoint lead to the same pod.
                let first = endpoint.addresses.first();
                set.extend(first.map(|address| SocketAddr::new(*address, number)));
            }
        }
    }
    let chosen = if ready.is_empty() { serving } else { ready };
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::EndpointFacts;

    fn slice(name: &str, number: u16, endpoints: &[(&str, bool, bool)]) -> Arc<SliceFacts> {
        let endpoint = |&(address, ready, serving): &(&str, bool, bool)| EndpointFacts {
            addresses: vec![address.parse().expect("an address")],
            ready,
            serving,
        };
        Arc::new(SliceFacts {
            service: "web".to_owned(),
            ports: vec![(name.to_owned(), number)],
            endpoints: endpoints.iter().map(endpoint).collect(),
        })
    }

    #[test]
    fn who_is_ready_answers_and_else_who_still_can() {
        let service = ServiceFacts {
            ports: vec![PortFacts { name: "http".into(), number: 80, ..PortFacts::default() }],
            ..ServiceFacts::default()
        };
        let of = |slices: &[Arc<SliceFacts>]| {
            let found = addresses(&service, (80, false), slices.iter());
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let leaving = slice("http", 8080, &[("10.0.0.1", false, true), ("10.0.0.2", false, false)]);
        let there = slice("http", 8081, &[("10.0.0.3", true, true)]);
        let other = slice("metrics", 9090, &[("10.0.0.3", true, true)]);
        assert_eq!(of(std::slice::from_ref(&leaving)), "10.0.0.1:8080");
        assert_eq!(of(&[leaving, there.clone(), there, other.clone()]), "10.0.0.3:8081");
        assert_eq!(of(&[other]), "");
        assert_eq!(addresses(&service, (81, false), [].into_iter()), []);
    }

    #[test]
    fn one_number_may_be_two_ports() {
        let port = |name: &str, is_udp| PortFacts {
            name: name.into(),
            number: 53,
            is_udp,
            ..PortFacts::default()
        };
        let service = ServiceFacts {
            ports: vec![port("dns-tcp", false), port("dns", true)],
            ..ServiceFacts::default()
        };
        let slices = [
            slice("dns-tcp", 1053, &[("10.0.0.1", true, true)]),
            slice("dns", 2053, &[("10.0.0.1", true, true)]),
        ];
        let of = |is_udp| addresses(&service, (53, is_udp), slices.iter())[0].port();
        assert_eq!((of(false), of(true)), (1053, 2053));
        let key = NamespacedName::new("default", "dns");
        assert_eq!(datagrams(&key, &service, 53).map(|to| to.protocol), Some(Protocol::Datagrams));
        assert_eq!(datagrams(&key, &service, 54), None);
    }
}
