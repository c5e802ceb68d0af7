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
struct World {
    host: PathBuf,
    outside: Held,
    pods: Vec<(Held, Vec<IpAddr>)>,
    proxy: Proxy,
    _network: PodNetwork,
    _state: tempfile::TempDir,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl World {
    fn new() -> World {
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
        })
        .unwrap();
        let pod = |id: usize| {
            let held = Held::new();
            let (id, namespace_path) = (id.to_string(), held.path.clone());
            let sandbox = Sandbox { owner: id.clone(), id, namespace_path, ports: Vec::new() };
            let addresses = network.attach(&sandbox).unwrap();
            for address in &addresses {
                serve_tcp(&held.path, *address);
                serve_udp(&held.path, *address);
            }
            (held, addresses)
        };
        let pods = (0..3).map(pod).collect();
        let cluster_cidrs = vec![(ip("10.99.0.0"), 16), (ip("fd99::"), 16)];
        let proxy = Proxy::open(Config { cluster_cidrs, ..Config::default() }).unwrap();
        World { host: path(), outside, pods, proxy, _network: network, _state: state }
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
        let to: SocketAddr = to.parse().unwrap();
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
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
