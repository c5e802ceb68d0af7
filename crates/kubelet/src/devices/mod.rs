//! Devices of the machine that plugins know of, and which containers have them.
//!
//! ```text
//!  book      which devices there are, and whose they are                        (pure)
//!  plugin    a plugin: registers on our socket, lists its devices, is asked for them
//!  resources who has what, for whoever watches over devices (`pod-resources`)
//! ```
//! What containers have is written to a file: they keep it when the kubelet is started again.
mod book;
mod plugin;
mod resources;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub use tests::pod_resources;

#[allow(clippy::all, reason = "generated")]
pub mod proto {
    tonic::include_proto!("v1beta1");
}

pub use book::Needs;
pub use plugin::serve;
pub use resources::{proto as proto_v1, serve as serve_resources};

use crate::admission::Refusal;
use crate::numa::{DeviceWish, Near};
use crate::pod;
use crate::worker::Kubelet;
use book::{Book, Grant, Wish};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceHealth, ResourceStatus};
use parking_lot::Mutex;
use plugin::Plugin;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Default)]
pub struct Devices {
    book: Mutex<Book>,
    /// By resource.
    plugins: Mutex<BTreeMap<String, Plugin>>,
    /// One pod after another: two must not get the same.
    granting: tokio::sync::Mutex<()>,
}

pub fn folder(root: &Path) -> PathBuf {
    root.join("device-plugins")
}

fn checkpoint(root: &Path) -> PathBuf {
    folder(root).join("skiff_internal_checkpoint")
}

impl Devices {
    /// How many devices there are and how many are well, by resource.
    pub fn amounts(&self) -> BTreeMap<String, (i64, i64)> {
        self.book.lock().amounts()
    }

    /// What was granted before this process began.
    pub fn take_up(&self, root: &Path) {
        let read = fs::read(checkpoint(root)).ok();
        let grants = read.and_then(|text| serde_json::from_slice::<Vec<Grant>>(&text).ok());
        self.book.lock().grants = grants.unwrap_or_default();
    }

    /// What a container needs to use the devices that it has.
    pub fn needs(&self, pod: &Pod, container: &Container) -> Vec<Needs> {
        let book = self.book.lock();
        let grants = book.of_container(pod::uid(pod), &container.name);
        grants.into_iter().map(|grant| grant.needs.clone()).collect()
    }

    /// What a container still has to get, by the nodes that devices are near.
    pub fn wishes_by_node(&self, pod: &Pod, container: &Container) -> Vec<DeviceWish> {
        self.book.lock().wishes_by_node(pod, container)
    }

    /// What a pod's status says of the devices that a container has.
    pub fn health(&self, uid: &str, container: &str) -> Vec<ResourceStatus> {
        let all = self.book.lock().health(uid, container);
        let device = |(resource_id, well): (String, Option<bool>)| ResourceHealth {
            resource_id,
            health: Some(
                match well {
                    Some(true) => "Healthy",
                    Some(false) => "Unhealthy",
                    None => "Unknown",
                }
                .to_owned(),
            ),
            ..ResourceHealth::default()
        };
        let one = |(name, devices): (String, Vec<_>)| ResourceStatus {
            name,
            resources: Some(devices.into_iter().map(device).collect()),
        };
        all.into_iter().map(one).collect()
    }

    fn write(&self, root: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(&self.book.lock().grants).map_err(io::Error::other)?;
        let (path, temporary) = (checkpoint(root), folder(root).join(".skiff_checkpoint"));
        fs::create_dir_all(folder(root))?;
        fs::write(&temporary, text)?;
        fs::rename(temporary, path)
    }
}

impl Kubelet {
    /// Gives a pod the devices that it asks for, or says why it cannot run.
    pub async fn grant_devices(&self, pod: &Pod, near: &Near) -> Result<(), Refusal> {
        let refused = |why: String| {
            let message = format!("Allocate failed due to {why}, which is unexpected");
            Refusal { reason: "UnexpectedAdmissionError".to_owned(), message }
        };
        let _one_at_a_time = self.devices.granting.lock().await;
        self.free_devices();
        let mut reusable: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (role, container) in pod::containers(pod) {
            let wishes = self.devices.book.lock().wishes(pod, container, &reusable);
            let wishes = wishes.map_err(refused)?;
            let has_wishes = !wishes.is_empty();
            for mut wish in wishes {
                if let Some(nodes) = near.get(&container.name) {
                    self.devices.book.lock().bring_near(&mut wish, nodes);
                }
                let grant = self.grant(pod, &wish).await.map_err(refused)?;
                self.devices.book.lock().grants.push(grant);
            }
            if has_wishes {
                let written = self.devices.write(&self.config.root);
                written.map_err(|error| refused(error.to_string()))?;
            }
            let book = self.devices.book.lock();
            for grant in book.of_container(pod::uid(pod), &container.name) {
                let pool = reusable.entry(grant.resource.clone()).or_default();
                match book::is_over_before(role) {
                    true => pool.extend(grant.devices.iter().cloned()),
                    false => pool.retain(|id| !grant.devices.contains(id)),
                }
            }
        }
        Ok(())
    }

    async fn grant(&self, pod: &Pod, wish: &Wish) -> Result<Grant, String> {
        let plugin = self.devices.plugins.lock().get(&wish.resource).cloned();
        let plugin = plugin
            .ok_or_else(|| format!("cannot allocate unregistered device {}", wish.resource))?;
        let preferred = plugin.preferred(wish).await?;
        let devices = wish.choose(&preferred);
        let needs = plugin.allocate(&devices).await?;
        Ok(Grant {
            pod: pod::uid(pod).to_owned(),
            container: wish.container.clone(),
            resource: wish.resource.clone(),
            devices,
            needs,
        })
    }

    /// Devices of pods that have ended are free.
    fn free_devices(&self) {
        let freed = self.devices.book.lock().keep(|uid| self.holds(uid));
        if freed && let Err(error) = self.devices.write(&self.config.root) {
            tracing::warn!("failed to write which devices containers have: {error}");
        }
    }

    /// Before a container starts that has devices: some plugins have to do something then.
    pub async fn prepare_devices(&self, pod: &Pod, container: &Container) -> Result<(), String> {
        let grants: Vec<Grant> = {
            let book = self.devices.book.lock();
            book.of_container(pod::uid(pod), &container.name).into_iter().cloned().collect()
        };
        for grant in grants {
            let plugin = self.devices.plugins.lock().get(&grant.resource).cloned();
            let plugin = plugin.ok_or_else(|| {
                format!("endpoint not found in cache for a registered resource: {}", grant.resource)
            })?;
            plugin.prepare(&grant.devices).await?;
        }
        Ok(())
    }
}
