//! Claims whose volumes are folders of the node.
use super::{Machine, one};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[tokio::test(start_paused = true)]
async fn a_local_volume_is_its_first_pods_groups() {
    let machine = Machine::new();
    let registry = std::sync::Arc::new(client::Registry::default());
    let known = registry.clone();
    machine.run_kubelet_with(machine.context.clone(), |config| config.registry = known);
    let disk = machine.folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    fs::write(disk.join("file"), "").unwrap();
    fs::set_permissions(disk.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    let volume = json!({ "metadata": { "name": "pv" }, "spec": { "local": { "path": disk } } });
    machine.world.put::<PersistentVolume>(&serde_json::from_value(volume).unwrap());
    let claim = json!({ "metadata": { "name": "claim", "namespace": "default" },
        "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } });
    machine.world.put::<PersistentVolumeClaim>(&serde_json::from_value(claim).unwrap());
    let group = fs::metadata(&disk).unwrap().gid();
    let mut spec = one(json!({}));
    spec["securityContext"] = json!({ "fsGroup": group });
    spec["volumes"] = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "claim" } }]);
    machine.pod(spec);
    machine.pass(2).await;
    assert_eq!(machine.shown(), "Running ready c running  restarts=0");
    let mode = |path: &str| fs::metadata(disk.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("") & 0o2070, mode("file")), (0o2070, 0o660));
    machine.pass(10).await;
    let name = "kubelet_volume_metric_collection_duration_seconds";
    let measured = format!("{name}_count{{metric_source=\"statfs\"}} 1\n");
    assert!(registry.text().contains(&measured), "{}", registry.text());
    // What a container changes then is its own affair.
    fs::set_permissions(disk.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    machine.pass(130).await;
    assert_eq!(mode("file"), 0o600);
}
