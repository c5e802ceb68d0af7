//! `bench -- api`: load on an API server, or on two to compare them.
//!
//! ```text
//! bench api --kubeconfig A [--against B] [--pid P] [--against-pid P,P] [--http1]
//!           [--objects 10000] [--connections 32] [--watchers 100] [--seconds 5] [--only NAME]
//! ```
//! Any server will do: it is spoken to over TLS as a user of a kubeconfig. What is compared is
//! measured one after the other, because a shared machine is never the same for long. Memory and
//! processor time are read from `/proc` for the given processes together (upstream's is its API
//! server and etcd); the time a request takes of a processor is what another program's load
//! changes least. Requests are HTTP/2 with client-go's settings, or HTTP/1.1 with `--http1`, from a
//! client that is as cheap as can be ([`lean`]). With `--only` nothing is measured but the creation of
//! objects and what begins with that name.
//!
//! However cheap, a client on the server's processors takes the more of them the faster the server
//! is: a third of the machine beside our lists, a fiftieth beside upstream's. So the servers should
//! have processors that the client does not share, and as many each:
//!
//! ```text
//! taskset -c 0 skiff up …             taskset -c 0 kube-apiserver …   taskset -c 0 etcd …
//! taskset -c 1 bench api …
//! ```
pub mod extension;
pub mod fairness;
mod fan_out;
mod lean;
mod load;
mod place;
mod pods;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http::HeaderValue;
use testkit::client::{Endpoint, JSON, PROTOBUF};

use self::load::{Call, Until};
use self::place::Place;
use crate::measured::{Measured, processor_seconds, resident};
use crate::report::Report;

/// So many pods are created.
const PODS: usize = 5_000;
/// Workers that list at once: an answer is megabytes long.
const LISTERS: usize = 4;

pub fn run(arguments: &[String], report: &mut Report) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be started");
    if let Err(error) = runtime.block_on(compare(&Options(arguments), report)) {
        eprintln!("bench api: {error:#}");
        std::process::exit(1);
    }
}

struct Options<'a>(&'a [String]);

impl Options<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|a| a == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    fn number(&self, name: &str, default: usize) -> usize {
        self.text(name).and_then(|n| n.parse().ok()).unwrap_or(default)
    }
}

/// A server under test and what was made on it.
struct Side {
    name: String,
    endpoint: Arc<Endpoint>,
    place: Place,
    processes: Vec<String>,
}

impl Side {
    async fn open(options: &Options<'_>, file: &str, processes: &str) -> Result<Side> {
        let http2 = !options.0.iter().any(|a| a == "--http1");
        let endpoint = Arc::new(Endpoint::read(Path::new(file), http2)?);
        let place = Place::make(&endpoint).await?;
        let processes = options.text(processes).unwrap_or_default();
        let processes = processes.split(',').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        Ok(Side { name: endpoint.name.clone(), endpoint, place, processes })
    }

    fn processor_seconds(&self) -> f64 {
        self.processes.iter().map(|process| processor_seconds(process)).sum()
    }

    fn resident_mb(&self) -> f64 {
        self.processes.iter().map(|process| resident(process)).sum::<u64>() as f64 / 1e6
    }
}

async fn compare(options: &Options<'_>, report: &mut Report) -> Result<()> {
    let mut sides = Vec::new();
    let measured = prepare(options, &mut sides).await;
    let measured = match measured {
        Ok(()) => workloads(options, &sides, report).await,
        failed => failed,
    };
    // Whatever went wrong, nothing is left behind; what was measured is told all the same.
    for side in &sides {
        if let Err(error) = side.place.remove(&side.endpoint).await {
            eprintln!("bench api: failed to remove namespace {}: {error:#}", side.place.namespace);
        }
    }
    measured
}

async fn prepare(options: &Options<'_>, sides: &mut Vec<Side>) -> Result<()> {
    let file = options.text("--kubeconfig").context("--kubeconfig FILE is needed")?;
    sides.push(Side::open(options, file, "--pid").await?);
    if let Some(file) = options.text("--against") {
        sides.push(Side::open(options, file, "--against-pid").await?);
    }
    Ok(())
}

