//! `bench -- fairness`: what one user notices of another's flood.
//!
//! ```text
//! bench fairness --kubeconfig A [--objects 2000] [--flood 64] [--lists 16] [--seconds 5]
//! ```
//! The kubeconfig's user must be allowed to act as others: the flood and the one who is measured are
//! two ordinary users of one priority level. The figure that counts is how much the second one's p99
//! grows; whoever is turned away asks again at once.
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
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

pub fn run(arguments: &[String], report: &mut Report) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be started");
    if let Err(error) = runtime.block_on(measure(&Options(arguments), report)) {
        eprintln!("bench fairness: {error:#}");
        std::process::exit(1);
    }
}

async fn measure(options: &Options<'_>, report: &mut Report) -> Result<()> {
    let file = options.text("--kubeconfig").context("--kubeconfig FILE is needed")?;
    let admin = Arc::new(Endpoint::read(Path::new(file), true)?);
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
    let objects = options.number("--objects", 2000);
    let time = Duration::from_secs(options.number("--seconds", 5) as u64);
    load::run(admin, 16, Until::Calls(objects), load::create(place)).await?;
    allow(admin, place).await?;
    let (flood, other) = (Arc::new(admin.acting_as("flood")), Arc::new(admin.acting_as("other")));
    wait_until_allowed(&flood, place).await?;
    wait_until_allowed(&other, place).await?;
    let one = async || load::run(&other, 1, Until::Time(time), load::get(place, objects)).await;
    one().await?;
    let alone = p99(report, "one user's gets, alone", one().await?);
    let gets = options.number("--flood", 64);
    let lists = options.number("--lists", 16);
    let floods: [(&str, usize, Make); 2] = [
        ("gets", gets, Box::new(load::get(place, objects))),
        ("lists", lists, Box::new(load::list(place, "", JSON))),
    ];
    for (what, connections, make) in floods {
        let flood = Flood::start(&flood, connections, make).await?;
        let name = format!("the same, beside another's flood of {what}, {connections} connections");
        let beside = p99(report, &name, one().await?);
        let (served, refused) = flood.stop().await?;
        let figures = [
            ("times", beside / alone),
            ("flood ops/s", served as f64 / time.as_secs_f64()),
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

type Make = Box<dyn Fn(usize) -> Call + Send + Sync>;

struct Flood {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    workers: Vec<tokio::task::JoinHandle<Result<()>>>,
}

impl Flood {
    async fn start(endpoint: &Arc<Endpoint>, connections: usize, make: Make) -> Result<Flood> {
        let make: Arc<Make> = Arc::new(make);
        let (stop, served, refused) =
            <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let mut workers = Vec::new();
        for _ in 0..connections {
            let connection = Connection::open(endpoint).await?;
            let work =
                flood(connection, make.clone(), stop.clone(), served.clone(), refused.clone());
            workers.push(tokio::spawn(work));
        }
        Ok(Flood { stop, served, refused, workers })
    }

    /// How many requests were answered, and how many turned away.
    async fn stop(self) -> Result<(u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.await.map_err(|error| anyhow!("a worker failed: {error}"))??;
        }
        Ok((self.served.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed)))
    }
}

async fn flood(
    mut connection: Connection,
    make: Arc<Make>,
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let Call { method, path, accept, body } = make(0);
        let answer = connection.exchange(method, &path, accept, JSON, body).await?;
        let counter = if answer.status().as_u16() == 429 { &refused } else { &served };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
    }
    Ok(())
}
