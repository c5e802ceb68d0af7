//! What a name stands for: a pure function of a query and the world.
use crate::wire::{Data, Kind, Query, Record};
use crate::world::{Service, World};
use std::net::IpAddr;

/// CoreDNS's default for names of the cluster.
const SECONDS: u32 = 5;
/// Of this specification.
const VERSION: &str = "1.1.0";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    NoError = 0,
    NameError = 3,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub code: Code,
    pub records: Vec<Record>,
    /// Who says that there is nothing.
    pub authority: Option<Record>,
}

/// `None`: the name is not one of the cluster's.
pub fn answer(query: &Query, world: &World) -> Option<Answer> {
    let found = match query.name.strip_suffix(&world.domain) {
        Some("") => Some(Vec::new()),
        Some(below) => below_domain(below.strip_suffix('.')?, query, world),
        // Addresses that are not a service's are somebody else's to name.
        None => Some(reverse(&query.name, world)?),
    };
    let (code, names) = match found {
        Some(records) => (Code::NoError, records),
        None => (Code::NameError, Vec::new()),
    };
    let fits = |data: &Data| {
        let kind = match data {
            Data::Address(IpAddr::V4(_)) => Kind::A,
            Data::Address(IpAddr::V6(_)) => Kind::Aaaa,
            // An alias answers whatever is asked.
            Data::Cname(_) => return true,
            Data::Ptr(_) => Kind::Ptr,
            Data::Txt(_) => Kind::Txt,
            Data::Srv { .. } => Kind::Srv,
            Data::Soa { .. } => Kind::Soa,
        };
        kind == query.kind
    };
    let record = |data| Record { name: query.name.clone(), seconds: SECONDS, data };
    let records: Vec<Record> = names.into_iter().filter(fits).map(record).collect();
    let authority = records.is_empty().then(|| authority(world));
    Some(Answer { code, records, authority })
}

/// `None`: there is no such name. No records: there is one, and it has none.
fn below_domain(below: &str, query: &Query, world: &World) -> Option<Vec<Data>> {
    let labels: Vec<&str> = below.split('.').collect();
    match labels[..] {
        ["dns-version"] => Some(vec![Data::Txt(VERSION.to_owned())]),
        ["svc"] => Some(Vec::new()),
        [namespace, "svc"] => {
            world.services.keys().any(|(other, _)| other == namespace).then(Vec::new)
        }
        [name, namespace, "svc"] => {
            let service = find(world, namespace, name)?;
            match &service.external_name {
                Some(target) => Some(vec![Data::Cname(target.clone())]),
                None if query.kind == Kind::Srv => Some(srv(world, namespace, name, service, None)),
                None => has_any(addresses(service)),
            }
        }
        // The address is in the name: no pod is looked for (CoreDNS's `pods insecure`).
        [address, _, "pod"] => {
            let parsed = [address.replace('-', "."), address.replace('-', ":")];
            let address = parsed.iter().find_map(|text| text.parse::<IpAddr>().ok())?;
            Some(vec![Data::Address(address)])
        }
        [hostname, name, namespace, "svc"] => {
            let backends = find(world, namespace, name)?.backends.iter();
            let named = backends.filter(|backend| backend.label() == hostname);
            has_any(named.map(|backend| Data::Address(backend.address)).collect())
        }
        [port, protocol, name, namespace, "svc"] => {
            let (port, protocol) = (port.strip_prefix('_')?, protocol.strip_prefix('_')?);
            let service = find(world, namespace, name)?;
            has_any(srv(world, namespace, name, service, Some((port, protocol))))
        }
        _ => None,
    }
}

fn find<'a>(world: &'a World, namespace: &str, name: &str) -> Option<&'a Service> {
    world.services.get(&(namespace.to_owned(), name.to_owned()))
}

fn has_any(data: Vec<Data>) -> Option<Vec<Data>> {
    (!data.is_empty()).then_some(data)
}

