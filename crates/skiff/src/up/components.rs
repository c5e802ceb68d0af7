//! The components of a cluster beside its API server: one row each.
use super::{
    Machine, addons, images, ingress, local_storage, manifests, metrics_server, stand_ins,
    taken_back,
};
use crate::alone::{self, Leading, Served, Serving};
use crate::node::kubelet::attend;
use crate::node::kubelet::serving::serving;
use crate::rootless;
use ::apiserver::authn::User;
use ::apiserver::pki::Pki;
use ::apiserver::tls::Pair;
use ::proxy::balancer::{Pool, announce};
use api::names::NamespacedName;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::{Client, Context, Registry, Source};
use controllers::csr::Signers;
use controllers::{Settings, Sources};
use futures_util::future::{BoxFuture, FutureExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node, ServiceAccount};
use metrics::WayTo;
use network::NodeNetwork;
use runtime::network::{Loopback, Network};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub struct Component {
    pub name: &'static str,
    /// The certificate of whoever takes its place.
    pub client: Option<&'static str>,
    /// Runs until the context stops.
    run: fn(Cluster) -> BoxFuture<'static, anyhow::Result<()>>,
    /// What is waited for, in words, until [`ready`](Self::ready) returns.
    pub waits_for: &'static str,
    pub ready: fn(Cluster) -> BoxFuture<'static, ()>,
}

/// In the order in which they are started.
#[rustfmt::skip]
pub const COMPONENTS: &[Component] = &[
    Component { name: "controller-manager", client: Some("controller-manager"), waits_for: "the first service account", run: |cluster| controller_manager(cluster).boxed(), ready: |cluster| accounts(cluster).boxed() },
    Component { name: "scheduler", client: Some("scheduler"), waits_for: "the scheduler", run: |cluster| scheduler(cluster).boxed(), ready: |_| std::future::ready(()).boxed() },
    Component { name: "kubelet", client: Some("kubelet-client"), waits_for: "the node to be ready", run: |cluster| kubelet(cluster).boxed(), ready: |cluster| node_ready(cluster).boxed() },
    Component { name: "network-policy", client: None, waits_for: "the network policies", run: |cluster| network_policy(cluster).boxed(), ready: |_| std::future::ready(()).boxed() },
    Component { name: "proxy", client: Some("proxy"), waits_for: "the rules of services", run: |cluster| proxy(cluster).boxed(), ready: |cluster| rules_ready(cluster).boxed() },
    Component { name: metrics_server::NAME, client: None, waits_for: "the metrics API", run: |cluster| metrics_server::run(cluster).boxed(), ready: |_| std::future::ready(()).boxed() },
    Component { name: "servicelb", client: None, waits_for: "the load balancer", run: |cluster| service_lb(cluster).boxed(), ready: |_| std::future::ready(()).boxed() },
    Component { name: local_storage::NAME, client: None, waits_for: "the makers of volumes", run: |cluster| local_storage::run(cluster).boxed(), ready: |_| std::future::ready(()).boxed() },
    Component { name: ingress::NAME, client: None, waits_for: "the way in", run: |cluster| ingress::run(cluster).boxed(), ready: |_| std::future::ready(()).boxed() },
    Component { name: rootless::ports::NAME, client: None, waits_for: "ports of the machine", run: |cluster| ports(cluster).boxed(), ready: |_| std::future::ready(()).boxed() },
    Component { name: stand_ins::NAME, client: None, waits_for: "other servers", run: |cluster| stand_ins::run(cluster).boxed(), ready: |_| std::future::ready(()).boxed() },
    Component { name: manifests::NAME, client: None, waits_for: "manifests", run: |cluster| manifests::run(cluster).boxed(), ready: |_| std::future::ready(()).boxed() },
    Component { name: "dns", client: None, waits_for: "DNS to answer", run: |cluster| dns(cluster).boxed(), ready: |cluster| dns_ready(cluster).boxed() },
];

/// What `--disable` understands.
pub fn names() -> Vec<&'static str> {
    COMPONENTS.iter().map(|row| row.name).chain([NETWORK, "*"]).collect()
}

/// What `--disable` understands on a machine that joins.
pub fn names_of_node() -> Vec<&'static str> {
    OF_NODE.into_iter().chain([NETWORK]).collect()
}

