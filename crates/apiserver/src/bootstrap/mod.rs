//! What an empty store begins with, so that the first client finds a cluster.
mod kubernetes;

pub use kubernetes::advertise;

use crate::admission::{manifests, policy, webhook};
use crate::extend::definitions;
use crate::guard::authz::node::graph;
use crate::guard::authz::{Authorizer, rbac, roles};
use crate::guard::fairness::{self, flow};
use crate::pass::aggregation;
use crate::server::ApiServer;
use crate::state::objects;
use crate::verbs;
use api::kinds::find_kind;
use api::status::Status;
use futures_util::future::try_join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Name, value, what it is for.
const PRIORITIES: &[(&str, i64, &str)] = &[
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// Creates what is missing; what is there stays as it is.
pub async fn bootstrap(api: &ApiServer) -> Result<(), Status> {
    create(api, NAMESPACES.iter().map(|name| namespace(name))).await?;
    let mut objects = roles::objects();
    objects.extend(PRIORITIES.iter().map(|(name, value, text)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": { "name": name }, "value": value, "description": text,
        })
    }));
    objects.extend(flow::objects());
    objects.extend(aggregation::built_in_services());
    objects.push(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": { "name": "kubernetes" }, "spec": { "cidrs": api.service_cidrs() },
    }));
    objects.push(configuration(AUTHENTICATION, authentication(api)));
    let today = api::time::format(Timestamp::now().as_second());
    objects.push(configuration(
        "kube-apiserver-legacy-service-account-token-tracking",
        json!({ "since": today.split('T').next() }),
    ));
    create(api, objects).await?;
    renew_authentication(api).await?;
    if let Some(fairness) = api.fairness() {
        fairness::start(api, fairness).await?;
    }
    definitions::start(api, verbs::clean_up).await?;
    rbac::start(api).await?;
    webhook::start(api).await?;
    aggregation::start(api).await?;
    policy::start(api).await?;
    manifests::start(api);
    if api.authorizers().iter().any(|authorizer| matches!(authorizer, Authorizer::Node)) {
        graph::start(api).await?;
    }
    Ok(())
}

/// Where servers beside this one look.
const AUTHENTICATION: &str = "extension-apiserver-authentication";

/// What they find there is as this start has it, whatever an earlier one wrote.
async fn renew_authentication(api: &ApiServer) -> Result<(), Status> {
    let resource = find_kind("v1", "ConfigMap").expect("config maps are a kind");
    let wanted = authentication(api);
    let put = |object: &mut Value| {
        for (key, value) in wanted.as_object().into_iter().flatten() {
            object["data"][key] = value.clone();
        }
    };
    let before = objects::get(api, resource, "kube-system", AUTHENTICATION).await?;
    let mut after = before.clone();
    put(&mut after);
    if after == before {
        return Ok(());
    }
    let place = ("kube-system", AUTHENTICATION);
    let changed = objects::modify(api, resource, place, false, |object| {
        put(object);
        Ok(())
    });
    changed.await.map(drop)
}

/// What servers beside this one need to know, to believe its clients and its word for them.
fn authentication(api: &ApiServer) -> Value {
    let mut data = json!({ "client-ca-file": api.client_ca() });
    if let Some(proxy) = &api.authentication().front_proxy {
        let ca = std::fs::read_to_string(proxy.trust.path()).unwrap_or_default();
        let list = |values: &[String]| json!(json!(values).to_string());
        for (name, value) in [
            ("client-ca-file", ca.into()),
            ("allowed-names", list(&proxy.allowed_names)),
            ("username-headers", list(&proxy.username_headers)),
            ("uid-headers", list(&proxy.uid_headers)),
            ("group-headers", list(&proxy.group_headers)),
            ("extra-headers-prefix", list(&proxy.extra_header_prefixes)),
        ] {
            data[format!("requestheader-{name}")] = value;
        }
    }
    data
}

fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
    })
}

fn configuration(name: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "kube-system" }, "data": data,
    })
}

/// All at once: the store commits them together.
async fn create(api: &ApiServer, objects: impl IntoIterator<Item = Value>) -> Result<(), Status> {
    let all = objects.into_iter().map(|object| {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let resource = find_kind(text("apiVersion"), text("kind"))
            .expect("what a cluster begins with is of known kinds");
        objects::first(api, resource, object)
    });
    try_join_all(all).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_a_cluster_begins_with_is_of_a_known_kind_and_valid() {
        let objects = roles::objects().into_iter().chain(flow::objects());
        for mut object in objects {
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            let resource = find_kind(&text("apiVersion"), &text("kind")).expect("a kind");
            api::rules::defaults::set(&mut object, resource.ty());
            (resource.rules.prepare_create)(resource, &mut object);
            let object = api::codec::json::canonicalize(object, resource.ty()).expect("fits").value;
            let verdict = (resource.rules.validate_create)(resource, &object).expect("readable");
            assert!(verdict.errors.is_empty(), "{object}: {:?}", verdict.errors);
        }
    }
}
