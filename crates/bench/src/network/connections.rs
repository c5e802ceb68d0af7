//! What a connection through a service costs beside one straight to the pod.
use super::machine::{self, SINK};
use super::{Contender, Options};
use crate::report::Report;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A node of a middling cluster.
const SERVICES: usize = 1000;

pub fn run(options: &Options, report: &mut Report) {
    machine::with(&options.skiff, |machine| {
        machine.create_services(SERVICES);
        let straight = SocketAddr::new(machine.answer[0].1, machine::GREETING);
        let rate = |to| machine.asking(|| connections(to, options.long));
        let way = |to| machine.asking(|| throughput(to, options.long));
        let sink = SocketAddr::new(machine.answer[0].1, SINK);
        report.row("straight", &[("connections/s", rate(straight)), ("MB/s", way(sink))]);
        for contender in Contender::all(options) {
            let (process, _) = machine.proxy(&contender, SERVICES);
            let to = machine::address(SERVICES / 2);
            let figures = [("connections/s", rate(to)), ("MB/s", way(machine.sink()))];
            eprintln!("through a service of {SERVICES}: {}: {figures:.0?}", contender.name);
            report.row(format!("through a service of {SERVICES}: {}", contender.name), &figures);
            machine.clean(&contender, process);
        }
    });
}

/// Connections in a second, each until the other side has spoken and ended it.
fn connections(to: SocketAddr, long: Duration) -> f64 {
    let (begun, mut count) = (Instant::now(), 0_u64);
    while begun.elapsed() < long {
        count += u64::from(machine::greeting(to).is_ok());
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Megabytes in a second by one connection.
fn throughput(to: SocketAddr, long: Duration) -> f64 {
    let mut stream = TcpStream::connect(to).expect("the sink");
    let (bytes, mut sent, begun) = (vec![7; 1 << 16], 0_u64, Instant::now());
    while begun.elapsed() < long {
        stream.write_all(&bytes).expect("the sink takes everything");
        sent += bytes.len() as u64;
    }
    sent as f64 / begun.elapsed().as_secs_f64() / 1e6
}
