//! Rules of services: our proxy and upstream's on the same API server, one after the other.
//!
//! `bench -- network [--skiff PATH] [--kube-proxy PATH] [--services 1000,10000]`. What writing the rules
//! took is what each proxy counts itself (`kubeproxy_sync_proxy_rules_duration_seconds`): all services at
//! its start, then one endpoint of one service, again and again. Upstream's runs the `nft` program, which
//! has to be there. Everything is in a network namespace that is gone afterwards.
use crate::report::Report;
use client::https::{Config, Https};
use client::source::Patch;
use client::{Client, Context};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::network::{self, ADDRESS, Held, within};

const CHANGES: usize = 20;
const METRICS: &str = "127.0.0.1:19249";
const DURATION: &str = "kubeproxy_sync_proxy_rules_duration_seconds";
const NAMESPACE: &str = "bench";
const PATIENCE: Duration = Duration::from_secs(600);

pub fn run(arguments: &[String], report: &mut Report) {
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let skiff = PathBuf::from(option("--skiff").unwrap_or("target/release/skiff".to_owned()));
    let counts = option("--services").unwrap_or("1000,10000".to_owned());
    for count in counts.split(',').filter_map(|text| text.trim().parse().ok()) {
        let place = Place::start(&skiff, count);
        place.fill(count);
        let mut ours = within(Some(&place.network), &skiff);
        ours.args(["proxy", "--healthz-bind-address="]);
        place.measure(&format!("{count} services, skiff"), ours, report);
        if let Some(upstream) = option("--kube-proxy") {
            let mut theirs = within(Some(&place.network), Path::new(&upstream));
            theirs.args(["--proxy-mode=nftables", "--healthz-bind-address="]);
            // Limits of the machine are not its to set here.
            theirs.args(["--conntrack-max-per-core=0", "--conntrack-min=0"]);
            theirs.args(["--conntrack-tcp-timeout-established=0s"]);
            theirs.args(["--conntrack-tcp-timeout-close-wait=0s"]);
            place.measure(&format!("{count} services, kube-proxy"), theirs, report);
        }
    }
}

/// An API server in a network of its own.
struct Place {
    folder: PathBuf,
    network: Held,
    process: Child,
}

