//! Real links and real traffic, in namespaces that the tests make.
use super::*;
use netlink::testing::{Held, isolated};
use netlink::{Family, Socket, namespace};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

fn config(state: &Path) -> Config {
    Config {
        pod_cidrs: vec!["10.99.1.0/24".parse().unwrap(), "fd99:1::/64".parse().unwrap()],
        cluster_cidrs: vec!["10.99.0.0/16".parse().unwrap(), "fd99::/16".parse().unwrap()],
        mtu: 1400,
        state: state.to_owned(),
        key: None,
    }
}

fn sandbox(id: &str, namespace: &Held, ports: &[(&str, i32, i32)]) -> Sandbox {
    let port = |(ip, host, container): &(&str, i32, i32)| PortMapping {
        host_ip: (*ip).to_owned(),
        host_port: *host,
        container_port: *container,
        protocol: "TCP".to_owned(),
    };
    Sandbox {
        id: id.to_owned(),
        namespace_path: namespace.path.clone(),
        owner: format!("default/{id}"),
        ports: ports.iter().map(port).collect(),
        bandwidth: Bandwidth::default(),
    }
}

/// Answers one connection after the other with the address it came from.
fn serve(namespace: &Path, port: u16) {
    let any = format!("[::]:{port}");
    let listener = namespace::within(namespace, || TcpListener::bind(any)).unwrap().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { break };
            let peer = stream.peer_addr().map(|peer| peer.ip().to_canonical().to_string());
            let _ = stream.write_all(peer.unwrap_or_default().as_bytes());
        }
    });
}

/// What a server says to a client in a namespace.
fn ask(namespace: &Path, to: SocketAddr) -> String {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    namespace::within(namespace, ask).unwrap().unwrap_or_else(|error| format!("{to}: {error}"))
}

fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

/// Another machine: `outside` on a link of the host, which knows nothing of pods.
fn outside_world(host: &mut Socket) -> Held {
    use netlink::route::Veth;
    use std::os::fd::AsFd;
    let outside = Held::new();
    let file = std::fs::File::open(&outside.path).unwrap();
    let master = host.ensure_bridge("uplink", 1500).unwrap();
    let (name, peer, namespace) = ("up0", "eth0", file.as_fd());
    host.create_veth(&Veth { name, peer, namespace, master, mtu: 1500 }).unwrap();
    host.add_address(master, "192.0.2.1".parse().unwrap(), 24).unwrap();
    let mut inside = Socket::open_in(Family::Route, &outside.path).unwrap();
    let link = inside.link("eth0").unwrap().unwrap().index;
    inside.set_link_up(link).unwrap();
    inside.add_address(link, "192.0.2.2".parse().unwrap(), 24).unwrap();
    outside
}

fn loopback_up(socket: &mut Socket) {
    let link = socket.link("lo").unwrap().unwrap().index;
    socket.set_link_up(link).unwrap();
}

#[test]
fn pods_reach_each_other_the_host_and_the_world() {
    isolated(|| {
        let state = tempfile::tempdir().unwrap();
        let mut host = Socket::open(Family::Route).unwrap();
        loopback_up(&mut host);
        let here = netlink::testing::path();
        let outside = outside_world(&mut host);
        let network = PodNetwork::open(config(state.path())).unwrap();
        let (a, b) = (Held::new(), Held::new());
        let to_a = network.attach(&sandbox("a", &a, &[])).unwrap();
        let to_b = network.attach(&sandbox("b", &b, &[])).unwrap();
        assert_eq!(format!("{to_a:?} {to_b:?}"), "[10.99.1.2, fd99:1::2] [10.99.1.3, fd99:1::3]");
        assert_eq!(network.attach(&sandbox("a", &a, &[])).unwrap(), to_a, "twice is once");
        for namespace in [&a.path, &b.path, &outside.path, &here] {
            serve(namespace, 80);
        }
        for family in [0, 1] {
            let (a_is, b_is) = (to_a[family].to_string(), to_b[family].to_string());
            assert_eq!(ask(&a.path, at(to_b[family], 80)), a_is, "from pod to pod");
            assert_eq!(ask(&b.path, at(to_b[family], 80)), b_is, "to itself");
            let gateway = config(state.path()).pod_cidrs[family].gateway();
            assert_eq!(ask(&here, at(to_b[family], 80)), gateway.to_string(), "from the host");
            assert_eq!(ask(&b.path, at(gateway, 80)), b_is, "to the host");
        }
        let world = at("192.0.2.2".parse().unwrap(), 80);
        assert_eq!(ask(&a.path, world), "192.0.2.1", "what leaves the cluster is masqueraded");

        drop(network);
        let network = PodNetwork::open(config(state.path())).unwrap();
        assert_eq!(network.attach(&sandbox("a", &a, &[])).unwrap(), to_a, "after a restart");
        assert_eq!(ask(&a.path, at(to_b[0], 80)), to_a[0].to_string(), "after a restart");
        network.detach("a").unwrap();
        network.detach("a").unwrap();
        network.detach("never").unwrap();
        let names = |host: &mut Socket| {
            let links = host.links().unwrap().into_iter();
            links.filter(|link| link.name.starts_with("skiff")).count()
        };
        assert_eq!(names(&mut host), 2, "the bridge and b's");
        network.retain(&[]).unwrap();
        assert_eq!(names(&mut host), 1);
        drop(network);
        PodNetwork::teardown(state.path()).unwrap();
        assert_eq!(names(&mut host), 0);
        assert!(!state.path().exists());
    });
}

