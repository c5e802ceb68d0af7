//! Kinds that still have only what every kind has: metadata and nothing else is checked.
use super::{Field, Kind};
use k8s_openapi::api::{
    admissionregistration::v1 as admissionregistration, authentication::v1 as authentication,
    authorization::v1 as authorization, resource::v1 as resource,
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
    apiregistration::APIService,
    authentication::SelfSubjectReview,
    authentication::TokenReview,
    authorization::LocalSubjectAccessReview,
    authorization::SelfSubjectAccessReview,
    authorization::SelfSubjectRulesReview,
    authorization::SubjectAccessReview,
    admissionregistration::MutatingAdmissionPolicy,
    admissionregistration::MutatingAdmissionPolicyBinding,
    admissionregistration::MutatingWebhookConfiguration,
    admissionregistration::ValidatingAdmissionPolicy,
    admissionregistration::ValidatingAdmissionPolicyBinding,
    admissionregistration::ValidatingWebhookConfiguration,
    apiextensions::CustomResourceDefinition,
    resource::DeviceClass,
    resource::DeviceTaintRule,
    resource::ResourceClaim,
    resource::ResourceClaimTemplate,
    resource::ResourceSlice,
    storagemigration::StorageVersionMigration,
}
