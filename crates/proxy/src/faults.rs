//! Services while things go wrong or change all the time, with real connections.
use crate::tests::World;
use crate::{Config, Endpoint, Proxy, ServicePort, TABLE};
use api::names::NamespacedName;
use netlink::nftables::{AddressFamily, Transaction};
use netlink::testing::isolated;
use netlink::{Family, Socket, namespace};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TCP: u8 = 6;
const UDP: u8 = 17;
const PATIENCE: Duration = Duration::from_secs(5);

fn key(name: &str) -> NamespacedName {
    NamespacedName::new("default", name)
}

fn service(world: &World, pods: &[usize]) -> ServicePort {
    let endpoint = |address: IpAddr| Endpoint {
        address,
        port: 8080,
        ready: true,
        serving: true,
        terminating: false,
        local: true,
        for_node: None,
        for_zone: None,
    };
    let addresses = pods.iter().flat_map(|pod| world.pods[*pod].1.clone());
    ServicePort {
        protocol: TCP,
        port: 80,
        cluster_ips: ["10.96.0.1", "fd96::1"].map(|one| one.parse().unwrap()).to_vec(),
        endpoints: addresses.map(endpoint).collect(),
        ..ServicePort::default()
    }
}

/// Connects as fast as it can until told to end: how often, and what failed.
fn hammer(from: &Path, to: &str, ended: &AtomicBool) -> (usize, Vec<String>) {
    let to: SocketAddr = to.parse().unwrap();
    let work = || {
        let (mut count, mut failures) = (0, Vec::new());
        while !ended.load(Ordering::Relaxed) {
            let ask = || -> io::Result<usize> {
                let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                let mut said = String::new();
                stream.read_to_string(&mut said)
            };
            count += 1;
            match ask() {
                Ok(length) if length > 0 => {}
                other => failures.push(format!("{to}: {other:?}")),
            }
        }
        (count, failures)
    };
    namespace::within(from, work).unwrap()
}

/// Runs changes while clients of both families connect at full rate: none may fail.
fn unharmed(world: &mut World, mut change: impl FnMut(&mut World, usize), times: usize) {
    let ended = AtomicBool::new(false);
    let from = world.pods[0].0.path.clone();
    std::thread::scope(|scope| {
        let (from, ended) = (from.as_path(), &ended);
        let clients: Vec<_> = ["10.96.0.1:80", "[fd96::1]:80"]
            .into_iter()
            .map(|to| scope.spawn(move || hammer(from, to, ended)))
            .collect();
        (0..times).for_each(|at| change(world, at));
        ended.store(true, Ordering::Relaxed);
        for client in clients {
            let (count, failures) = client.join().unwrap();
            assert!(
                count > 0 && failures.is_empty(),
                "{} of {count}: {failures:?}",
                failures.len()
            );
        }
    });
}

#[test]
fn no_connection_fails_while_endpoints_roll() {
    isolated(|| {
        let mut world = World::new();
        let web = service(&world, &[1]);
        world.proxy.apply(&[(key("web"), vec![web])]).unwrap();
        let steps: [&[usize]; 4] = [&[1, 2], &[2], &[2, 1], &[1]];
        let roll = |world: &mut World, at: usize| {
            let web = service(world, steps[at % steps.len()]);
            world.proxy.apply(&[(key("web"), vec![web])]).unwrap();
        };
        unharmed(&mut world, roll, 300);
    });
}

/// The next process takes over what the last left, whatever has changed meanwhile.
#[test]
fn no_connection_fails_while_a_proxy_begins_anew() {
    isolated(|| {
        let mut world = World::new();
        let web = service(&world, &[1]);
        world.proxy.apply(&[(key("web"), vec![web])]).unwrap();
        let handles =
            |family| Socket::open(Family::Netfilter).unwrap().table(family, TABLE).unwrap();
        let before = AddressFamily::BOTH.map(handles);
        let steps: [&[usize]; 3] = [&[1], &[1, 2], &[2]];
        let begin = |world: &mut World, at: usize| {
            // Nodes' addresses change, too.
            let node_ports = vec![("192.0.2.1".parse().unwrap(), 32 - u8::from(at % 5 == 4))];
            let config = Config { node_port_addresses: node_ports, ..World::config() };
            world.proxy = Proxy::open(config).unwrap();
            let web = service(world, steps[at % steps.len()]);
            world.proxy.apply(&[(key("web"), vec![web])]).unwrap();
        };
        unharmed(&mut world, begin, 50);
        assert!(world.proxy.is_whole(true).unwrap());
        assert_eq!(AddressFamily::BOTH.map(handles), before, "the tables are the same");
    });
}

