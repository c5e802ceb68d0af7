//! What a name stands for: a pure function of a query and the world.
use crate::wire::{Data, Kind, Query, Record};
use crate::world::{Port, Service, World};
use std::collections::HashMap;
use std::net::IpAddr;

/// Of this specification.
const VERSION: &str = "1.1.0";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    NoError = 0,
    FormatError = 1,
    ServerFailure = 2,
    NameError = 3,
    Refused = 5,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub code: Code,
    pub records: Vec<Record>,
    /// Who says that there is nothing.
    pub authority: Vec<Record>,
    /// What the client would ask for next.
    pub additional: Vec<Record>,
}

impl Answer {
    pub fn only(code: Code) -> Answer {
        Answer { code, records: Vec::new(), authority: Vec::new(), additional: Vec::new() }
    }
}

/// `None`: the name is not one of the cluster's.
pub fn answer(query: &Query<'_>, world: &World, seconds: u32) -> Option<Answer> {
    let found = match query.name.strip_suffix(world.domain()) {
        Some("") => Some(Vec::new()),
        Some(below) => below_domain(below.strip_suffix('.')?, query, world),
        // Addresses that are not a service's are somebody else's to name.
        None => Some(reverse(&query.name, world)?),
    };
    let (code, names) = match found {
        Some(records) => (Code::NoError, records),
        None => (Code::NameError, Vec::new()),
    };
    // An alias answers whatever is asked.
    let fits = |data: &Data| data.kind() == query.kind || matches!(data, Data::Cname(_));
    let record = |data| Record { name: None, seconds, data };
    let records: Vec<Record> = names.into_iter().filter(fits).map(record).collect();
    let authority = if records.is_empty() { vec![authority(world, seconds)] } else { Vec::new() };
    let additional = targets(&records, world, seconds);
    Some(Answer { code, records, authority, additional })
}

/// The names that a client of a namespace would ask for next, as its search path says, after one that
/// was not found: those that are the cluster's, and then one that is not.
pub fn next_names(name: &str, namespace: &str, domain: &str) -> Option<[String; 3]> {
    let base = name.strip_suffix(domain)?.strip_suffix(".svc.")?;
    let base = base.strip_suffix(namespace)?.strip_suffix('.')?;
    (!base.is_empty())
        .then(|| [format!("{base}.svc.{domain}"), format!("{base}.{domain}"), base.to_owned()])
}

/// `None`: there is no such name. No records: there is one, and it has none.
fn below_domain(below: &str, query: &Query<'_>, world: &World) -> Option<Vec<Data>> {
    if let Some(name) = below.strip_suffix(".svc") {
        return below_services(name, query, world);
    }
    match below {
        "dns-version" => return Some(vec![Data::Txt(VERSION.to_owned())]),
        "svc" | "pod" => return Some(Vec::new()),
        _ => {}
    }
    let name = below.strip_suffix(".pod")?;
    let (address, namespace) = name.split_once('.').unwrap_or(("", name));
    // No pod is looked for (CoreDNS's `pods insecure`): the address is in the name.
    if !world.has_namespace(namespace) {
        return None;
    }
    if address.is_empty() {
        return Some(Vec::new());
    }
    Some(vec![Data::Address(dashed(address)?)])
}

/// `10-1-0-2`.
fn dashed(address: &str) -> Option<IpAddr> {
    let parsed = [address.replace('-', "."), address.replace('-', ":")];
    parsed.iter().find_map(|text| text.parse::<IpAddr>().ok())
}

/// The namespace and the address in a pod's name; `None`: it is none.
pub fn pod_of<'n>(name: &'n str, domain: &str) -> Option<(&'n str, IpAddr)> {
    let name = name.strip_suffix(domain)?.strip_suffix(".pod.")?;
    let (address, namespace) = name.split_once('.')?;
    Some((namespace, dashed(address)?))
}

