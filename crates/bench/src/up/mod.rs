//! A whole cluster: `skiff up` in a network of its own, on an empty folder; and, with `--theirs`, one of
//! upstream's programs afterwards.
//!
//! `bench -- up [--skiff PATH] [--pods N] [--theirs FOLDER]`. Times of ours are from the start of the
//! process, as it tells them itself; of theirs, as kubectl sees them. A pod's are from the request to
//! create it until its status says Running, one by one and then all at once. Idle is what ten seconds
//! without anything cost all processes but pods' together.
mod theirs;

use crate::measured::{processor_seconds, resident};
use crate::report::Report;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{self, Held, within};

/// Pods that are made one after another.
const ONE_BY_ONE: usize = 20;
const IDLE: Duration = Duration::from_secs(10);

pub fn run(arguments: &[String], report: &mut Report) {
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let skiff = option("--skiff").unwrap_or_else(|| "target/release/skiff".to_owned());
    let pods: usize = option("--pods").and_then(|text| text.parse().ok()).unwrap_or(30);
    // Paths of sockets are bounded by the kernel, so this one is short.
    let folder = |name: &str| PathBuf::from(format!("/tmp/bench-{}-{name}", std::process::id()));
    let skiff = Path::new(&skiff);
    Bed::start(skiff, &folder("ours"), report).measure(pods, report);
    if let Some(programs) = option("--theirs") {
        theirs::start(skiff, Path::new(&programs), &folder("theirs"), report).measure(pods, report);
    }
}

/// A running cluster; ended, with all that it made, when this goes.
struct Bed {
    name: &'static str,
    skiff: PathBuf,
    folder: PathBuf,
    network: Held,
    processes: Vec<Child>,
}

impl Bed {
    fn measure(self, pods: usize, report: &mut Report) {
        self.idle("idle", report);
        self.one_by_one(report);
        self.at_once(pods, report);
        self.idle("idle with pods", report);
    }

    fn start(skiff: &Path, folder: &Path, report: &mut Report) -> Bed {
        let network = network::machine();
        let mut command = within(Some(&network), skiff);
        command.arg("up").args(places(folder)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("skiff starts: build it, or name it with --skiff");
        let told = BufReader::new(process.stderr.take().expect("a pipe"));
        // `✓ kubelet   858 ms`
        for line in told.lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, name, time, "ms"] = words[..] else { continue };
            report.row(format!("{name} ready: ours"), &[("ms", time.parse().unwrap_or(f64::NAN))]);
            if name == "dns" {
                break;
            }
        }
        Bed {
            name: "ours",
            skiff: skiff.to_owned(),
            folder: folder.to_owned(),
            network,
            processes: vec![process],
        }
    }

    fn kubectl(&self, arguments: &[&str]) -> Command {
        let kubectl = testkit::tools::program("kubectl", "kubernetes-client");
        let mut command = within(Some(&self.network), &kubectl);
        command.env("KUBECONFIG", self.folder.join("data/kubeconfig")).args(arguments);
        command
    }

    /// The watch tells when each pod runs, so that asking costs nothing.
    fn until_running(&self, manifests: &str, count: usize) -> Vec<Duration> {
        let mut watch =
            self.kubectl(&["get", "pods", "--watch", "-o", "json", "--output-watch-events"]);
        let mut watch = watch.stdout(Stdio::piped()).spawn().expect("kubectl runs");
        let begun = Instant::now();
        let mut create = self.kubectl(&["create", "-f", "-"]);
        let mut create =
            create.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("kubectl");
        create.stdin.take().expect("a pipe").write_all(manifests.as_bytes()).expect("it reads");
        create.wait().expect("kubectl ends");
        let events = BufReader::new(watch.stdout.take().expect("a pipe"));
        let events = serde_json::Deserializer::from_reader(events).into_iter::<Value>();
        let mut running = std::collections::BTreeSet::new();
        let mut times = Vec::new();
        for event in events.map_while(Result::ok) {
            let pod = &event["object"];
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let is_new = manifests.contains(&format!("\"{name}\""));
            if is_new && pod["status"]["phase"] == "Running" && running.insert(name) {
                times.push(begun.elapsed());
                if times.len() == count {
                    break;
                }
            }
        }
        let _ = watch.kill();
        let _ = watch.wait();
        times
    }

    fn one_by_one(&self, report: &mut Report) {
        let mut times: Vec<f64> = (0..ONE_BY_ONE)
            .flat_map(|n| self.until_running(&pod(&format!("one-{n}")).to_string(), 1))
            .map(|time| time.as_secs_f64() * 1000.0)
            .collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        report.row(
            format!("create → Running, with kubectl's own time: {}", self.name),
            &[("median ms", at(0.5)), ("slowest ms", at(1.0))],
        );
    }

    fn at_once(&self, count: usize, report: &mut Report) {
        let items: Vec<Value> = (0..count).map(|n| pod(&format!("many-{n}"))).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string();
        let times = self.until_running(&list, count);
        let all = times.last().map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0);
        report.row(format!("{count} pods at once: {}", self.name), &[("ms", all)]);
    }

    fn idle(&self, what: &str, report: &mut Report) {
        let ids: Vec<String> = self.processes.iter().map(|child| child.id().to_string()).collect();
        let spent = || ids.iter().map(|id| processor_seconds(id)).sum::<f64>();
        let before = spent();
        #[allow(clippy::disallowed_methods, reason = "what nothing costs takes time")]
        std::thread::sleep(IDLE);
        let share = (spent() - before) / IDLE.as_secs_f64() * 100.0;
        let memory = ids.iter().map(|id| resident(id)).sum::<u64>() as f64 / 1e6;
        let name = format!("{what}: {}", self.name);
        report.row(name, &[("% of a core", share), ("MB", memory)]);
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
        let mut reset = within(Some(&self.network), &self.skiff);
        let _ = reset.args(["reset", "--yes"]).args(places(&self.folder)).output();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn places(folder: &Path) -> Vec<String> {
    let at = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--data-dir={}", at("data")),
        format!("--kubelet-dir={}", at("kubelet")),
        format!("--pod-logs-dir={}", at("logs")),
        format!("--state-dir={}", at("run")),
        format!("--cgroup-root={}", cgroup_root(folder)),
    ]
}

fn cgroup_root(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    format!("/skiff/{}", name.unwrap_or_default())
}

fn pod(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "terminationGracePeriodSeconds": 0, "containers": [
            { "name": "a", "image": "localhost/skiff/demo", "imagePullPolicy": "IfNotPresent" }] } })
}
