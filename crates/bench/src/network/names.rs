//! Names of a thousand services, asked of a server with its own process: ours, and CoreDNS where it is named.
use super::Options;
use super::machine::{self, Machine, Process, name};
use crate::measured::{Measured, resident};
use crate::report::Report;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

const SERVICES: usize = 1000;
const CLIENTS: usize = 2;
/// Questions that a client has under way at full rate.
const WINDOW: usize = 64;
/// A question that is not answered by then is lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// What nobody waits for any longer.
const READY: Duration = Duration::from_secs(120);

pub fn run(options: &Options, report: &mut Report) {
    machine::with(&options.skiff, |machine| {
        machine.create_services(SERVICES);
        let ours = ours(machine, options);
        contend("ours", ours, options.long, report);
        if let Some(theirs) = theirs(machine, options) {
            contend("CoreDNS", theirs, options.long, report);
        }
    });
}

fn ours(machine: &Machine, options: &Options) -> (Command, SocketAddr) {
    let at: SocketAddr = "127.0.0.1:5301".parse().expect("an address");
    let mut command = Command::new(&options.skiff);
    command.arg("dns").arg("--listen").arg(at.to_string());
    command
        .args(["--upstream", "127.0.0.1:9"])
        .arg("--kubeconfig")
        .arg(machine.server.kubeconfig());
    (command, at)
}

/// With what kubeadm puts into its Corefile, as far as it answers questions.
fn theirs(machine: &Machine, options: &Options) -> Option<(Command, SocketAddr)> {
    let at: SocketAddr = "127.0.0.1:5302".parse().expect("an address");
    let kubeconfig = machine.server.kubeconfig();
    let corefile = format!(
        ".:{} {{\n errors\n kubernetes cluster.local in-addr.arpa ip6.arpa {{\n  kubeconfig {}\n  \
         pods insecure\n  ttl 30\n }}\n prometheus 127.0.0.1:5303\n cache 30\n loadbalance\n}}\n",
        at.port(),
        kubeconfig.display(),
    );
    let file = machine.server.folder.join("Corefile");
    std::fs::write(&file, corefile).expect("a file");
    let mut command = Command::new(options.coredns.as_ref()?);
    command.arg("-conf").arg(file);
    Some((command, at))
}

fn contend(
    name: &str,
    (mut command, at): (Command, SocketAddr),
    long: Duration,
    report: &mut Report,
) {
    let process = Process::start(&mut command);
    let begun = Instant::now();
    let asked = questions();
    // The last that was made is known.
    while !knows(at, &asked[SERVICES - 1]) {
        assert!(begun.elapsed() < READY, "{name} knows no names");
    }
    let ready = begun.elapsed().as_secs_f64();
    for (load, clients, window) in [("at full rate", CLIENTS, WINDOW), ("one at a time", 1, 1)] {
        let before = process.processor_seconds();
        let measured = rush(at, &asked, clients, window, long);
        let spent = process.processor_seconds() - before;
        let count = measured.latencies.len() as f64;
        let [rate, median, slow, _] = measured.figures();
        let memory = resident(&process.id()) as f64 / 1e6;
        let figures = [
            ("answers/s", rate.1),
            median,
            slow,
            ("cpu µs each", spent / count * 1e6),
            ("MB", memory),
            ("ready s", ready),
        ];
        eprintln!("names, {load}: {name}: {figures:.2?}");
        report.row(format!("names, {load}: {name}"), &figures);
    }
}

/// Of eight questions five are for services' addresses, one for one of the other family, one for a name that
/// there is not, and one for a whole search path's second try.
fn questions() -> Vec<Vec<u8>> {
    let question = |at: usize| {
        let whole = format!("{}.default.svc.cluster.local", name(at));
        // By the last one it is known that a server is ready: there is such a service.
        let (asked, kind) = match at % 8 {
            _ if at + 1 == SERVICES => (whole, dns::Kind::A),
            5 => (whole, dns::Kind::Aaaa),
            6 => (format!("absent-{at}.default.svc.cluster.local"), dns::Kind::A),
            7 => (format!("{whole}.svc.cluster.local"), dns::Kind::A),
            _ => (whole, dns::Kind::A),
        };
        dns::question(0, &asked, kind, Some(1232))
    };
    (0..SERVICES).map(question).collect()
}

fn connect(at: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(at).expect("an address");
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    socket
}

fn knows(at: SocketAddr, asked: &[u8]) -> bool {
    let (socket, mut bytes) = (connect(at), [0; 2048]);
    let _ = socket.set_read_timeout(Some(Duration::from_millis(100)));
    let _ = socket.send(asked);
    let is_known = socket.recv(&mut bytes).is_ok_and(|length| length > 12 && bytes[7] > 0);
    if !is_known {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    is_known
}

fn rush(
    at: SocketAddr,
    asked: &[Vec<u8>],
    clients: usize,
    window: usize,
    long: Duration,
) -> Measured {
    let begun = Instant::now();
    let found: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..clients)
            .map(|client| scope.spawn(move || ask(at, asked, client * 131, window, long)))
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    Measured { took: begun.elapsed(), latencies: found.concat() }
}

/// Keeps so many questions under way; how long each answer took, in microseconds.
fn ask(at: SocketAddr, asked: &[Vec<u8>], first: usize, window: usize, long: Duration) -> Vec<u32> {
    let (socket, mut bytes) = (connect(at), [0; 2048]);
    let (mut latencies, mut next, begun) = (Vec::new(), first, Instant::now());
    let mut sent = vec![begun; window];
    let mut send = |slot: usize, sent: &mut [Instant]| {
        let mut question = asked[next % asked.len()].clone();
        question[..2].copy_from_slice(&(slot as u16).to_be_bytes());
        next += 1;
        sent[slot] = Instant::now();
        let _ = socket.send(&question);
    };
    (0..window).for_each(|slot| send(slot, &mut sent));
    while begun.elapsed() < long {
        match socket.recv(&mut bytes) {
            Ok(length) if length > 12 => {
                let slot = usize::from(u16::from_be_bytes([bytes[0], bytes[1]])) % window;
                latencies.push(sent[slot].elapsed().as_micros() as u32);
                send(slot, &mut sent);
            }
            // Lost, all of them: the next begin.
            _ => (0..window).for_each(|slot| send(slot, &mut sent)),
        }
    }
    latencies
}
