//! Makes the kernel's rules what the plan says, by what differs.
//!
//! ```text
//!  forward ─► ingress: known connection? to itself? ── destination ─► number ─► chain of a profile
//!  forward ─► egress:  the same, by the source                                  ├ @pods-3  jump ports-1
//!                                                                               ├ @blocks-2  accept
//!                                                                               └ drop
//! ```
//! Egress and ingress are two chains of the same hook: what one lets through, the other still sees.
//! A pod's address leads to a number, not to a chain, because the kernel walks through every chain
//! that an element leads to whenever one is added.
use super::{FLOWS_GROUP, Grant, Group, Plan, Port, Profile, Ranges, TABLE, Traffic, Which, Who};
use netlink::nftables::{
    AddressFamily, Base, Compare, Data, Direction, Element, Expression, Field, Hook, Mapped, Meta,
    Set, Transaction, Value, Verdict,
};
use netlink::{NetlinkError, Socket};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

type Rule<'a> = Vec<Expression<'a>>;
type Ports = BTreeSet<Port>;

/// The table of the host in whose namespace the socket was opened.
pub struct Firewall {
    socket: Socket,
    families: [Known; 2],
    /// When everything was there last, in the kernel's count of changes.
    generation: Option<u32>,
    /// Rules do not tell of what they drop: the kernel cannot.
    silent: bool,
}

/// What one address family's table holds.
struct Known {
    family: AddressFamily,
    /// Nobody knows what the kernel has: it is written whole.
    is_new: bool,
    plan: Plan,
    names: Names,
    /// What the kernel calls the table that was written.
    handle: Option<u64>,
}

/// The numbers in the names of chains and sets.
#[derive(Debug, Clone, Default)]
struct Names {
    profiles: Numbers<(Traffic, Arc<Profile>)>,
    ports: Numbers<Ports>,
    groups: Numbers<Group>,
    blocks: Numbers<Ranges>,
    named: Numbers<(u8, String)>,
    /// As [`Firewall::silent`].
    silent: bool,
}

impl Firewall {
    pub fn new(socket: Socket) -> Firewall {
        let known = |family| Known {
            family,
            is_new: true,
            plan: Plan::default(),
            names: Names::default(),
            handle: None,
        };
        Firewall {
            socket,
            families: AddressFamily::BOTH.map(known),
            generation: None,
            silent: false,
        }
    }

    /// Each address family's rules change at once or not at all. The first time they replace what
    /// an earlier process left.
    pub fn apply(&mut self, plan: impl Fn(AddressFamily) -> Plan) -> Result<(), NetlinkError> {
        for known in &mut self.families {
            let plan = plan(known.family);
            if !known.is_new && plan == known.plan {
                continue;
            }
            let new_names = |silent| Names { silent, ..Names::default() };
            let mut names = if known.is_new { new_names(self.silent) } else { known.names.clone() };
            let nothing = Plan::default();
            let before = if known.is_new { &nothing } else { &known.plan };
            let table = Transaction::new(known.family, TABLE);
            let table = change(table, known.family, known.is_new, before, &plan, &mut names);
            let mut committed = table.commit(&mut self.socket);
            if committed.is_err() && known.is_new && !self.silent {
                names = new_names(true);
                let table = Transaction::new(known.family, TABLE);
                let table = change(table, known.family, true, before, &plan, &mut names);
                committed = table.commit(&mut self.socket);
                self.silent = committed.is_ok();
            }
            let was_new = std::mem::replace(&mut known.is_new, committed.is_err());
            (known.plan, known.names) = (plan, names);
            committed?;
            if was_new {
                known.handle = self.socket.table(known.family, TABLE)?;
            }
        }
        Ok(())
    }

    /// Whether what was written is still there; it is written whole the next time, if not. `wholly`:
    /// every rule and element is looked at, not only whether it is the same table.
    pub fn is_whole(&mut self, wholly: bool) -> Result<bool, NetlinkError> {
        let generation = Some(self.socket.generation()?);
        if generation == self.generation {
            return Ok(true);
        }
        let mut is_whole = true;
        for known in self.families.iter_mut().filter(|known| !known.is_new) {
            let handle = self.socket.table(known.family, TABLE)?;
            let mut holds = handle.is_some() && handle == known.handle;
            if holds && wholly {
                let (nothing, mut names) = (Plan::default(), known.names.clone());
                let table = Transaction::new(known.family, TABLE).recorded();
                let table = change(table, known.family, true, &nothing, &known.plan, &mut names);
                holds = table.holds(&mut self.socket)?;
            }
            known.is_new = !holds;
            is_whole &= holds;
        }
        if is_whole && wholly {
            self.generation = generation;
        }
        Ok(is_whole)
    }
}

