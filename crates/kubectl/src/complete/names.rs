//! Names that a server or a kubeconfig knows.
use super::{NO_FILES, NO_SPACE};
use crate::builder::{self, Request};
use crate::cluster::Cluster;
use crate::commands::fetchable;
use crate::flags::Arguments;
use crate::kubeconfig::{self, Files};
use crate::pods;
use serde_json::Value;
use std::time::Duration;

/// What has pods, as upstream lists it.
const WITH_PODS: [&str; 8] = [
    "daemonsets",
    "deployments",
    "pods",
    "jobs",
    "replicasets",
    "replicationcontrollers",
    "services",
    "statefulsets",
];
/// How long a workload may take to have a pod.
const SOON: Duration = Duration::from_millis(100);

/// Contexts, clusters or users.
pub fn entries(arguments: &Arguments, list: &str, beginning: &str) -> Vec<String> {
    let tree = Files::find(arguments).merged().unwrap_or_default();
    let names = kubeconfig::names(&tree, list).into_iter();
    names.filter(|name| name.starts_with(beginning) && is_plain(name)).collect()
}

/// Whether a name can do no harm on a terminal, and is one word.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c.is_control() || c.is_whitespace())
}

pub struct Server(pub Cluster);

impl Server {
    /// The names of a type's objects.
    pub async fn names(&self, words: &[&str], beginning: &str) -> Vec<String> {
        self.names_in(&self.0, words, beginning).await
    }

    async fn names_in(&self, cluster: &Cluster, words: &[&str], beginning: &str) -> Vec<String> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let request = Request { words, type_is_all: true, chunk: 500, ..Request::default() };
        let found = builder::infos_and_failures(cluster, &request, true).await;
        let infos = found.map(|(infos, _)| infos).unwrap_or_default();
        let names = infos.into_iter().map(|info| info.name);
        names.filter(|name| name.starts_with(beginning) && is_plain(name)).collect()
    }

    /// The types that can be asked for; of several between commas the last is to be completed.
    async fn types(&self, word: &str) -> Vec<String> {
        let Ok(mapper) = self.0.mapper().await else { return Vec::new() };
        let (before, last) = match word.rfind(',') {
            Some(at) => word.split_at(at + 1),
            None => ("", word),
        };
        let names = fetchable(mapper).into_iter();
        let fitting = names.filter(|name| name.starts_with(last) && is_plain(name));
        fitting.map(|name| format!("{before}{name}")).collect()
    }

    /// `TYPE NAME…` or `TYPE/NAME…`.
    pub async fn typed(
        &self,
        allowed: &[&str],
        repeats: bool,
        before: &[String],
        word: &str,
    ) -> (Vec<String>, u8) {
        if let Some(first) = before.first().filter(|first| !first.contains('/')) {
            if !repeats && before.len() > 1 {
                return (Vec::new(), NO_FILES);
            }
            let mut names = self.names(&[first], word).await;
            names.retain(|name| !before[1..].contains(name));
            return (names, NO_FILES);
        }
        if let Some((of, name)) = word.split_once('/') {
            if !repeats && !before.is_empty() {
                return (Vec::new(), NO_FILES);
            }
            let names = self.names(&[of], name).await.into_iter();
            let mut names: Vec<String> = names.map(|name| format!("{of}/{name}")).collect();
            names.retain(|name| !before.contains(name));
            return (names, NO_FILES);
        }
        if !before.is_empty() && !repeats {
            return (Vec::new(), NO_FILES);
        }
        let types = match allowed {
            [] => self.types(word).await,
            allowed => super::fitting(allowed, word),
        };
        match before {
            [] => (types, NO_FILES),
            // The first was of this form, so the others have to be.
            _ => (types.iter().map(|one| format!("{one}/")).collect(), NO_FILES | NO_SPACE),
        }
    }

    /// A pod, or what has some.
    pub async fn pods(&self, word: &str) -> (Vec<String>, u8) {
        if let Some((of, name)) = word.split_once('/') {
            let names = self.names(&[of], name).await.into_iter();
            return (names.map(|name| format!("{of}/{name}")).collect(), NO_FILES);
        }
        let mut found = self.names(&["pods"], word).await;
        let directive = if found.is_empty() { NO_FILES | NO_SPACE } else { NO_FILES };
        found.extend(super::fitting(&WITH_PODS, word).into_iter().map(|name| format!("{name}/")));
        (found, directive)
    }

    async fn pod(&self, named: &str) -> Value {
        pods::find(&self.0, named, SOON).await.unwrap_or_default()
    }

    /// The containers of a pod, those first that run first.
    pub async fn containers(&self, pod: &str, beginning: &str) -> Vec<String> {
        let pod = self.pod(pod).await;
        let lists = ["initContainers", "containers"];
        let all = lists.iter().flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten());
        let names = all.filter_map(|container| container["name"].as_str());
        let fitting = names.filter(|name| name.starts_with(beginning) && is_plain(name));
        fitting.map(str::to_owned).collect()
    }

    /// `LOCAL:REMOTE` for what a pod or service has; what is typed before the colon is the local one.
    pub async fn ports(&self, of: &str, word: &str) -> Vec<String> {
        let ports: Vec<i64> = match of.split_once('/') {
            Some(("service" | "services" | "svc", name)) => {
                let services = self.0.mapper().await.and_then(|mapper| mapper.find("services"));
                let Ok(services) = services else { return Vec::new() };
                let service = self.0.get(&services.api, &self.0.namespace, name).await;
                let service = service.unwrap_or_default();
                let all = service["spec"]["ports"].as_array().into_iter().flatten();
                all.filter_map(|port| port["port"].as_i64()).collect()
            }
            _ => {
                let pod = self.pod(of).await;
                let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
                let all = containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
                all.filter_map(|port| port["containerPort"].as_i64()).collect()
            }
        };
        let local = word.split(':').next().unwrap_or_default();
        let pairs = ports.into_iter().map(|port| match word {
            "" => format!("{port}:{port}"),
            _ => format!("{local}:{port}"),
        });
        pairs.filter(|pair| pair.starts_with(word)).collect()
    }

    /// What can be copied: `NAMESPACE/POD:`, `POD:`, files.
    pub async fn copied(&self, word: &str) -> Vec<String> {
        if word.starts_with(['/', '.', '~']) || word.contains(':') {
            return Vec::new();
        }
        if let Some((namespace, name)) = word.split_once('/') {
            let cluster = self.0.in_namespace(namespace);
            let names = self.names_in(&cluster, &["pods"], name).await.into_iter();
            return names.map(|name| format!("{namespace}/{name}:")).collect();
        }
        let namespaces = self.names(&["namespaces"], word).await.into_iter();
        let mut found: Vec<String> = namespaces.map(|name| format!("{name}/")).collect();
        let pods = self.names(&["pods"], word).await.into_iter();
        found.extend(pods.map(|name| format!("{name}:")));
        if word.is_empty() {
            found.extend(["./".to_owned(), "/".to_owned()]);
        } else if !found.is_empty() {
            // A shell looks for files by itself only where there is nothing else.
            found.extend(files(word));
        }
        found
    }
}

/// Files of this folder that begin so.
fn files(beginning: &str) -> Vec<String> {
    let entries = std::fs::read_dir(".").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let fits = name.starts_with(beginning) && is_plain(&name);
            fits.then(|| if is_folder { format!("{name}/") } else { name })
        })
        .collect();
    names.sort();
    names
}
