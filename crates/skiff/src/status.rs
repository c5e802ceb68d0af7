//! `skiff status`: how the cluster on this machine is, in a few lines.
use crate::up::{manifests, running};
use anyhow::Context as _;
use api::selector::label;
use client::https::{Config, Https};
use client::source::{Collection, Page, Raw};
use client::{ApiResource, Context, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Pods that are named when something is wrong with them.
const NAMED: usize = 10;

#[derive(clap::Args)]
pub struct Options {
    /// Where the cluster's state is kept.
    #[arg(long, default_value_os_t = crate::places::data_dir())]
    data_dir: PathBuf,
    /// Ask with another kubeconfig than the administrator's.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let data = &options.data_dir;
    let file = crate::places::kubeconfig(options.kubeconfig.as_ref(), data);
    if !file.exists() && options.kubeconfig.is_none() && data.join("agent/ca.crt").exists() {
        return of_a_node(data).await;
    }
    let config = Config::from_kubeconfig(&file, None)
        .context("is there a cluster here? `skiff up` makes one")?;
    let address = config.server.clone();
    let source = Https::new(&Context::new(), config.for_component("skiff-status"))?;
    let ready = source.raw(Raw::get("/readyz")).await;
    if let Err(status) = ready {
        // What the machine itself knows may say why: a certificate that has ended, a store that is full.
        of_this_machine(data, Timestamp::now()).iter().for_each(|line| println!("{line}"));
        anyhow::bail!(
            "the API server at {address} is not ready: {}; {}",
            status.message,
            remedy(crate::install::is_installed())
        );
    }
    let nodes = all::<Node>(&source).await?;
    let pods = all::<Pod>(&source).await?;
    let version =
        source.raw(Raw::get("/version")).await.map_err(told)?.bytes().await.map_err(told)?;
    let version: serde_json::Value = serde_json::from_slice(&version)?;
    let version = version["gitVersion"].as_str().unwrap_or("?");
    println!("API server  {version}, ready at {address}");
    running::lines(data).await.iter().for_each(|line| println!("{line}"));
    nodes_and_pods(&nodes, &pods).iter().for_each(|line| println!("{line}"));
    let labelled = label::Selector::parse(manifests::LABEL)?;
    let of = Collection::all(ApiResource::of::<ConfigMap>()).in_namespace("kube-system");
    let kept = source.list(of.with_labels(labelled), Page::default()).await.map_err(told)?;
    for object in kept.items {
        applied(&object.decode::<ConfigMap>()?).iter().for_each(|line| println!("{line}"));
    }
    of_this_machine(&options.data_dir, Timestamp::now()).iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// What is known on a machine that has joined: it may not ask for more.
async fn of_a_node(data: &Path) -> anyhow::Result<()> {
    let servers = std::fs::read_to_string(data.join("agent/servers")).unwrap_or_default();
    let servers: Vec<&str> = servers.lines().collect();
    println!("This machine is a node of the cluster at {}.", servers.join(", "));
    running::lines(data).await.iter().for_each(|line| println!("{line}"));
    of_this_machine(data, Timestamp::now()).iter().for_each(|line| println!("{line}"));
    println!("`skiff status` on a server of the cluster says more.");
    Ok(())
}

/// What to do where nothing answers.
fn remedy(is_installed: bool) -> &'static str {
    match is_installed {
        true => {
            "start it with `systemctl start skiff` or `rc-service skiff start`; its log says why it ended"
        }
        false => "`skiff up` starts it",
    }
}

fn told(status: api::status::Status) -> anyhow::Error {
    anyhow::anyhow!(status.message)
}

/// Manifests of a folder, and those that the API server did not take.
fn applied(kept: &ConfigMap) -> Vec<String> {
    let records = manifests::records(kept);
    let objects: usize = records.values().map(manifests::Record::count).sum();
    let files = records.keys().filter(|name| *name != manifests::REMOVED).count();
    let failed = records.iter().filter(|(_, record)| !record.error.is_empty());
    let failed = failed.map(|(file, record)| format!("Manifest    {file}: {}", record.error));
    let all = (files > 0).then(|| format!("Manifests   {objects} objects of {files} files"));
    all.into_iter().chain(failed).collect()
}

/// What only the machine itself knows: how large the store is, and which certificate ends first.
fn of_this_machine(data: &Path, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    let store = data.join("store");
    if store.exists() {
        let size = size(&store) as f64 / f64::from(1 << 20);
        lines.push(format!("Store       {size:.1} MiB in {}", store.display()));
    }
    let mut certificates = crate::certs::found(data);
    certificates.sort_by_key(|one| one.ends);
    if let Some(first) = certificates.first() {
        let days = (first.ends.as_second() - now.as_second()).div_euclid(24 * 60 * 60);
        lines.push(match days {
            ..30 => format!(
                "Certificate {} ends in {days} days: `skiff certs renew` makes it again",
                first.file
            ),
            _ => format!("Certificate {} ends first, in {days} days", first.file),
        });
    }
    lines
}

fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let one = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(one).sum()
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
    for node in nodes.iter().filter(is_ready).take(NAMED) {
        lines.push(format!("            {}", described(node)));
    }
    if ready > NAMED {
        lines.push(format!("            and {} more", ready - NAMED));
    }
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

/// A node's name, version and addresses, and what it lacks though it is ready.
fn described(node: &Node) -> String {
    let status = node.status.clone().unwrap_or_default();
    let name = node.metadata.name.as_deref().unwrap_or("?");
    let version = status.node_info.map(|info| info.kubelet_version).unwrap_or_default();
    let addresses = status.addresses.unwrap_or_default();
    let addresses: Vec<&str> = addresses
        .iter()
        .filter(|one| one.type_ == "InternalIP" || one.type_ == "ExternalIP")
        .map(|one| &*one.address)
        .collect();
    let conditions = status.conditions.unwrap_or_default();
    let mut wrong: Vec<String> = conditions
        .iter()
        .filter(|one| one.type_ != "Ready" && one.status == "True")
        .map(|one| one.type_.clone())
        .collect();
    if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) {
        wrong.push(format!("cordoned (`kubectl uncordon {name}` takes that back)"));
    }
    let parts = [version, addresses.join(" "), wrong.join(", ")];
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.fold(name.to_owned(), |line, part| line + ", " + part)
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
    fn a_certificate_that_ends_soon_and_a_refused_manifest_are_named() {
        let data = tempfile::tempdir().unwrap();
        ::apiserver::pki::Pki::open(&data.path().join("pki")).unwrap();
        std::fs::create_dir(data.path().join("store")).unwrap();
        std::fs::write(data.path().join("store/log"), vec![0; 3 << 19]).unwrap();
        let after = |days: i64| Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
        let said = of_this_machine(data.path(), after(0));
        assert!(said[0].starts_with("Store       1.5 MiB in /"), "{said:?}");
        assert!(said[1].contains("ends first, in 36"), "{said:?}");
        let said = of_this_machine(data.path(), after(350));
        assert!(
            said[1].contains(" ends in 1")
                && said[1].ends_with("days: `skiff certs renew` makes it again"),
            "{said:?}"
        );
        let kept: ConfigMap = serde_json::from_value(json!({ "data": {
            "good.yaml": "{}", "bad.yaml": "{\"error\": \"Pod x: no\"}" } }))
        .unwrap();
        assert_eq!(
            applied(&kept),
            ["Manifests   0 objects of 2 files", "Manifest    bad.yaml: Pod x: no"]
        );
        assert_eq!(applied(&ConfigMap::default()), Vec::<String>::new());
    }

    #[test]
    fn nodes_are_told_with_what_they_are_and_lack() {
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": "a" }, "spec": { "unschedulable": true },
            "status": {
                "nodeInfo": { "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                    "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "v1.37.0",
                    "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "" },
                "addresses": [{ "type": "Hostname", "address": "a" },
                    { "type": "InternalIP", "address": "192.0.2.1" },
                    { "type": "InternalIP", "address": "fd00::1" }],
                "conditions": [{ "type": "Ready", "status": "True" },
                    { "type": "DiskPressure", "status": "True" },
                    { "type": "PIDPressure", "status": "False" }] } }))
        .expect("a node");
        assert_eq!(
            described(&node),
            "a, v1.37.0, 192.0.2.1 fd00::1, DiskPressure, cordoned (`kubectl uncordon a` takes that back)"
        );
        assert_eq!(described(&Node::default()), "?");
    }

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
                "            a",
                "            b: no network",
                "Pods        1 pending, 2 running",
                "            default/big: 0/1 nodes are available",
                "            default/bad: CrashLoopBackOff: back-off 40s",
            ]
        );
        assert_eq!(nodes_and_pods(&[], &[]), ["Nodes       0 of 0 ready", "Pods        none"]);
    }
}
