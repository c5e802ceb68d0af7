//! `pod-resources`: who has which devices, over gRPC, for monitoring
//! (`pkg/kubelet/apis/podresources`).
use super::book::{Book, Grant};
use super::plugin::listen;
use crate::pod;
use crate::worker::Kubelet;
use k8s_openapi::api::core::v1::Pod;
use proto::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use proto::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
    ContainerResources, GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest,
    ListPodResourcesResponse, NumaNode, PodResources, TopologyInfo,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use tonic::{Request, Response, Status};

#[allow(clippy::all, reason = "generated")]
pub mod proto {
    tonic::include_proto!("v1");
}

/// Until the context stops.
pub async fn serve(kubelet: &Arc<Kubelet>) {
    let socket = kubelet.config.root.join("pod-resources/kubelet.sock");
    let listener = match listen(&socket) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!("failed to listen on {}: {error}", socket.display());
            return;
        }
    };
    let incoming = futures_util::stream::unfold(listener, |listener| async {
        Some((listener.accept().await.map(|(stream, _)| stream), listener))
    });
    let lister = PodResourcesListerServer::new(Lister(kubelet.clone()));
    let served = tonic::transport::Server::builder()
        .add_service(lister)
        .serve_with_incoming_shutdown(incoming, kubelet.context.stopped())
        .await;
    if let Err(error) = served {
        tracing::warn!("failed to serve {}: {error}", socket.display());
    }
}

struct Lister(Arc<Kubelet>);

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let pods = self.0.all_pods();
        let active = pods.iter().filter(|pod| self.0.is_active(pod));
        let book = self.0.devices.book.lock();
        let pod_resources = active.map(|pod| of_pod(&book, pod)).collect();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        let book = self.0.devices.book.lock();
        let devices = book.resources.iter().flat_map(|(name, resource)| {
            let healthy = resource.devices.iter().filter(|(_, device)| device.is_healthy);
            let one = move |(id, device): (&String, &super::book::Device)| ContainerDevices {
                resource_name: name.clone(),
                device_ids: vec![id.clone()],
                topology: topology(device.numa.iter().copied().collect()),
            };
            healthy.map(one)
        });
        let devices = devices.collect();
        Ok(Response::new(AllocatableResourcesResponse { devices, ..Default::default() }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        let GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        let pod = self.0.named(&pod_namespace, &pod_name).filter(|pod| self.0.is_active(pod));
        let pod = pod.ok_or_else(|| {
            Status::not_found(format!("pod {pod_name} in namespace {pod_namespace} not found"))
        })?;
        let pod_resources = Some(of_pod(&self.0.devices.book.lock(), &pod));
        Ok(Response::new(GetPodResourcesResponse { pod_resources }))
    }
}

fn of_pod(book: &Book, pod: &Pod) -> PodResources {
    let containers = pod::containers(pod).filter(|(role, _)| *role != pod::Role::Init);
    let containers = containers.map(|(_, container)| ContainerResources {
        name: container.name.clone(),
        devices: book
            .of_container(pod::uid(pod), &container.name)
            .into_iter()
            .map(|grant| of_grant(book, grant))
            .collect(),
        ..ContainerResources::default()
    });
    PodResources {
        name: pod::name(pod).to_owned(),
        namespace: pod::namespace(pod).to_owned(),
        containers: containers.collect(),
        ..PodResources::default()
    }
}

fn of_grant(book: &Book, grant: &Grant) -> ContainerDevices {
    let known = book.resources.get(&grant.resource).map(|one| &one.devices);
    let numa = grant.devices.iter().filter_map(|id| known?.get(id)).flat_map(|one| &one.numa);
    ContainerDevices {
        resource_name: grant.resource.clone(),
        device_ids: grant.devices.iter().cloned().collect(),
        topology: topology(numa.copied().collect()),
    }
}

fn topology(numa: BTreeSet<i64>) -> Option<TopologyInfo> {
    let nodes = numa.into_iter().map(|id| NumaNode { id }).collect();
    Some(TopologyInfo { nodes }).filter(|info: &TopologyInfo| !info.nodes.is_empty())
}
