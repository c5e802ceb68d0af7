//! `pod-resources`: who has which devices, over gRPC, for monitoring
//! (`pkg/kubelet/apis/podresources`).
use super::book::{Book, Grant};
use crate::pod;
use crate::sockets::{self, Turnstile};
use crate::worker::Kubelet;
use k8s_openapi::api::core::v1::{Container, Pod};
use proto::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use proto::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, CdiDevice, ClaimResource,
    ContainerDevices, ContainerMemory, ContainerResources, DynamicResource, GetPodResourcesRequest,
    GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse, NumaNode,
    PodResources, TopologyInfo,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// Upstream has two protocols in a package of this name: this one, and the health of claimed devices.
#[allow(clippy::all, reason = "generated")]
pub mod proto {
    tonic::include_proto!("v1");
}

/// Until the context stops.
pub async fn serve(kubelet: &Arc<Kubelet>) {
    let socket = kubelet.config.root.join("pod-resources/kubelet.sock");
    let turnstile = Arc::new(Turnstile::default());
    let lister = Lister(kubelet.clone());
    let lister = PodResourcesListerServer::with_interceptor(lister, move |request| {
        turnstile.admit().map(|()| request)
    });
    sockets::serve(&kubelet.context, &socket, Routes::new(lister)).await;
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
        let pod_resources = active.map(|pod| of_pod(&self.0, &book, pod)).collect();
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
        let policy = self.0.config.cpu_policy.as_ref();
        let cpus = policy
            .into_iter()
            .flat_map(|policy| policy.topology.keys().filter(|cpu| !policy.reserved.contains(cpu)));
        let cpu_ids = cpus.map(|cpu| i64::from(*cpu)).collect();
        Ok(Response::new(AllocatableResourcesResponse { devices, cpu_ids, ..Default::default() }))
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
        let pod_resources = Some(of_pod(&self.0, &self.0.devices.book.lock(), &pod));
        Ok(Response::new(GetPodResourcesResponse { pod_resources }))
    }
}

fn of_pod(kubelet: &Kubelet, book: &Book, pod: &Pod) -> PodResources {
    let containers = pod::containers(pod).filter(|(role, _)| *role != pod::Role::Init);
    let containers = containers.map(|(_, container)| ContainerResources {
        name: container.name.clone(),
        devices: book
            .of_container(pod::uid(pod), &container.name)
            .into_iter()
            .map(|grant| of_grant(book, grant))
            .collect(),
        cpu_ids: kubelet.cpus.ids(pod::uid(pod), &container.name),
        dynamic_resources: claimed(kubelet, pod, container),
        memory: memory(kubelet, pod, container),
    });
    PodResources {
        name: pod::name(pod).to_owned(),
        namespace: pod::namespace(pod).to_owned(),
        containers: containers.collect(),
        ..PodResources::default()
    }
}

fn memory(kubelet: &Kubelet, pod: &Pod, container: &Container) -> Vec<ContainerMemory> {
    let blocks = kubelet.memory_grants.of(pod, &container.name).into_iter();
    let one = |block: crate::numa::memory::Block| ContainerMemory {
        memory_type: block.resource,
        size: block.bytes,
        topology: topology([i64::from(block.node)].into()),
    };
    blocks.map(one).collect()
}

/// Devices of claims, by claim.
fn claimed(kubelet: &Kubelet, pod: &Pod, container: &Container) -> Vec<DynamicResource> {
    let mut all: BTreeMap<String, Vec<ClaimResource>> = BTreeMap::new();
    for (claim, driver_name, device) in kubelet.dra.of_container(pod, container) {
        all.entry(claim).or_default().push(ClaimResource {
            cdi_devices: device.cdi.into_iter().map(|name| CdiDevice { name }).collect(),
            driver_name,
            pool_name: device.pool_name,
            device_name: device.device_name,
            share_id: device.share,
        });
    }
    let one = |(claim_name, claim_resources)| DynamicResource {
        claim_name,
        claim_namespace: pod::namespace(pod).to_owned(),
        claim_resources,
    };
    all.into_iter().map(one).collect()
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
