//! A whole cluster: `skiff up` in a network of its own, on an empty folder.
//!
//! `bench -- up [--skiff PATH] [--pods N]`. Times are from the start of the process, as it tells them
//! itself; a pod's are from the request to create it until its status says Running, one by one and
//! then all at once. Idle is what ten seconds without anything cost.
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
    let folder = std::env::temp_dir().join(format!("skiff-bench-up-{}", std::process::id()));
    let cluster = Cluster::start(Path::new(&skiff), &folder, report);
    cluster.idle("idle", report);
    cluster.one_by_one(report);
    cluster.at_once(pods, report);
    cluster.idle("idle with pods", report);
}

struct Cluster {
    skiff: PathBuf,
    folder: PathBuf,
    network: Held,
    process: Child,
}

impl Cluster {
    fn start(skiff: &Path, folder: &Path, report: &mut Report) -> Cluster {
        let network = network::machine();
        let mut command = within(Some(&network), skiff);
        command.arg("up").args(places(folder)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("skiff starts: build it, or name it with --skiff");
        let told = BufReader::new(process.stderr.take().expect("a pipe"));
        // `✓ kubelet   858 ms`
        for line in told.lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, name, time, "ms"] = words[..] else { continue };
            report.row(format!("{name} ready"), &[("ms", time.parse().unwrap_or(f64::NAN))]);
            if name == "dns" {
                break;
            }
        }
        Cluster { skiff: skiff.to_owned(), folder: folder.to_owned(), network, process }
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
            "create → Running, with kubectl's own time",
            &[("median ms", at(0.5)), ("slowest ms", at(1.0))],
        );
    }

    fn at_once(&self, count: usize, report: &mut Report) {
        let items: Vec<Value> = (0..count).map(|n| pod(&format!("many-{n}"))).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string();
        let times = self.until_running(&list, count);
        let all = times.last().map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0);
        report.row(format!("{count} pods at once"), &[("ms", all)]);
    }

    fn idle(&self, name: &str, report: &mut Report) {
        let read = |file: &str| {
            let path = format!("/proc/{}/{file}", self.process.id());
            std::fs::read_to_string(path).unwrap_or_default()
        };
        let ticks = || -> f64 {
            let stat = read("stat");
            let fields: Vec<&str> =
                stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
            [12, 13].iter().filter_map(|at| fields.get(*at)?.parse::<f64>().ok()).sum()
        };
        let before = ticks();
        #[allow(clippy::disallowed_methods, reason = "what nothing costs takes time")]
        std::thread::sleep(IDLE);
        let share = (ticks() - before) / IDLE.as_secs_f64();
        let status = read("status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident =
            resident.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        // A hundred ticks are a second.
        report.row(name, &[("% of a core", share), ("MB", resident.unwrap_or(f64::NAN) / 1024.0)]);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
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
        format!("--cgroup-root=/skiff/bench-up-{}", std::process::id()),
    ]
}

fn pod(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "terminationGracePeriodSeconds": 0, "containers": [
            { "name": "a", "image": "localhost/skiff/demo", "imagePullPolicy": "IfNotPresent" }] } })
}
