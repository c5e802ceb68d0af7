//! Starting: a sandbox; a container with its image, volumes, environment and hook.
use super::images::Wanted;
use super::mounts::Sources;
use super::{Kubelet, Memory, SyncError};
use crate::container::env::{self, Place};
use crate::container::security::Filters;
use crate::container::{config, sandbox};
use crate::found::Found;
use crate::handler::Target;
use crate::log_links;
use crate::node;
use crate::numa::memory;
use crate::plan::backoff_key;
use crate::pod::{self, Role};
use crate::runtime::cri;
use crate::volumes::{self, Contents, Places};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use k8s_openapi::api::node::v1::RuntimeClass;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Why a container does not run: what its status says.
#[derive(Debug)]
pub struct Fault {
    pub reason: String,
    pub message: String,
}

impl Fault {
    pub fn new(reason: &str, message: impl Into<String>) -> Fault {
        Fault { reason: reason.to_owned(), message: message.into() }
    }
}

impl Kubelet {
    pub(super) async fn create_sandbox(&self, pod: &Pod, attempt: u32) -> Result<(), SyncError> {
        if attempt > 0 {
            self.note(
                pod,
                None,
                "SandboxChanged",
                "Pod sandbox changed, it will be killed and re-created.",
            );
        }
        if let Err(why) = self.prepare_claims(pod).await {
            let note = format!("Failed to prepare dynamic resources: {why}");
            self.warn(pod, None, "FailedPrepareDynamicResources", &note);
            return Err(SyncError::Other(why));
        }
        let made = Box::pin(self.run_sandbox(pod, attempt)).await;
        self.context.metrics().count("kubelet_started_pods_total", &[]);
        if let Err(error) = &made {
            self.context.metrics().count("kubelet_started_pods_errors_total", &[]);
            self.warn(
                pod,
                None,
                "FailedCreatePodSandBox",
                &format!("Failed to create pod sandbox: {error}"),
            );
        }
        made
    }

    async fn run_sandbox(&self, pod: &Pod, attempt: u32) -> Result<(), SyncError> {
        let runtime_handler = match pod::spec(pod).runtime_class_name.as_deref() {
            Some(name) if !name.is_empty() => {
                let class = self.client.get::<RuntimeClass>("", name).await?;
                let class: RuntimeClass =
                    class.decode().map_err(|error| SyncError::Other(error.to_string()))?;
                class.handler
            }
            _ => String::new(),
        };
        let logs = sandbox::log_folder(&self.config, pod);
        let folder = self.config.pod_folder(pod::uid(pod));
        for path in [&logs, &folder] {
            fs::create_dir_all(path).map_err(|error| {
                SyncError::Other(format!("failed to create {}: {error}", path.display()))
            })?;
        }
        self.make_groups(pod).map_err(|error| {
            SyncError::Other(format!("unable to ensure pod container exists: {error}"))
        })?;
        let users = self.users_of(pod)?;
        let config = sandbox::config(&self.config, pod, attempt, users);
        let request = cri::RunPodSandboxRequest { config: Some(config), runtime_handler };
        self.runtime.run_pod_sandbox(request).await?;
        Ok(())
    }

