//! The rows. What upstream v1.37 serves when nobody asks for more: its GA versions.
use super::{Foreign, Resource, Scope, Subresource, Verb, Verbs, cluster, namespaced, question};
use k8s_openapi::api::{
    admissionregistration::v1 as admissionregistration,
    apps::v1 as apps,
    authentication::v1 as authentication,
    authorization::v1 as authorization,
    autoscaling::{v1 as autoscaling_v1, v2 as autoscaling_v2},
    batch::v1 as batch,
    certificates::v1 as certificates,
    coordination::v1 as coordination,
    core::v1 as core,
    discovery::v1 as discovery,
    events::v1 as events,
    flowcontrol::v1 as flowcontrol,
    networking::v1 as networking,
    node::v1 as node,
    policy::v1 as policy,
    rbac::v1 as rbac,
    resource::v1 as resource,
    scheduling::v1 as scheduling,
    storage::v1 as storage,
    storagemigration::v1 as storagemigration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;

const fn own(name: &'static str, verbs: &[Verb]) -> Subresource {
    Subresource { name, kind: None, verbs: Verbs::of(verbs) }
}

const fn foreign(
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    verbs: &[Verb],
) -> Subresource {
    Subresource { name, kind: Some(Foreign { group, version, kind }), verbs: Verbs::of(verbs) }
}

const READ_WRITE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];
/// Streams are opened with GET (WebSocket) or POST (SPDY).
const CONNECT: &[Verb] = &[Verb::Create, Verb::Get];
const PROXIED: &[Verb] = &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update];

const STATUS: Subresource = own("status", READ_WRITE);
const SCALE: Subresource = foreign("scale", "autoscaling", "v1", "Scale", READ_WRITE);

const ALL: &[&str] = &["all"];
const EXTENSIONS: &[&str] = &["api-extensions"];

