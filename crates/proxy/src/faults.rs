//! Services while things go wrong or change all the time, with real connections.
use crate::tests::World;
use crate::{Config, Endpoint, Proxy, ServicePort, TABLE};
use api::names::NamespacedName;
use netlink::nftables::{AddressFamily, Transaction};
use netlink::testing::isolated;
use netlink::{Family, Socket, namespace};
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TCP: u8 = 6;
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
            let ask = || -> std::io::Result<usize> {
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
