//! Real connections to services, in namespaces that the tests make.
use super::*;
use api::names::NamespacedName;
use netlink::route::{Route, Veth};
use netlink::testing::{Held, isolated, path};
use netlink::{Family, Socket, namespace};
use network::{PodNetwork, Sandbox};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
const PORT: u16 = 8080;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A node with three pods, and a machine outside of the cluster.
pub struct World {
    pub host: PathBuf,
    pub outside: Held,
    pub pods: Vec<(Held, Vec<IpAddr>)>,
    pub proxy: Proxy,
    _network: PodNetwork,
    _state: tempfile::TempDir,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl World {
    pub fn new() -> World {
        let state = tempfile::tempdir().unwrap();
        let mut host = Socket::open(Family::Route).unwrap();
        let lo = host.link("lo").unwrap().unwrap().index;
        host.set_link_up(lo).unwrap();
        let outside = Held::new();
        let file = std::fs::File::open(&outside.path).unwrap();
        let link = host.ensure_bridge("uplink", 1500).unwrap();
        let (name, peer, namespace) = ("up0", "eth0", file.as_fd());
        host.create_veth(&Veth { name, peer, namespace, master: link, mtu: 1500 }).unwrap();
        let mut inside = Socket::open_in(Family::Route, &outside.path).unwrap();
        let eth0 = inside.link("eth0").unwrap().unwrap().index;
        inside.set_link_up(eth0).unwrap();
        for (near, far, prefix, any) in
            [("192.0.2.1", "192.0.2.2", 24, "0.0.0.0"), ("2001:db8::1", "2001:db8::2", 64, "::")]
        {
            host.add_address(link, ip(near), prefix).unwrap();
            inside.add_address(eth0, ip(far), prefix).unwrap();
            let route = |gateway, link| Route {
                destination: (ip(any), 0),
                gateway: Some(ip(gateway)),
                link,
            };
            host.set_route(&route(far, link)).unwrap();
            inside.set_route(&route(near, eth0)).unwrap();
        }
        let cidr = |text: &str| text.parse().unwrap();
        let network = PodNetwork::open(network::Config {
            pod_cidrs: vec![cidr("10.99.1.0/24"), cidr("fd99:1::/64")],
            cluster_cidrs: vec![cidr("10.99.0.0/16"), cidr("fd99::/16")],
            mtu: 1400,
            state: state.path().to_owned(),
            key: None,
        })
        .unwrap();
        let pod = |id: usize| {
            let held = Held::new();
            let (id, namespace_path) = (id.to_string(), held.path.clone());
            let (owner, ports, bandwidth) = (id.clone(), Vec::new(), Default::default());
            let sandbox = Sandbox { owner, id, namespace_path, ports, bandwidth };
            let addresses = network.attach(&sandbox).unwrap();
            for address in &addresses {
                serve_tcp(&held.path, *address);
                serve_udp(&held.path, *address);
            }
            (held, addresses)
        };
        let pods = (0..3).map(pod).collect();
        let proxy = Proxy::open(World::config()).unwrap();
        World { host: path(), outside, pods, proxy, _network: network, _state: state }
    }

    pub fn config() -> Config {
        let cluster_cidrs = vec![(ip("10.99.0.0"), 16), (ip("fd99::"), 16)];
        Config { cluster_cidrs, ..Config::default() }
    }

    /// A service with the pods of these numbers.
    fn service(&self, protocol: u8, pods: &[usize]) -> ServicePort {
        let addresses = pods.iter().flat_map(|pod| self.pods[*pod].1.clone());
        let endpoint = |address| Endpoint {
            address,
            port: PORT,
            ready: true,
            serving: true,
            terminating: false,
            local: true,
            for_node: None,
            for_zone: None,
        };
        ServicePort {
            protocol,
            port: 80,
            cluster_ips: vec![ip("10.96.0.1"), ip("fd96::1")],
            endpoints: addresses.map(endpoint).collect(),
            ..ServicePort::default()
        }
    }

    /// These ports, and no others, are one service's.
    fn apply(&mut self, ports: &[ServicePort]) {
        let key = NamespacedName::new("default", "web");
        self.proxy.apply(&[(key, ports.to_vec())]).unwrap();
    }

    /// Which pod answers a client, and whom that pod sees: `1 from 10.99.1.2`.
    fn ask(&self, from: &Path, to: &str) -> String {
        self.ask_for(from, to, PATIENCE)
    }

    /// The same, for who may be dropped.
    fn ask_briefly(&self, from: &Path, to: &str) -> String {
        self.ask_for(from, to, Duration::from_millis(300))
    }

    pub fn ask_for(&self, from: &Path, to: &str, patience: Duration) -> String {
        let to: SocketAddr = to.parse().unwrap();
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&to, patience)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut said = String::new();
            stream.read_to_string(&mut said)?;
            Ok(said)
        };
        match namespace::within(from, ask).unwrap() {
            Ok(said) => self.numbered(&said),
            Err(error) => error.kind().to_string(),
        }
    }

    fn numbered(&self, said: &str) -> String {
        let (server, client) = said.split_once(' ').unwrap();
        let pod = self.pods.iter().position(|(_, addresses)| addresses.contains(&ip(server)));
        format!("{} from {client}", pod.unwrap())
    }
}

