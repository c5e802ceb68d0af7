//! Every call of CRI, each a line or two over what does the work.
use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use tokio_stream::wrappers::BroadcastStream;
use tonic::Status;

use super::Service;
use super::names::not_found;
use crate::cri::v1::*;
use crate::cri::{Cri, Events};
use crate::streaming::{Purpose, Wanted};

/// What we are called, and the interface's version.
const NAME: &str = "skiff";
const API_VERSION: &str = "v1";

impl Cri for Service {
    async fn version(&self, _: VersionRequest) -> Result<VersionResponse, Status> {
        Ok(VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: NAME.to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: API_VERSION.to_owned(),
        })
    }

    async fn run_pod_sandbox(
        &self,
        request: RunPodSandboxRequest,
    ) -> Result<RunPodSandboxResponse, Status> {
        // To the end, even if the caller goes: half a sandbox is nobody's.
        let service = self.clone();
        let made = tokio::spawn(async move { service.run_sandbox(request).await });
        let pod_sandbox_id = made.await.map_err(|error| Status::internal(error.to_string()))??;
        Ok(RunPodSandboxResponse { pod_sandbox_id })
    }

    async fn stop_pod_sandbox(
        &self,
        request: StopPodSandboxRequest,
    ) -> Result<StopPodSandboxResponse, Status> {
        self.stop_sandbox(&request.pod_sandbox_id).await?;
        Ok(StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: RemovePodSandboxRequest,
    ) -> Result<RemovePodSandboxResponse, Status> {
        self.remove_sandbox(&request.pod_sandbox_id).await?;
        Ok(RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: PodSandboxStatusRequest,
    ) -> Result<PodSandboxStatusResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let info = HashMap::from([("info".to_owned(), self.sandbox_info(&sandbox))]);
        Ok(PodSandboxStatusResponse {
            status: Some(self.sandbox_status(&sandbox)),
            info: if request.verbose { info } else { HashMap::new() },
            containers_statuses: self.container_statuses(&sandbox.id),
            timestamp: super::now(),
        })
    }

    async fn list_pod_sandbox(
        &self,
        request: ListPodSandboxRequest,
    ) -> Result<ListPodSandboxResponse, Status> {
        Ok(ListPodSandboxResponse { items: self.list_sandboxes(request.filter) })
    }

    async fn create_container(
        &self,
        request: CreateContainerRequest,
    ) -> Result<CreateContainerResponse, Status> {
        Ok(CreateContainerResponse { container_id: self.create(request).await? })
    }

    async fn start_container(
        &self,
        request: StartContainerRequest,
    ) -> Result<StartContainerResponse, Status> {
        let service = self.clone();
        let started = tokio::spawn(async move { service.start(&request.container_id).await });
        started.await.map_err(|error| Status::internal(error.to_string()))??;
        Ok(StartContainerResponse {})
    }

    async fn stop_container(
        &self,
        request: StopContainerRequest,
    ) -> Result<StopContainerResponse, Status> {
        if let Ok(container) = self.container(&request.container_id) {
            let grace = Duration::from_secs(request.timeout.max(0).unsigned_abs());
            self.stop(&container, grace).await?;
        }
        Ok(StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: RemoveContainerRequest,
    ) -> Result<RemoveContainerResponse, Status> {
        if let Ok(container) = self.container(&request.container_id) {
            self.remove(&container).await?;
        }
        Ok(RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: ListContainersRequest,
    ) -> Result<ListContainersResponse, Status> {
        Ok(ListContainersResponse { containers: self.list_matching(request.filter) })
    }

    async fn container_status(
        &self,
        request: ContainerStatusRequest,
    ) -> Result<ContainerStatusResponse, Status> {
        let container = self.container(&request.container_id)?;
        let info = HashMap::from([("info".to_owned(), self.container_info(&container))]);
        Ok(ContainerStatusResponse {
            status: Some(self.container_status_of(&container)),
            info: if request.verbose { info } else { HashMap::new() },
        })
    }

    async fn update_container_resources(
        &self,
        request: UpdateContainerResourcesRequest,
    ) -> Result<UpdateContainerResourcesResponse, Status> {
        let container = self.container(&request.container_id)?;
        if let Some(linux) = request.linux {
            self.update(&container, linux).await?;
        }
        Ok(UpdateContainerResourcesResponse {})
    }

    /// Never, but for a reason that clients know: containerd's without CRIU, CRI-O's with it.
    async fn checkpoint_container(
        &self,
        request: CheckpointContainerRequest,
    ) -> Result<CheckpointContainerResponse, Status> {
        let container = self.running(&request.container_id)?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|folder| folder.join("criu").is_file());
        Err(Status::unknown(match found {
            true => "checkpoint/restore support not available".to_owned(),
            false => format!(
                "failed to checkpoint container {:?}: criu binary not found in shim path or system \
                 PATH",
                container.id
            ),
        }))
    }

    async fn reopen_container_log(
        &self,
        request: ReopenContainerLogRequest,
    ) -> Result<ReopenContainerLogResponse, Status> {
        let container = self.container(&request.container_id)?;
        self.reopen_log(&container).await?;
        Ok(ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: ExecSyncRequest) -> Result<ExecSyncResponse, Status> {
        self.exec_and_wait(request).await
    }

    async fn exec(&self, request: ExecRequest) -> Result<ExecResponse, Status> {
        let container = self.running(&request.container_id)?.id.clone();
        let streams = Wanted {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            terminal: request.tty,
        };
        let url = self.url(Purpose::Exec { container, command: request.cmd, streams })?;
        Ok(ExecResponse { url })
    }

    async fn attach(&self, request: AttachRequest) -> Result<AttachResponse, Status> {
        let container = self.running(&request.container_id)?.id.clone();
        let streams = Wanted {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            terminal: request.tty,
        };
        Ok(AttachResponse { url: self.url(Purpose::Attach { container, streams })? })
    }

    async fn port_forward(
        &self,
        request: PortForwardRequest,
    ) -> Result<PortForwardResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        if !sandbox.is_ready() {
            return Err(Status::failed_precondition(format!(
                "sandbox {} is not ready",
                sandbox.id
            )));
        }
        let ports = request.port.iter().filter_map(|port| u16::try_from(*port).ok()).collect();
        let url = self.url(Purpose::PortForward { sandbox: sandbox.id.clone(), ports })?;
        Ok(PortForwardResponse { url })
    }

    async fn container_stats(
        &self,
        request: ContainerStatsRequest,
    ) -> Result<ContainerStatsResponse, Status> {
        let container = self.container(&request.container_id)?;
        Ok(ContainerStatsResponse {
            stats: Some(self.count(move |service| service.stats_of(&container)).await?),
        })
    }

    async fn list_container_stats(
        &self,
        request: ListContainerStatsRequest,
    ) -> Result<ListContainerStatsResponse, Status> {
        let stats = self.count(move |service| service.list_stats(request.filter)).await?;
        Ok(ListContainerStatsResponse { stats })
    }

    async fn pod_sandbox_stats(
        &self,
        request: PodSandboxStatsRequest,
    ) -> Result<PodSandboxStatsResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        Ok(PodSandboxStatsResponse {
            stats: Some(self.count(move |service| service.sandbox_stats(&sandbox)).await?),
        })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: ListPodSandboxStatsRequest,
    ) -> Result<ListPodSandboxStatsResponse, Status> {
        let stats = self.count(move |service| service.list_sandbox_stats(request.filter)).await?;
        Ok(ListPodSandboxStatsResponse { stats })
    }

    async fn update_runtime_config(
        &self,
        _: UpdateRuntimeConfigRequest,
    ) -> Result<UpdateRuntimeConfigResponse, Status> {
        // The pod network is told its range by whoever runs it.
        Ok(UpdateRuntimeConfigResponse {})
    }

    async fn status(&self, request: StatusRequest) -> Result<StatusResponse, Status> {
        Ok(self.runtime_status(request.verbose))
    }

    async fn list_metric_descriptors(
        &self,
        _: ListMetricDescriptorsRequest,
    ) -> Result<ListMetricDescriptorsResponse, Status> {
        Ok(ListMetricDescriptorsResponse { descriptors: super::metrics::descriptors() })
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: ListPodSandboxMetricsRequest,
    ) -> Result<ListPodSandboxMetricsResponse, Status> {
        let pod_metrics = self.count(|service| service.metrics()).await?;
        Ok(ListPodSandboxMetricsResponse { pod_metrics })
    }

    async fn runtime_config(
        &self,
        _: RuntimeConfigRequest,
    ) -> Result<RuntimeConfigResponse, Status> {
        let linux = LinuxRuntimeConfiguration { cgroup_driver: CgroupDriver::Cgroupfs.into() };
        Ok(RuntimeConfigResponse { linux: Some(linux) })
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: UpdatePodSandboxResourcesRequest,
    ) -> Result<UpdatePodSandboxResourcesResponse, Status> {
        // The sandbox's group is its parent's business; we hold no limit of it.
        self.sandbox(&request.pod_sandbox_id)?;
        Ok(UpdatePodSandboxResourcesResponse {})
    }

    async fn list_images(&self, request: ListImagesRequest) -> Result<ListImagesResponse, Status> {
        let filter = request.filter.unwrap_or_default().image.unwrap_or_default();
        Ok(ListImagesResponse { images: self.list_images_named(&filter.image).await })
    }

    async fn image_status(
        &self,
        request: ImageStatusRequest,
    ) -> Result<ImageStatusResponse, Status> {
        let name = request.image.unwrap_or_default().image;
        let Some((image, info)) = self.image_details(&name).await else {
            // One that is not here is an answer, not an error.
            return Ok(ImageStatusResponse::default());
        };
        let info = HashMap::from([("info".to_owned(), info)]);
        let info = if request.verbose { info } else { HashMap::new() };
        Ok(ImageStatusResponse { image: Some(image), info })
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<PullImageResponse, Status> {
        Ok(PullImageResponse { image_ref: self.pull(request).await? })
    }

    async fn remove_image(
        &self,
        request: RemoveImageRequest,
    ) -> Result<RemoveImageResponse, Status> {
        let name = request.image.unwrap_or_default().image;
        if name.is_empty() {
            return Err(not_found("image", &name));
        }
        self.remove_named(&name)?;
        Ok(RemoveImageResponse {})
    }

    async fn image_fs_info(&self, _: ImageFsInfoRequest) -> Result<ImageFsInfoResponse, Status> {
        self.count(|service| service.filesystem()).await
    }

    fn pull_progress(&self, image: &str) -> Option<(u64, u64)> {
        self.progress_of(image)
    }

    async fn container_events(&self) -> Result<Events, Status> {
        // One that falls behind misses some; its next list tells it the rest.
        let events = BroadcastStream::new(self.inner.events.subscribe());
        Ok(events.filter_map(async |event| event.ok().map(Ok)).boxed())
    }
}

impl Service {
    /// Counts what lies on disks: how much that is containers have decided, and nobody else waits for it.
    async fn count<T: Send + 'static>(
        &self,
        count: impl FnOnce(&Service) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let service = self.clone();
        let counted = tokio::task::spawn_blocking(move || count(&service)).await;
        counted.map_err(|error| Status::internal(error.to_string()))
    }

    /// Waits until a container has ended.
    pub async fn wait(&self, container_id: &str) -> Result<(), Status> {
        self.container(container_id)?.wait_ended().await;
        Ok(())
    }

    fn url(&self, purpose: Purpose) -> Result<String, Status> {
        let server = self.inner.streaming.get();
        let server = server.ok_or_else(|| Status::unavailable("streaming is not served"))?;
        server.url(purpose).map_err(|error| Status::internal(error.to_string()))
    }

    fn runtime_status(&self, verbose: bool) -> StatusResponse {
        let condition = |kind: &str, outcome: Result<(), (String, String)>| {
            let status = outcome.is_ok();
            let (reason, message) = outcome.err().unwrap_or_default();
            RuntimeCondition { r#type: kind.to_owned(), status, reason, message }
        };
        let network = self.inner.options.network.ready();
        let network = network.map_err(|error| {
            ("NetworkPluginNotReady".to_owned(), format!("Network plugin returns error: {error}"))
        });
        let info = serde_json::json!({ "root": self.root(), "state": self.inner.options.state });
        StatusResponse {
            status: Some(RuntimeStatus {
                conditions: vec![
                    condition("RuntimeReady", Ok(())),
                    condition("NetworkReady", network),
                ],
            }),
            info: match verbose {
                true => HashMap::from([("config".to_owned(), info.to_string())]),
                false => HashMap::new(),
            },
            runtime_handlers: self.handlers(),
            features: Some(RuntimeFeatures {
                supplemental_groups_policy: true,
                ..RuntimeFeatures::default()
            }),
        }
    }

    /// Ours, and those of other runtimes. Mounts are prepared by us for all of them.
    fn handlers(&self) -> Vec<RuntimeHandler> {
        let handler = |name: &str, user_namespaces| RuntimeHandler {
            name: name.to_owned(),
            features: Some(RuntimeHandlerFeatures {
                recursive_read_only_mounts: true,
                user_namespaces,
            }),
        };
        let others = self.inner.options.handlers.keys().map(|name| handler(name, false));
        [handler("", true)].into_iter().chain(others).collect()
    }

    fn sandbox_info(&self, sandbox: &super::Sandbox) -> String {
        let namespaces = sandbox.network_path();
        serde_json::json!({ "netns": namespaces, "shim": sandbox.socket() }).to_string()
    }

    fn container_info(&self, container: &super::Container) -> String {
        let started = container.doing().started;
        serde_json::json!({
            "sandboxID": container.record.sandbox_id,
            "pid": started.map_or(0, |started| started.pid),
        })
        .to_string()
    }
}
