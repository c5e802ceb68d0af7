//! The table of plugins, in upstream's order (`AllOrderedPlugins`).
use super::chain::Settings;
use super::configuration::Fault;
use super::{
    Attributes, always_pull_images, anti_affinity, certificates, claim_resize, default_class,
    default_toleration_seconds, deny, event_rate_limit, extended_resource_toleration, external_ips,
    image_policy, limit_ranger, namespace, namespace_lifecycle, node_declared_features,
    node_restriction, owner_references, pod_node_selector, pod_resize, pod_security,
    pod_toleration_restriction, pod_topology_labels, policy, priority, rbac_escalation,
    resource_quota, runtime_class, service_account, storage_object_in_use_protection,
    taint_nodes_by_condition,
};
use crate::admission::webhook;
use api::status::Status;
use serde_json::Value;
use std::pin::Pin;

pub type Outcome<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;
pub type Hook = for<'a> fn(&'a mut Attributes<'_>) -> Outcome<'a>;

pub type Configure = fn(Option<Value>, &mut Settings) -> Result<(), Fault>;

pub struct Plugin {
    /// Upstream's name, as its flags spell it.
    pub name: &'static str,
    pub when: When,
    /// The kinds it is about, each with its group; none: every kind.
    pub kinds: &'static [(&'static str, &'static str)],
    /// Reads the plugin's part of the configuration file, if there is one.
    pub configure: Option<Configure>,
    pub admit: Option<Hook>,
    pub validate: Option<Hook>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Unless it is disabled.
    On,
    /// If it is enabled.
    Off,
    /// Part of how upstream stores a kind: no flag knows it.
    Always,
}

use When::{Always, Off, On};

const POD: &[(&str, &str)] = &[("", "Pod")];
const REQUEST: &[(&str, &str)] = &[("certificates.k8s.io", "CertificateSigningRequest")];

/// `row!(when "Name" on kinds, configure: f, admit: f, validate: f)`; each of the functions may be
/// missing.
macro_rules! row {
    ($when:ident $name:literal on $kinds:expr
     $(, configure: $configure:path)? $(, admit: $admit:path)? $(, validate: $validate:path)?) => {{
        #[allow(unused_mut, unused_assignments)]
        const PLUGIN: Plugin = {
            let (when, kinds) = ($when, $kinds);
            let (configure, admit, validate) = (None, None, None);
            let mut plugin = Plugin { name: $name, when, kinds, configure, admit, validate };
            $(plugin.configure = Some($configure);)?
            $(plugin.admit = Some(|attributes| Box::pin($admit(attributes)));)?
            $(plugin.validate = Some(|attributes| Box::pin($validate(attributes)));)?
            plugin
        };
        PLUGIN
    }};
}

#[rustfmt::skip]
pub static PLUGINS: &[Plugin] = &[
    row!(Off "AlwaysAdmit" on &[]),
    row!(Off "NamespaceAutoProvision" on &[], admit: namespace::provide),
    row!(On "NamespaceLifecycle" on &[], admit: namespace_lifecycle::admit),
    row!(Off "NamespaceExists" on &[], validate: namespace::exists),
    row!(Off "LimitPodHardAntiAffinityTopology" on POD, validate: anti_affinity::validate),
    row!(On "LimitRanger" on limit_ranger::KINDS, admit: limit_ranger::admit, validate: limit_ranger::validate),
    row!(On "ServiceAccount" on POD, admit: service_account::admit, validate: service_account::validate),
    row!(Off "NodeRestriction" on node_restriction::KINDS, admit: node_restriction::admit),
    row!(On "TaintNodesByCondition" on &[("", "Node")], admit: taint_nodes_by_condition::admit),
    row!(Off "AlwaysPullImages" on POD, admit: always_pull_images::admit, validate: always_pull_images::validate),
    row!(Off "ImagePolicyWebhook" on POD, configure: image_policy::configure, validate: image_policy::validate),
    row!(On "PodSecurity" on pod_security::KINDS, configure: pod_security::configure, validate: pod_security::validate),
    row!(Off "PodNodeSelector" on POD, configure: pod_node_selector::configure, admit: pod_node_selector::admit, validate: pod_node_selector::validate),
    row!(On "Priority" on &[("", "Pod"), ("scheduling.k8s.io", "PriorityClass")], admit: priority::admit, validate: priority::validate),
    row!(On "DefaultTolerationSeconds" on POD, admit: default_toleration_seconds::admit),
    row!(Off "PodTolerationRestriction" on POD, configure: pod_toleration_restriction::configure, admit: pod_toleration_restriction::admit, validate: pod_toleration_restriction::validate),
    row!(Off "EventRateLimit" on event_rate_limit::KINDS, configure: event_rate_limit::configure, validate: event_rate_limit::validate),
    row!(Off "ExtendedResourceToleration" on POD, admit: extended_resource_toleration::admit),
    row!(On "DefaultStorageClass" on &[("", "PersistentVolumeClaim")], admit: default_class::storage),
    row!(On "StorageObjectInUseProtection" on storage_object_in_use_protection::KINDS, admit: storage_object_in_use_protection::admit),
    // Of pod groups, which no gate that is on by default serves.
    row!(On "PodGroupProtection" on &[]),
    row!(Off "OwnerReferencesPermissionEnforcement" on &[], validate: owner_references::validate),
    row!(On "PersistentVolumeClaimResize" on &[("", "PersistentVolumeClaim")], validate: claim_resize::validate),
    row!(On "RuntimeClass" on POD, admit: runtime_class::admit, validate: runtime_class::validate),
    row!(On "CertificateApproval" on REQUEST, validate: certificates::approval),
    row!(On "CertificateSigning" on REQUEST, validate: certificates::signing),
    row!(On "ClusterTrustBundleAttest" on &[("certificates.k8s.io", "ClusterTrustBundle")], validate: certificates::attest),
    row!(On "CertificateSubjectRestriction" on REQUEST, validate: certificates::subject_restriction),
    row!(On "DefaultIngressClass" on &[("networking.k8s.io", "Ingress")], admit: default_class::ingress),
    row!(Off "DenyServiceExternalIPs" on &[("", "Service")], validate: external_ips::validate),
    row!(On "PodTopologyLabels" on POD, admit: pod_topology_labels::admit),
    row!(On "NodeDeclaredFeatureValidator" on POD, validate: node_declared_features::validate),
    row!(On "PodResizeValidator" on POD, validate: pod_resize::validate),
    // Not upstream's plugins but part of how it stores these kinds.
    row!(Always "CertificateRequester" on REQUEST, admit: certificates::requester),
    row!(Always "RBACEscalation" on rbac_escalation::KINDS, validate: rbac_escalation::validate),
    // Policies and webhooks of the cluster's users.
    row!(On "MutatingAdmissionPolicy" on &[], configure: policy::configure_mutating, admit: policy::admit),
    row!(On "MutatingAdmissionWebhook" on &[], configure: webhook::configure_mutating, admit: webhook::admit),
    row!(On "ValidatingAdmissionPolicy" on &[], configure: policy::configure_validating, validate: policy::validate),
    row!(On "ValidatingAdmissionWebhook" on &[], configure: webhook::configure_validating, validate: webhook::validate),
    // Last, so that nothing is charged for what somebody else refuses.
    row!(On "ResourceQuota" on &[], configure: resource_quota::configure, validate: resource_quota::validate),
    row!(Off "AlwaysDeny" on &[], admit: deny::deny, validate: deny::deny),
];
