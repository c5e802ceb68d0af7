//! Makes the kernel's rules what the plan says, by what differs.
//!
//! ```text
//!  forward ─► ingress: known connection? to itself?
//!              ├ destination ─► jump ingress-admin-… ── @group-…  jump ports-…, deny-… …
//!              ├ destination ─► jump ingress-…          ├ @group-…  jump ports-…
//!              │                                        ├ @blocks-…  accept
//!              │                                        └ drop
//!              ├ destination @ingress-isolated: drop
//!              └ destination ─► jump ingress-baseline-…, as the first
//!  forward ─► egress:  the same, by the source
//!  input ─► egress-to-node: what pods send to the node itself, which only policies of the cluster judge
//! ```
//! Egress and ingress are two chains of the same hook: what one lets through, the other still sees.
//!
//! Chains and sets of content are called by a digest of it, so that what a name leads to never changes: a
//! packet that is under way while rules change follows the old or the new, never a mixture. The next process
//! finds what it would have made. A pod that is isolated is in a set besides, which stays the same while its
//! rules change: whoever finds no rules for it meanwhile, in whatever way, is dropped.
use super::flood::{self, Floods};
use super::{
    Action, FLOWS_GROUP, Grant, Order, Plan, Port, Profile, TABLE, Tier, Traffic, Which, Who,
};
use netlink::nftables::{
    AddressFamily, Base, Compare, Data, Direction, Element, Expression, Field, Hook, Mapped, Meta,
    Set, Transaction, Value, Verdict, Written, all_stand,
};
use netlink::{NetlinkError, Socket};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{Debug, Write};
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
}

impl Firewall {
    pub fn new(socket: Socket) -> Firewall {
        let known = |family| Known { written: Written::new(family, TABLE), plan: Plan::default() };
        Firewall {
            socket,
            families: AddressFamily::BOTH.map(known),
            floods: Floods::default(),
            generation: None,
            silent: false,
        }
    }

    /// The first time, what an earlier process left becomes this, by what differs.
    pub fn apply(&mut self, plan: impl Fn(AddressFamily) -> Plan) -> Result<(), NetlinkError> {
        // What goes wrong with one family is no reason to keep the other from its changes.
        let mut outcome = Ok(());
        for known in &mut self.families {
            let (family, is_new) = (known.written.family, known.written.is_new());
            let plan = plan(family);
            if !is_new && plan == known.plan {
                continue;
            }
            let mut make = |written: &mut Written, silent| {
                let mut whole = written.whole();
                describe(&mut whole, family, &plan, silent);
                written.make(whole, &mut self.socket)
            };
            let mut made = make(&mut known.written, self.silent);
            if made.is_err() && is_new && !self.silent {
                made = make(&mut known.written, true);
                self.silent = made.is_ok();
            }
            known.plan = plan;
            outcome = outcome.and(made);
        }
        outcome
    }

    /// What the bridge hands to everybody passes those by whom policies close: these have these links.
    pub fn close(&mut self, links: &BTreeMap<IpAddr, String>) {
        let plans = self.families.iter().map(|known| &known.plan);
        self.floods.keep(flood::closed(plans, links), &mut self.socket);
    }

