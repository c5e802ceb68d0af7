//! What exists, in CRI's words.
use std::collections::HashMap;

use super::Service;
use super::records::{Container, Sandbox};
use crate::container::signal;
use crate::cri::v1::{
    self, ContainerFilter, ContainerResources, ContainerState, ContainerStatus, ContainerUser,
    ImageSpec, LinuxContainerUser, LinuxPodSandboxStatus, Namespace, PodIp, PodSandboxFilter,
    PodSandboxNetworkStatus, PodSandboxState, PodSandboxStatus,
};

impl Service {
    pub(super) fn sandbox_status(&self, sandbox: &Sandbox) -> PodSandboxStatus {
        let record = sandbox.record.lock().clone();
        let mut addresses = record.addresses.iter().map(ToString::to_string);
        let network = PodSandboxNetworkStatus {
            ip: addresses.next().unwrap_or_default(),
            additional_ips: addresses.map(|ip| PodIp { ip }).collect(),
        };
        let namespaces = Namespace { options: Some(sandbox.namespaces()) };
        PodSandboxStatus {
            id: sandbox.id.clone(),
            metadata: sandbox.config.metadata.clone(),
            state: sandbox_state(sandbox).into(),
            created_at: record.created_at,
            network: Some(network),
            linux: Some(LinuxPodSandboxStatus { namespaces: Some(namespaces) }),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: record.handler,
        }
    }

    pub(super) fn list_sandboxes(&self, filter: Option<PodSandboxFilter>) -> Vec<v1::PodSandbox> {
        let filter = filter.unwrap_or_default();
        let sandboxes = self.inner.sandboxes.lock();
        let wanted = sandboxes.values().filter(|sandbox| {
            sandbox.id.starts_with(&filter.id)
                && filter.state.is_none_or(|state| state.state() == sandbox_state(sandbox))
                && fits(&filter.label_selector, &sandbox.config.labels)
        });
        wanted
            .map(|sandbox| {
                let record = sandbox.record.lock();
                v1::PodSandbox {
                    id: sandbox.id.clone(),
                    metadata: sandbox.config.metadata.clone(),
                    state: sandbox_state_of(record.stopped).into(),
                    created_at: record.created_at,
                    labels: sandbox.config.labels.clone(),
                    annotations: sandbox.config.annotations.clone(),
                    runtime_handler: record.handler.clone(),
                }
            })
            .collect()
    }

    pub(super) fn container_statuses(&self, sandbox_id: &str) -> Vec<ContainerStatus> {
        self.containers_of(sandbox_id).iter().map(|c| self.container_status_of(c)).collect()
    }

    pub(super) fn container_status_of(&self, container: &Container) -> ContainerStatus {
        let (config, record, doing) = (&container.config, &container.record, container.doing());
        let exit = doing.exit.as_ref();
        let user = doing.started.as_ref().map(|started| ContainerUser {
            linux: Some(LinuxContainerUser {
                uid: started.identity.uid.into(),
                gid: started.identity.gid.into(),
                supplemental_groups: started.identity.groups.iter().map(|g| (*g).into()).collect(),
            }),
        });
        let resources = doing
            .resources
            .as_ref()
            .map(|linux| ContainerResources { linux: Some(linux.clone()), windows: None });
        let log_path = self
            .inner
            .sandboxes
            .lock()
            .get(&record.sandbox_id)
            .map(|sandbox| {
                std::path::Path::new(&sandbox.config.log_directory).join(&config.log_path)
            })
            .map(|path| path.display().to_string());
        ContainerStatus {
            id: container.id.clone(),
            metadata: config.metadata.clone(),
            state: container_state(container).into(),
            created_at: record.created_at,
            started_at: doing.started.as_ref().map_or(0, |started| started.at),
            finished_at: exit.map_or(0, |exit| exit.at),
            exit_code: exit.map_or(0, |exit| exit.code),
            image: config.image.clone().map(|image| ImageSpec {
                image: self.image_name(container).unwrap_or(image.image.clone()),
                ..image
            }),
            image_ref: record.image_ref.clone(),
            reason: exit.map(|exit| exit.reason.clone()).unwrap_or_default(),
            message: exit.map(|exit| exit.message.clone()).unwrap_or_default(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            mounts: config.mounts.iter().map(|mount| self.mount_status(mount)).collect(),
            log_path: log_path.unwrap_or_default(),
            resources,
            image_id: record.image.id.to_string(),
            user,
            stop_signal: signal::to_cri(record.stop_signal).into(),
        }
    }

    /// A mount, with what its image turned out to be.
    fn mount_status(&self, mount: &v1::Mount) -> v1::Mount {
        let mut mount = mount.clone();
        if let Some(image) = &mut mount.image
            && let Some(found) = self.inner.images.find(&image.image)
        {
            image.image_ref = found.id.to_string();
        }
        mount
    }

    /// A name for the container's image; what was asked for may have been a digest.
    fn image_name(&self, container: &Container) -> Option<String> {
        let image = self.inner.images.find(&container.record.image.id.to_string())?;
        image.tags.first().or(image.digests.first()).cloned()
    }

    pub(super) fn list_matching(&self, filter: Option<ContainerFilter>) -> Vec<v1::Container> {
        let filter = filter.unwrap_or_default();
        let containers = self.inner.containers.lock();
        let wanted = containers.values().filter(|container| {
            container.id.starts_with(&filter.id)
                && container.record.sandbox_id.starts_with(&filter.pod_sandbox_id)
                && filter.state.is_none_or(|state| state.state() == container_state(container))
                && fits(&filter.label_selector, &container.config.labels)
        });
        wanted
            .map(|container| v1::Container {
                id: container.id.clone(),
                pod_sandbox_id: container.record.sandbox_id.clone(),
                metadata: container.config.metadata.clone(),
                image: container.config.image.clone(),
                image_ref: container.record.image_ref.clone(),
                state: container_state(container).into(),
                created_at: container.record.created_at,
                labels: container.config.labels.clone(),
                annotations: container.config.annotations.clone(),
                image_id: container.record.image.id.to_string(),
            })
            .collect()
    }
}

fn sandbox_state(sandbox: &Sandbox) -> PodSandboxState {
    sandbox_state_of(!sandbox.is_ready())
}

fn sandbox_state_of(stopped: bool) -> PodSandboxState {
    if stopped { PodSandboxState::SandboxNotready } else { PodSandboxState::SandboxReady }
}

fn container_state(container: &Container) -> ContainerState {
    let doing = container.doing();
    match (doing.started.is_some(), doing.exit.is_some()) {
        (_, true) => ContainerState::ContainerExited,
        (true, false) => ContainerState::ContainerRunning,
        (false, false) => ContainerState::ContainerCreated,
    }
}

pub(super) fn fits(selector: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}
