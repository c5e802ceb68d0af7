//! Names of services over UDP: the server with its sockets, two clients on the same machine.
//!
//! Questions answered in a second, and what one costs the server's threads alone: the clients take
//! their share of the same processors, so the rate is not what a machine could do.
use crate::report::Report;
use client::Context;
use client::testing::World;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const CLIENTS: usize = 2;
/// Questions that a client has under way.
const WINDOW: usize = 64;
const LONG: Duration = Duration::from_secs(5);
const NAME: &str = "web.default.svc.cluster.local";
/// What the server's threads are called.
const THREADS: &str = "dns-bench";

pub fn run(_: &[String], report: &mut Report) {
    let mut server = tokio::runtime::Builder::new_multi_thread();
    let server = server.enable_all().thread_name(THREADS).build().expect("a runtime");
    // A port that was free a moment ago.
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let at = free.expect("a free port");
    let context = Context::new();
    let world = World::new(&context);
    let service = json!({ "metadata": { "name": "web", "namespace": "default" },
        "spec": { "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": [{ "port": 80 }] } });
    world.put::<Service>(&serde_json::from_value(service).expect("a service"));
    server.spawn(::dns::run(context.clone(), world.source(), ::dns::Config::new(vec![at])));
    let asked = ::dns::question(7, NAME, ::dns::Kind::A, Some(1232));
    while !answers(at, &asked) {}
    let before = seconds_of(THREADS);
    let counts: Vec<(f64, f64)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| ask(at, &asked))).collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    let spent = seconds_of(THREADS) - before;
    let answered: f64 = counts.iter().map(|(count, _)| count).sum();
    let rate: f64 = counts.iter().map(|(count, seconds)| count / seconds).sum();
    report.row(
        "a service's name",
        &[("answers/s", rate), ("µs of the server", spent / answered * 1e6)],
    );
    context.stop();
}

fn connect(at: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(at).expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a limit");
    socket
}

/// Whether the server knows the name by now.
fn answers(at: SocketAddr, asked: &[u8]) -> bool {
    let (socket, mut bytes) = (connect(at), [0; 512]);
    let _ = socket.send(asked);
    socket.recv(&mut bytes).is_ok_and(|length| length > 12 && bytes[3] & 0xf == 0 && bytes[7] > 0)
}

fn ask(at: SocketAddr, asked: &[u8]) -> (f64, f64) {
    let (socket, mut bytes) = (connect(at), [0; 512]);
    let (begun, mut count) = (Instant::now(), 0_u64);
    while begun.elapsed() < LONG {
        (0..WINDOW).for_each(|_| drop(socket.send(asked)));
        count += (0..WINDOW).filter(|_| socket.recv(&mut bytes).is_ok()).count() as u64;
    }
    (count as f64, begun.elapsed().as_secs_f64())
}

/// For how long this process's threads of such a name have run.
fn seconds_of(name: &str) -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let named =
        threads.map(|one| one.path()).filter(|one| read(one.join("comm")).starts_with(name));
    let spent = named.filter_map(|one| {
        read(one.join("schedstat")).split_whitespace().next()?.parse::<f64>().ok()
    });
    spent.sum::<f64>() / 1e9
}
