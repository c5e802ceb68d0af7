//! Clients and other servers that mean no good: packets by chance, floods, slow readers and writers, answers
//! that are longer than anybody takes.
use crate::forward::Way;
use crate::server::{Reply, Server, converse};
use crate::tests::{Served, by_tcp, by_udp};
use crate::wire::{HEADER, LARGE, PLAIN, Query, question};
use crate::world::{Backend, Port, Service};
use crate::{Answer, Clients, Code, Config, Data, Kind, Record, Rules, SECONDS};
use client::Context;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// Knuth's: the same packets in every run, others with another seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// A question, mostly, with a few things wrong.
    fn packet(&mut self) -> Vec<u8> {
        if self.below(20) == 0 {
            let length = self.below(600);
            return (0..length).map(|_| self.below(256) as u8).collect();
        }
        let long = vec!["a".repeat(63); 3].join(".");
        let names = [
            "web.default.svc.cluster.local",
            "DB.default.svc.cluster.LOCAL",
            "_sql._tcp.db.default.svc.cluster.local",
            "absent.default.svc.cluster.local",
            "example.org.default.svc.cluster.local",
            "10-1-0-2.default.pod.cluster.local",
            "1.0.96.10.in-addr.arpa",
            "example.org",
            "cluster.local",
            "",
            long.as_str(),
        ];
        let kinds =
            [Kind::A, Kind::Aaaa, Kind::Srv, Kind::Ptr, Kind::Txt, Kind::Soa, Kind::Other(255)];
        let takes = [None, Some(0), Some(511), Some(1232), Some(4096), Some(u16::MAX)];
        let (name, kind, takes) = (self.one(&names), self.one(&kinds), self.one(&takes));
        let mut packet = question(self.below(1 << 16) as u16, name, kind, takes);
        for _ in 0..self.below(4) {
            let at = self.below(packet.len());
            match self.below(6) {
                0 => packet[at] = self.below(256) as u8,
                1 => packet[at] ^= 1 << self.below(8),
                2 => packet.truncate(at),
                3 => packet.insert(at, self.below(256) as u8),
                // A name that goes on elsewhere, perhaps where it began.
                4 => drop(packet.splice(at..at, [0xc0, self.below(64) as u8])),
                _ => packet.extend((0..self.below(40)).map(|byte| (byte * 37) as u8)),
            }
            if packet.is_empty() {
                break;
            }
        }
        packet
    }
}

fn server(context: &Context, upstreams: Vec<SocketAddr>, searches: bool) -> Arc<Server> {
    let mut config = Config::new(Vec::new());
    if searches {
        config.clients = Clients(Arc::new(|_| Some("default".to_owned())));
    }
    let server = Server::new(context, &config, Rules::usual(SECONDS, upstreams));
    server.synced.store(true, Ordering::Relaxed);
    let port =
        |name: &str, number| Port { name: name.to_owned(), protocol: "tcp".to_owned(), number };
    let backends = (0..300_u32).map(|at| Backend {
        hostname: (at % 2 == 0).then(|| format!("db-{at}")),
        address: IpAddr::from((0x0a01_0000 + at).to_be_bytes()),
        ports: [port("sql", 5432)].into(),
    });
    let cluster_ips = ["10.96.0.1", "fd96::1"].map(|ip| ip.parse().unwrap()).to_vec();
    let mut world = server.world.write();
    world.set_namespace("default", true);
    let web = Service { cluster_ips, ports: vec![port("http", 80)], ..Service::default() };
    world.set_service("default", "web", Some(web));
    let db = Service { backends: backends.collect(), ..Service::default() };
    world.set_service("default", "db", Some(db));
    drop(world);
    server
}

