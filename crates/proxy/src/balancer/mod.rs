//! The load balancer that a cluster has without a cloud: a Service of type LoadBalancer gets the
//! addresses of the nodes, on which the proxy of each serves it, or one of a pool.
//!
//! ```text
//!  informers ── facts ──► plan: which addresses each service has      (pure)
//!                           └──► status.loadBalancer.ingress, an event where there is none
//! ```
//!
//! Nothing runs in between: a packet to one of these addresses is led to an endpoint by the rules
//! of the node that it comes to, with its source kept where `externalTrafficPolicy` is `Local`.
//! Services with a `loadBalancerClass` are somebody else's.
pub mod announce;
mod facts;
mod plan;
mod seen;

pub use api::pool::{Pool, PoolError};

use api::names::NamespacedName;
use client::events::{Happening, Recorder, Reporter};
use client::source::Patch;
use client::{Client, Context, Informers, Source};
use k8s_openapi::api::core::v1::{ObjectReference, Service};
use plan::{Wanted, plan};
use seen::Seen;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// What the balancer is told.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Addresses to give; empty: those of the nodes.
    pub pool: Pool,
    /// Ports of the nodes that no service gets: Kubernetes' own.
    pub reserved: Vec<u16>,
}

const NAME: &str = "servicelb";
const RETRY: Duration = Duration::from_secs(1);

/// Runs until the context stops; services keep what they have.
pub async fn run(context: Context, source: Arc<dyn Source>, settings: Settings) {
    let client = Client::new(source.clone()).managed_by(NAME);
    let recorder = Recorder::core(&context, client.clone(), Reporter::new(NAME, ""));
    let informers = Informers::new(&context, source);
    let changed = Arc::new(Notify::new());
    let seen = Seen::new(&informers, &changed);
    tokio::select! {
        () = informers.synced() => {}
        () = context.stopped() => return,
    }
    let mut refused = BTreeMap::new();
    loop {
        let wanted = plan(&seen.world(), &settings);
        let mut is_done = true;
        for (key, wanted) in &wanted {
            is_done &= write(&client, key, wanted).await;
        }
        tell(&recorder, &mut refused, wanted);
        let again = async {
            match is_done {
                true => changed.notified().await,
                false => tokio::time::sleep(RETRY).await,
            }
        };
        tokio::select! {
            () = again => {}
            () = context.stopped() => return,
        }
    }
}

/// Whether the service's status says now what it should.
async fn write(client: &Client, key: &NamespacedName, wanted: &Wanted) -> bool {
    if wanted.is_said {
        return true;
    }
    let ingress: Vec<_> =
        wanted.addresses.iter().map(|ip| json!({ "ip": ip, "ipMode": "VIP" })).collect();
    let balancer = match ingress.is_empty() {
        true => json!(null),
        false => json!(ingress),
    };
    let patch = Patch::Merge(json!({ "status": { "loadBalancer": { "ingress": balancer } } }));
    match client.patch_status::<Service>(&key.namespace, &key.name, patch).await {
        Ok(_) => true,
        // It is gone: whoever tells of services says so soon.
        Err(status) if status.code == 404 => true,
        Err(status) => {
            tracing::warn!(service = %key, error = status.message, "failed to write a load balancer's addresses");
            false
        }
    }
}

/// Says once of each service why it has no address.
fn tell(
    recorder: &Recorder,
    told: &mut BTreeMap<NamespacedName, String>,
    wanted: BTreeMap<NamespacedName, Wanted>,
) {
    told.retain(|key, _| wanted.get(key).is_some_and(|one| one.refusal.is_some()));
    for (key, wanted) in wanted {
        let Some(refusal) = wanted.refusal else { continue };
        if told.get(&key) == Some(&refusal) {
            continue;
        }
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(key.namespace.to_string()),
            name: Some(key.name.to_string()),
            uid: Some(wanted.uid),
            ..ObjectReference::default()
        };
        recorder.record(Happening::warning(regarding, "SyncLoadBalancerFailed", refusal.clone()));
        told.insert(key, refusal);
    }
}

#[cfg(test)]
mod tests;
