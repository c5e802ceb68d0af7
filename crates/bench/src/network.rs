//! `bench -- network [--skiff PATH] [--upstream PATH] [--coredns PATH] [--services N,…] [--seconds N]
//! [--only services,connections,dns,policies]`: what services, names and policies cost; ours, and upstream's
//! `kube-proxy` (in both of its modes) and CoreDNS where they are named.
//!
//! Everything happens in network namespaces that are made for it and go with it: a machine with an API server
//! (`skiff up --disable '*'`), and three pods on our pod network, of which one asks and two answer. All
//! contenders of a part have the same machine, one after the other, each removing its rules at the end. They
//! share the processors with the client and the API server: compare them with each other.
mod connections;
mod machine;
mod names;
mod policies;
mod services;

use crate::report::Report;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A part of the benchmark: what it is called on the command line.
struct Part {
    name: &'static str,
    run: fn(&Options, &mut Report),
}

const PARTS: &[Part] = &[
    Part { name: "services", run: services::run },
    Part { name: "connections", run: connections::run },
    Part { name: "dns", run: names::run },
    Part { name: "policies", run: policies::run },
];

struct Options {
    skiff: PathBuf,
    kube_proxy: Option<PathBuf>,
    coredns: Option<PathBuf>,
    services: Vec<usize>,
    /// For how long something is done over and over.
    long: Duration,
}

pub fn run(arguments: &[String], report: &mut Report) {
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let numbers = |text: String| {
        text.split(',').map(|number| number.parse().expect("a number")).collect::<Vec<usize>>()
    };
    let options = Options {
        skiff: option("--skiff").unwrap_or_else(|| "target/release/skiff".to_owned()).into(),
        kube_proxy: option("--upstream").map(PathBuf::from),
        coredns: option("--coredns").map(PathBuf::from),
        services: option("--services").map_or(vec![1000, 10_000], numbers),
        long: Duration::from_secs(option("--seconds").map_or(10, |text| numbers(text)[0] as u64)),
    };
    let only = option("--only");
    let is_wanted = |part: &&Part| {
        only.as_ref().is_none_or(|only| only.split(',').any(|name| name == part.name))
    };
    for part in PARTS.iter().filter(is_wanted) {
        (part.run)(&options, report);
    }
}

/// Who makes the rules of services.
struct Contender {
    name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
}

impl Contender {
    /// All that the command line names.
    fn all(options: &Options) -> Vec<Contender> {
        let ours = Contender {
            name: "ours",
            program: options.skiff.clone(),
            arguments: &["proxy", "--conntrack-max-per-core=0"],
        };
        // Not the second that it would otherwise wait between two changes.
        let theirs = |name, arguments| {
            let program = options.kube_proxy.clone()?;
            Some(Contender { name, program, arguments })
        };
        let nftables: &[&str] = &[
            "--proxy-mode=nftables",
            "--iptables-min-sync-period=10ms",
            "--conntrack-max-per-core=0",
        ];
        let iptables: &[&str] = &[
            "--proxy-mode=iptables",
            "--iptables-min-sync-period=10ms",
            "--conntrack-max-per-core=0",
        ];
        let theirs =
            [theirs("kube-proxy, nftables", nftables), theirs("kube-proxy, iptables", iptables)];
        std::iter::once(ours).chain(theirs.into_iter().flatten()).collect()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.arguments);
        command.args(["--hostname-override", machine::NODE, "--cluster-cidr", machine::PODS]);
        command
    }
}