/// What a node runs of a cluster.
pub const OF_NODE: [&str; 4] = ["kubelet", "network-policy", "proxy", "dns"];

/// The built-in network of pods, which is no component: the kubelet's runtime makes it.
pub const NETWORK: &str = "network";

/// What components have in common. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    pub machine: Arc<Machine>,
    /// The cluster's CA.
    pub ca: PathBuf,
    /// Its keys, where the cluster's own machine is.
    pub pki: Option<Arc<Pki>>,
    /// What the kubelet serves with.
    pub serving: Pair,
    pub context: Context,
    /// The API, as a component has it that asks as this user.
    pub sources: Arc<SourceOf>,
    /// Nodes that have opened a way to themselves.
    pub ways: Arc<WayTo>,
    pub node_name: String,
    /// The node's own addresses; never none.
    pub node_ips: Vec<IpAddr>,
    /// Where the API server listens; 0 where that is not this machine's.
    pub api_port: u16,
    /// How one of several servers comes to act, where only one may.
    pub leading: Leading,
    /// Unless plugins or nobody makes one.
    pub network: Option<NodeNetwork>,
    /// Where this node answers for the cluster's DNS, while it does.
    pub dns_here: watch::Sender<Vec<SocketAddr>>,
    /// Addresses for load balancers, besides the nodes' own.
    pub pool: Pool,
    /// Addresses for Gateways, besides the nodes' own.
    pub gateway_pool: Pool,
    /// The components that run here.
    pub runs: Vec<String>,
}

pub type SourceOf = dyn Fn(&str, &User) -> anyhow::Result<Arc<dyn Source>> + Send + Sync;

impl Cluster {
    pub fn source(&self, component: &str, user: &User) -> anyhow::Result<Arc<dyn Source>> {
        (self.sources)(component, user)
    }

    /// What a component counts is its own, on its own port, as if it were alone. One that cannot have
    /// its port works all the same.
    async fn with_pages(&self, source: &Arc<dyn Source>, served: Served) -> Context {
        let registry = Arc::new(Registry::default());
        let context = self.context.clone().with_metrics(registry.clone());
        let serving = Serving::at(self.node_ip(), &self.ca);
        if let Err(error) = serving.start(&context, source, registry, served).await {
            tracing::warn!("no health and metrics of {}: {error:#}", served.name);
        }
        context
    }

    /// What the node is known by.
    pub fn node_ip(&self) -> IpAddr {
        self.node_ips.first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into())
    }

    pub fn runs(&self, component: &str) -> bool {
        self.runs.iter().any(|name| name == component)
    }
}

const PAUSE: Duration = Duration::from_secs(1);

/// One that fails is said and started again: the others go on.
pub async fn supervise(row: &'static Component, cluster: Cluster) {
    while !cluster.context.is_stopped() {
        match tokio::spawn((row.run)(cluster.clone())).await {
            Ok(Ok(())) if cluster.context.is_stopped() => return,
            Ok(Ok(())) => tracing::error!(component = row.name, "ended by itself"),
            Ok(Err(error)) => tracing::error!(component = row.name, "failed: {error:#}"),
            Err(panic) => tracing::error!(component = row.name, %panic, "panicked"),
        }
        cluster.context.sleep(PAUSE).await;
    }
}