fn addresses(service: &Service) -> Vec<Data> {
    match service.cluster_ips.is_empty() {
        false => service.cluster_ips.iter().copied().map(Data::Address).collect(),
        true => service.backends.iter().map(|one| Data::Address(one.address)).collect(),
    }
}

fn srv(
    world: &World,
    namespace: &str,
    name: &str,
    service: &Service,
    of: Option<(&str, &str)>,
) -> Vec<Data> {
    let whole = format!("{name}.{namespace}.svc.{}", world.domain);
    let targets: Vec<String> = match service.cluster_ips.is_empty() {
        false => vec![whole],
        true => service.backends.iter().map(|one| format!("{}.{whole}", one.label())).collect(),
    };
    let ports = service.ports.iter().filter(|(port, protocol, _)| match of {
        Some(asked) => asked == (port.as_str(), protocol.as_str()),
        None => true,
    });
    let weight = (100 / targets.len().max(1)).max(1) as u16;
    let record = |port: u16, target: &String| {
        let target = target.clone();
        Data::Srv { priority: 0, weight, port, target }
    };
    ports.flat_map(|(_, _, port)| targets.iter().map(move |one| record(*port, one))).collect()
}

/// `1.0.96.10.in-addr.arpa`.
fn reverse(name: &str, world: &World) -> Option<Vec<Data>> {
    let address = reversed(name)?;
    let mut names = Vec::new();
    for ((namespace, name), service) in &world.services {
        let whole = format!("{name}.{namespace}.svc.{}", world.domain);
        if service.cluster_ips.contains(&address) {
            names.push(whole.clone());
        }
        let backends = service.backends.iter().filter(|one| one.address == address);
        names.extend(backends.map(|backend| format!("{}.{whole}", backend.label())));
    }
    has_any(names.into_iter().map(Data::Ptr).collect())
}

fn reversed(name: &str) -> Option<IpAddr> {
    if let Some(rest) = name.strip_suffix(".in-addr.arpa") {
        let parts: Vec<&str> = rest.rsplit('.').collect();
        return parts.join(".").parse().ok();
    }
    let digits: Vec<&str> = name.strip_suffix(".ip6.arpa")?.rsplit('.').collect();
    let hex = digits.concat();
    if digits.len() != 32 || hex.len() != 32 {
        return None;
    }
    Some(IpAddr::from(u128::from_str_radix(&hex, 16).ok()?.to_be_bytes()))
}

