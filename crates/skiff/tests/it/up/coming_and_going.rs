//! Servers that are started and ended again and again: what is on the machine afterwards was there before.
use super::traces_in;
use crate::apiserver::Running;
use crate::cluster::places;
use crate::servers::NO_NODE;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use tempfile::TempDir;
use testkit::network::{self, Held, within};

/// A server of one's own data; it is ready. Every other one has control loops and a scheduler besides.
fn start(folder: &TempDir, network: &Held, number: usize) -> Running {
    let without = if number.is_multiple_of(2) { "*" } else { NO_NODE };
    let mut command = within(Some(network), env!("CARGO_BIN_EXE_skiff").as_ref());
    command.args(["up", "--bind-address=127.0.0.1", "--port=0", "--disable", without]);
    command.args(places(folder)).arg("--data-dir");
    command.arg(folder.path().join(format!("server-{number}")));
    command.env("TMPDIR", folder.path().join("tmp")).stdout(Stdio::piped());
    // Whoever runs the tests by sudo gets no kubeconfig of theirs.
    command.env_remove("SUDO_UID");
    let mut process = command.spawn().expect("skiff starts");
    let mut line = String::new();
    let output = process.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("skiff speaks");
    assert!(line.starts_with("skiff is ready at https://127.0.0.1:"), "{line}");
    Running(process)
}

fn ask_to_end(server: &Running) {
    let pid = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
}

fn number(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Whether it is a file that a server keeps from one start to the next.
fn is_kept(trace: &str) -> bool {
    trace.starts_with("file ") && trace.contains("/server-")
}

/// What a store and an audit log are written into is theirs to grow.
fn grows(trace: &str) -> bool {
    is_kept(trace) && (trace.contains("/store/") || trace.contains("/audit/"))
}

#[test]
fn servers_that_come_and_go_leave_nothing_but_their_data() {
    let (count, rounds) = (number("SERVER_COUNT", 2), number("SERVER_ROUNDS", 3));
    let (folder, network) = (TempDir::new().expect("a folder"), network::machine());
    std::fs::create_dir(folder.path().join("tmp")).expect("a folder");
    let before = traces_in(&folder, &network);
    let mut kept = Vec::new();
    for round in 1..=rounds {
        let (folder, network) = (&folder, &network);
        let mut servers: Vec<Running> = std::thread::scope(|scope| {
            let start = |number| scope.spawn(move || start(folder, network, number));
            let starting: Vec<_> = (0..count).map(start).collect();
            starting.into_iter().map(|one| one.join().expect("a server")).collect()
        });
        servers.iter().for_each(ask_to_end);
        for server in &mut servers {
            let status = server.0.wait().expect("an ended process");
            assert!(status.success(), "round {round}: {status}");
        }
        let (data, besides): (BTreeSet<String>, BTreeSet<String>) =
            traces_in(folder, network).into_iter().partition(|trace| is_kept(trace));
        assert_eq!(besides, before, "round {round}");
        kept.push(data.iter().filter(|trace| !grows(trace)).count());
    }
    // Some files are made when they are first needed, and stay. One for each start would be a leak.
    let (first, last) = (kept.first().copied(), kept.last().copied());
    let grown = last.unwrap_or_default().saturating_sub(first.unwrap_or_default());
    assert!(rounds < 2 || grown < count * (rounds - 1), "files kept after each round: {kept:?}");
}
