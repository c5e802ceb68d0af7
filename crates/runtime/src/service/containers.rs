//! The life of a container: created, started, stopped, removed, changed.
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use super::names::{find, new_id, not_found};
use super::records::{Container, ContainerRecord, Doing, Sandbox};
use super::sandboxes::shim_status;
use super::shims::{self, ShimError};
use super::{Service, chain, now};
use crate::cdi;
use crate::cgroup::{self, Resources};
use crate::container::{oci, signal, spec};
use crate::cri::v1::{ContainerEventType, CreateContainerRequest, LinuxContainerResources};
use crate::files::Others;
use crate::image::Image;
use crate::shim::protocol::{Answer, Request};
use crate::shim::spec::Exit;

/// How long a killed process may take to be gone, and its shim to say so.
const KILL_PATIENCE: Duration = Duration::from_secs(15);

impl Service {
    /// Prepares a container: its folder and its record. Nothing runs yet, nothing is mounted.
    pub(super) async fn create(&self, request: CreateContainerRequest) -> Result<String, Status> {
        let mut config =
            request.config.ok_or_else(|| Status::invalid_argument("no container configuration"))?;
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        if !sandbox.is_ready() {
            let text = format!("sandbox {} is not ready", sandbox.id);
            return Err(Status::failed_precondition(text));
        }
        let metadata = config.metadata.clone().unwrap_or_default();
        if metadata.name.is_empty() {
            return Err(Status::invalid_argument("the container has no name"));
        }
        cdi::apply(&mut config, &cdi::FOLDERS.map(Path::new)).map_err(|error| {
            Status::failed_precondition(format!("CDI device injection failed: {error}"))
        })?;
        let wanted = config.image.clone().unwrap_or_default().image;
        // Until the record is written nobody knows that the image's layers are in use.
        let fetching = self.inner.images.fetching().await;
        let _fetching = fetching.map_err(|error| Status::internal(chain(&error)))?;
        let image = self.image_named(&wanted).await.ok_or_else(|| not_found("image", &wanted))?;
        if self.containers_of(&sandbox.id).iter().any(|c| c.config.metadata == config.metadata) {
            let text = format!("container {:?} exists already", metadata.name);
            return Err(Status::already_exists(text));
        }
        let id = new_id();
        let folder = self.root().join("containers").join(&id);
        let record = ContainerRecord {
            id: id.clone(),
            sandbox_id: sandbox.id.clone(),
            created_at: now(),
            image: Image::clone(&image),
            image_ref: reference_of(&image),
            stop_signal: signal::stop_signal(config.stop_signal(), &image.defaults.stop_signal),
        };
        let resources = config.linux.as_ref().and_then(|linux| linux.resources.clone());
        let doing = Doing { resources, ..Doing::default() };
        let parent = sandbox.cgroup_parent().0;
        let container = Arc::new(Container::new(record, config, folder, &parent, doing));
        // A mistake in the configuration is better known now than when it starts.
        if let Err(error) = self.specification(&sandbox, &container) {
            return Err(Status::invalid_argument(chain(&error)));
        }
        // Root in a user namespace is somebody else out here, and has to come to its root file system.
        let own_users = spec::user_map(&sandbox.config).is_ok_and(|users| users.is_some());
        let others = if own_users { Others::Passing } else { Others::Nobody };
        if let Err(error) = container.save(others) {
            let _ = fs::remove_dir_all(&container.folder);
            return Err(Status::internal(format!("failed to make a container: {error}")));
        }
        self.inner.containers.lock().insert(id.clone(), container);
        self.tell(&id, ContainerEventType::ContainerCreatedEvent);
        let name = &metadata.name;
        tracing::info!("container {id} ({name}) of {wanted} is created in sandbox {}", sandbox.id);
        Ok(id)
    }

    pub(super) fn specification(
        &self,
        sandbox: &Sandbox,
        container: &Container,
    ) -> Result<crate::shim::spec::ContainerSpec, spec::SpecError> {
        let images = &self.inner.images;
        spec::build(&spec::Inputs {
            sandbox: &sandbox.config,
            config: &container.config,
            image: &container.record.image,
            folder: &container.folder,
            layers: images.layers_root(),
            sandbox_folder: &sandbox.state,
            shm: &sandbox.shm(),
            group: &container.group,
            hostname: &sandbox.hostname(),
            foreign: sandbox.handler().is_some(),
            image_layers: &|name| {
                images.find(name).map(|i| i.layers.iter().rev().map(|chain| chain.hex()).collect())
            },
        })
    }

    pub(super) fn container(&self, id: &str) -> Result<Arc<Container>, Status> {
        find(&self.inner.containers.lock(), id).ok_or_else(|| not_found("container", id))
    }

    pub(super) fn containers_of(&self, sandbox_id: &str) -> Vec<Arc<Container>> {
        let all = self.inner.containers.lock();
        all.values().filter(|c| c.record.sandbox_id == sandbox_id).cloned().collect()
    }