fn authority(world: &World) -> Record {
    let data = Data::Soa {
        server: format!("ns.dns.{}", world.domain),
        mailbox: format!("hostmaster.{}", world.domain),
        serial: 1,
        minimum: SECONDS,
    };
    Record { name: world.domain.clone(), seconds: SECONDS, data }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tests::question;
    use crate::world::Backend;
    use expect_test::{Expect, expect};

    fn world() -> World {
        let ip = |text: &str| text.parse().unwrap();
        let ports = vec![("http".to_owned(), "tcp".to_owned(), 80)];
        let web = Service {
            cluster_ips: vec![ip("10.96.0.1"), ip("fd96::1")],
            ports: ports.clone(),
            ..Service::default()
        };
        let backend = |hostname: Option<&str>, address| Backend {
            hostname: hostname.map(str::to_owned),
            address: ip(address),
        };
        let backends = vec![backend(Some("db-0"), "10.1.0.2"), backend(None, "10.1.0.3")];
        let db = Service { ports, backends, ..Service::default() };
        let external_name = Some("example.org".to_owned());
        let away = Service { external_name, ..Service::default() };
        let all = [("web", web), ("db", db), ("away", away), ("none", Service::default())];
        let services =
            all.map(|(name, service)| (("default".to_owned(), name.to_owned()), service)).into();
        World { domain: "cluster.local".to_owned(), services }
    }

    fn check(kind: Kind, name: &str, expected: Expect) {
        let query = Query::read(&question(name, kind)).unwrap();
        let text = match answer(&query, &world()) {
            None => "not ours".to_owned(),
            Some(answer) if answer.records.is_empty() => {
                assert!(answer.authority.is_some());
                format!("{:?}", answer.code)
            }
            Some(answer) => {
                let lines = answer.records.iter().map(|record| match &record.data {
                    Data::Address(address) => address.to_string(),
                    Data::Cname(target) | Data::Ptr(target) | Data::Txt(target) => target.clone(),
                    Data::Srv { weight, port, target, .. } => format!("{weight} {port} {target}"),
                    Data::Soa { .. } => "soa".to_owned(),
                });
                lines.collect::<Vec<_>>().join(", ")
            }
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn services_have_addresses() {
        check(Kind::A, "web.default.svc.cluster.local", expect!["10.96.0.1"]);
        check(Kind::A, "WEB.default.svc.Cluster.Local", expect!["10.96.0.1"]);
        check(Kind::Aaaa, "web.default.svc.cluster.local", expect!["fd96::1"]);
        check(Kind::Txt, "web.default.svc.cluster.local", expect!["NoError"]);
        check(Kind::A, "absent.default.svc.cluster.local", expect!["NameError"]);
        check(Kind::A, "default.svc.cluster.local", expect!["NoError"]);
        check(Kind::A, "elsewhere.svc.cluster.local", expect!["NameError"]);
        check(Kind::A, "away.default.svc.cluster.local", expect!["example.org"]);
        check(Kind::Txt, "dns-version.cluster.local", expect!["1.1.0"]);
        check(Kind::A, "example.org", expect!["not ours"]);
        check(Kind::A, "notcluster.local", expect!["not ours"]);
    }

    #[test]
    fn headless_services_have_their_endpoints() {
        check(Kind::A, "db.default.svc.cluster.local", expect!["10.1.0.2, 10.1.0.3"]);
        check(Kind::Aaaa, "db.default.svc.cluster.local", expect!["NoError"]);
        check(Kind::A, "db-0.db.default.svc.cluster.local", expect!["10.1.0.2"]);
        check(Kind::A, "10-1-0-3.db.default.svc.cluster.local", expect!["10.1.0.3"]);
        check(Kind::A, "db-1.db.default.svc.cluster.local", expect!["NameError"]);
        check(Kind::A, "none.default.svc.cluster.local", expect!["NameError"]);
    }

    #[test]
    fn a_pods_name_is_its_address() {
        check(Kind::A, "10-1-0-9.default.pod.cluster.local", expect!["10.1.0.9"]);
        check(Kind::Aaaa, "fd00--9.default.pod.cluster.local", expect!["fd00::9"]);
        check(Kind::Aaaa, "10-1-0-9.default.pod.cluster.local", expect!["NoError"]);
        check(Kind::A, "10-1-0.default.pod.cluster.local", expect!["NameError"]);
    }

    #[test]
    fn ports_and_addresses_have_names() {
        check(
            Kind::Srv,
            "_http._tcp.web.default.svc.cluster.local",
            expect!["100 80 web.default.svc.cluster.local"],
        );
        check(
            Kind::Srv,
            "_http._tcp.db.default.svc.cluster.local",
            expect![
                "50 80 db-0.db.default.svc.cluster.local, 50 80 10-1-0-3.db.default.svc.cluster.local"
            ],
        );
        check(Kind::Srv, "_x._tcp.web.default.svc.cluster.local", expect!["NameError"]);
        check(Kind::Ptr, "1.0.96.10.in-addr.arpa", expect!["web.default.svc.cluster.local"]);
        check(Kind::Ptr, "2.0.1.10.in-addr.arpa", expect!["db-0.db.default.svc.cluster.local"]);
        check(Kind::Ptr, "9.9.9.9.in-addr.arpa", expect!["not ours"]);
        let fd96 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.d.f.ip6.arpa";
        check(Kind::Ptr, fd96, expect!["web.default.svc.cluster.local"]);
    }
}
