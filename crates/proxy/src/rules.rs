//! The rules around the maps. Registers are the same in all of them: source address, destination,
//! protocol, port, and then the endpoint's number, or its address and port. So each key lies where
//! it is needed, and even IPv6 fits into the sixteen there are.
use crate::Config;
use crate::tables::{Chain, LOCAL, Network, Policy};
use netlink::nftables::{
    AddressFamily, Base, Compare, Data, Direction, Expression, Field, Hook, Meta, Set, Transaction,
    Value, Verdict,
};
use std::net::Ipv4Addr;

pub const SERVICES: &str = "services";
pub const ENDPOINTS: &str = "endpoints";
pub const STICKY: &str = "sticky";
pub const CLIENTS: &str = "clients";
pub const REFUSED: &str = "refused";
pub const HAIRPIN: &str = "hairpin";
pub const REJECT: &str = "reject";
/// Frontends that not everybody may use.
pub const GUARDED: &str = "guarded";

/// Upstream's mark of what is to be masqueraded (`pkg/proxy/nftables/proxier.go`).
const MASQUERADE: u32 = 0x4000;

const TCP: u8 = 6;

type Rule = Vec<Expression<'static>>;

/// Where one of a list of endpoints is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Choice {
    local: bool,
    endpoints: u32,
    affinity: Option<u32>,
    node_port: bool,
}

impl Chain {
    pub fn name(&self) -> String {
        let count = match self.policy {
            Policy::Internal => format!("internal-{}", self.endpoints),
            Policy::External => format!("external-{}", self.endpoints),
            Policy::ExternalLocal { local } => format!("local-{local}-of-{}", self.endpoints),
        };
        format!("{count}{}", suffix(self.node_port, self.affinity))
    }

    pub fn any(&self) -> Choice {
        let Chain { endpoints, affinity, node_port, .. } = *self;
        Choice { local: false, endpoints, affinity, node_port }
    }

    pub fn near(&self) -> Option<Choice> {
        match self.policy {
            Policy::ExternalLocal { local } if local > 0 => {
                Some(Choice { local: true, endpoints: local, ..self.any() })
            }
            _ => None,
        }
    }

    pub fn rules(&self, config: &Config, family: AddressFamily) -> Vec<Rule> {
        let mark = Expression::mark(MASQUERADE, 0, 0).to_vec();
        let any = goto(&self.any().name());
        let of_family =
            config.cluster_cidrs.iter().filter(|(a, _)| AddressFamily::of(*a) == family);
        let pods = |how| {
            let network = move |(address, prefix): &(_, u8)| {
                Expression::network(Direction::Source, how, *address, *prefix, 0)
            };
            of_family.clone().map(network).collect::<Vec<_>>()
        };
        match self.policy {
            Policy::Internal if config.masquerade_all => vec![mark, any],
            Policy::Internal => {
                // Who is in none of the networks; without any, nobody can be told from a pod.
                let elsewhere = pods(Compare::Other).concat();
                match elsewhere.is_empty() {
                    true => vec![any],
                    false => vec![[elsewhere, mark].concat(), any],
                }
            }
            Policy::External => vec![mark, any],
            Policy::ExternalLocal { .. } => {
                let mut rules: Vec<Rule> = Vec::new();
                rules.extend(
                    pods(Compare::Equal).into_iter().map(|pod| [pod, any.clone()].concat()),
                );
                let here = Expression::local(Direction::Source, Compare::Equal, 0).to_vec();
                rules.push([here, mark, any].concat());
                rules.push(match self.near() {
                    Some(near) => goto(&near.name()),
                    None => vec![Expression::Verdict(Verdict::Drop)],
                });
                rules
            }
        }
    }
}

impl Choice {
    pub fn name(&self) -> String {
        let list = if self.local { "near" } else { "any" };
        format!("{list}-{}{}", self.endpoints, suffix(self.node_port, self.affinity))
    }

