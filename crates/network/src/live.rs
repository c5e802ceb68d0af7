//! Keeps a node's network as the API says: its own Node brings it up, the others are its peers. Where what
//! their pods say is encrypted, a Node tells the others its public key.
use crate::{Cidr, NodeNetwork, Peer, PodNetworkError, PublicKey, keys};
use api::codec::DecodeError;
use api::object::{Keep, Object};
use api::selector::field::Selector;
use client::source::{Collection, Patch, Source};
use client::{ApiResource, Client, Context, Informers, NamespacedName, Status};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// What the network wants to know of a node.
struct NodeFacts(Peer);

impl Keep for NodeFacts {
    fn keep(object: &Arc<Object>) -> Result<Arc<NodeFacts>, DecodeError> {
        Ok(Arc::new(NodeFacts(facts(&object.decode::<Node>()?))))
    }
}

fn facts(node: &Node) -> Peer {
    let spec = node.spec.clone().unwrap_or_default();
    let cidrs = spec.pod_cidrs.filter(|cidrs| !cidrs.is_empty());
    let cidrs = cidrs.unwrap_or_else(|| spec.pod_cidr.into_iter().collect());
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
    let key = node.metadata.annotations.as_ref().and_then(|all| all.get(PUBLIC_KEY));
    Peer {
        name: node.metadata.name.clone().unwrap_or_default(),
        addresses: internal.filter_map(|address| address.address.parse().ok()).collect(),
        pod_cidrs: cidrs.iter().filter_map(|cidr| cidr.parse::<Cidr>().ok()).collect(),
        public_key: key.and_then(|text| keys::parse(text)),
    }
}

/// The annotation by which a Node tells the key.
pub(crate) const PUBLIC_KEY: &str = "skiff.dev/wireguard-public-key";

/// Writes the key to the node's own Node, or takes one back that is not used any more.
async fn tell(client: &Client, node_name: &str, key: Option<PublicKey>) -> Result<(), Status> {
    let text = key.map(|key| keys::text(&key));
    let patch = json!({ "metadata": { "annotations": { (PUBLIC_KEY): text } } });
    client.patch::<Node>("", node_name, Patch::Merge(patch)).await.map(drop)
}

const RETRY: Duration = Duration::from_secs(1);
/// How often somebody looks whether the rules are still there.
const LOOK: Duration = Duration::from_secs(2);

