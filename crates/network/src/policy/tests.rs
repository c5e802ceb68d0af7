//! Policies as data, and as real packets in namespaces that the tests make.
use super::facts;
use super::*;
use expect_test::{Expect, expect};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use netlink::nftables::AddressFamily;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A cluster as lines: `namespace NAME label=value…`, `pod NAMESPACE/NAME ADDRESS… label=value…
/// NAME:PROTOCOL/PORT… [here]`, `sandbox NAMESPACE/NAME ADDRESS…`, `node NAME ADDRESS… label=value…`,
/// `dns ADDRESS`. A policy is a namespace, or a kind of the cluster's policies and a name, and a spec.
#[derive(Default)]
pub struct Cluster {
    cluster_policies: Vec<ClusterPolicy>,
    nodes: Vec<(BTreeMap<String, String>, Vec<IpAddr>)>,
    pub policies: Vec<(String, Policy)>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pods: BTreeMap<NamespacedName, Pod>,
    locals: BTreeMap<NamespacedName, Vec<IpAddr>>,
    resolvers: Vec<(IpAddr, u16)>,
}

impl Cluster {
    pub fn new(lines: &str, policies: &[(&str, Value)]) -> Cluster {
        let mut cluster = Cluster::default();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let labels = words[2..].iter().filter_map(|word| word.split_once('='));
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            let key = words[1].split_once('/').unwrap_or(("", words[1]));
            let key = NamespacedName::new(key.0, key.1);
            let addresses: Vec<IpAddr> =
                words[2..].iter().filter_map(|word| word.parse().ok()).collect();
            let ports = words[2..].iter().filter_map(|word| {
                let (name, rest) = word.split_once(':')?;
                let (protocol, number) = rest.split_once('/')?;
                Some((name.to_owned(), protocol.parse().ok()?, number.parse().ok()?))
            });
            match words[0] {
                "namespace" => drop(cluster.namespaces.insert(words[1].to_owned(), labels)),
                "node" => cluster.nodes.push((labels, addresses)),
                "dns" => cluster.resolvers.push((words[1].parse().unwrap(), 53)),
                "sandbox" => drop(cluster.locals.insert(key, addresses)),
                _ => {
                    if words.contains(&"here") {
                        cluster.locals.insert(key.clone(), addresses.clone());
                    }
                    let pod = Pod { labels, addresses, ports: ports.collect() };
                    cluster.pods.insert(key, pod);
                }
            }
        }
        cluster.set_policies(policies);
        cluster
    }

    fn set_policies(&mut self, policies: &[(&str, Value)]) {
        let (of_cluster, policies): (Vec<_>, Vec<_>) =
            policies.iter().partition(|(of, _)| of.contains('/'));
        let read = |(of, spec): &&(&str, Value)| {
            let (kind, name) = of.split_once('/').unwrap();
            let read = json!({ "kind": kind, "metadata": { "name": name }, "spec": spec });
            tiers::policy(serde_json::from_value(read).unwrap()).unwrap()
        };
        self.cluster_policies = of_cluster.iter().map(read).collect();
        let read = |(namespace, spec): &&(&str, Value)| {
            let policy: NetworkPolicy =
                serde_json::from_value(json!({ "spec": spec })).expect("a policy");
            ((*namespace).to_owned(), facts::policy(&policy))
        };
        self.policies = policies.iter().map(read).collect();
    }

    pub fn world(&self) -> World<'_> {
        let mut world = World::default();
        for (namespace, policy) in &self.policies {
            world.policies.entry(namespace).or_default().push(policy);
        }
        world.namespaces = self.namespaces.iter().map(|(name, one)| (&**name, one)).collect();
        for (key, pod) in &self.pods {
            world.pods.entry(&key.namespace).or_default().insert(&key.name, pod);
        }
        world.cluster_policies = self.cluster_policies.iter().collect();
        world.nodes = self.nodes.iter().map(|(labels, at)| (labels, at.as_slice())).collect();
        world.resolvers = self.resolvers.clone();
        world.locals = self.locals.iter().map(|(key, one)| (key, one.as_slice())).collect();
        world
    }
}

pub fn describe(plan: &Plan) -> String {
    let mut text = String::new();
    for ((tier, traffic, address), orders) in &plan.ruled {
        text += &format!("{} {} {address}\n", tier.name(), traffic.name());
        for order in orders.iter() {
            let said = described(plan, &order.about);
            let line = format!("  {:?} {said} {}", order.action, order.by);
            text += &format!("{}\n", line.trim_end());
        }
    }
    for ((traffic, address), profile) in &plan.isolated {
        text += &format!("{} {address}\n", traffic.name());
        for grant in profile.iter() {
            text += &format!("  {}\n", described(plan, grant));
        }
    }
    text
}

fn described(plan: &Plan, grant: &Grant) -> String {
    let who = match &grant.who {
        Who::Anyone => "anyone".to_owned(),
        Who::Group(group) => format!("{:?}", plan.groups[group]),
        Who::Blocks(ranges) => ranges
            .iter()
            .map(|(first, end)| match end {
                Some(end) => format!("{first}..{end} "),
                None => format!("{first}.. "),
            })
            .collect::<String>()
            .trim()
            .to_owned(),
    };
    let port = |port: &Port| match &port.which {
        Which::Any => format!(" {}", port.protocol),
        Which::Numbers(first, last) => format!(" {}/{first}-{last}", port.protocol),
        Which::Named(name) => {
            let at = &plan.named[&(port.protocol, name.clone())];
            format!(" {}/{name}={at:?}", port.protocol)
        }
    };
    let ports: String = grant.ports.iter().map(port).collect();
    format!("{who}{ports}")
}

fn check(lines: &str, policies: &[(&str, Value)], expected: Expect) {
    let cluster = Cluster::new(lines, policies);
    let world = cluster.world();
    let all = AddressFamily::BOTH.map(|family| describe(&plan(&world, family)));
    expected.assert_eq(&all.concat());
}

