//! `bench -- controllers [--skiff PATH] [--upstream PATH] [--scale N] [--only ROW,…]`: control loops on
//! nodes that are played, ours and upstream's `kube-controller-manager` one after the other.
//!
//! Each has an API server of its own (`skiff up --disable '*'` on an empty folder) with `skiff scheduler`
//! beside it, and starts with nothing; upstream's client-side limits are raised out of the way, unless
//! `--limited` is given. Pods are Running and Ready as soon as they are bound. `--scale` divides every
//! count, for a quick look.
//!
//! Everything shares the machine, this program included: compare the two, not the times with others'.
use crate::hollow::source;
use crate::measured::{processor_seconds, resident};
use crate::parts::{Part, Server};
use crate::report::Report;
use client::source::{Collection, Delete, Page, Patch, Propagation};
use client::{ApiResource, Client, Context, Status};
use futures_util::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::hollow;

const NODES: usize = 150;
/// What nobody waits for any longer.
const PATIENCE: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(20);
/// Requests of this program at once.
const AT_ONCE: usize = 64;
const IDLE: Duration = Duration::from_secs(30);

/// One thing that is measured: what it is called, how often the thing is there, and how long it took.
struct Row {
    name: &'static str,
    count: usize,
    run: fn(Bed, usize) -> Took,
}

type Took = std::pin::Pin<Box<dyn Future<Output = Result<Duration, Status>> + Send>>;

const ROWS: &[Row] = &[
    Row { name: "Deployment available", count: 1000, run: |bed, n| Box::pin(available(bed, n)) },
    Row { name: "rolling update", count: 1000, run: |bed, n| Box::pin(rolled(bed, n)) },
    Row { name: "Job completed", count: 5000, run: |bed, n| Box::pin(completed(bed, n)) },
    Row { name: "namespace deleted", count: 10_000, run: |bed, n| Box::pin(deleted(bed, n)) },
    Row { name: "dependents collected", count: 10_000, run: |bed, n| Box::pin(collected(bed, n)) },
    Row { name: "slices of a service", count: 5000, run: |bed, n| Box::pin(sliced(bed, n)) },
    Row { name: "CronJobs of one minute", count: 500, run: |bed, n| Box::pin(struck(bed, n)) },
    Row { name: "pods for idling", count: 10_000, run: |bed, n| Box::pin(many(bed, n)) },
];

pub fn run(arguments: &[String], report: &mut Report) {
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let skiff =
        PathBuf::from(option("--skiff").unwrap_or_else(|| "target/release/skiff".to_owned()));
    let scale = option("--scale").map_or(1, |text| text.parse().expect("a number"));
    let only: Option<Vec<String>> =
        option("--only").map(|text| text.split(',').map(str::to_owned).collect());
    let mut contenders = vec![("ours", skiff.clone())];
    contenders.extend(option("--upstream").map(|path| ("upstream's", PathBuf::from(path))));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be started");
    let is_limited = arguments.iter().any(|argument| argument == "--limited");
    for (name, program) in contenders {
        let cluster = Cluster::start(&skiff, &program, is_limited);
        runtime.block_on(contend(name, cluster, scale, only.as_deref(), report));
    }
}

async fn contend(
    name: &str,
    cluster: Cluster,
    scale: usize,
    only: Option<&[String]>,
    report: &mut Report,
) {
    let context = Context::new();
    let fleet = source(&context, &cluster.server.kubeconfig());
    let options = hollow::Options { nodes: NODES.div_ceil(scale), ..hollow::Options::default() };
    hollow::start(&context, fleet, options).await.expect("nodes");
    let client = Client::new(source(&context, &cluster.server.kubeconfig()));
    let bed = Bed { client, namespace: "bench".to_owned() };
    bed.ready().await.expect("a namespace");
    let manager = cluster.manager.id();
    for row in ROWS {
        if only.is_some_and(|only| !only.iter().any(|part| row.name.contains(part.as_str()))) {
            continue;
        }
        let count = row.count.div_ceil(scale);
        let before = processor_seconds(&manager);
        let took = (row.run)(bed.clone(), count).await;
        let took = took.map_or(f64::NAN, |took| took.as_secs_f64());
        let spent = processor_seconds(&manager) - before;
        let memory = resident(&manager) as f64 / 1e6;
        eprintln!(
            "{name}: {} ({count}): {took:.2} s, {spent:.2} s of a processor, {memory:.0} MB",
            row.name
        );
        report.row(
            format!("{}, {count}: {name}", row.name),
            &[("s", took), ("processor s", spent), ("MB afterwards", memory)],
        );
    }
    idle(name, &manager, report).await;
    context.stop();
}