fn serve_tcp(namespace: &Path, address: IpAddr) {
    let bind = || TcpListener::bind((address, PORT));
    let listener = namespace::within(namespace, bind).unwrap().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { break };
            let Ok(peer) = stream.peer_addr() else { continue };
            let _ = stream.write_all(format!("{address} {}", peer.ip()).as_bytes());
        }
    });
}

fn serve_udp(namespace: &Path, address: IpAddr) {
    let socket = namespace::within(namespace, || UdpSocket::bind((address, PORT)));
    let socket = socket.unwrap().unwrap();
    std::thread::spawn(move || {
        while let Ok((_, peer)) = socket.recv_from(&mut [0; 16]) {
            let _ = socket.send_to(format!("{address} {}", peer.ip()).as_bytes(), peer);
        }
    });
}

#[test]
fn clients_reach_services_from_everywhere() {
    isolated(|| {
        let mut world = World::new();
        let service = ServicePort {
            node_port: Some(30080),
            external_ips: vec![ip("192.0.2.99")],
            ..world.service(TCP, &[1])
        };
        world.apply(&[service]);
        let (pod, itself) = (&world.pods[0].0.path, &world.pods[1].0.path);
        let (host, outside) = (&world.host, &world.outside.path);
        assert_eq!(world.ask(pod, "10.96.0.1:80"), "1 from 10.99.1.2");
        assert_eq!(world.ask(pod, "[fd96::1]:80"), "1 from fd99:1::2");
        assert_eq!(world.ask(itself, "10.96.0.1:80"), "1 from 10.99.1.1", "by way of itself");
        assert_eq!(world.ask(itself, "[fd96::1]:80"), "1 from fd99:1::1", "by way of itself");
        assert_eq!(world.ask(host, "10.96.0.1:80"), "1 from 10.99.1.1");
        assert_eq!(world.ask(outside, "10.96.0.1:80"), "1 from 10.99.1.1");
        assert_eq!(world.ask(outside, "192.0.2.1:30080"), "1 from 10.99.1.1");
        assert_eq!(world.ask(outside, "[2001:db8::1]:30080"), "1 from fd99:1::1");
        assert_eq!(world.ask(pod, "192.0.2.1:30080"), "1 from 10.99.1.1");
        assert_eq!(world.ask(host, "192.0.2.1:30080"), "1 from 10.99.1.1");
        assert_eq!(world.ask(pod, "192.0.2.99:80"), "1 from 10.99.1.1");

        let service = ServicePort {
            node_port: Some(30080),
            external_local: true,
            ..world.service(TCP, &[1])
        };
        world.apply(&[service]);
        let (pod, outside) = (&world.pods[0].0.path, &world.outside.path);
        assert_eq!(world.ask(outside, "192.0.2.1:30080"), "1 from 192.0.2.2", "the source is kept");
        assert_eq!(world.ask(pod, "192.0.2.1:30080"), "1 from 10.99.1.2");
    });
}

