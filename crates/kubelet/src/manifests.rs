//! Static pods: manifests in a folder, which run whether or not there is an API server.
use crate::found::POD_UID;
use crate::pod;
use crate::runtime::cri;
use crate::worker::Kubelet;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often the folder is read: upstream's `fileCheckFrequency`.
const PERIOD: Duration = Duration::from_secs(20);

impl Kubelet {
    /// The static pod whose configuration has this hash.
    pub fn static_with(&self, hash: &str) -> Option<String> {
        let pods = self.static_pods.lock();
        let mut found = pods.values().filter(|pod| pod::annotation(pod, pod::HASH) == Some(hash));
        found.next().map(|pod| pod::uid(pod).to_owned())
    }

    /// Everything that is wanted or found.
    pub async fn add_all(&self) {
        self.pods.read().iter().for_each(|(_, pod)| self.queue.add(pod::uid(pod).to_owned()));
        self.static_pods.lock().keys().for_each(|uid| self.queue.add(uid.clone()));
        let request = cri::ListPodSandboxRequest::default();
        let listed = self.runtime.list_pod_sandbox(request).await.unwrap_or_default();
        for uid in listed.items.iter().filter_map(|sandbox| sandbox.labels.get(POD_UID)) {
            self.queue.add(uid.clone());
        }
    }
}

/// Reads the folder once.
pub fn load(kubelet: &Arc<Kubelet>) {
    let Some(folder) = &kubelet.config.manifests else { return };
    let pods = read(folder, &kubelet.config.node_name);
    let mut known = kubelet.static_pods.lock();
    let changed: Vec<String> = known
        .keys()
        .chain(pods.keys())
        .filter(|uid| known.contains_key(*uid) != pods.contains_key(*uid))
        .cloned()
        .collect();
    *known = pods;
    drop(known);
    changed.into_iter().for_each(|uid| kubelet.queue.add(uid));
}

pub async fn keep(kubelet: &Arc<Kubelet>) {
    while kubelet.context.sleep(PERIOD).await {
        load(kubelet);
    }
}

fn read(folder: &Path, node: &str) -> BTreeMap<String, Arc<Pod>> {
    let mut pods = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if hidden || !path.is_file() {
            continue;
        }
        let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        match read.and_then(|text| parse(&text, node)) {
            Ok(pod) => drop(pods.insert(pod::uid(&pod).to_owned(), Arc::new(pod))),
            Err(error) => {
                tracing::warn!("failed to read the static pod in {}: {error}", path.display())
            }
        }
    }
    pods
}

/// A manifest as a pod of this node: named after it, with a uid made of what it says.
fn parse(text: &str, node: &str) -> Result<Pod, String> {
    let mut pod: Pod = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let name = pod.metadata.name.clone().filter(|name| !name.is_empty()).ok_or("it has no name")?;
    if pod::spec(&pod).containers.is_empty() {
        return Err("it has no containers".to_owned());
    }
    let digest = Sha256::digest(format!("{node}\n{text}"));
    let hash: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let metadata = &mut pod.metadata;
    metadata.name = Some(format!("{name}-{}", node.to_lowercase()));
    metadata.namespace.get_or_insert_with(|| "default".to_owned());
    if metadata.uid.as_deref().is_none_or(str::is_empty) {
        metadata.uid = Some(hash.clone());
    }
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(pod::SOURCE.to_owned(), "file".to_owned());
    annotations.insert(pod::HASH.to_owned(), hash);
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    let tolerate = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    spec.tolerations.get_or_insert_default().push(tolerate);
    pod.status = None;
    Ok(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_becomes_a_pod_of_this_node() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n";
        let pod = parse(text, "N1").unwrap();
        assert_eq!((pod::name(&pod), pod::namespace(&pod)), ("web-n1", "default"));
        assert_eq!(pod::uid(&pod).len(), 32);
        assert!(pod::is_static(&pod));
        assert_ne!(
            pod::uid(&parse(&text.replace("image: i", "image: j"), "N1").unwrap()),
            pod::uid(&pod)
        );
        assert_eq!(parse("metadata: {name: x}", "n").unwrap_err(), "it has no containers");
    }
}
