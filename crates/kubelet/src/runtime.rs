//! The container runtime, as far as the kubelet needs one: the verbs of CRI v1 as an object.
//!
//! Whatever speaks CRI is one: the embedded runtime called in process, or a client of a socket.
//! Messages are CRI's, which is the contract; nothing else of the runtime is known here.
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::BoxStream;
pub use runtime::cri::v1 as cri;
use runtime::cri::{Cri, v1::*};

pub type Reply<'a, T> = BoxFuture<'a, Result<T, RuntimeError>>;

/// What a runtime said instead of an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rpc error: code = {code} desc = {message}")]
pub struct RuntimeError {
    pub code: String,
    pub message: String,
}

impl RuntimeError {
    pub fn new(code: &str, message: impl Into<String>) -> RuntimeError {
        RuntimeError { code: code.to_owned(), message: message.into() }
    }

    pub fn is_not_found(&self) -> bool {
        self.code == "NotFound"
    }
}

impl From<tonic::Status> for RuntimeError {
    fn from(status: tonic::Status) -> RuntimeError {
        RuntimeError { code: format!("{:?}", status.code()), message: status.message().to_owned() }
    }
}

macro_rules! verbs {
    ($($name:ident: $request:ty => $response:ty,)*) => {
        /// The verbs of CRI that the kubelet uses, one row each.
        pub trait Runtime: Send + Sync + 'static {
            $(fn $name(&self, request: $request) -> Reply<'_, $response>;)*
            /// Which sandboxes or containers something happened to, from now on: their pods' uids.
            /// It ends when some may have been missed.
            fn events(&self) -> Reply<'_, BoxStream<'static, String>>;
            /// How far a pull is, in bytes of all, if the runtime tells. CRI has no such verb: it
            /// is known of a runtime in this process.
            fn pull_progress(&self, image: &str) -> Option<(u64, u64)>;
        }

        impl<T: Cri> Runtime for T {
            $(fn $name(&self, request: $request) -> Reply<'_, $response> {
                async move { Ok(Box::pin(Cri::$name(self, request)).await?) }.boxed()
            })*

            fn events(&self) -> Reply<'_, BoxStream<'static, String>> {
                async move { Ok(pods_of(Cri::container_events(self).await?)) }.boxed()
            }

            fn pull_progress(&self, image: &str) -> Option<(u64, u64)> {
                Cri::pull_progress(self, image)
            }
        }
    };
}

verbs! {
    version: VersionRequest => VersionResponse,
    status: StatusRequest => StatusResponse,
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
    reopen_container_log: ReopenContainerLogRequest => ReopenContainerLogResponse,
    update_container_resources:
        UpdateContainerResourcesRequest => UpdateContainerResourcesResponse,
    exec_sync: ExecSyncRequest => ExecSyncResponse,
    exec: ExecRequest => ExecResponse,
    attach: AttachRequest => AttachResponse,
    port_forward: PortForwardRequest => PortForwardResponse,
    list_container_stats: ListContainerStatsRequest => ListContainerStatsResponse,
    list_pod_sandbox_stats: ListPodSandboxStatsRequest => ListPodSandboxStatsResponse,
    list_images: ListImagesRequest => ListImagesResponse,
    image_status: ImageStatusRequest => ImageStatusResponse,
    pull_image: PullImageRequest => PullImageResponse,
    remove_image: RemoveImageRequest => RemoveImageResponse,
    image_fs_info: ImageFsInfoRequest => ImageFsInfoResponse,
}

fn pods_of(events: runtime::cri::Events) -> BoxStream<'static, String> {
    use futures_util::{StreamExt, future};
    let known = events.take_while(|event| future::ready(event.is_ok()));
    let uids = known.filter_map(|event| {
        let sandbox = event.ok().and_then(|event| event.pod_sandbox_status);
        let metadata = sandbox.and_then(|sandbox| sandbox.metadata);
        future::ready(metadata.map(|metadata| metadata.uid))
    });
    uids.boxed()
}