#[test]
fn endpoints_come_and_go() {
    isolated(|| {
        let mut world = World::new();
        let client = world.pods[0].0.path.clone();
        let servers = |world: &World| -> BTreeSet<String> {
            (0..40).map(|_| world.ask(&client, "10.96.0.1:80")).collect()
        };
        for (pods, expected) in [
            (&[1_usize, 2][..], &["1 from 10.99.1.2", "2 from 10.99.1.2"][..]),
            (&[2], &["2 from 10.99.1.2"]),
            (&[], &["connection refused"]),
            (&[1], &["1 from 10.99.1.2"]),
        ] {
            let services = [world.service(TCP, pods)];
            world.apply(&services);
            world.apply(&services);
            assert_eq!(servers(&world), expected.iter().map(|one| (*one).to_owned()).collect());
        }
        // Another process begins with what this one left.
        world.proxy = Proxy::open(Config::default()).unwrap();
        let services = [world.service(TCP, &[2])];
        world.apply(&services);
        assert_eq!(world.ask(&client, "10.96.0.1:80"), "2 from 10.99.1.2");
        world.apply(&[]);
        let proxy = std::mem::replace(&mut world.proxy, Proxy::open(Config::default()).unwrap());
        proxy.teardown().unwrap();
    });
}

#[test]
fn a_client_stays_with_its_endpoint_until_that_goes() {
    isolated(|| {
        let mut world = World::new();
        let client = world.pods[0].0.path.clone();
        for to in ["10.96.0.1:80", "[fd96::1]:80"] {
            let sticky = |service| ServicePort { affinity: Some(60), ..service };
            let services = [sticky(world.service(TCP, &[1, 2]))];
            world.apply(&services);
            let first = world.ask(&client, to);
            for _ in 0..10 {
                assert_eq!(world.ask(&client, to), first);
            }
            let other = if first.starts_with('1') { 2 } else { 1 };
            let services = [sticky(world.service(TCP, &[other]))];
            world.apply(&services);
            let second = world.ask(&client, to);
            assert!(second.starts_with(&format!("{other} from")), "{first} then {second}");
        }
    });
}

#[test]
fn datagrams_leave_an_endpoint_that_is_gone() {
    isolated(|| {
        let mut world = World::new();
        let services = [world.service(UDP, &[1])];
        world.apply(&services);
        let bind = || UdpSocket::bind("0.0.0.0:5555");
        let socket = namespace::within(&world.pods[0].0.path, bind).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let ask = |world: &World| {
            socket.send_to(b"hello", "10.96.0.1:80").unwrap();
            let mut said = [0; 64];
            let length = socket.recv(&mut said).unwrap();
            world.numbered(std::str::from_utf8(&said[..length]).unwrap())
        };
        assert_eq!(ask(&world), "1 from 10.99.1.2");
        let services = [world.service(UDP, &[2])];
        world.apply(&services);
        assert_eq!(ask(&world), "2 from 10.99.1.2", "from the same port of the client");
    });
}

