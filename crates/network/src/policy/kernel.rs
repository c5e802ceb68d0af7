//! Makes the kernel's rules what the plan says, by what differs.
//!
//! ```text
//!  forward ─► ingress: known connection? to itself?
//!              ├ destination ─► number ─► ingress-admin-4 ── @group-2  jump ports-3, deny-1 …
//!              ├ destination ─► number ─► ingress-5          ├ @group-3  jump ports-1
//!              │                                             ├ @blocks-2  accept
//!              │                                             └ drop
//!              └ destination ─► number ─► ingress-baseline-6, as the first
//!  forward ─► egress:  the same, by the source
//!  input ─► egress-to-node: what pods send to the node itself, which only policies of the cluster judge
//! ```
//! Egress and ingress are two chains of the same hook: what one lets through, the other still sees.
//! A pod's address leads to a number, not to a chain, because the kernel walks through every chain
//! that an element leads to whenever one is added.
//!
//! A list of the cluster's may be left from a chain of ports, two calls deep. So who leaves it for the
//! next tier goes there and never comes back: everything behind ends with a verdict.
use super::flood::{self, Floods};
use super::{
    Action, FLOWS_GROUP, Grant, Group, Order, Plan, Port, Profile, Ranges, TABLE, Tier, Traffic,
    Which, Who,
};
use netlink::nftables::{
    AddressFamily, Base, Compare, Data, Direction, Element, Expression, Field, Hook, Mapped, Meta,
    Set, Transaction, Value, Verdict, Written, all_stand,
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
    floods: Floods,
    /// When everything was there last, in the kernel's count of changes.
    generation: Option<u32>,
    /// Rules do not tell of what they drop: the kernel cannot.
    silent: bool,
}

/// What one address family's table holds.
struct Known {
    written: Written,
    plan: Plan,
    names: Names,
}

/// What a chain of ports does with what it knows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Then {
    Accept,
    Deny(Traffic, Arc<str>),
    Pass(Traffic, Tier),
}

type Orders = Arc<Vec<Order>>;

/// The numbers in the names of chains and sets.
#[derive(Debug, Clone, Default)]
struct Names {
    profiles: Numbers<(Traffic, Arc<Profile>)>,
    orders: Numbers<(Tier, Traffic, Orders)>,
    ports: Numbers<(Ports, Then)>,
    /// Where packets end that somebody's policy denies.
    denials: Numbers<(Traffic, Arc<str>)>,
    groups: Numbers<Group>,
    blocks: Numbers<Ranges>,
    named: Numbers<(u8, String)>,
    /// As [`Firewall::silent`].
    silent: bool,
}

impl Firewall {
    pub fn new(socket: Socket) -> Firewall {
        let known = |family| Known {
            written: Written::new(family, TABLE),
            plan: Plan::default(),
            names: Names::default(),
        };
        Firewall {
            socket,
            families: AddressFamily::BOTH.map(known),
            floods: Floods::default(),
            generation: None,
            silent: false,
        }
    }

    /// Each address family's rules change at once or not at all. The first time they replace what
    /// an earlier process left.
    pub fn apply(&mut self, plan: impl Fn(AddressFamily) -> Plan) -> Result<(), NetlinkError> {
        for known in &mut self.families {
            let (family, is_new) = (known.written.family, known.written.is_new());
            let plan = plan(family);
            if !is_new && plan == known.plan {
                continue;
            }
            let new_names = |silent| Names { silent, ..Names::default() };
            let mut names = if is_new { new_names(self.silent) } else { known.names.clone() };
            let nothing = Plan::default();
            let before = if is_new { &nothing } else { &known.plan };
            let table = known.written.transaction();
            let table = change(table, family, is_new, before, &plan, &mut names);
            let mut committed = known.written.commit(table, &mut self.socket);
            if committed.is_err() && is_new && !self.silent {
                names = new_names(true);
                let table = known.written.transaction();
                let table = change(table, family, true, before, &plan, &mut names);
                committed = known.written.commit(table, &mut self.socket);
                self.silent = committed.is_ok();
            }
            (known.plan, known.names) = (plan, names);
            committed?;
        }
        Ok(())
    }

    /// What the bridge hands to everybody passes those by whom policies close: these have these links.
    pub fn close(&mut self, links: &BTreeMap<IpAddr, String>) {
        let plans = self.families.iter().map(|known| &known.plan);
        self.floods.keep(flood::closed(plans, links), &mut self.socket);
    }

