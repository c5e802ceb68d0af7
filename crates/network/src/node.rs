//! A node's network as the container runtime has it: from its start, although the node is told
//! only later where its pods' addresses come from.
use crate::policy::Policies;
use crate::{
    Bandwidth, Cidr, Config, POLICY_TABLE, Peer, PodNetwork, PodNetworkError, PortMapping,
    PrivateKey, PublicKey, Sandbox, peers, sources,
};
use client::NamespacedName;
use netlink::nftables::{AddressFamily, Transaction};
use netlink::{Family, Socket, namespace};
use parking_lot::Mutex;
use runtime::network::{Attachment, Network, NetworkError};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What is known of a node's network before the node has a pod CIDR.
#[derive(Debug, Clone)]
pub struct Settings {
    /// As [`Config::state`].
    pub state: PathBuf,
    /// Where all pods of the cluster are; empty: where the nodes say that theirs are.
    pub cluster_cidrs: Vec<Cidr>,
    /// `None`: that of the link by which packets leave the machine.
    pub mtu: Option<u32>,
    /// The network namespace that is the node's; `None`: that of whoever asks.
    pub namespace: Option<PathBuf>,
    /// Whether NetworkPolicies hold: pods come when somebody has told which there are.
    pub policies: bool,
    /// Whether what pods of different nodes say to each other is encrypted.
    pub encrypt: bool,
}

impl Settings {
    pub fn new(state: PathBuf) -> Settings {
        Settings {
            state,
            cluster_cidrs: Vec::new(),
            mtu: None,
            namespace: None,
            policies: false,
            encrypt: false,
        }
    }
}

/// Cheap to clone; a clone is the same network.
#[derive(Clone)]
pub struct NodeNetwork {
    settings: Arc<Settings>,
    up: watch::Sender<Option<PodNetwork>>,
    policies: Option<Arc<Policies>>,
    /// Where what goes to other nodes' pods is encrypted.
    key: Option<PrivateKey>,
    /// Who brings it up does so alone.
    turn: Arc<Mutex<()>>,
}

/// Where the CIDRs are written that the node had last: a process that starts again goes on with
/// them, whether it reaches the API or not.
const CIDRS: &str = "pod-cidrs";
const ETHERNET: u32 = 1500;
/// How long a sandbox waits for the node's first pod CIDR.
const PATIENCE: Duration = Duration::from_secs(10);

impl NodeNetwork {
    /// Up at once if it was before the last process ended.
    pub fn open(settings: Settings) -> Result<NodeNetwork, PodNetworkError> {
        let known = std::fs::read_to_string(settings.state.join(CIDRS)).unwrap_or_default();
        let known: Vec<Cidr> =
            known.split_whitespace().filter_map(|one| one.parse().ok()).collect();
        let policies =
            settings.policies.then(|| Arc::new(Policies::new(settings.namespace.clone())));
        let key = settings.encrypt.then(|| PrivateKey::open(&settings.state)).transpose()?;
        let (settings, up) = (Arc::new(settings), watch::Sender::new(None));
        let network = NodeNetwork { settings, up, policies, key, turn: Arc::default() };
        if !known.is_empty() {
            network.bring_up(known)?;
        }
        Ok(network)
    }

    /// Pods get their addresses from here. Blocks for as long as the kernel takes.
    pub fn bring_up(&self, pod_cidrs: Vec<Cidr>) -> Result<(), PodNetworkError> {
        let _turn = self.turn.lock();
        let there = self.up.borrow().clone();
        if there.as_ref().is_some_and(|network| network.pod_cidrs() == pod_cidrs) {
            return Ok(());
        }
        let text: String = pod_cidrs.iter().map(|cidr| format!("{cidr}\n")).collect();
        match there {
            Some(network) => self.inside(|| network.set_pod_cidrs(pod_cidrs))?,
            None => {
                let network = self.inside(|| self.create(pod_cidrs))?;
                if let Some(policies) = &self.policies {
                    let all = network.sandboxes().into_iter();
                    policies.remember(all.filter_map(|(id, owner, addresses)| {
                        let (namespace, name) = owner.split_once('/')?;
                        Some((id, NamespacedName::new(namespace, name), addresses))
                    }));
                }
                self.up.send_replace(Some(network));
            }
        }
        let path = self.settings.state.join(CIDRS);
        std::fs::write(&path, text).map_err(|source| PodNetworkError::File {
            what: "write",
            path,
            source,
        })
    }