    pub fn rules(&self, family: AddressFamily) -> Vec<Rule> {
        let address = family.registers();
        let (key, endpoint, port) = (address, 2 * address + 2, 3 * address + 2);
        let load = frontend(family, self.node_port);
        let go = Expression::DestinationNat { address: endpoint, port };
        let offset = if self.local { LOCAL } else { 0 };
        let choose = |modulus: u32| {
            vec![
                Expression::Random { into: endpoint, modulus, offset },
                Expression::Map { map: ENDPOINTS, key, into: endpoint },
            ]
        };
        // The list may become shorter between two looks of one packet: then there is no such number,
        // and it goes to the first. Whoever passed without an endpoint would do so ever after, the
        // connection being known; who is dropped asks again.
        let numbers = [self.endpoints, 1];
        let drop = vec![Expression::Verdict(Verdict::Drop)];
        let Some(seconds) = self.affinity else {
            let each = |count| [load.clone(), choose(count), vec![go.clone()]].concat();
            return numbers.map(each).into_iter().chain([drop]).collect();
        };
        let client = vec![Expression::Address { which: Direction::Source, into: 0 }];
        // Each visit prolongs the memory of it.
        let stay =
            vec![Expression::Remember { map: CLIENTS, key: 0, value: endpoint, seconds }, go];
        let again = vec![
            Expression::Map { map: CLIENTS, key: 0, into: endpoint },
            // The endpoint may be gone since.
            Expression::Contains { set: STICKY, key },
        ];
        let first = [client.clone(), load.clone(), again, stay.clone()].concat();
        let each = |count| [client.clone(), load.clone(), choose(count), stay.clone()].concat();
        [first].into_iter().chain(numbers.map(each)).chain([drop]).collect()
    }
}

fn suffix(node_port: bool, affinity: Option<u32>) -> String {
    let node = if node_port { "-node" } else { "" };
    affinity.map_or_else(|| node.to_owned(), |seconds| format!("{node}-sticky-{seconds}"))
}

fn goto(chain: &str) -> Rule {
    vec![Expression::Verdict(Verdict::goto(chain))]
}

/// Puts the frontend that a packet is for into registers.
fn frontend(family: AddressFamily, node_port: bool) -> Rule {
    let address = family.registers();
    let (into, unspecified) = (address, Data(vec![0; usize::from(address) * 4]));
    vec![
        match node_port {
            true => Expression::Immediate { into, value: unspecified },
            false => Expression::Address { which: Direction::Destination, into },
        },
        Expression::Meta { key: Meta::Protocol, into: 2 * address },
        Expression::Payload { base: Base::Transport, offset: 2, length: 2, into: 2 * address + 1 },
    ]
}

