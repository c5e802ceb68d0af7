//! A plugin of our own beside a whole kubelet.
use super::proto::device_plugin_server::{DevicePlugin, DevicePluginServer};
use super::proto::registration_client::RegistrationClient;
use super::proto::*;
use super::resources::proto::pod_resources_lister_client::PodResourcesListerClient;
use super::resources::proto::{ListPodResourcesRequest, PodResources};
use crate::plugins::connect;
use crate::testing::{serve, until};
use crate::tests::{Machine, one};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use std::path::{Path, PathBuf};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

/// Devices by id, and whether they are well.
type List = Vec<(&'static str, bool)>;

struct Mock(watch::Receiver<List>);

#[tonic::async_trait]
impl DevicePlugin for Mock {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions {
            pre_start_required: true,
            get_preferred_allocation_available: true,
        }))
    }

    type ListAndWatchStream = BoxStream<'static, Result<ListAndWatchResponse, Status>>;
    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let mut lists = self.0.clone();
        lists.mark_changed();
        let stream = futures_util::stream::unfold(lists, |mut lists| async {
            lists.changed().await.ok()?;
            let one = |(id, is_healthy): &(&str, bool)| Device {
                id: String::from(*id),
                health: if *is_healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
                topology: None,
            };
            let devices = lists.borrow_and_update().iter().map(one).collect();
            Some((Ok(ListAndWatchResponse { devices }), lists))
        });
        Ok(Response::new(stream.boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let mut ids = request.into_inner().container_requests.remove(0).available_device_i_ds;
        ids.reverse();
        let one = ContainerPreferredAllocationResponse { device_i_ds: ids };
        Ok(Response::new(PreferredAllocationResponse { container_responses: vec![one] }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let ids = request.into_inner().container_requests.remove(0).devices_ids;
        let one = ContainerAllocateResponse {
            envs: [("DEVICES".to_owned(), ids.join(","))].into(),
            devices: vec![DeviceSpec {
                host_path: "/dev/null".to_owned(),
                container_path: "/dev/thing".to_owned(),
                permissions: "rw".to_owned(),
            }],
            ..ContainerAllocateResponse::default()
        };
        Ok(Response::new(AllocateResponse { container_responses: vec![one] }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

struct Plugged {
    machine: Machine,
    list: watch::Sender<List>,
    folder: PathBuf,
}

impl Plugged {
    async fn start(list: List) -> Plugged {
        let machine = Machine::new();
        machine.run_kubelet_with(machine.context.clone(), |_| {});
        let folder = machine.folder.path().join("kubelet/device-plugins");
        let socket = folder.join("kubelet.sock");
        until("the kubelet listens", || socket.exists()).await;
        let (list, lists) = watch::channel(list);
        serve(DevicePluginServer::new(Mock(lists)), &folder.join("mock.sock"));
        let plugged = Plugged { machine, list, folder };
        plugged.register("v1beta1").await.unwrap();
        plugged
    }

    async fn register(&self, version: &str) -> Result<(), Status> {
        let channel = connect(&self.folder.join("kubelet.sock")).unwrap();
        let request = RegisterRequest {
            version: version.to_owned(),
            endpoint: "mock.sock".to_owned(),
            resource_name: "example.com/thing".to_owned(),
            options: None,
        };
        RegistrationClient::new(channel).register(request).await.map(drop)
    }

    /// `CAPACITY ALLOCATABLE`
    fn amounts(&self) -> String {
        let node = self.machine.world.get::<Node>("", "n1");
        let status = node.and_then(|node| node.status.clone()).unwrap_or_default();
        let amount = |list: Option<std::collections::BTreeMap<String, _>>| {
            let amount: Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity> =
                list.and_then(|list| list.get("example.com/thing").cloned());
            amount.map(|amount| amount.0).unwrap_or_default()
        };
        format!("{} {}", amount(status.capacity), amount(status.allocatable))
    }

    fn pod(&self, name: &str, count: u32) {
        let resources = json!({ "limits": { "example.com/thing": count.to_string() },
            "requests": { "example.com/thing": count.to_string() } });
        let mut spec = one(json!({ "resources": resources }));
        spec["nodeName"] = "n1".into();
        let metadata =
            json!({ "name": name, "namespace": "default", "uid": name, "generation": 1 });
        let pod = json!({ "metadata": metadata, "spec": spec });
        self.machine.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
    }

    fn told(&self, name: &str) -> String {
        let pod = self.machine.world.get::<Pod>("default", name).unwrap();
        let status = pod.status.clone().unwrap_or_default();
        let words = [status.phase, status.reason, status.message];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// What the kubelet's socket tells of pods.
pub async fn pod_resources(root: &Path) -> Vec<PodResources> {
    let socket = root.join("pod-resources/kubelet.sock");
    let mut client = PodResourcesListerClient::new(connect(&socket).unwrap());
    client.list(ListPodResourcesRequest {}).await.unwrap().into_inner().pod_resources
}

#[tokio::test]
async fn devices_are_counted_given_and_kept() {
    let plugged = Plugged::start(vec![("d0", true), ("d1", true), ("d2", false)]).await;
    until("they are counted", || plugged.amounts() == "3 2").await;
    plugged.pod("a", 1);
    until("a runs", || plugged.told("a") == "Running").await;
    let runtime = &plugged.machine.runtime;
    assert!(runtime.environment("c").contains(&"DEVICES=d1".to_owned()));
    assert_eq!(runtime.devices("c"), ["/dev/null /dev/thing rw"]);
    let pods = pod_resources(&plugged.machine.folder.path().join("kubelet")).await;
    assert_eq!(pods[0].containers[0].devices[0].device_ids, ["d1"]);
    let health = |name: &str| {
        let pod = plugged.machine.world.get::<Pod>("default", name).unwrap();
        let status = json!(pod.status.as_ref().unwrap().container_statuses);
        let told = &status[0]["allocatedResourcesStatus"][0];
        format!("{} {}", told["resources"][0]["resourceID"], told["resources"][0]["health"])
    };
    until("it is well", || health("a") == "\"d1\" \"Healthy\"").await;
    plugged.list.send(vec![("d0", true), ("d1", false), ("d2", false)]).unwrap();
    until("it is not", || health("a") == "\"d1\" \"Unhealthy\"").await;
    // What fails is not given any more, and what is taken neither.
    plugged.list.send(vec![("d0", false), ("d1", true), ("d2", false)]).unwrap();
    until("one is left", || plugged.amounts() == "3 1").await;
    plugged.pod("b", 1);
    until("b is refused", || plugged.told("b").starts_with("Failed")).await;
    assert_eq!(
        plugged.told("b"),
        "Failed OutOfexample.com/thing Pod was rejected: Node didn't have enough resource: example.com/thing, requested: 1, used: 1, capacity: 1"
    );
}

#[tokio::test]
async fn a_plugin_of_another_version_is_refused() {
    let plugged = Plugged::start(vec![]).await;
    let refused = plugged.register("v2").await.unwrap_err();
    assert!(refused.message().contains("is not supported by kubelet"), "{refused}");
}
