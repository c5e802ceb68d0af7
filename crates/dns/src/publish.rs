//! Where the cluster finds its DNS: the Service that every installer makes, leading to us.
use api::rules::Form;
use client::source::{Ask, Call, Patch, Write};
use client::{ApiResource, Client, Status};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};

const NAMESPACE: &str = "kube-system";
const SERVICE: &str = "kube-dns";

/// The Service `kube-dns` at an address of its own, and the way from there to where a server of
/// this name listens. Called again after a change, or a restart.
pub async fn publish(
    client: &Client,
    server: &str,
    cluster_ips: &[IpAddr],
    listen: &[SocketAddr],
    metrics: Option<SocketAddr>,
) -> Result<(), Status> {
    let labels = json!({
        "k8s-app": SERVICE,
        "kubernetes.io/cluster-service": "true",
        "kubernetes.io/name": "CoreDNS",
    });
    // As CoreDNS's service has them.
    let ports = |dns: u16, metrics: Option<SocketAddr>| {
        let port =
            |name, protocol, port| json!({ "name": name, "protocol": protocol, "port": port });
        let metrics = metrics.map(|at| port("metrics", "TCP", at.port()));
        let dns = [port("dns", "UDP", dns), port("dns-tcp", "TCP", dns)];
        dns.into_iter().chain(metrics).collect::<Vec<_>>()
    };
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": SERVICE, "namespace": NAMESPACE, "labels": labels },
        "spec": {
            "clusterIP": cluster_ips.first(),
            "clusterIPs": cluster_ips,
            "ipFamilyPolicy": if cluster_ips.len() > 1 { "PreferDualStack" } else { "SingleStack" },
            "ports": ports(53, metrics),
        },
    });
    // No selector: nobody but us makes its endpoints.
    apply::<Service>(client, SERVICE, service).await?;
    for (family, is_ipv4) in [("IPv4", true), ("IPv6", false)] {
        let name = format!("{SERVICE}-{server}-{}", family.to_ascii_lowercase());
        let Some(at) = listen.iter().find(|address| address.is_ipv4() == is_ipv4) else { continue };
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {
                    "k8s-app": SERVICE,
                    "kubernetes.io/service-name": SERVICE,
                    "endpointslice.kubernetes.io/managed-by": "skiff-dns",
                },
            },
            "addressType": family,
            "endpoints": [{ "addresses": [at.ip()], "nodeName": server, "conditions": { "ready": true } }],
            "ports": ports(at.port(), metrics.filter(|metrics| metrics.is_ipv4() == is_ipv4)),
        });
        apply::<EndpointSlice>(client, &name, slice).await?;
    }
    Ok(())
}

/// As it is to be, whoever changed it.
async fn apply<T: Form>(client: &Client, name: &str, tree: Value) -> Result<(), Status> {
    let write = Write { force: true, ..Write::managed_by("skiff-dns") };
    let call = Call {
        resource: ApiResource::of::<T>(),
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        subresource: "".into(),
        ask: Ask::Patch(Patch::Apply(tree), write),
    };
    client.source().call(call).await.map(drop)
}