/// What nothing costs, with everything there that the rows left.
async fn idle(name: &str, manager: &str, report: &mut Report) {
    let before = processor_seconds(manager);
    tokio::time::sleep(IDLE).await;
    let share = (processor_seconds(manager) - before) / IDLE.as_secs_f64() * 100.0;
    let peak = std::fs::read_to_string(format!("/proc/{manager}/status")).unwrap_or_default();
    let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    let peak = peak.and_then(|text| text.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1000.0;
    let memory = resident(manager) as f64 / 1e6;
    report.row(
        format!("idle afterwards: {name}"),
        &[("% of a processor", share), ("MB", memory), ("most MB", peak)],
    );
}

struct Cluster {
    server: Server,
    _scheduler: Part,
    manager: Part,
}

impl Cluster {
    fn start(skiff: &Path, program: &Path, is_limited: bool) -> Cluster {
        let server = Server::start(skiff);
        let kubeconfig = server.kubeconfig();
        let scheduler =
            Part::start(Command::new(skiff).args(["scheduler", "--secure-port=0"]), &kubeconfig);
        let mut manager = Command::new(program);
        if program == skiff {
            manager.arg("controller-manager");
        } else if !is_limited {
            manager.args(["--kube-api-qps=20000", "--kube-api-burst=40000"]);
        }
        manager.arg("--secure-port=0");
        manager.arg(format!("--root-ca-file={}", server.folder.join("pki/ca.crt").display()));
        let manager = Part::start(&mut manager, &kubeconfig);
        Cluster { server, _scheduler: scheduler, manager }
    }
}

/// Where things are made.
#[derive(Clone)]
struct Bed {
    client: Client,
    namespace: String,
}

impl Bed {
    /// The namespace, once pods can be made there.
    async fn ready(&self) -> Result<(), Status> {
        let namespace = json!({ "metadata": { "name": self.namespace } });
        self.client.create_in(ApiResource::of::<Namespace>(), "", namespace).await?;
        let account = || async {
            let account = ApiResource::of::<k8s_openapi::api::core::v1::ServiceAccount>();
            let found = self.client.get_in(account, &self.namespace, "default", "").await;
            Ok(found.is_ok())
        };
        until(account).await.map(drop)
    }

    async fn create<T: api::rules::Form>(&self, object: Value) -> Result<(), Status> {
        self.client.create_in(ApiResource::of::<T>(), &self.namespace, object).await.map(drop)
    }

    /// Many at once.
    async fn create_all(
        &self,
        count: usize,
        object: impl Fn(usize) -> Value,
    ) -> Result<(), Status> {
        let made = stream::iter((0..count).map(object))
            .map(|object| self.create::<ConfigMap>(object))
            .buffer_unordered(AT_ONCE);
        made.fold(Ok(()), |all, one| std::future::ready(all.and(one))).await
    }

    async fn get<T: api::rules::Form>(&self, name: &str) -> Result<Value, Status> {
        let found = self.client.get::<T>(&self.namespace, name).await?;
        found.tree().map_err(Status::internal_error)
    }

    async fn count<T: api::rules::Form>(&self) -> Result<usize, Status> {
        let of = Collection::all(ApiResource::of::<T>()).in_namespace(&self.namespace);
        let list = self.client.source().list(of, Page { limit: 1, ..Page::default() }).await?;
        Ok(list.items.len() + list.remaining_item_count.unwrap_or_default() as usize)
    }

    /// What is left of an earlier row is no part of the next.
    async fn clear<T: api::rules::Form>(&self, name: &str) -> Result<(), Status> {
        let options = Delete::default().propagating(Propagation::Background);
        self.client.delete::<T>(&self.namespace, name, options).await?;
        until(|| async { Ok(self.count::<Pod>().await? == 0) }).await.map(drop)
    }
}

/// How long until it is so.
async fn until<F: Future<Output = Result<bool, Status>>>(
    is_so: impl Fn() -> F,
) -> Result<Duration, Status> {
    let begun = Instant::now();
    while !is_so().await? {
        if begun.elapsed() > PATIENCE {
            return Err(Status::internal_error("it took too long"));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(begun.elapsed())
}

fn template(app: &str, does: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app }, "annotations": { hollow::DOES: does } },
        "spec": { "containers": [{ "name": "c", "image": "i",
            "resources": { "requests": { "cpu": "10m" } } }] } })
}

async fn deploy(bed: &Bed, name: &str, count: usize) -> Result<Duration, Status> {
    bed.create::<Deployment>(json!({ "metadata": { "name": name }, "spec": { "replicas": count,
        "selector": { "matchLabels": { "app": name } }, "template": template(name, "") } }))
        .await?;
    settled(bed, name, count).await
}

/// All of a Deployment's pods are of the newest kind, and available.
async fn settled(bed: &Bed, name: &str, count: usize) -> Result<Duration, Status> {
    until(|| async {
        let found = bed.get::<Deployment>(name).await?;
        let status = &found["status"];
        let is = |field: &str| status[field] == json!(count);
        Ok(status["observedGeneration"] == found["metadata"]["generation"]
            && is("replicas")
            && is("updatedReplicas")
            && is("availableReplicas"))
    })
    .await
}

async fn available(bed: Bed, count: usize) -> Result<Duration, Status> {
    deploy(&bed, "web", count).await
}

