//! A driver of our own beside a whole kubelet.
use super::proto::dra_plugin_server::{DraPlugin, DraPluginServer};
use super::proto::*;
use super::proto_v1::dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer};
use super::proto_v1::{
    DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest,
    NodeWatchResourcesResponse,
};
use crate::devices::pod_resources;
use crate::plugins::proto::registration_server::{Registration, RegistrationServer};
use crate::plugins::proto::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use crate::testing::{serve, serve_all, until};
use crate::tests::{Machine, one};
use client::Context;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

#[derive(Clone)]
struct Mock {
    endpoint: PathBuf,
    calls: Arc<Mutex<Vec<String>>>,
    /// What it says instead of doing something.
    fails: Arc<Mutex<String>>,
    /// How its device is, and why.
    health: watch::Sender<(HealthStatus, &'static str)>,
}

impl Mock {
    fn note(&self, call: &str, claims: &[Claim]) {
        let names: Vec<&str> = claims.iter().map(|claim| claim.name.as_str()).collect();
        self.calls.lock().push(format!("{call} {}", names.join(" ")));
    }

    fn calls(&self) -> String {
        std::mem::take(&mut *self.calls.lock()).join(", ")
    }
}

#[tonic::async_trait]
impl Registration for Mock {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: "mock.dra".to_owned(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["v1.DRAPlugin".into(), "v1.DRAResourceHealth".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        assert!(status.plugin_registered, "{}", status.error);
        self.calls.lock().push("registered".to_owned());
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl DraPlugin for Mock {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims;
        self.note("prepare", &claims);
        let device = |name: &str, request: &str| Device {
            request_names: vec![request.to_owned()],
            pool_name: "pool".to_owned(),
            device_name: name.to_owned(),
            cdi_device_ids: vec![format!("mock.dra/thing={name}")],
            share_id: None,
        };
        let error = self.fails.lock().clone();
        let devices = vec![device("d0", "first"), device("d1", "second")];
        let one = |claim: Claim| {
            (
                claim.uid,
                NodePrepareResourceResponse { devices: devices.clone(), error: error.clone() },
            )
        };
        let claims = claims.into_iter().map(one).collect();
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims;
        self.note("unprepare", &claims);
        let one = |claim: Claim| (claim.uid, NodeUnprepareResourceResponse::default());
        let claims = claims.into_iter().map(one).collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

#[tonic::async_trait]
impl DraResourceHealth for Mock {
    type NodeWatchResourcesStream = BoxStream<'static, Result<NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let mut told = self.health.subscribe();
        told.mark_changed();
        let told = futures_util::stream::unfold(told, |mut told| async move {
            told.changed().await.ok()?;
            let (health, message) = *told.borrow_and_update();
            let device =
                DeviceIdentifier { pool_name: "pool".to_owned(), device_name: "d1".to_owned() };
            let device = DeviceHealth {
                device: Some(device),
                health: health.into(),
                message: message.to_owned(),
                ..DeviceHealth::default()
            };
            Some((Ok(NodeWatchResourcesResponse { devices: vec![device] }), told))
        });
        Ok(Response::new(told.boxed()))
    }
}

fn start() -> (Machine, Mock, tokio::task::JoinHandle<()>) {
    let machine = Machine::new();
    let root = machine.folder.path().join("kubelet");
    std::fs::create_dir_all(root.join("plugins_registry")).unwrap();
    let endpoint = machine.folder.path().join("dra.sock");
    let mock = Mock {
        endpoint: endpoint.clone(),
        calls: Arc::default(),
        fails: Arc::default(),
        health: watch::Sender::new((HealthStatus::Healthy, "")),
    };
    let services = Routes::new(DraPluginServer::new(mock.clone()));
    let services = services.add_service(DraResourceHealthServer::new(mock.clone()));
    serve_all(services, &endpoint);
    serve(RegistrationServer::new(mock.clone()), &root.join("plugins_registry/dra.sock"));
    let kubelet = machine.run_kubelet_with(machine.context.clone(), |_| {});
    (machine, mock, kubelet)
}

impl Machine {
    /// A claim that is allocated and reserved for pods of these names.
    fn claim(&self, name: &str, pods: &[&str]) {
        let reserved: Vec<Value> =
            pods.iter().map(|pod| json!({ "resource": "pods", "name": pod, "uid": pod })).collect();
        let result =
            json!({ "driver": "mock.dra", "pool": "pool", "device": "d0", "request": "first" });
        let claim = json!({
            "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}") },
            "spec": {},
            "status": { "allocation": { "devices": { "results": [result] } }, "reservedFor": reserved },
        });
        self.world.put::<ResourceClaim>(&serde_json::from_value(claim).unwrap());
    }

    /// A pod whose container uses one request of a claim.
    fn claiming(&self, name: &str, claim: &str) {
        let resources = json!({ "claims": [{ "name": "mine", "request": "second" }] });
        let mut spec = one(json!({ "resources": resources }));
        spec["nodeName"] = "n1".into();
        spec["resourceClaims"] = json!([{ "name": "mine", "resourceClaimName": claim }]);
        let metadata =
            json!({ "name": name, "namespace": "default", "uid": name, "generation": 1 });
        let pod = json!({ "metadata": metadata, "spec": spec });
        self.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
    }

    fn phase_of_pod(&self, name: &str) -> String {
        let pod = self.world.get::<Pod>("default", name);
        let status = pod.and_then(|pod| pod.status.clone());
        status.and_then(|status| status.phase).unwrap_or_default()
    }

    /// What the pod's status says of its devices.
    fn devices_of_pod(&self, name: &str) -> String {
        let pod = self.world.get::<Pod>("default", name);
        let status = pod.and_then(|pod| pod.status.clone()).unwrap_or_default();
        let statuses = status.container_statuses.unwrap_or_default();
        let told = statuses.into_iter().flat_map(|one| one.allocated_resources_status);
        let told = told.flatten().map(|one| {
            let devices = one.resources.into_iter().flatten().map(|device| {
                let (health, why) = (device.health.unwrap_or_default(), device.message);
                format!(" {}={health}:{}", device.resource_id, why.unwrap_or_default())
            });
            format!("{}{}", one.name, devices.collect::<String>())
        });
        told.collect()
    }

    fn has_event(&self, text: &str) -> bool {
        let said = |event: &Arc<Event>| event.message.as_deref().is_some_and(|said| said == text);
        self.world.all::<Event>().iter().any(said)
    }
}

#[tokio::test]
async fn claims_are_prepared_shared_shown_and_taken_back() {
    let (machine, mock, kubelet) = start();
    until("the driver is registered", || mock.calls() == "registered").await;
    machine.claim("gpu", &["a", "b"]);
    machine.claiming("a", "gpu");
    until("a runs", || machine.phase_of_pod("a") == "Running").await;
    assert_eq!(mock.calls(), "prepare gpu");
    assert_eq!(machine.runtime.cdi("c"), ["mock.dra/thing=d1"]);
    machine.claiming("b", "gpu");
    until("b runs", || machine.phase_of_pod("b") == "Running").await;
    assert_eq!(mock.calls(), "", "it is prepared already");
    let shown = pod_resources(&machine.folder.path().join("kubelet")).await;
    let dynamic = &shown[0].containers[0].dynamic_resources[0];
    assert_eq!((dynamic.claim_name.as_str(), dynamic.claim_namespace.as_str()), ("gpu", "default"));
    let resource = &dynamic.claim_resources[0];
    assert_eq!((resource.driver_name.as_str(), resource.device_name.as_str()), ("mock.dra", "d1"));
    // The next kubelet knows whose it is.
    machine.context.stop();
    kubelet.await.unwrap();
    let next = Context::simulated(machine.context.now(), 2);
    machine.run_kubelet_with(next, |_| {});
    until("the driver is registered again", || mock.calls().contains("registered")).await;
    machine.world.remove::<Pod>("default", "a");
    until("a is gone", || !machine.folder.path().join("kubelet/pods/a").exists()).await;
    assert_eq!(mock.calls(), "", "b uses it");
    machine.world.remove::<Pod>("default", "b");
    until("it is taken back", || mock.calls() == "unprepare gpu").await;
    until("b is gone", || !machine.folder.path().join("kubelet/pods/b").exists()).await;
    let text = std::fs::read_to_string(machine.folder.path().join("kubelet/dra_manager_state"));
    assert!(!text.unwrap().contains("gpu"));
}

#[tokio::test]
async fn a_pod_s_status_says_how_its_claimed_devices_are() {
    let (machine, mock, _) = start();
    until("the driver is registered", || mock.calls() == "registered").await;
    machine.claim("gpu", &["a"]);
    machine.claiming("a", "gpu");
    let says = |health: &'static str| {
        let expected = format!("claim:mine/second mock.dra/thing=d1={health}");
        let machine = &machine;
        async move { until(health, || machine.devices_of_pod("a") == expected).await }
    };
    says("Healthy:").await;
    mock.health.send_replace((HealthStatus::Unhealthy, "too hot"));
    says("Unhealthy:too hot").await;
    let file = machine.folder.path().join("kubelet/dra_health_state");
    let kept = || std::fs::read_to_string(&file).unwrap();
    assert!(kept().contains("too hot"), "the next kubelet knows it: {}", kept());
    mock.health.send_replace((HealthStatus::Healthy, ""));
    says("Healthy:").await;
    // Of a driver that is gone nobody knows how its devices are.
    let registered = machine.folder.path().join("kubelet/plugins_registry/dra.sock");
    std::fs::remove_file(registered).unwrap();
    until("the driver is gone", || mock.health.receiver_count() == 0).await;
    says("Unknown:").await;
    assert_eq!(kept(), "{}");
}

#[tokio::test]
async fn what_cannot_be_prepared_is_told_and_tried_again() {
    let (machine, mock, _) = start();
    until("the driver is registered", || mock.calls() == "registered").await;
    machine.claim("others", &["somebody"]);
    machine.claiming("thief", "others");
    let refused = "Failed to prepare dynamic resources: prepare dynamic resources: pod thief (thief) \
                   is not allowed to use ResourceClaim others (uid-others)";
    until("the thief is told", || machine.has_event(refused)).await;
    *mock.fails.lock() = "it is broken".to_owned();
    machine.claim("gpu", &["a"]);
    machine.claiming("a", "gpu");
    let broken = "Failed to prepare dynamic resources: prepare dynamic resources: \
                  NodePrepareResources failed for ResourceClaim gpu: it is broken";
    until("it is told", || machine.has_event(broken)).await;
    mock.fails.lock().clear();
    mock.calls();
    until("it runs when it can", || machine.phase_of_pod("a") == "Running").await;
    assert_eq!(mock.calls(), "prepare gpu");
    assert_ne!(machine.phase_of_pod("thief"), "Running");
}
