//! What is for several pods at once: broadcasts and multicasts, which the bridge hands to everybody and
//! the host does not forward. They reach and leave the pods that no policy closes; one that is closed
//! has none of it, for whom a policy grants something cannot be told from a frame that is for all.
//! Whoever looks for a neighbour (ARP, ICMPv6) is nobody's business here.
use super::{Action, Plan, TABLE, Traffic, Who};
use netlink::nftables::{
    AddressFamily, Base, Compare, Data, Element, Expression, Field, Hook, Mapped, Meta, Set,
    Transaction, Value, Verdict,
};
use netlink::{NetlinkError, Socket};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;

/// Links whose pods are closed in a direction.
pub type Closed = BTreeSet<(Traffic, String)>;

/// The bridge's rules, as they were written last; `None`: nobody knows.
#[derive(Default)]
pub struct Floods {
    written: Option<Closed>,
    /// The kernel has no packet rules for bridges.
    is_impossible: bool,
}

impl Floods {
    /// All in place of what there was, if that was something else.
    pub fn keep(&mut self, closed: Closed, socket: &mut Socket) {
        if self.is_impossible || self.written.as_ref() == Some(&closed) {
            return;
        }
        if let Err(error) = whole(&closed).commit(socket) {
            self.is_impossible = true;
            tracing::warn!(%error, "broadcasts between pods pass policies: the kernel has no packet rules for bridges");
        }
        self.written = Some(closed);
    }

    /// Whether the kernel has what was written; it is written anew the next time, if not.
    pub fn are_whole(&mut self, socket: &mut Socket) -> Result<bool, NetlinkError> {
        let Some(closed) = self.written.as_ref().filter(|_| !self.is_impossible) else {
            return Ok(true);
        };
        let holds = whole(closed).holds(socket)?;
        if !holds {
            self.written = None;
        }
        Ok(holds)
    }
}

/// Whose links policies close, at least for some.
pub fn closed<'a>(
    plans: impl Iterator<Item = &'a Plan>,
    links: &BTreeMap<IpAddr, String>,
) -> Closed {
    let mut all = Closed::new();
    for plan in plans {
        let isolated = plan.isolated.iter().filter(|(_, profile)| {
            !profile.iter().any(|grant| grant.who == Who::Anyone && grant.ports.is_empty())
        });
        let isolated = isolated.map(|((traffic, address), _)| (*traffic, address));
        let ruled = plan
            .ruled
            .iter()
            .filter(|(_, orders)| orders.iter().any(|order| order.action == Action::Deny));
        let ruled = ruled.map(|((_, traffic, address), _)| (*traffic, address));
        all.extend(
            isolated
                .chain(ruled)
                .filter_map(|(traffic, address)| Some((traffic, links.get(address)?.clone()))),
        );
    }
    all
}

fn whole(closed: &Closed) -> Transaction {
    let mut table = Transaction::of_bridges(AddressFamily::Ipv4, TABLE).recorded();
    table.renew_table();
    for traffic in Traffic::BOTH {
        let (name, key) = (traffic.name(), [Field::Link]);
        table.add_set(&Set { name, key: &key, value: Value::Nothing, dynamic: false });
        let links = closed.iter().filter(|(one, _)| *one == traffic);
        table.add_elements(
            name,
            links.map(|(_, link)| Element { key: Data::new().link(link), value: Mapped::Nothing }),
        );
    }
    let (chain, several) = ("forward", "several");
    table.add_chain(several);
    for (traffic, key) in [(Traffic::Egress, Meta::InputName), (Traffic::Ingress, Meta::OutputName)]
    {
        let rule = [
            Expression::Meta { key, into: 0 },
            Expression::Contains { set: traffic.name(), key: 0 },
            Expression::Verdict(Verdict::Drop),
        ];
        table.add_rule(several, &rule);
    }
    table.add_base_chain(chain, Hook::filter(Hook::FORWARD, 0));
    let judged = || vec![Expression::Verdict(Verdict::goto(several))];
    let rule = [to_several(), Expression::carried(IPV4, 0).to_vec(), judged()];
    table.add_rule(chain, &rule.concat());
    let other = Expression::Compare { register: 0, how: Compare::Other, with: vec![ICMPV6] };
    let other = vec![Expression::Meta { key: Meta::Protocol, into: 0 }, other];
    let rule = [to_several(), Expression::carried(IPV6, 0).to_vec(), other, judged()];
    table.add_rule(chain, &rule.concat());
    table
}

/// The first bit on the wire: for one, or for several.
fn to_several() -> Vec<Expression<'static>> {
    let register = 0;
    vec![
        Expression::Payload { base: Base::Link, offset: 0, length: 1, into: register },
        Expression::Bitwise { register, mask: vec![1], xor: vec![0] },
        Expression::Compare { register, how: Compare::Equal, with: vec![1] },
    ]
}