/// Numbers that are given once, for as long as something is there.
#[derive(Debug, Clone)]
struct Numbers<K> {
    given: BTreeMap<K, u32>,
    next: u32,
}

type Numbered<K> = Vec<(K, u32)>;

impl<K> Default for Numbers<K> {
    fn default() -> Numbers<K> {
        Numbers { given: BTreeMap::new(), next: 1 }
    }
}

impl<K: Ord + Clone> Numbers<K> {
    fn of(&self, key: &K) -> u32 {
        self.given.get(key).copied().unwrap_or_default()
    }

    /// From now on these are there: who has come, and who has gone with which number. All have come
    /// where nothing was before; those that had a number keep it.
    fn settle(&mut self, now: &BTreeSet<K>, is_new: bool) -> (Numbered<K>, Numbered<K>) {
        let (mut come, mut gone) = (Vec::new(), Vec::new());
        self.given.retain(|key, number| {
            let stays = now.contains(key);
            if !stays {
                gone.push((key.clone(), *number));
            }
            stays
        });
        for key in now {
            if !self.given.contains_key(key) {
                self.given.insert(key.clone(), self.next);
                come.push((key.clone(), self.next));
                self.next += 1;
            }
        }
        if is_new {
            let all = self.given.iter().map(|(key, number)| (key.clone(), *number)).collect();
            return (all, Vec::new());
        }
        (come, gone)
    }
}

const ITSELF: &str = "itself";

/// What leads to a profile's chain.
fn profiles_name(traffic: Traffic) -> &'static str {
    match traffic {
        Traffic::Ingress => "ingress-profiles",
        Traffic::Egress => "egress-profiles",
    }
}

