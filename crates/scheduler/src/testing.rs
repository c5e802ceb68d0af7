//! Clusters as text, and what is decided in them.
//!
//! A line is a kind, a name (`other/web` in another namespace than `default`), and what is
//! peculiar: a word of [`SHORT`] (`cpu=2`), or any path (`spec.nodeName=a`).
use crate::decide::{Decider, Decision};
use crate::engine::Engine;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::preemption::{Preemption, Victim};
use api::names::NamespacedName;
use api::object::{Keep, Object};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

pub fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().expect("a moment")
}

/// Words of a line, and the path that each is short for.
const SHORT: &[(&str, &str, &str)] = &[
    ("pod", "cpu", "spec.containers.0.resources.requests.cpu"),
    ("pod", "memory", "spec.containers.0.resources.requests.memory"),
    ("pod", "gpu", "spec.containers.0.resources.requests.e\\.com/gpu"),
    ("pod", "image", "spec.containers.0.image"),
    ("pod", "port", "spec.containers.0.ports.0.hostPort"),
    ("pod", "ip", "spec.containers.0.ports.0.hostIP"),
    ("pod", "node", "spec.nodeName"),
    ("pod", "nominated", "status.nominatedNodeName"),
    ("pod", "priority", "spec.priority"),
    ("pod", "selector", "spec.nodeSelector"),
    ("pod", "tolerations", "spec.tolerations"),
    ("pod", "affinity", "spec.affinity"),
    ("pod", "spread", "spec.topologySpreadConstraints"),
    ("pod", "claim", "spec.volumes.0.persistentVolumeClaim.claimName"),
    ("pod", "started", "status.startTime"),
    ("node", "cpu", "status.allocatable.cpu"),
    ("node", "memory", "status.allocatable.memory"),
    ("node", "gpu", "status.allocatable.e\\.com/gpu"),
    ("node", "pods", "status.allocatable.pods"),
    ("node", "taints", "spec.taints"),
    ("node", "unschedulable", "spec.unschedulable"),
    ("node", "images", "status.images"),
    ("node", "zone", "metadata.labels.topology\\.kubernetes\\.io/zone"),
    ("claim", "volume", "spec.volumeName"),
    ("claim", "class", "spec.storageClassName"),
    ("claim", "size", "spec.resources.requests.storage"),
    ("claim", "modes", "spec.accessModes"),
    ("claim", "phase", "status.phase"),
    ("volume", "class", "spec.storageClassName"),
    ("volume", "size", "spec.capacity.storage"),
    ("volume", "modes", "spec.accessModes"),
    ("volume", "phase", "status.phase"),
    ("volume", "on", "spec.nodeAffinity.required.nodeSelectorTerms"),
    ("volume", "zone", "metadata.labels.topology\\.kubernetes\\.io/zone"),
    ("service", "selector", "spec.selector"),
    ("budget", "selector", "spec.selector.matchLabels"),
    ("budget", "allowed", "status.disruptionsAllowed"),
    ("class", "provisioner", "provisioner"),
    ("class", "mode", "volumeBindingMode"),
    ("csinode", "drivers", "spec.drivers"),
    ("attachment", "node", "spec.nodeName"),
    ("attachment", "driver", "spec.attacher"),
    ("attachment", "volume", "spec.source.persistentVolumeName"),
    ("slice", "node", "spec.nodeName"),
    ("slice", "all", "spec.allNodes"),
    ("slice", "devices", "spec.devices"),
    ("slice", "counters", "spec.sharedCounters"),
    ("deviceclass", "selector", "spec.selectors.0.cel.expression"),
    ("deviceclass", "resource", "spec.extendedResourceName"),
    ("deviceclaim", "requests", "spec.devices.requests"),
    ("deviceclaim", "constraints", "spec.devices.constraints"),
    ("deviceclaim", "results", "status.allocation.devices.results"),
    ("pod", "devices", "spec.resourceClaims"),
    ("pod", "group", "spec.schedulingGroup.podGroupName"),
    ("node", "features", "status.declaredFeatures"),
];

