//! What the rules should hold: a pure function of policies, namespaces and pods.
use super::{Peer, Pod, Policy, Port, Ranges, Traffic, Which, World};
use crate::Cidr;
use api::names::NamespacedName;
use api::selector::label::Selector;
use netlink::nftables::AddressFamily;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// The rules of one address family.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Which pods of this node are isolated, and what they are granted nevertheless.
    pub isolated: BTreeMap<(Traffic, IpAddr), Arc<Profile>>,
    /// The addresses of the pods that are granted something.
    pub groups: BTreeMap<Group, BTreeSet<IpAddr>>,
    /// Where pods have ports of a protocol and a name.
    pub named: BTreeMap<(u8, String), BTreeSet<(IpAddr, u16)>>,
}

pub type Profile = BTreeSet<Grant>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    pub who: Who,
    /// Empty: every port of every protocol.
    pub ports: BTreeSet<Port>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Anyone,
    Pods(Group),
    Blocks(Ranges),
}

/// Pods of one namespace, or of those that are selected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    pub namespaces: Result<Selection, String>,
    pub pods: Selection,
}

/// A selector that has an order: that of its canonical text.
#[derive(Debug, Clone)]
pub struct Selection {
    text: String,
    selector: Arc<Selector>,
}

impl Selection {
    /// Nobody selects nothing: its text would be that of everything.
    fn of(selector: &Selector) -> Option<Selection> {
        let (text, selector) = (selector.to_string(), Arc::new(selector.clone()));
        (!selector.is_nothing()).then_some(Selection { text, selector })
    }
}

impl PartialEq for Selection {
    fn eq(&self, other: &Selection) -> bool {
        self.text == other.text
    }
}

impl Eq for Selection {}

impl PartialOrd for Selection {
    fn partial_cmp(&self, other: &Selection) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Selection {
    fn cmp(&self, other: &Selection) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// The rules that a world asks for.
pub fn plan(world: &World<'_>, family: AddressFamily) -> Plan {
    let places = Places::of(world, family);
    let mut plan = Plan::default();
    let (mut profiles, mut granted) = (BTreeSet::<Arc<Profile>>::new(), HashMap::new());
    let shelves: HashMap<&str, Shelf<'_>> =
        world.policies.iter().map(|(namespace, all)| (*namespace, Shelf::of(all))).collect();
    let dns = resolvers(world, family);
    for (key, addresses) in &world.locals {
        let Some(shelf) = shelves.get(&*key.namespace) else { continue };
        let pod = world.pod(key);
        let policies = shelf.of_pod(pod);
        for traffic in Traffic::BOTH {
            let mut isolating = policies.iter().filter_map(|policy| {
                let policy: &Policy = policy;
                let rules = policy.rules(traffic)?;
                // Of a pod that the API has not told of yet nobody knows the labels. It is isolated
                // by whatever might select it.
                pod.is_none_or(|pod| policy.pods.matches(&pod.labels)).then_some((policy, rules))
            });
            let Some(first) = isolating.next() else { continue };
            let mut profile = Profile::new();
            if traffic == Traffic::Egress {
                profile.extend(dns.iter().cloned());
            }
            for (policy, rules) in std::iter::once(first).chain(isolating) {
                if pod.is_none() && !policy.pods.is_everything() {
                    continue;
                }
                let grants = granted
                    .entry((std::ptr::from_ref::<Policy>(policy), traffic))
                    .or_insert_with(|| {
                        let grants = rules.iter().flat_map(|rule| {
                            grants(&rule.peers, &rule.ports, &key.namespace, family)
                        });
                        grants.collect::<Vec<Grant>>()
                    });
                profile.extend(grants.iter().cloned());
            }
            let profile = match profiles.get(&profile) {
                Some(shared) => shared.clone(),
                None => Arc::new(profile),
            };
            profiles.insert(profile.clone());
            let of_family = addresses.iter().filter(|one| AddressFamily::of(**one) == family);
            for address in of_family {
                plan.isolated.insert((traffic, *address), profile.clone());
            }
        }
    }
    for grant in profiles.iter().flat_map(|profile| profile.iter()) {
        if let Who::Pods(group) = &grant.who
            && !plan.groups.contains_key(group)
        {
            plan.groups.insert(group.clone(), places.members(group));
        }
        for port in &grant.ports {
            if let Which::Named(name) = &port.which {
                let key = (port.protocol, name.clone());
                plan.named.entry(key).or_insert_with_key(|key| places.named(key));
            }
        }
    }
    plan
}

/// Policies of one namespace by a label that their pods must have, so that a pod looks at few.
struct Shelf<'a> {
    labelled: HashMap<(&'a str, &'a str), Vec<&'a Policy>>,
    others: Vec<&'a Policy>,
    all: &'a [&'a Policy],
}

