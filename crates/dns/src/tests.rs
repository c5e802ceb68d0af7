//! Real sockets on loopback, and a world in memory behind them.
use crate::live::{bind, serve};
use crate::wire::{Query, question};
use crate::{Config, Kind};
use client::Context;
use client::testing::World;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);

pub struct Served {
    pub context: Context,
    world: World,
    pub at: SocketAddr,
}

impl Served {
    pub async fn new(upstreams: Vec<SocketAddr>) -> Served {
        Served::with(|config| config.upstreams = upstreams).await
    }

    async fn with(change: impl FnOnce(&mut Config)) -> Served {
        let context = Context::new();
        let world = World::new(&context);
        let mut config = Config { sockets: 2, ..Config::new(vec!["127.0.0.1:0".parse().unwrap()]) };
        change(&mut config);
        let sockets = bind(&config).unwrap();
        let at = sockets[0].address().unwrap();
        tokio::spawn(serve(context.clone(), world.source(), config, sockets));
        Served { context, world, at }
    }

    fn put(&self, tree: serde_json::Value) {
        match tree["kind"].as_str().unwrap() {
            "Service" => drop(self.world.put::<Service>(&serde_json::from_value(tree).unwrap())),
            "Namespace" => {
                drop(self.world.put::<Namespace>(&serde_json::from_value(tree).unwrap()))
            }
            _ => drop(self.world.put::<EndpointSlice>(&serde_json::from_value(tree).unwrap())),
        }
    }

    pub fn put_web(&self, address: &str) {
        self.put(json!({ "kind": "Namespace", "metadata": { "name": "default" } }));
        self.put(json!({
            "kind": "Service",
            "metadata": { "name": "web", "namespace": "default" },
            "spec": { "clusterIP": address, "ports": [{ "name": "http", "port": 80 }] },
        }));
    }

    fn put_db(&self, addresses: &[&str]) {
        self.put(json!({
            "kind": "Service",
            "metadata": { "name": "db", "namespace": "default" },
            "spec": { "clusterIP": "None", "ports": [{ "name": "sql", "port": 80 }] },
        }));
        let endpoint = |address: &&str| json!({ "addresses": [address] });
        self.put(json!({
            "kind": "EndpointSlice",
            "metadata": {
                "name": "db-x", "namespace": "default",
                "labels": { "kubernetes.io/service-name": "db" },
            },
            "addressType": "IPv4",
            "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
            "ports": [{ "name": "sql", "protocol": "TCP", "port": 5432 }],
        }));
    }

    async fn ask(&self, kind: Kind, name: &str) -> String {
        let (at, asked) = (self.at, question(7, name, kind, Some(1232)));
        let bytes = tokio::task::spawn_blocking(move || by_udp(at, &asked)).await.unwrap();
        shown(&bytes)
    }

    /// What is put into the world is known a moment later.
    pub async fn until(&self, kind: Kind, name: &str, expected: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = self.ask(kind, name).await;
            if said == expected {
                return;
            }
            assert!(Instant::now() < end, "{name} is {said}, not {expected}");
            tokio::task::yield_now().await;
        }
    }
}

pub fn by_udp(at: SocketAddr, asked: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(asked, at).unwrap();
    let mut bytes = [0; 4096];
    let length = socket.recv(&mut bytes).unwrap();
    bytes[..length].to_vec()
}