fn change(
    mut table: Transaction,
    family: AddressFamily,
    is_new: bool,
    before: &Plan,
    after: &Plan,
    names: &mut Names,
) -> Transaction {
    if is_new {
        table.renew_table();
        add_frame(&mut table, family);
    }
    let profiles: BTreeSet<_> =
        after.isolated.iter().map(|((traffic, _), profile)| (*traffic, profile.clone())).collect();
    let grants = || profiles.iter().flat_map(|(_, profile)| profile.iter());
    let ports: BTreeSet<Ports> =
        grants().filter(|one| !one.ports.is_empty()).map(|one| one.ports.clone()).collect();
    let blocks: BTreeSet<Ranges> = grants()
        .filter_map(|grant| match &grant.who {
            Who::Blocks(ranges) => Some(ranges.clone()),
            Who::Anyone | Who::Pods(_) => None,
        })
        .collect();
    let groups = after.groups.keys().cloned().collect();
    let (come_groups, gone_groups) = names.groups.settle(&groups, is_new);
    let (come_blocks, gone_blocks) = names.blocks.settle(&blocks, is_new);
    let named = after.named.keys().cloned().collect();
    let (come_named, gone_named) = names.named.settle(&named, is_new);
    let (come_ports, gone_ports) = names.ports.settle(&ports, is_new);
    let (come_profiles, gone_profiles) = names.profiles.settle(&profiles, is_new);

    let mut add_set = |name: String, key: &[Field]| {
        table.add_set(&Set { name: &name, key, value: Value::Nothing, dynamic: false });
    };
    for (_, number) in &come_groups {
        add_set(format!("pods-{number}"), &[Field::Address]);
    }
    for (_, number) in &come_named {
        add_set(format!("named-{number}"), &[Field::Address, Field::Protocol, Field::Port]);
    }
    for (ranges, number) in &come_blocks {
        let name = format!("blocks-{number}");
        table.add_range_set(&name, Field::Address);
        let at = |address| Data::new().address(address);
        table.add_ranges(&name, ranges.iter().map(|(first, end)| (at(first), end.map(at))));
    }
    for (ports, number) in &come_ports {
        add_ports(&mut table, family, &format!("ports-{number}"), ports, names);
    }
    for ((traffic, profile), number) in &come_profiles {
        add_profile(&mut table, &chain_name(*traffic, *number), *traffic, profile, names);
        let key = Data::new().number(*number);
        let value = Mapped::Verdict(Verdict::goto(chain_name(*traffic, *number)));
        table.add_elements(profiles_name(*traffic), [Element { key, value }]);
    }

    for (group, number) in &names.groups.given {
        let name = format!("pods-{number}");
        let key = |address: &IpAddr| Data::new().address(*address);
        exchange(&mut table, &name, before.groups.get(group), after.groups.get(group), key);
    }
    for (port, number) in &names.named.given {
        let name = format!("named-{number}");
        let key = |(address, number): &(IpAddr, u16)| {
            Data::new().address(*address).protocol(port.0).port(*number)
        };
        exchange(&mut table, &name, before.named.get(port), after.named.get(port), key);
    }
    let themselves = |plan: &Plan| -> BTreeSet<IpAddr> {
        plan.isolated.keys().map(|(_, address)| *address).collect()
    };
    let pair = |address: &IpAddr| Data::new().address(*address).address(*address);
    exchange(&mut table, ITSELF, Some(&themselves(before)), Some(&themselves(after)), pair);
    for traffic in Traffic::BOTH {
        let of = |plan: &Plan| -> BTreeMap<IpAddr, Arc<Profile>> {
            let all = plan.isolated.iter().filter(|((one, _), _)| *one == traffic);
            all.map(|((_, address), profile)| (*address, profile.clone())).collect()
        };
        let (was, is) = (of(before), of(after));
        let key = |address: &IpAddr| Data::new().address(*address);
        let gone = was.iter().filter(|(address, profile)| is.get(*address) != Some(profile));
        table.remove_elements(traffic.name(), gone.map(|(address, _)| key(address)));
        let come = is.iter().filter(|(address, profile)| was.get(*address) != Some(profile));
        let come = come.map(|(address, profile)| Element {
            key: key(address),
            value: Mapped::Data(Data::new().number(names.profiles.of(&(traffic, profile.clone())))),
        });
        table.add_elements(traffic.name(), come);
    }

    for ((traffic, _), number) in &gone_profiles {
        table.remove_elements(profiles_name(*traffic), [Data::new().number(*number)]);
        table.remove_chain(&chain_name(*traffic, *number));
    }
    for (ports, number) in &gone_ports {
        table.remove_chain(&format!("ports-{number}"));
        if singles(ports).next().is_some() {
            table.remove_set(&format!("ports-{number}"));
        }
    }
    let gone = gone_groups.iter().map(|(_, number)| format!("pods-{number}"));
    let gone = gone.chain(gone_blocks.iter().map(|(_, number)| format!("blocks-{number}")));
    for name in gone.chain(gone_named.iter().map(|(_, number)| format!("named-{number}"))) {
        table.remove_set(&name);
    }
    table
}

/// From one content of a set to another.
fn exchange<T: Ord>(
    table: &mut Transaction,
    set: &str,
    before: Option<&BTreeSet<T>>,
    after: Option<&BTreeSet<T>>,
    key: impl Fn(&T) -> Data,
) {
    let nothing = BTreeSet::new();
    let (before, after) = (before.unwrap_or(&nothing), after.unwrap_or(&nothing));
    table.remove_elements(set, before.difference(after).map(&key));
    let come = after.difference(before);
    table.add_elements(set, come.map(|one| Element { key: key(one), value: Mapped::Nothing }));
}

fn chain_name(traffic: Traffic, number: u32) -> String {
    format!("{}-{number}", traffic.name())
}

fn accept() -> Expression<'static> {
    Expression::Verdict(Verdict::Accept)
}

fn add_profile(
    table: &mut Transaction,
    name: &str,
    traffic: Traffic,
    profile: &Profile,
    names: &Names,
) {
    let which = match traffic {
        Traffic::Ingress => Direction::Source,
        Traffic::Egress => Direction::Destination,
    };
    table.add_chain(name);
    for Grant { who, ports } in profile {
        let set = match who {
            Who::Anyone => None,
            Who::Pods(group) => Some(format!("pods-{}", names.groups.of(group))),
            Who::Blocks(ranges) => Some(format!("blocks-{}", names.blocks.of(ranges))),
        };
        let mut rule: Rule<'_> = Vec::new();
        if let Some(set) = &set {
            rule.push(Expression::Address { which, into: 0 });
            rule.push(Expression::Contains { set, key: 0 });
        }
        rule.push(match ports.is_empty() {
            true => accept(),
            false => {
                let chain = format!("ports-{}", names.ports.of(ports));
                Expression::Verdict(Verdict::Jump(chain))
            }
        });
        table.add_rule(name, &rule);
    }
    if !names.silent {
        // Nobody hears of it, and it costs nothing, until somebody listens.
        let told = Expression::Log { group: FLOWS_GROUP, prefix: name };
        table.add_rule(name, &[Expression::Limit { per_second: 10, burst: 20 }, told]);
    }
    table.add_rule(name, &[Expression::Verdict(Verdict::Drop)]);
}