/// Where a message ends, if all that its header counts is there.
fn end_of(bytes: &[u8]) -> Option<usize> {
    let word =
        |at: usize| Some(usize::from(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
    let name = |mut at: usize| loop {
        match usize::from(*bytes.get(at)?) {
            0 => return Some(at + 1),
            // Names point back, never forward: nobody follows them for ever.
            size if size >= 0xc0 => return ((word(at)? & 0x3fff) < at).then_some(at + 2),
            size if size < 64 => at += 1 + size,
            _ => return None,
        }
    };
    let mut at = HEADER;
    for _ in 0..word(4)? {
        at = name(at)? + 4;
    }
    for _ in 0..word(6)? + word(8)? + word(10)? {
        at = name(at)?;
        at += 10 + word(at + 8)?;
    }
    Some(at)
}

/// Whatever comes: no panic, and an answer is one to this question, well-formed, and no longer than the
/// client takes. `DNS_PACKETS` and `DNS_SEED` try more, and others.
#[test]
fn whatever_comes_is_answered_within_bounds() {
    let number = |name: &str, usual: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let context = Context::new();
    let servers = [false, true].map(|searches| server(&context, Vec::new(), searches));
    let (mut chance, mut out) = (Chance(number("DNS_SEED", 0x5f5f)), Vec::new());
    let (mut answered, mut left) = (0, 0);
    for round in 0..number("DNS_PACKETS", 5000) {
        let (packet, way) = (chance.packet(), chance.one(&[Way::Udp, Way::Tcp]));
        let server = chance.one(&servers);
        let reply = server.respond(&packet, way, "10.1.0.2".parse().unwrap(), &mut out);
        let query = Query::read(&packet);
        if out.is_empty() {
            let is_answer = packet.get(2).is_some_and(|flags| flags & 0x80 != 0);
            let is_left = packet.len() < HEADER || is_answer || !matches!(reply, Reply::Done);
            assert!(is_left, "round {round}: nobody answers {packet:?}");
            left += 1;
            continue;
        }
        answered += 1;
        assert_eq!(out[..2], packet[..2], "round {round}: another's number");
        assert!(out[2] & 0x80 != 0, "round {round}: not an answer");
        assert_eq!(end_of(&out), Some(out.len()), "round {round}: {packet:?} is answered {out:?}");
        let takes = match &query {
            Err(_) => HEADER,
            Ok(_) if way == Way::Tcp => usize::from(u16::MAX),
            Ok(query) => usize::from(query.takes.unwrap_or(0).min(LARGE)).max(PLAIN),
        };
        assert!(out.len() <= takes, "round {round}: {} for who takes {takes}", out.len());
    }
    assert!(answered > 0 && left > 0, "{answered} {left}");
}

/// A port of both ways: one that is free for the one may be taken for the other.
pub fn both() -> (TcpListener, UdpSocket) {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()) {
            return (listener, socket);
        }
    }
}

/// An upstream whose answers are as long as it likes, by UDP and by TCP.
fn talkative(records: usize) -> SocketAddr {
    let (listener, socket) = both();
    let at = listener.local_addr().unwrap();
    let answer = move |packet: &[u8]| {
        let query = Query::read(packet).unwrap();
        let data = Data::Address("192.0.2.1".parse().unwrap());
        let records = vec![Record { name: None, seconds: 60, data }; records];
        let mut out = Vec::new();
        query.write(
            &Answer { records, ..Answer::only(Code::NoError) },
            usize::from(u16::MAX),
            &mut out,
        );
        out
    };
    std::thread::spawn(move || {
        let mut packet = [0; 4096];
        while let Ok((length, client)) = socket.recv_from(&mut packet) {
            let _ = socket.send_to(&answer(&packet[..length]), client);
        }
    });
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut length = [0; 2];
            let _ = stream.read_exact(&mut length);
            let mut packet = vec![0; u16::from_be_bytes(length).into()];
            if stream.read_exact(&mut packet).is_ok() {
                let out = answer(&packet);
                let _ = stream.write_all(&[&(out.len() as u16).to_be_bytes()[..], &out].concat());
            }
        }
    });
    at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_servers_long_answer_is_cut_for_who_takes_less() {
    // 21 bytes and 16 for each: 501, 1,221 and 3,221.
    for (records, takes, whole) in [
        (30, None, true),
        (31, None, false),
        (75, Some(1232), true),
        (200, Some(1232), false),
        (200, Some(u16::MAX), false),
    ] {
        let served = Served::new(vec![talkative(records)]).await;
        let (at, asked) = (served.at, question(7, "w.x", Kind::A, takes));
        let limit = usize::from(takes.unwrap_or(0).min(LARGE)).max(PLAIN);
        let asked_twice = asked.clone();
        let ask = move || [(); 2].map(|()| by_udp(at, &asked_twice));
        for said in tokio::task::spawn_blocking(ask).await.unwrap() {
            let is_cut = said[2] & 2 != 0;
            assert!(said.len() <= limit && is_cut != whole, "{records} {takes:?}: {}", said.len());
            assert_eq!(end_of(&said), Some(said.len()));
            assert_eq!(said[..2], asked[..2]);
        }
        let said = tokio::task::spawn_blocking(move || by_tcp(at, &asked)).await.unwrap();
        assert_eq!(crate::wire::addresses(&said).len(), records, "by TCP it is whole");
        served.context.stop();
    }
}