async fn workloads(options: &Options<'_>, sides: &[Side], report: &mut Report) -> Result<()> {
    let objects = options.number("--objects", 10_000);
    let connections = options.number("--connections", 32);
    let watchers = options.number("--watchers", 100);
    let time = Duration::from_secs(options.number("--seconds", 5) as u64);
    let during = Until::Time(time);

    let only = options.text("--only");
    let mut rows = Rows { sides, report, only, measured: Vec::new(), seconds: Vec::new() };
    rows.memory("at the start");
    let all = Until::Calls(objects);
    rows.load("create", connections, all, |side| load::create(&side.place)).await?;
    rows.memory(&format!("with {objects} objects"));
    rows.load("get", connections, during, |side| load::get(&side.place, objects)).await?;
    let (name, all) = ("pod create", Until::Calls(PODS));
    let costs = rows.load(name, connections, all, |side| pods::create(&side.place)).await?;
    // What another server does inside is not ours to measure.
    if let Some(cost) = costs.first() {
        let rules = pods::rules();
        let figures = [("us", rules), ("% of server us/op", 100.0 * rules / cost)];
        rows.report.row(format!("{}: rules of a pod's creation", sides[0].name), &figures);
    }
    let lists: [(&str, &'static str, HeaderValue); 4] = [
        ("list", "", JSON),
        ("list, any version", "?resourceVersion=0", JSON),
        ("list, protobuf", "", PROTOBUF),
        ("list, protobuf, any version", "?resourceVersion=0", PROTOBUF),
    ];
    for (name, query, accept) in lists {
        let list = |side: &Side| load::list(&side.place, query, accept.clone());
        rows.load(name, LISTERS, during, list).await?;
    }
    rows.load("mixed", connections, during, |side| load::mixed(&side.place, objects)).await?;
    if rows.wants("events") {
        for side in sides {
            rows.begin(side);
            rows.add(fan_out::run(&side.endpoint, &side.place, watchers, time).await?);
        }
        rows.end(&format!("events to {watchers} watchers"));
    }
    rows.memory("at the end");
    Ok(())
}

/// Rows of the report: one for each side, and one that compares them.
struct Rows<'a> {
    sides: &'a [Side],
    report: &'a mut Report,
    /// What is to be measured, if not everything.
    only: Option<&'a str>,
    measured: Vec<Measured>,
    /// Processor time of each side, until it is added what it had before.
    seconds: Vec<f64>,
}

impl Rows<'_> {
    fn wants(&self, name: &str) -> bool {
        name == "create" || self.only.is_none_or(|only| name.starts_with(only))
    }

    /// Puts a load on one side after the other; returns what a request takes of each server.
    async fn load<C: Fn(usize) -> Call + Send + Sync + 'static>(
        &mut self,
        name: &str,
        connections: usize,
        until: Until,
        call: impl Fn(&Side) -> C,
    ) -> Result<Vec<f64>> {
        if !self.wants(name) {
            return Ok(Vec::new());
        }
        for side in self.sides {
            self.begin(side);
            self.add(load::run(&side.endpoint, connections, until, call(side)).await?);
        }
        Ok(self.end(&format!("{name}, {connections} connections")))
    }

    fn begin(&mut self, side: &Side) {
        self.seconds.push(side.processor_seconds());
    }

    fn add(&mut self, measured: Measured) {
        let side = &self.sides[self.measured.len()];
        if let Some(before) = self.seconds.last_mut() {
            *before = side.processor_seconds() - *before;
        }
        self.measured.push(measured);
    }

    /// Names what was added for each side; returns what a request takes of each server.
    fn end(&mut self, name: &str) -> Vec<f64> {
        let rates: Vec<f64> = self.measured.iter().map(Measured::rate).collect();
        let measured = self.measured.drain(..).zip(self.seconds.drain(..));
        let mut costs = Vec::new();
        for (side, (measured, seconds)) in self.sides.iter().zip(measured) {
            let cost = seconds * 1e6 / measured.latencies.len().max(1) as f64;
            let mut figures = measured.figures().to_vec();
            if !side.processes.is_empty() {
                figures.push(("server us/op", cost));
                costs.push(cost);
            }
            self.report.row(format!("{}: {name}", side.name), &figures);
        }
        self.ratio(name, &rates);
        self.ratio(&format!("{name}, server us/op"), &costs);
        costs
    }

    fn memory(&mut self, when: &str) {
        if self.sides.iter().any(|side| side.processes.is_empty()) {
            return;
        }
        let sizes: Vec<f64> = self.sides.iter().map(Side::resident_mb).collect();
        for (side, size) in self.sides.iter().zip(&sizes) {
            self.report.row(format!("{}: memory {when}", side.name), &[("resident MB", *size)]);
        }
        self.ratio(&format!("memory {when}"), &sizes);
    }

    fn ratio(&mut self, name: &str, values: &[f64]) {
        if let [this, against] = values {
            let name = format!("{} / {}: {name}", self.sides[0].name, self.sides[1].name);
            self.report.row(name, &[("times", this / against)]);
        }
    }
}
