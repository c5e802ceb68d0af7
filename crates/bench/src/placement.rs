//! `bench -- placement [--skiff PATH] [--upstream PATH] [--nodes N,…] [--pods N] [--only ROW,…]`: pods that
//! wait, until all of them have a node; ours and upstream's `kube-scheduler` one after the other.
//!
//! Each has an API server of its own (`skiff up --disable '*'` on an empty folder) with registered nodes
//! that nobody plays, so that the machine has nothing to do but to schedule. All pods are there before the
//! scheduler is: what is measured begins when the first has a node. Upstream's client-side limits are raised
//! out of the way. The rate is that of scheduler and API server together; the server's share of the
//! processors says which of them was waited for.
use crate::hollow::source;
use crate::measured::{processor_seconds, resident};
use crate::parts::{Part, Server};
use crate::report::Report;
use crate::scheduler::{PLAIN, SHAPES, Shape};
use client::source::{Collection, Delete, Page};
use client::{ApiResource, Client, Context, Status};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service, ServiceAccount,
};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::hollow;

const NODES: [usize; 2] = [500, 5000];
const NAMESPACE: &str = "bench";
/// Not so often that looking costs the server anything.
const LOOK: Duration = Duration::from_millis(50);
/// Requests of this program at once.
const AT_ONCE: usize = 64;
/// What nobody waits for any longer.
const PATIENCE: Duration = Duration::from_secs(600);

/// What is peculiar to a row beside its pods.
#[derive(Clone, Copy, PartialEq)]
enum Besides {
    Nothing,
    /// Every node is full of pods that may go.
    Preemption,
    /// Each pod has a claim that is bound.
    Volumes,
    /// Each pod asks for a device.
    Devices,
    /// Pods of all shapes, while nodes, services and pods that fit nowhere come and go.
    Churn,
}

struct Row {
    shape: Shape,
    besides: Besides,
}

fn rows() -> Vec<Row> {
    let shape = |it: &Shape| Shape { ..*it };
    let mut rows: Vec<Row> =
        SHAPES.iter().map(|it| Row { shape: shape(it), besides: Besides::Nothing }).collect();
    let more = |name, pods, besides| Row { shape: Shape { name, pods, ..PLAIN }, besides };
    rows.push(more("in the place of others", 1000, Besides::Preemption));
    rows.push(more("with volumes", 2000, Besides::Volumes));
    rows.push(more("with devices", 1000, Besides::Devices));
    rows.push(more("mixed, while others come and go", 5000, Besides::Churn));
    rows
}

pub fn run(arguments: &[String], report: &mut Report) {
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let list = |text: String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let skiff =
        PathBuf::from(option("--skiff").unwrap_or_else(|| "target/release/skiff".to_owned()));
    let sizes = option("--nodes").map_or(NODES.to_vec(), |text| {
        list(text).iter().map(|number| number.parse().expect("a number")).collect()
    });
    let pods: Option<usize> = option("--pods").map(|text| text.parse().expect("a number"));
    let only = option("--only").map(list);
    let mut contenders = vec![("ours", skiff.clone())];
    contenders.extend(option("--upstream").map(|path| ("upstream's", PathBuf::from(path))));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be started");
    for nodes in sizes {
        for row in rows() {
            let is_wanted = |part: &String| row.shape.name.contains(part.as_str());
            if only.as_ref().is_some_and(|only| !only.iter().any(is_wanted)) {
                continue;
            }
            for (name, program) in &contenders {
                let bed = Bed { skiff: &skiff, program, nodes, pods };
                let found = runtime.block_on(bed.one(&row));
                let figures = found.expect("the API server answers");
                eprintln!("{name}: {nodes} nodes, {}: {figures:.2?}", row.shape.name);
                report.row(format!("{nodes} nodes, {}: {name}", row.shape.name), &figures);
            }
        }
    }
}

struct Bed<'a> {
    skiff: &'a Path,
    program: &'a Path,
    nodes: usize,
    pods: Option<usize>,
}

