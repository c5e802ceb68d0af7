//! What happens in a cluster that may let a pod fit that did not: a bit each.

pub const NODE_ADD: u32 = 1;
pub const NODE_GONE: u32 = 1 << 1;
pub const NODE_ALLOCATABLE: u32 = 1 << 2;
pub const NODE_LABELS: u32 = 1 << 3;
/// Taints, or whether it is cordoned.
pub const NODE_TAINTS: u32 = 1 << 4;
/// A pod came to a node.
pub const POD_ADD: u32 = 1 << 5;
pub const POD_GONE: u32 = 1 << 6;
pub const POD_LABELS: u32 = 1 << 7;
pub const POD_SHRUNK: u32 = 1 << 8;
pub const CLAIM: u32 = 1 << 9;
pub const VOLUME: u32 = 1 << 10;
pub const STORAGE_CLASS: u32 = 1 << 11;
pub const CSI_NODE: u32 = 1 << 12;
pub const CSI_CAPACITY: u32 = 1 << 13;
pub const NAMESPACE: u32 = 1 << 14;
/// What a node declares that it can do.
pub const NODE_FEATURES: u32 = 1 << 15;
pub const DEVICE_CLAIM: u32 = 1 << 16;
pub const DEVICE_CLASS: u32 = 1 << 17;
/// Devices, or taints of devices.
pub const RESOURCE_SLICE: u32 = 1 << 18;
/// A pod group, or how many pods it has.
pub const POD_GROUP: u32 = 1 << 19;
pub const ATTACHMENT: u32 = 1 << 20;
/// What upstream calls each of them, in their order.
const NAMES: [&str; 21] = [
    "NodeAdd",
    "NodeDelete",
    "NodeAllocatableChange",
    "NodeLabelChange",
    "NodeTaintChange",
    "AssignedPodAdd",
    "AssignedPodDelete",
    "AssignedPodLabelChange",
    "AssignedPodScaleDown",
    "PersistentVolumeClaimUpdate",
    "PersistentVolumeUpdate",
    "StorageClassUpdate",
    "CSINodeUpdate",
    "CSIStorageCapacityUpdate",
    "NamespaceUpdate",
    "NodeDeclaredFeatureChange",
    "ResourceClaimUpdate",
    "DeviceClassUpdate",
    "ResourceSliceUpdate",
    "PodGroupUpdate",
    "VolumeAttachmentDelete",
];

/// The first of some events, by name.
pub fn name(events: u32) -> &'static str {
    NAMES.get(events.trailing_zeros() as usize).copied().unwrap_or("Unknown")
}

/// For pods of which nobody knows what would help.
pub const ANYTHING: u32 = u32::MAX;
