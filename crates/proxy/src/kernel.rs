//! Makes the kernel's tables what they should be, by what has changed.
use crate::counts::Synced;
use crate::rules::{self, Choice, ENDPOINTS, GUARDED, HAIRPIN, REFUSED, REJECT, SERVICES, STICKY};
use crate::tables::{Chain, Frontend, Lead, Network, Refusal, ServicePort, Target, leads};
use crate::{Config, TABLE};
use api::names::NamespacedName;
use netlink::nftables::{
    AddressFamily, Data, Element, Mapped, Steps, Transaction, Verdict, Written, all_stand,
};
use netlink::{Family, NetlinkError, Socket};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

const UDP: u8 = 17;

/// The rules of the host in whose namespace it was opened.
pub struct Proxy {
    config: Config,
    socket: Socket,
    families: [Known; 2],
    /// How the last change went.
    synced: Vec<Synced>,
    /// When everything was there last, in the kernel's count of changes.
    generation: Option<u32>,
}

/// What one address family's table holds, and why.
struct Known {
    written: Written,
    services: HashMap<NamespacedName, BTreeMap<Frontend, Arc<Lead>>>,
    /// Who wants a frontend: the first in the order of names has it.
    claims: HashMap<Frontend, BTreeSet<NamespacedName>>,
    /// What several frontends share, and how many.
    chains: Counts<Chain>,
    choices: Counts<Choice>,
    guards: Counts<Vec<Network>>,
    hairpin: Counts<IpAddr>,
}

impl Proxy {
    pub fn open(config: Config) -> Result<Proxy, NetlinkError> {
        let socket = Socket::open(Family::Netfilter)?;
        let families = AddressFamily::BOTH.map(Known::new);
        Ok(Proxy { config, socket, families, synced: Vec::new(), generation: None })
    }

    /// These services have these ports now. The first time, what an earlier process left becomes this, by
    /// what differs: no connection notices that a proxy begins.
    pub fn apply(
        &mut self,
        changes: &[(NamespacedName, Vec<ServicePort>)],
    ) -> Result<(), NetlinkError> {
        // What goes wrong with one family is no reason to keep the other from its changes.
        let mut outcome = Ok(());
        self.synced.clear();
        for known in &mut self.families {
            let (begun, is_full) = (Instant::now(), known.written.is_new());
            let mut before = known.take_in(changes);
            if known.written.is_new() {
                // All is written, whatever has been before.
                let all = known.claims.keys().map(|frontend| (*frontend, None));
                before = all.collect();
            }
            let (steps, stale) = known.change(known.written.steps(), &self.config, before);
            let committed = known.written.commit(steps, &mut self.socket);
            let family = known.written.family;
            let took = begun.elapsed();
            let done = committed.and_then(|()| forget(&mut self.socket, family, &stale));
            self.synced.push(Synced {
                family,
                is_full,
                took,
                forgotten: *done.as_ref().unwrap_or(&0),
                forgetting: begun.elapsed().saturating_sub(took),
                is_done: done.is_ok(),
            });
            let done = done.map(drop);
            outcome = outcome.and(done);
        }
        outcome
    }

    /// Whether what was written is still there; it is written whole the next time, if not. `wholly`:
    /// every rule and element is looked at, not only whether it is the same table.
    pub fn is_whole(&mut self, wholly: bool) -> Result<bool, NetlinkError> {
        let Proxy { config, socket, families, generation, .. } = self;
        let whole = |known: &Known, steps| known.whole(steps, config);
        all_stand(families, |known| &mut known.written, whole, wholly, generation, socket)
    }

    /// How the last change went, in each address family.
    pub fn synced(&self) -> &[Synced] {
        &self.synced
    }

    /// Node ports are open on these addresses; empty: on every address of the node.
    pub fn set_node_port_addresses(&mut self, addresses: Vec<Network>) {
        if self.config.node_port_addresses != addresses {
            self.config.node_port_addresses = addresses;
            self.families.iter_mut().for_each(|known| known.written.renew());
        }
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
}

/// Frontends of UDP whose endpoints have changed: to whom they led, and to whom they lead.
type Stale = Vec<(Frontend, Vec<Target>, Vec<Target>)>;

impl Known {
    fn new(family: AddressFamily) -> Known {
        Known {
            written: Written::new(family, TABLE),
            services: HashMap::new(),
            claims: HashMap::new(),
            chains: Counts::default(),
            choices: Counts::default(),
            guards: Counts::default(),
            hairpin: Counts::default(),
        }
    }

    /// The table as it would be written now.
    fn whole(&self, steps: Steps, config: &Config) -> Steps {
        let (services, claims) = (self.services.clone(), self.claims.clone());
        let mut copy = Known { services, claims, ..Known::new(self.written.family) };
        let all = copy.claims.keys().map(|frontend| (*frontend, None)).collect();
        copy.change(steps, config, all).0
    }

    /// What a frontend leads to.
    fn lead(&self, frontend: &Frontend) -> Option<Arc<Lead>> {
        let holder = self.claims.get(frontend)?.first()?;
        self.services.get(holder)?.get(frontend).cloned()
    }

