//! The way into the cluster: the component, whom it asks as, and what it needs to be there.
use super::components::{Cluster, account, administrator, user};
use crate::rootless;
use ::ingress::{Bind, CLASS, Config, INGRESS_CONTROLLER};
use client::source::Collection;
use client::{ApiResource, Client, Context, Status};
use k8s_openapi::api::networking::v1::IngressClass;
use serde_json::json;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;

pub const NAME: &str = "ingress";
/// As whom every node reads what it serves.
pub const USER: &str = "skiff:ingress";

pub async fn run(cluster: Cluster) -> anyhow::Result<()> {
    let config = Config {
        http_port: cluster.machine.ingress_http_port,
        https_port: cluster.machine.ingress_https_port,
        node_name: cluster.node_name.clone(),
        bind: Bind(Arc::new(listen)),
    };
    let source = cluster.source("skiff-ingress", &user(USER, &[]))?;
    let serving = ::ingress::run(cluster.context.clone(), source, config.clone());
    if cluster.pki.is_none() {
        // What nodes serve that have joined is said by the servers.
        return Ok(serving.await?);
    }
    let admin = Client::new(cluster.source("skiff", &administrator())?);
    make_class(&admin)
        .await
        .map_err(|status| anyhow::anyhow!("failed to make an IngressClass: {}", status.message))?;
    let source = cluster.source("skiff-ingress-status", &account(NAME))?;
    let asking = source.clone();
    let work = move |context: Context| ::ingress::write_statuses(context, source, config);
    let saying = cluster.leading.work(&cluster.context, asking, NAME, work);
    let (served, said) = tokio::join!(serving, saying);
    served?;
    said
}

/// Every address of the node; in a user's own network, those of the machine around it.
fn listen(port: u16) -> io::Result<TcpListener> {
    if rootless::is_inside() {
        return rootless::listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    }
    let bind = |address: SocketAddr| {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    // That of IPv6 is those of IPv4 too, where the kernel has both.
    match bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
        }
        bound => bound,
    }
}

const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

/// The class of those Ingresses that we serve. It is the default unless there is one; whatever becomes of
/// it later is its owner's affair.
async fn make_class(admin: &Client) -> Result<(), Status> {
    let all = admin.list(Collection::all(ApiResource::of::<IngressClass>())).await?;
    if all.items.iter().any(|class| class.name() == CLASS) {
        return Ok(());
    }
    let has_default = all.items.iter().any(|class| {
        let class = class.typed::<IngressClass>();
        let annotations = class.ok().and_then(|class| class.metadata.annotations.clone());
        annotations.unwrap_or_default().get(IS_DEFAULT).is_some_and(|value| value == "true")
    });
    let annotations = if has_default { json!({}) } else { json!({ IS_DEFAULT: "true" }) };
    let class = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
        "metadata": { "name": CLASS, "annotations": annotations },
        "spec": { "controller": INGRESS_CONTROLLER },
    });
    match admin.create_in(ApiResource::of::<IngressClass>(), "", class).await {
        // Another server was faster.
        Err(status) if status.code != 409 => Err(status),
        _ => Ok(()),
    }
}