/// Waits until components have ended that were told to.
pub async fn drain(running: Vec<(&'static Component, JoinHandle<()>)>) {
    for (row, task) in running {
        if tokio::time::timeout(crate::DRAIN, task).await.is_err() {
            tracing::warn!(component = row.name, "it does not end");
        }
    }
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    User { name: name.to_owned(), groups, ..User::default() }
}

/// Whom services and other nodes are read as.
pub const PROXY_USER: &str = "system:kube-proxy";

/// A service account of the system itself.
pub fn account(name: &str) -> User {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    user(&format!("system:serviceaccount:kube-system:{name}"), &groups)
}

async fn controller_manager(cluster: Cluster) -> anyhow::Result<()> {
    let settings = Settings {
        root_ca: std::fs::read_to_string(&cluster.ca)?,
        cluster_cidr: cluster.machine.cluster_cidr.clone(),
        signers: Signers {
            authority: match cluster.pki.as_ref().map(|pki| pki.authority()) {
                Some(pair) => Some(controllers::csr::Authority {
                    certificate: std::fs::read_to_string(&pair.certificate)?,
                    key: std::fs::read_to_string(&pair.key)?,
                }),
                None => None,
            },
            ..Signers::default()
        },
        approve_of_nodes: true,
        servers: cluster.pki.as_ref().map(|pki| pki.servers()).unwrap_or_default(),
        token_signer: match &cluster.pki {
            Some(pki) => Some(crate::controller_manager::signer(&pki.service_account_key())?),
            None => None,
        },
        policy_check: Some(crate::controller_manager::policy_check()),
        ..Settings::default()
    };
    let name = "kube-controller-manager";
    let shared = cluster.source(name, &user("system:kube-controller-manager", &[]))?;
    let context = cluster.with_pages(&shared, crate::controller_manager::SERVED).await;
    let (leading, asking) = (cluster.leading.clone(), shared.clone());
    let fallback = shared.clone();
    let own = move |name: &str| {
        // It fails only for addresses that are none, and there is none.
        cluster.source(name, &account(name)).unwrap_or_else(|_| fallback.clone())
    };
    let sources = Sources { shared, own: Arc::new(own) };
    // Machines join by tokens here, so those who mind them run too.
    let names = ["*", "bootstrap-signer-controller", "token-cleaner-controller"];
    let names = names.map(str::to_owned).to_vec();
    let work = move |context: Context| async move {
        match controllers::start(&context, &sources, &names, settings) {
            Ok(running) => running.await,
            Err(error) => tracing::error!("the control loops do not start: {error}"),
        }
    };
    leading.work(&context, asking, name, work).await
}

async fn scheduler(cluster: Cluster) -> anyhow::Result<()> {
    let source = cluster.source("kube-scheduler", &user("system:kube-scheduler", &[]))?;
    let config = ::scheduler::Config::new(&cluster.node_name);
    let context = cluster.with_pages(&source, crate::scheduler::SERVED).await;
    let socket = crate::scheduler::socket(&cluster.machine.data_dir);
    let (asked, pending) = (context.clone(), config.pending.clone());
    tokio::spawn(async move {
        if let Err(error) = crate::scheduler::tell(asked, socket, pending).await {
            tracing::warn!("`skiff why` will not know why pods wait, node by node: {error:#}");
        }
    });
    let asking = source.clone();
    let work = move |context: Context| async move {
        ::scheduler::run(&context, source, config).await;
    };
    cluster.leading.work(&context, asking, "kube-scheduler", work).await
}

async fn kubelet(cluster: Cluster) -> anyhow::Result<()> {
    let places = &cluster.machine.places;
    let manifests = Some(cluster.machine.pod_manifest_path.clone()).filter(|path| path.exists());
    for folder in [&places.kubelet_dir, &places.pod_logs_dir] {
        crate::reset::claim(folder)?;
    }
    let mut serving = serving(&cluster.serving, Some(&cluster.ca))?;
    serving.address = everywhere(cluster.node_ip());
    let config = kubelet::Config {
        server: Some(serving),
        root: places.kubelet_dir.clone(),
        log_root: places.pod_logs_dir.clone(),
        manifests,
        cluster_dns: cluster.machine.dns_ips(),
        cgroup_root: places.cgroup_root.clone(),
        eviction: kubelet::eviction::Config::of_a_whole_cluster(),
        node_ips: cluster.node_ips.clone(),
        flags: alone::flags::given(),
        ..kubelet::Config::new(&cluster.node_name, cluster.node_ip())
    };
    let name = format!("system:node:{}", cluster.node_name);
    let source = cluster.source("kubelet", &user(&name, &["system:nodes"]))?;
    if let Some(socket) = &cluster.machine.container_runtime_endpoint {
        // That runtime has its own network, by CNI, and its own images.
        let runtime = runtime::cri::Client::new(socket)?;
        let running = kubelet::run(config, source, cluster.context.clone(), Arc::new(runtime));
        return Ok(Box::pin(running).await?);
    }
    let embedded = cluster.machine.embedded();
    let network: Arc<dyn Network> = match (crate::node::cni(&embedded.places), &cluster.network) {
        (Some(plugins), _) => plugins,
        (None, Some(network)) => {
            // Who minds services knows all nodes.
            let peers = cluster.source("skiff-network", &user(PROXY_USER, &[]))?;
            attend(&cluster.context, source.clone(), Some(peers), &config, network);
            Arc::new(network.clone())
        }
        (None, None) => Arc::new(Loopback),
    };
    images::import(&cluster.machine.data_dir.join("images"), &embedded).await;
    let runtime = crate::node::open(&embedded, network).await?;
    runtime.serve_streams().await?;
    let context = cluster.context.clone();
    crate::node::listen(&runtime, &embedded.places, async move { context.stopped().await });
    let running = kubelet::run(config, source, cluster.context.clone(), Arc::new(runtime));
    Ok(Box::pin(running).await?)
}

/// Policies hold in our own pod network: whoever makes another has rules of its own.
async fn network_policy(cluster: Cluster) -> anyhow::Result<()> {
    match &cluster.network {
        Some(network) => {
            let source = cluster.source("skiff-network-policy", &user(PROXY_USER, &[]))?;
            network::policy::run(cluster.context.clone(), source, network.clone()).await;
        }
        None => cluster.context.stopped().await,
    }
    Ok(())
}

/// A component's part of the process, which ends with it.
struct Own(Context);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.stop();
    }
}