    pub(super) async fn start(
        self: &Arc<Self>,
        pod: &Arc<Pod>,
        found: &Found,
        memory: &Arc<Memory>,
        container: &Container,
        role: Role,
        restarts: u32,
    ) -> Result<(), Fault> {
        let about = Some((role, container.name.as_str()));
        // Of a container whose predecessors are gone only its logs tell how many there were.
        let restarts = match found.latest(&container.name) {
            Some(_) => restarts,
            None => counted(&sandbox::log_folder(&self.config, pod).join(&container.name)),
        };
        let Some(sandbox) = found.sandbox() else {
            return Err(Fault::new("ContainerCreating", "its sandbox is gone"));
        };
        let failed =
            |reason: &'static str| move |error: SyncError| Fault::new(reason, error.to_string());
        let references =
            self.fetch(pod, memory).await.map_err(failed("CreateContainerConfigError"))?;
        let config_error = |message: String| {
            self.warn(pod, about, "Failed", &format!("Error: {message}"));
            Fault::new("CreateContainerConfigError", message)
        };
        let users = self.users_of(pod).map_err(failed("CreateContainerConfigError"))?;
        let ips = self.ips(pod, found);
        let (places, blocks) = match self.set_up(pod, memory, &references, &ips).await {
            Ok(both) => both,
            Err(message) => {
                self.warn(pod, None, "FailedMount", &message);
                return Err(Fault::new("ContainerCreating", ""));
            }
        };
        let images = self.image_volumes(pod, memory, container, about, &references).await?;
        let wanted = Wanted {
            image: container.image.as_deref().unwrap_or_default(),
            policy: container.image_pull_policy.as_deref(),
        };
        let (image_ref, image_user) =
            self.ensure_image(pod, memory, wanted, about, &references).await?;
        let needs = self.devices.needs(pod, container);
        let mut environment =
            env::environment(pod, container, &self.place(&ips), &references, &places)
                .map_err(config_error)?;
        environment.extend(needs.iter().flat_map(|needs| needs.envs.clone()));
        let mut mounts = self
            .mounts(pod, container, restarts, Sources { places, images }, &ips, &environment)
            .map_err(config_error)?;
        let mut devices = block_devices(pod, container, &blocks).map_err(config_error)?;
        for needs in &needs {
            mounts.extend(needs.mounts.iter().map(|(host, inside, readonly)| cri::Mount {
                container_path: inside.clone(),
                host_path: host.clone(),
                readonly: *readonly,
                ..cri::Mount::default()
            }));
            devices.extend(needs.devices.iter().map(|(host, inside, permissions)| cri::Device {
                container_path: inside.clone(),
                host_path: host.clone(),
                permissions: permissions.clone(),
            }));
        }
        let target = pod::spec(pod)
            .ephemeral_containers
            .iter()
            .flatten()
            .find(|one| one.name == container.name);
        let target = target.and_then(|one| one.target_container_name.as_deref());
        let target = target.and_then(|name| found.current(name)).map(|one| one.id.clone());
        let parts = config::Parts {
            pod,
            container,
            role,
            restarts,
            image_ref,
            image_user,
            environment,
            mounts,
            devices,
            target,
            enforcement: &self.enforcement,
            users,
            filters: Filters {
                by_default: self.config.seccomp_default,
                folder: &self.config.root.join("seccomp"),
            },
            has_cpus: self.cpus.exclusive(pod::uid(pod)).contains(&container.name),
        };
        let mut config = config::config(parts).map_err(config_error)?;
        if let Some(cpus) = self.cpus.of(self.config.cpu_policy.as_ref(), pod, container) {
            let linux = config.linux.get_or_insert_default();
            linux.resources.get_or_insert_default().cpuset_cpus = cpus;
        }
        let blocks = self.memory_grants.of(pod, &container.name);
        if !blocks.is_empty() {
            let linux = config.linux.get_or_insert_default();
            linux.resources.get_or_insert_default().cpuset_mems = memory::shown(&blocks);
        }
        for needs in needs {
            config.annotations.extend(needs.annotations);
            config.cdi_devices.extend(needs.cdi.into_iter().map(|name| cri::CdiDevice { name }));
        }
        let claimed = self.dra.cdi(pod, container).into_iter();
        config.cdi_devices.extend(claimed.map(|name| cri::CdiDevice { name }));
        let logs = sandbox::log_folder(&self.config, pod).join(&container.name);
        fs::create_dir_all(&logs).map_err(|error| {
            config_error(format!(
                "create container log directory for container {} failed: {error}",
                container.name
            ))
        })?;
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox::config(&self.config, pod, sandbox.attempt, users)),
        };
        let id = match self.runtime.create_container(request).await {
            Ok(answer) => answer.container_id,
            Err(error) => {
                self.warn(pod, about, "Failed", &format!("Error: {error}"));
                return Err(Fault::new("CreateContainerError", error.to_string()));
            }
        };
        self.note(pod, about, "Created", "Container created");
        if let Err(error) = self.prepare_devices(pod, container).await {
            self.warn(pod, about, "Failed", &format!("Error: {error}"));
            return Err(Fault::new("PreStartHookError", error));
        }
        self.count_restart(found, memory, container);
        let labels = [("container_type", role.metric())];
        self.context.metrics().count("kubelet_started_containers_total", &labels);
        if let Err(error) = self
            .runtime
            .start_container(cri::StartContainerRequest { container_id: id.clone() })
            .await
        {
            self.warn(pod, about, "Failed", &format!("Error: {error}"));
            let labels = [labels[0], ("code", "RunContainerError")];
            self.context.metrics().count("kubelet_started_containers_errors_total", &labels);
            return Err(Fault::new("RunContainerError", error.to_string()));
        }
        self.note(pod, about, "Started", "Container started");
        let log = logs.join(format!("{restarts}.log"));
        if let Err(error) = log_links::make(&self.config.log_root, pod, &container.name, &id, &log)
        {
            // Whoever reads logs by the API needs none.
            tracing::warn!("failed to link to {}: {error}", log.display());
        }
        memory.notes.lock().waiting.remove(&container.name);
        let target = Target {
            id: id.clone(),
            ip: ips.first().cloned().unwrap_or_default(),
            container: container.clone(),
        };
        self.post_start(pod, memory, role, &target).await
    }

    /// A failed hook ends its container.
    async fn post_start(
        &self,
        pod: &Pod,
        memory: &Memory,
        role: Role,
        target: &Target,
    ) -> Result<(), Fault> {
        let hook = target.container.lifecycle.as_ref().and_then(|all| all.post_start.as_ref());
        let Some(hook) = hook else { return Ok(()) };
        let ended = self.unless_called_off(pod, memory, target.run_hook(self, pod, hook)).await;
        let Some(Err(message)) = ended else { return Ok(()) };
        tracing::debug!(container = target.container.name, "the postStart hook failed: {message}");
        self.warn(
            pod,
            Some((role, &target.container.name)),
            "FailedPostStartHook",
            "PostStartHook failed",
        );
        self.note(pod, Some((role, &target.container.name)), "Killing", "FailedPostStartHook");
        let request =
            cri::StopContainerRequest { container_id: target.id.clone(), timeout: pod::grace(pod) };
        let _ = self.runtime.stop_container(request).await;
        Err(Fault::new("PostStartHookError", message))
    }

    fn count_restart(&self, found: &Found, memory: &Memory, container: &Container) {
        if let Some(last) = found.latest(&container.name) {
            let now = self.context.now();
            let ended = if last.finished_at > 0 { last.finished_at } else { last.created_at };
            let ended = Timestamp::from_nanosecond(ended.into()).unwrap_or(now);
            memory.notes.lock().backoff.next(&backoff_key(&container.name, container), ended, now);
        }
    }

    /// The images that the container sees as volumes, pulled as their policies say.
    async fn image_volumes(
        &self,
        pod: &Pod,
        memory: &Memory,
        container: &Container,
        about: Option<(Role, &str)>,
        references: &dyn env::References,
    ) -> Result<BTreeMap<String, String>, Fault> {
        let mut images = BTreeMap::new();
        for volume in pod::spec(pod).volumes.iter().flatten() {
            let seen = |mount: &VolumeMount| mount.name == volume.name;
            let Some(source) = &volume.image else { continue };
            if !container.volume_mounts.iter().flatten().any(seen) {
                continue;
            }
            let image = source.reference.as_deref().unwrap_or_default();
            let wanted = Wanted { image, policy: source.pull_policy.as_deref() };
            let (found, _) = self.ensure_image(pod, memory, wanted, about, references).await?;
            images.insert(volume.name.clone(), found);
        }
        Ok(images)
    }

    pub(super) fn ips(&self, pod: &Pod, found: &Found) -> Vec<String> {
        match pod::uses_host_network(pod) {
            true => self.config.node_ips.iter().map(ToString::to_string).collect(),
            false => found.sandbox().map(|sandbox| sandbox.ips.clone()).unwrap_or_default(),
        }
    }

    fn place<'a>(&'a self, ips: &'a [String]) -> Place<'a> {
        Place {
            node_name: &self.config.node_name,
            host_ips: &self.config.node_ips,
            pod_ips: ips,
            allocatable: node::allocatable(&self.config, &self.facts),
        }
    }

    async fn set_up(
        self: &Arc<Self>,
        pod: &Pod,
        memory: &Memory,
        references: &dyn env::References,
        ips: &[String],
    ) -> Result<(Places, Places), String> {
        let tokens = self.tokens(pod, memory).await.map_err(|error| error.to_string())?;
        let credentials = self.credentials(pod, memory).await.map_err(|error| error.to_string())?;
        let bundles = self.bundles(pod).await;
        let contents = Contents {
            references,
            place: self.place(ips),
            tokens: &tokens,
            bundles: &bundles,
            credentials: &credentials,
        };
        let folder = self.config.pod_folder(pod::uid(pod));
        let resolved = self.with_claims(pod, memory).await?;
        let places = volumes::set_up(&folder, &resolved.pod, &contents);
        let places = places.map_err(|error| error.line())?;
        let mut measures = resolved.measures;
        for volume in pod::spec(pod).volumes.iter().flatten() {
            let place = places.get(&volume.name);
            let own = place.and_then(|place| volumes::usage::own(volume, place));
            measures.extend(own.map(|measure| (volume.name.clone(), measure)));
        }
        memory.volumes.know(measures);
        Ok((places, resolved.devices))
    }

    /// Brings volumes up to date that show objects, for a pod that runs.
    pub(super) async fn refresh_volumes(
        self: &Arc<Self>,
        pod: &Pod,
        found: &Found,
        memory: &Memory,
    ) {
        let has = pod::spec(pod).volumes.as_ref().is_some_and(|all| !all.is_empty());
        if !has || found.running().next().is_none() {
            return;
        }
        let refreshed = match self.fetch(pod, memory).await {
            Ok(references) => {
                self.set_up(pod, memory, &references, &self.ips(pod, found)).await.map(drop)
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(message) = refreshed {
            self.warn(pod, None, "FailedMount", &message);
        }
    }
}

/// One more than the last log's number: `2.log` is of the third start.
fn counted(folder: &Path) -> u32 {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (number, rest) = name.split_once(".log")?;
        let is_log = rest.is_empty() || rest.starts_with('.');
        number.parse::<u32>().ok().filter(|_| is_log)
    });
    numbers.max().map_or(0, |last| last.saturating_add(1))
}

/// The block devices that a container sees.
fn block_devices(
    pod: &Pod,
    container: &Container,
    blocks: &Places,
) -> Result<Vec<cri::Device>, String> {
    let mut devices = Vec::new();
    for wanted in container.volume_devices.iter().flatten() {
        let path = blocks.get(&wanted.name).ok_or_else(|| {
            format!(
                "cannot find volume \"{}\" to pass into container \"{}\"",
                wanted.name, container.name
            )
        })?;
        let path = fs::canonicalize(path)
            .map_err(|error| format!("failed to read {}: {error}", path.display()))?;
        let mut claims = pod::spec(pod).volumes.iter().flatten().filter_map(|volume| {
            volume.persistent_volume_claim.as_ref().filter(|_| volume.name == wanted.name)
        });
        let read_only = claims.any(|claim| claim.read_only == Some(true));
        devices.push(cri::Device {
            container_path: wanted.device_path.clone(),
            host_path: path.display().to_string(),
            permissions: if read_only { "r" } else { "mrw" }.to_owned(),
        });
    }
    Ok(devices)
}