    /// Notes what services want. Says what the frontends led to that this may have changed.
    fn take_in(
        &mut self,
        changes: &[(NamespacedName, Vec<ServicePort>)],
    ) -> BTreeMap<Frontend, Option<Arc<Lead>>> {
        let mut before = BTreeMap::new();
        for (key, ports) in changes {
            let new = leads(ports, self.written.family);
            let old = self.services.remove(key).unwrap_or_default();
            for frontend in old.keys().chain(new.keys()) {
                if !before.contains_key(frontend) {
                    // The service itself is out of its place here.
                    let holder = self.claims.get(frontend).and_then(BTreeSet::first);
                    let lead = match holder {
                        Some(holder) if holder == key => old.get(frontend).cloned(),
                        _ => self.lead(frontend),
                    };
                    before.insert(*frontend, lead);
                }
            }
            for frontend in old.keys().filter(|frontend| !new.contains_key(frontend)) {
                if let Some(claims) = self.claims.get_mut(frontend) {
                    claims.remove(key);
                    if claims.is_empty() {
                        self.claims.remove(frontend);
                    }
                }
            }
            for frontend in new.keys() {
                self.claims.entry(*frontend).or_default().insert(key.clone());
            }
            if !new.is_empty() {
                let new = new.into_iter().map(|(frontend, lead)| (frontend, Arc::new(lead)));
                self.services.insert(key.clone(), new.collect());
            }
        }
        before
    }

    /// From what frontends led to, to what they lead to. Chains come ahead: through one that is still empty
    /// a packet would leave with the service's address as it is, and with it the whole connection. They go
    /// with the last element that leads to them, for whoever follows it sees the rules that there were.
    fn change(
        &mut self,
        mut steps: Steps,
        config: &Config,
        before: BTreeMap<Frontend, Option<Arc<Lead>>>,
    ) -> (Steps, Stale) {
        let family = self.written.family;
        if self.written.is_new() {
            (self.chains, self.choices) = (Counts::default(), Counts::default());
            (self.guards, self.hairpin) = (Counts::default(), Counts::default());
            rules::add_frame(steps.now(), config, family);
        }
        let (mut gone, mut come, mut stale) =
            (Elements::default(), Elements::default(), Vec::new());
        for (frontend, old) in before {
            let new = self.lead(&frontend);
            if old == new {
                continue;
            }
            let nothing = Elements::default;
            let was = old.as_deref().map_or_else(nothing, |lead| Elements::of(&frontend, lead));
            let is = new.as_deref().map_or_else(nothing, |lead| Elements::of(&frontend, lead));
            gone.add(&was, &is);
            come.add(&is, &was);
            let targets = |lead: &Option<Arc<Lead>>| {
                lead.as_ref().map(|lead| lead.any.to_vec()).unwrap_or_default()
            };
            if frontend.protocol == UDP {
                stale.push((frontend, targets(&old), targets(&new)));
            }
            new.iter().for_each(|lead| self.hold(lead));
            old.iter().for_each(|lead| self.release(lead));
        }
        let (chains, choices) = (self.chains.settle(), self.choices.settle());
        let (guards, hairpin) = (self.guards.settle(), self.hairpin.settle());
        let early = steps.ahead();
        for choice in &choices.come {
            rules::add_chain(early, &choice.name(), choice.rules(family));
        }
        for chain in &chains.come {
            rules::add_chain(early, &chain.name(), chain.rules(config, family));
        }
        for allowed in &guards.come {
            let rules = rules::guard_rules(allowed, family);
            rules::add_chain(early, &rules::guard_name(allowed), rules);
        }
        let table = steps.now();
        let pair = |address: &IpAddr| Data::new().address(*address).address(*address);
        // A value is changed by taking the old one away.
        table.remove_elements(HAIRPIN, hairpin.gone.iter().map(pair));
        for (map, elements) in gone.0 {
            table.remove_elements(map, elements.into_iter().map(|(key, _)| key));
        }
        let pairs = hairpin.come.iter().map(|at| Element { key: pair(at), value: Mapped::Nothing });
        table.add_elements(HAIRPIN, pairs);
        for (map, elements) in come.0 {
            let element = |(key, value)| Element { key, value };
            table.add_elements(map, elements.into_iter().map(element));
        }
        for chain in &chains.gone {
            table.remove_chain(&chain.name());
        }
        for choice in &choices.gone {
            table.remove_chain(&choice.name());
        }
        for allowed in &guards.gone {
            table.remove_chain(&rules::guard_name(allowed));
        }
        (steps, stale)
    }

    fn hold(&mut self, lead: &Lead) {
        if let Ok(chain) = lead.to {
            self.chains.hold(chain);
            self.choices.hold(chain.any());
            chain.near().into_iter().for_each(|near| self.choices.hold(near));
        }
        lead.any.iter().for_each(|(address, _)| self.hairpin.hold(*address));
        if !lead.allowed.is_empty() {
            self.guards.hold(lead.allowed.clone());
        }
    }