const DNS_PORT: u16 = 53;
/// CoreDNS's.
const DNS_METRICS_PORT: u16 = 9153;
/// Where the machine's own address has port 53, somebody else may listen there.
const OTHER_DNS_PORT: u16 = 10053;

async fn proxy(cluster: Cluster) -> anyhow::Result<()> {
    let cidrs = cluster.machine.cluster_cidrs();
    let config = ::proxy::Config {
        node_name: cluster.node_name.clone(),
        cluster_cidrs: cidrs.iter().map(|cidr| (cidr.address(), cidr.prefix())).collect(),
        // As upstream's nftables mode has it.
        primary_node_ports: true,
        min_sync_period: Duration::from_millis(10),
        healthz: Some(SocketAddr::new(everywhere(cluster.node_ip()), PROXY_HEALTH)),
        metrics: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 10249))),
        flags: alone::flags::given(),
        // Pods ask the DNS of their own node, as long as it answers.
        local: Some(::proxy::Local {
            service: NamespacedName::new("kube-system", "kube-dns"),
            at: cluster.dns_here.subscribe(),
        }),
        ..::proxy::Config::default()
    };
    let source = cluster.source("kube-proxy", &user(PROXY_USER, &[]))?;
    let announcing =
        announce::run(cluster.context.clone(), source.clone(), cluster.node_name.clone());
    let serving = ::proxy::run(cluster.context.clone(), source, config);
    let (announced, served) = tokio::join!(announcing, serving);
    announced?;
    Ok(served?)
}

const PROXY_HEALTH: u16 = 10256;

/// Every address; that of IPv6 is those of IPv4 too.
fn everywhere(own: IpAddr) -> IpAddr {
    match own {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A user's cluster is behind the machine's ports only if somebody brings what comes there.
async fn ports(cluster: Cluster) -> anyhow::Result<()> {
    let source = cluster.source("skiff-ports", &user(PROXY_USER, &[]))?;
    rootless::ports::run(&cluster.context, source, cluster.node_ip()).await;
    Ok(())
}

/// Ports of a node that are Kubernetes' own, beside the API server's.
const OWN_PORTS: [u16; 7] = [metrics_server::PORT, 10248, 10249, 10250, PROXY_HEALTH, 10257, 10259];

async fn service_lb(cluster: Cluster) -> anyhow::Result<()> {
    let reserved = OWN_PORTS.into_iter().chain([cluster.api_port]).collect();
    let settings = ::proxy::balancer::Settings { reserved, pool: cluster.pool.clone() };
    let source = cluster.source("servicelb", &account("servicelb"))?;
    tell_pool(&cluster).await?;
    let asking = source.clone();
    let work = move |context: Context| ::proxy::balancer::run(context, source, settings);
    cluster.leading.work(&cluster.context, asking, "servicelb", work).await
}

/// Nodes announce the addresses of the pool that is written down for them.
async fn tell_pool(cluster: &Cluster) -> anyhow::Result<()> {
    let admin = Client::new(cluster.source("skiff", &administrator())?);
    let (namespace, name) = (announce::NAMESPACE, announce::CONFIG_MAP);
    if cluster.pool.is_empty() {
        let gone = admin.delete::<ConfigMap>(namespace, name, Default::default()).await;
        return match gone {
            Err(status) if status.code != 404 => Err(anyhow::anyhow!(status.message)),
            _ => Ok(()),
        };
    }
    let map = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace },
        "data": { announce::KEY: cluster.pool.to_string() },
    });
    addons::apply(&admin, vec![map]).await
}

