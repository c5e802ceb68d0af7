//! The life of a sandbox: made, stopped, removed.
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use super::names::{find, new_id, not_found};
use super::records::{Sandbox, SandboxRecord};
use super::shims::{self, ShimError};
use super::{Service, chain, now};
use crate::container::{spec, sysctl};
use crate::cri::v1::{
    ContainerEventType, DnsConfig, NamespaceMode, PodSandboxConfig, PodSandboxMetadata,
    RunPodSandboxRequest,
};
use crate::network::{Attachment, PortMapping};
use crate::shim::spec::{RuntimeSpec, SandboxSpec};
use crate::shim::sys;

/// A sandbox's shared memory; upstream's runtimes give the same.
const SHM_OPTIONS: &str = "mode=1777,size=65536k";
/// State folders have short names, for the sockets in them.
const STATE_NAME: usize = 24;

impl Service {
    pub(super) async fn run_sandbox(
        &self,
        request: RunPodSandboxRequest,
    ) -> Result<String, Status> {
        let config =
            request.config.ok_or_else(|| Status::invalid_argument("no sandbox configuration"))?;
        let handler = &request.runtime_handler;
        if !handler.is_empty() {
            if !self.inner.options.handlers.contains_key(handler) {
                let text = format!("no runtime handler {handler:?} is configured");
                return Err(Status::not_found(text));
            }
            if spec::user_map(&config).is_ok_and(|map| map.is_some()) {
                let text = format!("runtime handler {handler:?} has no user namespaces");
                return Err(Status::invalid_argument(text));
            }
        }
        let metadata = config.metadata.clone().unwrap_or_default();
        if metadata.name.is_empty() {
            return Err(Status::invalid_argument("the sandbox has no name"));
        }
        let id = new_id();
        let sandbox = Arc::new(self.new_sandbox(&id, config, request.runtime_handler));
        {
            let mut sandboxes = self.inner.sandboxes.lock();
            let taken = sandboxes.values().find(|other| same_name(&metadata, &other.config));
            if let Some(other) = taken {
                return Err(Status::already_exists(format!(
                    "sandbox {:?} exists already: {}",
                    metadata.name, other.id
                )));
            }
            sandboxes.insert(id.clone(), sandbox.clone());
        }
        match self.make(&sandbox).await {
            Ok(()) => {
                let PodSandboxMetadata { namespace, name, .. } = &metadata;
                tracing::info!("sandbox {id} of {namespace}/{name} runs");
                self.tell(&id, ContainerEventType::ContainerCreatedEvent);
                self.tell(&id, ContainerEventType::ContainerStartedEvent);
                Ok(id)
            }
            Err(error) => {
                tracing::info!("sandbox {id} could not be made: {}", error.message());
                self.tear_down(&sandbox).await;
                self.forget(&sandbox);
                Err(error)
            }
        }
    }