    pub(super) async fn start(&self, id: &str) -> Result<(), Status> {
        let container = self.container(id)?;
        let _changing = container.changing.lock().await;
        let doing = container.doing();
        if doing.started.is_some() || doing.exit.is_some() {
            let text = format!("container {} was started before", container.id);
            return Err(Status::failed_precondition(text));
        }
        let sandbox = self.sandbox(&container.record.sandbox_id)?;
        match self.start_in(&sandbox, &container).await {
            Ok(()) => {
                tracing::info!("container {} runs", container.id);
                self.tell(&container.id, ContainerEventType::ContainerStartedEvent);
                if container.start_told() {
                    self.tell(&container.id, ContainerEventType::ContainerStoppedEvent);
                }
                Ok(())
            }
            Err(error) => {
                // It is over before it began, and says why.
                tracing::info!("container {} does not start: {}", container.id, error.message());
                let exit = Exit {
                    code: 128,
                    at: now(),
                    oom_killed: false,
                    message: error.message().to_owned(),
                    reason: "StartError".to_owned(),
                };
                let _ = container.group.remove();
                container.set_exit(container.settle(exit));
                Err(error)
            }
        }
    }

    async fn start_in(&self, sandbox: &Sandbox, container: &Container) -> Result<(), Status> {
        let internal = |error: io::Error| {
            Status::internal(format!("failed to start container {}: {error}", container.id))
        };
        let mut spec = self
            .specification(sandbox, container)
            .map_err(|error| Status::internal(chain(&error)))?;
        // Targets are named by what they were called when this one was created.
        if let crate::shim::spec::PidNamespace::Of(target) = &mut spec.pids {
            *target = self.container(target)?.id.clone();
        }
        container.group.create().map_err(internal)?;
        if spec.foreign.is_none() {
            self.limit(container).map_err(internal)?;
        }
        let snapshotter = self.inner.options.snapshotter;
        let prepared =
            tokio::task::spawn_blocking(move || snapshotter.prepare(&mut spec).map(|()| spec));
        let prepared = prepared.await.map_err(|error| Status::internal(error.to_string()))?;
        let spec = prepared.map_err(internal)?;
        if let (Ok(Some(map)), false) =
            (spec::user_map(&sandbox.config), spec.root.lower.is_empty())
        {
            for folder in [&spec.root.upper, &spec.root.work] {
                let (user, group) = (Some(map.users.host), Some(map.groups.host));
                std::os::unix::fs::chown(folder, user, group).map_err(internal)?;
            }
        }
        let request = Request::Start { id: container.id.clone(), spec: Box::new(spec) };
        match shims::ask(sandbox.socket(), request).await.map_err(|error| shim_status(&error))? {
            Answer::Started(started) => {
                container.set_started(started);
                Ok(())
            }
            other => Err(Status::internal(format!("the shim answered {other:?}"))),
        }
    }

    /// Limits, and devices it may use; another OCI runtime sets its containers' itself.
    fn limit(&self, container: &Container) -> io::Result<()> {
        let linux = container.config.linux.clone().unwrap_or_default();
        let privileged = linux.security_context.as_ref().is_some_and(|s| s.privileged);
        if let Some(resources) = &linux.resources {
            container.group.apply(&spec::resources(resources))?;
        }
        let rules = spec::device_rules(&container.config, privileged);
        cgroup::restrict_devices(&container.group, &rules)
    }

    /// Asks it to end, then makes it.
    pub(super) async fn stop(&self, container: &Container, grace: Duration) -> Result<(), Status> {
        if !container.is_running() {
            // What was never started cannot be stopped, and is not running.
            return Ok(());
        }
        let Ok(sandbox) = self.sandbox(&container.record.sandbox_id) else { return Ok(()) };
        let kill = |signal, all| {
            let request = Request::Kill { id: container.id.clone(), signal, all };
            shims::ask(sandbox.socket(), request)
        };
        if !grace.is_zero() {
            // Nobody waits longer than the grace, for the shim or for the container.
            let asked = async {
                match kill(container.record.stop_signal, false).await {
                    Ok(_) | Err(ShimError::Refused(_)) => {}
                    Err(error) => {
                        let text = chain(&error);
                        tracing::warn!("failed to ask container {} to end: {text}", container.id);
                    }
                }
                container.wait_ended().await;
            };
            if tokio::time::timeout(grace, asked).await.is_ok() {
                return Ok(());
            }
        }
        if sandbox.handler().is_some() {
            // What the group has in it may stand for a whole machine: its runtime knows better.
            let _ = tokio::time::timeout(KILL_PATIENCE, kill(libc::SIGKILL, true)).await;
        }
        self.kill(&sandbox, container).await
    }