async fn rules_ready(cluster: Cluster) {
    let at = (Ipv4Addr::LOCALHOST, PROXY_HEALTH);
    let healthy = || async move {
        let mut stream = TcpStream::connect(at).await?;
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.ends_with(b" 200"))
    };
    while !matches!(healthy().await, Ok(true)) {
        if !cluster.context.sleep(LOOK).await {
            return;
        }
    }
}

async fn dns(cluster: Cluster) -> anyhow::Result<()> {
    let listen = match &cluster.network {
        // On the pods' own link nobody else listens.
        Some(network) => {
            let gateways = network.gateways().await;
            gateways.into_iter().map(|address| SocketAddr::new(address, DNS_PORT)).collect()
        }
        None => vec![SocketAddr::new(cluster.node_ip(), OTHER_DNS_PORT)],
    };
    let metrics = listen.first().map(|at: &SocketAddr| SocketAddr::new(at.ip(), DNS_METRICS_PORT));
    // Names are worth more than counts of them: where somebody has the port, there are none.
    let metrics = match metrics {
        Some(at) => TcpListener::bind(at).await.map(|_| at).ok(),
        None => None,
    };
    // A node that joined serves its own pods alone.
    let who = match cluster.pki.is_some() {
        true => {
            let admin = Client::new(cluster.source("skiff", &administrator())?);
            let ips = cluster.machine.dns_ips();
            ::dns::publish(&admin, &cluster.node_name, &ips, &listen, metrics)
                .await
                .map_err(|status| anyhow::anyhow!("failed to publish DNS: {}", status.message))?;
            account("coredns")
        }
        false => user(PROXY_USER, &[]),
    };
    let servers = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let config = ::dns::Config {
        upstreams: ::dns::name_servers(&servers),
        config_map: Some(("kube-system".to_owned(), "coredns".to_owned())),
        clients: clients(cluster.network.clone()),
        metrics,
        ..::dns::Config::new(listen.clone())
    };
    let (mut up, here) = (config.is_up.subscribe(), cluster.dns_here.clone());
    here.send_replace(Vec::new());
    let source = cluster.source("coredns", &who)?;
    // Its pages end with it: one that is started again has their port.
    let own = Own(cluster.context.part());
    let running = ::dns::run(own.0.clone(), source, config);
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => return Ok(ended?),
        _ = up.wait_for(|is_up| *is_up) => {}
    }
    here.send_replace(listen);
    let ended = running.await;
    here.send_replace(Vec::new());
    Ok(ended?)
}

/// Whose pods ask: those of this node's network.
fn clients(network: Option<NodeNetwork>) -> ::dns::Clients {
    match network {
        Some(network) => ::dns::Clients(Arc::new(move |address| network.namespace_of(address))),
        None => ::dns::Clients::default(),
    }
}

