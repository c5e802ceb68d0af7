//! One machine in a network namespace: an API server, and pods that ask and answer.
use super::Contender;
use crate::hollow::source;
use crate::parts::Server;
use client::source::Patch;
use client::{ApiResource, Client, Context};
use futures_util::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use network::{PodNetwork, Sandbox};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{Held, machine};

pub const NODE: &str = "bench";
/// Outside of the services' own range, whose other addresses upstream's proxy drops.
pub const PODS: &str = "10.244.0.0/16";
const NAMESPACE: &str = "default";
/// Requests of this program at once.
const AT_ONCE: usize = 64;
/// How long a client waits that may have no rules yet.
const BRIEFLY: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_micros(200);
/// What nobody waits for any longer.
const PATIENCE: Duration = Duration::from_secs(900);
/// Where a pod says its name and ends, and where it takes whatever comes.
pub const GREETING: u16 = 8080;
pub const SINK: u16 = 8081;

pub struct Machine {
    pub server: Server,
    pub client: Client,
    pub runtime: tokio::runtime::Runtime,
    /// Who asks.
    pub asks: Held,
    /// Two that answer, and where they are.
    pub answer: [(Held, IpAddr); 2],
    context: Context,
    _network: PodNetwork,
    state: PathBuf,
}

/// Does something on a machine that is gone afterwards.
pub fn with<T: Send>(skiff: &Path, work: impl FnOnce(&Machine) -> T + Send) -> T {
    let host = machine();
    let build = || work(&Machine::new(skiff));
    netlink::namespace::within(&host.path, build).expect("a network namespace can be entered")
}

impl Machine {
    /// In the calling thread's network namespace, which threads and programs of its own inherit.
    fn new(skiff: &Path) -> Machine {
        let server = Server::start(skiff);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be started");
        let context = Context::new();
        let client = {
            let _entered = runtime.enter();
            Client::new(source(&context, &server.kubeconfig()))
        };
        let state =
            std::env::temp_dir().join(format!("skiff-bench-network-{}", std::process::id()));
        let cidr = |text: &str| text.parse().expect("a CIDR");
        let network = PodNetwork::open(network::Config {
            pod_cidrs: vec![cidr("10.244.1.0/24")],
            cluster_cidrs: vec![cidr(PODS)],
            mtu: 1500,
            state: state.clone(),
            key: None,
        });
        let network = network.expect("a pod network: this needs root");
        let pod = |id: &str| {
            let held = Held::new();
            let sandbox = Sandbox {
                id: id.to_owned(),
                namespace_path: held.path.clone(),
                owner: format!("{NAMESPACE}/{id}"),
                ports: Vec::new(),
                bandwidth: Default::default(),
            };
            let addresses = network.attach(&sandbox).expect("a pod");
            (held, addresses[0])
        };
        let (asks, _) = pod("client");
        let answer = ["a", "b"].map(|id| {
            let (held, address) = pod(id);
            greet(&held.path, id);
            sink(&held.path);
            (held, address)
        });
        let machine =
            Machine { server, client, runtime, asks, answer, context, _network: network, state };
        machine.runtime.block_on(machine.register());
        machine
    }

    async fn register(&self) {
        let node = json!({ "metadata": { "name": NODE }, "spec": { "podCIDRs": ["10.244.1.0/24"], "podCIDR": "10.244.1.0/24" } });
        self.client.create_in(ApiResource::of::<Node>(), "", node).await.expect("a node");
        let address = testkit::network::ADDRESS.to_string();
        let status =
            json!({ "status": { "addresses": [{ "type": "InternalIP", "address": address }] } });
        let patch = Patch::Strategic(status);
        self.client.patch_status::<Node>("", NODE, patch).await.expect("a node's status");
        let there = self.client.get::<Namespace>("", NAMESPACE).await;
        if there.is_err() {
            let namespace = json!({ "metadata": { "name": NAMESPACE } });
            let made = self.client.create_in(ApiResource::of::<Namespace>(), "", namespace).await;
            made.expect("a namespace");
        }
        self.create_sink().await;
    }

    /// Services, each with the first pod behind it.
    pub fn create_services(&self, count: usize) {
        let to = self.answer[0].1;
        let create = |at: usize| async move {
            let made =
                self.client.create_in(ApiResource::of::<Service>(), NAMESPACE, service(at)).await;
            made.expect("a service");
            let slices = ApiResource::of::<EndpointSlice>();
            self.client.create_in(slices, NAMESPACE, slice(at, to)).await.expect("a slice");
        };
        let all = stream::iter(0..count).map(create).buffer_unordered(AT_ONCE);
        self.runtime.block_on(all.for_each(|()| std::future::ready(())));
    }

    /// A service that takes whatever comes: where it is, once rules lead there.
    pub fn sink(&self) -> SocketAddr {
        let to = SocketAddr::new(Ipv4Addr::new(10, 98, 0, 1).into(), 80);
        let ask = || {
            let begun = Instant::now();
            while TcpStream::connect_timeout(&to, BRIEFLY).is_err() {
                assert!(begun.elapsed() < PATIENCE, "{to} is not answered");
            }
        };
        self.asking(ask);
        to
    }

