//! What the rules should hold: a pure function of policies, namespaces and pods.
use super::{Action, ClusterPolicy, Peer, Pod, Policy, Port, Ranges, Tier, Traffic, Which, World};
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
    /// Which pods of this node policies of the cluster are about, and what these say, in order.
    pub ruled: BTreeMap<(Tier, Traffic, IpAddr), Arc<Vec<Order>>>,
    /// The addresses of the pods and nodes that rules are about.
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

/// What a rule of a policy of the cluster says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    pub about: Grant,
    pub action: Action,
    /// Whose it is.
    pub by: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Anyone,
    Group(Group),
    Blocks(Ranges),
}

/// Those whose addresses change while a rule about them stays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Of one namespace, or of those that are selected.
    Pods {
        namespaces: Result<Selection, String>,
        pods: Selection,
    },
    Nodes(Selection),
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
    rule(&mut plan, world, family, &dns);
    let granted = profiles.iter().flat_map(|profile| profile.iter());
    let ruled: BTreeSet<Arc<Vec<Order>>> = plan.ruled.values().cloned().collect();
    let ruled = ruled.iter().flat_map(|orders| orders.iter()).map(|order| &order.about);
    for grant in granted.chain(ruled) {
        if let Who::Group(group) = &grant.who
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

/// Policies that are about a pod, by their places in the order of all, and in what way each is.
type Subjects = Vec<(usize, Subject)>;

/// What policies of the cluster say of the pods of this node.
fn rule(plan: &mut Plan, world: &World<'_>, family: AddressFamily, dns: &[Grant]) {
    let mut policies = world.cluster_policies.clone();
    policies.sort_by_key(|policy| (policy.tier, policy.priority, policy.name.clone()));
    // Pods that the same policies are about share their orders.
    let mut made: HashMap<(Tier, Traffic, Subjects), Arc<Vec<Order>>> = HashMap::new();
    for (key, addresses) in &world.locals {
        let about: Subjects = policies
            .iter()
            .enumerate()
            .map(|(at, policy)| (at, world.subject(policy, key)))
            .filter(|(_, subject)| *subject != Subject::Other)
            .collect();
        let of_family = addresses.iter().filter(|one| AddressFamily::of(**one) == family);
        for (tier, traffic) in
            Tier::BOTH.iter().flat_map(|tier| Traffic::BOTH.map(|one| (tier, one)))
        {
            let mut about = about.clone();
            about.retain(|(at, _)| {
                policies[*at].tier == *tier && !policies[*at].rulings(traffic).is_empty()
            });
            if about.is_empty() {
                continue;
            }
            let orders = made.entry((*tier, traffic, about)).or_insert_with_key(|(_, _, about)| {
                let mut all = Vec::new();
                if traffic == Traffic::Egress {
                    let by: Arc<str> = "".into();
                    let reached = dns.iter().cloned();
                    all.extend(reached.map(|about| Order {
                        about,
                        action: Action::Accept,
                        by: by.clone(),
                    }));
                }
                for (at, subject) in about {
                    let policy = policies[*at];
                    all.extend(orders(policy, traffic, *subject == Subject::Perhaps, family));
                }
                Arc::new(all)
            });
            for address in of_family.clone() {
                plan.ruled.insert((*tier, traffic, *address), orders.clone());
            }
        }
    }
}

/// The rules of a policy, one order for each of its peers. `cautious`: nobody knows yet whether it is
/// about the pod, so that it only denies.
fn orders(
    policy: &ClusterPolicy,
    traffic: Traffic,
    cautious: bool,
    family: AddressFamily,
) -> impl Iterator<Item = Order> {
    let rulings = policy.rulings(traffic).iter();
    let rulings = rulings.filter(move |one| !cautious || one.action == Action::Deny);
    rulings.flat_map(move |ruling| {
        let about = grants(&ruling.peers, &ruling.ports, "", family);
        let order = |about| Order { about, action: ruling.action, by: policy.name.clone() };
        about.into_iter().map(order).collect::<Vec<_>>()
    })
}

/// Whether a policy of the cluster is about a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    Its,
    /// The API has not told of its labels, or of its namespace's.
    Perhaps,
    Other,
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
        let group = match peer {
            Peer::Pods { namespaces, pods } => {
                let namespaces = match namespaces {
                    Some(selector) => Selection::of(selector).map(Ok),
                    None => Some(Err(namespace.to_owned())),
                };
                let both = namespaces.zip(Selection::of(pods));
                both.map(|(namespaces, pods)| Group::Pods { namespaces, pods })
            }
            Peer::Nodes(selector) => Selection::of(selector).map(Group::Nodes),
            Peer::Block { .. } => None,
        };
        all.extend(group.map(|group| grant(Who::Group(group))));
    }
    let blocks = peers.iter().filter_map(|peer| match peer {
        Peer::Block { cidr, except } => Some((cidr, except.as_slice())),
        Peer::Pods { .. } | Peer::Nodes(_) => None,
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

    fn subject(&self, policy: &ClusterPolicy, key: &NamespacedName) -> Subject {
        let matches = |selector: &Selector, labels: Option<&BTreeMap<String, String>>| match labels
        {
            _ if selector.is_everything() => Subject::Its,
            Some(labels) if selector.matches(labels) => Subject::Its,
            Some(_) => Subject::Other,
            None => Subject::Perhaps,
        };
        let namespace = self.namespaces.get(&*key.namespace).copied();
        let pod = self.pod(key).map(|pod| &pod.labels);
        match (matches(&policy.namespaces, namespace), matches(&policy.pods, pod)) {
            (Subject::Other, _) | (_, Subject::Other) => Subject::Other,
            (Subject::Its, Subject::Its) => Subject::Its,
            _ => Subject::Perhaps,
        }
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
        let (namespaces, selected) = match group {
            Group::Pods { namespaces, pods } => (namespaces, pods),
            Group::Nodes(selected) => {
                let nodes = self.world.nodes.iter();
                let nodes = nodes.filter(|(labels, _)| selected.selector.matches(*labels));
                let all = nodes.flat_map(|(_, addresses)| addresses.iter().copied());
                return all.filter(|one| AddressFamily::of(*one) == self.family).collect();
            }
        };
        let namespaces: Vec<&str> = match namespaces {
            Err(one) => vec![one],
            Ok(of) => {
                let all = self.world.namespaces.iter();
                all.filter(|(_, labels)| of.selector.matches(**labels))
                    .map(|(name, _)| *name)
                    .collect()
            }
        };
        let pods = namespaces.into_iter().flat_map(|namespace| {
            let few: Vec<_> = match label(&selected.selector) {
                Some((key, value)) => {
                    let labelled = self.labelled.get(&(namespace, key, value));
                    labelled.map(Vec::as_slice).unwrap_or_default().to_vec()
                }
                None => self.pods_in(namespace).collect(),
            };
            few
        });
        let pods = pods.filter(|(_, pod)| selected.selector.matches(&pod.labels));
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
