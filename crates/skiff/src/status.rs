//! `skiff status`: how the cluster on this machine is, in a few lines.
use anyhow::Context as _;
use client::https::{Config, Https};
use client::source::{Collection, Page, Raw};
use client::{ApiResource, Context, Source};
use k8s_openapi::api::core::v1::{Node, Pod};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Pods that are named when something is wrong with them.
const NAMED: usize = 10;

#[derive(clap::Args)]
pub struct Options {
    /// Where the cluster's state is kept.
    #[arg(long, default_value = "/var/lib/skiff")]
    data_dir: PathBuf,
    /// Ask with another kubeconfig than the administrator's.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let file = options.kubeconfig.unwrap_or_else(|| options.data_dir.join("kubeconfig"));
    let config = Config::from_kubeconfig(&file, None)
        .context("is there a cluster here? `skiff up` makes one")?;
    let address = config.server.clone();
    let source = Https::new(&Context::new(), config.for_component("skiff-status"))?;
    let ready = source.raw(Raw::get("/readyz")).await;
    ready.map_err(|status| {
        anyhow::anyhow!("the API server at {address} is not ready: {}", status.message)
    })?;
    let nodes = all::<Node>(&source).await?;
    let pods = all::<Pod>(&source).await?;
    println!("API server  ready at {address}");
    nodes_and_pods(&nodes, &pods).iter().for_each(|line| println!("{line}"));
    Ok(())
}

async fn all<T: api::rules::Form>(source: &dyn Source) -> anyhow::Result<Vec<T>> {
    let of = Collection::all(ApiResource::of::<T>());
    let list = source.list(of, Page::default()).await.map_err(|s| anyhow::anyhow!(s.message))?;
    Ok(list.items.iter().map(|object| object.decode::<T>()).collect::<Result<_, _>>()?)
}

/// What is said of them.
fn nodes_and_pods(nodes: &[Node], pods: &[Pod]) -> Vec<String> {
    let is_ready = |node: &&Node| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    let ready = nodes.iter().filter(is_ready).count();
    let mut lines = vec![format!("Nodes       {ready} of {} ready", nodes.len())];
    for node in nodes.iter().filter(|node| !is_ready(node)) {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let why = conditions.into_iter().find(|one| one.type_ == "Ready");
        let why = why.and_then(|one| one.message.clone()).unwrap_or_default();
        lines.push(format!("            {}: {why}", node.metadata.name.as_deref().unwrap_or("?")));
    }
    let phase = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        phase.unwrap_or_else(|| "Pending".to_owned())
    };
    let mut count = BTreeMap::<String, usize>::new();
    pods.iter().for_each(|pod| *count.entry(phase(pod)).or_default() += 1);
    let counted: Vec<_> =
        count.iter().map(|(phase, n)| format!("{n} {}", phase.to_lowercase())).collect();
    let counted = if counted.is_empty() { "none".to_owned() } else { counted.join(", ") };
    lines.push(format!("Pods        {counted}"));
    let troubled: Vec<_> = pods.iter().filter_map(|pod| Some((pod, trouble(pod)?))).collect();
    for (pod, why) in troubled.iter().take(NAMED) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        lines.push(format!(
            "            {}/{}: {why}",
            text(&pod.metadata.namespace),
            text(&pod.metadata.name)
        ));
    }
    if troubled.len() > NAMED {
        lines.push(format!("            and {} more", troubled.len() - NAMED));
    }
    lines
}

/// Why a pod does not run, if it should.
fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.iter().flatten();
    let unscheduled =
        conditions.into_iter().find(|one| one.type_ == "PodScheduled" && one.status == "False");
    if let Some(condition) = unscheduled {
        return Some(condition.message.clone().unwrap_or_default());
    }
    let containers = status.container_statuses.iter().flatten();
    let all = containers.chain(status.init_container_statuses.iter().flatten());
    let mut waiting = all.filter_map(|one| one.state.as_ref()?.waiting.as_ref());
    let usual = ["ContainerCreating", "PodInitializing"];
    let why = waiting.find(|why| !usual.contains(&why.reason.as_deref().unwrap_or_default()))?;
    let reason = why.reason.clone().unwrap_or_default();
    Some(match &why.message {
        Some(message) => format!("{reason}: {message}"),
        None => reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_wrong_is_named() {
        let node = |name: &str, status: &str| -> Node {
            serde_json::from_value(json!({ "metadata": { "name": name }, "status": { "conditions":
                [{ "type": "Ready", "status": status, "message": "no network" }] } }))
            .expect("a node")
        };
        let pod = |name: &str, status: serde_json::Value| -> Pod {
            let metadata = json!({ "namespace": "default", "name": name });
            serde_json::from_value(json!({ "metadata": metadata, "status": status }))
                .expect("a pod")
        };
        let pods = [
            pod("good", json!({ "phase": "Running" })),
            pod(
                "big",
                json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled",
                "status": "False", "message": "0/1 nodes are available" }] }),
            ),
            pod(
                "bad",
                json!({ "phase": "Running", "containerStatuses": [{ "name": "c", "image": "",
                "imageID": "", "ready": false, "restartCount": 3, "state": { "waiting": {
                "reason": "CrashLoopBackOff", "message": "back-off 40s" } } }] }),
            ),
        ];
        let said = nodes_and_pods(&[node("a", "True"), node("b", "False")], &pods);
        assert_eq!(
            said,
            [
                "Nodes       1 of 2 ready",
                "            b: no network",
                "Pods        1 pending, 2 running",
                "            default/big: 0/1 nodes are available",
                "            default/bad: CrashLoopBackOff: back-off 40s",
            ]
        );
        assert_eq!(nodes_and_pods(&[], &[]), ["Nodes       0 of 0 ready", "Pods        none"]);
    }
}