    /// The other nodes of the cluster. Nothing happens while the network is not up.
    pub fn set_peers(&self, peers: &[Peer]) -> Result<(), PodNetworkError> {
        let Some(network) = self.up.borrow().clone() else { return Ok(()) };
        if self.settings.cluster_cidrs.is_empty() {
            let others = peers.iter().flat_map(|peer| peer.pod_cidrs.iter().copied());
            network.set_cluster_cidrs(network.pod_cidrs().into_iter().chain(others).collect())?;
        }
        network.set_peers(peers)
    }

    /// The namespace of the pod here that has an address, if that is known at once.
    pub fn namespace_of(&self, address: IpAddr) -> Option<String> {
        let network = self.up.borrow().clone()?;
        let owner = network.owner_of(address)?;
        owner.split_once('/').map(|(namespace, _)| namespace.to_owned())
    }

    /// With which others speak to this node, where that is encrypted.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.key.as_ref().map(PrivateKey::public)
    }

    /// A number that changes with every change of any packet rules of the node.
    pub fn generation(&self) -> Result<u32, PodNetworkError> {
        self.inside(|| Ok(Socket::open(Family::Netfilter)?.generation()?))
    }

    /// Makes good what somebody did to our rules; whether there was anything. Blocks for as long as the
    /// kernel takes.
    pub fn repair(&self) -> Result<bool, PodNetworkError> {
        let network = self.up.borrow().clone();
        network.map_or(Ok(false), |network| network.repair())
    }

    /// Who minds NetworkPolicies, if anybody does.
    pub fn policies(&self) -> Option<Arc<Policies>> {
        self.policies.clone()
    }

    pub fn is_up(&self) -> bool {
        self.up.borrow().is_some()
    }

    /// The host's own addresses on the pods' bridge, once there are any.
    pub async fn gateways(&self) -> Vec<IpAddr> {
        let mut up = self.up.subscribe();
        // The sender is ours: it is there as long as we wait.
        let network = up.wait_for(Option::is_some).await.ok().and_then(|network| network.clone());
        let cidrs = network.map(|network| network.pod_cidrs()).unwrap_or_default();
        cidrs.into_iter().map(Cidr::gateway).collect()
    }

    fn create(&self, pod_cidrs: Vec<Cidr>) -> Result<PodNetwork, PodNetworkError> {
        let mtu = self.settings.mtu.map_or_else(uplink_mtu, Ok)?;
        let mut cluster_cidrs = self.settings.cluster_cidrs.clone();
        if cluster_cidrs.is_empty() {
            // Nodes that the last process knew, whose routes it left.
            let others = peers::destinations(&mut Socket::open(Family::Route)?)?;
            cluster_cidrs = pod_cidrs.iter().copied().chain(others).collect();
        }
        if !self.settings.policies {
            // What an earlier process left would hold for ever: nobody changes it any more.
            let mut netfilter = Socket::open(Family::Netfilter)?;
            for family in AddressFamily::BOTH {
                let mut table = Transaction::new(family, POLICY_TABLE);
                table.remove_table();
                table.commit(&mut netfilter)?;
            }
            sources::remove_floods(&mut netfilter);
        }
        let (state, key) = (self.settings.state.clone(), self.key.clone());
        PodNetwork::open(Config { pod_cidrs, cluster_cidrs, mtu, state, key })
    }

    fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, PodNetworkError> + Send,
    ) -> Result<T, PodNetworkError> {
        match &self.settings.namespace {
            Some(path) => namespace::within(path, work)?,
            None => work(),
        }
    }
}

