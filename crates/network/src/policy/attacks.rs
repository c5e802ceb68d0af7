//! Policies of the cluster that contradict each other, that are too many, or that would have what is not theirs.
use super::tests::{Cluster, describe};
use super::*;
use netlink::nftables::AddressFamily;
use netlink::testing::isolated;
use netlink::{Family, Socket};
use serde_json::{Value, json};
use std::time::Instant;

const PODS: &str = "
    namespace x team=red
    namespace y team=blue
    pod x/web 10.1.0.2 fd00::2 app=web http:6/8080 here
    pod x/db 10.1.0.3 app=db here
    pod y/thief 10.2.0.9 fd00::29 app=thief http:6/22 dns:17/22";

/// What the rules of one family are to be.
fn planned(lines: &str, policies: &[(&str, Value)], family: AddressFamily) -> String {
    let cluster = Cluster::new(lines, policies);
    describe(&plan(&cluster.world(), family))
}

fn app(name: &str) -> Value {
    json!({ "pods": { "namespaceSelector": {}, "podSelector": { "matchLabels": { "app": name } } } })
}

fn of_priority(priority: i32, rules: Value) -> Value {
    json!({ "tier": "Admin", "priority": priority, "subject": app("db"), "ingress": rules })
}

/// Among equals somebody has to come first, on every node the same.
#[test]
fn equal_priorities_are_decided_by_name() {
    let rule = |action: &str| json!([{ "action": action, "from": [app("thief")] }]);
    let mut policies = vec![
        ("ClusterNetworkPolicy/b", of_priority(7, rule("Accept"))),
        ("ClusterNetworkPolicy/a", of_priority(7, rule("Deny"))),
        ("AdminNetworkPolicy/c", of_priority(7, rule("Pass"))),
        ("ClusterNetworkPolicy/z", of_priority(i32::MIN, rule("Pass"))),
        ("ClusterNetworkPolicy/0", of_priority(i32::MAX, rule("Deny"))),
    ];
    let expected = "admin ingress 10.1.0.3\n  Pass {10.2.0.9} ClusterNetworkPolicy/z
  Pass {10.2.0.9} AdminNetworkPolicy/c\n  Deny {10.2.0.9} ClusterNetworkPolicy/a
  Accept {10.2.0.9} ClusterNetworkPolicy/b\n  Deny {10.2.0.9} ClusterNetworkPolicy/0\n";
    for _ in 0..policies.len() {
        assert_eq!(planned(PODS, &policies, AddressFamily::Ipv4), expected);
        policies.rotate_left(1);
    }
}

/// A pod may call its ports as it likes: that opens its own, nobody else's.
#[test]
fn a_port_by_a_name_is_that_of_the_pod_that_calls_it_so() {
    let rule = json!([{ "action": "Accept", "from": [{ "namespaces": {} }],
        "protocols": [{ "destinationNamedPort": "http" }] }]);
    let policies = [("ClusterNetworkPolicy/a", of_priority(1, rule))];
    let cluster = Cluster::new(PODS, &policies);
    let plan = plan(&cluster.world(), AddressFamily::Ipv4);
    let named: Vec<String> = plan.named[&(6, "http".to_owned())]
        .iter()
        .map(|(at, port)| format!("{at}:{port}"))
        .collect();
    assert_eq!(named, ["10.1.0.2:8080", "10.2.0.9:22"]);
}

/// Whoever denies everything to everybody denies the API server with it, as they say. Names are still found,
/// for the node itself answers for them.
#[test]
fn the_nodes_dns_is_denied_to_nobody() {
    let lines = format!("{PODS}\n dns 10.1.0.1\n dns fd00::1\n node n 192.0.2.1 role=api");
    let everything = json!({ "tier": "Admin", "priority": 0, "subject": { "namespaces": {} },
        "egress": [{ "action": "Deny", "to": [{ "networks": ["0.0.0.0/0", "::/0"] }, { "nodes": {} }] }] });
    let policies = [("ClusterNetworkPolicy/all", everything)];
    for (family, first, rest) in [
        (AddressFamily::Ipv4, "Accept 10.1.0.1..10.1.0.2 6/53-53 17/53-53", "Deny 0.0.0.0.. "),
        (AddressFamily::Ipv6, "Accept fd00::1..fd00::2 6/53-53 17/53-53", "Deny ::.. "),
    ] {
        let said = planned(&lines, &policies, family);
        let orders: Vec<&str> = said.lines().filter(|line| line.starts_with("  ")).collect();
        assert!(orders[0].contains(first), "{said}");
        assert!(orders.iter().any(|order| order.contains(rest)), "{said}");
        let denies_node = orders.iter().any(|order| order.contains("Deny {192.0.2.1}"));
        assert_eq!(denies_node, family == AddressFamily::Ipv4, "{said}");
    }
}

struct Chance(u64);