#[test]
fn a_load_balancers_address_is_for_its_source_ranges() {
    isolated(|| {
        let mut world = World::new();
        let service = |world: &World, ranges: &[(&str, u8)]| ServicePort {
            load_balancer_ips: vec![ip("203.0.113.9")],
            source_ranges: ranges.iter().map(|(address, prefix)| (ip(address), *prefix)).collect(),
            // A protocol that this kernel may not know spoils nothing.
            ..world.service(TCP, &[1])
        };
        let sctp = ServicePort { port: 81, ..world.service(132, &[1]) };
        let services = [service(&world, &[("192.0.2.0", 24)]), sctp.clone()];
        world.apply(&services);
        let (pod, outside) = (world.pods[0].0.path.clone(), world.outside.path.clone());
        assert_eq!(world.ask(&outside, "203.0.113.9:80"), "1 from 10.99.1.1");
        let services = [service(&world, &[("198.51.100.0", 24), ("10.99.0.0", 16)]), sctp];
        world.apply(&services);
        assert_eq!(world.ask(&pod, "203.0.113.9:80"), "1 from 10.99.1.1");
        assert_eq!(world.ask_briefly(&outside, "203.0.113.9:80"), "timed out");
        let services = [service(&world, &[])];
        world.apply(&services);
        assert_eq!(world.ask(&outside, "203.0.113.9:80"), "1 from 10.99.1.1");
    });
}

#[test]
fn node_ports_are_on_the_nodes_addresses_that_were_named() {
    isolated(|| {
        let mut world = World::new();
        world.proxy.set_node_port_addresses(vec![(ip("10.99.1.1"), 32)]);
        let services = [ServicePort { node_port: Some(30080), ..world.service(TCP, &[1]) }];
        world.apply(&services);
        let pod = world.pods[0].0.path.clone();
        assert_eq!(world.ask(&pod, "10.99.1.1:30080"), "1 from 10.99.1.1");
        assert_eq!(world.ask(&pod, "192.0.2.1:30080"), "connection refused");
        world.proxy.set_node_port_addresses(Vec::new());
        world.proxy.apply(&[]).unwrap();
        assert_eq!(world.ask(&pod, "192.0.2.1:30080"), "1 from 10.99.1.1");
    });
}

/// Two services want one address: the first in the order of names has it, and the other when the
/// first is gone.
#[test]
fn a_contested_address_has_one_holder() {
    isolated(|| {
        let mut world = World::new();
        let (a, b) = (NamespacedName::new("default", "a"), NamespacedName::new("default", "b"));
        let (one, two) = (world.service(TCP, &[1]), world.service(TCP, &[2]));
        let client = world.pods[0].0.path.clone();
        world.proxy.apply(&[(b.clone(), vec![two.clone()])]).unwrap();
        assert_eq!(world.ask(&client, "10.96.0.1:80"), "2 from 10.99.1.2");
        world.proxy.apply(&[(a.clone(), vec![one])]).unwrap();
        assert_eq!(world.ask(&client, "10.96.0.1:80"), "1 from 10.99.1.2");
        world.proxy.apply(&[(b, vec![two])]).unwrap();
        assert_eq!(world.ask(&client, "10.96.0.1:80"), "1 from 10.99.1.2");
        world.proxy.apply(&[(a, Vec::new())]).unwrap();
        assert_eq!(world.ask(&client, "10.96.0.1:80"), "2 from 10.99.1.2");
    });
}

/// One changed endpoint among ten thousand services costs what one change costs.
#[test]
fn a_change_does_not_cost_what_all_services_cost() {
    isolated(|| {
        let mut proxy = Proxy::open(Config::default()).unwrap();
        let service = |number: u32, last: u8| {
            let [_, _, high, low] = number.to_be_bytes();
            let endpoint = |last| Endpoint {
                address: IpAddr::from([10, 1, high, last]),
                port: PORT,
                ready: true,
                serving: true,
                terminating: false,
                local: false,
                for_node: None,
                for_zone: None,
            };
            let port = ServicePort {
                protocol: TCP,
                port: 80,
                cluster_ips: vec![IpAddr::from([10, 96, high, low])],
                endpoints: vec![endpoint(1), endpoint(last)],
                ..ServicePort::default()
            };
            (NamespacedName::new("default", &number.to_string()), vec![port])
        };
        let all: Vec<_> = (0..10_000).map(|number| service(number, 2)).collect();
        let begin = std::time::Instant::now();
        proxy.apply(&all).unwrap();
        let whole = begin.elapsed();
        let mut each: Vec<Duration> = (0..50)
            .map(|at| {
                let change = [service(at * 100, 3 + (at % 7) as u8)];
                let begin = std::time::Instant::now();
                proxy.apply(&change).unwrap();
                begin.elapsed()
            })
            .collect();
        each.sort();
        let median = each[each.len() / 2];
        println!("10,000 services: all {whole:?}, one change {median:?}, slowest {:?}", each[49]);
        assert!(median * 20 < whole, "one change {median:?} beside {whole:?} for all");
    });
}