const CLUSTER: &str = "
    namespace x team=red kubernetes.io/metadata.name=x
    namespace y team=blue
    pod x/web 10.1.0.2 fd00::2 app=web http:6/8080 here
    pod x/db 10.1.0.3 app=db here
    pod x/far 10.2.0.2 app=web http:6/80 dns:17/53
    pod y/api 10.2.0.3 fd00::23 app=api http:6/81";

#[test]
fn a_pod_is_isolated_in_the_directions_of_its_policies() {
    check(CLUSTER, &[], expect![[""]]);
    // Types that nobody gave: ingress, and egress if there is a rule of it.
    check(
        CLUSTER,
        &[("x", json!({ "podSelector": {} }))],
        expect![[r#"
            ingress 10.1.0.2
            ingress 10.1.0.3
            ingress fd00::2
        "#]],
    );
    check(
        CLUSTER,
        &[
            (
                "x",
                json!({ "podSelector": { "matchLabels": { "app": "db" } },
                         "policyTypes": ["Egress"] }),
            ),
            ("y", json!({ "podSelector": {} })),
        ],
        expect![[r#"
            egress 10.1.0.3
        "#]],
    );
    check(
        CLUSTER,
        &[("x", json!({ "podSelector": { "matchLabels": { "app": "db" } }, "egress": [{}] }))],
        expect![[r#"
            ingress 10.1.0.3
            egress 10.1.0.3
              anyone
        "#]],
    );
}

#[test]
fn peers_are_pods_here_pods_elsewhere_and_blocks() {
    let from = |peers: Value| json!({ "podSelector": { "matchLabels": { "app": "db" } }, "ingress": [{ "from": peers }] });
    let web = json!({ "matchLabels": { "app": "web" } });
    let blue = json!({ "matchExpressions":
        [{ "key": "team", "operator": "In", "values": ["blue", "green"] }] });
    check(
        CLUSTER,
        &[("x", from(json!([{ "podSelector": web }])))],
        expect![[r#"
            ingress 10.1.0.3
              {10.1.0.2, 10.2.0.2}
        "#]],
    );
    check(
        CLUSTER,
        &[(
            "x",
            from(
                json!([{ "namespaceSelector": blue }, { "namespaceSelector": {}, "podSelector": web }]),
            ),
        )],
        expect![[r#"
            ingress 10.1.0.3
              {10.1.0.2, 10.2.0.2}
              {10.2.0.3}
        "#]],
    );
    check(
        CLUSTER,
        &[("x", from(json!([{ "namespaceSelector": blue, "podSelector": web }])))],
        expect![[r#"
            ingress 10.1.0.3
              {}
        "#]],
    );
    check(
        CLUSTER,
        &[(
            "x",
            from(json!([
                { "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.2.0.0/16"] } },
                { "ipBlock": { "cidr": "fd00::/8" } },
            ])),
        )],
        expect![[r#"
            ingress 10.1.0.3
              10.0.0.0..10.2.0.0 10.3.0.0..11.0.0.0
        "#]],
    );
    // Blocks of the other address family are not everybody of this one.
    check(
        CLUSTER,
        &[("x", from(json!([{ "ipBlock": { "cidr": "fd00::/8" } }])))],
        expect![[r#"
            ingress 10.1.0.3
        "#]],
    );
}

#[test]
fn ports_are_numbers_ranges_and_names() {
    check(
        CLUSTER,
        &[(
            "x",
            json!({
                "podSelector": { "matchLabels": { "app": "web" } },
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{ "ports": [{ "port": "http" }, { "protocol": "UDP" }] }],
                "egress": [{
                    "to": [{ "namespaceSelector": {}, "podSelector": { "matchLabels": { "app": "api" } } }],
                    "ports": [{ "port": 32000, "endPort": 32768 }, { "port": 53, "protocol": "UDP" }],
                }],
            }),
        )],
        expect![[r#"
            ingress 10.1.0.2
              anyone 6/http={(10.1.0.2, 8080), (10.2.0.2, 80), (10.2.0.3, 81)} 17
            egress 10.1.0.2
              {10.2.0.3} 6/32000-32768 17/53-53
            ingress fd00::2
              anyone 6/http={(fd00::2, 8080), (fd00::23, 81)} 17
            egress fd00::2
              {fd00::23} 6/32000-32768 17/53-53
        "#]],
    );
}

#[test]
fn policies_add_up_and_what_cannot_be_read_grants_nothing() {
    let rule =
        |port: i64| json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": port }] }] });
    check(
        "pod x/a 10.1.0.2 here",
        &[("x", rule(80)), ("x", rule(81)), ("x", rule(80)), ("x", json!({ "podSelector": {} }))],
        expect![[r#"
            ingress 10.1.0.2
              anyone 6/80-80
              anyone 6/81-81
        "#]],
    );
    check(
        "pod x/a 10.1.0.2 here",
        &[
            (
                "x",
                json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 80, "protocol": "ICMP" }] }] }),
            ),
            (
                "x",
                json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 80, "endPort": 79 }] }] }),
            ),
            (
                "x",
                json!({ "podSelector": {}, "ingress": [{ "from": [{ "ipBlock": { "cidr": "x" } }] }] }),
            ),
            ("x", json!({ "podSelector": {}, "ingress": [{ "from": [{}] }] })),
        ],
        expect![[r#"
            ingress 10.1.0.2
        "#]],
    );
}

#[test]
fn a_sandbox_is_known_before_its_pod_has_an_address() {
    let web = json!({ "podSelector": { "matchLabels": { "app": "web" } },
                      "ingress": [{ "from": [{ "podSelector": {} }] }] });
    // The API tells of an address later; and still of the address's last holder.
    check(
        "pod x/web app=web
         sandbox x/web 10.1.0.2
         pod x/gone 10.1.0.2 app=gone
         pod x/other app=other 10.1.0.3",
        &[("x", web.clone())],
        expect![[r#"
            ingress 10.1.0.2
              {10.1.0.2, 10.1.0.3}
        "#]],
    );
    // Nobody knows its labels: whatever might select it isolates it, and only what selects all
    // grants.
    check(
        "sandbox x/new 10.1.0.2
         sandbox y/new 10.1.0.3",
        &[
            ("x", web),
            ("x", json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 80 }] }] })),
        ],
        expect![[r#"
            ingress 10.1.0.2
              anyone 6/80-80
        "#]],
    );
}

#[test]
fn the_nodes_dns_is_always_reached() {
    check(
        "pod x/a 10.1.0.2 here
         dns 10.1.0.1
         dns 10.2.0.1
         dns fd00::1",
        &[("x", json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"] }))],
        expect![[r#"
            ingress 10.1.0.2
            egress 10.1.0.2
              10.1.0.1..10.1.0.2 10.2.0.1..10.2.0.2 6/53-53 17/53-53
        "#]],
    );
}

#[test]
fn a_pod_of_the_node_or_one_that_has_ended_is_nobody() {
    let read = |spec: Value, status: Value| {
        let pod = json!({ "metadata": { "uid": "1" }, "spec": spec, "status": status });
        facts::pod(&serde_json::from_value(pod).unwrap()).pod
    };
    let status =
        json!({ "phase": "Running", "podIPs": [{ "ip": "10.1.0.2" }, { "ip": "fd00::2" }] });
    let containers = json!([{ "name": "a", "ports":
        [{ "name": "http", "containerPort": 80 }, { "containerPort": 81 }] }]);
    let pod = read(json!({ "containers": containers }), status.clone());
    assert_eq!(
        format!("{:?} {:?}", pod.addresses, pod.ports),
        r#"[10.1.0.2, fd00::2] [("http", 6, 80)]"#
    );
    let pod = read(json!({ "hostNetwork": true, "containers": [] }), status.clone());
    assert!(pod.addresses.is_empty());
    let mut status = status;
    status["phase"] = json!("Succeeded");
    assert!(read(json!({ "containers": [] }), status).addresses.is_empty());
}

fn pods_of(team: &str) -> Value {
    json!({ "namespaces": { "matchLabels": { "team": team } } })
}

#[test]
fn policies_of_the_cluster_are_lists_by_tier_and_priority() {
    let rule = |action: &str, peer: Value| json!({ "action": action, "from": [peer] });
    let about = |tier: &str, priority: i32, rules: Value| {
        json!({ "tier": tier, "priority": priority,
        "subject": { "pods": { "namespaceSelector": {}, "podSelector":
            { "matchLabels": { "app": "db" } } } }, "ingress": rules })
    };
    check(
        CLUSTER,
        &[
            (
                "ClusterNetworkPolicy/late",
                about("Admin", 20, json!([rule("Deny", pods_of("red"))])),
            ),
            (
                "ClusterNetworkPolicy/early",
                about(
                    "Admin",
                    10,
                    json!([rule("Accept", pods_of("blue")), rule("Pass", pods_of("red"))]),
                ),
            ),
            (
                "ClusterNetworkPolicy/last",
                about("Baseline", 1, json!([rule("Deny", pods_of("red"))])),
            ),
            ("x", json!({ "podSelector": {} })),
        ],
        expect![[r#"
            admin ingress 10.1.0.3
              Accept {10.2.0.3} ClusterNetworkPolicy/early
              Pass {10.1.0.2, 10.1.0.3, 10.2.0.2} ClusterNetworkPolicy/early
              Deny {10.1.0.2, 10.1.0.3, 10.2.0.2} ClusterNetworkPolicy/late
            baseline ingress 10.1.0.3
              Deny {10.1.0.2, 10.1.0.3, 10.2.0.2} ClusterNetworkPolicy/last
            ingress 10.1.0.2
            ingress 10.1.0.3
            ingress fd00::2
        "#]],
    );
}

#[test]
fn peers_and_ports_of_both_versions() {
    let nodes = "node n1 192.0.2.1 fd01::1 zone=a
                 node n2 192.0.2.2 zone=b
                 dns 10.1.0.1";
    check(
        &format!("{CLUSTER}\n{nodes}"),
        &[(
            "ClusterNetworkPolicy/new",
            json!({
            "tier": "Admin", "priority": 1, "subject": { "namespaces": { "matchLabels": { "team": "red" } } },
            "egress": [
                { "action": "Accept", "to": [{ "nodes": { "matchLabels": { "zone": "a" } } }],
                  "protocols": [{ "tcp": { "destinationPort": { "number": 443 } } }, { "udp": {} },
                      { "sctp": { "destinationPort": { "range": { "start": 7, "end": 9 } } } }] },
                { "action": "Deny", "to": [{ "networks": ["10.0.0.0/8", "fd00::/8"] }, pods_of("blue")] },
            ] }),
        )],
        expect![[r#"
            admin egress 10.1.0.2
              Accept 10.1.0.1..10.1.0.2 6/53-53 17/53-53
              Accept {192.0.2.1} 6/443-443 17 132/7-9 ClusterNetworkPolicy/new
              Deny {10.2.0.3} ClusterNetworkPolicy/new
              Deny 10.0.0.0..11.0.0.0 ClusterNetworkPolicy/new
            admin egress 10.1.0.3
              Accept 10.1.0.1..10.1.0.2 6/53-53 17/53-53
              Accept {192.0.2.1} 6/443-443 17 132/7-9 ClusterNetworkPolicy/new
              Deny {10.2.0.3} ClusterNetworkPolicy/new
              Deny 10.0.0.0..11.0.0.0 ClusterNetworkPolicy/new
            admin egress fd00::2
              Accept {fd01::1} 6/443-443 17 132/7-9 ClusterNetworkPolicy/new
              Deny {fd00::23} ClusterNetworkPolicy/new
              Deny fd00::..fe00:: ClusterNetworkPolicy/new
        "#]],
    );
    check(
        CLUSTER,
        &[
            (
                "AdminNetworkPolicy/old",
                json!({
                "priority": 1, "subject": { "namespaces": {} },
                "ingress": [{ "action": "Allow", "from": [pods_of("red")],
                    "ports": [{ "portNumber": { "protocol": "UDP", "port": 53 } },
                        { "portRange": { "start": 80, "end": 90 } }, { "namedPort": "http" }] }] }),
            ),
            (
                "BaselineAdminNetworkPolicy/default",
                json!({
                "subject": { "pods": { "namespaceSelector": {},
                    "podSelector": { "matchLabels": { "app": "db" } } } },
                "ingress": [{ "action": "Deny", "from": [pods_of("blue")] }] }),
            ),
        ],
        expect![[r#"
            admin ingress 10.1.0.2
              Accept {10.1.0.2, 10.1.0.3, 10.2.0.2} 6/80-90 6/http={(10.1.0.2, 8080), (10.2.0.2, 80), (10.2.0.3, 81)} 17/53-53 17/http={} 132/http={} AdminNetworkPolicy/old
            admin ingress 10.1.0.3
              Accept {10.1.0.2, 10.1.0.3, 10.2.0.2} 6/80-90 6/http={(10.1.0.2, 8080), (10.2.0.2, 80), (10.2.0.3, 81)} 17/53-53 17/http={} 132/http={} AdminNetworkPolicy/old
            baseline ingress 10.1.0.3
              Deny {10.2.0.3} BaselineAdminNetworkPolicy/default
            admin ingress fd00::2
              Accept {fd00::2} 6/80-90 6/http={(fd00::2, 8080), (fd00::23, 81)} 17/53-53 17/http={} 132/http={} AdminNetworkPolicy/old
        "#]],
    );
}

/// As their documents have it.
#[test]
fn what_is_not_understood_of_the_clusters_policies_fails_closed() {
    let told = |action: &str, peer: Value, port: Value| {
        let spec = json!({ "tier": "Admin", "priority": 1, "subject": { "namespaces": {} },
            "egress": [{ "action": action, "to": [peer], "protocols": [port] }] });
        let cluster = Cluster::new("pod x/a 10.1.0.2 here", &[("ClusterNetworkPolicy/a", spec)]);
        let egress = &cluster.cluster_policies[0].egress;
        let said = egress.iter().map(|one| {
            let (peers, ports) = (one.peers.len(), one.ports.len());
            format!("{:?} {peers} {ports}", one.action)
        });
        said.collect::<Vec<_>>().join(" ")
    };
    let tcp = || json!({ "tcp": {} });
    let domain = || json!({ "domainNames": ["example.org"] });
    let older = json!({ "namespaces": { "namespaceSelector": {} } });
    assert_eq!(told("Accept", json!({ "namespaces": {} }), tcp()), "Accept 1 1");
    assert_eq!(told("Accept", domain(), tcp()), "");
    assert_eq!(told("Deny", domain(), tcp()), "Deny 0 0");
    assert_eq!(told("Pass", older.clone(), tcp()), "Deny 0 0");
    assert_eq!(told("Accept", older, tcp()), "");
    assert_eq!(told("Deny", json!({ "networks": ["nowhere"] }), tcp()), "Deny 0 0");
    assert_eq!(told("Pass", json!({ "namespaces": {} }), json!({ "icmp": {} })), "Deny 0 0");
    assert_eq!(told("Shrug", json!({ "namespaces": {} }), tcp()), "Deny 0 0");
    // Of whom nobody knows the labels yet, only what denies counts.
    let red = json!({ "matchLabels": { "app": "red" } });
    let rules = json!([{ "action": "Accept", "to": [{ "namespaces": {} }] },
        { "action": "Deny", "to": [{ "networks": ["10.0.0.0/8"] }] }]);
    check(
        "sandbox x/new 10.1.0.2",
        &[(
            "ClusterNetworkPolicy/a",
            json!({ "tier": "Admin", "priority": 1, "egress": rules,
            "subject": { "pods": { "namespaceSelector": {}, "podSelector": red } } }),
        )],
        expect![[r#"
            admin egress 10.1.0.2
              Deny 10.0.0.0..11.0.0.0 ClusterNetworkPolicy/a
        "#]],
    );
}

mod packets {
    use super::*;
    use crate::{Config, PodNetwork, Sandbox};
    use netlink::testing::{Held, isolated};
    use netlink::{Family, Socket, namespace};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(5);
    /// How long what is dropped is waited for.
    const BRIEFLY: Duration = Duration::from_millis(300);

    /// A node whose pods are `a`, `b` and `c` of namespace x, at 10.99.1.2, .3 and .4, with servers on
    /// two ports.
    struct Node {
        pods: Vec<(Held, Vec<IpAddr>)>,
        host: PathBuf,
        firewall: Firewall,
        cluster: Cluster,
        _network: PodNetwork,
        _state: tempfile::TempDir,
    }

    const NAMES: [&str; 3] = ["a", "b", "c"];
    const PORTS: [u16; 2] = [80, 81];

    impl Node {
        fn new() -> Node {
            let state = tempfile::tempdir().unwrap();
            let network = PodNetwork::open(Config {
                pod_cidrs: vec!["10.99.1.0/24".parse().unwrap(), "fd99:1::/64".parse().unwrap()],
                cluster_cidrs: vec!["10.99.0.0/16".parse().unwrap()],
                mtu: 1400,
                state: state.path().to_owned(),
                key: None,
            })
            .unwrap();
            let mut lines = "namespace x team=red\n".to_owned();
            let pods: Vec<(Held, Vec<IpAddr>)> = NAMES
                .iter()
                .map(|name| {
                    let held = Held::new();
                    let sandbox = Sandbox {
                        id: (*name).to_owned(),
                        namespace_path: held.path.clone(),
                        owner: format!("x/{name}"),
                        bandwidth: Default::default(),
                        ports: Vec::new(),
                    };
                    let addresses = network.attach(&sandbox).unwrap();
                    lines += &format!(
                        "pod x/{name} {} {} app={name} web:6/80 here\n",
                        addresses[0], addresses[1]
                    );
                    PORTS.iter().for_each(|port| serve(&held.path, *port));
                    (held, addresses)
                })
                .collect();
            let cluster = Cluster::new(&lines, &[]);
            let firewall = Firewall::new(Socket::open(Family::Netfilter).unwrap());
            let host = netlink::testing::path();
            Node { pods, host, firewall, cluster, _network: network, _state: state }
        }

        fn policies(&mut self, policies: &[(&str, Value)]) {
            self.cluster.set_policies(policies);
            let world = self.cluster.world();
            self.firewall.apply(|family| plan(&world, family)).unwrap();
            let links = self.pods.iter().zip(NAMES).flat_map(|((_, addresses), name)| {
                addresses.iter().map(move |address| (*address, crate::link_name(name)))
            });
            self.firewall.close(&links.collect());
        }

        /// Which pods hear what one of them says to all.
        fn hear(&self, from: usize, group: SocketAddr) -> String {
            let ears: Vec<UdpSocket> = self
                .pods
                .iter()
                .map(|(held, _)| {
                    let bind = || -> std::io::Result<UdpSocket> {
                        let socket = match group {
                            SocketAddr::V4(_) => UdpSocket::bind(("0.0.0.0", group.port()))?,
                            SocketAddr::V6(_) => UdpSocket::bind(("::", group.port()))?,
                        };
                        let link = Socket::open(Family::Route)
                            .ok()
                            .and_then(|mut route| Some(route.link(crate::INTERFACE).ok()??.index));
                        match group.ip() {
                            IpAddr::V6(to) => socket.join_multicast_v6(&to, link.unwrap_or(0))?,
                            IpAddr::V4(to) if to.is_multicast() => {
                                socket.join_multicast_v4(&to, &std::net::Ipv4Addr::UNSPECIFIED)?;
                            }
                            IpAddr::V4(_) => socket.set_broadcast(true)?,
                        }
                        Ok(socket)
                    };
                    namespace::within(&held.path, bind).unwrap().unwrap()
                })
                .collect();
            ears[from].send_to(b"all", group).unwrap();
            let heard = ears.iter().zip(NAMES).enumerate().filter(|(at, (ear, _))| {
                ear.set_read_timeout(Some(BRIEFLY)).unwrap();
                *at != from && ear.recv(&mut [0; 8]).is_ok()
            });
            heard.map(|(_, (_, name))| name).collect()
        }

        /// Which pods reach which, by each family and port: `a>b` for port 80, `a:b` for 81. Who is
        /// expected to has all the time it needs.
        fn check(&self, expected: &str) {
            let names: Vec<&str> = expected.split_whitespace().collect();
            let mut asked = Vec::new();
            for (from, (held, _)) in self.pods.iter().enumerate() {
                let others = self.pods.iter().enumerate().filter(|(to, _)| *to != from);
                for (to, (_, addresses)) in others {
                    for (port, sign) in PORTS.iter().zip(['>', ':']) {
                        let name = format!("{}{sign}{}", NAMES[from], NAMES[to]);
                        let patience =
                            if names.contains(&name.as_str()) { PATIENCE } else { BRIEFLY };
                        for address in addresses {
                            let at = SocketAddr::new(*address, *port);
                            asked.push((name.clone(), &held.path, at, patience));
                        }
                    }
                }
            }
            let reached: Vec<(String, bool)> = std::thread::scope(|scope| {
                let threads: Vec<_> = asked
                    .into_iter()
                    .map(|(name, from, at, patience)| {
                        scope.spawn(move || (name, ask(from, at, patience)))
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for (name, is_reached) in reached {
                assert_eq!(is_reached, names.contains(&name.as_str()), "{name} of {expected:?}");
            }
        }
    }

    fn serve(namespace: &Path, port: u16) {
        let any = format!("[::]:{port}");
        let listener = namespace::within(namespace, || TcpListener::bind(any)).unwrap().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { break };
                // An echo, for whoever stays; a greeting for all.
                std::thread::spawn(move || {
                    let mut byte = [b'!'];
                    while stream.write_all(&byte).is_ok() && stream.read_exact(&mut byte).is_ok() {}
                });
            }
        });
    }

    fn ask(namespace: &Path, to: SocketAddr, patience: Duration) -> bool {
        let connect = || TcpStream::connect_timeout(&to, patience).is_ok();
        namespace::within(namespace, connect).unwrap()
    }

    const ALL: &str = "a>b a:b a>c a:c b>a b:a b>c b:c c>a c:a c>b c:b";

    fn app(name: &str) -> Value {
        json!({ "matchLabels": { "app": name } })
    }

    #[test]
    fn policies_hold_for_real_packets() {
        isolated(|| {
            let mut node = Node::new();
            node.policies(&[]);
            node.check(ALL);
            // Nobody speaks to a; the node itself does.
            let nobody = ("x", json!({ "podSelector": app("a") }));
            node.policies(std::slice::from_ref(&nobody));
            node.check("a>b a:b a>c a:c b>c b:c c>b c:b");
            let host = node.host.clone();
            for address in node.pods[0].1.clone() {
                assert!(ask(&host, SocketAddr::new(address, 80), PATIENCE), "probes of the node");
            }
            // Another policy adds to it: b may, and c by a port's name.
            let b_may = (
                "x",
                json!({ "podSelector": app("a"),
                "ingress": [{ "from": [{ "podSelector": app("b") }] }] }),
            );
            let c_may = (
                "x",
                json!({ "podSelector": app("a"),
                "ingress": [{ "from": [{ "namespaceSelector": { "matchLabels": { "team": "red" } },
                    "podSelector": app("c") }], "ports": [{ "port": "web" }] }] }),
            );
            node.policies(&[nobody.clone(), b_may, c_may]);
            node.check("a>b a:b a>c a:c b>a b:a b>c b:c c>a c>b c:b");
            // Ranges of ports, and blocks with exceptions.
            let but_c = json!([{ "ipBlock": { "cidr": "10.99.0.0/16", "except": ["10.99.1.4/32"] } },
                { "ipBlock": { "cidr": "fd99::/16", "except": ["fd99:1::4/128"] } }]);
            let ranged = (
                "x",
                json!({ "podSelector": app("a"),
                "ingress": [{ "from": but_c, "ports": [{ "port": 81, "endPort": 90 }] }] }),
            );
            node.policies(&[nobody, ranged]);
            node.check("a>b a:b a>c a:c b:a b>c b:c c>b c:b");
            // Out: b speaks to c alone, on one port. Answers to others come back.
            let out = (
                "x",
                json!({ "podSelector": app("b"), "policyTypes": ["Egress"],
                "egress": [{ "to": [{ "podSelector": app("c") }], "ports": [{ "port": 80 }] }] }),
            );
            node.policies(std::slice::from_ref(&out));
            node.check("a>b a:b a>c a:c b>c c>a c:a c>b c:b");
            // Both ends have a say.
            let closed = ("x", json!({ "podSelector": app("c") }));
            node.policies(&[out, closed]);
            node.check("a>b a:b c>a c:a c>b c:b");
            node.policies(&[]);
            node.check(ALL);
        });
    }

    fn of_cluster(tier: &str, priority: i32, subject: &str, rules: Value) -> (String, Value) {
        let mut spec = json!({ "tier": tier, "priority": priority,
            "subject": { "pods": { "namespaceSelector": {}, "podSelector": app(subject) } } });
        for (traffic, rules) in rules.as_object().unwrap() {
            spec[traffic] = rules.clone();
        }
        (format!("ClusterNetworkPolicy/{tier}-{priority}"), spec)
    }

    #[test]
    fn what_is_for_all_reaches_those_whom_no_policy_closes() {
        isolated(|| {
            let mut node = Node::new();
            // Broadcast, and multicast of both families.
            let groups = ["255.255.255.255:9", "239.1.2.3:9", "[ff05::1234]:9"];
            let groups = groups.map(|one| one.parse::<SocketAddr>().unwrap());
            let check = |node: &Node, expected: &str| {
                for group in groups {
                    assert_eq!(node.hear(0, group), expected, "{group}");
                }
                assert!(node.pods[0].1.iter().all(|own| ask(
                    &node.host,
                    SocketAddr::new(*own, 80),
                    PATIENCE
                )));
            };
            node.policies(&[]);
            check(&node, "bc");
            node.policies(&[("x", json!({ "podSelector": app("c") }))]);
            check(&node, "b");
            // One that grants everything closes nobody.
            node.policies(&[("x", json!({ "podSelector": app("c"), "ingress": [{}] }))]);
            check(&node, "bc");
            node.policies(&[("x", json!({ "podSelector": app("a"), "policyTypes": ["Egress"] }))]);
            check(&node, "");
            assert_eq!(node.hear(1, groups[0]), "ac");
            let mut bridge = netlink::nftables::Transaction::of_bridges(AddressFamily::Ipv4, TABLE);
            bridge.remove_table();
            bridge.commit(&mut Socket::open(Family::Netfilter).unwrap()).unwrap();
            assert!(!node.firewall.is_whole(true).unwrap(), "somebody took it away");
            node.policies(&[("x", json!({ "podSelector": app("a"), "policyTypes": ["Egress"] }))]);
            check(&node, "");
        });
    }

    #[test]
    fn policies_of_the_cluster_hold_for_real_packets() {
        isolated(|| {
            let mut node = Node::new();
            let pods = |name: &str| json!({ "pods": { "namespaceSelector": {}, "podSelector": app(name) } });
            let from = |action: &str, who: Value, ports: Value| json!({ "action": action, "from": [who], "protocols": ports });
            let port =
                |number: u16| json!([{ "tcp": { "destinationPort": { "number": number } } }]);
            let web = json!([{ "destinationNamedPort": "web" }]);
            let all = json!([{ "tcp": {} }]);
            let apply = |node: &mut Node, policies: &[(String, Value)], expected: &str| {
                let policies: Vec<_> =
                    policies.iter().map(|(name, spec)| (name.as_str(), spec.clone())).collect();
                node.policies(&policies);
                node.check(expected);
                assert!(node.firewall.is_whole(true).unwrap());
            };
            // Before NetworkPolicies: b is denied one port of a, whatever a says; c is let in.
            let closed = ("x".to_owned(), json!({ "podSelector": app("a") }));
            let open = ("x".to_owned(), json!({ "podSelector": app("a"), "ingress": [{}] }));
            let admin = of_cluster(
                "Admin",
                5,
                "a",
                json!({ "ingress": [
                from("Deny", pods("b"), port(81)), from("Accept", pods("c"), web)] }),
            );
            let without_b = "a>b a:b a>c a:c b>a b>c b:c c>a c:a c>b c:b";
            apply(&mut node, std::slice::from_ref(&admin), without_b);
            apply(&mut node, &[admin.clone(), open], without_b);
            apply(
                &mut node,
                &[admin.clone(), closed.clone()],
                "a>b a:b a>c a:c b>c b:c c>a c>b c:b",
            );
            // What is passed is a NetworkPolicy's business; with none, the last tier's.
            let pass = of_cluster(
                "Admin",
                1,
                "a",
                json!({ "ingress": [
                from("Pass", pods("b"), port(81)), from("Pass", pods("c"), all.clone())] }),
            );
            let last = of_cluster(
                "Baseline",
                1,
                "a",
                json!({ "ingress": [
                from("Accept", pods("c"), port(80)), from("Deny", json!({ "namespaces": {} }), all)] }),
            );
            apply(
                &mut node,
                &[pass.clone(), admin.clone(), last.clone()],
                "a>b a:b a>c a:c b>c b:c c>a c>b c:b",
            );
            apply(&mut node, &[pass.clone(), admin.clone()], ALL);
            apply(&mut node, &[pass, admin, last, closed], "a>b a:b a>c a:c b>c b:c c>b c:b");
            // Out: networks, with pods among them; the node itself is one of them.
            let (host, own) = (node.host.clone(), node.pods[0].0.path.clone());
            serve(&host, 82);
            let gateways: Vec<SocketAddr> =
                ["10.99.1.1:82", "[fd99:1::1]:82"].map(|at| at.parse().unwrap()).to_vec();
            let reaches = |gateway: &SocketAddr, patience| ask(&own, *gateway, patience);
            assert!(gateways.iter().all(|at| reaches(at, PATIENCE)));
            let out = of_cluster(
                "Admin",
                1,
                "a",
                json!({ "egress": [
                { "action": "Accept", "to": [pods("c")], "protocols": port(80) },
                { "action": "Deny", "to": [{ "networks": ["0.0.0.0/0", "::/0"] }] }] }),
            );
            let only_c = "a>c b>a b:a b>c b:c c>a c:a c>b c:b";
            apply(&mut node, std::slice::from_ref(&out), only_c);
            assert!(!gateways.iter().any(|at| reaches(at, BRIEFLY)), "the node is denied too");
            node.cluster.resolvers = gateways.iter().map(|at| (at.ip(), at.port())).collect();
            apply(&mut node, &[out], only_c);
            assert!(gateways.iter().all(|at| reaches(at, PATIENCE)), "but not its DNS");
            node.cluster.resolvers.clear();
            // A NetworkPolicy does not keep a pod from its node, and decides in place of the last tier.
            let to_nodes = of_cluster(
                "Baseline",
                1,
                "a",
                json!({ "egress": [
                { "action": "Deny", "to": [{ "nodes": {} }] }] }),
            );
            node.cluster.nodes =
                vec![(BTreeMap::new(), gateways.iter().map(|at| at.ip()).collect())];
            apply(&mut node, std::slice::from_ref(&to_nodes), ALL);
            assert!(
                !gateways.iter().any(|at| reaches(at, BRIEFLY)),
                "the last tier denies the node"
            );
            let shut =
                ("x".to_owned(), json!({ "podSelector": app("a"), "policyTypes": ["Egress"] }));
            apply(&mut node, &[to_nodes, shut], "b>a b:a b>c b:c c>a c:a c>b c:b");
            assert!(gateways.iter().all(|at| reaches(at, PATIENCE)));
            apply(&mut node, &[], ALL);
        });
    }

    #[test]
    fn a_connection_that_was_let_in_goes_on_and_datagrams_are_judged() {
        isolated(|| {
            let mut node = Node::new();
            node.policies(&[]);
            let (from, to) = (node.pods[0].0.path.clone(), SocketAddr::new(node.pods[1].1[0], 80));
            let mut stream = namespace::within(&from, || TcpStream::connect(to)).unwrap().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut said = [0];
            stream.read_exact(&mut said).unwrap();
            node.policies(&[(
                "x",
                json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"] }),
            )]);
            node.check("");
            stream.write_all(b"?").unwrap();
            stream.read_exact(&mut said).unwrap();
            assert_eq!(said, *b"?", "what was let in goes on, in both directions");

            let server = namespace::within(&node.pods[1].0.path, || UdpSocket::bind("0.0.0.0:53"));
            let server = server.unwrap().unwrap();
            server.set_read_timeout(Some(BRIEFLY)).unwrap();
            let client =
                namespace::within(&from, || UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
            let to = SocketAddr::new(node.pods[1].1[0], 53);
            client.send_to(b"x", to).unwrap();
            assert!(server.recv(&mut [0; 8]).is_err());
            node.policies(&[(
                "x",
                json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"],
                "ingress": [{ "ports": [{ "port": 53, "protocol": "UDP" }] }],
                "egress": [{ "ports": [{ "protocol": "UDP" }] }] }),
            )]);
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            client.send_to(b"x", to).unwrap();
            let (_, peer) = server.recv_from(&mut [0; 8]).unwrap();
            server.send_to(b"y", peer).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            assert_eq!(client.recv(&mut [0; 8]).unwrap(), 1);
            node.check("");
        });
    }

    /// Runs changes while b sends to a what every policy denies, and connects where every policy lets it: none
    /// of the first arrives, and each of the second does.
    fn unshaken(node: &mut Node, mut change: impl FnMut(&mut Node, usize), times: usize) {
        let (ended, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (from, own) = (node.pods[1].0.path.clone(), node.pods[0].1.clone());
        let ears: Vec<UdpSocket> = own
            .iter()
            .map(|at| {
                let at = SocketAddr::new(*at, 81);
                let ear = namespace::within(&node.pods[0].0.path, || UdpSocket::bind(at));
                let ear = ear.unwrap().unwrap();
                ear.set_nonblocking(true).unwrap();
                ear
            })
            .collect();
        std::thread::scope(|scope| {
            let (from, ended, sent) = (from.as_path(), &ended, &sent);
            for at in &own {
                let to = SocketAddr::new(*at, 81);
                scope.spawn(move || {
                    namespace::within(from, || {
                        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                        let socket = UdpSocket::bind(any).unwrap();
                        while !ended.load(Ordering::Relaxed) {
                            let _ = socket.send_to(b"x", to);
                            sent.fetch_add(1, Ordering::Relaxed);
                            // Often enough to meet every step, and others have their turns.
                            std::thread::yield_now();
                        }
                    })
                });
            }
            let let_in = own.iter().map(|at| {
                let to = SocketAddr::new(*at, 80);
                scope.spawn(move || {
                    let (mut count, mut failed) = (0, Vec::new());
                    while !ended.load(Ordering::Relaxed) {
                        count += 1;
                        let connect = || TcpStream::connect_timeout(&to, PATIENCE);
                        match namespace::within(from, connect).unwrap() {
                            Ok(_) => {}
                            Err(error) => failed.push(error.to_string()),
                        }
                    }
                    (count, failed)
                })
            });
            let let_in: Vec<_> = let_in.collect();
            (0..times).for_each(|at| change(node, at));
            ended.store(true, Ordering::Relaxed);
            for client in let_in {
                let (count, failed) = client.join().unwrap();
                assert!(count > 0 && failed.is_empty(), "of {count} were kept out: {failed:?}");
            }
        });
        let heard: Vec<bool> = ears.iter().map(|ear| ear.recv(&mut [0; 8]).is_ok()).collect();
        let sent = sent.load(Ordering::Relaxed);
        assert!(sent > times && heard == [false; 2], "of {sent} some were let in: {heard:?}");
    }

    /// Everything else changes with the number: who else is let in, where, and by which tier's rules.
    fn rolling(at: usize) -> Vec<(String, Value)> {
        let web = json!({ "from": [{ "podSelector": app("b") }], "ports": [{ "port": 80 }] });
        let other = json!({ "from": [{ "ipBlock": { "cidr": format!("10.{}.{}.0/24", at % 200, at % 7) } }],
            "ports": [{ "port": 100 + at }] });
        let closed = json!({ "podSelector": app("a"), "ingress": [web, other] });
        let mut all = vec![("x".to_owned(), closed)];
        if at % 4 == 1 {
            all.push((
                "x".to_owned(),
                json!({ "podSelector": {}, "policyTypes": ["Egress"],
                "egress": [{ "to": [{ "podSelector": {} }] }] }),
            ));
        }
        let pods = json!({ "pods": { "namespaceSelector": {}, "podSelector": app("b") } });
        let deny = json!({ "action": "Deny", "from": [pods],
            "protocols": [{ "udp": { "destinationPort": { "range": { "start": 81, "end": 82 + at } } } }] });
        let rules = json!({ "ingress": [deny] });
        match at % 3 {
            // The same is denied by a tier before, and by one that comes too late to matter.
            1 => all.push(of_cluster("Admin", 5, "a", rules)),
            2 => all.push(of_cluster("Baseline", 5, "a", rules)),
            _ => {}
        }
        // Who denies it goes from stage to stage; somebody always does.
        if at % 6 == 4 {
            all.remove(0);
        }
        all
    }

    fn roll(node: &mut Node, at: usize) {
        let all = rolling(at);
        let all: Vec<_> = all.iter().map(|(name, spec)| (name.as_str(), spec.clone())).collect();
        node.policies(&all);
    }

    #[test]
    fn nothing_slips_through_while_policies_roll() {
        isolated(|| {
            let mut node = Node::new();
            roll(&mut node, 0);
            unshaken(&mut node, roll, 60);
            assert!(node.firewall.is_whole(true).unwrap());
            roll(&mut node, 0);
            node.check("a>b a:b a>c a:c b>a b>c b:c c>b c:b");
        });
    }

    /// The next process takes over what the last left.
    #[test]
    fn nothing_slips_through_while_a_firewall_begins_anew() {
        isolated(|| {
            let mut node = Node::new();
            roll(&mut node, 0);
            let mut socket = Socket::open(Family::Netfilter).unwrap();
            let before = AddressFamily::BOTH.map(|family| socket.table(family, TABLE).unwrap());
            let begin = |node: &mut Node, at: usize| {
                node.firewall = Firewall::new(Socket::open(Family::Netfilter).unwrap());
                roll(node, at);
            };
            unshaken(&mut node, begin, 25);
            assert!(node.firewall.is_whole(true).unwrap());
            let after = AddressFamily::BOTH.map(|family| socket.table(family, TABLE).unwrap());
            assert_eq!(before, after, "the tables are the same");
        });
    }

    /// `nft`, where it is installed, shows the table.
    #[test]
    fn the_table_can_be_listed() {
        isolated(|| {
            let mut node = Node::new();
            let peers = json!([{ "podSelector": app("b") },
                { "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.2.0.0/16"] } },
                { "ipBlock": { "cidr": "fd00::/8" } }]);
            let ports = json!([{ "port": "web" }, { "port": 81 }, { "port": 90, "endPort": 99 },
                { "protocol": "UDP" }]);
            let open = json!({ "podSelector": app("a"), "policyTypes": ["Ingress", "Egress"],
                "ingress": [{ "from": peers, "ports": ports }], "egress": [{ "ports": ports }] });
            let pods = json!({ "pods": { "namespaceSelector": {}, "podSelector": app("b") } });
            let port = json!([{ "tcp": { "destinationPort": { "number": 81 } } }]);
            let rules = |action: &str| json!({ "ingress": [{ "action": action, "from": [pods], "protocols": port }] });
            let admin = of_cluster("Admin", 1, "a", rules("Pass"));
            let baseline = of_cluster("Baseline", 1, "c", rules("Deny"));
            node.policies(&[
                ("x", open),
                (&admin.0, admin.1.clone()),
                (&baseline.0, baseline.1.clone()),
            ]);
            for family in ["ip", "ip6"] {
                if let Some(listed) = netlink::testing::listed(family, TABLE) {
                    assert!(listed.contains("vmap @ingress-admin"), "{listed}");
                }
            }
            if let Some(listed) = netlink::testing::listed("bridge", TABLE) {
                assert!(listed.contains("@ingress"), "{listed}");
            }
        });
    }

    /// What it takes is said with `--nocapture`.
    #[test]
    fn a_thousand_policies_and_pods_fit() {
        isolated(|| {
            let mut lines = "namespace x team=red\n".to_owned();
            for pod in 0..1000 {
                let (high, low) = (pod / 250, pod % 250);
                lines += &format!("pod x/p{pod} 10.1.{high}.{low} app=p{pod} here\n");
            }
            let policies: Vec<(&str, Value)> = (0..1000)
                .map(|at| {
                    let (to, from) = (app(&format!("p{at}")), app(&format!("p{}", (at + 1) % 1000)));
                    ("x", json!({ "podSelector": to, "ingress": [{ "from": [{ "podSelector": from }] }] }))
                })
                .collect();
            let mut cluster = Cluster::new(&lines, &policies);
            let mut firewall = Firewall::new(Socket::open(Family::Netfilter).unwrap());
            let mut apply = |cluster: &Cluster| {
                let begun = std::time::Instant::now();
                let world = cluster.world();
                firewall.apply(|family| plan(&world, family)).unwrap();
                begun.elapsed()
            };
            let all = apply(&cluster);
            let key = NamespacedName::new("x", "p7");
            cluster.pods.get_mut(&key).unwrap().addresses = vec!["10.1.9.9".parse().unwrap()];
            cluster.locals.insert(key, vec!["10.1.9.9".parse().unwrap()]);
            let one = apply(&cluster);
            println!("a thousand policies on a thousand pods: {all:?}; one pod moved: {one:?}");
        });
    }
}