impl Chance {
    fn number(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Of few addresses and many lengths, so that most of them overlap.
    fn cidr(&mut self, family: AddressFamily) -> Cidr {
        let prefixes: &[u8] = match family {
            AddressFamily::Ipv4 => &[0, 8, 15, 23, 24, 25, 30, 31, 32],
            AddressFamily::Ipv6 => &[0, 7, 64, 112, 113, 120, 127, 128],
        };
        let prefix = prefixes[self.number() as usize % prefixes.len()];
        format!("{}/{prefix}", self.address(family)).parse().unwrap()
    }

    fn address(&mut self, family: AddressFamily) -> IpAddr {
        let [low, high] = [self.number() as u8 & 0x13, self.number() as u8];
        let text = match family {
            AddressFamily::Ipv4 => format!("10.{}.{low}.{high}", low & 3),
            AddressFamily::Ipv6 => format!("fd00:{low:x}::{high:x}{low:02x}"),
        };
        text.parse().unwrap()
    }
}

/// Thousands of blocks and exceptions that overlap in every way: each address is in the ranges if a plain
/// account says so, and the kernel takes them.
#[test]
fn blocks_that_overlap_are_what_a_plain_account_says() {
    isolated(|| {
        let mut chance = Chance(0x5f);
        let mut firewall = Firewall::new(Socket::open(Family::Netfilter).unwrap());
        for family in AddressFamily::BOTH {
            for round in 0..20 {
                let count = [3, 40, 400][round % 3];
                let blocks: Vec<(Cidr, Vec<Cidr>)> = (0..count)
                    .map(|_| {
                        let excepted = chance.number() % 4;
                        let except = (0..excepted).map(|_| chance.cidr(family)).collect();
                        (chance.cidr(family), except)
                    })
                    .collect();
                // Everything is a rare block: it would hide all others.
                let blocks: Vec<_> = blocks
                    .into_iter()
                    .filter(|(cidr, _)| cidr.prefix() > 0 || round == 0)
                    .collect();
                let ranges =
                    Ranges::of(blocks.iter().map(|(one, not)| (one, not.as_slice())), family);
                for _ in 0..500 {
                    let address = chance.address(family);
                    let expected = blocks.iter().any(|(cidr, except)| {
                        cidr.contains(address) && !except.iter().any(|one| one.contains(address))
                    });
                    let found = ranges.iter().any(|(first, end)| {
                        first <= address && end.is_none_or(|end| address < end)
                    });
                    assert_eq!(found, expected, "{address} of {blocks:?}");
                }
                let peers =
                    blocks.into_iter().map(|(cidr, except)| Peer::Block { cidr, except }).collect();
                let rule = Rule { peers, ports: Vec::new() };
                let mut cluster = Cluster::new(PODS, &[]);
                let pods = Selector::everything();
                let policy = Policy { pods, ingress: Some(vec![rule]), egress: None };
                cluster.policies = vec![("x".to_owned(), policy)];
                let world = cluster.world();
                firewall.apply(|family| plan(&world, family)).unwrap();
            }
        }
    });
}

/// Rules with as many peers as their definitions take, on a node with a thousand pods, by somebody whose name is
/// as long as a name may be: the kernel takes all of it, and a change among them.
#[test]
fn thousands_of_peers_fit() {
    const RULES: usize = 30;
    isolated(|| {
        let mut lines = "namespace x team=red\n".to_owned();
        for pod in 0..1000 {
            let (high, low) = (pod / 250, pod % 250);
            lines += &format!("pod x/p{pod} 10.1.{high}.{low} app=p{pod} here\n");
        }
        let rule = |at: usize| {
            let peers: Vec<Value> =
                (0..100).map(|peer| app(&format!("p{}", (at * 100 + peer) % 1000))).collect();
            let action = ["Accept", "Deny", "Pass"][at % 3];
            json!({ "action": action, "from": peers,
                "protocols": [{ "tcp": { "destinationPort": { "number": 1 + at } } }] })
        };
        let name = format!("ClusterNetworkPolicy/{}", "n".repeat(253));
        let spec = |rules: usize| {
            json!({ "tier": "Admin", "priority": 1, "subject": { "namespaces": {} },
                "ingress": (0..rules).map(rule).collect::<Vec<_>>() })
        };
        let mut firewall = Firewall::new(Socket::open(Family::Netfilter).unwrap());
        let mut apply = |rules: usize| {
            let cluster = Cluster::new(&lines, &[(&name, spec(rules))]);
            let (world, begun) = (cluster.world(), Instant::now());
            firewall.apply(|family| plan(&world, family)).unwrap();
            assert!(firewall.is_whole(true).unwrap());
            begun.elapsed()
        };
        let (all, one) = (apply(RULES), apply(RULES - 1));
        println!("{} peers: {all:?}; one rule less: {one:?}", RULES * 100);
    });
}
