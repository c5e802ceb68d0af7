//! `bench -- kubelet [--skiff PATH] [--upstream PATH] [--pods N] [--count N]`: pods from their creation to
//! Ready and to their end, as a watcher of the API sees it. Needs root.
//!
//! Ours runs as it does in a cluster, with the runtime in its process; with `--upstream`, upstream's
//! kubelet and ours run one after the other on the runtime's socket as well. Each has an API server
//! of its own on an empty folder. Pods are on the host's network, of an image that is there, and name
//! their node: nothing is measured of networks, registries and schedulers.
//!
//! Everything shares the machine, this program included: compare the rows, not the times with others'.
use crate::hollow::source;
use crate::measured::{processor_seconds, resident};
use crate::report::Report;
use client::source::{Collection, Delete};
use client::{ApiResource, Client, Context, Informer};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What nobody waits for any longer.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(2);
const IDLE: Duration = Duration::from_secs(15);
const IMAGE: &str = "localhost/skiff/pause";

#[derive(Clone, Copy, PartialEq)]
enum Contender {
    /// Ours, with the runtime in its process.
    Embedded,
    /// Ours, over the runtime's socket.
    Socket,
    /// Upstream's, over the same socket.
    Upstream,
}

pub fn run(arguments: &[String], report: &mut Report) {
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str, default: usize| {
        option(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let skiff =
        PathBuf::from(option("--skiff").unwrap_or_else(|| "target/release/skiff".to_owned()));
    let upstream = option("--upstream").map(PathBuf::from);
    let mut contenders = vec![Contender::Embedded];
    if upstream.is_some() {
        contenders.extend([Contender::Socket, Contender::Upstream]);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be started");
    for contender in contenders {
        let name = match contender {
            Contender::Embedded => "ours",
            Contender::Socket => "ours, by socket",
            Contender::Upstream => "upstream's, by socket",
        };
        let program = if contender == Contender::Upstream { upstream.as_deref() } else { None };
        let mut bed = Bed::start(&skiff, program.unwrap_or(&skiff), contender);
        let (count, pods) = (number("--count", 20), number("--pods", 100));
        runtime.block_on(measure(&mut bed, name, count, pods, report));
    }
}

async fn measure(bed: &mut Bed, name: &str, count: usize, pods: usize, report: &mut Report) {
    let context = Context::new();
    let client = Client::new(source(&context, &bed.folder.join("kubeconfig")));
    let seen = Seen::watch(&context, &client);
    let account = json!({ "metadata": { "name": "default" } });
    let _ = client.create_in(ApiResource::of::<ServiceAccount>(), "default", account).await;
    let begun = Instant::now();
    while client.get::<Node>("", "bench").await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "no node");
        tokio::time::sleep(LOOK).await;
    }
    // The first pays for what is there from then on.
    let first = [("first".to_owned(), Instant::now())];
    create(&client, "first").await;
    seen.until_all(&first, Moment::Ready).await;
    let mut alone = [Vec::new(), Vec::new(), Vec::new()];
    for number in 0..count {
        let one = [(format!("one-{number}"), Instant::now())];
        create(&client, &one[0].0).await;
        seen.until_all(&one, Moment::Ready).await;
        alone[0].extend(seen.took(&one, Moment::Running));
        alone[1].extend(seen.took(&one, Moment::Ready));
        let gone = [(one[0].0.clone(), Instant::now())];
        delete(&client, &gone[0].0).await;
        seen.until_all(&gone, Moment::Gone).await;
        alone[2].extend(seen.took(&gone, Moment::Gone));
    }
    for (what, times) in ["Running", "Ready", "deleted"].into_iter().zip(alone) {
        report.row(format!("one pod {what}: {name}"), &figures(times));
    }
    let mut many = Vec::new();
    let begun = Instant::now();
    let made = (0..pods).map(|number| {
        let name = format!("many-{number}");
        many.push((name.clone(), begun));
        let client = client.clone();
        async move { create(&client, &name).await }
    });
    futures_util::future::join_all(made.collect::<Vec<_>>()).await;
    seen.until_all(&many, Moment::Ready).await;
    report.row(format!("{pods} at once Ready: {name}"), &figures(seen.took(&many, Moment::Ready)));
    idle(bed, name, report).await;
    let before = identities(&client).await;
    bed.restart();
    let after = [("after".to_owned(), Instant::now())];
    create(&client, "after").await;
    seen.until_all(&after, Moment::Ready).await;
    let took = seen.took(&after, Moment::Ready);
    let mut now = identities(&client).await;
    now.remove("after");
    assert_eq!(before, now, "containers were touched by a restart");
    report.row(format!("killed with {pods} pods, until another is Ready: {name}"), &figures(took));
    let begun = Instant::now();
    let gone: Vec<_> = many.iter().map(|(name, _)| (name.clone(), begun)).collect();
    let deleted = gone.iter().map(|(name, _)| delete(&client, name));
    futures_util::future::join_all(deleted).await;
    seen.until_all(&gone, Moment::Gone).await;
    report.row(format!("{pods} at once deleted: {name}"), &figures(seen.took(&gone, Moment::Gone)));
    for name in ["first", "after"] {
        delete(&client, name).await;
    }
    let left = ["first", "after"].map(|name| (name.to_owned(), Instant::now()));
    seen.until_all(&left, Moment::Gone).await;
    context.stop();
}

async fn idle(bed: &Bed, name: &str, report: &mut Report) {
    // What has just been started is still being told.
    tokio::time::sleep(IDLE / 3).await;
    let process = bed.kubelet.id().to_string();
    let before = processor_seconds(&process);
    tokio::time::sleep(IDLE).await;
    let share = (processor_seconds(&process) - before) / IDLE.as_secs_f64() * 100.0;
    let memory = resident(&process) as f64 / 1e6;
    report.row(format!("idle with them: {name}"), &[("% of a processor", share), ("MB", memory)]);
}

/// Milliseconds, as a report shows them.
fn figures(mut times: Vec<Duration>) -> [(&'static str, f64); 4] {
    times.sort_unstable();
    let at = |share: f64| {
        let last = times.len().saturating_sub(1);
        times.get((last as f64 * share) as usize).map_or(f64::NAN, |one| one.as_secs_f64() * 1e3)
    };
    [("p50 ms", at(0.5)), ("p99 ms", at(0.99)), ("max ms", at(1.0)), ("count", times.len() as f64)]
}

async fn create(client: &Client, name: &str) {
    let pod = json!({ "metadata": { "name": name, "namespace": "default" }, "spec": {
        "nodeName": "bench", "hostNetwork": true, "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": false,
        "containers": [{ "name": "c", "image": IMAGE, "imagePullPolicy": "Never" }],
    } });
    client.create_in(ApiResource::of::<Pod>(), "default", pod).await.expect("a pod is created");
}

async fn delete(client: &Client, name: &str) {
    let options = Delete { grace_period_seconds: None, ..Delete::default() };
    client.delete::<Pod>("default", name, options).await.expect("a pod is deleted");
}

/// Which containers pods have, and how often they were started.
async fn identities(client: &Client) -> HashMap<String, String> {
    let list = client.list(Collection::all(ApiResource::of::<Pod>())).await.expect("a list");
    let one = |object: &Arc<api::object::Object>| {
        let tree: Value = object.tree().unwrap_or_default();
        let status = &tree["status"]["containerStatuses"][0];
        let name = tree["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        (name, format!("{} {}", status["containerID"], status["restartCount"]))
    };
    list.items.iter().map(one).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Moment {
    Running,
    Ready,
    Gone,
}

/// When a watcher saw what, by pod.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<HashMap<(String, Moment), Instant>>>);

impl Seen {
    fn watch(context: &Context, client: &Client) -> Seen {
        let seen = Seen::default();
        let of = Collection::all(ApiResource::of::<Pod>());
        let informer = Informer::<Pod>::start(context, client.source().clone(), of);
        let told = seen.clone();
        informer.on_change(move |change| {
            let now = Instant::now();
            let mut all = told.0.lock().unwrap_or_else(PoisonError::into_inner);
            let name = change.key.name.to_string();
            let Some(pod) = &change.new else {
                all.entry((name, Moment::Gone)).or_insert(now);
                return;
            };
            let status = pod.status.clone().unwrap_or_default();
            if status.phase.as_deref() == Some("Running") {
                all.entry((name.clone(), Moment::Running)).or_insert(now);
            }
            let mut conditions = status.conditions.iter().flatten();
            if conditions.any(|one| one.type_ == "Ready" && one.status == "True") {
                all.entry((name, Moment::Ready)).or_insert(now);
            }
        });
        // It lives as long as the context.
        std::mem::forget(informer);
        seen
    }

    async fn until_all(&self, pods: &[(String, Instant)], moment: Moment) {
        let begun = Instant::now();
        let is_so = || {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            pods.iter().all(|(name, _)| all.contains_key(&(name.clone(), moment)))
        };
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "pods are not where they should be");
            tokio::time::sleep(LOOK).await;
        }
    }

    fn took(&self, pods: &[(String, Instant)], moment: Moment) -> Vec<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |(name, begun): &(String, Instant)| {
            all.get(&(name.clone(), moment)).map(|at| at.saturating_duration_since(*begun))
        };
        pods.iter().filter_map(one).collect()
    }
}

/// An API server, a kubelet, and what runs beside it; gone when it is dropped.
struct Bed {
    folder: PathBuf,
    skiff: PathBuf,
    program: PathBuf,
    contender: Contender,
    server: Child,
    runtime: Option<Child>,
    kubelet: Child,
}

impl Bed {
    fn start(skiff: &Path, program: &Path, contender: Contender) -> Bed {
        let folder = PathBuf::from(format!("/var/tmp/skiff-bench-kubelet-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut server = Command::new(skiff);
        server.args(["up", "--disable", "*", "--bind-address", "127.0.0.1", "--port", "0"]);
        server.arg("--kubeconfig").arg(folder.join("kubeconfig")).arg("--data-dir").arg(&folder);
        let mut server = server
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("skiff starts: build it, or name it with --skiff");
        let output = server.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut String::new()).expect("skiff speaks");
        let runtime = (contender != Contender::Embedded).then(|| {
            let mut command = quiet(skiff);
            let socket = format!("unix://{}", folder.join("cri.sock").display());
            command.arg("cri").args(places(&folder)).arg("--listen").arg(socket);
            let child = command.spawn().expect("the runtime starts");
            let begun = Instant::now();
            while !folder.join("cri.sock").exists() {
                assert!(begun.elapsed() < PATIENCE, "no socket");
                #[allow(clippy::disallowed_methods, reason = "a benchmark looks, and looks again")]
                std::thread::sleep(LOOK);
            }
            child
        });
        let kubelet = kubelet(&folder, program, contender);
        let (skiff, program) = (skiff.to_owned(), program.to_owned());
        Bed { folder, skiff, program, contender, server, runtime, kubelet }
    }

    /// Without warning.
    fn restart(&mut self) {
        let _ = self.kubelet.kill();
        let _ = self.kubelet.wait();
        self.kubelet = kubelet(&self.folder, &self.program, self.contender);
    }
}

fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn places(folder: &Path) -> Vec<String> {
    let at = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--root={}", at("runtime")),
        format!("--state=/run/skiff-bench-{}", std::process::id()),
        format!("--cgroup-root=/skiff-bench-{}", std::process::id()),
        format!("--cni-conf-dir={}", at("none")),
    ]
}

fn kubelet(folder: &Path, program: &Path, contender: Contender) -> Child {
    let at = |name: &str| folder.join(name).display().to_string();
    let mut command = quiet(program);
    if contender != Contender::Upstream {
        command.args(["kubelet", "--pod-network=false"]);
        command.arg(format!("--client-ca-file={}", at("pki/ca.crt")));
        command.arg(format!("--cert-dir={}", at("certificates")));
    } else {
        let configuration = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             authentication: {{anonymous: {{enabled: false}}, x509: {{clientCAFile: {}}}}}\n\
             cgroupDriver: cgroupfs\nfailSwapOn: false\nfailCgroupV1: false\nmaxPods: 200\n\
             imageGCHighThresholdPercent: 100\nregistryPullQPS: 0\neventRecordQPS: 0\n\
             kubeAPIQPS: 1000\nkubeAPIBurst: 2000\nevictionHard: {{memory.available: 1Mi}}\n",
            at("pki/ca.crt")
        );
        std::fs::write(folder.join("kubelet.yaml"), configuration).expect("a file");
        command.arg(format!("--config={}", at("kubelet.yaml")));
        command.arg(format!("--cert-dir={}", at("certificates")));
    }
    if contender == Contender::Embedded {
        command.args(places(folder));
    } else {
        command.arg(format!("--container-runtime-endpoint=unix://{}", at("cri.sock")));
    }
    if contender != Contender::Upstream {
        command.args(["--max-pods=200", "--eviction-hard=memory.available<1Mi"]);
        command.args(["--port=0", "--healthz-port=0"]);
        command.arg(format!("--pod-logs-dir={}", at("logs")));
    }
    command.arg(format!("--kubeconfig={}", at("kubeconfig")));
    command.args(["--hostname-override=bench", "--node-ip=127.0.0.1"]);
    command.arg(format!("--root-dir={}", at("kubelet")));
    command.spawn().expect("the kubelet starts")
}

impl Drop for Bed {
    fn drop(&mut self) {
        for process in [Some(&mut self.kubelet), self.runtime.as_mut(), Some(&mut self.server)] {
            let Some(process) = process else { continue };
            let _ = process.kill();
            let _ = process.wait();
        }
        let none = self.folder.join("none");
        let mut reset = quiet(&self.skiff);
        reset.args(["reset", "--yes"]).args(&places(&self.folder)[..3]);
        reset.arg("--data-dir").arg(&none).arg("--kubelet-dir").arg(&none);
        let _ = reset.arg("--pod-logs-dir").arg(&none).status();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