/// A name that every cluster has is known at the address that pods ask.
async fn dns_ready(cluster: Cluster) {
    let Some(dns) = cluster.machine.dns_ips().first().copied() else { return };
    let any: IpAddr = match dns {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let ask = || async {
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect((dns, DNS_PORT)).await?;
        socket
            .send(&::dns::question(1, "kubernetes.default.svc.cluster.local", ::dns::Kind::A, None))
            .await?;
        let mut answer = [0; 512];
        let length = tokio::time::timeout(10 * LOOK, socket.recv(&mut answer)).await??;
        Ok::<_, std::io::Error>(length > 12 && answer[3] & 0xf == 0)
    };
    // Without rules nobody leads there.
    while cluster.runs("proxy") && !matches!(ask().await, Ok(true)) {
        if !cluster.context.sleep(LOOK).await {
            return;
        }
    }
}

/// Whoever has a token may ask for a node's certificate, nodes may do what they run for, and so may
/// components that upstream's own roles do not know. Before anybody asks: who is refused at first comes
/// back a second later.
pub async fn give_rights(cluster: &Cluster) -> anyhow::Result<()> {
    let admin = Client::new(cluster.source("skiff", &administrator())?);
    // Packet rules are made on every node, whether or not this machine is one.
    let of_all = [addons::AGENTS, addons::NETWORK_POLICY, addons::NODE_SETTINGS];
    let of_components = [
        ("dns", addons::DNS),
        (metrics_server::NAME, addons::METRICS),
        ("servicelb", addons::SERVICE_LB),
        (ingress::NAME, addons::INGRESS),
        (local_storage::NAME, local_storage::RIGHTS),
    ];
    let running = of_components.into_iter().filter(|(component, _)| cluster.runs(component));
    // Alone nobody stands in for anybody.
    let of_several = (cluster.leading.is_one_of_several() && cluster.runs(stand_ins::NAME))
        .then_some(addons::STAND_INS);
    let objects = of_all.into_iter().chain(running.map(|(_, objects)| objects)).chain(of_several);
    for objects in objects {
        addons::install(&admin, objects).await?;
    }
    if let Some(pki) = &cluster.pki {
        let server = SocketAddr::new(cluster.node_ip(), cluster.api_port);
        let authority = STANDARD.encode(std::fs::read(pki.ca())?);
        let info = addons::cluster_info(&format!("https://{server}"), &authority);
        addons::apply(&admin, info).await?;
    }
    taken_back::take_back(cluster, &admin).await;
    if !cluster.runs(ingress::NAME) {
        // It may have served before; a node that is not there yet has not.
        let _ = ingress::mark(cluster, &admin, serde_json::Value::Null).await;
    }
    Ok(())
}

pub fn administrator() -> User {
    user("system:admin", &["system:masters"])
}

/// How long until another look.
const LOOK: Duration = Duration::from_millis(20);

async fn look_until<T: api::rules::Form>(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    holds: fn(&T) -> bool,
) {
    let Ok(source) = cluster.source("skiff", &administrator()) else {
        return;
    };
    let client = Client::new(source);
    loop {
        if let Ok(found) = client.get::<T>(namespace, name).await
            && found.typed::<T>().is_ok_and(|found| holds(&found))
        {
            return;
        }
        if !cluster.context.sleep(LOOK).await {
            return;
        }
    }
}

async fn accounts(cluster: Cluster) {
    look_until::<ServiceAccount>(&cluster, "default", "default", |_| true).await;
}

/// The node takes pods: it is ready, and whoever minds nodes has seen that.
async fn node_ready(cluster: Cluster) {
    let is_ready: fn(&Node) -> bool = match cluster.runs("controller-manager") {
        true => |node| says_ready(node) && !has_not_ready_taint(node),
        // Taints are for another to take away, who may come later.
        false => says_ready,
    };
    // Whoever brings the plugins needs a cluster first.
    let is_ready = if cluster.machine.waits_for_plugins() { |_: &Node| true } else { is_ready };
    look_until::<Node>(&cluster, "", &cluster.node_name, is_ready).await;
}

fn says_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
    let mut ready = conditions.unwrap_or_default().iter().filter(|one| one.type_ == "Ready");
    ready.any(|one| one.status == "True")
}

fn has_not_ready_taint(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == "node.kubernetes.io/not-ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_still_tainted_takes_no_pods() {
        let node = |taints| -> Node {
            serde_json::from_value(serde_json::json!({
                "spec": { "taints": taints },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
            }))
            .expect("a node")
        };
        let taint = |key| serde_json::json!([{ "key": key, "effect": "NoSchedule" }]);
        assert!(says_ready(&node(taint("node.kubernetes.io/not-ready"))));
        assert!(has_not_ready_taint(&node(taint("node.kubernetes.io/not-ready"))));
        // Cordoned by its owner: that is how it is meant to be.
        assert!(!has_not_ready_taint(&node(taint("node.kubernetes.io/unschedulable"))));
    }
}
