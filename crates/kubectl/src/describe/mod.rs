//! What `kubectl describe` says of an object.
//!
//! ```text
//!  DESCRIBERS   one row per kind: what else it wants to see, and what it writes
//!  around       what is wanted and what was found          generic    kinds without a row
//!  writer       lines at levels        tabwriter  columns  common     labels, times, selectors
//!  pod · containers · volumes · workloads · node · network · storage · policy · access · config · events
//! ```
//!
//! Describers are pure: [`wants`] tells the command what to fetch, [`describe`] writes from that alone.
//! The layout, down to its odd corners, is that of upstream's `kubectl/pkg/describe/describe.go`: people
//! and scripts read it. Times are shown in UTC.

mod access;
mod around;
mod common;
mod config;
mod containers;
mod events;
mod generic;
mod network;
mod node;
mod pod;
mod policy;
mod storage;
mod tabwriter;
#[cfg(test)]
mod tests;
mod volumes;
mod workloads;
mod writer;

use jiff::Timestamp;
use serde_json::Value;

pub use around::{Around, Fault, Need, Slot, Want};
use writer::Writer;

/// How a kind is described.
struct Describer {
    group: &'static str,
    kind: &'static str,
    wants: fn(&Value) -> Vec<Want>,
    /// Which events are about it; None if they are not shown.
    events: Option<fn(&Value) -> Vec<Want>>,
    describe: fn(&mut Writer, &Value, &Seen<'_>),
}

/// What a describer sees besides the object.
struct Seen<'a> {
    around: &'a Around,
    now: Timestamp,
}

type Describe = fn(&mut Writer, &Value, &Seen<'_>);

/// A kind that is described by itself and its events.
const fn row(group: &'static str, kind: &'static str, describe: Describe) -> Describer {
    Describer { group, kind, wants: |_| Vec::new(), events: Some(own_events), describe }
}

impl Describer {
    const fn wanting(self, wants: fn(&Value) -> Vec<Want>) -> Describer {
        Describer { wants, ..self }
    }

    const fn without_events(self) -> Describer {
        Describer { events: None, ..self }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const STORAGE: &str = "storage.k8s.io";

static DESCRIBERS: &[Describer] = &[
    Describer { events: Some(pod::events), ..row("", "Pod", pod::describe) },
    row("", "ReplicationController", workloads::replication_controller)
        .wanting(workloads::wants_of_pods),
    row("", "Secret", config::secret).without_events(),
    row("", "Service", network::service).wanting(network::wants_of_service),
    row("", "ServiceAccount", access::service_account),
    Describer {
        events: Some(node::events),
        ..row("", "Node", node::describe).wanting(node::wants)
    },
    row("", "LimitRange", policy::limit_range).without_events(),
    row("", "ResourceQuota", policy::quota).without_events(),
    row("", "PersistentVolume", storage::volume),
    row("", "PersistentVolumeClaim", storage::describe_claim).wanting(storage::wants_of_claim),
    row("", "Namespace", policy::namespace).wanting(policy::wants_of_namespace).without_events(),
    row("", "Endpoints", network::endpoints_object),
    row("", "ConfigMap", config::config_map),
    row("discovery.k8s.io", "EndpointSlice", network::endpoint_slice),
    row("autoscaling", "HorizontalPodAutoscaler", policy::autoscaler),
    row(NETWORKING, "Ingress", network::ingress).wanting(network::wants_of_ingress),
    row(NETWORKING, "IngressClass", network::ingress_class),
    row(NETWORKING, "ServiceCIDR", network::service_cidr),
    row(NETWORKING, "IPAddress", network::ip_address),
    row(NETWORKING, "NetworkPolicy", network::network_policy).without_events(),
    row("batch", "Job", workloads::job),
    row("batch", "CronJob", workloads::cron_job),
    row("apps", "StatefulSet", workloads::stateful_set).wanting(workloads::wants_of_pods),
    row("apps", "Deployment", workloads::deployment).wanting(workloads::wants_of_deployment),
    row("apps", "DaemonSet", workloads::daemon_set).wanting(workloads::wants_of_pods),
    row("apps", "ReplicaSet", workloads::replica_set).wanting(workloads::wants_of_pods),
    row("certificates.k8s.io", "CertificateSigningRequest", access::signing_request),
    row(STORAGE, "StorageClass", storage::storage_class),
    row(STORAGE, "CSINode", storage::csi_node),
    row(STORAGE, "VolumeAttributesClass", storage::attributes_class),
    row("policy", "PodDisruptionBudget", policy::budget),
    row(RBAC, "Role", access::role).without_events(),
    row(RBAC, "ClusterRole", access::role).without_events(),
    row(RBAC, "RoleBinding", access::binding).without_events(),
    row(RBAC, "ClusterRoleBinding", access::binding).without_events(),
    row("scheduling.k8s.io", "PriorityClass", policy::priority_class),
];

/// Kinds without a row.
static GENERIC: Describer = row("", "", generic::describe);

fn describer(object: &Value) -> &'static Describer {
    let (version, kind) = (common::text(&object["apiVersion"]), common::text(&object["kind"]));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    DESCRIBERS.iter().find(|row| row.group == group && row.kind == kind).unwrap_or(&GENERIC)
}

fn own_events(object: &Value) -> Vec<Want> {
    let kind = common::text(&object["kind"]);
    vec![Want::events(
        common::namespace(object),
        common::name(object),
        kind,
        common::text(&object["metadata"]["uid"]),
    )]
}

/// What has to be fetched to describe an object.
pub fn wants(object: &Value, with_events: bool) -> Vec<Want> {
    let describer = describer(object);
    let mut wants = (describer.wants)(object);
    if let Some(events) = describer.events.filter(|_| with_events) {
        wants.extend(events(object));
    }
    wants
}

/// The description, by what was found of what was wanted.
pub fn describe(object: &Value, around: &Around, now: Timestamp) -> String {
    let mut w = Writer::default();
    let describer = describer(object);
    (describer.describe)(&mut w, object, &Seen { around, now });
    if around.asked(Slot::Events) {
        // Events that cannot be had are none, as upstream shows them.
        events::describe(&mut w, &around.list(Slot::Events).unwrap_or_default(), now);
    }
    w.finish()
}
