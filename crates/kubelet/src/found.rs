//! What the runtime has of a pod, read from the labels and annotations that kubelets set on
//! sandboxes and containers: all that is needed to take up a pod after a restart.
use crate::runtime::{Runtime, RuntimeError, cri};
use std::collections::HashMap;

pub const POD_NAME: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub const POD_UID: &str = "io.kubernetes.pod.uid";
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
pub const HASH: &str = "io.kubernetes.container.hash";
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
pub const DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
pub const TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
pub const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
pub const PORTS: &str = "io.kubernetes.container.ports";

/// Sandboxes and containers of one pod, the newest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    pub sandboxes: Vec<Sandbox>,
    pub containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sandbox {
    pub id: String,
    pub attempt: u32,
    pub created_at: i64,
    pub is_ready: bool,
    pub ips: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Container {
    pub id: String,
    pub name: String,
    pub sandbox: String,
    pub restarts: u32,
    pub hash: String,
    pub state: State,
    /// Nanoseconds since 1970, as CRI counts.
    pub created_at: i64,
    pub started_at: i64,
    pub finished_at: i64,
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    pub image: String,
    pub image_id: String,
    pub log_path: String,
    pub annotations: HashMap<String, String>,
    /// Where its termination message is on the host, if it has such a place.
    pub message_file: Option<String>,
    pub user: Option<(i64, i64, Vec<i64>)>,
    /// What it may use, if the runtime tells.
    pub limits: Option<cri::LinuxContainerResources>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum State {
    Created,
    Running,
    Exited,
    #[default]
    Unknown,
}

impl Found {
    /// The newest sandbox, if it can be used.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|sandbox| sandbox.is_ready)
    }

    /// The newest container of a name, wherever it was.
    pub fn latest(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// The newest container of a name in the sandbox that is used.
    pub fn current(&self, name: &str) -> Option<&Container> {
        let sandbox = self.sandbox()?;
        self.latest(name).filter(|container| container.sandbox == sandbox.id)
    }

    /// The one before the newest.
    pub fn previous(&self, name: &str) -> Option<&Container> {
        self.containers.iter().filter(|container| container.name == name).nth(1)
    }

    pub fn running(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|container| container.state == State::Running)
    }

    pub fn sort(&mut self) {
        self.sandboxes
            .sort_by_key(|sandbox| std::cmp::Reverse((sandbox.attempt, sandbox.created_at)));
        self.containers.sort_by_key(|one| std::cmp::Reverse((one.created_at, one.restarts)));
    }
}

/// Asks the runtime what it has of a pod.
pub async fn find(runtime: &dyn Runtime, uid: &str) -> Result<Found, RuntimeError> {
    let label_selector = HashMap::from([(POD_UID.to_owned(), uid.to_owned())]);
    let filter =
        cri::PodSandboxFilter { label_selector: label_selector.clone(), ..Default::default() };
    let listed =
        runtime.list_pod_sandbox(cri::ListPodSandboxRequest { filter: Some(filter) }).await?;
    let mut found = Found::default();
    for sandbox in listed.items {
        let request =
            cri::PodSandboxStatusRequest { pod_sandbox_id: sandbox.id, ..Default::default() };
        match runtime.pod_sandbox_status(request).await {
            Ok(answer) => found.sandboxes.extend(answer.status.map(sandbox_of)),
            // Removed since it was listed.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    let filter = cri::ContainerFilter { label_selector, ..Default::default() };
    let listed =
        runtime.list_containers(cri::ListContainersRequest { filter: Some(filter) }).await?;
    for container in listed.containers {
        let request =
            cri::ContainerStatusRequest { container_id: container.id, ..Default::default() };
        match runtime.container_status(request).await {
            Ok(answer) => {
                let status =
                    answer.status.map(|status| container_of(status, &container.pod_sandbox_id));
                found.containers.extend(status);
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    Ok(found)
}

fn sandbox_of(status: cri::PodSandboxStatus) -> Sandbox {
    let is_ready = status.state() == cri::PodSandboxState::SandboxReady;
    let network = status.network.unwrap_or_default();
    let others = network.additional_ips.into_iter().map(|ip| ip.ip);
    let ips = std::iter::once(network.ip).chain(others).filter(|ip| !ip.is_empty()).collect();
    let attempt = status.metadata.unwrap_or_default().attempt;
    Sandbox { id: status.id, attempt, created_at: status.created_at, is_ready, ips }
}

fn container_of(status: cri::ContainerStatus, sandbox: &str) -> Container {
    let state = match status.state() {
        cri::ContainerState::ContainerCreated => State::Created,
        cri::ContainerState::ContainerRunning => State::Running,
        cri::ContainerState::ContainerExited => State::Exited,
        cri::ContainerState::ContainerUnknown => State::Unknown,
    };
    let metadata = status.metadata.unwrap_or_default();
    let annotation = |key: &str| status.annotations.get(key).cloned().unwrap_or_default();
    let message_path = annotation(MESSAGE_PATH);
    let mount = status.mounts.iter().find(|mount| mount.container_path == message_path);
    let user = status.user.and_then(|user| user.linux);
    Container {
        name: status.labels.get(CONTAINER_NAME).cloned().unwrap_or(metadata.name),
        sandbox: sandbox.to_owned(),
        restarts: annotation(RESTART_COUNT).parse().unwrap_or(metadata.attempt),
        hash: annotation(HASH),
        message_file: mount
            .filter(|_| !message_path.is_empty())
            .map(|mount| mount.host_path.clone()),
        id: status.id,
        state,
        created_at: status.created_at,
        started_at: status.started_at,
        finished_at: status.finished_at,
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        image: status.image.unwrap_or_default().image,
        image_id: if status.image_ref.is_empty() { status.image_id } else { status.image_ref },
        log_path: status.log_path,
        annotations: status.annotations,
        limits: status.resources.and_then(|all| all.linux),
        user: user.map(|user| (user.uid, user.gid, user.supplemental_groups)),
    }
}
