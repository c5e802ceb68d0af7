//! Ports of the machine that lead into a user's cluster: those of services that are meant to be reached
//! from outside. Only what TCP carries; others are reached from inside alone.
use super::inside::{bring, listen};
use client::source::Collection;
use client::{ApiResource, Context, Informer, Source};
use k8s_openapi::api::core::v1::Service;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub const NAME: &str = "ports";

/// Brings what comes to the machine's ports to the node's, until the context stops.
pub async fn run(context: &Context, source: Arc<dyn Source>, node: IpAddr) {
    let of = Collection::all(ApiResource::of::<Service>());
    let services = Informer::<Service>::start(context, source, of);
    let changed = Arc::new(Notify::new());
    services.on_change({
        let changed = changed.clone();
        move |_| changed.notify_one()
    });
    let mut open: BTreeMap<u16, JoinHandle<()>> = BTreeMap::new();
    let mut refused = BTreeSet::new();
    loop {
        let wanted: BTreeSet<u16> = {
            let services = services.read();
            services.iter().flat_map(|(_, service)| ports(service)).collect()
        };
        open.retain(|port, task| {
            let stays = wanted.contains(port);
            if !stays {
                task.abort();
            }
            stays
        });
        refused.retain(|port| wanted.contains(port));
        for port in wanted {
            if open.contains_key(&port) {
                continue;
            }
            match listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)) {
                Ok(listener) => {
                    let to = SocketAddr::new(node, port);
                    open.insert(port, tokio::spawn(bring(listener, to)));
                }
                // Said once: it may be taken, or too low for a user.
                Err(error) if refused.insert(port) => {
                    tracing::warn!("port {port} of the machine does not lead here: {error}");
                }
                Err(_) => {}
            }
        }
        tokio::select! {
            () = changed.notified() => {}
            () = context.stopped() => return,
        }
    }
}

/// Those of a service that clients outside of the cluster are told.
fn ports(service: &Service) -> Vec<u16> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let kind = spec.type_.as_deref().unwrap_or_default();
    let by_tcp = spec
        .ports
        .iter()
        .flatten()
        .filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
    let mut found = Vec::new();
    for port in by_tcp {
        if matches!(kind, "NodePort" | "LoadBalancer") {
            found.extend(port.node_port);
        }
        if kind == "LoadBalancer" {
            found.push(port.port);
        }
    }
    found.into_iter().filter_map(|port| u16::try_from(port).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(service: serde_json::Value, expected: &[u16]) {
        let service = serde_json::from_value(serde_json::json!({ "spec": service })).unwrap();
        assert_eq!(ports(&service), expected, "{service:?}");
    }

    #[test]
    fn only_what_is_meant_for_others_has_ports_of_the_machine() {
        let ports = serde_json::json!([
            { "port": 80, "nodePort": 30080 },
            { "port": 53, "nodePort": 30053, "protocol": "UDP" },
        ]);
        let of = |kind: &str| serde_json::json!({ "type": kind, "ports": ports });
        check(of("ClusterIP"), &[]);
        check(of("NodePort"), &[30080]);
        check(of("LoadBalancer"), &[30080, 80]);
        check(serde_json::json!({}), &[]);
    }
}
