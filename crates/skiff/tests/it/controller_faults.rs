//! Controller managers that are killed without warning while things roll: whatever they were doing is done
//! once, by somebody.
//!
//! Two at a time fight for the lease. `FAULT_ROUNDS` says how often one of them is killed; the default
//! suits CI.
use crate::apiserver::Running;
use crate::cluster::Cluster;
use client::https::{Config, Https};
use client::source::{Collection, Delete, Patch};
use client::{ApiResource, Client, Context};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::hollow;

const NAMESPACE: &str = "default";
/// A lease ends two seconds after its holder was killed; then everything is looked at again.
const PATIENCE: Duration = Duration::from_secs(90);

fn program(cluster: &Cluster, name: &str, election: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skiff"));
    command.args([name, "--secure-port=0", "--kubeconfig"]).arg(cluster.kubeconfig());
    command.args(election).stderr(Stdio::null());
    Running(command.spawn().expect("it starts"))
}

/// One that fights for the lease. It ends if it loses the lease, as upstream's does.
fn manager(cluster: &Cluster) -> Running {
    let election = [
        "--leader-elect-lease-duration=2s",
        "--leader-elect-renew-deadline=1500ms",
        "--leader-elect-retry-period=300ms",
    ];
    program(cluster, "controller-manager", &election)
}

/// Whoever has ended is started again, as whatever watches over a manager would.
fn revive(cluster: &Cluster, managers: &mut [Running; 2]) {
    for one in managers {
        if one.0.try_wait().expect("a child of ours").is_some() {
            *one = manager(cluster);
        }
    }
}

struct Bed {
    client: Client,
    context: Context,
}

impl Bed {
    async fn create<T: api::rules::Form>(&self, object: Value) {
        let made = self.client.create_in(ApiResource::of::<T>(), NAMESPACE, object).await;
        made.unwrap_or_else(|status| panic!("{}", status.message));
    }

    async fn patch<T: api::rules::Form>(&self, name: &str, patch: Value) {
        let patched = self.client.patch::<T>(NAMESPACE, name, Patch::Merge(patch)).await;
        patched.unwrap_or_else(|status| panic!("{}", status.message));
    }

    async fn get<T: api::rules::Form>(&self, name: &str) -> Value {
        let found = self.client.get::<T>(NAMESPACE, name).await;
        found.unwrap_or_else(|status| panic!("{}", status.message)).tree().expect("an object")
    }

    async fn all<T: api::rules::Form>(&self) -> Vec<Arc<T>> {
        let of = Collection::all(ApiResource::of::<T>()).in_namespace(NAMESPACE);
        let list = self.client.list(of).await.unwrap_or_else(|status| panic!("{}", status.message));
        list.items.iter().map(|object| object.typed::<T>().expect("its type")).collect()
    }
}

