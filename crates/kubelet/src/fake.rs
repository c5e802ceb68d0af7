//! A runtime in memory: sandboxes and containers that run until a test ends them.
use crate::runtime::cri::*;
use crate::runtime::{Reply, Runtime, RuntimeError};
use client::Context;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

#[derive(Clone)]
pub struct Fake {
    context: Context,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    sandboxes: BTreeMap<String, PodSandboxStatus>,
    containers: BTreeMap<String, (ContainerStatus, String)>,
    configs: BTreeMap<String, ContainerConfig>,
    listeners: Vec<mpsc::UnboundedSender<String>>,
    calls: Vec<String>,
    made: u32,
    images: Vec<String>,
    /// While it is set, pulls go on.
    progress: Option<(u64, u64)>,
    exec_code: i32,
    /// Commands do not end.
    exec_hangs: bool,
    /// Commands are not run.
    exec_fails: bool,
    cannot_checkpoint: bool,
    /// Limits of containers are not changed.
    resize_fails: bool,
    /// What pods use of memory, by uid.
    memory: BTreeMap<String, u64>,
}

impl Fake {
    pub fn new(context: &Context, images: &[&str]) -> Fake {
        let images = images.iter().map(|image| String::from(*image)).collect();
        let state = State { images, ..State::default() };
        Fake { context: context.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// What was asked for since the last time.
    pub fn calls(&self) -> String {
        std::mem::take(&mut self.state.lock().calls).join("\n")
    }

    /// A container without a pod, which runs; its id.
    pub async fn run_alone(&self, name: &str) -> String {
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.into(), attempt: 0 }),
            ..Default::default()
        };
        let request = CreateContainerRequest { config: Some(config), ..Default::default() };
        let container_id = self.create_container(request).await.expect("made").container_id;
        let request = StartContainerRequest { container_id: container_id.clone() };
        self.start_container(request).await.expect("started");
        container_id
    }

    pub fn exec_ends_with(&self, code: i32) {
        self.state.lock().exec_code = code;
    }

    pub fn exec_hangs(&self, hangs: bool) {
        self.state.lock().exec_hangs = hangs;
    }

    pub fn exec_fails(&self, fails: bool) {
        self.state.lock().exec_fails = fails;
    }

    pub fn cannot_checkpoint(&self) {
        self.state.lock().cannot_checkpoint = true;
    }

    pub fn resize_fails(&self, fails: bool) {
        self.state.lock().resize_fails = fails;
    }

    /// How far pulls are; they end without.
    pub fn pulls_are_at(&self, progress: Option<(u64, u64)>) {
        self.state.lock().progress = progress;
    }

    pub fn uses(&self, uid: &str, memory: u64) {
        self.state.lock().memory.insert(uid.to_owned(), memory);
    }

    /// `HOST CONTAINER PERMISSIONS` of a container's devices.
    pub fn devices(&self, name: &str) -> Vec<String> {
        let state = self.state.lock();
        let mut configs = state.configs.values();
        let config = configs.find(|one| one.metadata.as_ref().unwrap().name == name).unwrap();
        let show =
            |one: &Device| format!("{} {} {}", one.host_path, one.container_path, one.permissions);
        config.devices.iter().map(show).collect()
    }

    /// The names of a container's CDI devices.
    pub fn cdi(&self, name: &str) -> Vec<String> {
        let state = self.state.lock();
        let mut configs = state.configs.values();
        let config = configs.find(|one| one.metadata.as_ref().unwrap().name == name).unwrap();
        config.cdi_devices.iter().map(|one| one.name.clone()).collect()
    }

    /// What pods use together that have something running.
    pub fn used(&self) -> u64 {
        let state = self.state.lock();
        let runs = |uid: &String| {
            let running = state
                .containers
                .values()
                .filter(|(one, _)| one.state() == ContainerState::ContainerRunning);
            let mut uids = running.filter_map(|(_, id)| state.sandboxes.get(id)?.metadata.as_ref());
            uids.any(|metadata| metadata.uid == *uid)
        };
        state.memory.iter().filter(|(uid, _)| runs(uid)).map(|(_, used)| used).sum()
    }

    pub fn environment(&self, name: &str) -> Vec<String> {
        let state = self.state.lock();
        let mut configs = state
            .configs
            .iter()
            .filter(|(id, _)| state.containers[*id].0.metadata.as_ref().unwrap().name == name);
        let envs = &configs.next().unwrap().1.envs;
        envs.iter()
            .map(|env| format!("{}={}", env.key, String::from_utf8_lossy(&env.value)))
            .collect()
    }

    /// The newest container of a name ends.
    pub fn exit(&self, name: &str, code: i32) {
        let now = self.now();
        let mut state = self.state.lock();
        let running = ContainerState::ContainerRunning;
        let found = state.containers.values_mut().filter(|(one, _)| {
            one.metadata.as_ref().unwrap().name == name && one.state() == running
        });
        let (one, _) = found.last().expect("it runs");
        end(one, code, now);
        state.tell();
    }

    fn now(&self) -> i64 {
        i64::try_from(self.context.now().as_nanosecond()).unwrap()
    }

    fn act<T: Send + 'static>(
        &self,
        call: String,
        act: impl FnOnce(&mut State, i64) -> T,
    ) -> Reply<'_, T> {
        let mut state = self.state.lock();
        if !call.is_empty() {
            state.calls.push(call);
        }
        let answer = act(&mut state, self.now());
        state.tell();
        // Things take time: events are named after the moment.
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(answer)
        }
        .boxed()
    }
}

