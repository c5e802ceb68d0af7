//! The way into the cluster: the component, whom it asks as, and what it needs to be there.
use super::OF_NODE;
use super::addons::made;
use super::components::{Cluster, account, administrator};
use crate::rootless;
use ::ingress::{Bind, CLASS, Config, GATEWAY_GROUP, INGRESS_CONTROLLER};
use client::source::{Collection, Patch};
use client::{ApiResource, Client, Context, Status};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::networking::v1::IngressClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};

pub const NAME: &str = "ingress";

pub async fn run(cluster: Cluster) -> anyhow::Result<()> {
    let config = Config {
        http_port: cluster.machine.ingress_http_port,
        https_port: cluster.machine.ingress_https_port,
        pool: cluster.gateway_pool.clone(),
        node_name: cluster.node_name.clone(),
        bind: Bind { connections: Arc::new(listen), datagrams: Arc::new(take_datagrams) },
    };
    let source = cluster.source("skiff-ingress", &account(NAME))?;
    // A server that is no node has no way to pods.
    let is_node = OF_NODE.iter().any(|name| cluster.runs(name));
    let (context, served) = (cluster.context.clone(), config.clone());
    let serving = async move {
        match is_node {
            true => ::ingress::run(context, source, served).await,
            false => {
                context.stopped().await;
                Ok(())
            }
        }
    };
    let admin = Client::new(cluster.source("skiff", &administrator())?).managed_by("skiff");
    let source = cluster.source("skiff-ingress-status", &account(NAME))?;
    let asking = source.clone();
    let work = move |context: Context| ::ingress::write_statuses(context, source, config);
    let saying = cluster.leading.work(&cluster.context, asking, NAME, work);
    let (served, said, ()) = tokio::join!(serving, saying, install(&cluster, &admin));
    served?;
    said
}

const RETRY: Duration = Duration::from_secs(1);

/// Makes what is to be there from the first boot on, and says that this machine's node is one that serves.
async fn install(cluster: &Cluster, admin: &Client) {
    let context = &cluster.context;
    loop {
        let outcome = async {
            make_class(admin).await?;
            define_gateways(context, admin).await?;
            mark(cluster, admin, json!("true")).await
        };
        match outcome.await {
            Ok(()) => return,
            Err(status) => {
                tracing::warn!(error = status.message, "failed to make the classes of ingress");
            }
        }
        if !context.sleep(RETRY).await {
            return;
        }
    }
}

/// What is served is found at nodes with this label: only servers serve, for a node that joined may not read
/// Secrets. A server that does not serve takes it away.
pub async fn mark(cluster: &Cluster, admin: &Client, value: Value) -> Result<(), Status> {
    if !cluster.runs("kubelet") {
        return Ok(());
    }
    let patch = Patch::Merge(json!({ "metadata": { "labels": { ::ingress::SERVES: value } } }));
    admin.patch::<Node>("", &cluster.node_name, patch).await.map(drop)
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

/// In a user's own network datagrams come from inside alone: nobody carries them in.
fn take_datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
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
    // Another server may be faster.
    made(admin.create_in(ApiResource::of::<IngressClass>(), "", class).await)
}

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Gateway API and our class of Gateways, unless somebody else has brought another release of it: then all
/// of it is theirs.
async fn define_gateways(context: &Context, admin: &Client) -> Result<(), Status> {
    let definitions = ApiResource::of::<CustomResourceDefinition>();
    let all = admin.list(Collection::all(definitions.clone())).await?;
    let of_it = |name: &str| name.split_once('.').is_some_and(|(_, group)| group == GATEWAY_GROUP);
    let mut there = Vec::new();
    for one in all.items.iter().filter(|one| of_it(one.name())) {
        let labels = one.typed::<CustomResourceDefinition>().map(|one| one.metadata.labels.clone());
        let labels = labels.ok().flatten().unwrap_or_default();
        if labels.get(MANAGED_BY).is_none_or(|by| by != "skiff") {
            return Ok(());
        }
        there.push(one.name().to_owned());
    }
    let mut is_new = false;
    for mut definition in ::ingress::gateway_definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if there.contains(&name) {
            continue;
        }
        is_new = true;
        definition["metadata"]["labels"] = json!({ MANAGED_BY: "skiff" });
        made(admin.create_in(definitions.clone(), "", definition).await)?;
    }
    if !is_new {
        return Ok(());
    }
    let (resource, class) = ::ingress::gateway_class();
    for _ in 0..30 {
        match made(admin.create_in(resource.clone(), "", class.clone()).await) {
            // What was just defined is served a moment later.
            Err(status) if status.code == 404 => {}
            outcome => return outcome,
        }
        if !context.sleep(RETRY / 10).await {
            break;
        }
    }
    Ok(())
}