fn workload(app: &str, does: &str, more: Value) -> Value {
    let mut spec = json!({ "selector": { "matchLabels": { "app": app } },
        "template": { "metadata": { "labels": { "app": app }, "annotations": { hollow::DOES: does } },
            "spec": { "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }] } } });
    for (name, value) in more.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    json!({ "metadata": { "name": app }, "spec": spec })
}

/// What is not as it should be, if anything is not.
async fn faults(bed: &Bed, job: &str) -> Option<String> {
    let (web, db) = (bed.get::<Deployment>("web").await, bed.get::<StatefulSet>("db").await);
    for object in [&web, &db] {
        let (spec, status) = (&object["spec"], &object["status"]);
        let is = |field: &str| {
            status[field].as_i64().unwrap_or_default()
                == spec["replicas"].as_i64().unwrap_or_default()
        };
        if status["observedGeneration"] != object["metadata"]["generation"]
            || !(is("replicas") && is("updatedReplicas") && is("availableReplicas"))
        {
            return Some(format!("{}: {status}", object["metadata"]["name"]));
        }
    }
    let work = bed.get::<Job>(job).await;
    if work["status"]["succeeded"] != 6 || work["status"]["completionTime"].is_null() {
        return Some(format!("{job}: {}", work["status"]));
    }
    let sets = bed.all::<ReplicaSet>().await;
    let used = sets.iter().filter(|set| set.spec.replicas != Some(0));
    if used.count() != 1 || sets.len() > 3 {
        return Some(format!("{} ReplicaSets, not all old ones empty", sets.len()));
    }
    let pods = bed.all::<Pod>().await;
    let of = |kind: &str| {
        pods.iter()
            .filter(|pod| pod.metadata.owner_references.iter().flatten().any(|it| it.kind == kind))
            .count() as i64
    };
    let counts = [
        ("ReplicaSet", web["spec"]["replicas"].as_i64()),
        ("StatefulSet", db["spec"]["replicas"].as_i64()),
        ("Job", Some(6)),
    ];
    for (kind, count) in counts {
        if Some(of(kind)) != count {
            return Some(format!("{} pods of a {kind}, not {count:?}", of(kind)));
        }
    }
    if pods.len() as i64 != counts.iter().filter_map(|it| it.1).sum::<i64>() {
        return Some(format!("{} pods, some without an owner", pods.len()));
    }
    let slices = bed.all::<EndpointSlice>().await;
    let slices = slices.iter().filter(|it| it.metadata.generate_name.as_deref() == Some("web-"));
    let endpoints: usize = slices.map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).sum();
    (Some(endpoints as i64) != web["spec"]["replicas"].as_i64())
        .then(|| format!("{endpoints} endpoints of {}", web["spec"]["replicas"]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn managers_killed_at_any_moment_leave_nothing_undone_and_do_nothing_twice() {
    let rounds =
        std::env::var("FAULT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(24);
    let cluster = Cluster::start();
    let context = Context::new();
    let config = Config::from_kubeconfig(&cluster.kubeconfig(), None).expect("a kubeconfig");
    let source = Arc::new(Https::new(&context, config).expect("a good config"));
    let nodes = hollow::Options { nodes: 3, ..hollow::Options::default() };
    hollow::start(&context, source.clone(), nodes).await.expect("nodes");
    let _scheduler = program(&cluster, "scheduler", &["--leader-elect=false"]);
    let mut managers = [manager(&cluster), manager(&cluster)];
    tokio::task::block_in_place(|| {
        cluster.until("get serviceaccounts default -o name", "serviceaccount/default")
    });
    let bed = Bed { client: Client::new(source), context: context.clone() };
    bed.create::<Deployment>(workload(
        "web",
        "",
        json!({ "replicas": 4, "revisionHistoryLimit": 2 }),
    ))
    .await;
    bed.create::<StatefulSet>(workload("db", "", json!({ "replicas": 2, "serviceName": "db" })))
        .await;
    bed.create::<Service>(json!({ "metadata": { "name": "web" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } }))
        .await;
    for round in 0..rounds {
        let job = format!("job-{}", round / 6);
        if round % 6 == 0 {
            let mut made = workload(&job, "exit=0", json!({ "completions": 6, "parallelism": 3 }));
            made["spec"].as_object_mut().expect("a spec").remove("selector");
            made["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
            bed.create::<Job>(made).await;
        }
        let replicas = 1 + bed.context.number() % 6;
        let template = json!({ "metadata": { "annotations": { "round": round.to_string() } } });
        match bed.context.number() % 4 {
            0 => bed.patch::<Deployment>("web", json!({ "spec": { "replicas": replicas } })).await,
            1 => {
                bed.patch::<StatefulSet>("db", json!({ "spec": { "replicas": 1 + replicas % 3 } }))
                    .await
            }
            2 => bed.patch::<StatefulSet>("db", json!({ "spec": { "template": template } })).await,
            _ => bed.patch::<Deployment>("web", json!({ "spec": { "template": template } })).await,
        }
        // A moment like any other: none is to be waited for.
        bed.context.sleep(Duration::from_millis(bed.context.number() % 700)).await;
        let one = bed.context.number() as usize % 2;
        let _ = managers[one].0.kill();
        managers[one].0.wait().expect("it has ended");
        managers[one] = manager(&cluster);
        if round % 6 != 5 {
            continue;
        }
        let begun = Instant::now();
        while let Some(fault) = faults(&bed, &job).await {
            assert!(begun.elapsed() < PATIENCE, "after round {round}: {fault}");
            revive(&cluster, &mut managers);
            bed.context.sleep(Duration::from_millis(100)).await;
        }
        let options = Delete::default().propagating(client::source::Propagation::Background);
        bed.client.delete::<Job>(NAMESPACE, &job, options).await.expect("it is there");
        while bed.all::<Pod>().await.iter().any(|pod| {
            pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Job")
        }) {
            assert!(begun.elapsed() < PATIENCE, "after round {round}: pods of a Job that is gone");
            revive(&cluster, &mut managers);
            bed.context.sleep(Duration::from_millis(100)).await;
        }
    }
    context.stop();
}
