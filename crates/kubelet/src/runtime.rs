//! The container runtime, as far as the kubelet needs one: the verbs of CRI v1 as an object.
//!
//! Whatever speaks CRI is one: the embedded runtime called in process, or a client of a socket.
//! Messages are CRI's, which is the contract; nothing else of the runtime is known here.
use client::Context;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::BoxStream;
pub use runtime::cri::v1 as cri;
use runtime::cri::{Cri, v1::*};
use std::sync::Arc;
use std::time::Duration;

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
    (@limit $usual:expr, $asked:expr) => { Some($usual) };
    (@limit $usual:expr, $asked:expr, $limit:expr, $request:ty) => {{
        let own: fn(Duration, &$request) -> Option<Duration> = $limit;
        own($usual, $asked)
    }};
    ($($name:ident: $request:ty => $response:ty $(, within $limit:expr)?;)*) => {
        /// The verbs of CRI that the kubelet uses, one row each, with how long an answer may take if that
        /// is not the usual time (`cri-client/pkg/remote_runtime.go`).
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

        impl Runtime for Patient {
            $(fn $name(&self, request: $request) -> Reply<'_, $response> {
                let limit = verbs!(@limit self.patience, &request $(, $limit, $request)?);
                self.counted(stringify!($name), within(limit, self.runtime.$name(request)))
            })*

            fn events(&self) -> Reply<'_, BoxStream<'static, String>> {
                within(Some(self.patience), self.runtime.events())
            }

            fn pull_progress(&self, image: &str) -> Option<(u64, u64)> {
                self.runtime.pull_progress(image)
            }
        }
    };
}

/// A runtime that is not waited for without end: one that hangs is told from one that works. What it is
/// asked is counted.
pub struct Patient {
    runtime: Arc<dyn Runtime>,
    /// `runtimeRequestTimeout`.
    patience: Duration,
    context: Context,
}

impl Patient {
    pub fn new(runtime: Arc<dyn Runtime>, patience: Duration, context: Context) -> Patient {
        Patient { runtime, patience, context }
    }

    fn counted<'a, T: Send + 'a>(
        &'a self,
        verb: &'static str,
        reply: Reply<'a, T>,
    ) -> Reply<'a, T> {
        async move {
            let began = tokio::time::Instant::now();
            let answer = reply.await;
            let operation = operation(verb);
            let labels = [("operation_type", operation.as_str())];
            let metrics = self.context.metrics();
            metrics.count("kubelet_runtime_operations_total", &labels);
            let took = began.elapsed().as_secs_f64();
            metrics.observe("kubelet_runtime_operations_duration_seconds", &labels, took);
            if answer.is_err() {
                metrics.count("kubelet_runtime_operations_errors_total", &labels);
            }
            answer
        }
        .boxed()
    }
}

/// Upstream's name of a verb: `run_podsandbox`, `update_container`.
fn operation(verb: &str) -> String {
    verb.replace("pod_sandbox", "podsandbox").replace("_resources", "")
}

fn within<'a, T: Send + 'a>(limit: Option<Duration>, reply: Reply<'a, T>) -> Reply<'a, T> {
    let Some(limit) = limit else { return reply };
    async move {
        let late = |_| RuntimeError::new("DeadlineExceeded", "context deadline exceeded");
        tokio::time::timeout(limit, reply).await.map_err(late)?
    }
    .boxed()
}

/// The seconds of a request, of which none means for ever.
fn seconds(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

verbs! {
    version: VersionRequest => VersionResponse;
    status: StatusRequest => StatusResponse;
    runtime_config: RuntimeConfigRequest => RuntimeConfigResponse;
    run_pod_sandbox: RunPodSandboxRequest => RunPodSandboxResponse,
        // Networks take their time.
        within |usual, _| Some(usual * 2);
    stop_pod_sandbox: StopPodSandboxRequest => StopPodSandboxResponse;
    remove_pod_sandbox: RemovePodSandboxRequest => RemovePodSandboxResponse;
    pod_sandbox_status: PodSandboxStatusRequest => PodSandboxStatusResponse;
    list_pod_sandbox: ListPodSandboxRequest => ListPodSandboxResponse;
    create_container: CreateContainerRequest => CreateContainerResponse;
    start_container: StartContainerRequest => StartContainerResponse;
    stop_container: StopContainerRequest => StopContainerResponse,
        within |usual, request| Some(usual + seconds(request.timeout).unwrap_or_default());
    remove_container: RemoveContainerRequest => RemoveContainerResponse;
    list_containers: ListContainersRequest => ListContainersResponse;
    container_status: ContainerStatusRequest => ContainerStatusResponse;
    checkpoint_container: CheckpointContainerRequest => CheckpointContainerResponse,
        within |usual, request| Some(seconds(request.timeout).unwrap_or(usual));
    reopen_container_log: ReopenContainerLogRequest => ReopenContainerLogResponse;
    update_container_resources:
        UpdateContainerResourcesRequest => UpdateContainerResourcesResponse;
    exec_sync: ExecSyncRequest => ExecSyncResponse,
        within |usual, request| Some(usual + seconds(request.timeout)?);
    exec: ExecRequest => ExecResponse;
    attach: AttachRequest => AttachResponse;
    port_forward: PortForwardRequest => PortForwardResponse;
    list_container_stats: ListContainerStatsRequest => ListContainerStatsResponse;
    list_pod_sandbox_stats: ListPodSandboxStatsRequest => ListPodSandboxStatsResponse;
    list_metric_descriptors: ListMetricDescriptorsRequest => ListMetricDescriptorsResponse;
    list_pod_sandbox_metrics: ListPodSandboxMetricsRequest => ListPodSandboxMetricsResponse;
    list_images: ListImagesRequest => ListImagesResponse;
    image_status: ImageStatusRequest => ImageStatusResponse;
    pull_image: PullImageRequest => PullImageResponse, within |_, _| None;
    remove_image: RemoveImageRequest => RemoveImageResponse;
    image_fs_info: ImageFsInfoRequest => ImageFsInfoResponse;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use client::{Context, Registry};

    #[tokio::test(start_paused = true)]
    async fn what_a_runtime_is_asked_is_counted() {
        let registry = Arc::new(Registry::default());
        let context = Context::new().with_metrics(registry.clone());
        let fake = Fake::new(&context, &[]);
        let runtime = Patient::new(Arc::new(fake), Duration::from_secs(1), context);
        runtime.list_pod_sandbox(Default::default()).await.expect("an answer");
        let removed = runtime.remove_container(Default::default()).await;
        let late = within(Some(runtime.patience), std::future::pending::<Result<(), _>>().boxed());
        let said = late.await.expect_err("nothing");
        assert_eq!(
            said.to_string(),
            "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
        );
        let text = registry.text();
        let has = |line: &str| assert!(text.lines().any(|one| one == line), "{text}");
        has("kubelet_runtime_operations_total{operation_type=\"list_podsandbox\"} 1");
        has(
            "kubelet_runtime_operations_duration_seconds_count{operation_type=\"list_podsandbox\"} 1",
        );
        has("kubelet_runtime_operations_total{operation_type=\"remove_container\"} 1");
        let failed =
            "kubelet_runtime_operations_errors_total{operation_type=\"remove_container\"} 1";
        assert_eq!(text.contains(failed), removed.is_err(), "{text}");
        assert_eq!(operation("update_container_resources"), "update_container");
    }
}