/// What is before `.svc`.
fn below_services(name: &str, query: &Query<'_>, world: &World) -> Option<Vec<Data>> {
    let Some((first, rest)) = name.split_once('.') else {
        return world.has_namespace(name).then(Vec::new);
    };
    let whole = |name: &str| format!("{name}.svc.{}", world.domain());
    let Some((second, service)) = rest.split_once('.') else {
        let service = world.service(name)?;
        return match &service.external_name {
            Some(target) => Some(vec![Data::Cname(target.clone())]),
            None if query.kind == Kind::Srv => has_any(srv(&whole(name), service, None)),
            None => has_any(addresses(service)),
        };
    };
    if !service.contains('.') {
        // An endpoint of a service.
        let backends = world.service(rest)?.backends.iter();
        let named = backends.filter(|backend| backend.label() == first);
        return has_any(named.map(|backend| Data::Address(backend.address)).collect());
    }
    let (port, protocol) = (first.strip_prefix('_')?, second.strip_prefix('_')?);
    let found = world.service(service)?;
    has_any(srv(&whole(service), found, Some((port, protocol))))
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

fn srv(whole: &str, service: &Service, of: Option<(&str, &str)>) -> Vec<Data> {
    let fits = |port: &&Port| match of {
        Some((name, protocol)) => name == port.name && protocol == port.protocol,
        None => true,
    };
    let found: Vec<(u16, String)> = match service.cluster_ips.is_empty() {
        false => {
            let ports = service.ports.iter().filter(fits);
            ports.map(|port| (port.number, whole.to_owned())).collect()
        }
        // Whom a headless service's name leads to is asked at its own port.
        true => {
            let each = service.backends.iter().flat_map(|backend| {
                let ports = backend.ports.iter().filter(fits);
                ports.map(|port| (port.number, format!("{}.{whole}", backend.label())))
            });
            each.collect()
        }
    };
    let weight = (100 / found.len().max(1)).max(1) as u16;
    let record = |(port, target)| Data::Srv { priority: 0, weight, port, target };
    found.into_iter().map(record).collect()
}

/// The addresses of service records' targets. A headless service's endpoints are looked for together: each by
/// itself would be the square of their number, for one question.
fn targets(records: &[Record], world: &World, seconds: u32) -> Vec<Record> {
    let mut labelled: HashMap<&str, HashMap<_, Vec<IpAddr>>> = HashMap::new();
    let mut all = Vec::new();
    for record in records {
        let Data::Srv { target, .. } = &record.data else { continue };
        let name = target.strip_suffix(world.domain()).and_then(|name| name.strip_suffix(".svc."));
        let Some(name) = name else { continue };
        let found: &[IpAddr] = match world.service(name) {
            Some(service) => &service.cluster_ips,
            None => {
                let Some((label, rest)) = name.split_once('.') else { continue };
                let endpoints = labelled.entry(rest).or_insert_with(|| {
                    let mut endpoints: HashMap<_, Vec<IpAddr>> = HashMap::new();
                    let backends = world.service(rest).map(|service| &service.backends[..]);
                    for backend in backends.unwrap_or_default() {
                        endpoints.entry(backend.label()).or_default().push(backend.address);
                    }
                    endpoints
                });
                endpoints.get(label).map(Vec::as_slice).unwrap_or_default()
            }
        };
        all.extend(found.iter().map(|address| Record {
            name: Some(target.clone()),
            seconds,
            data: Data::Address(*address),
        }));
    }
    all
}

/// `1.0.96.10.in-addr.arpa`.
fn reverse(name: &str, world: &World) -> Option<Vec<Data>> {
    let names = world.names(reversed(name)?)?;
    Some(names.iter().cloned().map(Data::Ptr).collect())
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

fn authority(world: &World, seconds: u32) -> Record {
    let domain = world.domain();
    let data = Data::Soa {
        server: format!("ns.dns.{domain}"),
        mailbox: format!("hostmaster.{domain}"),
        serial: 1,
        minimum: seconds,
    };
    Record { name: Some(domain.to_owned()), seconds, data }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SECONDS;
    use crate::wire::question;
    use crate::world::Backend;
    use expect_test::{Expect, expect};

    fn world() -> World {
        let ip = |text: &str| text.parse().unwrap();
        let port = |number| Port { name: "http".to_owned(), protocol: "tcp".to_owned(), number };
        let web = Service {
            cluster_ips: vec![ip("10.96.0.1"), ip("fd96::1")],
            ports: vec![port(80)],
            ..Service::default()
        };
        let backend = |hostname: Option<&str>, address| Backend {
            hostname: hostname.map(str::to_owned),
            address: ip(address),
            ports: [port(8080)].into(),
        };
        let backends = vec![backend(Some("db-0"), "10.1.0.2"), backend(None, "10.1.0.3")];
        let db = Service { ports: vec![port(80)], backends, ..Service::default() };
        let external_name = Some("example.org".to_owned());
        let away = Service { external_name, ..Service::default() };
        let mut world = World::new("cluster.local");
        world.set_namespace("default", true);
        let none = Service::default();
        for (name, service) in [("web", web), ("db", db), ("away", away), ("none", none)] {
            world.set_service("default", name, Some(service));
        }
        world
    }

    fn check(kind: Kind, name: &str, expected: Expect) {
        let asked = question(7, name, kind, None);
        let query = Query::read(&asked).unwrap();
        let text = match answer(&query, &world(), SECONDS) {
            None => "not ours".to_owned(),
            Some(answer) if answer.records.is_empty() => {
                assert_eq!(answer.authority.len(), 1);
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
        check(Kind::A, "10-1-0-9.elsewhere.pod.cluster.local", expect!["NameError"]);
        check(Kind::A, "default.pod.cluster.local", expect!["NoError"]);
        check(Kind::A, "pod.cluster.local", expect!["NoError"]);
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
                "50 8080 db-0.db.default.svc.cluster.local, 50 8080 10-1-0-3.db.default.svc.cluster.local"
            ],
        );
        check(Kind::Srv, "_x._tcp.web.default.svc.cluster.local", expect!["NameError"]);
        check(Kind::Ptr, "1.0.96.10.in-addr.arpa", expect!["web.default.svc.cluster.local"]);
        check(Kind::Ptr, "2.0.1.10.in-addr.arpa", expect!["db-0.db.default.svc.cluster.local"]);
        check(Kind::Ptr, "3.0.1.10.in-addr.arpa", expect!["not ours"]);
        check(Kind::Ptr, "9.9.9.9.in-addr.arpa", expect!["not ours"]);
        let fd96 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.d.f.ip6.arpa";
        check(Kind::Ptr, fd96, expect!["web.default.svc.cluster.local"]);
    }

    #[test]
    fn service_records_come_with_their_targets_addresses() {
        let asked = question(7, "_http._tcp.db.default.svc.cluster.local", Kind::Srv, None);
        let answer = answer(&Query::read(&asked).unwrap(), &world(), SECONDS).unwrap();
        let shown =
            |record: &Record| format!("{} {:?}", record.name.as_ref().unwrap(), record.data);
        let shown: Vec<String> = answer.additional.iter().map(shown).collect();
        assert_eq!(
            shown,
            [
                "db-0.db.default.svc.cluster.local Address(10.1.0.2)",
                "10-1-0-3.db.default.svc.cluster.local Address(10.1.0.3)",
            ]
        );
    }
}
