//! The end of a pod: nothing of it runs, so its volumes go and the API may forget it; then what the
//! runtime has of it goes too. And what a static pod is to the API: its mirror.
use super::{Kubelet, Memory, SyncError};
use crate::cgroups;
use crate::found::{self, Found, State, TERMINATION_GRACE};
use crate::pod;
use crate::runtime::cri;
use crate::volumes;
use client::source::Delete;
use k8s_openapi::api::core::v1::Pod;
use std::fs;
use std::path::PathBuf;

/// Longest that a container may take whose pod nobody knows any more.
const ORPHAN_GRACE: i64 = 30;

impl Kubelet {
    /// Its folder stays until nothing else of it is left: a kubelet that is killed meanwhile finds by it
    /// what it has to go on with.
    pub(super) async fn finish(&self, pod: &Pod) -> Result<(), SyncError> {
        self.release(pod::uid(pod)).await?;
        let options = Delete::uid(pod::uid(pod)).after(0);
        match self.client.delete::<Pod>(pod::namespace(pod), pod::name(pod), options).await {
            Err(status) if !status.is_not_found() && !status.is_conflict() => Err(status.into()),
            _ => Ok(()),
        }
    }

    /// Takes away the volumes of a pod that has ended: what they take is others' now.
    pub(super) async fn release(&self, uid: &str) -> Result<(), SyncError> {
        let folder = self.config.pod_folder(uid);
        // Parts of volumes are mounted apart, and keep them busy.
        tear_down(folder.join("volume-subpaths")).await?;
        self.unmount_csi(uid).await.map_err(SyncError::Other)?;
        self.iscsi.unmount(&self.config.root, uid).await.map_err(SyncError::Other)?;
        tear_down(folder.join("volumes")).await?;
        if self.in_use.let_go(uid) {
            self.config.look_again.notify_one();
        }
        Ok(())
    }

    async fn remove_folder(&self, uid: &str) -> Result<(), SyncError> {
        self.release(uid).await?;
        tear_down(self.config.pod_folder(uid)).await
    }

    /// Takes away everything of a pod that is not wanted any more.
    pub(super) async fn clean_up(&self, uid: &str) -> Result<(), SyncError> {
        let found = found::find(&*self.runtime, uid).await?;
        let stops = found.containers.iter().filter(|one| one.state != State::Exited).map(|one| {
            let grace = one.annotations.get(TERMINATION_GRACE).and_then(|text| text.parse().ok());
            let timeout = grace.unwrap_or(ORPHAN_GRACE).min(ORPHAN_GRACE);
            self.runtime
                .stop_container(cri::StopContainerRequest { container_id: one.id.clone(), timeout })
        });
        // What cannot be stopped so is stopped with its sandbox.
        futures_util::future::join_all(stops).await;
        for sandbox in &found.sandboxes {
            self.stop_sandbox(&sandbox.id).await?;
        }
        for one in &found.containers {
            let request = cri::RemoveContainerRequest { container_id: one.id.clone() };
            gone(self.runtime.remove_container(request).await)?;
        }
        for sandbox in &found.sandboxes {
            let request = cri::RemovePodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
            gone(self.runtime.remove_pod_sandbox(request).await)?;
        }
        cgroups::remove(&self.config.cgroup_root, uid);
        self.unprepare_claims(uid).await.map_err(SyncError::Other)?;
        self.free_cpus(uid).await;
        self.free_memory(uid);
        self.remove_logs(uid);
        self.remove_folder(uid).await?;
        self.users.release(uid);
        self.forget(uid);
        self.wake_deferred();
        Ok(())
    }

    fn remove_logs(&self, uid: &str) {
        let suffix = format!("_{uid}");
        for entry in fs::read_dir(&self.config.log_root).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().ends_with(&suffix)
                && let Err(error) = fs::remove_dir_all(entry.path())
            {
                tracing::warn!("failed to remove {}: {error}", entry.path().display());
            }
        }
    }

    /// Folders of pods that nobody knows any more, neither the API nor the runtime.
    pub async fn house_keep(&self) {
        self.unstage_orphans().await;
        self.unprepare_orphans().await;
        let folders = fs::read_dir(self.config.root.join("pods")).into_iter().flatten().flatten();
        for folder in folders {
            let uid = folder.file_name().to_string_lossy().into_owned();
            if self.pod(&uid).is_none() {
                self.queue.add(uid);
            }
        }
        if self.sources.are_complete() {
            self.allocations.keep_only(|uid| self.pod(uid).is_some());
        }
        // Last: a target that does not answer takes its time.
        self.iscsi.detach_orphans(&self.config.root).await;
        if self.in_use.sweep() {
            self.config.look_again.notify_one();
        }
    }

    /// A static pod's status is written to its mirror, which is made if it is not there.
    pub(super) async fn tell_mirror(
        &self,
        pod: &Pod,
        found: &Found,
        memory: &Memory,
    ) -> Result<(), SyncError> {
        if !self.sources.has_api() {
            return Ok(());
        }
        let there = self.pods.read().get(&pod::key(pod)).cloned();
        match there {
            Some(mirror)
                if pod::is_mirror(&mirror)
                    && pod::annotation(&mirror, pod::MIRROR) == pod::annotation(pod, pod::HASH) =>
            {
                if pod::is_deleting(&mirror) {
                    return self.delete_mirror(&mirror).await;
                }
                // Statuses are the static pod's; the object they are written to is the mirror.
                let mut shown = pod.clone();
                shown.metadata.uid.clone_from(&mirror.metadata.uid);
                shown.metadata.generation = mirror.metadata.generation;
                shown.metadata.resource_version.clone_from(&mirror.metadata.resource_version);
                shown.status.clone_from(&mirror.status);
                self.write_status(&shown, found, memory).await
            }
            Some(mirror) if pod::is_mirror(&mirror) => self.delete_mirror(&mirror).await,
            Some(_) => Ok(()),
            None => {
                let mut mirror = pod.clone();
                mirror.metadata.uid = None;
                mirror.status = None;
                let hash = pod::annotation(pod, pod::HASH).unwrap_or_default().to_owned();
                mirror
                    .metadata
                    .annotations
                    .get_or_insert_default()
                    .insert(pod::MIRROR.to_owned(), hash);
                memory.notes.lock().told = None;
                match self.client.create(&mirror).await {
                    Err(status) if !status.is_already_exists() => {
                        // The pod runs whether or not the API shows it.
                        tracing::warn!(
                            pod = pod::name(pod),
                            "failed to create a mirror pod: {}",
                            status.message
                        );
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    async fn delete_mirror(&self, mirror: &Pod) -> Result<(), SyncError> {
        let options = Delete::uid(pod::uid(mirror)).after(0);
        match self.client.delete::<Pod>(pod::namespace(mirror), pod::name(mirror), options).await {
            Err(status) if !status.is_not_found() && !status.is_conflict() => Err(status.into()),
            _ => Ok(()),
        }
    }
}

/// How much is in a folder its containers have decided: nobody else waits for that.
async fn tear_down(folder: PathBuf) -> Result<(), SyncError> {
    let torn = tokio::task::spawn_blocking(move || volumes::tear_down(&folder)).await;
    let torn = torn.map_err(|error| SyncError::Other(error.to_string()))?;
    torn.map_err(|error| SyncError::Other(error.line()))
}

pub(super) fn gone<T>(answer: Result<T, crate::runtime::RuntimeError>) -> Result<(), SyncError> {
    match answer {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