/// In simulated time: whoever is slow has ten seconds for a question, and as many for its answer.
#[tokio::test(start_paused = true)]
async fn slow_clients_are_not_waited_for() {
    let context = Context::new();
    let server = server(&context, Vec::new(), false);
    let client: IpAddr = "10.1.0.2".parse().unwrap();
    let asked = question(7, "db.default.svc.cluster.local", Kind::A, None);
    let asked = [&(asked.len() as u16).to_be_bytes()[..], &asked].concat();
    let begun = tokio::time::Instant::now();
    let (near, mut far) = tokio::io::duplex(64);
    let served = tokio::spawn(converse(server.clone(), near, client));
    // A byte every three seconds is a question that never ends.
    for byte in &asked {
        if far.write_all(&[*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert!(served.await.unwrap().is_err());
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());

    // One that asks and never reads.
    let begun = tokio::time::Instant::now();
    let (near, mut far) = tokio::io::duplex(64);
    let served = tokio::spawn(converse(server, near, client));
    far.write_all(&asked).await.unwrap();
    assert!(served.await.unwrap().is_err());
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

/// By TCP from an address of one's own.
async fn connect(from: &str, to: SocketAddr) -> std::io::Result<tokio::net::TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(format!("{from}:0").parse().unwrap())?;
    socket.connect(to).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_cannot_have_all_connections() {
    const HELD: usize = 120;
    let served = Served::new(Vec::new()).await;
    served.put_web("10.96.0.1");
    served.until(Kind::A, "web.default.svc.cluster.local", "0 10.96.0.1").await;
    let mut held = Vec::new();
    for _ in 0..HELD {
        held.push(connect("127.0.0.2", served.at).await.unwrap());
    }
    let asked = question(7, "web.default.svc.cluster.local", Kind::A, None);
    let asked = [&(asked.len() as u16).to_be_bytes()[..], &asked].concat();
    let mut answered = 0;
    for stream in &mut held {
        let mut said = [0; 2];
        let is_taken = stream.write_all(&asked).await.is_ok();
        answered += usize::from(is_taken && stream.read_exact(&mut said).await.is_ok());
    }
    assert_eq!(answered, 100, "of {HELD} connections that stay open");
    let mut other = connect("127.0.0.3", served.at).await.unwrap();
    other.write_all(&asked).await.unwrap();
    assert!(other.read_u16().await.unwrap() > 0, "somebody else is answered");
    drop(held);
    let mut said = 0;
    // Until the server has noticed.
    for _ in 0..1000 {
        let mut again = connect("127.0.0.2", served.at).await.unwrap();
        if again.write_all(&asked).await.is_ok() {
            said = again.read_u16().await.unwrap_or(0);
        }
        if said > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(said > 0, "who has closed them may come again");
    served.context.stop();
}

/// Names of elsewhere, whose server is silent: so many wait, and all others are told at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_other_names_is_bounded_and_the_clusters_own_are_answered() {
    const FLOOD: usize = 5000;
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let context = Context::new();
    let server = server(&context, vec![silent.local_addr().unwrap()], false);
    let client: IpAddr = "10.1.0.2".parse().unwrap();
    let ask = |number: usize| {
        let server = server.clone();
        tokio::spawn(async move {
            let asked = question(number as u16, &format!("{number}.example.org"), Kind::A, None);
            let mut out = Vec::new();
            let reply = server.respond(&asked, Way::Udp, client, &mut out);
            server.ask_others(&asked, Way::Udp, client, reply, &mut out).await;
            out[3] & 0xf
        })
    };
    let all: Vec<_> = (0..FLOOD).map(ask).collect();
    let asked = question(7, "web.default.svc.cluster.local", Kind::A, None);
    let mut out = Vec::new();
    for _ in 0..100 {
        server.respond(&asked, Way::Udp, client, &mut out);
        assert_eq!((out[3] & 0xf, out[7]), (0, 1), "the cluster's own");
        tokio::task::yield_now().await;
    }
    for one in all {
        assert_eq!(one.await.unwrap(), 2, "nobody knows");
    }
    let counts = &server.forward.counts;
    let (asked, refused) =
        (counts.asked.load(Ordering::Relaxed), counts.refused.load(Ordering::Relaxed));
    assert_eq!(asked + refused, FLOOD as u64);
    // A hundred (of tests) are under way at once. On a busy machine a second wave may come.
    assert!(asked >= 100 && refused >= FLOOD as u64 / 2, "{asked} were under way");
    context.stop();
}