impl<'a> Shelf<'a> {
    fn of(all: &'a [&'a Policy]) -> Shelf<'a> {
        let mut shelf = Shelf { labelled: HashMap::new(), others: Vec::new(), all };
        for policy in all {
            match label(&policy.pods) {
                Some(label) => shelf.labelled.entry(label).or_default().push(policy),
                None => shelf.others.push(policy),
            }
        }
        shelf
    }

    /// Those that may select a pod: all of them, if nobody knows it.
    fn of_pod(&self, pod: Option<&Pod>) -> Vec<&'a Policy> {
        let Some(pod) = pod else { return self.all.to_vec() };
        let mut found = self.others.clone();
        for (key, value) in &pod.labels {
            found.extend(self.labelled.get(&(key.as_str(), value.as_str())).into_iter().flatten());
        }
        found
    }
}

/// A label with its value that everything selected has, if the selector says one.
fn label(selector: &Selector) -> Option<(&str, &str)> {
    selector.requirements()?.iter().find_map(|one| Some((one.key(), one.exact_value()?)))
}

/// The cluster's DNS is a part of the node, and always reached on its own. It is on others too.
fn resolvers(world: &World<'_>, family: AddressFamily) -> Vec<Grant> {
    let mut by_port: BTreeMap<u16, Vec<Cidr>> = BTreeMap::new();
    for (address, port) in &world.resolvers {
        by_port.entry(*port).or_default().push(Cidr::whole(*address));
    }
    let grant = |(port, addresses): (u16, Vec<Cidr>)| {
        let ranges = Ranges::of(addresses.iter().map(|one| (one, [].as_slice())), family);
        let which = Which::Numbers(port, port);
        let ports = [17, 6].map(|protocol| Port { protocol, which: which.clone() });
        let who = Who::Blocks(ranges.clone());
        (!ranges.is_empty()).then(|| Grant { who, ports: ports.into_iter().collect() })
    };
    by_port.into_iter().filter_map(grant).collect()
}

/// What one rule grants in an address family.
fn grants(peers: &[Peer], ports: &[Port], namespace: &str, family: AddressFamily) -> Vec<Grant> {
    let grant = |who| Grant { who, ports: ports.iter().cloned().collect() };
    if peers.is_empty() {
        return vec![grant(Who::Anyone)];
    }
    let mut all = Vec::new();
    for peer in peers {
        let Peer::Pods { namespaces, pods } = peer else { continue };
        let namespaces = match namespaces {
            Some(selector) => Selection::of(selector).map(Ok),
            None => Some(Err(namespace.to_owned())),
        };
        if let (Some(namespaces), Some(pods)) = (namespaces, Selection::of(pods)) {
            all.push(grant(Who::Pods(Group { namespaces, pods })));
        }
    }
    let blocks = peers.iter().filter_map(|peer| match peer {
        Peer::Block { cidr, except } => Some((cidr, except.as_slice())),
        Peer::Pods { .. } => None,
    });
    let blocks = Ranges::of(blocks, family);
    if !blocks.is_empty() {
        all.push(grant(Who::Blocks(blocks)));
    }
    all
}

