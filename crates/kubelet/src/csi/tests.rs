//! A driver of our own beside a whole kubelet: it registers, and its volumes come and go.
use super::proto::node_server::{Node, NodeServer};
use super::proto::node_service_capability::{Rpc, Type as Kind, rpc::Type};
use super::proto::*;
use crate::plugins::proto::registration_server::{Registration, RegistrationServer};
use crate::plugins::proto::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use crate::testing::{serve, until};
use crate::tests::{Machine, one};
use k8s_openapi::api::core::v1::{
    Node as NodeObject, PersistentVolume, PersistentVolumeClaim, Pod,
};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tonic::{Request, Response, Status};

#[derive(Clone)]
struct Mock {
    endpoint: PathBuf,
    calls: Arc<Mutex<Vec<String>>>,
    can: Vec<Type>,
}

impl Mock {
    /// Serves the driver and its registration below the kubelet's folder.
    fn start(root: &Path, can: &[Type]) -> Mock {
        let folder = root.join("plugins/mock");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(root.join("plugins_registry")).unwrap();
        let endpoint = folder.join("csi.sock");
        let mock = Mock { endpoint: endpoint.clone(), calls: Arc::default(), can: can.to_vec() };
        serve(NodeServer::new(mock.clone()), &endpoint);
        serve(RegistrationServer::new(mock.clone()), &root.join("plugins_registry/mock.sock"));
        mock
    }

    fn note(&self, call: String) {
        self.calls.lock().push(call);
    }

    /// Waits for a call.
    async fn called(&self, call: &str) {
        until(call, || self.calls.lock().iter().any(|known| known.starts_with(call))).await;
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock())
    }
}