    /// As [`all_stand`].
    pub fn is_whole(&mut self, wholly: bool) -> Result<bool, NetlinkError> {
        let Firewall { socket, families, generation, floods, silent } = self;
        let whole = |known: &Known, mut steps: netlink::nftables::Steps| {
            describe(steps.now(), known.written.family, &known.plan, *silent);
            steps
        };
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

const ITSELF: &str = "itself";

/// Where a packet is looked at: in a tier of the cluster's policies, or between them.
type Stage = Option<Tier>;

const STAGES: [Stage; 3] = [Some(Tier::Admin), None, Some(Tier::Baseline)];

/// How what belongs to a stage is called; the map that leads addresses to chains is called so.
fn stage_name(stage: Stage, traffic: Traffic) -> String {
    match stage {
        Some(tier) => format!("{}-{}", traffic.name(), tier.name()),
        None => traffic.name().to_owned(),
    }
}

/// The addresses of those whom policies of namespaces isolate.
fn isolated_name(traffic: Traffic) -> String {
    format!("{}-isolated", traffic.name())
}

/// A name that nothing else has. Users choose what it is made of: it has to be hard to find another text with
/// the same digest.
fn name(kind: &str, of: &impl Debug) -> String {
    let digest = Sha256::digest(format!("{of:?}"));
    let mut name = format!("{kind}-");
    for byte in &digest[..DIGEST] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

const DIGEST: usize = 10;

/// What becomes of a packet that a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Then {
    Accept,
    Deny(Traffic, Arc<str>),
    /// The next tier decides.
    Pass,
}

fn then(order: &Order, traffic: Traffic) -> Then {
    match order.action {
        Action::Accept => Then::Accept,
        Action::Deny => Then::Deny(traffic, order.by.clone()),
        Action::Pass => Then::Pass,
    }
}

/// What the table is to hold.
fn describe(table: &mut Transaction, family: AddressFamily, plan: &Plan, silent: bool) {
    add_frame(table, family);
    let mut table = Table { table, plan, family, silent, there: BTreeSet::new() };
    let address = |address: &IpAddr| Data::new().address(*address);
    let nothing = |key| Element { key, value: Mapped::Nothing };
    // Pods share what is said of them, and mostly the memory that it is in.
    let mut names: HashMap<(Stage, Traffic, usize), String> = HashMap::new();
    for ((traffic, at), profile) in &plan.isolated {
        let key = (None, *traffic, Arc::as_ptr(profile) as usize);
        let chain = names.entry(key).or_insert_with(|| table.profile(*traffic, profile));
        let value = Mapped::Verdict(Verdict::Jump(chain.clone()));
        let element = Element { key: address(at), value };
        table.table.add_elements(&stage_name(None, *traffic), [element]);
        table.table.add_elements(&isolated_name(*traffic), [nothing(address(at))]);
    }
    for ((tier, traffic, at), orders) in &plan.ruled {
        let key = (Some(*tier), *traffic, Arc::as_ptr(orders) as usize);
        let chain = names.entry(key).or_insert_with(|| table.orders(*tier, *traffic, orders));
        let value = Mapped::Verdict(Verdict::Jump(chain.clone()));
        let element = Element { key: address(at), value };
        table.table.add_elements(&stage_name(Some(*tier), *traffic), [element]);
    }
    let isolated = plan.isolated.keys().map(|(_, address)| *address);
    let all = isolated.chain(plan.ruled.keys().map(|(_, _, address)| *address));
    let themselves: BTreeSet<IpAddr> = all.collect();
    let pair = |one: &IpAddr| nothing(Data::new().address(*one).address(*one));
    table.table.add_elements(ITSELF, themselves.iter().map(pair));
}

/// A table that is being described, and what it has so far.
struct Table<'a> {
    table: &'a mut Transaction,
    plan: &'a Plan,
    family: AddressFamily,
    silent: bool,
    there: BTreeSet<String>,
}

impl Table<'_> {
    /// Whether it is to be added now.
    fn is_new(&mut self, name: &str) -> bool {
        self.there.insert(name.to_owned())
    }

    /// The chain of those who are granted this and nothing else.
    fn profile(&mut self, traffic: Traffic, profile: &Profile) -> String {
        let chain = name(traffic.name(), profile);
        if self.is_new(&chain) {
            self.table.add_chain(&chain);
            for grant in profile {
                self.add_match(&chain, traffic, grant, &Then::Accept);
            }
            self.add_drop(&chain, &chain);
        }
        chain
    }

    /// The chain of those of whom policies of the cluster say this; who comes to its end is passed on.
    fn orders(&mut self, tier: Tier, traffic: Traffic, orders: &[Order]) -> String {
        let chain = name(&stage_name(Some(tier), traffic), &orders);
        if self.is_new(&chain) {
            self.table.add_chain(&chain);
            for order in orders {
                self.add_match(&chain, traffic, &order.about, &then(order, traffic));
            }
        }
        chain
    }