#[test]
fn host_ports_lead_to_pods() {
    isolated(|| {
        let state = tempfile::tempdir().unwrap();
        let mut host = Socket::open(Family::Route).unwrap();
        loopback_up(&mut host);
        let here = netlink::testing::path();
        let outside = outside_world(&mut host);
        let network = PodNetwork::open(config(state.path())).unwrap();
        let (a, b, c) = (Held::new(), Held::new(), Held::new());
        let to_a = network.attach(&sandbox("a", &a, &[("", 8080, 80)])).unwrap();
        let to_b = network
            .attach(&sandbox("b", &b, &[("127.0.0.1", 9090, 80), ("192.0.2.1", 9091, 80)]))
            .unwrap();
        serve(&a.path, 80);
        serve(&b.path, 80);
        let host_at = |port| at("192.0.2.1".parse().unwrap(), port);
        let local_at = |port| at("127.0.0.1".parse().unwrap(), port);
        assert_eq!(ask(&outside.path, host_at(8080)), "192.0.2.2", "the source is kept");
        assert_eq!(ask(&outside.path, host_at(9091)), "192.0.2.2");
        assert_eq!(ask(&b.path, host_at(8080)), to_b[0].to_string(), "from a neighbour");
        assert_eq!(ask(&a.path, host_at(8080)), "10.99.1.1", "to itself");
        assert_eq!(ask(&here, local_at(8080)), "10.99.1.1", "from the host, by loopback");
        assert_eq!(ask(&here, local_at(9090)), "10.99.1.1");
        assert!(ask(&here, local_at(9091)).contains("refused"), "on another address only");
        let taken = network.attach(&sandbox("c", &c, &[("", 8080, 80)])).unwrap_err();
        assert_eq!(taken.to_string(), "the host port 8080/TCP of c is taken by a");
        drop(network);
        let network = PodNetwork::open(config(state.path())).unwrap();
        assert_eq!(ask(&outside.path, host_at(8080)), "192.0.2.2", "after a restart");
        assert_eq!(to_a[0].to_string(), "10.99.1.2");
        network.detach("a").unwrap();
        assert!(ask(&outside.path, host_at(8080)).contains("refused"));
    });
}

/// Whether a datagram that a namespace sends as `from` comes to a socket of the host.
fn arrives(namespace: &Path, from: IpAddr, host: &std::net::UdpSocket) -> bool {
    let to = host.local_addr().unwrap();
    let send = || -> std::io::Result<()> {
        std::net::UdpSocket::bind((from, 0))?.send_to(b"it is me", to)?;
        Ok(())
    };
    namespace::within(namespace, send).unwrap().unwrap();
    host.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    host.recv_from(&mut [0; 16]).is_ok_and(|(_, peer)| peer.ip() == from)
}

/// One that knows its neighbour's MAC, and would send to it past the host's rules.
#[test]
fn a_pod_reaches_its_neighbour_by_way_of_the_host_only() {
    isolated(|| {
        let state = tempfile::tempdir().unwrap();
        let mut host = Socket::open(Family::Route).unwrap();
        loopback_up(&mut host);
        let network = PodNetwork::open(config(state.path())).unwrap();
        let (a, b) = (Held::new(), Held::new());
        let to_a = network.attach(&sandbox("a", &a, &[])).unwrap();
        let to_b = network.attach(&sandbox("b", &b, &[])).unwrap();
        serve(&b.path, 80);
        let link = |pod: &Held| {
            let mut socket = Socket::open_in(Family::Route, &pod.path).unwrap();
            let link = socket.link("eth0").unwrap().unwrap();
            (socket, link)
        };
        let ((mut from, eth0), (_, there)) = (link(&a), link(&b));
        let is_reached = |to: IpAddr| {
            let connect = || TcpStream::connect_timeout(&at(to, 80), Duration::from_millis(300));
            namespace::within(&a.path, connect).unwrap().is_ok()
        };
        for family in [0, 1] {
            assert_eq!(ask(&a.path, at(to_b[family], 80)), to_a[family].to_string());
            let mac = there.mac.unwrap();
            let neighbour = netlink::tunnel::Neighbour { address: to_b[family], mac };
            from.set_neighbour(eth0.index, &neighbour).unwrap();
            let whole = if family == 0 { 32 } else { 128 };
            let destination = (to_b[family], whole);
            let straight = netlink::route::Route { destination, gateway: None, link: eth0.index };
            from.set_route(&straight).unwrap();
            assert!(!is_reached(to_b[family]), "straight, {}", to_a[family]);
        }
        let bridge = host.link(BRIDGE).unwrap().unwrap();
        assert_eq!(bridge.mac, Some([2, 0x5f, 0x5f, 0, 0, 1]), "whatever ports it has");
    });
}