#[tonic::async_trait]
impl Registration for Mock {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: "mock.csi".to_owned(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        self.note(format!("registered {} {}", status.plugin_registered, status.error));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// The last part of a path.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

#[tonic::async_trait]
impl Node for Mock {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let device = request.publish_context.get("device").cloned().unwrap_or_default();
        self.note(format!(
            "stage {} {} {device}",
            request.volume_id,
            last(&request.staging_target_path)
        ));
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        self.note(format!("unstage {}", request.into_inner().volume_id));
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let pod = request.volume_context.get("csi.storage.k8s.io/pod.name").cloned();
        self.note(format!(
            "publish {} staged={} pod={} readonly={}",
            request.volume_id,
            !request.staging_target_path.is_empty(),
            pod.unwrap_or_default(),
            request.readonly
        ));
        let capability = request.volume_capability.unwrap();
        match capability.access_type.unwrap() {
            volume_capability::AccessType::Block(_) => {
                std::os::unix::fs::symlink("/dev/null", &request.target_path)?;
            }
            volume_capability::AccessType::Mount(_) => {
                std::fs::create_dir_all(&request.target_path)?;
                std::fs::write(Path::new(&request.target_path).join("data"), "hello")?;
            }
        }
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.note(format!("unpublish {}", request.volume_id));
        let path = Path::new(&request.target_path);
        let _ = std::fs::remove_dir_all(path).or_else(|_| std::fs::remove_file(path));
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        self.note(format!("stats {} {}", request.volume_id, last(&request.volume_path)));
        let bytes = VolumeUsage {
            total: 100,
            used: 40,
            available: 60,
            unit: volume_usage::Unit::Bytes.into(),
        };
        Ok(Response::new(NodeGetVolumeStatsResponse { usage: vec![bytes] }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let bytes = request.capacity_range.unwrap_or_default().required_bytes;
        self.note(format!("expand {} {bytes}", request.volume_id));
        Ok(Response::new(NodeExpandVolumeResponse { capacity_bytes: bytes }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let one = |can: &Type| NodeServiceCapability {
            r#type: Some(Kind::Rpc(Rpc { r#type: (*can).into() })),
        };
        let capabilities = self.can.iter().map(one).collect();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let segments = [("topology.mock/zone".to_owned(), "a".to_owned())].into();
        Ok(Response::new(NodeGetInfoResponse {
            node_id: "node-7".to_owned(),
            max_volumes_per_node: 5,
            accessible_topology: Some(Topology { segments }),
        }))
    }
}

impl Machine {
    fn put_json<T: api::rules::Form + serde::de::DeserializeOwned>(&self, tree: Value) {
        self.world.put::<T>(&serde_json::from_value(tree).unwrap());
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("kubelet")
    }

    fn phase(&self, name: &str) -> String {
        let pod = self.world.get::<Pod>("default", name);
        pod.and_then(|pod| pod.status.clone()?.phase).unwrap_or_default()
    }

    fn csi_pod(&self, name: &str, volume: Value) {
        let mut spec = one(json!({}));
        spec["nodeName"] = "n1".into();
        spec["volumes"] = json!([volume]);
        if volume["name"] == "block" {
            spec["containers"][0]["volumeDevices"] =
                json!([{ "name": "block", "devicePath": "/dev/xvda" }]);
        }
        self.put_json::<Pod>(json!({
            "metadata": { "name": name, "namespace": "default", "uid": name, "generation": 1 },
            "spec": spec
        }));
    }

    fn claimed(&self, name: &str, extra: Value) {
        let mut spec = json!({ "capacity": { "storage": "2Gi" }, "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": "mock.csi", "volumeHandle": format!("handle-{name}"), "fsType": "ext4" } });
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        self.put_json::<PersistentVolume>(json!({ "metadata": { "name": name }, "spec": spec }));
        self.put_json::<PersistentVolumeClaim>(json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "volumeName": name },
            "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } }
        }));
    }

    fn delete(&self, name: &str) {
        let mut pod = Pod::clone(&self.world.get::<Pod>("default", name).unwrap());
        pod.metadata.deletion_timestamp = Some(Time(self.context.now()));
        pod.metadata.deletion_grace_period_seconds = Some(1);
        self.world.put(&pod);
    }
}

async fn start(driver: Value, can: &[Type]) -> (Machine, Mock) {
    let machine = Machine::new();
    let context = machine.context.clone();
    let (machine, mock, _) = start_in(machine, context, driver, can).await;
    (machine, mock)
}

async fn start_in(
    machine: Machine,
    context: client::Context,
    driver: Value,
    can: &[Type],
) -> (Machine, Mock, tokio::task::JoinHandle<()>) {
    machine.put_json::<CSIDriver>(json!({ "metadata": { "name": "mock.csi" }, "spec": driver }));
    let mock = Mock::start(&machine.root(), can);
    let often = Some(std::time::Duration::from_millis(50));
    let kubelet = machine.run_kubelet_with(context, |config| config.volume_stats_period = often);
    let node = || machine.world.get::<CSINode>("", "n1");
    until("the driver is known", || node().is_some_and(|node| !node.spec.drivers.is_empty())).await;
    let calls = mock.calls.clone();
    until("the driver is told", || !calls.lock().is_empty()).await;
    assert_eq!(mock.calls(), ["registered true "]);
    (machine, mock, kubelet)
}

#[tokio::test]
async fn a_driver_registers_and_goes() {
    let (machine, _mock) = start(json!({}), &[]).await;
    let node = machine.world.get::<CSINode>("", "n1").unwrap();
    let driver = &node.spec.drivers[0];
    assert_eq!((driver.name.as_str(), driver.node_id.as_str()), ("mock.csi", "node-7"));
    assert_eq!(driver.topology_keys, Some(vec!["topology.mock/zone".to_owned()]));
    assert_eq!(driver.allocatable.as_ref().unwrap().count, Some(5));
    let node = machine.world.get::<NodeObject>("", "n1").unwrap();
    assert_eq!(node.metadata.labels.as_ref().unwrap()["topology.mock/zone"], "a");
    let ids = &node.metadata.annotations.as_ref().unwrap()["csi.volume.kubernetes.io/nodeid"];
    assert_eq!(ids, "{\"mock.csi\":\"node-7\"}");
    std::fs::remove_file(machine.root().join("plugins_registry/mock.sock")).unwrap();
    let drivers = || machine.world.get::<CSINode>("", "n1").unwrap().spec.drivers.clone();
    until("the driver is gone", || drivers().is_empty()).await;
}

#[tokio::test]
async fn a_claimed_volume_is_staged_once_and_published_for_each_pod() {
    let can = [Type::StageUnstageVolume, Type::ExpandVolume];
    let (machine, mock) =
        start(json!({ "attachRequired": true, "podInfoOnMount": true }), &can).await;
    machine.claimed("pv", json!({}));
    let digest = super::Volume {
        driver: "mock.csi".to_owned(),
        handle: "handle-pv".to_owned(),
        ..super::Volume::default()
    };
    machine.put_json::<VolumeAttachment>(json!({
        "metadata": { "name": digest.attachment("n1") },
        "spec": { "attacher": "mock.csi", "nodeName": "n1", "source": { "persistentVolumeName": "pv" } },
        "status": { "attached": true, "attachmentMetadata": { "device": "/dev/sdz" } }
    }));
    machine.csi_pod("a", json!({ "name": "v", "persistentVolumeClaim": { "claimName": "pv" } }));
    machine.attach("kubernetes.io/csi/mock.csi^handle-pv").await;
    until("a runs", || machine.phase("a") == "Running").await;
    assert_eq!(
        mock.calls(),
        [
            "stage handle-pv globalmount /dev/sdz",
            "publish handle-pv staged=true pod=a readonly=false",
            "expand handle-pv 2147483648"
        ]
    );
    let data = machine.root().join("pods/a/volumes/kubernetes.io~csi/pv/mount/data");
    assert_eq!(std::fs::read_to_string(&data).unwrap(), "hello");
    let claim = machine.world.get::<PersistentVolumeClaim>("default", "pv").unwrap();
    let capacity = claim.status.clone().unwrap().capacity.unwrap();
    assert_eq!(capacity["storage"].0, "2Gi");
    until("it is in use", || machine.in_use() == ["kubernetes.io/csi/mock.csi^handle-pv"]).await;
    let source =
        json!({ "name": "v", "persistentVolumeClaim": { "claimName": "pv", "readOnly": true } });
    machine.csi_pod("b", source);
    until("b runs", || machine.phase("b") == "Running").await;
    machine.delete("a");
    mock.called("unpublish").await;
    machine.delete("b");
    mock.called("unstage").await;
    assert_eq!(
        mock.calls(),
        [
            "stage handle-pv globalmount /dev/sdz",
            "publish handle-pv staged=true pod=b readonly=true",
            "unpublish handle-pv",
            "unpublish handle-pv",
            "unstage handle-pv"
        ]
    );
    until("it is not in use", || machine.in_use().is_empty()).await;
    let left =
        std::fs::read_dir(machine.root().join("plugins/kubernetes.io/csi/mock.csi")).unwrap();
    assert_eq!(left.count(), 0);
}

#[tokio::test]
async fn a_volume_lives_with_its_pod() {
    let driver = json!({ "volumeLifecycleModes": ["Ephemeral"], "podInfoOnMount": true });
    let (machine, mock) = start(driver, &[Type::StageUnstageVolume]).await;
    machine.csi_pod("a", json!({ "name": "v", "csi": { "driver": "mock.csi" } }));
    until("a runs", || machine.phase("a") == "Running").await;
    let calls = mock.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(calls[0].ends_with("staged=false pod=a readonly=false"), "{calls:?}");
    machine.delete("a");
    mock.called("unpublish").await;
    let calls = mock.calls();
    assert!(calls.len() == 1 && calls[0].starts_with("unpublish csi-"), "{calls:?}");
}

#[tokio::test]
async fn a_driver_that_can_tell_is_asked_how_full_a_volume_is() {
    let (machine, mock) = start(json!({ "attachRequired": false }), &[Type::GetVolumeStats]).await;
    machine.claimed("pv", json!({ "capacity": { "storage": "1Gi" } }));
    machine.csi_pod("a", json!({ "name": "v", "persistentVolumeClaim": { "claimName": "pv" } }));
    until("a runs", || machine.phase("a") == "Running").await;
    // Again and again.
    for _ in 0..2 {
        mock.called("stats handle-pv mount").await;
        mock.calls();
    }
    machine.delete("a");
    mock.called("unpublish").await;
    until("a is gone", || machine.world.get::<Pod>("default", "a").is_none()).await;
    mock.calls();
    // What was taken away is not asked for while another is, twice.
    machine.claimed("other", json!({}));
    machine.csi_pod("b", json!({ "name": "v", "persistentVolumeClaim": { "claimName": "other" } }));
    for _ in 0..2 {
        mock.called("stats handle-other mount").await;
        let calls = mock.calls();
        assert!(!calls.iter().any(|call| call.starts_with("stats handle-pv")), "{calls:?}");
    }
}

#[tokio::test]
async fn a_block_volume_is_a_device() {
    let (machine, mock) =
        start(json!({ "attachRequired": false }), &[Type::StageUnstageVolume]).await;
    machine.claimed("pv", json!({ "volumeMode": "Block", "capacity": { "storage": "1Gi" } }));
    machine
        .csi_pod("a", json!({ "name": "block", "persistentVolumeClaim": { "claimName": "pv" } }));
    until("a runs", || machine.phase("a") == "Running").await;
    let devices = machine.runtime.devices("c");
    assert_eq!(devices, ["/dev/null /dev/xvda mrw"]);
    machine.delete("a");
    mock.called("unstage").await;
    assert_eq!(
        mock.calls(),
        [
            "stage handle-pv pv ",
            "publish handle-pv staged=true pod= readonly=false",
            "unpublish handle-pv",
            "unstage handle-pv"
        ]
    );
}

#[tokio::test]
async fn a_kubelet_that_begins_anew_takes_up_what_is_mounted() {
    let machine = Machine::new();
    let first = machine.context.part();
    let driver = json!({ "attachRequired": false });
    let can = [Type::StageUnstageVolume];
    let (machine, mock, kubelet) = start_in(machine, first.clone(), driver, &can).await;
    machine.claimed("pv", json!({ "capacity": { "storage": "1Gi" } }));
    machine.csi_pod("a", json!({ "name": "v", "persistentVolumeClaim": { "claimName": "pv" } }));
    until("a runs", || machine.phase("a") == "Running").await;
    first.stop();
    kubelet.await.unwrap();
    mock.calls();
    machine.delete("a");
    machine.run_kubelet_with(machine.context.part(), |_| {});
    mock.called("unstage").await;
    until("it is not in use", || machine.in_use().is_empty()).await;
    let target = machine.root().join("pods/a/volumes/kubernetes.io~csi/pv");
    until("nothing is left", || !target.exists()).await;
}
