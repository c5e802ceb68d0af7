//! Who tells what nodes and pods use: the component, and the objects by which the API server finds it.
use super::addons;
use super::components::{Cluster, account, administrator};
use ::apiserver::tls;
use anyhow::Context as _;
use api::status::Status;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::source::{Ask, Call, Write};
use client::{ApiResource, Client};
use k8s_openapi::api::core::v1::ServiceAccount;
use metrics::{Kubelets, Serving};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

pub const NAME: &str = "metrics-server";
const NAMESPACE: &str = "kube-system";
/// As upstream's manifests had it before its pods shared the kubelet's.
pub const PORT: u16 = 4443;
/// How long a token is good that kubelets are shown, and when it is made anew.
const TOKEN_SECONDS: u64 = 3600;

pub async fn run(cluster: Cluster) -> anyhow::Result<()> {
    let pki = cluster.pki.clone().context("the cluster's keys are elsewhere")?;
    let admin = Client::new(cluster.source("skiff", &administrator())?);
    let listener = TcpListener::bind((cluster.node_ip(), PORT))
        .await
        .with_context(|| format!("failed to listen on {}:{PORT}", cluster.node_ip()))?;
    let authority = STANDARD.encode(std::fs::read(pki.ca())?);
    let found_by = objects(listener.local_addr()?, &cluster.node_name, &authority);
    addons::apply(&admin, found_by).await?;
    let token = Arc::new(Mutex::new(token(&admin).await.map_err(|status| {
        anyhow::anyhow!("failed to make a token of {NAME}: {}", status.message)
    })?));
    let tls = tls::server_for(&pki.pair(NAME), &pki.front_proxy_ca())?;
    let kubelets = Kubelets { authority: pki.ca(), token, ways: cluster.ways.clone() };
    let source = cluster.source(NAME, &account(NAME))?;
    // Last: one that is started again must not leave another behind each time.
    tokio::spawn(renew(cluster.clone(), admin, kubelets.token.clone()));
    metrics::run(cluster.context.clone(), source, kubelets, Serving { listener, tls }).await;
    Ok(())
}

/// What kubelets know us by.
async fn token(admin: &Client) -> Result<String, Status> {
    let wanted = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": { "expirationSeconds": TOKEN_SECONDS },
    });
    let call = Call {
        resource: ApiResource::of::<ServiceAccount>(),
        namespace: NAMESPACE.to_owned(),
        name: NAME.to_owned(),
        subresource: "token".into(),
        ask: Ask::Create(wanted, Write::default()),
    };
    let made = admin.source().call(call).await?.object()?;
    let tree = made.tree().map_err(Status::internal_error)?;
    Ok(tree["status"]["token"].as_str().unwrap_or_default().to_owned())
}

async fn renew(cluster: Cluster, admin: Client, kept: Arc<Mutex<String>>) {
    while cluster.context.sleep(Duration::from_secs(TOKEN_SECONDS / 2)).await {
        match token(&admin).await {
            Ok(token) => *kept.lock() = token,
            Err(status) => tracing::warn!(problem = status.message, "a token was not renewed"),
        }
    }
}

/// The objects by which it is found, for this address.
fn objects(at: SocketAddr, node: &str, authority: &str) -> Vec<Value> {
    let labels = json!({ "k8s-app": NAME });
    let family = if at.is_ipv4() { "IPv4" } else { "IPv6" };
    let mut objects = vec![
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": NAME, "namespace": NAMESPACE, "labels": labels },
            "spec": { "ports": [{ "name": "https", "port": 443, "protocol": "TCP",
                "targetPort": PORT }] },
        }),
        // No selector: nobody but us makes its endpoints.
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{NAME}-{node}"), "namespace": NAMESPACE,
                "labels": { "kubernetes.io/service-name": NAME,
                    "endpointslice.kubernetes.io/managed-by": "skiff-metrics" },
            },
            "addressType": family,
            "endpoints": [{ "addresses": [at.ip()], "nodeName": node, "conditions": { "ready": true } }],
            "ports": [{ "name": "https", "port": at.port(), "protocol": "TCP" }],
        }),
    ];
    for (version, priority) in [("v1", 110), ("v1beta1", 100)] {
        objects.push(json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": format!("{version}.metrics.k8s.io"), "labels": labels },
            "spec": {
                "group": "metrics.k8s.io", "version": version,
                "groupPriorityMinimum": 100, "versionPriority": priority,
                "caBundle": authority,
                "service": { "name": NAME, "namespace": NAMESPACE, "port": 443 },
            },
        }));
    }
    objects
}
