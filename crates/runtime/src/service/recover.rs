//! After a start: take up what an earlier daemon left running, clear away what it left half made.
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use super::Service;
use super::records::{Container, Sandbox, SandboxRecord, read_container, read_sandbox};
use super::shims;
use super::watch::lost;
use crate::cri::v1::PodSandboxConfig;
use crate::shim::protocol::Request;
use crate::shim::sys;

impl Service {
    pub(super) async fn recover(&self) {
        for path in entries(&self.root().join("sandboxes")) {
            match read_sandbox(&path) {
                (Some(config), Some(record)) => {
                    let sandbox = Arc::new(self.known_sandbox(record, config));
                    self.inner.sandboxes.lock().insert(sandbox.id.clone(), sandbox);
                }
                (config, _) => self.clear_sandbox(&path, config.unwrap_or_default()).await,
            }
        }
        for folder in entries(&self.root().join("containers")) {
            if self.recover_container(&folder).is_none() {
                self.clear(&folder);
            }
        }
        let sandboxes: Vec<Arc<Sandbox>> = self.inner.sandboxes.lock().values().cloned().collect();
        for sandbox in sandboxes {
            if sandbox.is_ready() && self.watch(&sandbox).await.is_err() {
                self.shim_gone(&sandbox);
            }
            self.settle(&sandbox);
        }
        self.clear_state().await;
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
    async fn clear_sandbox(&self, path: &Path, config: PodSandboxConfig) {
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
            self.clear(path);
        }
    }

    /// State of sandboxes that nobody knows any more.
    async fn clear_state(&self) {
        let known: Vec<_> = {
            let sandboxes = self.inner.sandboxes.lock();
            sandboxes.values().map(|sandbox| sandbox.state.clone()).collect()
        };
        for folder in entries(&self.inner.options.state) {
            if known.contains(&folder) || !folder.join("spec.json").exists() {
                continue;
            }
            let _ = shims::ask(folder.join("shim.sock"), Request::Shutdown).await;
            for mounted in ["netns", "shm"] {
                if let Ok(path) = sys::c_path(folder.join(mounted)) {
                    let _ = sys::unmount(&path);
                }
            }
            if let Err(error) = fs::remove_dir_all(&folder) {
                tracing::warn!("failed to remove {}: {error}", folder.display());
            }
        }
    }
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
