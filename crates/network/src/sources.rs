//! Who may send as whom. What comes in by a pod's link has the pod's own addresses and MAC: a pod that
//! may write packets as it likes (`NET_RAW`) can neither pass for a neighbour, whose policies would let
//! it in, nor take a neighbour's packets by claiming its addresses.
//!
//! Nor can it send to a neighbour past the rules: what comes from a pod and is for one is for the host,
//! which alone sends it on. What is for several (broadcasts, multicasts) the bridge hands to all, as pod
//! networks do; policies keep it from those whom they close (`policy::flood`).
//!
//! These are rules of the bridge, which alone knows by which port a frame came. A kernel without them
//! (`CONFIG_NF_TABLES_BRIDGE`) has pods that are not kept from it, and somebody is told.
use crate::records::Record;
use crate::{LINK_PREFIX, POLICY_TABLE, link_name};
use netlink::nftables::{
    AddressFamily, Base, Compare, Data, Direction, Element, Expression, Field, Hook, Mapped, Meta,
    Set, Transaction, Value, Verdict,
};
use netlink::tunnel::Mac;
use netlink::{NetlinkError, Socket};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

/// Links of pods with their MACs.
const PORTS: &str = "ports";
/// The same with an address.
const SOURCES: &str = "sources";
/// Links of pods whose MAC nobody has written down: an earlier version made them.
const TRUSTED: &str = "trusted";

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const ADVERTISEMENT: u8 = 136;

/// The bridge's tables, one for the packets of each address family.
pub fn table_name(family: AddressFamily) -> &'static str {
    match family {
        AddressFamily::Ipv4 => "skiff-sources-ipv4",
        AddressFamily::Ipv6 => "skiff-sources-ipv6",
    }
}

/// Keeps the rules; who cannot is not asked again.
pub struct Sources {
    /// The bridge's own.
    mac: Mac,
    is_impossible: bool,
    /// Links that were written as trusted.
    trusted: BTreeSet<String>,
}

impl Sources {
    pub fn new(mac: Mac) -> Sources {
        Sources { mac, is_impossible: false, trusted: BTreeSet::new() }
    }

