//! Static pods: manifests in a folder or behind a URL, which run whether or not there is an API server.
use crate::folder::Watched;
use crate::found::POD_UID;
use crate::handler;
use crate::pod;
use crate::runtime::cri;
use crate::worker::Kubelet;
use api::codec::yaml;
use api::schema::builtin;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often the folder is read although nothing was heard of it: upstream's `fileCheckFrequency`.
const PERIOD: Duration = Duration::from_secs(20);

/// How long a server of manifests may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// What pods say of where they are from.
const FILE: &str = "file";
const HTTP: &str = "http";

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
    replace(kubelet, FILE, read(folder, &kubelet.config.node_name));
}

/// The pods of one source are these now; those of others stay.
fn replace(kubelet: &Kubelet, source: &str, pods: BTreeMap<String, Arc<Pod>>) {
    let mut known = kubelet.static_pods.lock();
    let is_own = |pod: &Pod| pod::annotation(pod, pod::SOURCE) == Some(source);
    let before: BTreeMap<String, Arc<Pod>> = known
        .iter()
        .filter(|(_, pod)| is_own(pod))
        .map(|(uid, pod)| (uid.clone(), pod.clone()))
        .collect();
    let changed: Vec<String> = before
        .keys()
        .chain(pods.keys())
        .filter(|uid| before.contains_key(*uid) != pods.contains_key(*uid))
        .cloned()
        .collect();
    known.retain(|_, pod| !is_own(pod));
    known.extend(pods);
    drop(known);
    changed.into_iter().for_each(|uid| kubelet.queue.add(uid));
}

pub async fn keep(kubelet: &Arc<Kubelet>) {
    tokio::join!(
        async {
            let folder = kubelet.config.manifests.as_deref();
            let watched = folder.and_then(|folder| Watched::new(folder).ok());
            let heard = async || match &watched {
                Some(watched) if watched.changed().await.is_ok() => {}
                _ => std::future::pending().await,
            };
            loop {
                tokio::select! {
                    goes_on = kubelet.context.sleep(PERIOD) => if !goes_on { return },
                    () = heard() => {}
                }
                load(kubelet);
            }
        },
        async {
            let Some(url) = &kubelet.config.manifest_url else { return };
            loop {
                match fetch(url, &kubelet.config.manifest_url_header, &kubelet.config.node_name)
                    .await
                {
                    Ok(pods) => replace(kubelet, HTTP, pods),
                    // What runs goes on.
                    Err(error) => tracing::warn!("failed to read static pods at {url}: {error}"),
                }
                if !kubelet.context.sleep(PERIOD).await {
                    return;
                }
            }
        },
    );
}

/// A pod or a list of pods behind a URL.
async fn fetch(
    url: &str,
    headers: &[(String, String)],
    node: &str,
) -> Result<BTreeMap<String, Arc<Pod>>, String> {
    let text = tokio::time::timeout(PATIENCE, handler::get(url, headers)).await;
    let text = text.map_err(|_| "it does not answer".to_owned())??;
    let tree: serde_json::Value =
        serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    let is_list = tree["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    let texts: Vec<String> = match is_list {
        true => tree["items"].as_array().into_iter().flatten().map(ToString::to_string).collect(),
        false => vec![text],
    };
    let mut pods = BTreeMap::new();
    for text in texts {
        let pod = parse(&text, node, HTTP)?;
        pods.insert(pod::uid(&pod).to_owned(), Arc::new(pod));
    }
    Ok(pods)
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
        match read.and_then(|text| parse(&text, node, FILE)) {
            Ok(pod) => drop(pods.insert(pod::uid(&pod).to_owned(), Arc::new(pod))),
            Err(error) => {
                tracing::warn!("failed to read the static pod in {}: {error}", path.display())
            }
        }
    }
    pods
}

/// A manifest as a pod of this node: named after it, with a uid made of what it says.
fn parse(text: &str, node: &str, source: &str) -> Result<Pod, String> {
    // By way of a tree, with the API's own rules for what fits: a parser of YAML for every type of a pod
    // is megabytes of the binary.
    let ty = builtin().named("core/v1.Pod").expect("a pod is in the facts");
    let tree = yaml::decode(text.as_bytes(), ty).map_err(|error| error.to_string())?.value;
    let mut pod: Pod = serde_json::from_value(tree).map_err(|error| error.to_string())?;
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
    annotations.insert(pod::SOURCE.to_owned(), source.to_owned());
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
        let pod = parse(text, "N1", FILE).unwrap();
        assert_eq!((pod::name(&pod), pod::namespace(&pod)), ("web-n1", "default"));
        assert_eq!(pod::uid(&pod).len(), 32);
        assert!(pod::is_static(&pod));
        assert_ne!(
            pod::uid(&parse(&text.replace("image: i", "image: j"), "N1", FILE).unwrap()),
            pod::uid(&pod)
        );
        assert_eq!(parse("metadata: {name: x}", "n", FILE).unwrap_err(), "it has no containers");
    }

    #[tokio::test]
    async fn pods_come_from_a_url() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/pods?all", server.local_addr().unwrap());
        let pod = |name: &str| serde_json::json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c" }] } });
        let list =
            serde_json::json!({ "kind": "PodList", "items": [pod("a"), pod("b")] }).to_string();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut asked = vec![0; 1024];
            let read = stream.read(&mut asked).await.unwrap();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{list}",
                list.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&asked[..read]).into_owned()
        });
        let headers = [("X-Who".to_owned(), "me".to_owned())];
        let pods = fetch(&url, &headers, "n1").await.unwrap();
        let asked = serving.await.unwrap();
        assert!(asked.starts_with("GET /pods?all HTTP/1.1") && asked.contains("me"), "{asked}");
        let names: Vec<&str> = pods.values().map(|pod| pod::name(pod)).collect();
        assert_eq!(names.len(), 2);
        assert!(names.contains(&"a-n1") && names.contains(&"b-n1"), "{names:?}");
        assert!(pods.values().all(|pod| pod::annotation(pod, pod::SOURCE) == Some("http")));
    }
}