/// The table with everything but what services bring.
pub fn add_frame(table: &mut Transaction, config: &Config, family: AddressFamily) {
    let frontend_key = [Field::Address, Field::Protocol, Field::Port];
    let numbered = [Field::Address, Field::Protocol, Field::Port, Field::Number];
    let target = [Field::Address, Field::Port];
    let sticky = [Field::Address, Field::Protocol, Field::Port, Field::Address, Field::Port];
    let client = [Field::Address, Field::Address, Field::Protocol, Field::Port];
    let pair = [Field::Address, Field::Address];
    for (name, key, value) in [
        (SERVICES, &frontend_key[..], Value::Verdict),
        (REFUSED, &frontend_key[..], Value::Verdict),
        (GUARDED, &frontend_key[..], Value::Verdict),
        (ENDPOINTS, &numbered[..], Value::Fields(&target)),
        (STICKY, &sticky[..], Value::Nothing),
        (CLIENTS, &client[..], Value::Fields(&target)),
        (HAIRPIN, &pair[..], Value::Nothing),
    ] {
        table.add_set(&Set { name, key, value, dynamic: name == CLIENTS });
    }
    let jump = |chain: &str| vec![Expression::Verdict(Verdict::Jump(chain.to_owned()))];
    let new = Expression::new_connection(0).to_vec();
    table.add_chain(REJECT);
    // A reset is not rationed as ICMP is, where every second client would wait for a second.
    let reset = [Expression::protocol(TCP, 0).to_vec(), vec![Expression::RejectTcp]];
    table.add_rule(REJECT, &reset.concat());
    table.add_rule(REJECT, &[Expression::Reject]);
    for (map, hooks) in [
        (SERVICES, vec![Hook::nat(Hook::PREROUTING, -100), Hook::nat(Hook::OUTPUT, -100)]),
        (
            REFUSED,
            // Before destinations are changed, as upstream does it.
            [Hook::INPUT, Hook::FORWARD, Hook::OUTPUT].map(|at| Hook::filter(at, -110)).to_vec(),
        ),
        // Whom a guard keeps out is not told that there is nobody either.
        (GUARDED, [Hook::PREROUTING, Hook::OUTPUT].map(|at| Hook::filter(at, -111)).to_vec()),
    ] {
        table.add_chain(map);
        let look = vec![Expression::VerdictMap { map, key: family.registers() }];
        table.add_rule(map, &[frontend(family, false), look.clone()].concat());
        // Guards stand before addresses of load balancers only.
        let node_ports = if map == GUARDED { Vec::new() } else { node_addresses(config, family) };
        for here in node_ports {
            table.add_rule(map, &[here, frontend(family, true), look.clone()].concat());
        }
        for hook in hooks {
            let name = format!("{map}-{}", hook.number);
            table.add_base_chain(&name, hook);
            table.add_rule(&name, &[new.clone(), jump(map)].concat());
        }
    }
    let chain = "postrouting";
    table.add_base_chain(chain, Hook::nat(Hook::POSTROUTING, 100));
    let marked = Expression::marked(MASQUERADE, 0).to_vec();
    let clear = Expression::mark(0, MASQUERADE, 0).to_vec();
    let masquerade = vec![Expression::Masquerade];
    table.add_rule(chain, &[marked, clear, masquerade.clone()].concat());
    let itself = vec![
        Expression::Address { which: Direction::Source, into: 0 },
        Expression::Address { which: Direction::Destination, into: family.registers() },
        Expression::Contains { set: HAIRPIN, key: 0 },
    ];
    let changed = Expression::destination_changed(0).to_vec();
    table.add_rule(chain, &[changed, itself, masquerade].concat());
}

/// What says that a packet is for an address of this node that has node ports.
fn node_addresses(config: &Config, family: AddressFamily) -> Vec<Rule> {
    let mut here = Expression::local(Direction::Destination, Compare::Equal, 0).to_vec();
    if family == AddressFamily::Ipv4 {
        // Packets to 127.0.0.1 cannot leave with that source, unless the kernel is told to.
        let loopback = Ipv4Addr::new(127, 0, 0, 0).into();
        here.extend(Expression::network(Direction::Destination, Compare::Other, loopback, 8, 0));
    }
    if config.node_port_addresses.is_empty() {
        return vec![here];
    }
    let of_family = |network: &&Network| AddressFamily::of(network.0) == family;
    let networks = config.node_port_addresses.iter().filter(of_family);
    let within = |(address, prefix): &Network| {
        Expression::network(Direction::Destination, Compare::Equal, *address, *prefix, 0)
    };
    networks.map(|network| [here.clone(), within(network)].concat()).collect()
}

/// The chain that lets only these in. Its name is a hash of them (FNV-1a): names have an end.
pub fn guard_name(allowed: &[Network]) -> String {
    let text: String =
        allowed.iter().map(|(address, prefix)| format!("{address}/{prefix} ")).collect();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("only-{hash:016x}")
}

pub fn guard_rules(allowed: &[Network], family: AddressFamily) -> Vec<Rule> {
    let of_family = allowed.iter().filter(|(address, _)| AddressFamily::of(*address) == family);
    let pass = |(address, prefix): &Network| {
        let from = Expression::network(Direction::Source, Compare::Equal, *address, *prefix, 0);
        [from, vec![Expression::Verdict(Verdict::Return)]].concat()
    };
    let drop = vec![Expression::Verdict(Verdict::Drop)];
    of_family.map(pass).chain([drop]).collect()
}

pub fn add_chain(table: &mut Transaction, name: &str, rules: Vec<Rule>) {
    table.add_chain(name);
    rules.iter().for_each(|rule| table.add_rule(name, rule));
}