    fn verdict(&mut self, then: &Then) -> Verdict {
        match then {
            Then::Accept => Verdict::Accept,
            Then::Deny(traffic, by) => {
                let chain = name(&format!("{}-deny", traffic.name()), by);
                if self.is_new(&chain) {
                    self.table.add_chain(&chain);
                    self.add_drop(&chain, &told_by(*traffic, by));
                }
                Verdict::goto(chain)
            }
            Then::Pass => Verdict::Return,
        }
    }

    /// What is about somebody, and perhaps some ports, has this end.
    fn add_match(
        &mut self,
        chain: &str,
        traffic: Traffic,
        Grant { who, ports }: &Grant,
        then: &Then,
    ) {
        let which = match traffic {
            Traffic::Ingress => Direction::Source,
            Traffic::Egress => Direction::Destination,
        };
        let set = self.who(who);
        let mut about: Rule<'_> = Vec::new();
        if let Some(set) = &set {
            about.push(Expression::Address { which, into: 0 });
            about.push(Expression::Contains { set, key: 0 });
        }
        let verdict = self.verdict(then);
        if ports.is_empty() {
            about.push(Expression::Verdict(verdict));
            return self.table.add_rule(chain, &about);
        }
        if *then == Then::Pass {
            // From a chain of its own one would return to this one.
            return self.add_ports(chain, &about, ports, &verdict);
        }
        let of_ports = name("ports", &(ports, then));
        if self.is_new(&of_ports) {
            self.table.add_chain(&of_ports);
            self.add_ports(&of_ports, &[], ports, &verdict);
        }
        about.push(Expression::Verdict(Verdict::Jump(of_ports)));
        self.table.add_rule(chain, &about);
    }

    /// The set of those whom a rule is about; `None`: everybody.
    fn who(&mut self, who: &Who) -> Option<String> {
        match who {
            Who::Anyone => None,
            Who::Group(group) => {
                let set = name("group", group);
                let members = self.plan.groups.get(group).into_iter().flatten();
                self.add_set(&set, &[Field::Address], members.map(|at| Data::new().address(*at)));
                Some(set)
            }
            Who::Blocks(ranges) => {
                let set = name("blocks", ranges);
                if self.is_new(&set) {
                    let at = |address| Data::new().address(address);
                    self.table.add_range_set(&set, Field::Address);
                    let ranges = ranges.iter().map(|(first, end)| (at(first), end.map(at)));
                    self.table.add_ranges(&set, ranges);
                }
                Some(set)
            }
        }
    }

    fn add_set(&mut self, name: &str, key: &[Field], all: impl Iterator<Item = Data>) {
        if self.is_new(name) {
            self.table.add_set(&Set { name, key, value: Value::Nothing, dynamic: false });
            self.table.add_elements(name, all.map(|key| Element { key, value: Mapped::Nothing }));
        }
    }

    fn add_drop(&mut self, chain: &str, told: &str) {
        if !self.silent {
            // Nobody hears of it, and it costs nothing, until somebody listens.
            let prefix = told.get(..LONGEST_PREFIX).unwrap_or(told);
            let told = Expression::Log { group: FLOWS_GROUP, prefix };
            self.table.add_rule(chain, &[Expression::Limit { per_second: 10, burst: 20 }, told]);
        }
        self.table.add_rule(chain, &[Expression::Verdict(Verdict::Drop)]);
    }

