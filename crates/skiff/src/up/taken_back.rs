//! What components have installed that are left out now goes again, so that another's may stand in its place.
//!
//! Only what nobody has changed since: an object that somebody else manages too is theirs, and may be what
//! came in the place of ours. Definitions of Gateway API stay, because people's own objects would go with
//! them. Where there are several servers, another one may run what this one does not: nothing goes.
use super::components::Cluster;
use super::{addons, ingress, local_storage, metrics_server};
use api::status::Status;
use client::source::Delete;
use client::{ApiResource, Client};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;

/// Those who install.
const MANAGERS: [&str; 2] = ["skiff", "skiff-dns"];
const NAMESPACE: &str = "kube-system";

/// A component, its rights, and what else it makes: API version, kind and name.
type Row = (&'static str, &'static str, &'static [(&'static str, &'static str, &'static str)]);

#[rustfmt::skip]
const INSTALLED: &[Row] = &[
    ("dns", addons::DNS, &[("v1", "Service", "kube-dns")]),
    (metrics_server::NAME, addons::METRICS, &[
        ("apiregistration.k8s.io/v1", "APIService", "v1.metrics.k8s.io"),
        ("apiregistration.k8s.io/v1", "APIService", "v1beta1.metrics.k8s.io"),
        ("v1", "Service", "metrics-server"),
    ]),
    ("servicelb", addons::SERVICE_LB, &[("v1", "ConfigMap", "servicelb")]),
    (ingress::NAME, addons::INGRESS, &[("networking.k8s.io/v1", "IngressClass", ::ingress::CLASS)]),
    (local_storage::NAME, local_storage::RIGHTS, &[("storage.k8s.io/v1", "StorageClass", local_storage::CLASS)]),
];

pub async fn take_back(cluster: &Cluster, admin: &Client) {
    if cluster.leading.is_one_of_several() {
        return;
    }
    for (component, ..) in INSTALLED.iter().filter(|(component, ..)| !cluster.runs(component)) {
        for (resource, namespace, name) in installed(component, &cluster.node_name) {
            if let Err(status) = remove(admin, resource, namespace, &name).await {
                tracing::warn!(component, name, problem = status.message, "it stays installed");
            }
        }
    }
}

/// Where a component's own endpoints are, of which nobody else would know that they lead nowhere.
fn slices(component: &str, node: &str) -> Vec<String> {
    match component {
        "dns" => ["ipv4", "ipv6"].map(|family| format!("kube-dns-{node}-{family}")).to_vec(),
        metrics_server::NAME => vec![format!("{component}-{node}")],
        _ => Vec::new(),
    }
}

/// Everything that a component installs on a node's server, what is found first to go first.
fn installed(component: &str, node: &str) -> Vec<(ApiResource, &'static str, String)> {
    let rows = INSTALLED.iter().filter(|(name, ..)| *name == component);
    let slice = ApiResource::of::<EndpointSlice>();
    let slices = slices(component, node).into_iter();
    let mut found: Vec<_> = slices.map(|name| (slice.clone(), NAMESPACE, name)).collect();
    for (_, rights, more) in rows {
        let rights: Vec<Value> = serde_json::from_str(rights).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of_rights = rights.iter().rev().map(|one| {
            (text(&one["apiVersion"]), text(&one["kind"]), text(&one["metadata"]["name"]))
        });
        let more = more.iter().map(|(version, kind, name)| {
            ((*version).to_owned(), (*kind).to_owned(), (*name).to_owned())
        });
        for (version, kind, name) in more.chain(of_rights) {
            if let Some(row) = api::kinds::find_kind(&version, &kind) {
                let namespace = if row.is_namespaced() { NAMESPACE } else { "" };
                found.push((ApiResource::from(row), namespace, name));
            }
        }
    }
    if component == ingress::NAME {
        let (resource, class) = ::ingress::gateway_class();
        let name = class["metadata"]["name"].as_str().unwrap_or_default();
        found.push((resource, "", name.to_owned()));
    }
    found
}

async fn remove(
    admin: &Client,
    resource: ApiResource,
    namespace: &str,
    name: &str,
) -> Result<(), Status> {
    let is_gone = |status: &Status| status.is_not_found();
    let found = match admin.get_in(resource.clone(), namespace, name, "").await {
        Err(status) if is_gone(&status) => return Ok(()),
        found => found?,
    };
    if !is_only_ours(&found.tree().map_err(Status::internal_error)?) {
        return Ok(());
    }
    match admin.delete_in(resource, namespace, name, Delete::default()).await {
        Err(status) if is_gone(&status) => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Whether nobody but us has said what it is to be.
fn is_only_ours(object: &Value) -> bool {
    let fields = object["metadata"]["managedFields"].as_array();
    let mut meant = fields.into_iter().flatten().filter(|one| one["subresource"].is_null());
    fields.is_some_and(|all| !all.is_empty())
        && meant.all(|one| MANAGERS.iter().any(|manager| one["manager"] == *manager))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_somebody_else_has_changed_stays() {
        let by =
            |managers: Value| is_only_ours(&json!({ "metadata": { "managedFields": managers } }));
        assert!(by(json!([{ "manager": "skiff" }, { "manager": "skiff-dns" }])));
        assert!(by(json!([{ "manager": "skiff" }, { "manager": "x", "subresource": "status" }])));
        assert!(!by(json!([{ "manager": "skiff" }, { "manager": "kubectl-edit" }])));
        assert!(!by(json!([{ "manager": "helm" }])));
        // Nobody is known to have made it.
        assert!(!by(json!([])) && !by(Value::Null));
    }

    #[test]
    fn all_that_a_component_installs_is_known() {
        for (component, rights, more) in INSTALLED {
            let rights: Vec<Value> = serde_json::from_str(rights).expect("objects");
            let class = usize::from(*component == ingress::NAME);
            let all = slices(component, "n").len() + rights.len() + more.len() + class;
            assert_eq!(installed(component, "n").len(), all, "{component}");
        }
        assert_eq!(installed("dns", "n")[0].2, "kube-dns-n-ipv4");
        assert_eq!(installed("scheduler", "n").len(), 0);
    }
}
