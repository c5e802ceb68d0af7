//! The face: [`Cri`] over gRPC on a unix socket, and a client of any runtime that has one.
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use super::v1::image_service_client::ImageServiceClient;
use super::v1::image_service_server::{ImageService, ImageServiceServer};
use super::v1::runtime_service_client::RuntimeServiceClient;
use super::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use super::v1::*;
use super::{Cri, Events, calls};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("failed to listen on {}", path.display())]
    Listen { path: PathBuf, source: std::io::Error },
    #[error("failed to serve the CRI")]
    Serve(#[from] tonic::transport::Error),
}

/// Longest message: a node full of containers is listed in one.
const MESSAGE_LIMIT: usize = 16 << 20;

/// Serves until `shutdown`.
pub async fn serve<T: Cri>(
    runtime: Arc<T>,
    socket: &Path,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let failed = |source| ServeError::Listen { path: socket.to_owned(), source };
    if let Some(folder) = socket.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    // One left by a process that is gone; the state directory's lock tells if it is not.
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).map_err(failed)?;
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let face = Arc::new(Face(runtime));
    let limit = MESSAGE_LIMIT;
    Server::builder()
        .add_service(RuntimeServiceServer::from_arc(face.clone()).max_decoding_message_size(limit))
        .add_service(ImageServiceServer::from_arc(face).max_decoding_message_size(limit))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), shutdown)
        .await?;
    let _ = std::fs::remove_file(socket);
    Ok(())
}

struct Face<T>(Arc<T>);

type Stream1<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A list in one piece: clients that ask for streams do so to get lists of any length.
fn once<T: Send + 'static>(item: T) -> Response<Stream1<T>> {
    Response::new(stream::iter([Ok(item)]).boxed())
}

macro_rules! define_face {
    (
        runtime { $($name:ident: $request:ty => $response:ty,)* }
        image { $($image_name:ident: $image_request:ty => $image_response:ty,)* }
    ) => {
        #[tonic::async_trait]
        impl<T: Cri> RuntimeService for Face<T> {
            $(async fn $name(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                self.0.$name(request.into_inner()).await.map(Response::new)
            })*

            type GetContainerEventsStream = Events;
            async fn get_container_events(
                &self,
                _: Request<GetEventsRequest>,
            ) -> Result<Response<Events>, Status> {
                self.0.container_events().await.map(Response::new)
            }

            type StreamPodSandboxesStream = Stream1<StreamPodSandboxesResponse>;
            async fn stream_pod_sandboxes(
                &self,
                request: Request<StreamPodSandboxesRequest>,
            ) -> Result<Response<Self::StreamPodSandboxesStream>, Status> {
                let filter = request.into_inner().filter;
                let list = self.0.list_pod_sandbox(ListPodSandboxRequest { filter }).await?;
                Ok(once(StreamPodSandboxesResponse { pod_sandboxes: list.items }))
            }

            type StreamContainersStream = Stream1<StreamContainersResponse>;
            async fn stream_containers(
                &self,
                request: Request<StreamContainersRequest>,
            ) -> Result<Response<Self::StreamContainersStream>, Status> {
                let filter = request.into_inner().filter;
                let list = self.0.list_containers(ListContainersRequest { filter }).await?;
                Ok(once(StreamContainersResponse { containers: list.containers }))
            }

            type StreamContainerStatsStream = Stream1<StreamContainerStatsResponse>;
            async fn stream_container_stats(
                &self,
                request: Request<StreamContainerStatsRequest>,
            ) -> Result<Response<Self::StreamContainerStatsStream>, Status> {
                let filter = request.into_inner().filter;
                let list = self.0.list_container_stats(ListContainerStatsRequest { filter }).await?;
                Ok(once(StreamContainerStatsResponse { container_stats: list.stats }))
            }

            type StreamPodSandboxStatsStream = Stream1<StreamPodSandboxStatsResponse>;
            async fn stream_pod_sandbox_stats(
                &self,
                request: Request<StreamPodSandboxStatsRequest>,
            ) -> Result<Response<Self::StreamPodSandboxStatsStream>, Status> {
                let filter = request.into_inner().filter;
                let list =
                    self.0.list_pod_sandbox_stats(ListPodSandboxStatsRequest { filter }).await?;
                Ok(once(StreamPodSandboxStatsResponse { pod_sandbox_stats: list.stats }))
            }

            type StreamPodSandboxMetricsStream = Stream1<StreamPodSandboxMetricsResponse>;
            async fn stream_pod_sandbox_metrics(
                &self,
                _: Request<StreamPodSandboxMetricsRequest>,
            ) -> Result<Response<Self::StreamPodSandboxMetricsStream>, Status> {
                let list = self.0.list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}).await?;
                Ok(once(StreamPodSandboxMetricsResponse { pod_sandbox_metrics: list.pod_metrics }))
            }

            async fn checkpoint_pod(
                &self,
                _: Request<CheckpointPodRequest>,
            ) -> Result<Response<CheckpointPodResponse>, Status> {
                Err(Status::unimplemented("method CheckpointPod not implemented"))
            }

            async fn restore_pod(
                &self,
                _: Request<RestorePodRequest>,
            ) -> Result<Response<RestorePodResponse>, Status> {
                Err(Status::unimplemented("method RestorePod not implemented"))
            }
        }

        #[tonic::async_trait]
        impl<T: Cri> ImageService for Face<T> {
            $(async fn $image_name(
                &self,
                request: Request<$image_request>,
            ) -> Result<Response<$image_response>, Status> {
                self.0.$image_name(request.into_inner()).await.map(Response::new)
            })*

            type StreamImagesStream = Stream1<StreamImagesResponse>;
            async fn stream_images(
                &self,
                request: Request<StreamImagesRequest>,
            ) -> Result<Response<Self::StreamImagesStream>, Status> {
                let filter = request.into_inner().filter;
                let list = self.0.list_images(ListImagesRequest { filter }).await?;
                Ok(once(StreamImagesResponse { images: list.images }))
            }
        }
    };
}
calls!(define_face);

/// A runtime behind a socket.
#[derive(Clone)]
pub struct Client {
    runtime: RuntimeServiceClient<Channel>,
    image: ImageServiceClient<Channel>,
}

impl Client {
    /// Connects when it is first needed, and again when the runtime comes back.
    pub fn new(socket: &Path) -> Result<Self, tonic::transport::Error> {
        let channel = Endpoint::try_from(format!("unix://{}", socket.display()))?.connect_lazy();
        Ok(Client {
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(MESSAGE_LIMIT),
            image: ImageServiceClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT),
        })
    }
}

macro_rules! define_client {
    (
        runtime { $($name:ident: $request:ty => $response:ty,)* }
        image { $($image_name:ident: $image_request:ty => $image_response:ty,)* }
    ) => {
        impl Cri for Client {
            $(async fn $name(&self, request: $request) -> Result<$response, Status> {
                self.runtime.clone().$name(request).await.map(Response::into_inner)
            })*
            $(async fn $image_name(&self, request: $image_request) -> Result<$image_response, Status> {
                self.image.clone().$image_name(request).await.map(Response::into_inner)
            })*
            async fn container_events(&self) -> Result<Events, Status> {
                let events = self.runtime.clone().get_container_events(GetEventsRequest {}).await?;
                Ok(events.into_inner().boxed())
            }
        }
    };
}
calls!(define_client);