impl State {
    fn tell(&mut self) {
        let uids: Vec<String> =
            self.sandboxes.values().map(|one| one.metadata.clone().unwrap().uid).collect();
        self.listeners.retain(|listener| uids.iter().all(|uid| listener.send(uid.clone()).is_ok()));
    }
}

fn end(one: &mut ContainerStatus, code: i32, now: i64) {
    one.state = ContainerState::ContainerExited.into();
    one.exit_code = code;
    one.finished_at = now;
}

fn refused<T>(what: &str) -> Reply<'_, T>
where
    T: Send,
{
    let error = RuntimeError::new("Unimplemented", what);
    async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Err(error)
    }
    .boxed()
}

impl Runtime for Fake {
    fn version(&self, _: VersionRequest) -> Reply<'_, VersionResponse> {
        self.act(String::new(), |_, _| VersionResponse {
            runtime_name: "fake".into(),
            runtime_version: "1".into(),
            ..Default::default()
        })
    }
    fn status(&self, _: StatusRequest) -> Reply<'_, StatusResponse> {
        let conditions = ["RuntimeReady", "NetworkReady"].map(|name| RuntimeCondition {
            r#type: name.to_owned(),
            status: true,
            ..Default::default()
        });
        let status = Some(RuntimeStatus { conditions: conditions.to_vec() });
        self.act(String::new(), |_, _| StatusResponse { status, ..Default::default() })
    }
    fn runtime_config(&self, _: RuntimeConfigRequest) -> Reply<'_, RuntimeConfigResponse> {
        self.act(String::new(), |_, _| RuntimeConfigResponse::default())
    }
    fn list_metric_descriptors(
        &self,
        _: ListMetricDescriptorsRequest,
    ) -> Reply<'_, ListMetricDescriptorsResponse> {
        self.act(String::new(), |_, _| ListMetricDescriptorsResponse::default())
    }
    fn list_pod_sandbox_metrics(
        &self,
        _: ListPodSandboxMetricsRequest,
    ) -> Reply<'_, ListPodSandboxMetricsResponse> {
        self.act(String::new(), |_, _| ListPodSandboxMetricsResponse::default())
    }
    fn run_pod_sandbox(&self, request: RunPodSandboxRequest) -> Reply<'_, RunPodSandboxResponse> {
        let config = request.config.unwrap();
        let metadata = config.metadata.unwrap();
        self.act(format!("run sandbox {} {}", metadata.name, metadata.attempt), |state, now| {
            state.made += 1;
            let id = format!("s{}", state.made);
            let network = PodSandboxNetworkStatus { ip: "10.0.0.5".into(), ..Default::default() };
            let made = PodSandboxStatus {
                id: id.clone(),
                metadata: Some(metadata),
                created_at: now,
                network: Some(network),
                labels: config.labels,
                ..Default::default()
            };
            state.sandboxes.insert(id.clone(), made);
            RunPodSandboxResponse { pod_sandbox_id: id }
        })
    }
    fn stop_pod_sandbox(
        &self,
        request: StopPodSandboxRequest,
    ) -> Reply<'_, StopPodSandboxResponse> {
        self.act("stop sandbox".to_owned(), |state, now| {
            if let Some(one) = state.sandboxes.get_mut(&request.pod_sandbox_id) {
                one.state = PodSandboxState::SandboxNotready.into();
            }
            for (one, sandbox) in state.containers.values_mut() {
                if *sandbox == request.pod_sandbox_id
                    && one.state() == ContainerState::ContainerRunning
                {
                    end(one, 137, now);
                }
            }
            StopPodSandboxResponse {}
        })
    }
    fn remove_pod_sandbox(
        &self,
        request: RemovePodSandboxRequest,
    ) -> Reply<'_, RemovePodSandboxResponse> {
        self.act("remove sandbox".to_owned(), |state, _| {
            state.sandboxes.remove(&request.pod_sandbox_id);
            RemovePodSandboxResponse {}
        })
    }
    fn pod_sandbox_status(
        &self,
        request: PodSandboxStatusRequest,
    ) -> Reply<'_, PodSandboxStatusResponse> {
        let status = self.state.lock().sandboxes.get(&request.pod_sandbox_id).cloned();
        async move { Ok(PodSandboxStatusResponse { status, ..Default::default() }) }.boxed()
    }
    fn list_pod_sandbox(
        &self,
        request: ListPodSandboxRequest,
    ) -> Reply<'_, ListPodSandboxResponse> {
        let wanted = request.filter.unwrap_or_default().label_selector;
        let state = self.state.lock();
        let fits = |one: &&PodSandboxStatus| {
            wanted.iter().all(|(key, value)| one.labels.get(key) == Some(value))
        };
        let items = state.sandboxes.values().filter(fits).map(|one| PodSandbox {
            id: one.id.clone(),
            labels: one.labels.clone(),
            ..Default::default()
        });
        let items = items.collect();
        async move { Ok(ListPodSandboxResponse { items }) }.boxed()
    }
    fn create_container(
        &self,
        request: CreateContainerRequest,
    ) -> Reply<'_, CreateContainerResponse> {
        let config = request.config.unwrap();
        let metadata = config.metadata.clone().unwrap();
        self.act(format!("create {} {}", metadata.name, metadata.attempt), |state, now| {
            state.made += 1;
            let id = format!("c{:02}", state.made);
            let made = ContainerStatus {
                id: id.clone(),
                metadata: Some(metadata),
                created_at: now + i64::from(state.made),
                image: config.image.clone(),
                image_ref: "sha256:1".into(),
                labels: config.labels.clone(),
                annotations: config.annotations.clone(),
                resources: config.linux.as_ref().map(|linux| ContainerResources {
                    linux: linux.resources.clone(),
                    ..Default::default()
                }),
                ..Default::default()
            };
            state.containers.insert(id.clone(), (made, request.pod_sandbox_id));
            state.configs.insert(id.clone(), config);
            CreateContainerResponse { container_id: id }
        })
    }
    fn start_container(&self, request: StartContainerRequest) -> Reply<'_, StartContainerResponse> {
        self.act("start".to_owned(), |state, now| {
            let (one, _) = state.containers.get_mut(&request.container_id).unwrap();
            one.state = ContainerState::ContainerRunning.into();
            one.started_at = now;
            StartContainerResponse {}
        })
    }
    fn stop_container(&self, request: StopContainerRequest) -> Reply<'_, StopContainerResponse> {
        self.act(format!("stop container {}s", request.timeout), |state, now| {
            let (one, _) = state.containers.get_mut(&request.container_id).unwrap();
            end(one, 143, now);
            StopContainerResponse {}
        })
    }
    fn remove_container(
        &self,
        request: RemoveContainerRequest,
    ) -> Reply<'_, RemoveContainerResponse> {
        self.act("remove container".to_owned(), |state, _| {
            state.containers.remove(&request.container_id);
            state.configs.remove(&request.container_id);
            RemoveContainerResponse {}
        })
    }
    fn list_containers(&self, request: ListContainersRequest) -> Reply<'_, ListContainersResponse> {
        let wanted = request.filter.unwrap_or_default().label_selector;
        let state = self.state.lock();
        let all = state.containers.values().filter(|(one, _)| {
            wanted.iter().all(|(key, value)| one.labels.get(key) == Some(value))
        });
        let containers = all.map(|(one, sandbox)| Container {
            id: one.id.clone(),
            pod_sandbox_id: sandbox.clone(),
            ..Default::default()
        });
        let containers = containers.collect();
        async move { Ok(ListContainersResponse { containers }) }.boxed()
    }
    fn container_status(
        &self,
        request: ContainerStatusRequest,
    ) -> Reply<'_, ContainerStatusResponse> {
        let status =
            self.state.lock().containers.get(&request.container_id).map(|(one, _)| one.clone());
        async move { Ok(ContainerStatusResponse { status, ..Default::default() }) }.boxed()
    }
    fn exec_sync(&self, _: ExecSyncRequest) -> Reply<'_, ExecSyncResponse> {
        async move {
            while self.state.lock().exec_hangs {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let State { exec_code: exit_code, exec_fails, .. } = *self.state.lock();
            if exec_fails {
                return Err(RuntimeError::new("Unavailable", "it is busy"));
            }
            Ok(ExecSyncResponse { exit_code, stdout: b"said".to_vec(), ..Default::default() })
        }
        .boxed()
    }
    fn image_status(&self, request: ImageStatusRequest) -> Reply<'_, ImageStatusResponse> {
        let image = request.image.unwrap().image;
        let found = self.state.lock().images.contains(&image);
        let image = found.then(|| Image { id: "sha256:1".into(), size: 5, ..Default::default() });
        // Asking changes nothing, so nobody is told.
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(ImageStatusResponse { image, ..Default::default() })
        }
        .boxed()
    }
    fn pull_image(&self, request: PullImageRequest) -> Reply<'_, PullImageResponse> {
        let name = request.image.unwrap().image;
        let auth = request.auth.map(|auth| format!(" as {}", auth.username)).unwrap_or_default();
        self.state.lock().calls.push(format!("pull {name}{auth}"));
        // What begins with `slow` comes when it is let go, to whom the registry knows.
        if !name.starts_with("slow") {
            return refused("no registry");
        }
        async move {
            while self.state.lock().progress.is_some() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            if auth != " as known" {
                return Err(RuntimeError::new("PermissionDenied", "not authorized"));
            }
            self.state.lock().images.push(name);
            Ok(PullImageResponse { image_ref: "sha256:1".into() })
        }
        .boxed()
    }
    fn reopen_container_log(
        &self,
        _: ReopenContainerLogRequest,
    ) -> Reply<'_, ReopenContainerLogResponse> {
        refused("logs")
    }
    fn update_container_resources(
        &self,
        request: UpdateContainerResourcesRequest,
    ) -> Reply<'_, UpdateContainerResourcesResponse> {
        if self.state.lock().resize_fails {
            return refused("resources");
        }
        self.act("resize".to_owned(), |state, _| {
            let (one, _) = state.containers.get_mut(&request.container_id).unwrap();
            let limits = request.linux;
            one.resources = Some(ContainerResources { linux: limits, ..Default::default() });
            UpdateContainerResourcesResponse {}
        })
    }
    fn checkpoint_container(
        &self,
        request: CheckpointContainerRequest,
    ) -> Reply<'_, CheckpointContainerResponse> {
        if self.state.lock().cannot_checkpoint {
            return refused("checkpoint");
        }
        let call = format!("checkpoint {} {}", request.location, request.timeout);
        self.act(call, |_, _| CheckpointContainerResponse {})
    }
    fn remove_image(&self, _: RemoveImageRequest) -> Reply<'_, RemoveImageResponse> {
        refused("images")
    }
    fn exec(&self, _: ExecRequest) -> Reply<'_, ExecResponse> {
        refused("exec")
    }
    fn attach(&self, _: AttachRequest) -> Reply<'_, AttachResponse> {
        refused("attach")
    }
    fn port_forward(&self, _: PortForwardRequest) -> Reply<'_, PortForwardResponse> {
        refused("port_forward")
    }
    fn list_container_stats(
        &self,
        _: ListContainerStatsRequest,
    ) -> Reply<'_, ListContainerStatsResponse> {
        refused("stats")
    }
    fn list_pod_sandbox_stats(
        &self,
        _: ListPodSandboxStatsRequest,
    ) -> Reply<'_, ListPodSandboxStatsResponse> {
        let state = self.state.lock();
        let stats = state.sandboxes.values().map(|one| {
            let used = state.memory.get(&one.metadata.as_ref().unwrap().uid).copied();
            let working_set_bytes = Some(UInt64Value { value: used.unwrap_or(0) });
            let usage_bytes = working_set_bytes;
            let of_container = MemoryUsage { usage_bytes, ..Default::default() };
            let own = state.containers.values().filter(|(_, sandbox)| *sandbox == one.id);
            let containers = own.map(|(one, _)| ContainerStats {
                attributes: Some(ContainerAttributes {
                    id: one.id.clone(),
                    labels: one.labels.clone(),
                    ..Default::default()
                }),
                memory: Some(of_container),
                ..Default::default()
            });
            let memory = MemoryUsage { working_set_bytes, usage_bytes, ..Default::default() };
            PodSandboxStats {
                attributes: Some(PodSandboxAttributes {
                    id: one.id.clone(),
                    labels: one.labels.clone(),
                    ..Default::default()
                }),
                linux: Some(LinuxPodSandboxStats {
                    memory: Some(memory),
                    containers: containers.collect(),
                    ..Default::default()
                }),
                ..Default::default()
            }
        });
        let stats = stats.collect();
        async move { Ok(ListPodSandboxStatsResponse { stats }) }.boxed()
    }
    fn list_images(&self, _: ListImagesRequest) -> Reply<'_, ListImagesResponse> {
        refused("images")
    }
    fn image_fs_info(&self, _: ImageFsInfoRequest) -> Reply<'_, ImageFsInfoResponse> {
        refused("images")
    }
    fn pull_progress(&self, _: &str) -> Option<(u64, u64)> {
        self.state.lock().progress
    }
    fn events(&self) -> Reply<'_, BoxStream<'static, String>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state.lock().listeners.push(sender);
        let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
            Some((receiver.recv().await?, receiver))
        });
        async move { Ok(stream.boxed()) }.boxed()
    }
}
