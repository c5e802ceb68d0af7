//! Makes the kernel's tables what they should be, by what has changed.
use crate::rules::{self, ENDPOINTS, HAIRPIN, REFUSED, REJECT, SERVICES, STICKY};
use crate::tables::{Frontend, Refusal, ServicePort, Tables, Target, desired};
use crate::{Config, TABLE};
use netlink::nftables::{AddressFamily, Data, Element, Mapped, Transaction, Verdict};
use netlink::{Family, NetlinkError, Socket};
use std::collections::{BTreeMap, BTreeSet};

const UDP: u8 = 17;

/// The rules of the host in whose namespace it was opened.
pub struct Proxy {
    config: Config,
    socket: Socket,
    /// What the kernel has, once it is known.
    current: BTreeMap<AddressFamily, Tables>,
}

impl Proxy {
    pub fn open(config: Config) -> Result<Proxy, NetlinkError> {
        let socket = Socket::open(Family::Netfilter)?;
        Ok(Proxy { config, socket, current: BTreeMap::new() })
    }

    /// Each address family's rules change at once or not at all. The first time they replace what
    /// an earlier process left; connections that there are go on.
    pub fn apply(&mut self, services: &[ServicePort]) -> Result<(), NetlinkError> {
        for family in AddressFamily::BOTH {
            let new = desired(services, family);
            let old = self.current.remove(&family);
            change(&self.config, family, old.as_ref(), &new).commit(&mut self.socket)?;
            // If only this fails, the next time begins anew, which is no harm.
            self.forget(family, &old.unwrap_or_default(), &new)?;
            self.current.insert(family, new);
        }
        Ok(())
    }

    /// Takes everything away.
    pub fn teardown(mut self) -> Result<(), NetlinkError> {
        for family in AddressFamily::BOTH {
            let mut table = Transaction::new(family, TABLE);
            table.remove_table();
            table.commit(&mut self.socket)?;
        }
        Ok(())
    }

    /// A client that goes on sending by UDP would be sent to an endpoint that is gone for as long
    /// as it does: nothing tells it that the connection ended.
    fn forget(
        &mut self,
        family: AddressFamily,
        old: &Tables,
        new: &Tables,
    ) -> Result<(), NetlinkError> {
        let of_udp = |tables: &Tables| -> BTreeSet<(Frontend, Target)> {
            let all = tables.endpoints.iter().map(|((frontend, _), target)| (*frontend, *target));
            all.filter(|(frontend, _)| frontend.protocol == UDP).collect()
        };
        let gone: BTreeSet<_> = of_udp(old).difference(&of_udp(new)).copied().collect();
        if gone.is_empty() {
            return Ok(());
        }
        for connection in self.socket.connections(family == AddressFamily::Ipv6)? {
            let (to, from) = (connection.original, connection.reply);
            let stale = to.protocol == UDP
                && gone.iter().any(|(frontend, target)| {
                    let address = frontend.is_node_port() || frontend.address == to.destination;
                    address
                        && frontend.port == to.destination_port
                        && *target == (from.source, from.source_port)
                });
            if stale {
                self.socket.forget(&connection)?;
            }
        }
        Ok(())
    }
}

/// From what there is to what should be; `None`: nobody knows what there is.
fn change(
    config: &Config,
    family: AddressFamily,
    known: Option<&Tables>,
    new: &Tables,
) -> Transaction {
    let mut table = Transaction::new(family, TABLE);
    let nothing = Tables::default();
    let old = known.unwrap_or(&nothing);
    if known.is_none() {
        table.renew_table();
        rules::add_frame(&mut table, family);
    }
    let chains = |tables: &Tables| tables.services.values().copied().collect::<BTreeSet<_>>();
    let (before, after) = (chains(old), chains(new));
    rules::add_chains(&mut table, config, family, &before, &after);
    change_map(&mut table, SERVICES, &old.services, &new.services, key, |chain| {
        Mapped::Verdict(Verdict::goto(chain.name()))
    });
    let numbered = |(frontend, number): &(Frontend, u32)| key(frontend).number(*number);
    change_map(&mut table, ENDPOINTS, &old.endpoints, &new.endpoints, numbered, |to| {
        Mapped::Data(target(to))
    });
    change_map(&mut table, REFUSED, &old.refused, &new.refused, key, |refusal| match refusal {
        Refusal::Reject => Mapped::Verdict(Verdict::goto(REJECT)),
        Refusal::Drop => Mapped::Verdict(Verdict::Drop),
    });
    change_set(&mut table, STICKY, &old.sticky, &new.sticky, |(frontend, (address, port))| {
        key(frontend).address(*address).port(*port)
    });
    change_set(&mut table, HAIRPIN, &old.hairpin, &new.hairpin, |address| {
        Data::new().address(*address).address(*address)
    });
    rules::remove_chains(&mut table, &before, &after);
    table
}

/// Only what differs is made into bytes: most of ten thousand services do not change.
fn change_map<K: Ord, V: PartialEq>(
    table: &mut Transaction,
    map: &str,
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    key: impl Fn(&K) -> Data,
    value: impl Fn(&V) -> Mapped,
) {
    // A value is changed by taking the old one away.
    let gone = old.iter().filter(|(key, value)| new.get(key) != Some(value));
    table.remove_elements(map, gone.map(|(gone, _)| key(gone)));
    let come = new.iter().filter(|(key, value)| old.get(key) != Some(value));
    table.add_elements(map, come.map(|(at, to)| Element { key: key(at), value: value(to) }));
}

fn change_set<K: Ord>(
    table: &mut Transaction,
    set: &str,
    old: &BTreeSet<K>,
    new: &BTreeSet<K>,
    key: impl Fn(&K) -> Data,
) {
    table.remove_elements(set, old.difference(new).map(&key));
    let come = new.difference(old);
    table.add_elements(set, come.map(|at| Element { key: key(at), value: Mapped::Nothing }));
}

fn key(frontend: &Frontend) -> Data {
    Data::new().address(frontend.address).protocol(frontend.protocol).port(frontend.port)
}

fn target((address, port): &Target) -> Data {
    Data::new().address(*address).port(*port)
}