/// Not even one that may do anything in its own namespace.
#[test]
fn a_pod_neither_sends_nor_receives_as_another() {
    isolated(|| {
        let state = tempfile::tempdir().unwrap();
        let mut host = Socket::open(Family::Route).unwrap();
        loopback_up(&mut host);
        let here = netlink::testing::path();
        let network = PodNetwork::open(config(state.path())).unwrap();
        let (a, b) = (Held::new(), Held::new());
        let to_a = network.attach(&sandbox("a", &a, &[])).unwrap();
        let to_b = network.attach(&sandbox("b", &b, &[])).unwrap();
        serve(&b.path, 80);
        let mut inside = Socket::open_in(Family::Route, &a.path).unwrap();
        let eth0 = inside.link("eth0").unwrap().unwrap();
        let restarted = |network| {
            drop(network);
            PodNetwork::open(config(state.path())).unwrap()
        };
        let mut network = network;
        for round in 0..2 {
            for family in [0, 1] {
                let gateway = config(state.path()).pod_cidrs[family].gateway();
                let bind = || std::net::UdpSocket::bind((gateway, 0));
                let socket = namespace::within(&here, bind).unwrap().unwrap();
                assert!(arrives(&a.path, to_a[family], &socket), "its own, round {round}");
                let whole = if family == 0 { 32 } else { 128 };
                inside.add_address(eth0.index, to_b[family], whole).unwrap();
                assert!(!arrives(&a.path, to_b[family], &socket), "another's, round {round}");
                // It says that the other's address is its own.
                let claim = || {
                    let mac = eth0.mac.unwrap();
                    netlink::addresses::announce(eth0.index, mac, to_b[family])
                };
                for _ in 0..3 {
                    namespace::within(&a.path, claim).unwrap().unwrap();
                }
                assert_eq!(ask(&here, at(to_b[family], 80)), gateway.to_string());
                let own = netlink::addresses::Address {
                    address: to_b[family],
                    prefix: whole,
                    link: eth0.index,
                };
                inside.remove_address(&own).unwrap();
            }
            network = restarted(network);
        }
        drop(network);
    });
}

/// Somebody's rules drop every question for a neighbour and every answer: nobody has any.
#[test]
fn nobody_has_to_look_for_a_neighbour() {
    use netlink::nftables::{AddressFamily, Expression, Hook, Transaction, Verdict};
    const ARP: u16 = 0x0806;
    const ICMPV6: u8 = 58;
    isolated(|| {
        let state = tempfile::tempdir().unwrap();
        let mut host = Socket::open(Family::Route).unwrap();
        loopback_up(&mut host);
        let here = netlink::testing::path();
        let mut theirs = Transaction::of_bridges(AddressFamily::Ipv6, "somebodys");
        theirs.add_table();
        theirs.add_base_chain("deaf", Hook::filter(Hook::PREROUTING, -400));
        let drop_all = || vec![Expression::Verdict(Verdict::Drop)];
        theirs.add_rule("deaf", &[Expression::carried(ARP, 0).to_vec(), drop_all()].concat());
        theirs.add_rule("deaf", &[Expression::protocol(ICMPV6, 0).to_vec(), drop_all()].concat());
        theirs.commit(&mut Socket::open(Family::Netfilter).unwrap()).unwrap();

        let mut network = PodNetwork::open(config(state.path())).unwrap();
        let (a, b) = (Held::new(), Held::new());
        let to_a = network.attach(&sandbox("a", &a, &[])).unwrap();
        let to_b = network.attach(&sandbox("b", &b, &[])).unwrap();
        [&a.path, &b.path, &here].into_iter().for_each(|namespace| serve(namespace, 80));
        let bridge = host.link(BRIDGE).unwrap().unwrap().index;
        for round in 0..2 {
            for family in [0, 1] {
                let (a_is, gateway) =
                    (to_a[family].to_string(), config(state.path()).pod_cidrs[family].gateway());
                assert_eq!(ask(&a.path, at(to_b[family], 80)), a_is, "to a pod, round {round}");
                assert_eq!(ask(&a.path, at(gateway, 80)), a_is, "to the host, round {round}");
                let said = ask(&here, at(to_b[family], 80));
                assert_eq!(said, gateway.to_string(), "from the host, round {round}");
            }
            // The next process finds an entry of a pod that is gone, and one that somebody changed.
            let entry = |address: &str| netlink::tunnel::Neighbour {
                address: address.parse().unwrap(),
                mac: [2, 0, 0, 0, 0, 9],
            };
            drop(network);
            for address in ["10.99.1.77", "fd99:1::77", "10.99.1.3"] {
                host.set_neighbour(bridge, &entry(address)).unwrap();
            }
            network = PodNetwork::open(config(state.path())).unwrap();
            assert_eq!(host.neighbours(bridge).unwrap().len(), 4, "two pods of both families");
        }
        network.detach("a").unwrap();
        let known = host.neighbours(bridge).unwrap();
        assert!(
            known.len() == 2 && known.iter().all(|one| to_b.contains(&one.address)),
            "{known:?}"
        );
        drop(network);
        PodNetwork::teardown(state.path()).unwrap();
        let mut gone = Transaction::of_bridges(AddressFamily::Ipv6, "somebodys");
        gone.remove_table();
        gone.commit(&mut Socket::open(Family::Netfilter).unwrap()).unwrap();
    });
}