    /// A verdict on what is about somebody and for one of the ports.
    fn add_ports(
        &mut self,
        chain: &str,
        about: &[Expression<'_>],
        ports: &Ports,
        verdict: &Verdict,
    ) {
        let address = self.family.registers();
        let number =
            |into| Expression::Payload { base: Base::Transport, offset: 2, length: 2, into };
        let mut rules: Vec<(Rule<'_>, Option<String>)> = Vec::new();
        if singles(ports).next().is_some() {
            // Those that are one number are a set.
            let set = name("numbers", &singles(ports).collect::<Vec<_>>());
            let all =
                singles(ports).map(|(protocol, port)| Data::new().protocol(protocol).port(port));
            self.add_set(&set, &[Field::Protocol, Field::Port], all);
            let protocol = Expression::Meta { key: Meta::Protocol, into: 0 };
            rules.push((vec![protocol, number(1)], Some(set)));
        }
        for port in ports {
            let of_protocol = || Expression::protocol(port.protocol, 0).to_vec();
            match &port.which {
                Which::Any => rules.push((of_protocol(), None)),
                Which::Numbers(first, last) if first == last => {}
                Which::Numbers(first, last) => {
                    let compare = |how, with: u16| Expression::Compare {
                        register: 0,
                        how,
                        with: with.to_be_bytes().to_vec(),
                    };
                    let (from, to) =
                        (compare(Compare::AtLeast, *first), compare(Compare::AtMost, *last));
                    rules.push(([of_protocol(), vec![number(0), from, to]].concat(), None));
                }
                Which::Named(text) => {
                    let key = (port.protocol, text.clone());
                    let set = name("named", &key);
                    let all = self.plan.named.get(&key).into_iter().flatten();
                    let all = all.map(|(at, number)| {
                        Data::new().address(*at).protocol(port.protocol).port(*number)
                    });
                    let fields = [Field::Address, Field::Protocol, Field::Port];
                    self.add_set(&set, &fields, all);
                    let load = vec![
                        Expression::Address { which: Direction::Destination, into: 0 },
                        Expression::Meta { key: Meta::Protocol, into: address },
                        number(address + 1),
                    ];
                    rules.push((load, Some(set)));
                }
            }
        }
        for (rule, set) in &rules {
            let mut rule = [about, rule].concat();
            rule.extend(set.as_ref().map(|set| Expression::Contains { set, key: 0 }));
            rule.push(Expression::Verdict(verdict.clone()));
            self.table.add_rule(chain, &rule);
        }
    }
}

fn accept() -> Expression<'static> {
    Expression::Verdict(Verdict::Accept)
}

/// What `skiff flows` is told of what a policy of the cluster denies.
fn told_by(traffic: Traffic, by: &str) -> String {
    format!("{} {by}", traffic.name())
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

/// The table with everything but what policies bring.
fn add_frame(table: &mut Transaction, family: AddressFamily) {
    let (address, pair) = ([Field::Address], [Field::Address, Field::Address]);
    fn set<'a>(name: &'a str, key: &'a [Field], value: Value<'a>) -> Set<'a> {
        Set { name, key, value, dynamic: false }
    }
    table.add_set(&set(ITSELF, &pair, Value::Nothing));
    for traffic in Traffic::BOTH {
        for stage in STAGES {
            table.add_set(&set(&stage_name(stage, traffic), &address, Value::Verdict));
        }
        let isolated = isolated_name(traffic);
        table.add_set(&set(&isolated, &address, Value::Nothing));
        let is_isolated = |end| {
            let own = own(traffic);
            [own, Expression::Contains { set: &isolated, key: 0 }, Expression::Verdict(end)]
        };

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
        look(table, name, Some(Tier::Admin), traffic);
        look(table, name, None, traffic);
        table.add_rule(name, &is_isolated(Verdict::Drop));
        look(table, name, Some(Tier::Baseline), traffic);
        if traffic == Traffic::Egress {
            let name = TO_NODE;
            table.add_base_chain(name, Hook::filter(Hook::INPUT, priority));
            table.add_rule(name, &known());
            if family == AddressFamily::Ipv6 {
                table.add_rule(name, &neighbours());
            }
            look(table, name, Some(Tier::Admin), traffic);
            // What is for the node no NetworkPolicy keeps from it; nor does the last tier, where one
            // would have decided.
            table.add_rule(name, &is_isolated(Verdict::Accept));
            look(table, name, Some(Tier::Baseline), traffic);
        }
    }
}

/// What pods send to the node itself.
const TO_NODE: &str = "egress-to-node";

/// The address of the pod that rules of a direction are about.
fn own(traffic: Traffic) -> Expression<'static> {
    let which = match traffic {
        Traffic::Egress => Direction::Source,
        Traffic::Ingress => Direction::Destination,
    };
    Expression::Address { which, into: 0 }
}

/// Whose address a stage leads somewhere goes there, and comes back if nothing was decided.
fn look(table: &mut Transaction, chain: &str, stage: Stage, traffic: Traffic) {
    let map = stage_name(stage, traffic);
    table.add_rule(chain, &[own(traffic), Expression::VerdictMap { map: &map, key: 0 }]);
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