mod live {
    use super::*;
    use client::Context;
    use client::testing::World as Api;
    use k8s_openapi::api::core::v1::{Node, Service};
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::json;
    use std::sync::Arc;

    struct Live {
        api: Api,
        world: Arc<World>,
        context: Context,
    }

    impl Live {
        fn service(&self, spec: serde_json::Value) {
            let tree =
                json!({ "metadata": { "name": "web", "namespace": "default" }, "spec": spec });
            self.api.put::<Service>(&serde_json::from_value(tree).unwrap());
        }

        /// The slice of the service: pods by number, `!` before those that are not ready.
        fn endpoints(&self, pods: &str) {
            let endpoint = |word: &str| {
                let (ready, number) = (!word.starts_with('!'), word.trim_start_matches('!'));
                let address = self.world.pods[number.parse::<usize>().unwrap()].1[0];
                json!({ "addresses": [address], "nodeName": "n", "conditions": { "ready": ready } })
            };
            let slice = json!({
                "metadata": {
                    "name": "web-x", "namespace": "default",
                    "labels": { "kubernetes.io/service-name": "web" },
                },
                "addressType": "IPv4",
                "ports": [{ "name": "http", "port": PORT }],
                "endpoints": pods.split_whitespace().map(endpoint).collect::<Vec<_>>(),
            });
            self.api.put::<EndpointSlice>(&serde_json::from_value(slice).unwrap());
        }

        async fn until(&self, to: &str, expected: &str) {
            let end = std::time::Instant::now() + PATIENCE;
            loop {
                let (world, to) = (self.world.clone(), to.to_owned());
                let client = world.pods[0].0.path.clone();
                let said =
                    tokio::task::spawn_blocking(move || world.ask_briefly(&client, &to)).await;
                let said = said.unwrap();
                if said == expected {
                    return;
                }
                assert!(std::time::Instant::now() < end, "{said}, not {expected}");
            }
        }

        /// The first line of the answer, and the body.
        async fn page(&self, port: u16, path: &str) -> (String, String) {
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            let host = self.world.host.clone();
            let ask = move || -> std::io::Result<String> {
                let mut stream = TcpStream::connect(("127.0.0.1", port))?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.write_all(request.as_bytes())?;
                let mut said = String::new();
                stream.read_to_string(&mut said)?;
                Ok(said)
            };
            let said = tokio::task::spawn_blocking(move || namespace::within(&host, ask).unwrap());
            let said = said.await.unwrap().unwrap_or_default();
            let (head, body) = said.split_once("\r\n\r\n").unwrap_or_default();
            (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
        }

        async fn until_page(&self, port: u16, path: &str, expected: &str) -> String {
            let end = std::time::Instant::now() + PATIENCE;
            loop {
                let (line, body) = self.page(port, path).await;
                if line.contains(expected) {
                    return body;
                }
                assert!(std::time::Instant::now() < end, "{line:?}, not {expected}");
                tokio::task::yield_now().await;
            }
        }
    }

