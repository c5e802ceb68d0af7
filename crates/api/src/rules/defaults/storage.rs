//! Defaults of storage and devices.
use super::{Fill, Rows};
use serde_json::{Map, Value, json};

pub const ROWS: Rows = &[
    ("storage/v1.StorageClass", |class| {
        class.fill("reclaimPolicy", "Delete");
        class.fill("volumeBindingMode", "Immediate");
    }),
    ("storage/v1.CSIDriver", csi_driver),
    ("resource/v1.ExactDeviceRequest", device_count),
    ("resource/v1.DeviceSubRequest", device_count),
];

fn csi_driver(driver: &mut Map<String, Value>) {
    let spec = driver.inside("spec");
    spec.fill("attachRequired", true);
    for flag in [
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "seLinuxMount",
        "preventPodSchedulingIfMissing",
    ] {
        spec.fill(flag, false);
    }
    spec.fill("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.fill_zero("volumeLifecycleModes", json!(["Persistent"]));
}

fn device_count(request: &mut Map<String, Value>) {
    request.fill("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.fill("count", 1);
    }
}
