//! `bench -- fairness`: what one user notices of another's flood.
//!
//! ```text
//! bench fairness --kubeconfig A [--objects 2000] [--flood 64] [--lists 16] [--seconds 1]
//! ```
//! The kubeconfig's user must be allowed to act as others: the flood and the one who is measured are
//! two ordinary users of one priority level. The figure that counts is how much the second one's p99
//! grows; whoever is turned away asks again at once.
//!
//! A flood comes from machines of its own. Here it is a process of its own, which runs only when
//! nobody else wants the processor; and the server should have a processor that no client shares:
//!
//! ```text
//! taskset -c 0 skiff up …
//! taskset -c 1 bench fairness …
//! ```
//! Without that the operating system's scheduler is measured, not the server.
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;
use testkit::client::{Connection, Endpoint, JSON};

use super::Options;
use super::load::{self, Call, Until};
use super::place::Place;
use crate::measured::Measured;
use crate::report::Report;

const OBJECTS: usize = 2000;
/// So often each case is measured, one after the other.
const ROUNDS: usize = 8;

pub fn run(arguments: &[String], report: &mut Report) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be started");
    let options = Options(arguments);
    let done = match options.text("--flood-of") {
        Some(what) => runtime.block_on(flood(&options, what)),
        None => runtime.block_on(measure(&options, report)),
    };
    if let Err(error) = done {
        eprintln!("bench fairness: {error:#}");
        std::process::exit(1);
    }
}

fn kubeconfig<'a>(options: &'a Options<'_>) -> Result<&'a Path> {
    options.text("--kubeconfig").map(Path::new).context("--kubeconfig FILE is needed")
}

async fn measure(options: &Options<'_>, report: &mut Report) -> Result<()> {
    let file = kubeconfig(options)?;
    let admin = Arc::new(Endpoint::read(file, true)?);
    let place = Place::make(&admin).await?;
    let measured = beside_floods(options, &admin, &place, report).await;
    place.remove(&admin).await?;
    measured
}

async fn beside_floods(
    options: &Options<'_>,
    admin: &Arc<Endpoint>,
    place: &Place,
    report: &mut Report,
) -> Result<()> {
    let objects = options.number("--objects", OBJECTS);
    let time = Duration::from_secs(options.number("--seconds", 1) as u64);
    load::run(admin, 16, Until::Calls(objects), load::create(place)).await?;
    allow(admin, place).await?;
    let other = Arc::new(admin.acting_as("other"));
    wait_until_allowed(&Arc::new(admin.acting_as("flood")), place).await?;
    wait_until_allowed(&other, place).await?;
    let one = async || load::run(&other, 1, Until::Time(time), load::get(place, objects)).await;
    one().await?;
    let floods =
        [("gets", options.number("--flood", 64)), ("lists", options.number("--lists", 16))];
    // Turn by turn: a shared machine is never the same for long.
    let mut alone = Measured::default();
    let mut beside = [(); 2].map(|()| (Measured::default(), 0, 0));
    for _ in 0..ROUNDS {
        alone.add(one().await?);
        for ((what, connections), (measured, served, refused)) in floods.iter().zip(&mut beside) {
            let flood = Flood::start(options, place, what, *connections)?;
            measured.add(one().await?);
            let (more_served, more_refused) = flood.stop()?;
            *served += more_served;
            *refused += more_refused;
        }
    }
    let alone = p99(report, "one user's gets, alone", alone);
    for ((what, connections), (measured, served, refused)) in floods.into_iter().zip(beside) {
        let took = measured.took.as_secs_f64();
        let name = format!("the same, beside another's flood of {what}, {connections} connections");
        let beside = p99(report, &name, measured);
        let figures = [
            ("times", beside / alone),
            ("flood ops/s", served as f64 / took),
            ("refused", refused as f64),
        ];
        report.row(format!("p99 beside a flood of {what} / alone"), &figures);
    }
    Ok(())
}

fn p99(report: &mut Report, name: &str, measured: Measured) -> f64 {
    let figures = measured.figures();
    report.row(name, &figures);
    figures[2].1
}