fn uplink_mtu() -> Result<u32, PodNetworkError> {
    let mut route = Socket::open(Family::Route)?;
    // Nobody is asked: any address will do that is not a neighbour's (RFC 5737, RFC 3849).
    let way = match route.route_to(Ipv4Addr::new(203, 0, 113, 1).into())? {
        Some(way) => Some(way),
        None => route.route_to(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1).into())?,
    };
    let links = route.links()?;
    let link = way.and_then(|way| links.into_iter().find(|link| link.index == way.link));
    // Loopback takes more than a pair of links can.
    let mtu = link.map(|link| link.mtu).filter(|mtu| (1280..=65535).contains(mtu));
    Ok(mtu.unwrap_or(ETHERNET))
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, NetworkError>> + Send + 'a>>;

/// The kubelet tells it as upstream's does: "container runtime network not ready:
/// NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: …".
fn not_ready() -> NetworkError {
    NetworkError("the node has no pod CIDR yet".to_owned())
}

impl Network for NodeNetwork {
    fn ready(&self) -> Result<(), NetworkError> {
        match self.is_up() {
            true => Ok(()),
            false => Err(not_ready()),
        }
    }

    fn attach(&self, sandbox: Attachment) -> Answer<'_, Vec<IpAddr>> {
        Box::pin(async move {
            let mut up = self.up.subscribe();
            // A pod that comes just before its network starts with it, not a retry later.
            let wait = tokio::time::timeout(PATIENCE, up.wait_for(Option::is_some)).await;
            let network = wait.ok().and_then(|up| up.ok()?.clone());
            let Some(network) = network else { return Err(not_ready()) };
            let Some(policies) = self.policies.clone() else {
                return off_the_loop(move || network.attach(&of(&sandbox)?)).await;
            };
            let key = NamespacedName::new(&sandbox.namespace, &sandbox.name);
            let known = policies.known(&key, &sandbox.uid).await;
            known.map_err(|error| NetworkError(error.to_string()))?;
            off_the_loop(move || {
                let id = &sandbox.sandbox_id;
                network.attach_after(&of(&sandbox)?, |given| policies.admit(id, key, given))
            })
            .await
        })
    }

    fn keep_only(&self, sandbox_ids: Vec<String>) -> Answer<'_, ()> {
        let network = self.up.borrow().clone();
        Box::pin(async move {
            let Some(network) = network else { return Ok(()) };
            off_the_loop(move || {
                network.retain(&sandbox_ids.iter().map(String::as_str).collect::<Vec<_>>())
            })
            .await
        })
    }

    fn detach(&self, sandbox: Attachment) -> Answer<'_, ()> {
        let network = self.up.borrow().clone();
        Box::pin(async move {
            // What was never up has attached nobody.
            let Some(network) = network else { return Ok(()) };
            let policies = self.policies.clone();
            off_the_loop(move || {
                network.detach(&sandbox.sandbox_id)?;
                policies.iter().for_each(|policies| policies.leave(&sandbox.sandbox_id));
                Ok(())
            })
            .await
        })
    }
}

async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PodNetworkError> + Send + 'static,
) -> Result<T, NetworkError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| NetworkError(error.to_string())),
        Err(error) => Err(NetworkError(error.to_string())),
    }
}

fn of(attachment: &Attachment) -> Result<Sandbox, PodNetworkError> {
    let ports = attachment.ports.iter().map(|port| PortMapping {
        host_port: port.host_port,
        container_port: port.container_port,
        protocol: port.protocol.clone(),
        host_ip: port.host_ip.clone(),
    });
    Ok(Sandbox {
        bandwidth: Bandwidth::of(&attachment.annotations)?,
        id: attachment.sandbox_id.clone(),
        namespace_path: attachment.namespace_path.clone(),
        owner: format!("{}/{}", attachment.namespace, attachment.name),
        ports: ports.collect(),
    })
}
