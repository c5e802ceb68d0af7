//! After a start: take up what an earlier daemon left running, clear away what it left half made.
use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::Service;
use super::records::{
    Container, ContainerRecord, Doing, Sandbox, SandboxRecord, read_json, read_message, write_json,
};
use super::shims;
use super::watch::lost;
use crate::cri::v1::{ContainerConfig, PodSandboxConfig};
use crate::shim::protocol::Request;
use crate::shim::sys;

impl Service {
    pub(super) async fn recover(&self) {
        for folder in folders(&self.root().join("sandboxes")) {
            let record = read_json::<SandboxRecord>(&folder.join("record.json"));
            let config = read_message::<PodSandboxConfig>(&folder.join("config.pb"));
            match (record, config) {
                (Ok(record), Ok(config)) => {
                    let sandbox = Arc::new(self.known_sandbox(record, config));
                    self.inner.sandboxes.lock().insert(sandbox.id.clone(), sandbox);
                }
                (_, config) => self.clear_sandbox(&folder, config.unwrap_or_default()).await,
            }
        }
        for folder in folders(&self.root().join("containers")) {
            self.recover_container(&folder);
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

    fn recover_container(&self, folder: &Path) {
        let record = read_json::<ContainerRecord>(&folder.join("record.json"));
        let config = read_message::<ContainerConfig>(&folder.join("config.pb"));
        let (Ok(record), Ok(config)) = (record, config) else {
            remove(folder);
            return;
        };
        let sandbox = self.inner.sandboxes.lock().get(&record.sandbox_id).cloned();
        let Some(sandbox) = sandbox else {
            remove(folder);
            return;
        };
        let doing = Doing {
            started: read_json(&folder.join("started.json")).ok(),
            exit: read_json(&folder.join("exit.json")).ok(),
            resources: config.linux.as_ref().and_then(|linux| linux.resources.clone()),
        };
        let parent = sandbox.cgroup_parent().0;
        let container = Container::new(record, config, folder.to_owned(), &parent, doing);
        self.inner.containers.lock().insert(container.id.clone(), Arc::new(container));
    }

    /// A container that is neither in its shim's list nor ended met its end while nobody looked;
    /// the shim wrote it down after we had read the folder, or was killed.
    fn settle(&self, sandbox: &Sandbox) {
        for container in self.containers_of(&sandbox.id) {
            let started = container.doing().started;
            let alive = started
                .is_some_and(|started| Path::new(&format!("/proc/{}", started.pid)).exists());
            if container.is_running() && !alive {
                let path = container.folder.join("exit.json");
                let exit = read_json(&path).unwrap_or_else(|_| lost());
                let _ = write_json(&path, &exit);
                container.set_exit(exit);
            }
        }
    }

    /// A sandbox that never was: whatever exists of it goes.
    async fn clear_sandbox(&self, folder: &Path, config: PodSandboxConfig) {
        let Some(id) = folder.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            return;
        };
        let record = SandboxRecord {
            id,
            created_at: 0,
            handler: String::new(),
            addresses: Vec::new(),
            stopped: true,
        };
        if record.id.len() == 64 {
            let sandbox = self.known_sandbox(record, config);
            self.tear_down(&sandbox).await;
            self.forget(&sandbox);
        }
        remove(folder);
    }

    /// State of sandboxes that nobody knows any more.
    async fn clear_state(&self) {
        let known: Vec<_> = {
            let sandboxes = self.inner.sandboxes.lock();
            sandboxes.values().map(|sandbox| sandbox.state.clone()).collect()
        };
        for folder in folders(&self.inner.options.state) {
            if known.contains(&folder) || !folder.join("spec.json").exists() {
                continue;
            }
            let _ = shims::ask(folder.join("shim.sock"), Request::Shutdown).await;
            for mounted in ["netns", "shm"] {
                if let Ok(path) = sys::c_path(folder.join(mounted)) {
                    let _ = sys::unmount(&path);
                }
            }
            remove(&folder);
        }
    }
}

fn folders(parent: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder) {
        tracing::warn!("failed to remove {}: {error}", folder.display());
    }
}