/// Both users may do everything with the namespace's config maps.
async fn allow(admin: &Arc<Endpoint>, place: &Place) -> Result<()> {
    let mut connection = Connection::open(admin).await?;
    let group = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}", place.namespace);
    let api_version = "rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": api_version, "kind": "Role", "metadata": { "name": "bench" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] }],
    });
    let user = |name: &str| json!({ "kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io" });
    let binding = json!({
        "apiVersion": api_version, "kind": "RoleBinding", "metadata": { "name": "bench" },
        "roleRef": { "kind": "Role", "name": "bench", "apiGroup": "rbac.authorization.k8s.io" },
        "subjects": [user("flood"), user("other")],
    });
    for (path, object) in [("roles", role), ("rolebindings", binding)] {
        connection
            .call(Method::POST, &format!("{group}/{path}"), object.to_string().into())
            .await?;
    }
    Ok(())
}

/// Rights take effect a moment after they are given.
async fn wait_until_allowed(endpoint: &Arc<Endpoint>, place: &Place) -> Result<()> {
    let mut connection = Connection::open(endpoint).await?;
    for _ in 0..500 {
        let path = place.path(&load::name(0));
        if connection.ask(Method::GET, &path, JSON, Bytes::new()).await?.0 == 200 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bail!("{} may not read", endpoint.name)
}

/// Another process that asks as fast as it is answered.
struct Flood(Child);

impl Flood {
    fn start(
        options: &Options<'_>,
        place: &Place,
        what: &str,
        connections: usize,
    ) -> Result<Flood> {
        let mut command = Command::new("chrt");
        command
            .args(["--idle", "0"])
            .arg(std::env::current_exe()?)
            .args(["fairness", "--kubeconfig"]);
        command.arg(kubeconfig(options)?).args(["--flood-of", what]);
        command.args(["--namespace", &place.namespace]);
        command.args(["--connections", &connections.to_string()]);
        command.args(["--objects", &options.number("--objects", OBJECTS).to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        // It says when all its connections are in use.
        let ready = child.stdout.as_mut().context("it has an output")?.read(&mut [0; 1])?;
        ensure!(ready == 1, "the flood did not begin");
        Ok(Flood(child))
    }

    /// How many requests were answered, and how many turned away.
    fn stop(mut self) -> Result<(u64, u64)> {
        drop(self.0.stdin.take());
        let mut counts = String::new();
        self.0.stdout.take().context("it has an output")?.read_to_string(&mut counts)?;
        ensure!(self.0.wait()?.success(), "the flood failed");
        let mut counts = counts.split_whitespace().map(str::parse);
        match (counts.next(), counts.next()) {
            (Some(Ok(served)), Some(Ok(refused))) => Ok((served, refused)),
            _ => bail!("the flood did not say what it did"),
        }
    }
}

/// The flood's own process: until its input ends.
async fn flood(options: &Options<'_>, what: &str) -> Result<()> {
    let endpoint = Arc::new(Endpoint::read(kubeconfig(options)?, true)?.acting_as("flood"));
    let place = Place::of(options.text("--namespace").context("--namespace is needed")?);
    let make: Box<dyn Fn(usize) -> Call + Send + Sync> = match what {
        "gets" => Box::new(load::get(&place, options.number("--objects", OBJECTS))),
        _ => Box::new(load::list(&place, "", JSON)),
    };
    let counts = Arc::new(Counts { make, served: 0.into(), refused: 0.into() });
    for _ in 0..options.number("--connections", 1) {
        let (connection, counts) = (Connection::open(&endpoint).await?, counts.clone());
        tokio::spawn(async move {
            if let Err(error) = ask_again_and_again(connection, &counts).await {
                eprintln!("bench fairness: {error:#}");
                std::process::exit(1);
            }
        });
    }
    print!("!");
    std::io::stdout().flush()?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    println!("{} {}", counts.served.load(Relaxed), counts.refused.load(Relaxed));
    std::process::exit(0)
}

struct Counts {
    make: Box<dyn Fn(usize) -> Call + Send + Sync>,
    served: AtomicU64,
    refused: AtomicU64,
}

async fn ask_again_and_again(mut connection: Connection, counts: &Counts) -> Result<()> {
    loop {
        let Call { method, path, accept, body } = (counts.make)(0);
        let answer = connection.exchange(method, &path, accept, JSON, body).await?;
        let counter =
            if answer.status().as_u16() == 429 { &counts.refused } else { &counts.served };
        counter.fetch_add(1, Relaxed);
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
    }
}
