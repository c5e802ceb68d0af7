//! A thousand policies on a thousand pods of one node: all at once, and one change among them.
use super::Options;
use crate::report::Report;
use api::names::NamespacedName;
use api::selector::label::Selector;
use netlink::{Family, Socket};
use network::policy::{Firewall, Peer, Pod, Policy, Rule, World, plan};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

const MANY: usize = 1000;
const CHANGES: usize = 21;
const NAMESPACE: &str = "default";

/// Each pod has a policy of its own, that lets its neighbour in.
struct Cluster {
    pods: Vec<(NamespacedName, Pod)>,
    policies: Vec<Policy>,
    labels: BTreeMap<String, String>,
}

pub fn run(_: &Options, report: &mut Report) {
    let host = testkit::network::machine();
    let work = || measure(report);
    netlink::namespace::within(&host.path, work).expect("a network namespace can be entered");
}

fn measure(report: &mut Report) {
    let mut cluster = Cluster::new();
    let mut firewall = Firewall::new(Socket::open(Family::Netfilter).expect("a socket"));
    let mut apply = |cluster: &Cluster| {
        let begun = Instant::now();
        let world = cluster.world();
        firewall.apply(|family| plan(&world, family)).expect("rules");
        begun.elapsed().as_secs_f64() * 1000.0
    };
    let all = apply(&cluster);
    let mut changes: [(&str, Vec<f64>); 3] =
        ["one pod moved", "one policy changed", "one policy more"].map(|name| (name, Vec::new()));
    for round in 0..CHANGES {
        let at = round * 37 % MANY;
        cluster.pods[at].1.addresses = vec![address(MANY + round)];
        changes[0].1.push(apply(&cluster));
        cluster.policies[at] = policy(at, at + 2 + round);
        changes[1].1.push(apply(&cluster));
        cluster.policies.push(policy(at, at + 500));
        changes[2].1.push(apply(&cluster));
    }
    report.row(format!("{MANY} policies on {MANY} pods"), &[("ms", all), ("worst ms", all)]);
    for (name, mut took) in changes {
        took.sort_by(f64::total_cmp);
        let figures = [("ms", took[CHANGES / 2]), ("worst ms", took[CHANGES - 1])];
        report.row(format!("{name} among them"), &figures);
    }
}

fn address(at: usize) -> IpAddr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 1, 0, 1)) + at as u32).into()
}

fn labels(at: usize) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), format!("app-{}", at % MANY))])
}

fn policy(to: usize, from: usize) -> Policy {
    let pods = |at| Selector::from_set(&labels(at));
    let peers = vec![Peer::Pods { namespaces: None, pods: pods(from) }];
    let rule = Rule { peers, ports: Vec::new() };
    Policy { pods: pods(to), ingress: Some(vec![rule]), egress: None }
}

impl Cluster {
    fn new() -> Cluster {
        let pod = |at: usize| {
            let pod = Pod { labels: labels(at), addresses: vec![address(at)], ports: Vec::new() };
            (NamespacedName::new(NAMESPACE, &format!("pod-{at}")), pod)
        };
        Cluster {
            pods: (0..MANY).map(pod).collect(),
            policies: (0..MANY).map(|at| policy(at, at + 1)).collect(),
            labels: BTreeMap::new(),
        }
    }

    fn world(&self) -> World<'_> {
        let pods = self.pods.iter().map(|(key, pod)| (&*key.name, pod)).collect();
        World {
            policies: BTreeMap::from([(NAMESPACE, self.policies.iter().collect())]),
            namespaces: BTreeMap::from([(NAMESPACE, &self.labels)]),
            pods: BTreeMap::from([(NAMESPACE, pods)]),
            locals: self.pods.iter().map(|(key, pod)| (key, pod.addresses.as_slice())).collect(),
            ..World::default()
        }
    }
}