/// Of the Deployment that the row before left, or one of its own.
async fn rolled(bed: Bed, count: usize) -> Result<Duration, Status> {
    if bed.get::<Deployment>("web").await.is_err() {
        deploy(&bed, "web", count).await?;
    }
    let patch = json!({ "spec": { "template": { "metadata": { "labels": { "round": "2" } } } } });
    bed.client.patch::<Deployment>(&bed.namespace, "web", Patch::Merge(patch)).await?;
    let took = settled(&bed, "web", count).await?;
    bed.clear::<Deployment>("web").await?;
    Ok(took)
}

async fn completed(bed: Bed, count: usize) -> Result<Duration, Status> {
    let mut template = template("job", "exit=0");
    template["spec"]["restartPolicy"] = "Never".into();
    bed.create::<Job>(json!({ "metadata": { "name": "job" }, "spec": { "completions": count,
        "parallelism": 500, "template": template } }))
        .await?;
    let took = until(|| async {
        let found = bed.get::<Job>("job").await?;
        let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten();
        Ok(conditions.any(|it| it["type"] == "Complete" && it["status"] == "True"))
    })
    .await?;
    bed.clear::<Job>("job").await?;
    Ok(took)
}

async fn deleted(bed: Bed, count: usize) -> Result<Duration, Status> {
    let bed = Bed { namespace: "full".to_owned(), ..bed };
    bed.ready().await?;
    bed.create_all(count, |n| json!({ "metadata": { "name": format!("c{n}") } })).await?;
    bed.client.delete::<Namespace>("", &bed.namespace, Delete::default()).await?;
    until(|| async {
        match bed.client.get::<Namespace>("", &bed.namespace).await {
            Err(status) if status.is_not_found() => Ok(true),
            found => found.map(|_| false),
        }
    })
    .await
}

async fn collected(bed: Bed, count: usize) -> Result<Duration, Status> {
    let owner = json!({ "metadata": { "name": "owner" } });
    let owner = bed.client.create_in(ApiResource::of::<ConfigMap>(), &bed.namespace, owner).await?;
    let reference =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid() }]);
    let there = bed.count::<ConfigMap>().await? - 1;
    bed.create_all(
        count,
        |n| json!({ "metadata": { "name": format!("d{n}"), "ownerReferences": reference } }),
    )
    .await?;
    let options = Delete::default().propagating(Propagation::Background);
    bed.client.delete::<ConfigMap>(&bed.namespace, "owner", options).await?;
    until(|| async { Ok(bed.count::<ConfigMap>().await? == there) }).await
}

async fn sliced(bed: Bed, count: usize) -> Result<Duration, Status> {
    deploy(&bed, "wide", count).await?;
    bed.create::<Service>(json!({ "metadata": { "name": "wide" },
        "spec": { "selector": { "app": "wide" }, "ports": [{ "port": 80 }] } }))
        .await?;
    let took = until(|| async {
        let of = Collection::all(ApiResource::of::<EndpointSlice>()).in_namespace(&bed.namespace);
        let slices = bed.client.list(of).await?.items;
        let endpoints = slices.iter().filter_map(|slice| slice.typed::<EndpointSlice>().ok());
        let endpoints = endpoints.map(|it| it.endpoints.as_ref().map_or(0, Vec::len));
        Ok(endpoints.sum::<usize>() == count)
    })
    .await?;
    bed.client.delete::<Service>(&bed.namespace, "wide", Delete::default()).await?;
    bed.clear::<Deployment>("wide").await?;
    Ok(took)
}

/// From the minute on which they are due until each has its Job.
async fn struck(bed: Bed, count: usize) -> Result<Duration, Status> {
    let mut template = template("cron", "exit=0");
    template["spec"]["restartPolicy"] = "Never".into();
    // Not so late in a minute that some would miss it.
    while Timestamp::now().as_second() % 60 > 40 {
        tokio::time::sleep(LOOK).await;
    }
    let job = json!({ "spec": { "template": template } });
    for n in 0..count {
        bed.create::<CronJob>(json!({ "metadata": { "name": format!("cron-{n}") },
            "spec": { "schedule": "* * * * *", "jobTemplate": job } }))
            .await?;
    }
    let second = Timestamp::now().as_second();
    let due = second - second % 60 + 60;
    while Timestamp::now().as_second() < due {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = until(|| async { Ok(bed.count::<Job>().await? >= count) }).await?;
    let crons = Collection::all(ApiResource::of::<CronJob>()).in_namespace(&bed.namespace);
    let options = Delete::default().propagating(Propagation::Background);
    bed.client.delete_collection(crons, options).await?;
    until(|| async { Ok(bed.count::<Pod>().await? == 0) }).await?;
    Ok(took)
}

/// Pods that stay, for what idling costs.
async fn many(bed: Bed, count: usize) -> Result<Duration, Status> {
    let nodes = bed.client.list(Collection::all(ApiResource::of::<Node>())).await?.items.len();
    let count = count.min(nodes * 100);
    deploy(&bed, "many", count).await
}