impl Place {
    fn start(skiff: &Path, count: usize) -> Place {
        let name = format!("skiff-bench-network-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let network = network::machine();
        let mut command = within(Some(&network), skiff);
        command.args(["up", "--disable=*", "--bind-address=127.0.0.1", "--data-dir"]).arg(&folder);
        command.arg("--kubeconfig").arg(folder.join("kubeconfig")).stdout(Stdio::piped());
        let mut process = command.spawn().expect("skiff starts: build it, or name it with --skiff");
        let told = BufReader::new(process.stdout.take().expect("a pipe"));
        let ready = told.lines().map_while(Result::ok).find(|line| line.contains("is ready"));
        assert!(ready.is_some(), "the API server is ready");
        Place { folder, network, process }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Does something with the API, from within the network.
    fn with_api<T: Send>(&self, work: impl AsyncFnOnce(Client) -> T + Send) -> T {
        let file = self.kubeconfig();
        let inside = || {
            let tasks = tokio::runtime::Builder::new_current_thread().enable_all().build();
            tasks.expect("a runtime").block_on(async {
                let config = Config::from_kubeconfig(&file, None).expect("a kubeconfig");
                let source = Https::new(&Context::new(), config.for_component("bench"));
                work(Client::new(Arc::new(source.expect("a client")))).await
            })
        };
        netlink::namespace::within(&self.network.path, inside).expect("entered")
    }

    /// Services with three endpoints each.
    fn fill(&self, count: usize) {
        self.with_api(async |client| {
            let namespace = json!({ "metadata": { "name": NAMESPACE } });
            let namespace: Namespace = serde_json::from_value(namespace).expect("a namespace");
            client.create(&namespace).await.expect("created");
            let addresses = json!([{ "type": "InternalIP", "address": ADDRESS }]);
            let node =
                json!({ "metadata": { "name": "node" }, "status": { "addresses": addresses } });
            let node: Node = serde_json::from_value(node).expect("a node");
            client.create(&node).await.expect("created");
            let patch = Patch::Merge(json!({ "status": { "addresses": addresses } }));
            client.patch_status::<Node>("", "node", patch).await.expect("its address");
            let made = stream::iter(0..count).map(|number| {
                let client = &client;
                async move {
                    let service: Service =
                        serde_json::from_value(service(number)).expect("a service");
                    client.create(&service).await.expect("created");
                    let slice: EndpointSlice =
                        serde_json::from_value(slice(number)).expect("a slice");
                    client.create(&slice).await.expect("created");
                }
            });
            made.buffer_unordered(32).collect::<Vec<()>>().await;
        });
    }

    fn measure(&self, name: &str, mut command: Command, report: &mut Report) {
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command.args(["--hostname-override=node", "--cluster-cidr=10.244.0.0/16"]);
        command.arg(format!("--metrics-bind-address={METRICS}"));
        let log = std::fs::File::create(self.folder.join("proxy.log")).expect("a file");
        command.stdout(Stdio::null()).stderr(log);
        let mut proxy = command.spawn().expect("the proxy starts");
        // Both families are counted; what is settled counts no more.
        let mut before = (0.0, 0.0);
        let begun = Instant::now();
        loop {
            pause(Duration::from_secs(2));
            let now = self.counted();
            if now.1 > 0.0 && now == before {
                break;
            }
            before = now;
            assert!(begun.elapsed() < PATIENCE, "{name} does not settle");
        }
        let load = before.0 * 1000.0;
        let mut changes = Vec::new();
        for change in 0..CHANGES {
            let before = self.counted();
            self.with_api(async |client| {
                let address = format!("10.244.{}.{}", 200 + change / 250, change % 250 + 1);
                let patch = json!([{ "op": "replace", "path": "/endpoints/0/addresses", "value": [address] }]);
                let name = format!("s{change}");
                let patched = client.patch::<EndpointSlice>(NAMESPACE, &name, Patch::Json(patch));
                patched.await.expect("changed");
            });
            let begun = Instant::now();
            let after = loop {
                let now = self.counted();
                if now.1 > before.1 {
                    break now;
                }
                assert!(begun.elapsed() < PATIENCE, "{name} does not notice");
                pause(Duration::from_millis(20));
            };
            changes.push((after.0 - before.0) * 1000.0);
        }
        changes.sort_by(f64::total_cmp);
        // Who enters the namespace becomes the proxy.
        let status = format!("/proc/{}/status", proxy.id());
        let memory = std::fs::read_to_string(status).unwrap_or_default();
        let resident = memory.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident: f64 = resident
            .and_then(|text| text.trim().trim_end_matches(" kB").trim().parse().ok())
            .unwrap_or(f64::NAN);
        let (median, slowest) = (changes[changes.len() / 2], changes[changes.len() - 1]);
        report.row(
            name,
            &[
                ("load ms", load),
                ("one change ms", median),
                ("slowest ms", slowest),
                ("MB", resident / 1024.0),
            ],
        );
        let _ = proxy.kill();
        let _ = proxy.wait();
    }

    /// Seconds that rules were written for, and how often.
    fn counted(&self) -> (f64, f64) {
        let fetch = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(METRICS)?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        let text = netlink::namespace::within(&self.network.path, fetch).expect("entered");
        let text = text.unwrap_or_default();
        let sum = |suffix: &str| -> f64 {
            let name = format!("{DURATION}{suffix}");
            let lines = text.lines().filter(|line| line.starts_with(&name));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        (sum("_sum"), sum("_count"))
    }
}

/// Counts have nobody who tells of them.
fn pause(time: Duration) {
    std::thread::park_timeout(time);
}

fn service(number: usize) -> Value {
    json!({
        "metadata": { "name": format!("s{number}"), "namespace": NAMESPACE },
        "spec": { "ports": [{ "port": 80, "targetPort": 8080 }] },
    })
}

fn slice(number: usize) -> Value {
    let address = |at: usize| {
        let all = number * 3 + at;
        format!("10.244.{}.{}", all / 250 % 200, all % 250 + 1)
    };
    let endpoints: Vec<Value> = (0..3)
        .map(|at| json!({ "addresses": [address(at)], "conditions": { "ready": true } }))
        .collect();
    json!({
        "metadata": { "name": format!("s{number}"), "namespace": NAMESPACE,
            "labels": { "kubernetes.io/service-name": format!("s{number}") } },
        "addressType": "IPv4",
        "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }],
        "endpoints": endpoints,
    })
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
