//! The rules against a plain account of what they are to do: random services, endpoints and policies,
//! and for every client and every address what real packets do must be what the account says.
//!
//! The account (`Model::fate`) is written from upstream's documents, with none of the code that makes
//! rules. `FLOWS=20000` tries as many; without it a test takes some seconds.
use crate::tests::World;
use crate::{Endpoint, ServicePort};
use api::names::NamespacedName;
use api::selector::label::Selector;
use fastrand::Rng;
use netlink::testing::isolated;
use netlink::{Family, Socket};
use network::policy::{
    self, Action, ClusterPolicy, Firewall, Peer, Policy, Port, Rule, Ruling, Tier, Traffic, Which,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

const PORT: u16 = 8080;
const TCP: u8 = 6;
const PATIENCE: Duration = Duration::from_secs(10);
/// For what is to be dropped: however long one waits, nothing comes.
const BRIEF: Duration = Duration::from_millis(150);
/// What pods see of whom the node speaks for.
const GATEWAYS: [&str; 2] = ["10.99.1.1", "fd99:1::1"];
const NODE: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const OUTSIDE: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Client {
    Pod(usize),
    Node,
    Outside,
}

#[derive(Debug, Clone)]
struct Grant {
    /// Empty: everybody.
    peers: Vec<Who>,
    /// Empty: every port.
    ports: Vec<(u16, u16)>,
}

#[derive(Debug, Clone)]
enum Who {
    App(usize),
    /// In each address family: a network, and an exception.
    Block([(&'static str, u8); 2], Option<[(&'static str, u8); 2]>),
}

#[derive(Debug, Clone)]
struct Isolation {
    /// Which pods; `None`: all.
    app: Option<usize>,
    ingress: Option<Vec<Grant>>,
    egress: Option<Vec<Grant>>,
}

/// A policy of the cluster. Its rules are grants with another word for what they do.
#[derive(Debug, Clone)]
struct Order {
    tier: Tier,
    priority: i32,
    app: Option<usize>,
    ingress: Vec<(Action, Grant)>,
    egress: Vec<(Action, Grant)>,
}

#[derive(Debug, Clone)]
struct Model {
    services: Vec<ServicePort>,
    policies: Vec<Isolation>,
    orders: Vec<Order>,
    pods: Vec<Vec<IpAddr>>,
}

/// What becomes of a connection: nothing, a refusal, or an answer of one of these pods that sees the
/// client as this.
#[derive(Debug, PartialEq)]
enum Fate {
    Dropped,
    Refused,
    Answered(BTreeSet<String>),
}

fn within(address: IpAddr, (network, prefix): (&str, u8)) -> bool {
    format!("{network}/{prefix}").parse::<network::Cidr>().unwrap().contains(address)
}

impl Model {
    /// Pods with even numbers are of app 0, the others of app 1.
    fn app(pod: usize) -> usize {
        pod % 2
    }

    fn pod_at(&self, address: IpAddr) -> Option<usize> {
        self.pods.iter().position(|own| own.contains(&address))
    }

    fn address(&self, client: Client, family: usize) -> IpAddr {
        match client {
            Client::Pod(pod) => self.pods[pod][family],
            Client::Node => ip(NODE[family]),
            Client::Outside => ip(OUTSIDE[family]),
        }
    }

    fn fate(&self, client: Client, to: IpAddr, port: u16) -> Fate {
        let family = usize::from(to.is_ipv6());
        let source = self.address(client, family);
        let is_node = NODE.contains(&to.to_string().as_str());
        for service in &self.services {
            let own = service.port == port;
            let of = |list: &[IpAddr]| own && list.contains(&to);
            let is_balanced = of(&service.load_balancer_ips);
            let is_cluster_ip = of(&service.cluster_ips);
            let is_external = is_balanced
                || of(&service.external_ips)
                || (is_node && service.node_port == Some(port));
            if !is_cluster_ip && !is_external {
                continue;
            }
            let ranges = &service.source_ranges;
            if is_balanced
                && !ranges.is_empty()
                && !ranges
                    .iter()
                    .any(|(network, prefix)| within(source, (&network.to_string(), *prefix)))
            {
                return Fate::Dropped;
            }
            return self.served(service, client, family, is_cluster_ip);
        }
        match self.pod_at(to) {
            Some(pod) if port == PORT => {
                let seen = match client {
                    Client::Node => ip(GATEWAYS[family]),
                    _ => source,
                };
                self.arrives(client, source, &[(pod, seen)])
            }
            _ => Fate::Refused,
        }
    }

    fn served(&self, service: &ServicePort, client: Client, family: usize, inside: bool) -> Fate {
        let usable = |local_only: bool| -> Vec<usize> {
            let of = |is: fn(&Endpoint) -> bool| -> BTreeSet<usize> {
                let endpoints = service.endpoints.iter().filter(|one| {
                    usize::from(one.address.is_ipv6()) == family && (one.local || !local_only)
                });
                endpoints.filter(|one| is(one)).filter_map(|one| self.pod_at(one.address)).collect()
            };
            let ready = of(|one| one.ready);
            let ending = || of(|one| one.serving && one.terminating);
            if ready.is_empty() { ending() } else { ready }.into_iter().collect()
        };
        let (all, near) = (usable(false), usable(true));
        let is_near_only = match (inside, client) {
            (true, _) => service.internal_local,
            // Who is of the cluster may go anywhere.
            (false, Client::Outside) => service.external_local,
            (false, _) => false,
        };
        let chosen = if is_near_only { near } else { all.clone() };
        if all.is_empty() {
            return Fate::Refused;
        }
        if chosen.is_empty() {
            return Fate::Dropped;
        }
        let source = self.address(client, family);
        let gateway = ip(GATEWAYS[family]);
        let seen = |pod: usize| match (inside, client) {
            // By way of itself it would answer itself.
            (_, Client::Pod(own)) if own == pod => gateway,
            (true, Client::Pod(_)) => source,
            (true, _) => gateway,
            (false, Client::Node) => gateway,
            (false, _) if service.external_local => source,
            (false, _) => gateway,
        };
        let chosen: Vec<_> = chosen.into_iter().map(|pod| (pod, seen(pod))).collect();
        self.arrives(client, source, &chosen)
    }

    /// One of these pods is chosen at random: what policies say must be the same of all, or the fate is
    /// one of several.
    fn arrives(&self, client: Client, source: IpAddr, pods: &[(usize, IpAddr)]) -> Fate {
        let let_in: Vec<_> =
            pods.iter().filter(|(pod, _)| self.may(client, source, *pod)).collect();
        if let_in.is_empty() {
            return Fate::Dropped;
        }
        let mut answers: BTreeSet<String> =
            let_in.iter().map(|(pod, seen)| format!("{pod} from {seen}")).collect();
        if let_in.len() < pods.len() {
            answers.insert("timed out".to_owned());
        }
        Fate::Answered(answers)
    }

    /// What a node sends to its own pods is nobody's business.
    fn may(&self, client: Client, source: IpAddr, pod: usize) -> bool {
        let family = usize::from(source.is_ipv6());
        let from = match client {
            Client::Node => return true,
            Client::Pod(own) if own == pod => return true,
            Client::Pod(own) => Some(own),
            Client::Outside => None,
        };
        let leaves = from
            .is_none_or(|own| self.judged(own, Traffic::Egress, self.pods[pod][family], Some(pod)));
        leaves && self.judged(pod, Traffic::Ingress, source, from)
    }

    /// What the policies about a pod say of a connection with a peer: the first rule of the first tier
    /// that does not pass it on, NetworkPolicies if there are any, then the last tier's.
    fn judged(&self, of: usize, traffic: Traffic, peer: IpAddr, peer_pod: Option<usize>) -> bool {
        let is_about = |app: Option<usize>| app.is_none_or(|app| app == Model::app(of));
        let family = usize::from(peer.is_ipv6());
        let meets = |grant: &Grant| {
            let who = grant.peers.is_empty()
                || grant.peers.iter().any(|who| match who {
                    Who::App(app) => peer_pod.is_some_and(|peer| Model::app(peer) == *app),
                    Who::Block(networks, except) => {
                        within(peer, networks[family])
                            && !except.is_some_and(|except| within(peer, except[family]))
                    }
                });
            let port = grant.ports.is_empty()
                || grant.ports.iter().any(|(first, last)| (*first..=*last).contains(&PORT));
            who && port
        };
        let ordered = |tier: Tier| -> Option<bool> {
            let mut orders: Vec<&Order> =
                self.orders.iter().filter(|one| one.tier == tier).collect();
            orders.sort_by_key(|one| one.priority);
            let rules =
                orders.into_iter().filter(|one| is_about(one.app)).flat_map(|one| match traffic {
                    Traffic::Ingress => &one.ingress,
                    Traffic::Egress => &one.egress,
                });
            let mut rules = rules.filter(|(_, grant)| meets(grant));
            match rules.next()?.0 {
                Action::Accept => Some(true),
                Action::Deny => Some(false),
                Action::Pass => None,
            }
        };
        let granted = || -> Option<bool> {
            let about = self.policies.iter().filter(|one| is_about(one.app));
            let all: Vec<_> = about
                .filter_map(|one| match traffic {
                    Traffic::Ingress => one.ingress.as_ref(),
                    Traffic::Egress => one.egress.as_ref(),
                })
                .collect();
            (!all.is_empty()).then(|| all.iter().flat_map(|grants| grants.iter()).any(meets))
        };
        let verdict = ordered(Tier::Admin).or_else(granted);
        verdict.or_else(|| ordered(Tier::Baseline)).unwrap_or(true)
    }
}

/// Anything that the API allows, of few addresses and ports, so that much of it meets.
fn random(rng: &mut Rng, pods: &[Vec<IpAddr>]) -> Model {
    let service = |rng: &mut Rng, number: u8| {
        let local_flags: Vec<bool> = pods.iter().map(|_| rng.bool()).collect();
        let mut endpoints = Vec::new();
        for (pod, addresses) in pods.iter().enumerate() {
            if rng.u8(..4) == 0 {
                continue;
            }
            let (ready, serving, terminating) = match rng.u8(..4) {
                0 => (false, true, true),
                1 => (false, false, false),
                _ => (true, true, false),
            };
            endpoints.extend(addresses.iter().map(|address| Endpoint {
                address: *address,
                port: PORT,
                ready,
                serving,
                terminating,
                local: local_flags[pod],
                for_node: None,
                for_zone: None,
            }));
        }
        let pair = |one: &str, other: &str| {
            vec![ip(&format!("{one}{number}")), ip(&format!("{other}{number}"))]
        };
        let some = |rng: &mut Rng, list: Vec<IpAddr>| if rng.bool() { list } else { Vec::new() };
        let ranges: &[(&str, u8)] = match rng.u8(..4) {
            0 => &[("192.0.2.0", 24), ("2001:db8::", 64)],
            1 => &[("10.99.0.0", 16), ("fd99::", 16)],
            2 => &[("198.51.100.0", 24)],
            _ => &[],
        };
        ServicePort {
            protocol: TCP,
            port: 80 + u16::from(rng.u8(..2)),
            cluster_ips: pair("10.96.0.", "fd96::"),
            external_ips: some(rng, pair("198.51.100.", "2001:db8:2::")),
            load_balancer_ips: some(rng, pair("203.0.113.", "2001:db8:1::")),
            source_ranges: ranges.iter().map(|(network, prefix)| (ip(network), *prefix)).collect(),
            node_port: rng.bool().then_some(30000 + u16::from(number)),
            affinity: None,
            internal_local: rng.u8(..3) == 0,
            external_local: rng.bool(),
            endpoints,
        }
    };
    let grant = |rng: &mut Rng| Grant {
        peers: (0..rng.usize(..3))
            .map(|_| match rng.u8(..4) {
                0 => Who::App(0),
                1 => Who::App(1),
                2 => Who::Block([("10.99.1.0", 30), ("fd99:1::", 126)], None),
                _ => Who::Block(
                    [("0.0.0.0", 0), ("::", 0)],
                    rng.bool().then_some([("192.0.2.0", 24), ("2001:db8::", 64)]),
                ),
            })
            .collect(),
        ports: (0..rng.usize(..3))
            .map(|_| [(8080, 8080), (8000, 8100), (9090, 9090), (1, 65535)][rng.usize(..4)])
            .collect(),
    };
    let isolation = |rng: &mut Rng| Isolation {
        app: [None, Some(0), Some(1)][rng.usize(..3)],
        ingress: rng.bool().then(|| (0..rng.usize(..3)).map(|_| grant(rng)).collect()),
        egress: (rng.u8(..3) == 0).then(|| (0..rng.usize(..3)).map(|_| grant(rng)).collect()),
    };
    let order = |rng: &mut Rng, priority: i32| {
        let rules = |rng: &mut Rng| -> Vec<(Action, Grant)> {
            let rules = (0..rng.usize(..3)).map(|_| {
                let action = [Action::Accept, Action::Deny, Action::Pass][rng.usize(..3)];
                (action, grant(rng))
            });
            rules.collect()
        };
        Order {
            tier: Tier::BOTH[rng.usize(..2)],
            priority,
            app: [None, Some(0), Some(1)][rng.usize(..3)],
            ingress: rules(rng),
            egress: rules(rng),
        }
    };
    Model {
        orders: match rng.bool() {
            true => (0..rng.i32(0..4)).map(|priority| order(rng, 10 - priority)).collect(),
            false => Vec::new(),
        },
        services: (1..=rng.u8(1..5)).map(|number| service(rng, number)).collect(),
        policies: (0..rng.usize(..4)).map(|_| isolation(rng)).collect(),
        pods: pods.to_vec(),
    }
}

/// The policies as the planner has them.
fn apply_policies(model: &Model, firewall: &mut Firewall) {
    let selector = |app: Option<usize>| match app {
        Some(app) => Selector::from_set(&BTreeMap::from([("app".to_owned(), app.to_string())])),
        None => Selector::everything(),
    };
    let cidr = |(network, prefix): (&str, u8)| format!("{network}/{prefix}").parse().unwrap();
    let peers = |grant: &Grant, namespaces: Option<Selector>| -> Vec<Peer> {
        let peers = grant.peers.iter();
        peers
            .flat_map(|who| match who {
                Who::App(app) => {
                    let pods = selector(Some(*app));
                    vec![Peer::Pods { namespaces: namespaces.clone(), pods }]
                }
                Who::Block(networks, except) => [0, 1]
                    .map(|family| Peer::Block {
                        cidr: cidr(networks[family]),
                        except: except.iter().map(|except| cidr(except[family])).collect(),
                    })
                    .to_vec(),
            })
            .collect()
    };
    let ports = |grant: &Grant| -> Vec<Port> {
        let port = |(first, last): &(u16, u16)| Port {
            protocol: TCP,
            which: Which::Numbers(*first, *last),
        };
        grant.ports.iter().map(port).collect()
    };
    let rule = |grant: &Grant| Rule { peers: peers(grant, None), ports: ports(grant) };
    let rulings = |rules: &[(Action, Grant)]| -> Vec<Ruling> {
        let ruling = |(action, grant): &(Action, Grant)| Ruling {
            action: *action,
            peers: peers(grant, Some(Selector::everything())),
            ports: ports(grant),
        };
        rules.iter().map(ruling).collect()
    };
    let orders: Vec<ClusterPolicy> = (model.orders.iter())
        .map(|one| ClusterPolicy {
            name: format!("ClusterNetworkPolicy/{}", one.priority).into(),
            tier: one.tier,
            priority: one.priority,
            namespaces: Selector::everything(),
            pods: selector(one.app),
            ingress: rulings(&one.ingress),
            egress: rulings(&one.egress),
        })
        .collect();
    let rules = |grants: &Option<Vec<Grant>>| {
        grants.as_ref().map(|grants| grants.iter().map(rule).collect::<Vec<_>>())
    };
    let policies: Vec<Policy> = (model.policies.iter())
        .map(|one| Policy {
            pods: selector(one.app),
            ingress: rules(&one.ingress),
            egress: rules(&one.egress),
        })
        .collect();
    let pods: Vec<(NamespacedName, policy::Pod)> = (model.pods.iter().enumerate())
        .map(|(pod, addresses)| {
            let labels = BTreeMap::from([("app".to_owned(), Model::app(pod).to_string())]);
            let facts = policy::Pod { labels, addresses: addresses.clone(), ports: Vec::new() };
            (NamespacedName::new("x", &pod.to_string()), facts)
        })
        .collect();
    let labels = BTreeMap::new();
    let cluster_policies = orders.iter().collect();
    let mut world = policy::World { cluster_policies, ..policy::World::default() };
    world.policies.insert("x", policies.iter().collect());
    world.namespaces.insert("x", &labels);
    for (key, pod) in &pods {
        world.pods.entry("x").or_default().insert(&key.name, pod);
        world.locals.push((key, &pod.addresses));
    }
    firewall.apply(|family| policy::plan(&world, family)).unwrap();
}

#[test]
fn packets_go_where_the_account_says() {
    let flows: usize = std::env::var("FLOWS").ok().and_then(|n| n.parse().ok()).unwrap_or(600);
    let seed = std::env::var("SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    isolated(|| {
        let mut world = World::new();
        let pods: Vec<Vec<IpAddr>> = world.pods.iter().map(|(_, own)| own.clone()).collect();
        let mut firewall = Firewall::new(Socket::open(Family::Netfilter).unwrap());
        let (mut rng, mut done, mut round) = (Rng::with_seed(seed), 0, 0);
        let mut names: BTreeSet<NamespacedName> = BTreeSet::new();
        while done < flows {
            round += 1;
            let model = random(&mut rng, &pods);
            // One service each, in place of those before: rules are changed, not written anew.
            let mut changes: Vec<_> =
                std::mem::take(&mut names).into_iter().map(|key| (key, Vec::new())).collect();
            for (number, service) in model.services.iter().enumerate() {
                let key = NamespacedName::new("x", &format!("s{number}"));
                changes.retain(|(other, _)| *other != key);
                names.insert(key.clone());
                changes.push((key, vec![service.clone()]));
            }
            world.proxy.apply(&changes).unwrap();
            apply_policies(&model, &mut firewall);
            assert!(world.proxy.is_whole(true).unwrap() && firewall.is_whole(true).unwrap());
            let clients: [(Client, PathBuf); 5] = [
                (Client::Pod(0), world.pods[0].0.path.clone()),
                (Client::Pod(1), world.pods[1].0.path.clone()),
                (Client::Pod(2), world.pods[2].0.path.clone()),
                (Client::Node, world.host.clone()),
                (Client::Outside, world.outside.path.clone()),
            ];
            let mut asked = Vec::new();
            for (client, path) in &clients {
                for family in [0, 1] {
                    let mut to: Vec<(IpAddr, u16)> =
                        pods.iter().map(|own| (own[family], PORT)).collect();
                    for service in &model.services {
                        to.push((service.cluster_ips[family], service.port));
                        to.extend(service.external_ips.get(family).map(|at| (*at, service.port)));
                        let balanced = service.load_balancer_ips.get(family);
                        to.extend(balanced.map(|at| (*at, service.port)));
                        to.extend(service.node_port.map(|port| (ip(NODE[family]), port)));
                    }
                    // Whoever is outside has no way to a pod's own address but by chance.
                    let is_known = |to: &IpAddr| {
                        *client != Client::Outside || !pods.iter().any(|own| own.contains(to))
                    };
                    asked.extend(
                        to.into_iter()
                            .filter(|(to, _)| is_known(to))
                            .map(|to| (*client, path.clone(), to)),
                    );
                }
            }
            done += asked.len();
            std::thread::scope(|scope| {
                for part in asked.chunks(asked.len().div_ceil(16)) {
                    let (world, model) = (&world, &model);
                    scope.spawn(move || {
                        for (client, path, (to, port)) in part {
                            check(world, model, round, *client, path, *to, *port);
                        }
                    });
                }
            });
        }
        eprintln!("{done} flows in {round} clusters");
    });
}

fn check(
    world: &World,
    model: &Model,
    round: usize,
    client: Client,
    path: &std::path::Path,
    to: IpAddr,
    port: u16,
) {
    let fate = model.fate(client, to, port);
    let at = std::net::SocketAddr::new(to, port).to_string();
    let patience = match &fate {
        Fate::Dropped => BRIEF,
        Fate::Answered(some) if some.contains("timed out") => BRIEF * 4,
        _ => PATIENCE,
    };
    let said = world.ask_for(path, &at, patience);
    let is_so = match &fate {
        Fate::Dropped => said == "timed out",
        Fate::Refused => said == "connection refused",
        Fate::Answered(some) => some.contains(&said),
    };
    assert!(is_so, "round {round}: {client:?} to {at} is {said}, not {fate:?}: {model:#?}");
}
