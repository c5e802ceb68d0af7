//! Static pods: manifests in a folder, in a file or behind a URL, which run whether or not there is an
//! API server.
mod decode;
mod sources;

pub use sources::Sources;

use crate::folder::Watched;
use crate::found::{POD_NAME, POD_NAMESPACE, POD_UID};
use crate::handler;
use crate::pod;
use crate::runtime::{RuntimeError, cri};
use crate::worker::Kubelet;
use decode::Origin;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often the folder is read although nothing was heard of it: upstream's `fileCheckFrequency`.
const PERIOD: Duration = Duration::from_secs(20);

/// How long a server of manifests may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes: upstream's `maxConfigLength`.
const LONGEST: u64 = 10 << 20;

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

    /// Whether there is still something of the static pod that this one takes the place of: a manifest
    /// that was changed is another pod with the same name, ports and folders.
    pub async fn has_predecessor(&self, pod: &Pod) -> Result<bool, RuntimeError> {
        let labels = [(POD_NAME, pod::name(pod)), (POD_NAMESPACE, pod::namespace(pod))];
        let label_selector =
            labels.map(|(label, value)| (label.to_owned(), value.to_owned())).into();
        let filter = Some(cri::PodSandboxFilter { label_selector, ..Default::default() });
        let listed = self.runtime.list_pod_sandbox(cri::ListPodSandboxRequest { filter }).await?;
        let is_other =
            |one: &cri::PodSandbox| one.labels.get(POD_UID).is_some_and(|uid| uid != pod::uid(pod));
        Ok(listed.items.iter().any(is_other))
    }
}

/// Reads the folder once. One that cannot be read says nothing: what runs goes on.
pub fn load(kubelet: &Arc<Kubelet>) {
    let Some(path) = &kubelet.config.manifests else { return };
    match read(path, &kubelet.config.node_name) {
        Ok(pods) => replace(kubelet, decode::FILE, pods),
        Err(error) => {
            tracing::warn!("failed to read static pods in {}: {error}", path.display());
        }
    }
}

/// The pods of one source are these now; those of others stay.
fn replace(kubelet: &Kubelet, source: &str, pods: Vec<Pod>) {
    let pods: BTreeMap<String, Arc<Pod>> =
        pods.into_iter().map(|pod| (pod::uid(&pod).to_owned(), Arc::new(pod))).collect();
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
        .filter(|uid| before.get(*uid) != pods.get(*uid))
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
                    Ok(pods) => {
                        replace(kubelet, decode::HTTP, pods);
                        if kubelet.sources.url_answered() {
                            // Now it is known what nobody wants.
                            kubelet.add_all().await;
                        }
                    }
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
async fn fetch(url: &str, headers: &[(String, String)], node: &str) -> Result<Vec<Pod>, String> {
    let text = tokio::time::timeout(PATIENCE, handler::get(url, headers)).await;
    let text = text.map_err(|_| "it does not answer".to_owned())??;
    decode::pods(&text, &Origin { node, source: decode::HTTP, place: url })
}

/// The pods of a folder's files, or of one file. What is wrong with one file is no reason to end the
/// pods of others; a folder that is not there has none.
fn read(path: &Path, node: &str) -> io::Result<Vec<Pod>> {
    let files = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
        Ok(found) if found.is_dir() => {
            let entries: Vec<_> = path.read_dir()?.collect::<io::Result<_>>()?;
            let shown = |entry: &&std::fs::DirEntry| {
                !entry.file_name().as_encoded_bytes().starts_with(b".")
            };
            let mut files: Vec<_> =
                entries.iter().filter(shown).map(|entry| entry.path()).collect();
            files.sort();
            files
        }
        Ok(_) => vec![path.to_owned()],
    };
    let mut pods = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let place = file.to_string_lossy();
        let origin = Origin { node, source: decode::FILE, place: &place };
        let text = text_of(file).map_err(|error| error.to_string());
        match text.and_then(|text| decode::pod(&text, &origin)) {
            Ok(pod) => pods.push(pod),
            Err(error) => tracing::warn!("failed to read the static pod in {place}: {error}"),
        }
    }
    Ok(pods)
}

fn text_of(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    match std::fs::File::open(file)?.take(LONGEST).read_to_string(&mut text)? as u64 {
        LONGEST.. => Err(io::Error::other("it is larger than 10 MiB")),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_folder_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let names = |path: &Path| -> Vec<String> {
            let pods = read(path, "n1").unwrap();
            pods.iter().map(|pod| pod::name(pod).to_owned()).collect()
        };
        let pod = |name: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
            )
        };
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("b.yaml", &pod("two"));
        write("a.json", &pod("one"));
        write(".c.yaml.swp", &pod("three"));
        write("broken", "{");
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        assert_eq!(names(folder.path()), ["one-n1", "two-n1"]);
        assert_eq!(names(&folder.path().join("b.yaml")), ["two-n1"]);
        assert!(names(&folder.path().join("nowhere")).is_empty());
        assert!(read(&folder.path().join("b.yaml/below"), "n1").is_err(), "it cannot be looked at");
    }

    #[tokio::test]
    async fn pods_come_from_a_url() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/pods?all", server.local_addr().unwrap());
        let pod = |name: &str| serde_json::json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        let list =
            serde_json::json!({ "apiVersion": "v1", "kind": "PodList", "items": [pod("a"), pod("b")] }).to_string();
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
        let names: Vec<&str> = pods.iter().map(pod::name).collect();
        assert_eq!(names, ["a-n1", "b-n1"]);
        assert!(pods.iter().all(|pod| pod::annotation(pod, pod::SOURCE) == Some("http")));
    }
}
