//! Kinds that still have only what every kind has: metadata and nothing else is checked.
use super::{Field, Kind};
use k8s_openapi::api::{
    admissionregistration::v1 as admissionregistration,
    authentication::v1 as authentication,
    authorization::v1 as authorization,
    autoscaling::{v1 as autoscaling_v1, v2 as autoscaling_v2},
    coordination::v1 as coordination,
    core::v1 as core,
    discovery::v1 as discovery,
    events::v1 as events,
    flowcontrol::v1 as flowcontrol,
    networking::v1 as networking,
    node::v1 as node,
    policy::v1 as policy,
    resource::v1 as resource,
    scheduling::v1 as scheduling,
    storagemigration::v1 as storagemigration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;

macro_rules! generic {
    ($($kind:ty),* $(,)?) => {
        $(impl Kind for $kind {
            fn validate(_: &Field<'_, '_>) {}
        })*
    };
}

generic! {
    core::ComponentStatus,
    core::Endpoints,
    core::Event,
    core::LimitRange,
    core::Node,
    core::ResourceQuota,
    core::Service,
    apiregistration::APIService,
    events::Event,
    authentication::SelfSubjectReview,
    authentication::TokenReview,
    authorization::LocalSubjectAccessReview,
    authorization::SelfSubjectAccessReview,
    authorization::SelfSubjectRulesReview,
    authorization::SubjectAccessReview,
    autoscaling_v2::HorizontalPodAutoscaler,
    autoscaling_v1::HorizontalPodAutoscaler,
    networking::IngressClass,
    networking::Ingress,
    networking::IPAddress,
    networking::NetworkPolicy,
    networking::ServiceCIDR,
    policy::PodDisruptionBudget,
    admissionregistration::MutatingAdmissionPolicy,
    admissionregistration::MutatingAdmissionPolicyBinding,
    admissionregistration::MutatingWebhookConfiguration,
    admissionregistration::ValidatingAdmissionPolicy,
    admissionregistration::ValidatingAdmissionPolicyBinding,
    admissionregistration::ValidatingWebhookConfiguration,
    apiextensions::CustomResourceDefinition,
    scheduling::PriorityClass,
    coordination::Lease,
    node::RuntimeClass,
    discovery::EndpointSlice,
    resource::DeviceClass,
    resource::DeviceTaintRule,
    resource::ResourceClaim,
    resource::ResourceClaimTemplate,
    resource::ResourceSlice,
    flowcontrol::FlowSchema,
    flowcontrol::PriorityLevelConfiguration,
    storagemigration::StorageVersionMigration,
}