/// A line's object: its kind and its tree.
pub fn tree(line: &str) -> (String, Value) {
    let mut words = split(line).into_iter();
    let kind = words.next().expect("a kind");
    let name = words.next().expect("a name");
    let (namespace, name) = name.split_once('/').unwrap_or(("default", &name));
    let mut tree = json!({ "metadata": { "name": name, "uid": format!("{name}-uid"),
        "namespace": namespace, "resourceVersion": "1" } });
    match kind.as_str() {
        "pod" => tree["spec"] = json!({ "containers": [{ "name": "c" }] }),
        "node" => {
            let roomy = json!({ "cpu": "4", "memory": "8Gi", "pods": "110" });
            tree["status"] = json!({ "allocatable": roomy });
            tree["metadata"]["labels"] = json!({ "kubernetes.io/hostname": name });
        }
        "slice" => {
            tree["spec"] = json!({ "driver": "gpu.io",
                "pool": { "name": name, "generation": 1, "resourceSliceCount": 1 } });
        }
        "deviceclass" => tree["spec"] = json!({}),
        "budget" => {
            tree["status"] = json!({ "currentHealthy": 0, "desiredHealthy": 0,
            "expectedPods": 0 })
        }
        _ => {}
    }
    for word in words {
        let (path, value) = word.split_once('=').unwrap_or((&word, "true"));
        let value: Value = match (path, serde_json::from_str::<Value>(value)) {
            // Quantities and labels are texts.
            ("cpu" | "memory" | "gpu" | "size" | "pods", _) => value.into(),
            (path, _) if path.starts_with("labels.") => value.into(),
            (_, Ok(value)) => value,
            (_, Err(_)) => value.into(),
        };
        match (path, kind.as_str()) {
            ("gated", "pod") => tree["spec"]["schedulingGates"] = json!([{ "name": "g" }]),
            ("going", "pod") => {
                tree["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z".into();
            }
            ("told", "pod") => {
                tree["status"]["conditions"] =
                    json!([{ "type": "PodScheduled", "status": "False", "reason": value }]);
            }
            ("bound", "claim") => {
                tree["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into();
            }
            (path, kind) => {
                let path = path.strip_prefix("labels.").map_or(path.to_owned(), |label| {
                    format!("metadata.labels.{}", label.replace('.', "\\."))
                });
                let short = SHORT.iter().find(|(of, word, _)| *of == kind && *word == path);
                set(&mut tree, short.map_or(path.as_str(), |(.., path)| path), value);
            }
        }
    }
    (kind, tree)
}

/// By spaces, but not inside of braces or brackets.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut depth) = (vec![String::new()], 0);
    for letter in line.trim().chars() {
        depth += i32::from("{[".contains(letter)) - i32::from("}]".contains(letter));
        match letter {
            ' ' if depth == 0 => words.push(String::new()),
            letter => words.last_mut().expect("a word").push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn set(tree: &mut Value, path: &str, value: Value) {
    let path = path.replace("\\.", "\u{1}");
    let place = path.split('.').fold(tree, |place, field| {
        let field = field.replace('\u{1}', ".");
        match field.parse::<usize>() {
            Ok(index) => {
                if !place.is_array() {
                    *place = json!([{ "name": "v" }]);
                }
                &mut place[index]
            }
            Err(_) => &mut place[field],
        }
    });
    *place = value;
}

fn kept<K: Keep>(tree: &Value) -> Arc<K> {
    let object = Arc::new(Object::from_tree(tree).expect("an object"));
    K::keep(&object).unwrap_or_else(|error| panic!("{tree}: {error}"))
}

/// A pod of a line without its kind: `web cpu=1`.
pub fn pod(line: &str) -> Arc<PodInfo> {
    kept(&tree(&format!("pod {line}")).1)
}

pub fn node(line: &str) -> Arc<NodeInfo> {
    kept(&tree(&format!("node {line}")).1)
}

/// Tells the engine of every line.
pub fn put(engine: &mut Engine, text: &str) {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (kind, mut tree) = tree(line);
        let text = |field: &str| tree["metadata"][field].as_str().expect("a text").to_owned();
        let (key, name) = (NamespacedName::new(&text("namespace"), &text("name")), text("name"));
        let cluster = &mut engine.decider.cluster;
        match kind.as_str() {
            "pod" => engine.pod(None, Some(&kept(&tree)), now()),
            "node" => engine.node(None, Some(&kept(&tree)), now()),
            "namespace" => engine.namespace(&name, Some(&kept(&tree)), now()),
            "claim" => cluster.storage.set_claim(&key, Some(kept(&tree))),
            "volume" => cluster.storage.set_volume(&name, Some(kept(&tree))),
            "class" => drop(cluster.storage.classes.insert(name.into(), kept(&tree))),
            "csinode" => drop(cluster.storage.csi_nodes.insert(name.into(), kept(&tree))),
            "csidriver" => drop(cluster.storage.csi_drivers.insert(name.into(), kept(&tree))),
            "attachment" => cluster.storage.set_attachment(name.into(), None, Some(kept(&tree))),
            "budget" => drop(cluster.budgets.insert(key, kept(&tree))),
            "slice" => cluster.devices.set_slice(name.into(), Some(kept(&tree))),
            "deviceclass" => drop(cluster.devices.classes.insert(name.into(), kept(&tree))),
            "taintrule" => drop(cluster.devices.rules.insert(name.into(), kept(&tree))),
            "deviceclaim" => engine.device_claim(&key, Some(kept(&tree)), now()),
            "service" => {
                tree["kind"] = "Service".into();
                tree["apiVersion"] = "v1".into();
                engine.owner(None, Some(&kept(&tree)));
            }
            other => panic!("{other} is no kind of a test's line"),
        }
    }
}

pub fn engine(text: &str) -> Engine {
    let mut engine = Engine::new(&crate::config::Configuration::default(), 1);
    put(&mut engine, text);
    engine
}

/// What becomes of the pod: its node, or why it has none.
pub fn decide(cluster: &str, pod_line: &str) -> String {
    let mut engine = engine(cluster);
    shown(engine.decider.decide(&pod(pod_line), now()))
}

pub fn shown(decision: Decision) -> String {
    match decision {
        Decision::Place { node, plan } => {
            let volumes = plan.volumes;
            let name = |name: &Option<String>| name.clone().unwrap_or_default();
            let give = volumes.give.iter().map(|(volume, claim)| {
                format!(" give {} to {}", name(&volume.metadata.name), name(&claim.metadata.name))
            });
            let provide = volumes.provide.iter();
            let provide = provide.map(|claim| format!(" provide {}", name(&claim.metadata.name)));
            let devices = plan.devices.claims.iter().filter_map(|(claim, allocation)| {
                Some((name(&claim.metadata.name), allocation.clone()?))
            });
            let extended = plan.devices.extended.iter();
            let extended = extended.map(|it| ("extended".to_owned(), it.allocation.clone()));
            let devices = devices.chain(extended).map(|(claim, allocation)| {
                let results = crate::devices::results(&allocation).iter();
                let results = results.map(|it| {
                    let amounts = it.consumed_capacity.iter().flatten();
                    let amounts = amounts.map(|(name, amount)| format!("({name} {})", amount.0));
                    format!(" {}:{}{}", it.request, it.device, amounts.collect::<String>())
                });
                format!(" {claim}{}", results.collect::<String>())
            });
            let all = give.chain(provide).chain(devices.collect::<Vec<_>>());
            format!("on {node}{}", all.collect::<String>())
        }
        Decision::Refuse { message, preemption, .. } => match preemption {
            Preemption::Make { victims, .. } => {
                let names = victims.iter().map(|Victim(pod)| &*pod.key.name);
                format!("{message}; victims {}", names.collect::<Vec<_>>().join(" "))
            }
            _ => message,
        },
        Decision::Fail { message } => format!("error: {message}"),
    }
}

/// Why no node will do, without what is said of attempts to change that.
pub fn refusal(cluster: &str, pod: &str) -> String {
    let said = decide(cluster, pod);
    let said = said.split(" preemption: ").next().unwrap_or_default();
    said.strip_suffix(". not found").map_or(said.to_owned(), |said| format!("{said}."))
}

pub fn decider(text: &str) -> Decider {
    engine(text).decider
}
