//! The Container Runtime Interface, v1: its messages, the interface as a Rust trait, and its face as
//! gRPC on a unix socket.
//!
//! Whoever lives in the same process calls [`Cri`] directly; everybody else speaks gRPC. Both see
//! the same messages and errors. A call is one row of [`calls`]: trait, server and client come from
//! it.
mod serve;

use std::future::Future;
use std::pin::Pin;

use futures_util::Stream;
use tonic::Status;

#[allow(clippy::all, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// The messages as they are declared (a `FileDescriptorSet`): how a client prints what it was answered.
pub static DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cri.descriptors"));

pub use serve::{Client, ServeError, serve};
use v1::*;

pub type Events = Pin<Box<dyn Stream<Item = Result<ContainerEventResponse, Status>> + Send>>;

/// Hands every call that has one question and one answer to `$then`.
macro_rules! calls {
    ($then:ident) => {
        $then! {
            runtime {
                version: VersionRequest => VersionResponse,
                run_pod_sandbox: RunPodSandboxRequest => RunPodSandboxResponse,
                stop_pod_sandbox: StopPodSandboxRequest => StopPodSandboxResponse,
                remove_pod_sandbox: RemovePodSandboxRequest => RemovePodSandboxResponse,
                pod_sandbox_status: PodSandboxStatusRequest => PodSandboxStatusResponse,
                list_pod_sandbox: ListPodSandboxRequest => ListPodSandboxResponse,
                create_container: CreateContainerRequest => CreateContainerResponse,
                start_container: StartContainerRequest => StartContainerResponse,
                stop_container: StopContainerRequest => StopContainerResponse,
                remove_container: RemoveContainerRequest => RemoveContainerResponse,
                list_containers: ListContainersRequest => ListContainersResponse,
                container_status: ContainerStatusRequest => ContainerStatusResponse,
                update_container_resources:
                    UpdateContainerResourcesRequest => UpdateContainerResourcesResponse,
                checkpoint_container: CheckpointContainerRequest => CheckpointContainerResponse,
                reopen_container_log: ReopenContainerLogRequest => ReopenContainerLogResponse,
                exec_sync: ExecSyncRequest => ExecSyncResponse,
                exec: ExecRequest => ExecResponse,
                attach: AttachRequest => AttachResponse,
                port_forward: PortForwardRequest => PortForwardResponse,
                container_stats: ContainerStatsRequest => ContainerStatsResponse,
                list_container_stats: ListContainerStatsRequest => ListContainerStatsResponse,
                pod_sandbox_stats: PodSandboxStatsRequest => PodSandboxStatsResponse,
                list_pod_sandbox_stats: ListPodSandboxStatsRequest => ListPodSandboxStatsResponse,
                update_runtime_config: UpdateRuntimeConfigRequest => UpdateRuntimeConfigResponse,
                status: StatusRequest => StatusResponse,
                list_metric_descriptors:
                    ListMetricDescriptorsRequest => ListMetricDescriptorsResponse,
                list_pod_sandbox_metrics:
                    ListPodSandboxMetricsRequest => ListPodSandboxMetricsResponse,
                runtime_config: RuntimeConfigRequest => RuntimeConfigResponse,
                update_pod_sandbox_resources:
                    UpdatePodSandboxResourcesRequest => UpdatePodSandboxResourcesResponse,
            }
            image {
                list_images: ListImagesRequest => ListImagesResponse,
                image_status: ImageStatusRequest => ImageStatusResponse,
                pull_image: PullImageRequest => PullImageResponse,
                remove_image: RemoveImageRequest => RemoveImageResponse,
                image_fs_info: ImageFsInfoRequest => ImageFsInfoResponse,
            }
        }
    };
}
pub(crate) use calls;

macro_rules! define_trait {
    (
        runtime { $($name:ident: $request:ty => $response:ty,)* }
        image { $($image_name:ident: $image_request:ty => $image_response:ty,)* }
    ) => {
        /// A container runtime and its images, as CRI has them.
        pub trait Cri: Send + Sync + 'static {
            $(fn $name(
                &self,
                request: $request,
            ) -> impl Future<Output = Result<$response, Status>> + Send;)*
            $(fn $image_name(
                &self,
                request: $image_request,
            ) -> impl Future<Output = Result<$image_response, Status>> + Send;)*
            /// Starts, exits and removals from now on.
            fn container_events(&self) -> impl Future<Output = Result<Events, Status>> + Send;
            /// How far a pull is: bytes received, and of all that are known of. Not part of CRI, so
            /// only whoever lives in the same process hears of it.
            fn pull_progress(&self, _image: &str) -> Option<(u64, u64)> {
                None
            }
        }
    };
}
calls!(define_trait);
