//! Where one of several servers is gone, nobody is led to the DNS and the metrics that it served.
//!
//! Each server publishes slices of its own for what it serves beside the API, and cannot take them back
//! when it dies. Which servers live is known: they are the endpoints of the service `kubernetes`. One of
//! the servers that are left says of the others' slices whether they are ready.
use super::components::{Cluster, account};
use client::source::{Collection, Patch};
use client::{ApiResource, Client, Context, Informer, Source};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

pub const NAME: &str = "stand-ins";
/// By whom slices are that servers publish.
const PUBLISHERS: [&str; 2] = ["skiff-dns", "skiff-metrics"];
/// Where they are: elsewhere anybody may label a slice so.
const NAMESPACE: &str = "kube-system";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// A write that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

pub async fn run(cluster: Cluster) -> anyhow::Result<()> {
    if !cluster.leading.is_one_of_several() {
        cluster.context.stopped().await;
        return Ok(());
    }
    let source = cluster.source("skiff-stand-ins", &account(NAME))?;
    let asking = source.clone();
    cluster
        .leading
        .work(&cluster.context, asking, NAME, move |context| follow(context, source))
        .await
}

async fn follow(context: Context, source: Arc<dyn Source>) {
    let of_all = Collection::all(ApiResource::of::<EndpointSlice>());
    let slices = Informer::<EndpointSlice>::start(&context, source.clone(), of_all);
    let of_nodes = Collection::all(ApiResource::of::<Node>());
    let nodes = Informer::<Node>::start(&context, source.clone(), of_nodes);
    let changed = Arc::new(Notify::new());
    let heard = changed.clone();
    slices.on_change(move |_| heard.notify_one());
    tokio::join!(slices.synced(), nodes.synced());
    let client = Client::new(source).managed_by("skiff-stand-ins");
    loop {
        let wrong = {
            let slices: Vec<_> = slices.read().iter().map(|(_, slice)| slice.clone()).collect();
            let nodes: Vec<_> = nodes.read().iter().map(|(_, node)| node.clone()).collect();
            wrong(&slices, &nodes)
        };
        let mut failed = false;
        for (namespace, name, ready) in wrong {
            let patch = json!([{ "op": "replace", "path": "/endpoints/0/conditions/ready", "value": ready }]);
            let outcome =
                client.patch::<EndpointSlice>(&namespace, &name, Patch::Json(patch)).await;
            if let Err(status) = outcome {
                tracing::warn!(
                    name,
                    problem = status.message,
                    "a server's endpoints stay as they are"
                );
                failed = true;
            }
        }
        let pause = if failed { AGAIN } else { Duration::MAX };
        tokio::select! {
            () = context.stopped() => return,
            () = changed.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Slices of servers that say otherwise than it is: where, and whether they are ready.
fn wrong(slices: &[Arc<EndpointSlice>], nodes: &[Arc<Node>]) -> Vec<(String, String, bool)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let is_of = |slice: &EndpointSlice, namespace: &str, name: &str| {
        slice.metadata.namespace.as_deref() == Some(namespace)
            && slice.metadata.name.as_deref() == Some(name)
    };
    let Some(servers) = slices.iter().find(|slice| is_of(slice, "default", "kubernetes")) else {
        return Vec::new();
    };
    let endpoints = servers.endpoints.iter().flatten();
    let living: Vec<&String> = endpoints.flat_map(|endpoint| &endpoint.addresses).collect();
    let addresses: BTreeMap<String, Vec<String>> = nodes
        .iter()
        .map(|node| {
            let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
            let own = all.filter(|one| one.type_ == "InternalIP").map(|one| one.address.clone());
            (text(&node.metadata.name), own.collect())
        })
        .collect();
    let mut found = Vec::new();
    for slice in slices {
        let labels = slice.metadata.labels.iter().flatten();
        let mut publisher = labels.filter(|(name, _)| *name == MANAGED_BY).map(|(_, value)| value);
        let is_published = publisher.any(|value| PUBLISHERS.contains(&value.as_str()));
        if !is_published || slice.metadata.namespace.as_deref() != Some(NAMESPACE) {
            continue;
        }
        let Some(endpoint) = slice.endpoints.iter().flatten().next() else { continue };
        let Some(node) = &endpoint.node_name else { continue };
        // A node that is gone, with its Node, serves nothing.
        let own = addresses.get(node).map_or(&[][..], Vec::as_slice);
        let lives = own.iter().any(|address| living.contains(&address));
        let says = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
        if says != Some(lives) {
            found.push((text(&slice.metadata.namespace), text(&slice.metadata.name), lives));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(
        namespace: &str,
        name: &str,
        by: &str,
        endpoints: serde_json::Value,
    ) -> Arc<EndpointSlice> {
        Arc::new(
            serde_json::from_value(json!({ "addressType": "IPv4", "ports": [], "endpoints": endpoints,
                "metadata": { "name": name, "namespace": namespace, "labels": { MANAGED_BY: by } } }))
            .unwrap(),
        )
    }

    #[test]
    fn what_a_dead_server_served_is_not_ready() {
        let node = |name: &str, address: &str| -> Arc<Node> {
            let addresses = json!([{ "type": "InternalIP", "address": address }]);
            let tree =
                json!({ "metadata": { "name": name }, "status": { "addresses": addresses } });
            Arc::new(serde_json::from_value(tree).unwrap())
        };
        let nodes = [node("a", "192.0.2.1"), node("b", "192.0.2.2"), node("c", "192.0.2.3")];
        let of = |name: &str, by: &str, node: &str, ready: bool| {
            let conditions = json!({ "ready": ready });
            slice(
                "kube-system",
                name,
                by,
                json!([{ "addresses": ["10.0.0.1"], "nodeName": node, "conditions": conditions }]),
            )
        };
        let slices = [
            slice(
                "default",
                "kubernetes",
                "",
                json!([{ "addresses": ["192.0.2.1"] }, { "addresses": ["192.0.2.3"] }]),
            ),
            of("dns-a", "skiff-dns", "a", true),
            of("dns-b", "skiff-dns", "b", true),
            of("metrics-c", "skiff-metrics", "c", false),
            of("dns-gone", "skiff-dns", "gone", true),
            of("web", "endpointslice-controller.k8s.io", "b", true),
            slice(
                "tenant",
                "dns-b",
                "skiff-dns",
                json!([{ "addresses": ["10.0.0.1"], "nodeName": "b", "conditions": { "ready": true } }]),
            ),
        ];
        let said: Vec<String> = wrong(&slices, &nodes)
            .into_iter()
            .map(|(_, name, ready)| format!("{name} {ready}"))
            .collect();
        assert_eq!(said, ["dns-b false", "metrics-c true", "dns-gone false"]);
        assert_eq!(wrong(&slices[1..], &nodes), []);
    }
}