#[test]
fn a_pod_is_as_fast_as_it_may_be() {
    isolated(|| {
        let state = tempfile::tempdir().unwrap();
        let mut host = Socket::open(Family::Route).unwrap();
        loopback_up(&mut host);
        let network = PodNetwork::open(config(state.path())).unwrap();
        let (slow, fast) = (Held::new(), Held::new());
        // A megabyte a second.
        let bandwidth = Bandwidth { ingress: Some(8_000_000), egress: Some(8_000_000) };
        let limited = Sandbox { bandwidth, ..sandbox("slow", &slow, &[]) };
        let to_slow = network.attach(&limited).unwrap();
        let to_fast = network.attach(&sandbox("fast", &fast, &[])).unwrap();
        let (begun, least) = (std::time::Instant::now(), Duration::from_millis(200));
        assert!(send_much(&slow.path, &fast.path, to_fast[0]));
        let sent = begun.elapsed();
        assert!(send_much(&fast.path, &slow.path, to_slow[1]));
        let received = begun.elapsed() - sent;
        assert!(sent > least && received > least, "{sent:?} {received:?}");
        network.detach("slow").unwrap();
        let left = host.links().unwrap().into_iter().filter(|link| link.name.starts_with("skifi"));
        assert_eq!(left.count(), 0);
    });
}

/// Somebody flushes our tables, or changes one.
#[test]
fn rules_come_back() {
    isolated(|| {
        let state = tempfile::tempdir().unwrap();
        let mut host = Socket::open(Family::Route).unwrap();
        loopback_up(&mut host);
        let outside = outside_world(&mut host);
        let network = PodNetwork::open(config(state.path())).unwrap();
        let a = Held::new();
        network.attach(&sandbox("a", &a, &[("", 8080, 80)])).unwrap();
        serve(&a.path, 80);
        serve(&outside.path, 80);
        assert!(!network.repair().unwrap(), "nothing is wrong");
        let mut netfilter = Socket::open(Family::Netfilter).unwrap();
        use netlink::nftables::{AddressFamily, Transaction};
        let tables = || {
            let plain = Transaction::new(AddressFamily::Ipv4, TABLE);
            let name = sources::table_name(AddressFamily::Ipv6);
            [plain, Transaction::of_bridges(AddressFamily::Ipv6, name)]
        };
        for mut table in tables() {
            table.remove_table();
            table.commit(&mut netfilter).unwrap();
            assert!(network.repair().unwrap());
            assert!(!network.repair().unwrap());
            let world = at("192.0.2.2".parse().unwrap(), 80);
            assert_eq!(ask(&a.path, world), "192.0.2.1");
            let port = at("192.0.2.1".parse().unwrap(), 8080);
            assert_eq!(ask(&outside.path, port), "192.0.2.2");
        }
        let mut table = Transaction::new(AddressFamily::Ipv4, TABLE);
        table.remove_chain("guard");
        table.commit(&mut netfilter).unwrap();
        assert!(network.repair().unwrap());
        assert!(!network.repair().unwrap());
    });
}

/// On the way to the world is a link that is narrower than the pod's, and nobody says so.
#[test]
fn a_way_that_swallows_long_packets_is_found_out() {
    use netlink::nftables::{AddressFamily, Expression, Hook, Transaction, Verdict};
    const ICMP: u8 = 1;
    isolated(|| {
        let state = tempfile::tempdir().unwrap();
        let mut host = Socket::open(Family::Route).unwrap();
        loopback_up(&mut host);
        let outside = outside_world(&mut host);
        let network = PodNetwork::open(Config { mtu: 1500, ..config(state.path()) }).unwrap();
        let a = Held::new();
        network.attach(&sandbox("a", &a, &[])).unwrap();
        // The host is the router with the narrow link, and is not allowed to say so.
        host.ensure_bridge("uplink", 1280).unwrap();
        let mut theirs = Transaction::new(AddressFamily::Ipv4, "somebodys");
        theirs.add_table();
        theirs.add_base_chain("mute", Hook::filter(Hook::OUTPUT, 0));
        let drop_all = vec![Expression::Verdict(Verdict::Drop)];
        let rule = [Expression::protocol(ICMP, 0).to_vec(), drop_all].concat();
        theirs.add_rule("mute", &rule);
        theirs.commit(&mut Socket::open(Family::Netfilter).unwrap()).unwrap();
        assert!(send_much(&a.path, &outside.path, "192.0.2.2".parse().unwrap()));
    });
}

/// More than one packet holds arrives whole.
fn send_much(from: &Path, to: &Path, address: IpAddr) -> bool {
    const MUCH: usize = 300_000;
    let listener = namespace::within(to, || TcpListener::bind((address, 90))).unwrap().unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let (mut stream, _) = listener.accept()?;
            // To find out that long packets are lost takes the kernel some seconds.
            stream.set_read_timeout(Some(4 * PATIENCE))?;
            let mut all = Vec::new();
            stream.read_to_end(&mut all)?;
            std::io::Result::Ok(all.len())
        });
        let connect = || TcpStream::connect_timeout(&at(address, 90), PATIENCE);
        let mut stream = namespace::within(from, connect).unwrap().unwrap();
        stream.write_all(&vec![7; MUCH]).unwrap();
        drop(stream);
        server.join().unwrap().is_ok_and(|length| length == MUCH)
    })
}