    async fn create_sink(&self) {
        let (name, ip) = ("sink", "10.98.0.1");
        let service = json!({ "metadata": { "name": name }, "spec": { "clusterIP": ip,
            "clusterIPs": [ip], "ports": [{ "port": 80, "targetPort": SINK }] } });
        let slice = json!({ "metadata": { "name": name,
                "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4", "endpoints": [endpoint(self.answer[0].1)],
            "ports": [{ "name": "", "port": SINK, "protocol": "TCP" }] });
        let services = ApiResource::of::<Service>();
        self.client.create_in(services, NAMESPACE, service).await.expect("a service");
        let slices = ApiResource::of::<EndpointSlice>();
        self.client.create_in(slices, NAMESPACE, slice).await.expect("a slice");
    }

    /// Services lead to another pod.
    pub fn lead(&self, services: impl Iterator<Item = usize>, pod: usize) {
        let to = self.answer[pod].1;
        let lead = |at: usize| async move {
            let endpoints = json!({ "endpoints": [endpoint(to)] });
            let (name, patch) = (name(at), Patch::Merge(endpoints));
            let done = self.client.patch::<EndpointSlice>(NAMESPACE, &name, patch).await;
            done.expect("a slice is changed");
        };
        let all = stream::iter(services).map(lead).buffer_unordered(AT_ONCE);
        self.runtime.block_on(all.for_each(|()| std::future::ready(())));
    }

    /// Runs a proxy that has made the rules of so many services; how long it took.
    pub fn proxy(&self, contender: &Contender, services: usize) -> (Process, Duration) {
        let begun = Instant::now();
        let mut command = contender.command();
        command.arg("--kubeconfig").arg(self.server.kubeconfig());
        let mut process = Process::start(&mut command);
        for at in [0, services / 2, services - 1] {
            while !self.is_answered(at, "a", Duration::from_secs(1)) {
                assert!(process.is_running(), "{} ended", contender.name);
                assert!(begun.elapsed() < PATIENCE, "{} makes no rules", contender.name);
            }
        }
        (process, begun.elapsed())
    }

    /// Takes a proxy's rules away.
    pub fn clean(&self, contender: &Contender, process: Process) {
        drop(process);
        let mut command = contender.command();
        let _ = command.arg("--cleanup").stdout(Stdio::null()).stderr(Stdio::null()).status();
    }

    /// Until this pod answers for a service.
    pub fn until_answered(&self, service: usize, by: &str) {
        let is_answered = self.is_answered(service, by, PATIENCE);
        assert!(is_answered, "{} is not answered by {by}", name(service));
    }

    fn is_answered(&self, service: usize, by: &str, patience: Duration) -> bool {
        let (to, begun) = (address(service), Instant::now());
        self.asking(|| {
            loop {
                if greeting(to).is_ok_and(|said| said == by) {
                    return true;
                }
                if begun.elapsed() > patience {
                    return false;
                }
                // Who looks leaves the processors to who works.
                std::thread::park_timeout(PAUSE);
            }
        })
    }

    /// In the place of the pod that asks.
    pub fn asking<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        netlink::namespace::within(&self.asks.path, work).expect("a pod's namespace")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.context.stop();
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

pub fn name(at: usize) -> String {
    format!("service-{at}")
}

/// Where a service is.
pub fn address(at: usize) -> SocketAddr {
    let first = u32::from(Ipv4Addr::new(10, 97, 0, 1));
    SocketAddr::new(Ipv4Addr::from(first + at as u32).into(), 80)
}

fn service(at: usize) -> Value {
    let ip = address(at).ip();
    json!({ "metadata": { "name": name(at) },
        "spec": { "clusterIP": ip, "clusterIPs": [ip], "ports": [{ "port": 80, "targetPort": GREETING }] } })
}

fn slice(at: usize, to: IpAddr) -> Value {
    json!({ "metadata": { "name": name(at), "labels": { "kubernetes.io/service-name": name(at) } },
        "addressType": "IPv4", "endpoints": [endpoint(to)],
        "ports": [{ "name": "", "port": GREETING, "protocol": "TCP" }] })
}

fn endpoint(address: IpAddr) -> Value {
    json!({ "addresses": [address], "conditions": { "ready": true }, "nodeName": NODE })
}

/// Who answers there.
pub fn greeting(to: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&to, BRIEFLY)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

fn listen(namespace: &Path, port: u16) -> TcpListener {
    let any = (Ipv4Addr::UNSPECIFIED, port);
    let bound = netlink::namespace::within(namespace, || TcpListener::bind(any));
    bound.expect("a pod's namespace").expect("a free port")
}

fn greet(namespace: &Path, name: &str) {
    let (listener, name) = (listen(namespace, GREETING), name.to_owned());
    std::thread::spawn(move || {
        listener
            .incoming()
            .flatten()
            .for_each(|mut stream| drop(stream.write_all(name.as_bytes())));
    });
}

fn sink(namespace: &Path) {
    let listener = listen(namespace, SINK);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while stream.read(&mut bytes).is_ok_and(|length| length > 0) {}
            });
        }
    });
}

/// A program that ends with this.
pub struct Process(Child);

impl Process {
    /// In the calling thread's network namespace.
    pub fn start(command: &mut Command) -> Process {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Process(quiet.spawn().expect("the program can be started"))
    }

    pub fn id(&self) -> String {
        self.0.id().to_string()
    }

    fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Processor time of it and of the programs that it ran (`nft`, `iptables-restore`), in seconds.
    pub fn processor_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks = fields.split_whitespace().skip(11).take(4);
        ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
