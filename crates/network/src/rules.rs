//! The node's nftables table: masquerade and host ports, from what sandboxes have.
use crate::records::Record;
use crate::{BRIDGE, Cidr, Config, PodNetworkError, TABLE};
use netlink::nftables::{
    AddressFamily, Base, Compare, Data, Direction, Element, Expression, Field, Hook, Mapped, Meta,
    Set, Transaction, Value, Verdict,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HOST_PORTS: &str = "host-ports";
const HAIRPIN: &str = "hairpin";

/// Where on the host a port is open: on every address of it if the address is unspecified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    pub address: IpAddr,
    pub protocol: u8,
    pub port: u16,
}

/// Which sandbox's address and port a host port leads to.
pub type HostPorts = BTreeMap<HostPort, (IpAddr, u16)>;

/// The host ports of all sandboxes in one address family.
pub fn host_ports<'a>(
    records: impl Iterator<Item = &'a Record>,
    family: AddressFamily,
) -> Result<HostPorts, PodNetworkError> {
    let any: IpAddr = match family {
        AddressFamily::Ipv4 => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let (mut ports, mut holders) = (HostPorts::new(), BTreeMap::new());
    for record in records {
        let mut addresses = record.addresses.iter();
        let Some(pod) = addresses.find(|one| AddressFamily::of(**one) == family) else { continue };
        for mapping in &record.ports {
            let number = |port: i32| u16::try_from(port).ok().filter(|port| *port > 0);
            let (Some(port), Some(target)) =
                (number(mapping.host_port), number(mapping.container_port))
            else {
                continue;
            };
            // An address that is none is nobody's: a port on it would be open everywhere.
            let address = match mapping.host_ip.as_str() {
                "" | "0.0.0.0" | "::" => any,
                text => match text.parse::<IpAddr>() {
                    Ok(address) if AddressFamily::of(address) == family => address,
                    _ => continue,
                },
            };
            let (protocol, name) = protocol(&mapping.protocol)?;
            let host_port = HostPort { address, protocol, port };
            if let Some(holder) = holders.insert(host_port, &record.sandbox_id) {
                return Err(PodNetworkError::HostPort {
                    port,
                    protocol: name,
                    sandbox: record.sandbox_id.clone(),
                    holder: holder.clone(),
                });
            }
            ports.insert(host_port, (*pod, target));
        }
    }
    Ok(ports)
}

fn protocol(name: &str) -> Result<(u8, &'static str), PodNetworkError> {
    match name.to_ascii_uppercase().as_str() {
        "" | "TCP" => Ok((6, "TCP")),
        "UDP" => Ok((17, "UDP")),
        "SCTP" => Ok((132, "SCTP")),
        _ => Err(PodNetworkError::Protocol(name.to_owned())),
    }
}

/// The whole table in place of what there was.
pub fn table(config: &Config, family: AddressFamily, ports: &HostPorts) -> Transaction {
    let mut table = Transaction::new(family, TABLE).recorded();
    let of_family = |cidr: &&Cidr| AddressFamily::of(cidr.address()) == family;
    let pods: Vec<_> = config.pod_cidrs.iter().filter(of_family).collect();
    if pods.is_empty() {
        table.remove_table();
        return table;
    }
    table.renew_table();
    host_port_rules(&mut table, family, ports);

    let chain = "postrouting";
    table.add_base_chain(chain, Hook::nat(Hook::POSTROUTING, 100));
    let to_bridge = |how| Expression::link(Meta::OutputName, how, BRIDGE, 0).to_vec();
    let changed = Expression::destination_changed(0).to_vec();
    let masquerade = || vec![Expression::Masquerade];
    if family == AddressFamily::Ipv4 {
        // A process of the host that used 127.0.0.1 and a host port: no pod could answer there.
        let from_loopback = loopback(Direction::Source);
        let rule =
            [changed.clone(), from_loopback, to_bridge(Compare::Equal), masquerade()].concat();
        table.add_rule(chain, &rule);
    }
    // A pod that reaches itself by a host port would get an answer from the wrong address.
    let both = vec![
        Expression::Address { which: Direction::Source, into: 0 },
        Expression::Address { which: Direction::Destination, into: family.registers() },
        Expression::Contains { set: HAIRPIN, key: 0 },
    ];
    table.add_rule(chain, &[changed, both, masquerade()].concat());
    for from in pods {
        let source = Expression::network(
            Direction::Source,
            Compare::Equal,
            from.address(),
            from.prefix(),
            0,
        );
        let multicast: Cidr = match family {
            AddressFamily::Ipv4 => "224.0.0.0/4".parse(),
            AddressFamily::Ipv6 => "ff00::/8".parse(),
        }
        .expect("both are CIDRs");
        for to in config.cluster_cidrs.iter().filter(of_family).chain([&multicast]) {
            let destination = Expression::network(
                Direction::Destination,
                Compare::Equal,
                to.address(),
                to.prefix(),
                0,
            );
            let stays = vec![Expression::Verdict(Verdict::Return)];
            table.add_rule(chain, &[source.clone(), destination, stays].concat());
        }
        table.add_rule(chain, &[source, to_bridge(Compare::Other), masquerade()].concat());
    }
    table
}

fn host_port_rules(table: &mut Transaction, family: AddressFamily, ports: &HostPorts) {
    let address = family.registers();
    let (key, target) =
        ([Field::Address, Field::Protocol, Field::Port], [Field::Address, Field::Port]);
    let value = Value::Fields(&target);
    table.add_set(&Set { name: HOST_PORTS, key: &key, value, dynamic: false });
    let (key, value) = ([Field::Address, Field::Address], Value::Nothing);
    table.add_set(&Set { name: HAIRPIN, key: &key, value, dynamic: false });
    table.add_elements(
        HOST_PORTS,
        ports.iter().map(|(from, (to, port))| Element {
            key: Data::new().address(from.address).protocol(from.protocol).port(from.port),
            value: Mapped::Data(Data::new().address(*to).port(*port)),
        }),
    );
    let mut themselves: Vec<IpAddr> = ports.values().map(|(to, _)| *to).collect();
    themselves.sort();
    themselves.dedup();
    let pairs = themselves.iter().map(|one| Element {
        key: Data::new().address(*one).address(*one),
        value: Mapped::Nothing,
    });
    table.add_elements(HAIRPIN, pairs);

    let chain = "host-ports";
    table.add_chain(chain);
    let rest = vec![
        Expression::Meta { key: Meta::Protocol, into: address },
        Expression::Payload { base: Base::Transport, offset: 2, length: 2, into: address + 1 },
        Expression::Map { map: HOST_PORTS, key: 0, into: address + 2 },
        Expression::DestinationNat { address: address + 2, port: 2 * address + 2 },
    ];
    let at_address = vec![Expression::Address { which: Direction::Destination, into: 0 }];
    let unspecified = Data(vec![0; usize::from(address) * 4]);
    let everywhere = vec![Expression::Immediate { into: 0, value: unspecified }];
    table.add_rule(chain, &[at_address, rest.clone()].concat());
    table.add_rule(chain, &[everywhere, rest].concat());
    let local = Expression::local(Direction::Destination, Compare::Equal, 0).to_vec();
    let jump = vec![Expression::Verdict(Verdict::Jump(chain.to_owned()))];
    for (name, hook) in [("prerouting", Hook::PREROUTING), ("output", Hook::OUTPUT)] {
        table.add_base_chain(name, Hook::nat(hook, -100));
        table.add_rule(name, &[local.clone(), jump.clone()].concat());
    }
    if family == AddressFamily::Ipv4 {
        // The bridge may route 127.0.0.0/8, for answers to the host's own processes. Nobody may
        // come in that way.
        let chain = "guard";
        table.add_base_chain(chain, Hook::filter(Hook::PREROUTING, -300));
        let from_bridge = Expression::link(Meta::InputName, Compare::Equal, BRIDGE, 0).to_vec();
        let drop = vec![Expression::Verdict(Verdict::Drop)];
        table.add_rule(chain, &[from_bridge, loopback(Direction::Destination), drop].concat());
    }
}

fn loopback(which: Direction) -> Vec<Expression<'static>> {
    Expression::network(which, Compare::Equal, Ipv4Addr::new(127, 0, 0, 0).into(), 8, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortMapping;
    use expect_test::{Expect, expect};

    /// One line for each port: `sandbox address host-ip host-port container-port protocol`.
    fn check(lines: &str, family: AddressFamily, expected: Expect) {
        let records: Vec<Record> = lines
            .lines()
            .map(str::split_whitespace)
            .map(Iterator::collect::<Vec<_>>)
            .map(|words| Record {
                sandbox_id: words[0].to_owned(),
                owner: String::new(),
                addresses: vec![words[1].parse().unwrap()],
                mac: None,
                ports: vec![PortMapping {
                    host_ip: words[2].trim_matches('-').to_owned(),
                    host_port: words[3].parse().unwrap(),
                    container_port: words[4].parse().unwrap(),
                    protocol: words[5].to_owned(),
                }],
            })
            .collect();
        let text = match host_ports(records.iter(), family) {
            Err(error) => error.to_string(),
            Ok(ports) => ports
                .iter()
                .map(|(from, (to, port))| {
                    let HostPort { address, protocol, port: at } = from;
                    format!("{address} {protocol} {at} -> {to} {port}\n")
                })
                .collect(),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn one_port_of_the_host_may_lead_to_several_by_address_and_protocol() {
        check(
            "a 10.1.0.2 127.0.0.1 80 8080 TCP
             b 10.1.0.3 127.0.0.1 80 8080 UDP
             c 10.1.0.4 192.0.2.1 80 8080 TCP
             d 10.1.0.5 - 81 8080 TCP
             e 10.1.0.6 fd00::9 82 8080 TCP
             f 10.1.0.7 nonsense 83 8080 TCP
             g 10.1.0.8 - 0 8080 TCP
             h fd00::8 - 84 8080 SCTP",
            AddressFamily::Ipv4,
            expect![[r#"
                0.0.0.0 6 81 -> 10.1.0.5 8080
                127.0.0.1 6 80 -> 10.1.0.2 8080
                127.0.0.1 17 80 -> 10.1.0.3 8080
                192.0.2.1 6 80 -> 10.1.0.4 8080
            "#]],
        );
        check(
            "h fd00::8 - 84 8080 SCTP",
            AddressFamily::Ipv6,
            expect![[r#"
                :: 132 84 -> fd00::8 8080
            "#]],
        );
    }

    #[test]
    fn a_port_is_given_once() {
        check(
            "a 10.1.0.2 - 80 8080 TCP\nb 10.1.0.3 0.0.0.0 80 81 TCP",
            AddressFamily::Ipv4,
            expect!["the host port 80/TCP of b is taken by a"],
        );
        check(
            "a 10.1.0.2 - 80 8080 ICMP",
            AddressFamily::Ipv4,
            expect![[r#"unknown protocol "ICMP" of a host port: it is TCP, UDP or SCTP"#]],
        );
    }
}