impl<'a> World<'a> {
    fn pod(&self, key: &NamespacedName) -> Option<&'a Pod> {
        self.pods.get(&*key.namespace)?.get(&*key.name).copied()
    }
}

/// Where pods are, in one address family.
struct Places<'a> {
    world: &'a World<'a>,
    family: AddressFamily,
    here: HashMap<(&'a str, &'a str), &'a [IpAddr]>,
    /// Whose the addresses of this node are, whatever the API still says of pods before them.
    holders: HashMap<IpAddr, (&'a str, &'a str)>,
    /// By namespace, label and its value.
    labelled: HashMap<(&'a str, &'a str, &'a str), Vec<Found<'a>>>,
}

/// Namespace and name of a pod, and the pod.
type Found<'a> = ((&'a str, &'a str), &'a Pod);

impl<'a> Places<'a> {
    fn of(world: &'a World<'a>, family: AddressFamily) -> Places<'a> {
        let (mut here, mut holders) = (HashMap::new(), HashMap::new());
        for (key, addresses) in &world.locals {
            let key = (&*key.namespace, &*key.name);
            here.insert(key, *addresses);
            holders.extend(addresses.iter().map(|address| (*address, key)));
        }
        let mut labelled: HashMap<_, Vec<Found<'a>>> = HashMap::new();
        for (namespace, pods) in &world.pods {
            for (name, pod) in pods {
                for (key, value) in &pod.labels {
                    let label = (*namespace, key.as_str(), value.as_str());
                    labelled.entry(label).or_default().push(((*namespace, *name), *pod));
                }
            }
        }
        Places { world, family, here, holders, labelled }
    }

    fn addresses(&self, key: (&'a str, &'a str), pod: &'a Pod) -> impl Iterator<Item = IpAddr> {
        let told = pod.addresses.iter();
        let told =
            told.filter(move |one| self.holders.get(one).is_none_or(|holder| *holder == key));
        let here = self.here.get(&key).copied().unwrap_or_default().iter();
        told.chain(here).copied().filter(|one| AddressFamily::of(*one) == self.family)
    }

    fn pods_in(&self, namespace: &str) -> impl Iterator<Item = Found<'a>> {
        let found = self.world.pods.get_key_value(namespace);
        found.into_iter().flat_map(|(namespace, pods)| {
            pods.iter().map(|(name, pod)| ((*namespace, *name), *pod))
        })
    }

    fn members(&self, group: &Group) -> BTreeSet<IpAddr> {
        let namespaces: Vec<&str> = match &group.namespaces {
            Err(one) => vec![one],
            Ok(selected) => {
                let all = self.world.namespaces.iter();
                all.filter(|(_, labels)| selected.selector.matches(**labels))
                    .map(|(name, _)| *name)
                    .collect()
            }
        };
        let pods = namespaces.into_iter().flat_map(|namespace| {
            let few: Vec<_> = match label(&group.pods.selector) {
                Some((key, value)) => {
                    let labelled = self.labelled.get(&(namespace, key, value));
                    labelled.map(Vec::as_slice).unwrap_or_default().to_vec()
                }
                None => self.pods_in(namespace).collect(),
            };
            few
        });
        let pods = pods.filter(|(_, pod)| group.pods.selector.matches(&pod.labels));
        pods.flat_map(|(key, pod)| self.addresses(key, pod)).collect()
    }

    fn named(&self, (protocol, name): &(u8, String)) -> BTreeSet<(IpAddr, u16)> {
        let mut all = BTreeSet::new();
        for namespace in self.world.pods.keys() {
            for (key, pod) in self.pods_in(namespace) {
                let ports = pod.ports.iter().filter(|port| port.0 == *name && port.1 == *protocol);
                for (_, _, number) in ports {
                    all.extend(self.addresses(key, pod).map(|address| (address, *number)));
                }
            }
        }
        all
    }
}
