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
    for (set, old, new) in [
        (SERVICES, services(old), services(new)),
        (ENDPOINTS, endpoints(old), endpoints(new)),
        (STICKY, sticky(old), sticky(new)),
        (REFUSED, refused(old), refused(new)),
        (HAIRPIN, hairpin(old), hairpin(new)),
    ] {
        // A value is changed by taking the old one away.
        let gone = old.iter().filter(|(key, value)| new.get(key) != Some(value));
        table.remove_elements(set, gone.map(|(key, _)| key.clone()));
        let come = new.iter().filter(|(key, value)| old.get(key) != Some(value));
        table.add_elements(
            set,
            come.map(|(key, value)| Element { key: key.clone(), value: value.clone() }),
        );
    }
    rules::remove_chains(&mut table, &before, &after);
    table
}

type Elements = BTreeMap<Data, Mapped>;

fn key(frontend: &Frontend) -> Data {
    Data::new().address(frontend.address).protocol(frontend.protocol).port(frontend.port)
}

fn services(tables: &Tables) -> Elements {
    let verdict = |chain: &crate::Chain| Mapped::Verdict(Verdict::goto(chain.name()));
    tables.services.iter().map(|(frontend, chain)| (key(frontend), verdict(chain))).collect()
}

fn endpoints(tables: &Tables) -> Elements {
    let element = |((frontend, number), (address, port)): (&(Frontend, u32), &Target)| {
        let target = Data::new().address(*address).port(*port);
        (key(frontend).number(*number), Mapped::Data(target))
    };
    tables.endpoints.iter().map(element).collect()
}

fn sticky(tables: &Tables) -> Elements {
    let element = |(frontend, (address, port)): &(Frontend, Target)| {
        (key(frontend).address(*address).port(*port), Mapped::Nothing)
    };
    tables.sticky.iter().map(element).collect()
}

fn refused(tables: &Tables) -> Elements {
    let verdict = |refusal: &Refusal| match refusal {
        Refusal::Reject => Mapped::Verdict(Verdict::goto(REJECT)),
        Refusal::Drop => Mapped::Verdict(Verdict::Drop),
    };
    tables.refused.iter().map(|(frontend, refusal)| (key(frontend), verdict(refusal))).collect()
}

fn hairpin(tables: &Tables) -> Elements {
    let pair = |address: &std::net::IpAddr| Data::new().address(*address).address(*address);
    tables.hairpin.iter().map(|address| (pair(address), Mapped::Nothing)).collect()
}