impl Bed<'_> {
    async fn one(&self, row: &Row) -> Result<[(&'static str, f64); 5], Status> {
        let server = Server::start(self.skiff);
        let context = Context::new();
        let client = Client::new(source(&context, &server.kubeconfig()));
        let options = hollow::Options {
            nodes: self.nodes,
            cpu: "4".to_owned(),
            ..hollow::Options::default()
        };
        hollow::register(&client, &options).await?;
        // A pod that must be alone needs a node of its own.
        let count = self.pods.map_or(row.shape.pods, |pods| pods.min(row.shape.pods));
        let count = if row.shape.name.starts_with("apart") { count.min(self.nodes) } else { count };
        prepare(&client, row, self.nodes, count).await?;
        let pods = (0..count).map(|index| pod(row, index));
        create_all::<Pod>(&client, NAMESPACE, pods).await?;
        let huge = (0..row.shape.in_the_way).map(|index| {
            json!({ "metadata": { "name": format!("huge-{index}") }, "spec": {
                "priority": null, "containers": [{ "name": "c", "image": "i",
                    "resources": { "requests": { "cpu": "9" } } }] } })
        });
        create_all::<Pod>(&client, NAMESPACE, huge).await?;
        let mut command = Command::new(self.program);
        match self.program == self.skiff {
            true => drop(command.args(["scheduler", "--secure-port=0", "--leader-elect=false"])),
            false => drop(command.args([
                "--secure-port=0",
                "--leader-elect=false",
                "--kube-api-qps=20000",
                "--kube-api-burst=40000",
            ])),
        }
        let scheduler = Part::start(&mut command, &server.kubeconfig());
        // Those that are there for others are bound before anybody schedules.
        until(|| has_any(&client, "spec.nodeName!=", "app=web")).await?;
        let churn = (row.besides == Besides::Churn).then(|| tokio::spawn(churn(client.clone())));
        let begun = Instant::now();
        let before = [server.id(), scheduler.id()].map(|id| processor_seconds(&id));
        until(|| async { Ok(!has_any(&client, "spec.nodeName=", "app=web").await?) }).await?;
        let took = begun.elapsed().as_secs_f64();
        let after = [server.id(), scheduler.id()].map(|id| processor_seconds(&id));
        if let Some(churn) = churn {
            churn.abort();
        }
        context.stop();
        Ok([
            ("pods/s", count as f64 / took),
            ("s", took),
            ("server cpu s", after[0] - before[0]),
            ("scheduler cpu s", after[1] - before[1]),
            ("MB", resident(&scheduler.id()) as f64 / 1e6),
        ])
    }
}

fn pod(row: &Row, index: usize) -> Value {
    let shape = match row.besides {
        // Every fifth of a kind: plain, near nodes, spread, near each other, and of one owner.
        Besides::Churn => &SHAPES[[0, 2, 3, 4, 1][index % 5]],
        _ => &row.shape,
    };
    let mut spec = (shape.spec)();
    spec["containers"] = json!([{ "name": "c", "image": "web:1",
        "resources": { "requests": { "cpu": "100m", "memory": "500Mi" } } }]);
    match row.besides {
        Besides::Nothing | Besides::Churn => {}
        Besides::Preemption => {
            spec["priorityClassName"] = "high".into();
            spec["containers"][0]["resources"]["requests"]["cpu"] = "2".into();
        }
        Besides::Volumes => {
            spec["volumes"] = json!([{ "name": "v",
                "persistentVolumeClaim": { "claimName": format!("claim-{index}") } }]);
        }
        Besides::Devices => {
            spec["resourceClaims"] =
                json!([{ "name": "d", "resourceClaimName": format!("device-{index}") }]);
            spec["containers"][0]["resources"]["claims"] = json!([{ "name": "d" }]);
        }
    }
    let mut metadata = json!({ "name": format!("web-{index}"), "labels": { "app": "web" } });
    if shape.has_owner {
        metadata["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "name": "web", "uid": "8f7b5a1e-0000-4000-8000-000000000000", "controller": true }]);
    }
    json!({ "metadata": metadata, "spec": spec })
}

/// Everything that has to be there before the pods.
async fn prepare(client: &Client, row: &Row, nodes: usize, count: usize) -> Result<(), Status> {
    let create = |resource: ApiResource, namespace: &'static str, object: Value| async move {
        client.create_in(resource, namespace, object).await.map(drop)
    };
    let named = |name: &str| json!({ "metadata": { "name": name } });
    create(ApiResource::of::<Namespace>(), "", named(NAMESPACE)).await?;
    create(ApiResource::of::<ServiceAccount>(), NAMESPACE, named("default")).await?;
    if row.shape.has_owner || row.besides == Besides::Churn {
        let set = json!({ "metadata": { "name": "web" }, "spec": { "replicas": 0,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "web:1" }] } } } });
        create(ApiResource::of::<ReplicaSet>(), NAMESPACE, set).await?;
    }
    match row.besides {
        Besides::Nothing | Besides::Churn => Ok(()),
        Besides::Preemption => {
            let class = json!({ "metadata": { "name": "high" }, "value": 1000 });
            create(ApiResource::of::<PriorityClass>(), "", class).await?;
            // Two on each node, so that one of them goes for each that comes.
            let low = (0..nodes * 2).map(|index| {
                json!({ "metadata": { "name": format!("low-{index}") }, "spec": {
                    "nodeName": format!("hollow-{}", index % nodes),
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{ "name": "c", "image": "i",
                        "resources": { "requests": { "cpu": "2" } } }] } })
            });
            create_all::<Pod>(client, NAMESPACE, low).await
        }
        Besides::Volumes => {
            let bound = json!({ "pv.kubernetes.io/bind-completed": "yes" });
            let size = json!({ "storage": "1Gi" });
            let claims = (0..count).map(|index| {
                json!({ "metadata": { "name": format!("claim-{index}"), "annotations": bound },
                    "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                        "volumeName": format!("volume-{index}"),
                        "resources": { "requests": size } } })
            });
            create_all::<PersistentVolumeClaim>(client, NAMESPACE, claims).await?;
            let volumes = (0..count).map(|index| {
                json!({ "metadata": { "name": format!("volume-{index}") },
                    "spec": { "accessModes": ["ReadWriteOnce"], "capacity": size,
                        "claimRef": { "namespace": NAMESPACE, "name": format!("claim-{index}") },
                        "csi": { "driver": "bench.skiff", "volumeHandle": index.to_string() } } })
            });
            create_all::<PersistentVolume>(client, "", volumes).await?;
            // Nobody binds here: the two say so themselves.
            let said = json!({ "status": { "phase": "Bound" } });
            let patch = client::source::Patch::Merge(said);
            stream::iter(0..count)
                .map(|index| {
                    let (name, patch) = (format!("claim-{index}"), patch.clone());
                    async move {
                        let claims = client;
                        claims
                            .patch_status::<PersistentVolumeClaim>(NAMESPACE, &name, patch)
                            .await
                            .map(drop)
                    }
                })
                .buffer_unordered(AT_ONCE)
                .try_collect::<()>()
                .await
        }
        Besides::Devices => {
            let class = json!({ "metadata": { "name": "device" }, "spec": { "selectors": [
                { "cel": { "expression": "device.driver == 'bench.skiff'" } }] } });
            create(ApiResource::of::<DeviceClass>(), "", class).await?;
            let claims = (0..count).map(|index| {
                json!({ "metadata": { "name": format!("device-{index}") }, "spec": { "devices": {
                    "requests": [{ "name": "r", "exactly": { "deviceClassName": "device" } }] } } })
            });
            create_all::<ResourceClaim>(client, NAMESPACE, claims).await?;
            let slices = (0..nodes).map(|index| {
                let devices: Vec<Value> =
                    (0..8).map(|number| json!({ "name": format!("d{number}") })).collect();
                json!({ "metadata": { "name": format!("slice-{index}") }, "spec": {
                    "driver": "bench.skiff", "nodeName": format!("hollow-{index}"),
                    "pool": { "name": format!("pool-{index}"), "generation": 1,
                        "resourceSliceCount": 1 }, "devices": devices } })
            });
            create_all::<ResourceSlice>(client, "", slices).await
        }
    }
}

