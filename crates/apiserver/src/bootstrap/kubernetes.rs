//! The `kubernetes` service: where pods find the API server.
//!
//! Each server keeps a key alive while it serves; the service's endpoints are the keys of all. One
//! that dies is forgotten when its key runs out.
use crate::server::ApiServer;
use crate::state::allocation;
use crate::state::keys::status_of;
use crate::state::objects;
use crate::state::stored;
use crate::verbs;
use api::kinds::{Resource, find_kind};
use api::status::Status;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use store::{KeyRange, LeaseId, Op, RangeRequest, Txn};

const LEASES: &str = "/registry/masterleases/";
/// A server that has not been heard of for so long is gone.
const LIFETIME: Duration = Duration::from_secs(15);
const EVERY: Duration = Duration::from_secs(10);

fn kind(api_version: &str, kind: &str) -> &'static Resource {
    find_kind(api_version, kind).expect("it is in the registry")
}

/// Makes the service, and keeps this server among its endpoints until it stops.
pub async fn advertise(api: &ApiServer, address: IpAddr, port: u16) -> Result<(), Status> {
    let first = allocation::first_address(api).await?;
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "kubernetes", "namespace": "default",
            "labels": { "component": "apiserver", "provider": "kubernetes" } },
        "spec": {
            "type": "ClusterIP", "sessionAffinity": "None",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": port }],
        },
    });
    if let Some(first) = first {
        service["spec"]["clusterIP"] = first.to_string().into();
    }
    match objects::get(api, kind("v1", "Service"), "default", "kubernetes").await {
        Ok(_) => {}
        Err(status) if status.is_not_found() => {
            objects::first(api, kind("v1", "Service"), service).await?;
        }
        Err(status) => return Err(status),
    }
    // An address of this machine alone is of no use to pods.
    if address.is_loopback() || address.is_unspecified() {
        return Ok(());
    }
    let lease = renew(api, None, address).await?;
    reconcile(api, port).await?;
    let api = api.clone();
    tokio::spawn(async move {
        let mut lease = Some(lease);
        let mut tick = tokio::time::interval(EVERY);
        tick.tick().await;
        loop {
            tokio::select! {
                () = api.stopping() => break,
                _ = tick.tick() => {}
            }
            match renew(&api, lease, address).await {
                Ok(renewed) => lease = Some(renewed),
                Err(error) => tracing::warn!(%error, "failed to say that this server is alive"),
            }
            if let Err(error) = reconcile(&api, port).await {
                tracing::warn!(%error, "failed to keep the endpoints of the API server");
            }
        }
        if let Some(lease) = lease {
            let _ = api.store().revoke(lease).await;
            let _ = reconcile(&api, port).await;
        }
    });
    Ok(())
}

/// Says that the server is alive.
async fn renew(
    api: &ApiServer,
    lease: Option<LeaseId>,
    address: IpAddr,
) -> Result<LeaseId, Status> {
    let failed = |error| status_of(error, kind("v1", "Endpoints"));
    if let Some(lease) = lease
        && api.store().keep_alive(lease).await.is_ok_and(|left| left > 0)
    {
        return Ok(lease);
    }
    let lease = api.store().grant(LIFETIME.as_secs()).await.map_err(failed)?;
    let put = Op::put(format!("{LEASES}{address}"), "{}", lease);
    api.store().txn(Txn { success: vec![put], ..Txn::default() }).await.map_err(failed)?;
    Ok(lease)
}

/// Makes the endpoints say which servers are alive.
async fn reconcile(api: &ApiServer, port: u16) -> Result<(), Status> {
    let request = RangeRequest { keys_only: true, ..RangeRequest::new(KeyRange::prefix(LEASES)) };
    let found = api.store().range(request).await;
    let found = found.map_err(|error| status_of(error, kind("v1", "Endpoints")))?;
    let addresses: BTreeSet<IpAddr> = found
        .kvs
        .iter()
        .filter_map(|kv| std::str::from_utf8(&kv.key).ok()?.strip_prefix(LEASES)?.parse().ok())
        .collect();
    let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let ips: Vec<Value> = shown.iter().map(|ip| json!({ "ip": ip })).collect();
    let mut subsets = json!([]);
    if !ips.is_empty() {
        subsets = json!([{ "addresses": ips,
            "ports": [{ "name": "https", "port": port, "protocol": "TCP" }] }]);
    }
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": { "name": "kubernetes", "namespace": "default",
            "labels": { "endpointslice.kubernetes.io/skip-mirror": "true" } },
        "subsets": subsets,
    });
    put(api, kind("v1", "Endpoints"), endpoints, "subsets").await?;
    let is_v6 = addresses.iter().next().is_some_and(IpAddr::is_ipv6);
    let each = shown.iter().map(|ip| json!({ "addresses": [ip], "conditions": { "ready": true } }));
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": "kubernetes", "namespace": "default",
            "labels": { "kubernetes.io/service-name": "kubernetes" } },
        "addressType": if is_v6 { "IPv6" } else { "IPv4" },
        "endpoints": each.collect::<Vec<_>>(),
        "ports": [{ "name": "https", "port": port, "protocol": "TCP" }],
    });
    put(api, kind("discovery.k8s.io/v1", "EndpointSlice"), slice, "endpoints").await
}

/// Creates the object, or gives it these contents; an object that has them is left alone.
async fn put(
    api: &ApiServer,
    resource: &'static Resource,
    object: Value,
    contents: &str,
) -> Result<(), Status> {
    match verbs::current(api, resource, "default", "kubernetes").await {
        Err(status) if status.is_not_found() => objects::first(api, resource, object).await,
        Err(status) => Err(status),
        Ok(found) => {
            let known = stored::decode(&found, resource)?;
            let empty = json!([]);
            let same = known.get(contents).unwrap_or(&empty) == &object[contents];
            if same && known.get("ports") == object.get("ports") {
                return Ok(());
            }
            objects::modify(api, resource, ("default", "kubernetes"), false, |known| {
                known[contents] = object[contents].clone();
                if object.get("ports").is_some() {
                    known["ports"] = object["ports"].clone();
                }
                Ok(())
            })
            .await
            .map(drop)
        }
    }
}