/// Somebody else may take away what is ours: it comes back.
async fn keep_whole(context: Context, network: NodeNetwork) {
    let mut generation = None;
    while context.sleep(LOOK).await {
        let look = {
            let network = network.clone();
            move || -> Result<(Option<u32>, bool), PodNetworkError> {
                let now = Some(network.generation()?);
                if now == generation {
                    return Ok((now, false));
                }
                let is_repaired = network.repair()?;
                Ok((Some(network.generation()?), is_repaired))
            }
        };
        match tokio::task::spawn_blocking(look).await {
            Ok(Ok((now, is_repaired))) => {
                generation = now;
                if is_repaired {
                    tracing::warn!("somebody changed the packet rules of pods: they are back");
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "failed to look at the packet rules of pods"),
            Err(_) => return,
        }
    }
}

/// Runs until the context stops. What runs keeps its network afterwards.
///
/// A node may read its own Node and no other: `peers` is somebody who may. Without one, pods of
/// other nodes are reached by whatever routes there are.
pub async fn run(
    context: Context,
    source: Arc<dyn Source>,
    peers: Option<Arc<dyn Source>>,
    node_name: String,
    network: NodeNetwork,
) {
    let client = Client::new(source.clone()).managed_by("skiff-network");
    let informers = Informers::new(&context, source);
    let nodes = || Collection::all(ApiResource::of::<Node>());
    let own = nodes().with_fields(Selector::equals("metadata.name", &node_name));
    let own = informers.keep::<NodeFacts>(own);
    let all = peers.map(|peers| Informers::new(&context, peers).keep::<NodeFacts>(nodes()));
    let changed = Arc::new(Notify::new());
    for informer in [Some(&own), all.as_ref()].into_iter().flatten() {
        let changed = changed.clone();
        informer.on_change(move |change| {
            let facts = |one: &Option<Arc<NodeFacts>>| one.as_ref().map(|facts| facts.0.clone());
            // A node says every few minutes how it is.
            if facts(&change.old) != facts(&change.new) {
                changed.notify_one();
            }
        });
    }
    if let Some(all) = all.clone() {
        let (context, changed) = (context.clone(), changed.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = all.synced() => changed.notify_one(),
                () = context.stopped() => {}
            }
        });
    }
    tokio::spawn(keep_whole(context.clone(), network.clone()));
    let public_key = network.public_key();
    let key = NamespacedName::new("", &node_name);
    loop {
        tokio::select! {
            () = changed.notified() => {}
            () = context.stopped() => return,
        }
        // A Node that is gone comes back with the same kubelet; its pods still run.
        let Some(node) = own.get(&key) else { continue };
        let told = match node.0.public_key == public_key {
            true => Ok(()),
            false => tell(&client, &node_name, public_key).await,
        };
        let cidrs = node.0.pod_cidrs.clone();
        // Those whom nobody has told of yet are not gone: the last process may have left ways to them.
        let peers = match &all {
            Some(all) if !all.has_synced() => None,
            Some(all) => Some(all.read().iter().map(|(_, facts)| facts.0.clone()).collect()),
            None => Some(Vec::new()),
        };
        let is_other = |peer: &Peer| peer.name != node_name;
        let peers =
            peers.map(|all: Vec<Peer>| all.into_iter().filter(is_other).collect::<Vec<Peer>>());
        let network = network.clone();
        let work = move || -> Result<(), PodNetworkError> {
            if cidrs.is_empty() {
                return Ok(());
            }
            network.bring_up(cidrs)?;
            peers.map_or(Ok(()), |peers| network.set_peers(&peers))
        };
        let done = match tokio::task::spawn_blocking(work).await {
            Ok(done) => done.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let Err(failure) = told.map_err(|status| status.to_string()).and(done) else { continue };
        tracing::error!(failure, "failed to bring up the pod network: trying again");
        if !context.sleep(RETRY).await {
            return;
        }
        changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_pods_where_its_spec_says() {
        let check = |spec: serde_json::Value, expected: &str| {
            let status = json!({ "addresses": [
                { "type": "Hostname", "address": "n" },
                { "type": "InternalIP", "address": "192.0.2.1" },
            ]});
            let node = json!({ "metadata": { "name": "n" }, "spec": spec, "status": status });
            let facts = facts(&serde_json::from_value(node).unwrap());
            let cidrs: Vec<String> = facts.pod_cidrs.iter().map(Cidr::to_string).collect();
            assert_eq!(format!("{:?} {}", facts.addresses, cidrs.join(" ")), expected);
        };
        check(json!({}), "[192.0.2.1] ");
        check(json!({ "podCIDR": "10.1.0.0/24" }), "[192.0.2.1] 10.1.0.0/24");
        let both = json!({ "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"] });
        check(both, "[192.0.2.1] 10.1.0.0/24 fd00::/64");
    }

    #[test]
    fn what_is_no_key_is_none() {
        let check = |annotations: serde_json::Value, expected: Option<PublicKey>| {
            let metadata = json!({ "name": "n", "annotations": annotations });
            let node = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            assert_eq!(facts(&node).public_key, expected);
        };
        check(json!({}), None);
        check(json!({ (PUBLIC_KEY): "" }), None);
        check(json!({ (PUBLIC_KEY): "AAEC" }), None);
        check(json!({ (PUBLIC_KEY): keys::text(&[7; 32]) }), Some([7; 32]));
    }
}