    /// All of them in place of what there was.
    pub fn write<'a>(
        &mut self,
        socket: &mut Socket,
        records: impl Iterator<Item = &'a Record> + Clone,
    ) {
        let trusted = records.clone().filter(|record| record.mac.is_none());
        self.trusted = trusted.map(|record| link_name(&record.sandbox_id)).collect();
        for family in AddressFamily::BOTH {
            if self.is_impossible {
                return;
            }
            let written = whole(family, self.mac, records.clone()).commit(socket);
            self.bear(written);
        }
    }

    /// One more pod.
    pub fn add<'a>(
        &mut self,
        socket: &mut Socket,
        record: &Record,
        all: impl Iterator<Item = &'a Record> + Clone,
    ) {
        if self.trusted.contains(&link_name(&record.sandbox_id)) {
            return self.write(socket, all);
        }
        for family in AddressFamily::BOTH {
            if self.is_impossible {
                return;
            }
            let mut table = Transaction::of_bridges(family, table_name(family));
            add_elements(&mut table, family, record);
            if table.commit(socket).is_err() {
                // Somebody took the table away: it is written whole.
                return self.write(socket, all);
            }
        }
    }

    /// One pod less; `all` are those that are left.
    pub fn remove<'a>(
        &mut self,
        socket: &mut Socket,
        record: &Record,
        all: impl Iterator<Item = &'a Record> + Clone,
    ) {
        for family in AddressFamily::BOTH {
            if self.is_impossible {
                return;
            }
            let mut table = Transaction::of_bridges(family, table_name(family));
            for (set, key) in keys(family, record) {
                table.remove_elements(set, [key]);
            }
            if table.commit(socket).is_err() {
                return self.write(socket, all);
            }
        }
    }

    /// Whether the kernel's rules are these.
    pub fn hold<'a>(
        &self,
        socket: &mut Socket,
        records: impl Iterator<Item = &'a Record> + Clone,
    ) -> Result<bool, NetlinkError> {
        for family in AddressFamily::BOTH {
            if !self.is_impossible && !whole(family, self.mac, records.clone()).holds(socket)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn bear(&mut self, written: Result<(), NetlinkError>) {
        if let Err(error) = written {
            self.is_impossible = true;
            tracing::warn!(%error, "pods are not kept from sending with others' addresses: the kernel has no packet rules for bridges");
        }
    }
}

/// Takes everything away.
pub fn remove(socket: &mut Socket) {
    for family in AddressFamily::BOTH {
        let mut table = Transaction::of_bridges(family, table_name(family));
        table.remove_table();
        // Where there can be none, there is none.
        let _ = table.commit(socket);
    }
    remove_floods(socket);
}

/// Takes away what policies keep bridges from handing to everybody.
pub fn remove_floods(socket: &mut Socket) {
    let mut table = Transaction::of_bridges(AddressFamily::Ipv4, POLICY_TABLE);
    table.remove_table();
    let _ = table.commit(socket);
}

fn whole<'a>(
    family: AddressFamily,
    bridge: Mac,
    records: impl Iterator<Item = &'a Record>,
) -> Transaction {
    let mut table = Transaction::of_bridges(family, table_name(family)).recorded();
    table.renew_table();
    for (name, key) in [
        (PORTS, &[Field::Link, Field::Mac][..]),
        (SOURCES, &[Field::Link, Field::Mac, Field::Address][..]),
        (TRUSTED, &[Field::Link][..]),
    ] {
        table.add_set(&Set { name, key, value: Value::Nothing, dynamic: false });
    }
    records.for_each(|record| add_elements(&mut table, family, record));
    let (chain, known) = ("prerouting", "known");
    table.add_chain(known);
    destinations(&mut table, bridge, known);
    rules(&mut table, family, known);
    table.add_base_chain(chain, Hook::filter(Hook::PREROUTING, -300));
    let of_pod = Expression::link_like(Meta::InputName, LINK_PREFIX, 0).to_vec();
    let link = Expression::Meta { key: Meta::InputName, into: 0 };
    let verdict = |verdict| vec![Expression::Verdict(verdict)];
    let trusted = vec![link.clone(), Expression::Contains { set: TRUSTED, key: 0 }];
    table.add_rule(chain, &[of_pod.clone(), trusted, verdict(Verdict::Accept)].concat());
    let own = vec![link, mac(), Expression::Contains { set: PORTS, key: 0 }];
    table.add_rule(chain, &[of_pod.clone(), own, verdict(Verdict::goto(known))].concat());
    table.add_rule(chain, &[of_pod, verdict(Verdict::Drop)].concat());
    table
}

/// The sender's MAC, behind a link's name in registers.
fn mac() -> Expression<'static> {
    Expression::Payload { base: Base::Link, offset: 6, length: 6, into: 4 }
}

/// Frames that are for one are for the host.
fn destinations(table: &mut Transaction, bridge: Mac, chain: &str) {
    let register = 0;
    // The first bit on the wire: for one, or for several.
    let one = vec![
        Expression::Payload { base: Base::Link, offset: 0, length: 1, into: register },
        Expression::Bitwise { register, mask: vec![1], xor: vec![0] },
        Expression::Compare { register, how: Compare::Other, with: vec![1] },
    ];
    let to = Expression::Payload { base: Base::Link, offset: 0, length: 6, into: register };
    let (how, with) = (Compare::Other, bridge.to_vec());
    let others = vec![to, Expression::Compare { register, how, with }];
    let drop = vec![Expression::Verdict(Verdict::Drop)];
    table.add_rule(chain, &[one, others, drop].concat());
}

