//! The one benchmark program: `cargo run --release -p bench -- NAME [--json] [OPTIONS]`.
//!
//! A benchmark is a row of [`BENCHES`]; it measures and fills a [`Report`], which is printed as a
//! table for people or as JSON for machines. Shipped code never depends on this crate.
mod allocations;
mod api;
mod authz;
mod codec;
mod controllers;
mod dns;
mod hollow;
mod kubelet;
mod measured;
mod network;
mod parts;
mod placement;
mod report;
mod runtime;
mod scheduler;
mod store;
mod up;

use report::Report;

struct Bench {
    name: &'static str,
    about: &'static str,
    /// Measures; what follows the benchmark's name on the command line is its own.
    run: fn(&[String], &mut Report),
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "api",
        about: "create, get, list, watch and mixed load on any API server, or on two side by side",
        run: api::run,
    },
    Bench { name: "authz", about: "decisions of RBAC with a thousand bindings", run: authz::run },
    Bench { name: "codec", about: "decode, encode and patch a typical pod", run: codec::run },
    Bench {
        name: "controllers",
        about: "rollouts, Jobs, namespaces, garbage, slices and CronJobs on played nodes, beside upstream's",
        run: controllers::run,
    },
    Bench { name: "dns", about: "names of services over UDP", run: dns::run },
    Bench {
        name: "extension",
        about: "custom objects, admission by policies and webhooks, memory of definitions, beside upstream's",
        run: api::extension::run,
    },
    Bench {
        name: "fairness",
        about: "what one user notices of another's flood of gets, and of lists",
        run: api::fairness::run,
    },
    Bench {
        name: "hollow",
        about: "no measurement: plays thousands of kubelets for any API server (--kubeconfig F --nodes N)",
        run: hollow::run,
    },
    Bench {
        name: "kubelet",
        about: "pods from creation to Ready and to their end, alone and at once, beside upstream's",
        run: kubelet::run,
    },
    Bench {
        name: "network",
        about: "rules of services, connections through them, names, policies, beside kube-proxy and CoreDNS",
        run: network::run,
    },
    Bench {
        name: "placement",
        about: "pods that wait until all have a node, through the API server, beside upstream's kube-scheduler",
        run: placement::run,
    },
    Bench {
        name: "runtime",
        about: "containers and sandboxes from creation to removal, beside runc and crun",
        run: runtime::run,
    },
    Bench {
        name: "scheduler",
        about: "decisions about pods of several shapes on 5,000 nodes",
        run: scheduler::run,
    },
    Bench {
        name: "store",
        about: "durable writes, ranges, watches, open time and memory, beside etcd and the disk's limit",
        run: store::run,
    },
    Bench {
        name: "up",
        about: "a whole cluster: until it is ready, until pods run, what it takes when idle",
        run: up::run,
    },
];

fn main() {
    // The container runtime runs this program again as its shim.
    if std::env::args().nth(1).as_deref() == Some("shim") {
        let spec = std::env::args_os().nth(2).map(std::path::PathBuf::from).unwrap_or_default();
        std::process::exit(if ::runtime::shim::main(&spec).is_ok() { 0 } else { 1 });
    }
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().position(|a| a == "--json").map(|i| arguments.remove(i)).is_some();
    let Some(bench) = arguments.first().and_then(|name| BENCHES.iter().find(|b| b.name == name))
    else {
        eprintln!("usage: bench NAME [--json] [OPTIONS]\n");
        for bench in BENCHES {
            eprintln!("  {:<10} {}", bench.name, bench.about);
        }
        std::process::exit(2);
    };
    let mut report = Report::new(bench.name);
    (bench.run)(&arguments[1..], &mut report);
    if json { report.print_json() } else { report.print_table() }
}