    impl Live {
        async fn until_closed(&self, port: u16) {
            let end = std::time::Instant::now() + PATIENCE;
            while !self.page(port, "/").await.0.is_empty() {
                assert!(std::time::Instant::now() < end, "port {port} is still open");
            }
        }
    }

    #[test]
    fn rules_follow_the_api() {
        isolated(|| {
            let tasks = tokio::runtime::Builder::new_current_thread().enable_all().build();
            tasks.unwrap().block_on(follow());
        });
    }

    async fn follow() {
        let context = Context::new();
        let (api, world) = (Api::new(&context), Arc::new(World::new()));
        let config = Config {
            node_name: "n".to_owned(),
            cluster_cidrs: vec![(ip("10.99.0.0"), 16)],
            min_sync_period: Duration::from_millis(1),
            healthz: Some("127.0.0.1:10256".parse().unwrap()),
            metrics: Some("127.0.0.1:10249".parse().unwrap()),
            ..Config::default()
        };
        let node = json!({ "metadata": { "name": "n" } });
        api.put::<Node>(&serde_json::from_value(node).unwrap());
        let runs = tokio::spawn(run(context.clone(), api.source(), config));
        let live = Live { api, world, context };
        let ports = json!([{ "name": "http", "port": 80 }]);
        live.service(json!({ "clusterIP": "10.96.0.1", "ports": ports }));
        live.until("10.96.0.1:80", "connection refused").await;
        live.endpoints("1");
        live.until("10.96.0.1:80", "1 from 10.99.1.2").await;
        live.endpoints("!1 2");
        live.until("10.96.0.1:80", "2 from 10.99.1.2").await;
        live.until_page(10256, "/healthz", "200").await;
        assert_eq!(live.page(10249, "/proxyMode").await.1, "nftables");
        let metrics = live.page(10249, "/metrics").await.1;
        assert!(metrics.contains("kubeproxy_sync_proxy_rules_duration_seconds_count"), "{metrics}");

        live.service(json!({
            "type": "LoadBalancer", "clusterIP": "10.96.0.2", "ports": ports,
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 30099,
        }));
        live.until("10.96.0.2:80", "2 from 10.99.1.2").await;
        let body = live.until_page(30099, "/", "200").await;
        assert!(body.contains("\"localEndpoints\": 1"), "{body}");
        live.endpoints("!1 !2");
        live.until_page(30099, "/", "503").await;
        live.api.remove::<Service>("default", "web");
        live.until_closed(30099).await;
        let node = json!({
            "metadata": { "name": "n" },
            "spec": { "taints": [{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }] },
        });
        live.api.put::<Node>(&serde_json::from_value(node).unwrap());
        live.until_page(10256, "/healthz", "503").await;
        live.until_page(10256, "/livez", "200").await;
        live.context.stop();
        runs.await.unwrap().unwrap();
    }
}

/// The cluster's DNS is served by the node itself, at its address on the pods' bridge.
#[test]
fn a_service_may_lead_to_the_node() {
    isolated(|| {
        let mut world = World::new();
        let gateway = ip("10.99.1.1");
        serve_udp(&world.host, gateway);
        let mut service = world.service(UDP, &[1]);
        service.endpoints.retain(|endpoint| endpoint.address.is_ipv4());
        service.endpoints.iter_mut().for_each(|endpoint| endpoint.address = gateway);
        world.apply(&[service]);
        for (client, expected) in [
            (world.pods[0].0.path.clone(), "10.99.1.1 10.99.1.2"),
            (world.host.clone(), "10.99.1.1 192.0.2.1"),
        ] {
            let ask = || -> std::io::Result<String> {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.connect("10.96.0.1:80")?;
                socket.send(b"hello")?;
                let mut said = [0; 64];
                let length = socket.recv(&mut said)?;
                Ok(String::from_utf8_lossy(&said[..length]).into_owned())
            };
            assert_eq!(namespace::within(&client, ask).unwrap().unwrap(), expected);
        }
    });
}