pub fn by_tcp(at: SocketAddr, asked: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = (asked.len() as u16).to_be_bytes();
    stream.write_all(&[&length[..], asked].concat()).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut bytes = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// The code, whether it is cut, and the addresses in it.
fn shown(bytes: &[u8]) -> String {
    let code = bytes[3] & 0xf;
    let cut = if bytes[2] & 2 != 0 { " cut" } else { "" };
    let mut addresses: Vec<_> =
        crate::wire::addresses(bytes).into_iter().map(|one| one.1).collect();
    addresses.sort_unstable();
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("{code}{cut} {}", addresses.join(" "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_follow_the_world() {
    let served = Served::new(Vec::new()).await;
    served.world.hold_watches(true);
    served.put_web("10.96.0.1");
    served.put_db(&["10.1.0.2", "10.1.0.3"]);
    served.world.hold_watches(false);
    let (web, db) = ("web.default.svc.cluster.local", "db.default.svc.cluster.local");
    served.until(Kind::A, web, "0 10.96.0.1").await;
    served.until(Kind::A, db, "0 10.1.0.2 10.1.0.3").await;
    served.until(Kind::A, "absent.default.svc.cluster.local", "3 ").await;
    served.put_web("10.96.0.2");
    served.put_db(&["10.1.0.3"]);
    served.until(Kind::A, web, "0 10.96.0.2").await;
    served.until(Kind::A, db, "0 10.1.0.3").await;
    served.world.remove::<EndpointSlice>("default", "db-x");
    served.until(Kind::A, db, "3 ").await;
    served.world.remove::<Service>("default", "web");
    served.until(Kind::A, web, "3 ").await;
    assert_eq!(served.ask(Kind::A, "example.org").await, "5 ", "nobody knows other names");
    served.context.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_denied_before_everything_is_known() {
    let context = Context::new();
    let world = World::new(&context);
    world.refuse(|line| {
        line.contains("services").then(|| api::status::Status::service_unavailable("not yet"))
    });
    let config = Config::new(vec!["127.0.0.1:0".parse().unwrap()]);
    let sockets = bind(&config).unwrap();
    let at = sockets[0].address().unwrap();
    tokio::spawn(serve(context.clone(), world.source(), config, sockets));
    let served = Served { context, world, at };
    served.put_web("10.96.0.1");
    let web = "web.default.svc.cluster.local";
    assert_eq!(served.ask(Kind::A, web).await, "2 ");
    served.world.refuse_nothing();
    served.until(Kind::A, web, "0 10.96.0.1").await;
    served.context.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_long_for_a_datagram_comes_by_tcp() {
    let served = Served::new(Vec::new()).await;
    served.put(json!({ "kind": "Namespace", "metadata": { "name": "default" } }));
    let many: Vec<String> = (0..200).map(|last| format!("10.1.0.{last}")).collect();
    served.put_db(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let name = "db.default.svc.cluster.local";
    let end = Instant::now() + PATIENCE;
    loop {
        let said = served.ask(Kind::A, name).await;
        if said.starts_with("0 cut 10.1.0.") {
            break;
        }
        assert!(Instant::now() < end, "{said}");
        tokio::task::yield_now().await;
    }
    let at = served.at;
    let asked = question(7, name, Kind::A, None);
    let bytes = tokio::task::spawn_blocking(move || by_tcp(at, &asked)).await.unwrap();
    assert_eq!(shown(&bytes), format!("0 {}", many.join(" ")));
    served.context.stop();
}

/// A server somewhere that answers 192.0.2.N, with N counting its answers.
fn elsewhere(silent: bool) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut packet, mut out, mut count) = ([0; 4096], Vec::new(), 0);
        while let Ok((length, client)) = socket.recv_from(&mut packet) {
            let query = Query::read(&packet[..length]).unwrap();
            if silent || query.name.ends_with("skiff-loop") {
                continue;
            }
            count += 1;
            let data = crate::Data::Address(IpAddr::from([192, 0, 2, count]));
            let records = vec![crate::Record { name: None, seconds: 60, data }];
            let answer = crate::Answer { records, ..crate::Answer::only(crate::Code::NoError) };
            query.write(&answer, 512, &mut out);
            let _ = socket.send_to(&out, client);
        }
    });
    at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_names_are_asked_for_elsewhere_and_remembered() {
    let served = Served::new(vec![elsewhere(false)]).await;
    assert_eq!(served.ask(Kind::A, "example.org").await, "0 192.0.2.1");
    assert_eq!(served.ask(Kind::A, "Example.org").await, "0 192.0.2.1", "from the cache");
    assert_eq!(served.ask(Kind::A, "example.com").await, "0 192.0.2.2");
    served.context.stop();
    // Of two servers, one is silent: the other is asked when the time is over.
    let served = Served::new(vec![elsewhere(true), elsewhere(false)]).await;
    assert_eq!(served.ask(Kind::A, "example.org").await, "0 192.0.2.1");
    served.context.stop();
}

/// A server that repeats questions in small letters, and by TCP as they are.
fn stubborn() -> SocketAddr {
    let (listener, socket) = crate::hostile::both();
    let at = listener.local_addr().unwrap();
    let answer = |packet: &[u8], last: u8| {
        let query = Query::read(packet).unwrap();
        let data = crate::Data::Address(IpAddr::from([192, 0, 2, last]));
        let records = vec![crate::Record { name: None, seconds: 60, data }];
        let answer = crate::Answer { records, ..crate::Answer::only(crate::Code::NoError) };
        let mut out = Vec::new();
        query.write(&answer, 512, &mut out);
        out
    };
    std::thread::spawn(move || {
        let mut packet = [0; 4096];
        while let Ok((length, client)) = socket.recv_from(&mut packet) {
            let mut out = answer(&packet[..length], 7);
            out[12..].make_ascii_lowercase();
            let _ = socket.send_to(&out, client);
        }
    });
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut length = [0; 2];
            if stream.read_exact(&mut length).is_err() {
                continue;
            }
            let mut packet = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut packet).unwrap();
            let out = answer(&packet, 8);
            let _ = stream.write_all(&[&(out.len() as u16).to_be_bytes()[..], &out].concat());
        }
    });
    at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_repeat_our_letters_is_asked_by_tcp() {
    let served = Served::new(vec![stubborn()]).await;
    // A name of so many letters is hardly ever written small by chance.
    let name = "a-name-of-many-letters-which-is-long.example.org";
    assert_eq!(served.ask(Kind::A, name).await, "0 192.0.2.8");
    served.context.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_map_says_who_is_asked_for_what() {
    let (usual, stub) = (elsewhere(false), elsewhere(false));
    let served = Served::with(|config| {
        config.upstreams = vec![usual];
        config.config_map = Some(("kube-system".to_owned(), "coredns".to_owned()));
    })
    .await;
    served.put_web("10.96.0.1");
    served.until(Kind::A, "web.default.svc.cluster.local", "0 10.96.0.1").await;
    assert_eq!(served.ask(Kind::A, "a.example.org").await, "0 192.0.2.1");
    let put = |text: String| {
        let map = json!({
            "metadata": { "name": "coredns", "namespace": "kube-system" },
            "data": { "Corefile": text },
        });
        let map = serde_json::from_value::<k8s_openapi::api::core::v1::ConfigMap>(map).unwrap();
        served.world.put(&map);
    };
    let corefile = format!(
        ".:53 {{\n kubernetes cluster.local {{\n ttl 30\n }}\n rewrite name old.example.com web.default.svc.cluster.local\n hosts {{\n 203.0.113.7 printer\n fallthrough\n }}\n forward . {usual}\n}}\nexample.org {{\n forward . {stub}\n cache 30\n}}\n"
    );
    put(corefile.clone());
    served.until(Kind::A, "printer", "0 203.0.113.7").await;
    assert_eq!(served.ask(Kind::Aaaa, "printer").await, "0 ");
    assert_eq!(served.ask(Kind::A, "old.example.com").await, "0 10.96.0.1");
    assert_eq!(served.ask(Kind::A, "b.example.org").await, "0 192.0.2.1", "the stub's first");
    assert_eq!(served.ask(Kind::A, "b.example.org").await, "0 192.0.2.1", "kept");
    let (one, other) =
        (served.ask(Kind::A, "a.example.com").await, served.ask(Kind::A, "a.example.com").await);
    assert!(one.starts_with("0 192.0.2.") && one != other, "nothing is kept here");
    assert_eq!(served.ask(Kind::A, "10-1-0-2.default.pod.cluster.local").await, "3 ");
    // What is not understood changes nothing; what is gone does.
    put(corefile.replace("203.0.113.7", "203.0.113.8") + "x {\n magic\n}\n");
    put(corefile.replace("203.0.113.7", "203.0.113.9"));
    served.until(Kind::A, "printer", "0 203.0.113.9").await;
    served.world.remove::<k8s_openapi::api::core::v1::ConfigMap>("kube-system", "coredns");
    served.until(Kind::A, "10-1-0-2.default.pod.cluster.local", "0 10.1.0.2").await;
    served.context.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_pods_are_verified_where_the_rules_say_so() {
    let served = Served::with(|config| {
        let rules = ". {\n kubernetes cluster.local {\n pods verified\n }\n template IN A x.org {\n answer \"{{ .Name }} A 192.0.2.9\"\n }\n template IN A y.org {\n answer \"{{ .Name }} CNAME web.default.svc.cluster.local.\"\n }\n}";
        config.corefile = Some(rules.to_owned());
    })
    .await;
    served.put_web("10.96.0.1");
    let put = |ip: &str, phase: &str| {
        let pod = json!({ "metadata": { "name": "a", "namespace": "default" },
            "status": { "phase": phase, "podIPs": [{ "ip": ip }] } });
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
        served.world.put(&pod);
    };
    let name = |ip: &str| format!("{ip}.default.pod.cluster.local");
    put("10.1.0.2", "Running");
    served.until(Kind::A, &name("10-1-0-2"), "0 10.1.0.2").await;
    assert_eq!(served.ask(Kind::A, &name("10-1-0-3")).await, "3 ");
    put("10.1.0.3", "Running");
    served.until(Kind::A, &name("10-1-0-3"), "0 10.1.0.3").await;
    served.until(Kind::A, &name("10-1-0-2"), "3 ").await;
    put("10.1.0.3", "Succeeded");
    served.until(Kind::A, &name("10-1-0-3"), "3 ").await;
    assert_eq!(served.ask(Kind::A, "any.x.org").await, "0 192.0.2.9");
    let alias = served.ask(Kind::A, "any.y.org").await;
    assert!(alias.ends_with("10.96.0.1"), "{alias}");
    served.context.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_searches_is_answered_in_one_round() {
    let usual = elsewhere(false);
    let served = Served::with(|config| {
        config.upstreams = vec![usual];
        let client: IpAddr = "127.0.0.1".parse().unwrap();
        let of = move |address: IpAddr| (address == client).then(|| "default".to_owned());
        config.clients = crate::Clients(Arc::new(of));
    })
    .await;
    served.put_web("10.96.0.1");
    served.put(json!({ "kind": "Namespace", "metadata": { "name": "other" } }));
    served.put(json!({
        "kind": "Service",
        "metadata": { "name": "api", "namespace": "other" },
        "spec": { "clusterIP": "10.96.0.2", "ports": [{ "port": 80 }] },
    }));
    served.until(Kind::A, "api.other.svc.cluster.local", "0 10.96.0.2").await;
    let search = ".default.svc.cluster.local";
    for (name, expected) in [
        ("api.other", "0 10.96.0.2"),
        ("api.other.svc", "0 10.96.0.2"),
        ("api.other.svc.cluster.local", "0 10.96.0.2"),
        ("absent.other", "3 "),
        // Nobody is asked for what may be of no use to the client.
        ("example.org", "3 "),
    ] {
        served.until(Kind::A, &format!("{name}{search}"), expected).await;
    }
    assert_eq!(served.ask(Kind::Srv, &format!("api.other{search}")).await, "3 ");
    assert_eq!(served.ask(Kind::A, "api.other.other.svc.cluster.local").await, "3 ", "no search");
    assert_eq!(served.ask(Kind::A, "example.org").await, "0 192.0.2.1");
    let again = served.ask(Kind::A, &format!("example.org{search}")).await;
    assert_eq!(again, "0 192.0.2.1", "what was said is told at once");
    served.context.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alias_comes_with_the_addresses_of_its_target() {
    let served = Served::new(vec![elsewhere(false)]).await;
    served.put_web("10.96.0.1");
    for (name, target) in [("out", "example.org"), ("in", "web.default.svc.cluster.local")] {
        served.put(json!({
            "kind": "Service",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "type": "ExternalName", "externalName": target },
        }));
    }
    served.until(Kind::A, "in.default.svc.cluster.local", "0 10.96.0.1").await;
    served.until(Kind::A, "out.default.svc.cluster.local", "0 192.0.2.1").await;
    assert_eq!(served.ask(Kind::Cname, "out.default.svc.cluster.local").await, "0 ");
    served.context.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_addresses_take_turns() {
    let served = Served::new(Vec::new()).await;
    served.put_db(&["10.1.0.2", "10.1.0.3"]);
    let name = "db.default.svc.cluster.local";
    served.until(Kind::A, name, "0 10.1.0.2 10.1.0.3").await;
    let (at, asked) = (served.at, question(7, name, Kind::A, None));
    let ask = move || [(); 2].map(|()| crate::wire::addresses(&by_udp(at, &asked))[0].1);
    let [one, other] = tokio::task::spawn_blocking(ask).await.unwrap();
    assert_ne!(one, other);
    served.context.stop();
}

/// Its upstream hands every question on to it; what comes back is handed back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_would_ask_itself_stops() {
    let relay = UdpSocket::bind("127.0.0.1:0").unwrap();
    let served = Served::new(vec![relay.local_addr().unwrap()]).await;
    let (at, passed) = (served.at, Arc::new(AtomicUsize::new(0)));
    let count = passed.clone();
    std::thread::spawn(move || {
        let mut packet = [0; 4096];
        while let Ok((length, from)) = relay.recv_from(&mut packet) {
            count.fetch_add(1, Ordering::Relaxed);
            let (relay, asked) = (relay.try_clone().unwrap(), packet[..length].to_vec());
            std::thread::spawn(move || {
                let (back, mut answer) = (UdpSocket::bind("127.0.0.1:0").unwrap(), [0; 4096]);
                back.set_read_timeout(Some(PATIENCE)).unwrap();
                back.send_to(&asked, at).unwrap();
                if let Ok(length) = back.recv(&mut answer) {
                    let _ = relay.send_to(&answer[..length], from);
                }
            });
        }
    });
    // The question that finds it out goes round once more: nobody is asked after that.
    served.until(Kind::A, "example.org", "2 ").await;
    let before = passed.load(Ordering::Relaxed);
    for number in 0..50 {
        assert_eq!(served.ask(Kind::A, &format!("{number}.example.org")).await, "2 ");
    }
    assert_eq!(passed.load(Ordering::Relaxed), before, "nobody is asked any more");
    served.context.stop();
}

#[tokio::test]
async fn the_cluster_finds_its_dns() {
    let context = Context::new();
    let world = World::new(&context);
    let (ip, at) = ("10.96.0.10".parse().unwrap(), "10.99.1.1:10053".parse().unwrap());
    let metrics = "10.99.1.1:9153".parse().unwrap();
    for _ in 0..2 {
        crate::publish(&world.client(), "n", &[ip], &[at], Some(metrics)).await.unwrap();
    }
    let service = world.get::<Service>("kube-system", "kube-dns").unwrap();
    let spec = service.spec.as_ref().unwrap();
    assert_eq!(spec.cluster_ip.as_deref(), Some("10.96.0.10"));
    let slice = world.get::<EndpointSlice>("kube-system", "kube-dns-n-ipv4").unwrap();
    assert_eq!(slice.endpoints.iter().flatten().next().unwrap().addresses, ["10.99.1.1"]);
    let ports: Vec<_> = slice.ports.iter().flatten().map(|port| port.port).collect();
    assert_eq!(ports, [Some(10053), Some(10053), Some(9153)]);
}

/// Whatever comes, from clients or from other servers, is refused or answered, and nothing breaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_that_are_a_little_wrong_break_nothing() {
    // Another server, whose answers are right at their beginning and anything behind it.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let liar = socket.local_addr().unwrap();
    let mut state = 0x5f5f_5f5f_u64;
    let mut chance = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    std::thread::spawn(move || {
        let (mut packet, mut count) = ([0; 4096], 0_usize);
        while let Ok((length, client)) = socket.recv_from(&mut packet) {
            count += 1;
            let mut answer = packet[..length].to_vec();
            answer[2] |= 0x80;
            answer[7] = 9;
            let rest = (0..count % 60).map(|at| (at * 37 + count * 11) as u8 | 0xc0);
            answer.extend(rest);
            let _ = socket.send_to(&answer, client);
        }
    });
    let served = Served::new(vec![liar]).await;
    served.put_web("10.96.0.1");
    served.until(Kind::A, "web.default.svc.cluster.local", "0 10.96.0.1").await;
    let names = ["web.default.svc.cluster.local", "example.org", "1.0.96.10.in-addr.arpa", ""];
    let kinds = [Kind::A, Kind::Aaaa, Kind::Srv, Kind::Ptr, Kind::Other(255)];
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 0..4000 {
        let takes = [None, Some(0), Some(1232), Some(u16::MAX)][chance() % 4];
        let (name, kind) = (names[chance() % names.len()], kinds[chance() % kinds.len()]);
        let mut packet = question(round as u16, name, kind, takes);
        for _ in 0..chance() % 4 {
            let at = chance() % packet.len();
            packet[at] = chance() as u8;
        }
        packet.truncate(packet.len() - (chance() % 3) * (chance() % packet.len()) / 2);
        // What reads packets alone, and the server with its sockets.
        let _ = Query::read(&packet);
        crate::wire::addresses(&packet);
        client.send_to(&packet, served.at).unwrap();
    }
    served.until(Kind::A, "web.default.svc.cluster.local", "0 10.96.0.1").await;
    served.context.stop();
}
