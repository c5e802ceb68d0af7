//! Keeps a node's network as the API says: its own Node brings it up, the others are its peers.
use crate::{Cidr, NodeNetwork, Peer, PodNetworkError};
use api::codec::DecodeError;
use api::object::{Keep, Object};
use api::selector::field::Selector;
use client::source::{Collection, Source};
use client::{ApiResource, Context, Informers, NamespacedName};
use k8s_openapi::api::core::v1::Node;
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
    Peer {
        name: node.metadata.name.clone().unwrap_or_default(),
        addresses: internal.filter_map(|address| address.address.parse().ok()).collect(),
        pod_cidrs: cidrs.iter().filter_map(|cidr| cidr.parse::<Cidr>().ok()).collect(),
    }
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
    tokio::spawn(keep_whole(context.clone(), network.clone()));
    let key = NamespacedName::new("", &node_name);
    loop {
        tokio::select! {
            () = changed.notified() => {}
            () = context.stopped() => return,
        }
        // A Node that is gone comes back with the same kubelet; its pods still run.
        let Some(node) = own.get(&key) else { continue };
        let cidrs = node.0.pod_cidrs.clone();
        if cidrs.is_empty() {
            continue;
        }
        let peers = all
            .as_ref()
            .map(|all| all.read().iter().map(|(_, facts)| facts.0.clone()).collect::<Vec<Peer>>());
        let peers = peers.unwrap_or_default();
        let peers: Vec<Peer> = peers.into_iter().filter(|peer| peer.name != node_name).collect();
        let network = network.clone();
        let work = move || -> Result<(), PodNetworkError> {
            network.bring_up(cidrs)?;
            network.set_peers(&peers)
        };
        let failure = match tokio::task::spawn_blocking(work).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
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
    use serde_json::json;

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
}