    fn release(&mut self, lead: &Lead) {
        if let Ok(chain) = lead.to {
            self.chains.release(chain);
            self.choices.release(chain.any());
            chain.near().into_iter().for_each(|near| self.choices.release(near));
        }
        lead.any.iter().for_each(|(address, _)| self.hairpin.release(*address));
        if !lead.allowed.is_empty() {
            self.guards.release(lead.allowed.clone());
        }
    }
}

/// Elements of all maps.
#[derive(Default)]
struct Elements(BTreeMap<&'static str, Vec<(Data, Mapped)>>);

impl Elements {
    fn of(frontend: &Frontend, lead: &Lead) -> Elements {
        let key = || {
            Data::new().address(frontend.address).protocol(frontend.protocol).port(frontend.port)
        };
        let target = |(address, port): Target| Data::new().address(address).port(port);
        let mut all = Elements::default();
        let mut put = |map, key: Data, value| all.0.entry(map).or_default().push((key, value));
        match lead.to {
            Ok(chain) => put(SERVICES, key(), Mapped::Verdict(Verdict::goto(chain.name()))),
            Err(Refusal::Reject) => put(REFUSED, key(), Mapped::Verdict(Verdict::goto(REJECT))),
            Err(Refusal::Drop) => put(REFUSED, key(), Mapped::Verdict(Verdict::Drop)),
        }
        for (number, to) in lead.numbered() {
            put(ENDPOINTS, key().number(number), Mapped::Data(target(to)));
        }
        for (address, port) in lead.sticky() {
            put(STICKY, key().address(*address).port(*port), Mapped::Nothing);
        }
        if !lead.allowed.is_empty() {
            let only = Verdict::goto(rules::guard_name(&lead.allowed));
            put(GUARDED, key(), Mapped::Verdict(only));
        }
        all
    }

    /// Adds what is among these and not among those.
    fn add(&mut self, these: &Elements, those: &Elements) {
        for (map, elements) in &these.0 {
            let others: HashMap<&[u8], &Mapped> = those
                .0
                .get(map)
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.0.as_slice(), value))
                .collect();
            let only =
                elements.iter().filter(|(key, value)| others.get(key.0.as_slice()) != Some(&value));
            self.0.entry(map).or_default().extend(only.cloned());
        }
    }
}

/// How often something is held; what became of it since somebody last asked.
struct Counts<K> {
    held: HashMap<K, usize>,
    /// What was there before the first change.
    touched: BTreeMap<K, bool>,
}

struct Settled<K> {
    come: Vec<K>,
    gone: Vec<K>,
}

impl<K> Default for Counts<K> {
    fn default() -> Counts<K> {
        Counts { held: HashMap::new(), touched: BTreeMap::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord> Counts<K> {
    fn touch(&mut self, key: &K) {
        if !self.touched.contains_key(key) {
            self.touched.insert(key.clone(), self.held.contains_key(key));
        }
    }

    fn hold(&mut self, key: K) {
        self.touch(&key);
        *self.held.entry(key).or_default() += 1;
    }

    fn release(&mut self, key: K) {
        self.touch(&key);
        if let Some(count) = self.held.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&key);
            }
        }
    }

    fn settle(&mut self) -> Settled<K> {
        let (mut come, mut gone) = (Vec::new(), Vec::new());
        for (key, was_there) in std::mem::take(&mut self.touched) {
            match (was_there, self.held.contains_key(&key)) {
                (false, true) => come.push(key),
                (true, false) => gone.push(key),
                _ => {}
            }
        }
        Settled { come, gone }
    }
}

/// A client that goes on sending by UDP would be sent to an endpoint that is gone, or to nobody,
/// for as long as it does: nothing tells it that the connection ended.
fn forget(
    socket: &mut Socket,
    family: AddressFamily,
    stale: &Stale,
) -> Result<usize, NetlinkError> {
    let has_lost = |(_, old, new): &&(Frontend, Vec<Target>, Vec<Target>)| {
        (old.is_empty() && !new.is_empty()) || old.iter().any(|target| !new.contains(target))
    };
    let (mut by_address, mut by_port) = (HashMap::new(), HashMap::<u16, Vec<_>>::new());
    for (frontend, old, new) in stale.iter().filter(has_lost) {
        match frontend.is_node_port() {
            // Anybody may have a connection to a port of a node's number elsewhere.
            true => by_port.entry(frontend.port).or_default().push((old, new)),
            false => drop(by_address.insert((frontend.address, frontend.port), new)),
        }
    }
    if by_address.is_empty() && by_port.is_empty() {
        return Ok(0);
    }
    let mut lost = Vec::new();
    for connection in socket.connections(family == AddressFamily::Ipv6)? {
        let (to, from) = (connection.original, connection.reply);
        let led_to = (from.source, from.source_port);
        let led = by_address.get(&(to.destination, to.destination_port));
        let mut ports = by_port.get(&to.destination_port).into_iter().flatten();
        let is_stale = to.protocol == UDP
            && (led.is_some_and(|new| !new.contains(&led_to))
                || ports.any(|(old, new)| old.contains(&led_to) && !new.contains(&led_to)));
        if is_stale {
            lost.push(connection);
        }
    }
    socket.forget(&lost)?;
    Ok(lost.len())
}
