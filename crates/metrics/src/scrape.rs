//! Kubelets are asked, each in its own time, for as long as there are Nodes of them.
use crate::sample::Sample;
use crate::world::World;
use client::http::Dial;
use client::http::tls::{Believed, Pem};
use client::https::{Config, Https, Proof, Token};
use client::source::{Raw, Source};
use client::{Context, Informer};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Upstream's metrics server looks as often.
const EVERY: Duration = Duration::from_secs(15);
/// The first two looks at a node are close to each other: whoever has just begun wants to know.
const SOON: Duration = Duration::from_secs(2);
/// A kubelet that takes longer is asked again next time.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than any honest kubelet says.
const MOST: usize = 16 << 20;

/// How kubelets are reached.
#[derive(Clone)]
pub struct Kubelets {
    /// Who signs what they serve with.
    pub authority: PathBuf,
    /// What we show them; somebody renews it.
    pub token: Arc<Mutex<String>>,
    /// How those are reached that cannot be dialled.
    pub ways: Arc<WayTo>,
}

/// Connections to a port of a node, if there is a way of its own.
pub type WayTo = dyn Fn(&str, u16) -> Option<Dial> + Send + Sync;

/// Looks at every node there is until the context stops.
pub async fn run(context: Context, nodes: Informer<Node>, kubelets: Kubelets, world: Arc<World>) {
    let changed = Arc::new(tokio::sync::Notify::new());
    nodes.on_change({
        let changed = changed.clone();
        move |_| changed.notify_one()
    });
    let mut looking: HashMap<String, (String, JoinHandle<()>)> = HashMap::new();
    loop {
        let wanted: HashMap<String, String> = {
            let known = nodes.read();
            known.iter().filter_map(|(_, node)| Some((name_of(node)?, address(node)?))).collect()
        };
        looking.retain(|node, (at, task)| {
            let stays = wanted.get(node) == Some(at);
            if !stays {
                task.abort();
                world.forget(node);
            }
            stays
        });
        for (node, at) in wanted {
            looking.entry(node.clone()).or_insert_with(|| {
                let look =
                    look_at(context.clone(), node, at.clone(), kubelets.clone(), world.clone());
                (at, tokio::spawn(look))
            });
        }
        tokio::select! {
            () = changed.notified() => {}
            () = context.stopped() => break,
        }
    }
    looking.into_values().for_each(|(_, task)| task.abort());
}

fn name_of(node: &Node) -> Option<String> {
    node.metadata.name.clone()
}

/// `https://address:port` of its kubelet.
fn address(node: &Node) -> Option<String> {
    let status = node.status.as_ref()?;
    let addresses = status.addresses.as_deref().unwrap_or_default();
    let of_type = |wanted: &str| addresses.iter().find(|one| one.type_ == wanted);
    let found = ["InternalIP", "ExternalIP"].into_iter().find_map(of_type)?;
    let port = status.daemon_endpoints.as_ref()?.kubelet_endpoint.as_ref()?.port;
    Some(match found.address.contains(':') {
        true => format!("https://[{}]:{port}", found.address),
        false => format!("https://{}:{port}", found.address),
    })
}

async fn look_at(
    context: Context,
    node: String,
    at: String,
    kubelets: Kubelets,
    world: Arc<World>,
) {
    let mut looks = 0_u32;
    loop {
        match tokio::time::timeout(PATIENCE, page(&context, &node, &at, &kubelets)).await {
            Ok(Ok(page)) => {
                world.saw(&node, Sample::read(&page, context.now()));
                looks += 1;
            }
            Ok(Err(problem)) => tracing::debug!(node, problem, "a kubelet tells no usage"),
            Err(_) => tracing::debug!(node, "a kubelet does not answer"),
        }
        let pause = if looks < 2 { SOON } else { EVERY };
        if !context.sleep(pause).await {
            return;
        }
    }
}

async fn page(
    context: &Context,
    node: &str,
    at: &str,
    kubelets: &Kubelets,
) -> Result<String, String> {
    let token = Token::Given(kubelets.token.lock().clone());
    let proof = Proof { token: Some(token), ..Proof::default() };
    let believed = Believed::Authorities(Pem::File(kubelets.authority.clone()));
    let port = at.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let dial = port.and_then(|port| (kubelets.ways)(node, port));
    let config = Config { dial, ..Config::new(at, believed, proof) };
    let config = config.for_component("metrics-server");
    let kubelet = Https::new(context, config).map_err(|error| error.to_string())?;
    let answer = kubelet.raw(Raw::get("/metrics/resource")).await;
    let body = answer.map_err(|status| status.message)?.bytes().await;
    let body = body.map_err(|status| status.message)?;
    if body.len() > MOST {
        return Err(format!("it says {} bytes", body.len()));
    }
    String::from_utf8(body.into()).map_err(|error| error.to_string())
}