/// Every built-in resource, in the order of discovery.
pub static RESOURCES: &[Resource] = &[
    question::<core::Binding>(Scope::Namespaced).plural("bindings"),
    cluster::<core::ComponentStatus>().short(&["cs"]).verbs(&[Verb::Get, Verb::List]).stored_at(""),
    namespaced::<core::ConfigMap>().short(&["cm"]),
    namespaced::<core::Endpoints>().short(&["ep"]).stored_at("services/endpoints"),
    namespaced::<core::Event>().short(&["ev"]),
    namespaced::<core::LimitRange>().short(&["limits"]),
    cluster::<core::Namespace>()
        .short(&["ns"])
        .verbs(&[
            Verb::Create,
            Verb::Delete,
            Verb::Get,
            Verb::List,
            Verb::Patch,
            Verb::Update,
            Verb::Watch,
        ])
        .with(&[own("finalize", &[Verb::Update]), STATUS]),
    cluster::<core::Node>()
        .short(&["no"])
        .stored_at("minions")
        .with(&[foreign("proxy", "", "v1", "NodeProxyOptions", PROXIED), STATUS]),
    namespaced::<core::PersistentVolumeClaim>().returns_deleted().short(&["pvc"]).with(&[STATUS]),
    cluster::<core::PersistentVolume>().returns_deleted().short(&["pv"]).with(&[STATUS]),
    namespaced::<core::Pod>().returns_deleted().short(&["po"]).category(ALL).with(&[
        foreign("attach", "", "v1", "PodAttachOptions", CONNECT),
        foreign("binding", "", "v1", "Binding", &[Verb::Create]),
        own("ephemeralcontainers", READ_WRITE),
        foreign("eviction", "policy", "v1", "Eviction", &[Verb::Create]),
        foreign("exec", "", "v1", "PodExecOptions", CONNECT),
        own("log", &[Verb::Get]),
        foreign("portforward", "", "v1", "PodPortForwardOptions", CONNECT),
        foreign("proxy", "", "v1", "PodProxyOptions", PROXIED),
        own("resize", READ_WRITE),
        STATUS,
    ]),
    namespaced::<core::PodTemplate>().returns_deleted(),
    namespaced::<core::ReplicationController>()
        .short(&["rc"])
        .category(ALL)
        .stored_at("controllers")
        .with(&[SCALE, STATUS]),
    namespaced::<core::ResourceQuota>().returns_deleted().short(&["quota"]).with(&[STATUS]),
    namespaced::<core::Secret>(),
    namespaced::<core::ServiceAccount>().returns_deleted().short(&["sa"]).with(&[foreign(
        "token",
        "authentication.k8s.io",
        "v1",
        "TokenRequest",
        &[Verb::Create],
    )]),
    namespaced::<core::Service>()
        .returns_deleted()
        .short(&["svc"])
        .category(ALL)
        .stored_at("services/specs")
        .with(&[foreign("proxy", "", "v1", "ServiceProxyOptions", PROXIED), STATUS]),
    //
    cluster::<apiregistration::APIService>()
        .category(EXTENSIONS)
        .stored_at("apiregistration.k8s.io/apiservices")
        .with(&[STATUS]),
    //
    namespaced::<apps::ControllerRevision>(),
    namespaced::<apps::DaemonSet>().short(&["ds"]).category(ALL).with(&[STATUS]),
    namespaced::<apps::Deployment>().short(&["deploy"]).category(ALL).with(&[SCALE, STATUS]),
    namespaced::<apps::ReplicaSet>().short(&["rs"]).category(ALL).with(&[SCALE, STATUS]),
    namespaced::<apps::StatefulSet>().short(&["sts"]).category(ALL).with(&[SCALE, STATUS]),
    //
    namespaced::<events::Event>().short(&["ev"]).stored_as("v1"),
    //
    question::<authentication::SelfSubjectReview>(Scope::Cluster),
    question::<authentication::TokenReview>(Scope::Cluster),
    //
    question::<authorization::LocalSubjectAccessReview>(Scope::Namespaced),
    question::<authorization::SelfSubjectAccessReview>(Scope::Cluster),
    question::<authorization::SelfSubjectRulesReview>(Scope::Cluster),
    question::<authorization::SubjectAccessReview>(Scope::Cluster),
    //
    namespaced::<autoscaling_v2::HorizontalPodAutoscaler>()
        .short(&["hpa"])
        .category(ALL)
        .with(&[STATUS]),
    namespaced::<autoscaling_v1::HorizontalPodAutoscaler>()
        .short(&["hpa"])
        .category(ALL)
        .with(&[STATUS])
        .stored_as("autoscaling/v2"),
    //
    namespaced::<batch::CronJob>().short(&["cj"]).category(ALL).with(&[STATUS]),
    namespaced::<batch::Job>().category(ALL).with(&[STATUS]),
    //
    cluster::<certificates::CertificateSigningRequest>()
        .short(&["csr"])
        .with(&[own("approval", READ_WRITE), STATUS]),
    cluster::<certificates::ClusterTrustBundle>(),
    namespaced::<certificates::PodCertificateRequest>().with(&[STATUS]),
    //
    cluster::<networking::IngressClass>(),
    namespaced::<networking::Ingress>().short(&["ing"]).stored_at("ingress").with(&[STATUS]),
    cluster::<networking::IPAddress>().short(&["ip"]),
    namespaced::<networking::NetworkPolicy>().short(&["netpol"]),
    cluster::<networking::ServiceCIDR>().with(&[STATUS]),
    //
    namespaced::<policy::PodDisruptionBudget>().short(&["pdb"]).with(&[STATUS]),
    //
    cluster::<rbac::ClusterRoleBinding>(),
    cluster::<rbac::ClusterRole>(),
    namespaced::<rbac::RoleBinding>(),
    namespaced::<rbac::Role>(),
    //
    cluster::<storage::CSIDriver>().returns_deleted(),
    cluster::<storage::CSINode>().returns_deleted().with(&[STATUS]),
    namespaced::<storage::CSIStorageCapacity>(),
    cluster::<storage::StorageClass>().returns_deleted().short(&["sc"]),
    cluster::<storage::VolumeAttachment>().returns_deleted().with(&[STATUS]),
    cluster::<storage::VolumeAttributesClass>().returns_deleted().short(&["vac"]),
    //
    cluster::<admissionregistration::MutatingAdmissionPolicy>().category(EXTENSIONS),
    cluster::<admissionregistration::MutatingAdmissionPolicyBinding>().category(EXTENSIONS),
    cluster::<admissionregistration::MutatingWebhookConfiguration>().category(EXTENSIONS),
    cluster::<admissionregistration::ValidatingAdmissionPolicy>()
        .category(EXTENSIONS)
        .with(&[STATUS]),
    cluster::<admissionregistration::ValidatingAdmissionPolicyBinding>().category(EXTENSIONS),
    cluster::<admissionregistration::ValidatingWebhookConfiguration>().category(EXTENSIONS),
    //
    cluster::<apiextensions::CustomResourceDefinition>()
        .short(&["crd", "crds"])
        .category(EXTENSIONS)
        .stored_at("apiextensions.k8s.io/customresourcedefinitions")
        .with(&[STATUS]),
    //
    cluster::<scheduling::PriorityClass>().short(&["pc"]),
    //
    namespaced::<coordination::Lease>(),
    //
    cluster::<node::RuntimeClass>(),
    //
    namespaced::<discovery::EndpointSlice>(),
    //
    cluster::<flowcontrol::FlowSchema>().with(&[STATUS]),
    cluster::<flowcontrol::PriorityLevelConfiguration>().with(&[STATUS]),
    //
    cluster::<resource::DeviceClass>().returns_deleted(),
    cluster::<resource::DeviceTaintRule>().with(&[STATUS]),
    namespaced::<resource::ResourceClaim>().returns_deleted().with(&[STATUS]),
    namespaced::<resource::ResourceClaimTemplate>().returns_deleted(),
    cluster::<resource::ResourceSlice>().returns_deleted(),
    //
    cluster::<storagemigration::StorageVersionMigration>().with(&[STATUS]),
];
