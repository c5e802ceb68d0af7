//! Two networks of the test's own: an outer one, where there is an address to reach, and an inner one, whose
//! only link is ours to carry.
use super::*;
use netlink::namespace::within_new;
use netlink::route::Route;
use netlink::{Family, Socket};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};

const REMOTE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn give(link: &str, address: Ipv4Addr, prefix: u8) -> u32 {
    let mut socket = Socket::open(Family::Route).unwrap();
    let index = socket.link(link).unwrap().expect("the link").index;
    socket.add_address(index, IpAddr::V4(address), prefix).unwrap();
    socket.set_link_up(index).unwrap();
    index
}

/// Runs `serve` in the outer network, then `reach` in the inner one.
fn check(serve: impl FnOnce() + Send, reach: impl FnOnce() + Send) {
    within_new(|| {
        give("lo", REMOTE, 32);
        let mut tasks = tokio::runtime::Builder::new_multi_thread();
        let tasks = tasks.worker_threads(1).enable_all().build().unwrap();
        serve();
        let (sender, links) = std::sync::mpsc::channel::<OwnedFd>();
        std::thread::scope(|scope| {
            let inner = scope.spawn(move || {
                within_new(|| {
                    let link = netlink::tun::open("uplink").unwrap();
                    let index = give("uplink", Ipv4Addr::new(10, 0, 2, 100), 24);
                    let everywhere = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
                    let route = Route { destination: everywhere, link: index, gateway: None };
                    Socket::open(Family::Route).unwrap().set_route(&route).unwrap();
                    sender.send(link).unwrap();
                    reach();
                })
                .unwrap();
            });
            let link = links.recv().unwrap();
            tasks.block_on(async { carry(link) }).unwrap();
            inner.join().unwrap();
        });
        tasks.shutdown_background();
    })
    .unwrap();
}

/// Answers each connection with all that it said, once it has said everything.
fn echo(listener: TcpListener) {
    for stream in listener.incoming() {
        std::thread::spawn(move || {
            let mut stream = stream.unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).unwrap();
            stream.write_all(&said).unwrap();
        });
    }
}

#[test]
fn a_connection_says_everything_in_both_directions() {
    let serve = || {
        let listener = TcpListener::bind((REMOTE, 7000)).unwrap();
        std::thread::spawn(|| echo(listener));
    };
    check(serve, || {
        let all: Vec<_> = (0..20)
            .map(|number: u8| {
                std::thread::spawn(move || {
                    let said: Vec<u8> = (0..300_000u32).map(|i| (i as u8) ^ number).collect();
                    let mut stream = TcpStream::connect((REMOTE, 7000)).unwrap();
                    stream.write_all(&said).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    let mut heard = Vec::new();
                    stream.read_to_end(&mut heard).unwrap();
                    assert!(heard == said, "{} of {} bytes came back", heard.len(), said.len());
                })
            })
            .collect();
        all.into_iter().for_each(|one| one.join().unwrap());
    });
}

#[test]
fn where_nobody_listens_nobody_answers() {
    check(
        || {},
        || {
            let error = TcpStream::connect((REMOTE, 7001)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        },
    );
}

#[test]
fn datagrams_are_answered_by_whom_they_went_to() {
    let serve = || {
        let socket = UdpSocket::bind((REMOTE, 7002)).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                socket.send_to(&buffer[..length], from).unwrap();
            }
        });
    };
    check(serve, || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        for length in [0, 1, 1000, MTU - 28] {
            socket.send_to(&vec![7; length], (REMOTE, 7002)).unwrap();
            let mut buffer = [0; 2048];
            let (heard, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!((heard, from), (length, (REMOTE, 7002).into()));
        }
    });
}

#[test]
fn the_machine_s_own_loopback_and_the_link_s_network_are_nowhere() {
    let at = |text: &str| destination(text.parse().unwrap());
    for nowhere in ["127.0.0.1:80", "10.0.2.2:80", "10.0.2.3:80", "0.0.0.0:1", "224.0.0.1:5"] {
        assert_eq!(at(nowhere), None, "{nowhere}");
    }
    assert_eq!(at("192.0.2.7:443"), Some("192.0.2.7:443".parse().unwrap()));
    assert_eq!(first_server("# x\nsearch a\nnameserver 192.0.2.53\n"), "192.0.2.53".parse().ok());
    assert_eq!(first_server("nameserver\n"), None);
}

#[test]
fn broken_packets_are_nobody_s() {
    let whole = packet::datagram(
        &Key {
            protocol: Protocol::Udp,
            from: "10.0.2.100:5".parse().unwrap(),
            to: "192.0.2.1:53".parse().unwrap(),
        },
        b"hello",
    );
    assert_eq!(packet::payload(&whole), Some(&b"hello"[..]));
    assert!(packet::key(&whole).is_some());
    for length in 0..whole.len() {
        assert_eq!(packet::key(&whole[..length]), None, "{length}");
    }
    for at in 0..whole.len() {
        for byte in [0, 1, 0x45, 0xff] {
            let mut broken = whole.clone();
            broken[at] = byte;
            // Whatever it says, it is read without harm.
            if let Some(key) = packet::key(&broken) {
                let _ = packet::payload(&broken).map(|payload| packet::datagram(&key, payload));
            }
            packet::begins_connection(&broken);
        }
    }
}