/// What a pod with its own MAC may send of one address family.
fn rules(table: &mut Transaction, family: AddressFamily, chain: &str) {
    let verdict = |verdict| vec![Expression::Verdict(verdict)];
    // The link, the MAC and an address, and whether they belong together.
    let belongs = |address: Expression<'static>| {
        let link = Expression::Meta { key: Meta::InputName, into: 0 };
        vec![link, mac(), address, Expression::Contains { set: SOURCES, key: 0 }]
    };
    let source = || Expression::Address { which: Direction::Source, into: 6 };
    let carried = |kind: u16| Expression::carried(kind, 0).to_vec();
    match family {
        AddressFamily::Ipv4 => {
            let sender =
                || Expression::Payload { base: Base::Network, offset: 14, length: 4, into: 6 };
            for (kind, address) in [(IPV4, source()), (ARP, sender())] {
                let rule = [carried(kind), belongs(address), verdict(Verdict::Accept)];
                table.add_rule(chain, &rule.concat());
                table.add_rule(chain, &[carried(kind), verdict(Verdict::Drop)].concat());
            }
        }
        AddressFamily::Ipv6 => {
            let advertised = || {
                let kind =
                    Expression::Payload { base: Base::Transport, offset: 0, length: 1, into: 0 };
                let (how, with) = (Compare::Equal, vec![ADVERTISEMENT]);
                let is = Expression::Compare { register: 0, how, with };
                [carried(IPV6), Expression::protocol(ICMPV6, 0).to_vec(), vec![kind, is]].concat()
            };
            let target =
                || Expression::Payload { base: Base::Transport, offset: 8, length: 16, into: 6 };
            let rule = [advertised(), belongs(target()), verdict(Verdict::Accept)];
            table.add_rule(chain, &rule.concat());
            let rule = [advertised(), vec![target()], of_the_link(6), verdict(Verdict::Accept)];
            table.add_rule(chain, &rule.concat());
            table.add_rule(chain, &[advertised(), verdict(Verdict::Drop)].concat());
            let rule = [carried(IPV6), belongs(source()), verdict(Verdict::Accept)];
            table.add_rule(chain, &rule.concat());
            // Of the link itself, and of nobody yet: whoever looks for a neighbour.
            let rule = [carried(IPV6), vec![source()], of_the_link(6), verdict(Verdict::Accept)];
            table.add_rule(chain, &rule.concat());
            let (how, with) = (Compare::Equal, Ipv6Addr::UNSPECIFIED.octets().to_vec());
            let nobody = vec![source(), Expression::Compare { register: 6, how, with }];
            table.add_rule(chain, &[carried(IPV6), nobody, verdict(Verdict::Accept)].concat());
            table.add_rule(chain, &[carried(IPV6), verdict(Verdict::Drop)].concat());
        }
    }
}

/// Goes on if the address in a register is link-local.
fn of_the_link(register: u8) -> Vec<Expression<'static>> {
    let (mut mask, mut with) = (vec![0; 16], vec![0; 16]);
    mask[..2].copy_from_slice(&[0xff, 0xc0]);
    with[..2].copy_from_slice(&[0xfe, 0x80]);
    vec![
        Expression::Bitwise { register, mask, xor: vec![0; 16] },
        Expression::Compare { register, how: Compare::Equal, with },
    ]
}

fn add_elements(table: &mut Transaction, family: AddressFamily, record: &Record) {
    for (set, key) in keys(family, record) {
        table.add_elements(set, [Element { key, value: Mapped::Nothing }]);
    }
}

/// What a pod has in the sets of one family's table.
fn keys(family: AddressFamily, record: &Record) -> Vec<(&'static str, Data)> {
    let name = link_name(&record.sandbox_id);
    let Some(mac) = record.mac else { return vec![(TRUSTED, Data::new().link(&name))] };
    let port = || Data::new().link(&name).mac(mac);
    let of_family = |address: &&IpAddr| AddressFamily::of(**address) == family;
    let addresses = record.addresses.iter().filter(of_family);
    let sources = addresses.map(|address| (SOURCES, port().address(*address)));
    std::iter::once((PORTS, port())).chain(sources).collect()
}