    /// As [`all_stand`].
    pub fn is_whole(&mut self, wholly: bool) -> Result<bool, NetlinkError> {
        let whole = |known: &Known, table| {
            let (nothing, mut names) = (Plan::default(), known.names.clone());
            change(table, known.written.family, true, &nothing, &known.plan, &mut names)
        };
        let Firewall { socket, families, generation, floods, .. } = self;
        let before = *generation;
        let stand =
            all_stand(families, |known| &mut known.written, whole, wholly, generation, socket)?;
        // Nothing has changed since everything was there.
        if !wholly || (before.is_some() && before == *generation) {
            return Ok(stand);
        }
        Ok(floods.are_whole(socket)? && stand)
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

/// Where a packet is looked at: in a tier of the cluster's policies, or between them.
type Stage = Option<Tier>;

const STAGES: [Stage; 3] = [Some(Tier::Admin), None, Some(Tier::Baseline)];

/// How what belongs to a stage is called; the map that gives addresses their numbers is called so.
fn stage_name(stage: Stage, traffic: Traffic) -> String {
    match stage {
        Some(tier) => format!("{}-{}", traffic.name(), tier.name()),
        None => traffic.name().to_owned(),
    }
}

/// What leads from a number to a chain.
fn profiles_name(stage: Stage, traffic: Traffic) -> String {
    format!("{}-profiles", stage_name(stage, traffic))
}

fn chain_name(stage: Stage, traffic: Traffic, number: u32) -> String {
    format!("{}-{number}", stage_name(stage, traffic))
}

/// Where who has passed a tier goes.
fn next_name(tier: Tier, traffic: Traffic) -> Option<String> {
    match tier {
        Tier::Admin => Some(format!("{}-next", traffic.name())),
        Tier::Baseline => None,
    }
}

impl Names {
    fn verdict(&self, then: &Then) -> Verdict {
        match then {
            Then::Accept => Verdict::Accept,
            Then::Deny(traffic, by) => {
                Verdict::goto(deny_name(*traffic, self.denials.of(&(*traffic, by.clone()))))
            }
            // Whom nobody denies anything may go.
            Then::Pass(traffic, tier) => {
                next_name(*tier, *traffic).map_or(Verdict::Accept, Verdict::goto)
            }
        }
    }
}

fn deny_name(traffic: Traffic, number: u32) -> String {
    format!("{}-deny-{number}", traffic.name())
}

fn then(order: &Order, tier: Tier, traffic: Traffic) -> Then {
    match order.action {
        Action::Accept => Then::Accept,
        Action::Deny => Then::Deny(traffic, order.by.clone()),
        Action::Pass => Then::Pass(traffic, tier),
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
    let orders: BTreeSet<_> = (after.ruled.iter())
        .map(|((tier, traffic, _), orders)| (*tier, *traffic, orders.clone()))
        .collect();
    let granted = profiles.iter().flat_map(|(_, profile)| profile.iter());
    let ordered = || {
        let each = |(tier, traffic, orders): &'_ (Tier, Traffic, Orders)| {
            let all =
                orders.iter().map(|order| (order.about.clone(), then(order, *tier, *traffic)));
            all.collect::<Vec<_>>()
        };
        orders.iter().flat_map(each)
    };
    let said: Vec<(Grant, Then)> =
        granted.map(|grant| (grant.clone(), Then::Accept)).chain(ordered()).collect();
    let ports: BTreeSet<(Ports, Then)> = said
        .iter()
        .filter(|(one, _)| !one.ports.is_empty())
        .map(|(one, then)| (one.ports.clone(), then.clone()))
        .collect();
    let blocks: BTreeSet<Ranges> = said
        .iter()
        .filter_map(|(grant, _)| match &grant.who {
            Who::Blocks(ranges) => Some(ranges.clone()),
            Who::Anyone | Who::Group(_) => None,
        })
        .collect();
    let denials: BTreeSet<(Traffic, Arc<str>)> = said
        .iter()
        .filter_map(|(_, then)| match then {
            Then::Deny(traffic, by) => Some((*traffic, by.clone())),
            Then::Accept | Then::Pass(..) => None,
        })
        .collect();
    let groups = after.groups.keys().cloned().collect();
    let (come_groups, gone_groups) = names.groups.settle(&groups, is_new);
    let (come_blocks, gone_blocks) = names.blocks.settle(&blocks, is_new);
    let named = after.named.keys().cloned().collect();
    let (come_named, gone_named) = names.named.settle(&named, is_new);
    let (come_denials, gone_denials) = names.denials.settle(&denials, is_new);
    let (come_ports, gone_ports) = names.ports.settle(&ports, is_new);
    let (come_profiles, gone_profiles) = names.profiles.settle(&profiles, is_new);
    let (come_orders, gone_orders) = names.orders.settle(&orders, is_new);

    let mut add_set = |name: String, key: &[Field]| {
        table.add_set(&Set { name: &name, key, value: Value::Nothing, dynamic: false });
    };
    for (_, number) in &come_groups {
        add_set(format!("group-{number}"), &[Field::Address]);
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
    for ((traffic, by), number) in &come_denials {
        let name = deny_name(*traffic, *number);
        table.add_chain(&name);
        add_drop(&mut table, &name, &told_by(*traffic, by), names);
    }
    for ((ports, then), number) in &come_ports {
        let verdict = names.verdict(then);
        add_ports(&mut table, family, &format!("ports-{number}"), ports, &verdict, names);
    }
    for ((traffic, profile), number) in &come_profiles {
        let name = chain_name(None, *traffic, *number);
        table.add_chain(&name);
        for grant in profile.iter() {
            add_match(&mut table, &name, *traffic, grant, &Then::Accept, names);
        }
        add_drop(&mut table, &name, &name, names);
        lead(&mut table, None, *traffic, *number);
    }
    for ((tier, traffic, orders), number) in &come_orders {
        let name = chain_name(Some(*tier), *traffic, *number);
        table.add_chain(&name);
        for order in orders.iter() {
            let then = then(order, *tier, *traffic);
            add_match(&mut table, &name, *traffic, &order.about, &then, names);
        }
        let end = names.verdict(&Then::Pass(*traffic, *tier));
        table.add_rule(&name, &[Expression::Verdict(end)]);
        lead(&mut table, Some(*tier), *traffic, *number);
    }

    for (group, number) in &names.groups.given {
        let name = format!("group-{number}");
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
        let isolated = plan.isolated.keys().map(|(_, address)| *address);
        isolated.chain(plan.ruled.keys().map(|(_, _, address)| *address)).collect()
    };
    let pair = |address: &IpAddr| Data::new().address(*address).address(*address);
    exchange(&mut table, ITSELF, Some(&themselves(before)), Some(&themselves(after)), pair);
    for traffic in Traffic::BOTH {
        let of = |plan: &Plan| -> BTreeMap<IpAddr, Arc<Profile>> {
            let all = plan.isolated.iter().filter(|((one, _), _)| *one == traffic);
            all.map(|((_, address), profile)| (*address, profile.clone())).collect()
        };
        let number = |profile: &Arc<Profile>| names.profiles.of(&(traffic, profile.clone()));
        point(&mut table, None, traffic, &of(before), &of(after), number);
        for tier in Tier::BOTH {
            let of = |plan: &Plan| -> BTreeMap<IpAddr, Orders> {
                let all = plan.ruled.iter();
                let all = all.filter(|((one, other, _), _)| (*one, *other) == (tier, traffic));
                all.map(|((_, _, address), orders)| (*address, orders.clone())).collect()
            };
            let number = |orders: &Orders| names.orders.of(&(tier, traffic, orders.clone()));
            point(&mut table, Some(tier), traffic, &of(before), &of(after), number);
        }
    }

    let profiles = gone_profiles.iter().map(|((traffic, _), number)| (None, *traffic, *number));
    let orders =
        gone_orders.iter().map(|((tier, traffic, _), number)| (Some(*tier), *traffic, *number));
    for (stage, traffic, number) in profiles.chain(orders) {
        table.remove_elements(&profiles_name(stage, traffic), [Data::new().number(number)]);
        table.remove_chain(&chain_name(stage, traffic, number));
    }
    for ((ports, _), number) in &gone_ports {
        table.remove_chain(&format!("ports-{number}"));
        if singles(ports).next().is_some() {
            table.remove_set(&format!("ports-{number}"));
        }
    }
    for ((traffic, _), number) in &gone_denials {
        table.remove_chain(&deny_name(*traffic, *number));
    }
    let gone = gone_groups.iter().map(|(_, number)| format!("group-{number}"));
    let gone = gone.chain(gone_blocks.iter().map(|(_, number)| format!("blocks-{number}")));
    for name in gone.chain(gone_named.iter().map(|(_, number)| format!("named-{number}"))) {
        table.remove_set(&name);
    }
    table
}

/// A number leads to its chain.
fn lead(table: &mut Transaction, stage: Stage, traffic: Traffic, number: u32) {
    let key = Data::new().number(number);
    let value = Mapped::Verdict(Verdict::goto(chain_name(stage, traffic, number)));
    table.add_elements(&profiles_name(stage, traffic), [Element { key, value }]);
}

/// From whom addresses had, in a stage, to whom they have.
fn point<T: PartialEq>(
    table: &mut Transaction,
    stage: Stage,
    traffic: Traffic,
    was: &BTreeMap<IpAddr, T>,
    is: &BTreeMap<IpAddr, T>,
    number: impl Fn(&T) -> u32,
) {
    let map = stage_name(stage, traffic);
    let key = |address: &IpAddr| Data::new().address(*address);
    let gone = was.iter().filter(|(address, one)| is.get(*address) != Some(one));
    table.remove_elements(&map, gone.map(|(address, _)| key(address)));
    let come = is.iter().filter(|(address, one)| was.get(*address) != Some(one));
    let come = come.map(|(address, one)| Element {
        key: key(address),
        value: Mapped::Data(Data::new().number(number(one))),
    });
    table.add_elements(&map, come);
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

fn accept() -> Expression<'static> {
    Expression::Verdict(Verdict::Accept)
}

/// What `skiff flows` is told of what a policy of the cluster denies.
fn told_by(traffic: Traffic, by: &str) -> String {
    format!("{} {by}", traffic.name())
}

/// What is about somebody, and perhaps some ports, has this end.
fn add_match(
    table: &mut Transaction,
    chain: &str,
    traffic: Traffic,
    Grant { who, ports }: &Grant,
    then: &Then,
    names: &Names,
) {
    let which = match traffic {
        Traffic::Ingress => Direction::Source,
        Traffic::Egress => Direction::Destination,
    };
    let set = match who {
        Who::Anyone => None,
        Who::Group(group) => Some(format!("group-{}", names.groups.of(group))),
        Who::Blocks(ranges) => Some(format!("blocks-{}", names.blocks.of(ranges))),
    };
    let mut rule: Rule<'_> = Vec::new();
    if let Some(set) = &set {
        rule.push(Expression::Address { which, into: 0 });
        rule.push(Expression::Contains { set, key: 0 });
    }
    rule.push(Expression::Verdict(match ports.is_empty() {
        true => names.verdict(then),
        false => {
            let number = names.ports.of(&(ports.clone(), then.clone()));
            Verdict::Jump(format!("ports-{number}"))
        }
    }));
    table.add_rule(chain, &rule);
}

fn add_drop(table: &mut Transaction, chain: &str, told: &str, names: &Names) {
    if !names.silent {
        // Nobody hears of it, and it costs nothing, until somebody listens.
        let prefix = told.get(..LONGEST_PREFIX).unwrap_or(told);
        let told = Expression::Log { group: FLOWS_GROUP, prefix };
        table.add_rule(chain, &[Expression::Limit { per_second: 10, burst: 20 }, told]);
    }
    table.add_rule(chain, &[Expression::Verdict(Verdict::Drop)]);
}

/// `NF_LOG_PREFIXLEN`, with a zero at its end.
const LONGEST_PREFIX: usize = 127;

/// Ports that are one number.
fn singles(ports: &Ports) -> impl Iterator<Item = (u8, u16)> {
    ports.iter().filter_map(|port| match port.which {
        Which::Numbers(first, last) if first == last => Some((port.protocol, first)),
        _ => None,
    })
}

/// A chain with a verdict on what is for one of the ports, and a set of those that are one number.
fn add_ports(
    table: &mut Transaction,
    family: AddressFamily,
    name: &str,
    ports: &Ports,
    verdict: &Verdict,
    names: &Names,
) {
    let verdict = || Expression::Verdict(verdict.clone());
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
        let rule = [protocol, number(1), Expression::Contains { set: name, key: 0 }, verdict()];
        table.add_rule(name, &rule);
    }
    for port in ports {
        let of_protocol = Expression::protocol(port.protocol, 0).to_vec();
        match &port.which {
            Which::Any => table.add_rule(name, &[of_protocol, vec![verdict()]].concat()),
            Which::Numbers(first, last) if first == last => {}
            Which::Numbers(first, last) => {
                let compare = |how, with: u16| Expression::Compare {
                    register: 0,
                    how,
                    with: with.to_be_bytes().to_vec(),
                };
                let (from, to) =
                    (compare(Compare::AtLeast, *first), compare(Compare::AtMost, *last));
                table.add_rule(name, &[of_protocol, vec![number(0), from, to, verdict()]].concat());
            }
            Which::Named(text) => {
                let key = (port.protocol, text.clone());
                let set = format!("named-{}", names.named.of(&key));
                let rule = [
                    Expression::Address { which: Direction::Destination, into: 0 },
                    Expression::Meta { key: Meta::Protocol, into: address },
                    number(address + 1),
                    Expression::Contains { set: &set, key: 0 },
                    verdict(),
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
        for stage in STAGES {
            let (name, profiles) = (stage_name(stage, traffic), profiles_name(stage, traffic));
            let value = Value::Fields(&number);
            table.add_set(&Set { name: &name, key: &address, value, dynamic: false });
            let value = Value::Verdict;
            table.add_set(&Set { name: &profiles, key: &number, value, dynamic: false });
        }
        let (admin, baseline) = (Some(Tier::Admin), Some(Tier::Baseline));
        let end = [accept()];
        // Behind the first tier, for whoever passed it.
        let next = format!("{}-next", traffic.name());
        table.add_chain(&next);
        if traffic == Traffic::Egress {
            let node = TO_NODE_NEXT;
            table.add_chain(node);
            // What is for the node no NetworkPolicy keeps from it; nor does the last tier, where one
            // would have decided.
            let isolated = [
                Expression::Address { which: Direction::Source, into: 0 },
                Expression::Map { map: traffic.name(), key: 0, into: family.registers() },
                accept(),
            ];
            table.add_rule(node, &isolated);
            look(table, node, baseline, traffic, family);
            table.add_rule(node, &end);
            let local = Expression::local(Direction::Destination, Compare::Equal, 0).to_vec();
            let to_node = vec![Expression::Verdict(Verdict::goto(node))];
            table.add_rule(&next, &[local, to_node].concat());
        }
        look(table, &next, None, traffic, family);
        look(table, &next, baseline, traffic, family);
        table.add_rule(&next, &end);

        let priority = match traffic {
            Traffic::Egress => -2,
            Traffic::Ingress => -1,
        };
        let name = traffic.name();
        table.add_base_chain(name, Hook::filter(Hook::FORWARD, priority));
        let known = || [Expression::known_connection(0).to_vec(), vec![accept()]].concat();
        table.add_rule(name, &known());
        // By way of a service: no policy keeps a pod from itself.
        let itself = [
            Expression::Address { which: Direction::Source, into: 0 },
            Expression::Address { which: Direction::Destination, into: family.registers() },
            Expression::Contains { set: ITSELF, key: 0 },
            accept(),
        ];
        table.add_rule(name, &itself);
        for stage in STAGES {
            look(table, name, stage, traffic, family);
        }
        if traffic == Traffic::Egress {
            let name = TO_NODE;
            table.add_base_chain(name, Hook::filter(Hook::INPUT, priority));
            table.add_rule(name, &known());
            if family == AddressFamily::Ipv6 {
                table.add_rule(name, &neighbours());
            }
            look(table, name, admin, traffic, family);
            table.add_rule(name, &[Expression::Verdict(Verdict::goto(TO_NODE_NEXT))]);
        }
    }
}

/// What pods send to the node itself.
const TO_NODE: &str = "egress-to-node";
const TO_NODE_NEXT: &str = "egress-to-node-next";

/// Whose address has a number in a stage goes to that number's chain.
fn look(
    table: &mut Transaction,
    chain: &str,
    stage: Stage,
    traffic: Traffic,
    family: AddressFamily,
) {
    let which = match traffic {
        Traffic::Egress => Direction::Source,
        Traffic::Ingress => Direction::Destination,
    };
    let (map, profiles) = (stage_name(stage, traffic), profiles_name(stage, traffic));
    let into = family.registers();
    let rule = [
        Expression::Address { which, into: 0 },
        Expression::Map { map: &map, key: 0, into },
        Expression::VerdictMap { map: &profiles, key: into },
    ];
    table.add_rule(chain, &rule);
}

/// Without looking for its neighbours nobody of IPv6 reaches anybody.
fn neighbours() -> Vec<Expression<'static>> {
    const ICMPV6: u8 = 58;
    const FIRST: u8 = 133;
    const LAST: u8 = 137;
    let compare = |how, with| Expression::Compare { register: 0, how, with: vec![with] };
    let kind = Expression::Payload { base: Base::Transport, offset: 0, length: 1, into: 0 };
    let mut rule = Expression::protocol(ICMPV6, 0).to_vec();
    rule.extend([kind, compare(Compare::AtLeast, FIRST), compare(Compare::AtMost, LAST), accept()]);
    rule
}