    fn new_sandbox(&self, id: &str, config: PodSandboxConfig, handler: String) -> Sandbox {
        Sandbox {
            id: id.to_owned(),
            path: self.root().join("sandboxes").join(id),
            state: self.inner.options.state.join(&id[..STATE_NAME]),
            cgroup_root: self.inner.options.cgroup_root.clone(),
            record: parking_lot::Mutex::new(SandboxRecord {
                id: id.to_owned(),
                created_at: now(),
                handler,
                addresses: Vec::new(),
                stopped: false,
            }),
            config,
            changing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn known_sandbox(&self, record: SandboxRecord, config: PodSandboxConfig) -> Sandbox {
        let sandbox = self.new_sandbox(&record.id.clone(), config, record.handler.clone());
        *sandbox.record.lock() = record;
        sandbox
    }

    /// Everything, between the first line of the record and the second, which says that it is made.
    async fn make(&self, sandbox: &Arc<Sandbox>) -> Result<(), Status> {
        let _changing = sandbox.changing.lock().await;
        let io = |error: io::Error| Status::internal(format!("failed to make a sandbox: {error}"));
        sandbox.begin().map_err(io)?;
        fs::create_dir_all(&sandbox.state).map_err(io)?;
        write_files(sandbox).map_err(io)?;
        let namespaces = sandbox.namespaces();
        if namespaces.ipc() != NamespaceMode::Node {
            mount_shm(&sandbox.shm()).map_err(io)?;
        }
        let group = sandbox.group();
        let shared_pids = namespaces.pid() == NamespaceMode::Pod;
        if shared_pids {
            group.create().map_err(io)?;
        }
        let users = spec::user_map(&sandbox.config)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let linux = sandbox.config.linux.clone().unwrap_or_default();
        let own = sysctl::Own {
            network: sandbox.network_path().is_some(),
            ipc: namespaces.ipc() != NamespaceMode::Node,
            users: users.is_some() || !crate::users::is_initial(),
        };
        let exists = |path: &Path| Path::new("/proc/sys").join(path).exists();
        let sysctls = sysctl::settle(linux.sysctls, own, exists)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let spec = SandboxSpec {
            id: sandbox.id.clone(),
            hostname: sandbox.config.hostname.clone(),
            sysctls,
            network: sandbox.network_path(),
            ipc: namespaces.ipc() != NamespaceMode::Node,
            shared_pids,
            users,
            cgroup: if shared_pids { group.folders() } else { Vec::new() },
            runtime: sandbox.handler().and_then(|handler| {
                let path = self.inner.options.handlers.get(&handler)?.clone();
                Some(RuntimeSpec { path, folder: sandbox.state.join("oci") })
            }),
        };
        let started = shims::start(&self.inner.options.executable, &sandbox.state, &spec).await;
        started.map_err(|error| shim_status(&error))?;
        if let Some(attachment) = attachment(sandbox) {
            let addresses = self.inner.options.network.attach(attachment).await;
            let addresses = addresses.map_err(|error| {
                Status::internal(format!("failed to set up the network: {error}"))
            })?;
            sandbox.record.lock().addresses = addresses;
        }
        self.watch(sandbox).await.map_err(io)?;
        sandbox.save().map_err(io)
    }

    pub(crate) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, Status> {
        find(&self.inner.sandboxes.lock(), id).ok_or_else(|| not_found("sandbox", id))
    }

    pub(super) async fn stop_sandbox(&self, id: &str) -> Result<(), Status> {
        // What is gone is stopped.
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        let _changing = sandbox.changing.lock().await;
        let containers = self.containers_of(&sandbox.id);
        for container in &containers {
            self.stop(container, Duration::ZERO).await?;
        }
        self.tear_down(&sandbox).await;
        if sandbox.stopped().map_err(|error| Status::internal(error.to_string()))? {
            tracing::info!("sandbox {} is stopped", sandbox.id);
        }
        self.tell(&sandbox.id, ContainerEventType::ContainerStoppedEvent);
        Ok(())
    }

    /// Ends the shim with all that runs, gives back the network, unmounts. Can be done again.
    pub(super) async fn tear_down(&self, sandbox: &Sandbox) {
        // After a reboot the namespace is gone, but not what a network has written down about it.
        let addresses = std::mem::take(&mut sandbox.record.lock().addresses);
        if let Some(attachment) = attachment(sandbox)
            && (attachment.namespace_path.exists() || !addresses.is_empty())
            && let Err(error) = self.inner.options.network.detach(attachment).await
        {
            tracing::warn!("failed to take down the network of sandbox {}: {error}", sandbox.id);
        }
        let state = sandbox.state.clone();
        let ended = tokio::task::spawn_blocking(move || shims::end(&state)).await;
        if let Err(error) = ended.unwrap_or_else(|error| Err(io::Error::other(error))) {
            tracing::warn!("the shim of sandbox {} does not end: {error}", sandbox.id);
        }
        for mounted in ["netns", "shm"] {
            let path = sandbox.state.join(mounted);
            if let Ok(path) = sys::c_path(&path) {
                // Not mounted, or not there: nothing to do.
                let _ = sys::unmount(&path);
            }
        }
        if let Err(error) = fs::remove_dir_all(&sandbox.state)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("failed to remove {}: {error}", sandbox.state.display());
        }
        let _ = sandbox.group().remove();
    }

    pub(super) async fn remove_sandbox(&self, id: &str) -> Result<(), Status> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        self.stop_sandbox(&sandbox.id).await?;
        for container in self.containers_of(&sandbox.id) {
            self.remove(&container).await?;
        }
        let _changing = sandbox.changing.lock().await;
        self.tell(&sandbox.id, ContainerEventType::ContainerDeletedEvent);
        self.forget(&sandbox);
        tracing::info!("sandbox {} is removed", sandbox.id);
        Ok(())
    }

    /// Removes the record last: as long as it is there a later daemon knows that there may be more
    /// to clear away.
    pub(super) fn forget(&self, sandbox: &Sandbox) {
        if sandbox.cgroup_parent().1 {
            let _ = sandbox.parent_group().remove();
        }
        let _ = fs::remove_file(&sandbox.path);
        self.inner.sandboxes.lock().remove(&sandbox.id);
    }
}

fn same_name(metadata: &PodSandboxMetadata, other: &PodSandboxConfig) -> bool {
    other.metadata.as_ref() == Some(metadata)
}

pub(super) fn shim_status(error: &ShimError) -> Status {
    match error {
        ShimError::Refused(reason) => Status::internal(reason.clone()),
        other => Status::internal(chain(other)),
    }
}

fn attachment(sandbox: &Sandbox) -> Option<Attachment> {
    let metadata = sandbox.config.metadata.clone().unwrap_or_default();
    Some(Attachment {
        sandbox_id: sandbox.id.clone(),
        namespace_path: sandbox.network_path()?,
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        annotations: sandbox.config.annotations.clone().into_iter().collect(),
        ports: sandbox
            .config
            .port_mappings
            .iter()
            .map(|port| PortMapping {
                host_port: port.host_port,
                container_port: port.container_port,
                protocol: port.protocol().as_str_name().to_lowercase(),
                host_ip: port.host_ip.clone(),
            })
            .collect(),
    })
}

fn mount_shm(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    sys::mount("shm", &sys::c_path(path)?, "tmpfs", flags, SHM_OPTIONS)
}

/// The files about names and addresses that containers see unless they bring their own.
fn write_files(sandbox: &Sandbox) -> io::Result<()> {
    let folder = &sandbox.state;
    fs::write(folder.join("hostname"), sandbox.hostname() + "\n")?;
    let hosts = fs::read("/etc/hosts").unwrap_or_default();
    fs::write(folder.join("hosts"), hosts)?;
    let resolv = match &sandbox.config.dns_config {
        Some(dns) => resolv_conf(dns),
        None => fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
    };
    fs::write(folder.join("resolv.conf"), resolv)
}

fn resolv_conf(dns: &DnsConfig) -> String {
    let mut text = String::new();
    let mut line = |key: &str, values: &[String]| {
        if !values.is_empty() {
            text.push_str(&format!("{key} {}\n", values.join(" ")));
        }
    };
    line("search", &dns.searches);
    for server in &dns.servers {
        line("nameserver", std::slice::from_ref(server));
    }
    line("options", &dns.options);
    text
}