/// A node, a service and a pod that fits nowhere come ten times a second, and go again: each wakes somebody.
async fn churn(client: Client) {
    for index in 0.. {
        let name = format!("churn-{index}");
        let things = [
            (
                ApiResource::of::<Node>(),
                "",
                json!({ "status": { "allocatable": {
                "cpu": "4", "memory": "8Gi", "pods": "0" } } }),
            ),
            (
                ApiResource::of::<Service>(),
                NAMESPACE,
                json!({ "spec": {
                "selector": { "app": name }, "ports": [{ "port": 80 }] } }),
            ),
            (
                ApiResource::of::<Pod>(),
                NAMESPACE,
                json!({ "spec": {
                "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i",
                    "resources": { "requests": { "cpu": "9" } } }] } }),
            ),
        ];
        for (resource, namespace, mut object) in things {
            object["metadata"]["name"] = name.as_str().into();
            // Whatever the server says: the row is about the pods that wait.
            drop(client.create_in(resource.clone(), namespace, object).await);
            tokio::time::sleep(Duration::from_millis(30)).await;
            drop(client.delete_in(resource, namespace, &name, Delete::default()).await);
        }
    }
}

async fn create_all<T: api::rules::Form>(
    client: &Client,
    namespace: &str,
    objects: impl Iterator<Item = Value>,
) -> Result<(), Status> {
    stream::iter(objects)
        .map(|object| async move {
            client.create_in(ApiResource::of::<T>(), namespace, object).await.map(drop)
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await
}

async fn has_any(client: &Client, fields: &str, labels: &str) -> Result<bool, Status> {
    let of = Collection::all(ApiResource::of::<Pod>())
        .in_namespace(NAMESPACE)
        .with_fields(api::selector::field::Selector::parse(fields).expect("a selector"))
        .with_labels(api::selector::label::Selector::parse(labels).expect("a selector"));
    let list = client.source().list(of, Page { limit: 1, ..Page::default() }).await?;
    Ok(!list.items.is_empty())
}

async fn until<F: Future<Output = Result<bool, Status>>>(
    is_so: impl Fn() -> F,
) -> Result<(), Status> {
    let begun = Instant::now();
    while !is_so().await? {
        if begun.elapsed() > PATIENCE {
            return Err(Status::internal_error("it took too long"));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