/// Ports that are one number.
fn singles(ports: &Ports) -> impl Iterator<Item = (u8, u16)> {
    ports.iter().filter_map(|port| match port.which {
        Which::Numbers(first, last) if first == last => Some((port.protocol, first)),
        _ => None,
    })
}

/// A chain that accepts what is for one of the ports, with a set of those that are one number.
fn add_ports(
    table: &mut Transaction,
    family: AddressFamily,
    name: &str,
    ports: &Ports,
    names: &Names,
) {
    table.add_chain(name);
    let address = family.registers();
    let number = |into| Expression::Payload { base: Base::Transport, offset: 2, length: 2, into };
    if singles(ports).next().is_some() {
        let key = [Field::Protocol, Field::Port];
        table.add_set(&Set { name, key: &key, value: Value::Nothing, dynamic: false });
        let all = singles(ports).map(|(protocol, port)| Element {
            key: Data::new().protocol(protocol).port(port),
            value: Mapped::Nothing,
        });
        table.add_elements(name, all);
        let protocol = Expression::Meta { key: Meta::Protocol, into: 0 };
        let rule = [protocol, number(1), Expression::Contains { set: name, key: 0 }, accept()];
        table.add_rule(name, &rule);
    }
    for port in ports {
        let of_protocol = Expression::protocol(port.protocol, 0).to_vec();
        match &port.which {
            Which::Any => table.add_rule(name, &[of_protocol, vec![accept()]].concat()),
            Which::Numbers(first, last) if first == last => {}
            Which::Numbers(first, last) => {
                let compare = |how, with: u16| Expression::Compare {
                    register: 0,
                    how,
                    with: with.to_be_bytes().to_vec(),
                };
                let (from, to) =
                    (compare(Compare::AtLeast, *first), compare(Compare::AtMost, *last));
                table.add_rule(name, &[of_protocol, vec![number(0), from, to, accept()]].concat());
            }
            Which::Named(text) => {
                let key = (port.protocol, text.clone());
                let set = format!("named-{}", names.named.of(&key));
                let rule = [
                    Expression::Address { which: Direction::Destination, into: 0 },
                    Expression::Meta { key: Meta::Protocol, into: address },
                    number(address + 1),
                    Expression::Contains { set: &set, key: 0 },
                    accept(),
                ];
                table.add_rule(name, &rule);
            }
        }
    }
}

/// The table with everything but what policies bring.
fn add_frame(table: &mut Transaction, family: AddressFamily) {
    let (address, number) = ([Field::Address], [Field::Number]);
    let pair = [Field::Address, Field::Address];
    table.add_set(&Set { name: ITSELF, key: &pair, value: Value::Nothing, dynamic: false });
    for traffic in Traffic::BOTH {
        let (which, priority) = match traffic {
            Traffic::Egress => (Direction::Source, -2),
            Traffic::Ingress => (Direction::Destination, -1),
        };
        let (name, profiles) = (traffic.name(), profiles_name(traffic));
        let value = Value::Fields(&number);
        table.add_set(&Set { name, key: &address, value, dynamic: false });
        table.add_set(&Set { name: profiles, key: &number, value: Value::Verdict, dynamic: false });
        table.add_base_chain(name, Hook::filter(Hook::FORWARD, priority));
        let known = Expression::known_connection(0).to_vec();
        table.add_rule(name, &[known, vec![accept()]].concat());
        // By way of a service: no policy keeps a pod from itself.
        let itself = [
            Expression::Address { which: Direction::Source, into: 0 },
            Expression::Address { which: Direction::Destination, into: family.registers() },
            Expression::Contains { set: ITSELF, key: 0 },
            accept(),
        ];
        table.add_rule(name, &itself);
        let into = family.registers();
        let look = [
            Expression::Address { which, into: 0 },
            Expression::Map { map: name, key: 0, into },
            Expression::VerdictMap { map: profiles, key: into },
        ];
        table.add_rule(name, &look);
    }
}
