//! Takes the descriptions of types and fields out of the typed crate's schemas, for OpenAPI and
//! `kubectl explain`, and leaves them compressed for `openapi/descriptions.rs` to include.
//!
//! Two lines for the build instead of megabytes in the repository: the text is the typed crate's
//! own documentation and stays there.
use k8s_openapi::api::{
    admissionregistration::v1 as admissionregistration, apps::v1 as apps,
    authentication::v1 as authentication, authorization::v1 as authorization,
    autoscaling::v1 as autoscaling_v1, autoscaling::v2 as autoscaling_v2, batch::v1 as batch,
    certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events, flowcontrol::v1 as flowcontrol,
    networking::v1 as networking, node::v1 as node, policy::v1 as policy, rbac::v1 as rbac,
    resource::v1 as resource, scheduling::v1 as scheduling, storage::v1 as storage,
    storagemigration::v1 as storagemigration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use std::collections::BTreeMap;
use std::io::Write;

/// Every kind of the registry (a test compares) and the shared ones that operations mention;
/// all other types are reached from these.
macro_rules! roots {
    ($generator:ident; $($module:ident: $($kind:ident),+;)+) => {
        $($($generator.subschema_for::<$module::$kind>();)+)+
    };
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let mut generator = schemars::SchemaGenerator::default();
    roots! { generator;
        core: Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolumeClaim, PersistentVolume, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, ServiceAccount, Service;
        apiregistration: APIService;
        apps: ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet;
        events: Event;
        authentication: SelfSubjectReview, TokenReview;
        authorization: LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview;
        autoscaling_v2: HorizontalPodAutoscaler;
        autoscaling_v1: HorizontalPodAutoscaler;
        batch: CronJob, Job;
        certificates: CertificateSigningRequest, ClusterTrustBundle, PodCertificateRequest;
        networking: IngressClass, Ingress, IPAddress, NetworkPolicy, ServiceCIDR;
        policy: PodDisruptionBudget;
        rbac: ClusterRoleBinding, ClusterRole, RoleBinding, Role;
        storage: CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass;
        admissionregistration: MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration;
        apiextensions: CustomResourceDefinition;
        scheduling: PriorityClass;
        coordination: Lease;
        node: RuntimeClass;
        discovery: EndpointSlice;
        flowcontrol: FlowSchema, PriorityLevelConfiguration;
        resource: DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice;
        storagemigration: StorageVersionMigration;
        autoscaling_v1: Scale;
        authentication: TokenRequest;
        policy: Eviction;
        meta: APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, Patch, Status;
    }
    // Type → (its own description under "", and one for each field).
    let mut descriptions: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (name, schema) in generator.take_definitions(true) {
        let mut texts = BTreeMap::new();
        let described = |schema: &serde_json::Value| {
            schema.get("description").and_then(|text| text.as_str()).map(str::to_owned)
        };
        texts.extend(described(&schema).map(|text| (String::new(), text)));
        if let Some(properties) = schema.get("properties").and_then(|p| p.as_object()) {
            for (field, schema) in properties {
                texts.extend(described(schema).map(|text| (field.clone(), text)));
            }
        }
        descriptions.insert(name, texts);
    }
    let path = std::path::Path::new(&std::env::var("OUT_DIR")?).join("descriptions.json.z");
    let file = std::fs::File::create(path)?;
    let mut encoder = flate2::write::ZlibEncoder::new(file, flate2::Compression::best());
    encoder.write_all(serde_json::to_string(&descriptions)?.as_bytes())?;
    encoder.finish()?;
    Ok(())
}
