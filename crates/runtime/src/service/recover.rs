//! After a start: take up what an earlier daemon left running, clear away what it left half made.
use std::collections::HashSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::Service;
use super::records::{Container, Sandbox, SandboxRecord, read_container, read_sandbox};
use super::shims;
use super::watch::lost;
use crate::cri::v1::PodSandboxConfig;
use crate::shim::sys;

/// How long those who want to be served wait for what is taken up. Shims answer at once; one that does
/// not, or a network that takes long to be given back, is waited for behind their backs.
const PATIENCE: Duration = Duration::from_secs(2);

impl Service {
    /// What exists is known on return, from the records alone; what it is doing, as far as its shim
    /// answers in time.
    pub(super) async fn recover(&self) {
        let mut half_made = Vec::new();
        for path in entries(&self.root().join("sandboxes")) {
            match read_sandbox(&path) {
                (Some(config), Some(record)) => {
                    let sandbox = Arc::new(self.known_sandbox(record, config));
                    self.inner.sandboxes.lock().insert(sandbox.id.clone(), sandbox);
                }
                (config, _) => half_made.push((path, config.unwrap_or_default())),
            }
        }
        for folder in entries(&self.root().join("containers")) {
            if self.recover_container(&folder).is_none() {
                self.clear(&folder);
            }
        }
        let sandboxes: Vec<Arc<Sandbox>> = self.inner.sandboxes.lock().values().cloned().collect();
        let known: HashSet<PathBuf> = sandboxes.iter().map(|each| each.state.clone()).collect();
        let strays = entries(&self.inner.options.state)
            .into_iter()
            .filter(|folder| !known.contains(folder) && folder.join("spec.json").exists());
        let strays: Vec<PathBuf> = strays.collect();
        let service = self.clone();
        let rest = async move {
            let taken_up = join_all(sandboxes.iter().map(|sandbox| service.take_up(sandbox)));
            let cleared =
                half_made.into_iter().map(|(path, made)| service.clear_sandbox(path, made));
            tokio::join!(taken_up, join_all(cleared));
            join_all(strays.into_iter().map(clear_state)).await;
        };
        if tokio::time::timeout(PATIENCE, tokio::spawn(rest)).await.is_err() {
            tracing::warn!("some sandboxes are not taken up yet: their shims do not answer");
        }
    }

    async fn take_up(&self, sandbox: &Arc<Sandbox>) {
        if sandbox.is_ready()
            && let Err(error) = self.watch(sandbox).await
        {
            if error.kind() == std::io::ErrorKind::TimedOut {
                // It is there and does not answer: nothing can be done with what it runs.
                tracing::warn!("the shim of sandbox {} does not answer: it is killed", sandbox.id);
                let state = sandbox.state.clone();
                let _ = tokio::task::spawn_blocking(move || shims::kill(&state)).await;
            }
            self.shim_gone(sandbox);
        }
        self.settle(sandbox);
    }

    /// None if it was never finished, or has lost its sandbox.
    fn recover_container(&self, folder: &Path) -> Option<()> {
        let (record, config, doing) = read_container(folder)?;
        let sandbox = self.inner.sandboxes.lock().get(&record.sandbox_id).cloned()?;
        let parent = sandbox.cgroup_parent().0;
        let container = Container::new(record, config, folder.to_owned(), &parent, doing);
        self.inner.containers.lock().insert(container.id.clone(), Arc::new(container));
        Some(())
    }

    fn clear(&self, folder: &Path) {
        if let Err(error) = self.inner.trash.put(folder) {
            tracing::warn!("failed to remove {}: {error}", folder.display());
        }
    }

    /// A container that is neither in its shim's list nor ended met its end while nobody looked;
    /// the shim wrote it down after we had read the folder, or was killed.
    fn settle(&self, sandbox: &Sandbox) {
        for container in self.containers_of(&sandbox.id) {
            let started = container.doing().started;
            let alive = started
                .is_some_and(|started| Path::new(&format!("/proc/{}", started.pid)).exists());
            if container.is_running() && !alive {
                container.set_exit(container.settle(lost()));
            }
        }
    }

    /// A sandbox that never was: whatever exists of it goes.
    async fn clear_sandbox(&self, path: PathBuf, config: PodSandboxConfig) {
        let Some(id) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            return;
        };
        let record = SandboxRecord {
            id,
            created_at: 0,
            handler: String::new(),
            // Which it had is not known; that it had some is possible.
            addresses: vec![Ipv4Addr::UNSPECIFIED.into()],
            stopped: true,
        };
        if record.id.len() == 64 {
            let sandbox = self.known_sandbox(record, config);
            self.tear_down(&sandbox).await;
            self.forget(&sandbox);
        }
        if path.exists() {
            self.clear(&path);
        }
    }
}

/// State of a sandbox that nobody knows any more.
async fn clear_state(folder: PathBuf) {
    let clear = move || {
        if !folder.exists() {
            return;
        }
        let _ = shims::end(&folder);
        for mounted in ["netns", "shm"] {
            if let Ok(path) = sys::c_path(folder.join(mounted)) {
                let _ = sys::unmount(&path);
            }
        }
        if let Err(error) = fs::remove_dir_all(&folder)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!("failed to remove {}: {error}", folder.display());
        }
    };
    let _ = tokio::task::spawn_blocking(clear).await;
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