/// `nft`, where it is installed, shows the table. (Not where clients are remembered: the endpoint that they are
/// led to comes from one map and is looked for in another, for which `nft` has no words.)
#[test]
fn the_table_can_be_listed() {
    isolated(|| {
        let mut world = World::new();
        let web = ServicePort {
            node_port: Some(30080),
            external_ips: vec!["192.0.2.99".parse().unwrap()],
            external_local: true,
            load_balancer_ips: vec![
                "203.0.113.1".parse().unwrap(),
                "2001:db8:1::1".parse().unwrap(),
            ],
            source_ranges: vec![
                ("192.0.2.0".parse().unwrap(), 24),
                ("2001:db8::".parse().unwrap(), 32),
            ],
            ..service(&world, &[1, 2])
        };
        let none = ServicePort { endpoints: Vec::new(), port: 81, ..web.clone() };
        world.proxy.apply(&[(key("web"), vec![web]), (key("none"), vec![none])]).unwrap();
        for family in ["ip", "ip6"] {
            if let Some(listed) = netlink::testing::listed(family, TABLE) {
                assert!(listed.contains("internal-2"), "{listed}");
            }
        }
    });
}

/// Tens of thousands of connections that the kernel remembers neither hold a change up nor are lost by it.
#[test]
fn many_known_connections_hold_nothing_up() {
    const MANY: u16 = 50_000;
    isolated(|| {
        let mut world = World::new();
        let dns = |world: &World, pods: &[usize]| {
            let cluster_ips = vec!["10.96.0.10".parse().unwrap()];
            ServicePort { protocol: UDP, port: 53, cluster_ips, ..service(world, pods) }
        };
        let one = dns(&world, &[1]);
        world.proxy.apply(&[(key("dns"), vec![one])]).unwrap();
        let from = world.pods[0].0.path.clone();
        let speak = || {
            for port in 1024..1024 + MANY {
                let Ok(socket) = UdpSocket::bind(("0.0.0.0", port)) else { continue };
                let _ = socket.send_to(b"?", "10.96.0.10:53");
            }
        };
        namespace::within(&from, speak).unwrap();
        let mut socket = Socket::open(Family::Netfilter).unwrap();
        let led = |socket: &mut Socket, to: &World, pod: usize| {
            let all = socket.connections(false).unwrap();
            all.iter().filter(|one| to.pods[pod].1.contains(&one.reply.source)).count()
        };
        let many = led(&mut socket, &world, 1);
        assert!(many > usize::from(MANY) / 2, "only {many}: does the kernel remember so many?");
        let begun = std::time::Instant::now();
        // Many services change at once: each connection is looked at once, not once for each.
        let mut changes = vec![(key("dns"), vec![dns(&world, &[2])])];
        for at in 0..1000_u16 {
            let [high, low] = at.to_be_bytes();
            let cluster_ips = vec![IpAddr::from([10, 97, high, low])];
            let port = ServicePort { cluster_ips, ..dns(&world, &[1]) };
            changes.push((key(&format!("other-{at}")), vec![port]));
        }
        world.proxy.apply(&changes).unwrap();
        let took = begun.elapsed();
        println!("{many} connections forgotten in {took:?}");
        assert_eq!(led(&mut socket, &world, 1), 0);
        assert!(took < Duration::from_secs(60), "{took:?}");
    });
}

/// Half of a change, tables of others with the same numbers, and rules that somebody took out: what a proxy
/// that was killed in the middle leaves, and more.
#[test]
fn whatever_a_killed_proxy_left_is_repaired() {
    isolated(|| {
        let mut world = World::new();
        let web = service(&world, &[1]);
        world.proxy.apply(&[(key("web"), vec![web.clone()])]).unwrap();
        let mut socket = Socket::open(Family::Netfilter).unwrap();
        let mut other = Transaction::new(AddressFamily::Ipv4, "somebodys");
        other.add_table();
        other.add_chain("kept");
        other.commit(&mut socket).unwrap();
        let mut half = Transaction::new(AddressFamily::Ipv4, TABLE);
        half.renew_table();
        half.add_chain("half");
        half.commit(&mut socket).unwrap();
        let from = world.pods[0].0.path.clone();
        assert_ne!(
            world.ask_for(&from, "10.96.0.1:80", Duration::from_millis(300)),
            "1 from 10.99.1.2"
        );
        assert!(!world.proxy.is_whole(false).unwrap());
        world.proxy.apply(&[]).unwrap();
        assert!(world.proxy.is_whole(true).unwrap());
        assert_eq!(world.ask_for(&from, "10.96.0.1:80", PATIENCE), "1 from 10.99.1.2");
        // The next process knows nothing of the one before.
        half = Transaction::new(AddressFamily::Ipv6, TABLE);
        half.add_chain("half");
        half.commit(&mut socket).unwrap();
        world.proxy = Proxy::open(Config::default()).unwrap();
        world.proxy.apply(&[(key("web"), vec![web])]).unwrap();
        assert!(world.proxy.is_whole(true).unwrap());
        assert_eq!(world.ask_for(&from, "[fd96::1]:80", PATIENCE), "1 from fd99:1::2");
        let mut gone = Transaction::new(AddressFamily::Ipv4, "somebodys");
        gone.remove_table();
        gone.commit(&mut socket).unwrap();
    });
}