#[test]
fn many_callers_at_once_get_an_address_each() {
    isolated(|| {
        let state = tempfile::tempdir().unwrap();
        let network = PodNetwork::open(config(state.path())).unwrap();
        let pods: Vec<Held> = (0..8).map(|_| Held::new()).collect();
        let mut given: Vec<IpAddr> = std::thread::scope(|scope| {
            let attach = |at: usize, pod| network.attach(&sandbox(&at.to_string(), pod, &[]));
            let threads: Vec<_> = pods
                .iter()
                .enumerate()
                .map(|(at, pod)| scope.spawn(move || attach(at, pod).unwrap()))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        given.sort();
        given.dedup();
        assert_eq!(given.len(), 16);
        let gone = Sandbox { namespace_path: "/nowhere".into(), ..sandbox("x", &pods[0], &[]) };
        assert!(network.attach(&gone).is_err());
        assert!(std::fs::read_dir(state.path()).unwrap().count() == 8 + 2, "nothing is left of it");
    });
}

#[cfg(feature = "live")]
mod live {
    use super::*;
    use client::Context;
    use client::testing::World;
    use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
    use k8s_openapi::api::networking::v1::NetworkPolicy;
    use netlink::route::{Route, Veth};
    use runtime::network::{Attachment, Network};
    use serde_json::json;
    use std::os::fd::AsFd;

    fn node(name: &str, address: &str, cidrs: &[&str]) -> Node {
        let node = json!({
            "metadata": { "name": name },
            "spec": { "podCIDRs": cidrs },
            "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
        });
        serde_json::from_value(node).unwrap()
    }

    fn attachment(id: &str, namespace: &Held) -> Attachment {
        Attachment {
            sandbox_id: id.to_owned(),
            namespace_path: namespace.path.clone(),
            name: id.to_owned(),
            namespace: "default".to_owned(),
            uid: id.to_owned(),
            annotations: Default::default(),
            ports: Vec::new(),
        }
    }

    /// A node is up when its own Node has CIDRs, and its pods reach those of the node beside it.
    #[test]
    fn nodes_come_up_with_their_cidrs_and_reach_each_other() {
        isolated(|| {
            let tasks = tokio::runtime::Builder::new_current_thread().enable_all().build();
            tasks.unwrap().block_on(two_nodes());
        });
    }

    async fn two_nodes() {
        let other = Held::new();
        let mut host = Socket::open(Family::Route).unwrap();
        let mut there = Socket::open_in(Family::Route, &other.path).unwrap();
        let file = std::fs::File::open(&other.path).unwrap();
        let master = host.ensure_bridge("uplink", 1500).unwrap();
        let (name, peer, namespace) = ("up0", "eth0", file.as_fd());
        host.create_veth(&Veth { name, peer, namespace, master, mtu: 1500 }).unwrap();
        host.add_address(master, "192.0.2.1".parse().unwrap(), 24).unwrap();
        let link = there.link("eth0").unwrap().unwrap().index;
        there.set_link_up(link).unwrap();
        there.add_address(link, "192.0.2.2".parse().unwrap(), 24).unwrap();

        let (context, states) = (Context::new(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
        let world = World::new(&context);
        let settings = |at: usize| Settings {
            namespace: (at == 1).then(|| other.path.clone()),
            ..Settings::new(states[at].path().join("state"))
        };
        let start = |context: &Context, at: usize, name: &str| {
            let network = NodeNetwork::open(settings(at)).unwrap();
            let run = run(
                context.clone(),
                world.source(),
                Some(world.source()),
                name.to_owned(),
                network.clone(),
            );
            (network, tokio::spawn(run))
        };
        let (a, a_runs) = start(&context, 0, "a");
        let (b, b_runs) = start(&context, 1, "b");
        world.put(&node("a", "192.0.2.1", &[]));
        let (one, two) = (Held::new(), Held::new());
        assert_eq!(a.ready().unwrap_err().to_string(), "the node has no pod CIDR yet");
        a.detach(attachment("never", &one)).await.unwrap();
        let early = {
            let (a, sandbox) = (a.clone(), attachment("one", &one));
            tokio::spawn(async move { a.attach(sandbox).await })
        };
        world.put(&node("a", "192.0.2.1", &["10.99.1.0/24"]));
        world.put(&node("b", "192.0.2.2", &["10.99.2.0/24"]));
        assert_eq!(
            format!("{:?} {:?}", a.gateways().await, b.gateways().await),
            "[10.99.1.1] [10.99.2.1]"
        );
        a.ready().unwrap();
        let to_one = early.await.unwrap().unwrap();
        let to_two = b.attach(attachment("two", &two)).await.unwrap();
        assert_eq!(format!("{to_one:?} {to_two:?}"), "[10.99.1.2] [10.99.2.2]");
        serve(&two.path, 80);
        until(|| ask(&one.path, at(to_two[0], 80)) == "10.99.1.2").await;

        context.stop();
        let _ = (a_runs.await, b_runs.await);
        drop((a, b));
        // Up again before anybody is asked; a node that is gone is no peer any more.
        let context = Context::new();
        let a = NodeNetwork::open(settings(0)).unwrap();
        a.ready().unwrap();
        assert_eq!(a.attach(attachment("one", &one)).await.unwrap(), to_one, "after a restart");
        assert_eq!(ask(&one.path, at(to_two[0], 80)), "10.99.1.2", "after a restart");
        world.remove::<Node>("", "b");
        tokio::spawn(run(
            context.clone(),
            world.source(),
            Some(world.source()),
            "a".to_owned(),
            a.clone(),
        ));
        until(|| host.routes_of(0x5f).unwrap().is_empty()).await;
        context.stop();
    }

    /// A node tells its key, again when somebody takes it away, and takes it back itself.
    #[test]
    fn a_node_tells_its_key() {
        isolated(|| {
            let tasks = tokio::runtime::Builder::new_current_thread().enable_all().build();
            tasks.unwrap().block_on(told_key());
        });
    }

    async fn told_key() {
        let state = tempfile::tempdir().unwrap();
        let world = World::new(&Context::new());
        let start = |encrypt| {
            let settings = Settings { encrypt, ..Settings::new(state.path().join("state")) };
            let network = NodeNetwork::open(settings).unwrap();
            let (context, own, key) = (Context::new(), world.source(), network.public_key());
            let run = run(context.clone(), own, None, "a".to_owned(), network);
            (context, tokio::spawn(run), key)
        };
        let told = || {
            let node = world.get::<Node>("", "a")?;
            node.metadata.annotations.as_ref()?.get(crate::live::PUBLIC_KEY).cloned()
        };
        let (context, runs, key) = start(true);
        let key = keys::text(&key.unwrap());
        for _ in 0..2 {
            world.put(&node("a", "192.0.2.1", &[]));
            until(|| told().as_ref() == Some(&key)).await;
        }
        context.stop();
        runs.await.unwrap();
        let (context, runs, again) = start(true);
        assert_eq!(again.map(|again| keys::text(&again)), Some(key), "after a restart");
        context.stop();
        runs.await.unwrap();
        let (context, runs, none) = start(false);
        assert_eq!(none, None);
        until(|| told().is_none()).await;
        context.stop();
        runs.await.unwrap();
    }

    /// Nodes behind a router, which knows nothing of pods.
    #[test]
    fn nodes_behind_routers_have_a_tunnel() {
        isolated(|| {
            let tasks = tokio::runtime::Builder::new_current_thread().enable_all().build();
            tasks.unwrap().block_on(two_nodes_and_a_router());
        });
    }

    /// A node's uplink: `address` here, `gateway` at the router.
    fn connect(node: &mut Socket, router: &Held, port: &str, address: &str, gateway: &str) {
        let file = std::fs::File::open(&router.path).unwrap();
        let master = node.ensure_bridge("uplink", 1500).unwrap();
        let (name, peer, namespace) = ("up0", port, file.as_fd());
        node.create_veth(&Veth { name, peer, namespace, master, mtu: 1500 }).unwrap();
        node.add_address(master, address.parse().unwrap(), 24).unwrap();
        let mut there = Socket::open_in(Family::Route, &router.path).unwrap();
        let link = there.link(port).unwrap().unwrap().index;
        there.set_link_up(link).unwrap();
        there.add_address(link, gateway.parse().unwrap(), 24).unwrap();
        let any = ("0.0.0.0".parse().unwrap(), 0);
        let gateway = Some(gateway.parse().unwrap());
        node.set_route(&Route { destination: any, gateway, link: master }).unwrap();
    }

    async fn two_nodes_and_a_router() {
        let (router, other) = (Held::new(), Held::new());
        let mut host = Socket::open(Family::Route).unwrap();
        let mut there = Socket::open_in(Family::Route, &other.path).unwrap();
        connect(&mut host, &router, "a", "192.0.2.1", "192.0.2.254");
        connect(&mut there, &router, "b", "198.51.100.1", "198.51.100.254");
        let forward = || sysctl::set("ipv4/ip_forward", "1");
        namespace::within(&router.path, forward).unwrap().unwrap();

        let (context, states) = (Context::new(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
        let world = World::new(&context);
        let open = |at: usize, name: &str| {
            let settings = Settings {
                namespace: (at == 1).then(|| other.path.clone()),
                ..Settings::new(states[at].path().join("state"))
            };
            let network = NodeNetwork::open(settings).unwrap();
            let (own, peers) = (world.source(), Some(world.source()));
            tokio::spawn(run(context.clone(), own, peers, name.to_owned(), network.clone()));
            network
        };
        let (a, b) = (open(0, "a"), open(1, "b"));
        let cidrs = [["10.99.1.0/24", "fd99:1::/64"], ["10.99.2.0/24", "fd99:2::/64"]];
        world.put(&node("a", "192.0.2.1", &cidrs[0]));
        world.put(&node("b", "198.51.100.1", &cidrs[1]));
        let (one, two) = (Held::new(), Held::new());
        let to_one = a.attach(attachment("one", &one)).await.unwrap();
        let to_two = b.attach(attachment("two", &two)).await.unwrap();
        serve(&one.path, 80);
        serve(&two.path, 80);
        for family in [0, 1] {
            let (from, back) = (to_one[family].to_string(), to_two[family].to_string());
            until(|| ask(&one.path, at(to_two[family], 80)) == from).await;
            until(|| ask(&two.path, at(to_one[family], 80)) == back).await;
        }
        // From the node itself, by the end of the tunnel.
        assert_eq!(ask(&netlink::testing::path(), at(to_two[0], 80)), "10.99.1.0");
        let tunnel = host.link(peers::TUNNEL).unwrap().unwrap();
        assert_eq!(tunnel.mtu, 1450);
        assert!(send_much(&one.path, &two.path, to_two[0]), "packets are as long as the way takes");

        // The way between the nodes is cut, and healed: who was connected goes on.
        let listener = || TcpListener::bind((to_two[0], 91));
        let listener = namespace::within(&two.path, listener).unwrap().unwrap();
        let mut stays = namespace::within(&one.path, || TcpStream::connect(at(to_two[0], 91)));
        let stays = stays.as_mut().unwrap().as_mut().unwrap();
        let (mut other_end, _) = listener.accept().unwrap();
        let route = |value: &'static str| {
            namespace::within(&router.path, || sysctl::set("ipv4/ip_forward", value))
        };
        route("0").unwrap().unwrap();
        stays.write_all(b"are you there").unwrap();
        other_end.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        assert!(other_end.read(&mut [0; 64]).is_err(), "nothing comes through");
        route("1").unwrap().unwrap();
        other_end.set_read_timeout(Some(4 * PATIENCE)).unwrap();
        assert_eq!(other_end.read(&mut [0; 64]).unwrap(), 13, "after it is healed");
        assert_eq!(ask(&one.path, at(to_two[0], 80)), to_one[0].to_string());

        // A link between the nodes becomes narrower than they were told, and the router is mute.
        let mut hop = Socket::open_in(Family::Route, &router.path).unwrap();
        for port in ["a", "b"] {
            let index = hop.link(port).unwrap().unwrap().index;
            hop.set_mtu(index, 1280).unwrap();
        }
        {
            use netlink::nftables::{AddressFamily, Expression, Hook, Transaction, Verdict};
            let mut mute = Transaction::new(AddressFamily::Ipv4, "mute");
            mute.add_table();
            mute.add_base_chain("mute", Hook::filter(Hook::OUTPUT, 0));
            mute.add_rule("mute", &[Expression::Verdict(Verdict::Drop)]);
            let mut hop = Socket::open_in(Family::Netfilter, &router.path).unwrap();
            mute.commit(&mut hop).unwrap();
        }
        for to in to_two.iter().copied() {
            assert!(send_much(&one.path, &two.path, to), "through a narrow link to {to}");
        }

        // The other node has another address now.
        let link = there.link("uplink").unwrap().unwrap().index;
        there.add_address(link, "198.51.100.9".parse().unwrap(), 24).unwrap();
        world.put(&node("b", "198.51.100.9", &cidrs[1]));
        let nine = "198.51.100.9".parse::<IpAddr>().unwrap();
        until(|| host.forwarding(tunnel.index).unwrap().iter().any(|one| one.address == nine))
            .await;
        assert_eq!(ask(&one.path, at(to_two[0], 80)), to_one[0].to_string());
        // It is gone, and so is the tunnel that nobody else needs.
        world.remove::<Node>("", "b");
        until(|| host.link(peers::TUNNEL).unwrap().is_none()).await;
        context.stop();
    }

    /// A pod waits for the policies, and begins as they want it; the API tells of its address later.
    #[test]
    fn policies_are_in_force_before_a_pod_has_a_link() {
        isolated(|| {
            let tasks = tokio::runtime::Builder::new_current_thread().enable_all().build();
            tasks.unwrap().block_on(isolated_from_the_start());
        });
    }

    async fn isolated_from_the_start() {
        let state = tempfile::tempdir().unwrap();
        let context = Context::new();
        let world = World::new(&context);
        let settings = || Settings { policies: true, ..Settings::new(state.path().join("state")) };
        let network = NodeNetwork::open(settings()).unwrap();
        let (own, peers) = (world.source(), Some(world.source()));
        tokio::spawn(run(context.clone(), own, peers, "a".to_owned(), network.clone()));
        world.put(&node("a", "192.0.2.1", &["10.99.1.0/24"]));
        let put_pod = |name: &str| {
            let pod = json!({
                "metadata": { "namespace": "default", "name": name, "uid": name,
                    "labels": { "app": name } },
                "spec": { "containers": [] },
            });
            world.put(&serde_json::from_value::<Pod>(pod).unwrap());
        };
        let put_policy = |name: &str, spec: serde_json::Value| {
            let policy = json!({
                "metadata": { "namespace": "default", "name": name }, "spec": spec });
            world.put(&serde_json::from_value::<NetworkPolicy>(policy).unwrap());
        };
        let app = |name: &str| json!({ "matchLabels": { "app": name } });
        put_policy("closed", json!({ "podSelector": app("one") }));
        ["one", "two", "three"].into_iter().for_each(put_pod);
        let (one, two, three) = (Held::new(), Held::new(), Held::new());
        let early = {
            let (network, sandbox) = (network.clone(), attachment("one", &one));
            tokio::spawn(async move { network.attach(sandbox).await })
        };
        network.gateways().await;
        tokio::task::yield_now().await;
        assert!(!early.is_finished(), "it waits for the policies");
        let policies = tokio::spawn(policy::run(context.clone(), world.source(), network.clone()));
        let to_one = early.await.unwrap().unwrap();
        let to_two = network.attach(attachment("two", &two)).await.unwrap();
        let to_three = network.attach(attachment("three", &three)).await.unwrap();
        serve(&one.path, 80);
        serve(&two.path, 80);
        let is_reached = |from: &Held, to: IpAddr| {
            let connect = || TcpStream::connect_timeout(&at(to, 80), Duration::from_millis(300));
            namespace::within(&from.path, connect).unwrap().is_ok()
        };
        assert_eq!(ask(&one.path, at(to_two[0], 80)), to_one[0].to_string());
        assert!(!is_reached(&two, to_one[0]));
        put_policy(
            "open",
            json!({ "podSelector": app("one"),
                    "ingress": [{ "from": [{ "podSelector": app("two") }] }] }),
        );
        until(|| is_reached(&two, to_one[0])).await;
        assert!(!is_reached(&three, to_one[0]));
        // Somebody takes the rules away.
        let mut netfilter = Socket::open(Family::Netfilter).unwrap();
        let ipv4 = netlink::nftables::AddressFamily::Ipv4;
        let mut table = netlink::nftables::Transaction::new(ipv4, POLICY_TABLE);
        table.remove_table();
        table.commit(&mut netfilter).unwrap();
        until(|| !is_reached(&three, to_one[0])).await;
        assert!(is_reached(&two, to_one[0]));
        put_policy("quiet", json!({ "podSelector": app("three"), "policyTypes": ["Egress"] }));
        until(|| !is_reached(&three, to_two[0])).await;

        // Somebody defines policies of the cluster, writes one, and takes the definition away again.
        let definition = json!({
            "metadata": { "name": "clusternetworkpolicies.policy.networking.k8s.io" },
            "spec": { "group": "policy.networking.k8s.io", "scope": "Cluster",
                "names": { "plural": "clusternetworkpolicies", "kind": "ClusterNetworkPolicy" },
                "versions": [{ "name": "v1alpha2", "served": true, "storage": true }] },
            "status": { "acceptedNames": { "plural": "clusternetworkpolicies",
                "kind": "ClusterNetworkPolicy" },
                "conditions": [{ "type": "Established", "status": "True" }] },
        });
        let definitions = client::definitions::collection().resource;
        let of_cluster = client::ApiResource::custom(
            "policy.networking.k8s.io",
            "v1alpha2",
            "clusternetworkpolicies",
            "ClusterNetworkPolicy",
            api::kinds::Scope::Cluster,
        );
        world.put_tree(&definitions, definition.clone());
        let strict = json!({
            "kind": "ClusterNetworkPolicy", "metadata": { "name": "strict" },
            "spec": { "tier": "Admin", "priority": 1, "subject": { "namespaces": {} },
                "ingress": [{ "action": "Deny", "from": [{ "pods": { "namespaceSelector": {},
                    "podSelector": app("two") } }] }] },
        });
        let put_namespace = json!({ "metadata": { "name": "default" } });
        world.put(&serde_json::from_value::<Namespace>(put_namespace).unwrap());
        assert!(is_reached(&two, to_one[0]));
        world.put_tree(&of_cluster, strict);
        until(|| !is_reached(&two, to_one[0])).await;
        let mut gone = definition;
        gone["status"]["conditions"][0]["status"] = json!("False");
        world.put_tree(&definitions, gone);
        until(|| is_reached(&two, to_one[0])).await;

        // Another process begins with what this one left, and with who was here.
        context.stop();
        policies.await.unwrap();
        drop(network);
        let network = until_open(settings).await;
        assert!(!is_reached(&three, to_two[0]), "nobody follows the API now");
        let context = Context::new();
        let again = tokio::spawn(policy::run(context.clone(), world.source(), network.clone()));
        world.remove::<NetworkPolicy>("default", "quiet");
        until(|| is_reached(&three, to_two[0])).await;
        assert!(!is_reached(&three, to_one[0]));
        assert_eq!(to_three.len(), 1);
        context.stop();
        again.await.unwrap();
        drop(network);
        // Without anybody who minds policies there are none.
        let network = until_open(|| Settings::new(state.path().join("state"))).await;
        assert!(is_reached(&three, to_one[0]));
        network.detach(attachment("one", &one)).await.unwrap();
    }

    /// Until the process before has let go.
    async fn until_open(settings: impl Fn() -> Settings) -> NodeNetwork {
        let mut network = None;
        until(|| {
            network = NodeNetwork::open(settings()).ok();
            network.is_some()
        })
        .await;
        network.unwrap()
    }

    /// Conditions of the kernel have nobody who tells of them.
    async fn until(mut is: impl FnMut() -> bool) {
        let end = tokio::time::Instant::now() + PATIENCE;
        while !is() {
            assert!(tokio::time::Instant::now() < end, "it is not so");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