    /// Kills what is in the container's group, without anybody's help. A shim that does not say then
    /// how it ended is ended itself.
    async fn kill(&self, sandbox: &Sandbox, container: &Container) -> Result<(), Status> {
        let kill_group = || {
            let group = container.group.folders();
            tokio::task::spawn_blocking(move || cgroup::kill_all(&group))
        };
        let _ = kill_group().await;
        if tokio::time::timeout(KILL_PATIENCE, container.wait_ended()).await.is_ok() {
            return Ok(());
        }
        tracing::warn!("the shim does not say how container {} ended: it is killed", container.id);
        let state = sandbox.state.clone();
        let _ = tokio::task::spawn_blocking(move || shims::kill(&state)).await;
        let _ = kill_group().await;
        let ended = tokio::time::timeout(KILL_PATIENCE, container.wait_ended()).await;
        ended.map_err(|_| {
            Status::deadline_exceeded(format!("container {} does not die", container.id))
        })
    }

    pub(super) async fn remove(&self, container: &Arc<Container>) -> Result<(), Status> {
        let _changing = container.changing.lock().await;
        self.stop(container, Duration::ZERO).await?;
        let internal = |error: io::Error| {
            Status::internal(format!("failed to remove container {}: {error}", container.id))
        };
        container.group.remove().map_err(internal)?;
        self.inner.trash.put(&container.folder).map_err(internal)?;
        self.inner.containers.lock().remove(&container.id);
        tracing::info!("container {} is removed", container.id);
        self.tell_removed(container);
        if self.inner.images.find(&container.record.image.id.to_string()).is_none() {
            self.collect();
        }
        Ok(())
    }

    fn tell_removed(&self, container: &Container) {
        let sandbox = self.inner.sandboxes.lock().get(&container.record.sandbox_id).cloned();
        let statuses = self.container_statuses(&container.record.sandbox_id);
        // Nobody may be listening.
        let _ = self.inner.events.send(crate::cri::v1::ContainerEventResponse {
            container_id: container.id.clone(),
            container_event_type: ContainerEventType::ContainerDeletedEvent.into(),
            created_at: now(),
            pod_sandbox_status: sandbox.map(|sandbox| self.sandbox_status(&sandbox)),
            containers_statuses: statuses,
        });
    }

    /// Changes limits in place; what is not said stays.
    pub(super) async fn update(
        &self,
        container: &Container,
        asked: LinuxContainerResources,
    ) -> Result<(), Status> {
        if container.is_running() {
            self.apply(container, &spec::resources(&asked)).await?;
        }
        let limits = merge(container.doing().resources.unwrap_or_default(), asked);
        container.set_resources(limits).map_err(|error| {
            Status::internal(format!("failed to record limits of {}: {error}", container.id))
        })
    }

    async fn apply(&self, container: &Container, limits: &Resources) -> Result<(), Status> {
        let sandbox = self.sandbox(&container.record.sandbox_id)?;
        if sandbox.handler().is_none() {
            return container
                .group
                .apply(limits)
                .map_err(|error| Status::internal(format!("failed to set limits: {error}")));
        }
        let resources = oci::resources(limits, &[]);
        let request = Request::Update { id: container.id.clone(), resources };
        shims::ask(sandbox.socket(), request).await.map_err(|error| shim_status(&error)).map(drop)
    }

    pub(super) async fn reopen_log(&self, container: &Container) -> Result<(), Status> {
        if !container.is_running() {
            return Err(Status::failed_precondition("the container is not running"));
        }
        let sandbox = self.sandbox(&container.record.sandbox_id)?;
        let request = Request::ReopenLog { id: container.id.clone() };
        shims::ask(sandbox.socket(), request).await.map_err(|error| shim_status(&error)).map(drop)
    }
}

/// A digest that leads to the image, as kubelets compare it: by name if it has one.
pub(super) fn reference_of(image: &Image) -> String {
    image.digests.first().cloned().unwrap_or_else(|| image.id.to_string())
}

fn merge(
    mut old: LinuxContainerResources,
    new: LinuxContainerResources,
) -> LinuxContainerResources {
    let number = |old: &mut i64, new: i64| {
        if new != 0 {
            *old = new;
        }
    };
    number(&mut old.cpu_period, new.cpu_period);
    number(&mut old.cpu_quota, new.cpu_quota);
    number(&mut old.cpu_shares, new.cpu_shares);
    number(&mut old.memory_limit_in_bytes, new.memory_limit_in_bytes);
    number(&mut old.oom_score_adj, new.oom_score_adj);
    number(&mut old.memory_swap_limit_in_bytes, new.memory_swap_limit_in_bytes);
    if !new.cpuset_cpus.is_empty() {
        old.cpuset_cpus = new.cpuset_cpus;
    }
    if !new.cpuset_mems.is_empty() {
        old.cpuset_mems = new.cpuset_mems;
    }
    if !new.hugepage_limits.is_empty() {
        old.hugepage_limits = new.hugepage_limits;
    }
    old.unified.extend(new.unified);
    old
}
