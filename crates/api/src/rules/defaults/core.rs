//! Defaults of the other core kinds.
use super::{Fill, Rows, empty};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

pub const ROWS: Rows = &[
    ("core/v1.ReplicationController", replication_controller),
    ("core/v1.Service", service),
    ("core/v1.Secret", |secret| {
        secret.fill("type", "Opaque");
        string_data(secret);
    }),
    ("core/v1.PersistentVolume", |volume| {
        volume.inside("status").fill("phase", "Pending");
        volume.inside("spec").fill("persistentVolumeReclaimPolicy", "Retain");
        volume.inside("spec").fill("volumeMode", "Filesystem");
    }),
    ("core/v1.PersistentVolumeClaim", |claim| claim.inside("status").fill("phase", "Pending")),
    ("core/v1.PersistentVolumeClaimSpec", |spec| spec.fill("volumeMode", "Filesystem")),
    ("core/v1.EndpointPort", |port| port.fill("protocol", "TCP")),
    ("core/v1.Namespace", namespace),
    ("core/v1.NamespaceStatus", |status| status.fill("phase", "Active")),
    ("core/v1.NodeSpec", pod_cidrs),
    ("core/v1.NodeStatus", |status| {
        if let Some(capacity) = status.get("capacity").cloned() {
            status.fill("allocatable", capacity);
        }
    }),
    ("core/v1.LimitRangeItem", limit_range_item),
];

/// What is given as text goes to the data and wins.
fn string_data(secret: &mut Map<String, Value>) {
    let Some(Value::Object(texts)) = secret.remove("stringData") else { return };
    if texts.is_empty() {
        return;
    }
    let data = secret.inside("data");
    for (key, text) in texts {
        let bytes = STANDARD.encode(text.as_str().unwrap_or_default());
        data.insert(key, bytes.into());
    }
}

fn replication_controller(controller: &mut Map<String, Value>) {
    let labels = &controller.get("spec").unwrap_or(&Value::Null)["template"]["metadata"]["labels"];
    if labels.is_object() {
        let labels = labels.clone();
        controller.inside("spec").fill_empty("selector", labels.clone());
        controller.inside("metadata").fill_empty("labels", labels);
    }
}

fn service(service: &mut Map<String, Value>) {
    let spec = service.inside("spec");
    spec.fill("sessionAffinity", "None");
    match spec.text("sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let config = spec.get("sessionAffinityConfig").unwrap_or(&Value::Null);
            if config["clientIP"]["timeoutSeconds"].is_null() {
                let config = json!({ "clientIP": { "timeoutSeconds": 10800 } });
                spec.insert("sessionAffinityConfig".into(), config);
            }
        }
        _ => {}
    }
    spec.fill("type", "ClusterIP");
    for port in spec.each("ports") {
        port.fill("protocol", "TCP");
        if matches!(port.get("targetPort"), None | Some(Value::Null))
            || port["targetPort"] == 0
            || port["targetPort"] == ""
        {
            let number = port.get("port").cloned().unwrap_or_else(|| 0.into());
            port.insert("targetPort".into(), number);
        }
    }
    let kind = spec.text("type").to_owned();
    let external_ips = spec.get("externalIPs").is_some_and(|ips| ips != &json!([]));
    let external = kind == "NodePort" || kind == "LoadBalancer";
    if external || kind == "ClusterIP" && external_ips {
        spec.fill("externalTrafficPolicy", "Cluster");
    }
    if external || kind == "ClusterIP" {
        spec.fill("internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        spec.fill("allocateLoadBalancerNodePorts", true);
        let balancer = service.inside("status").inside("loadBalancer");
        for ingress in balancer.each("ingress").filter(|ingress| !ingress.lacks("ip")) {
            ingress.fill("ipMode", "VIP");
        }
    }
}

/// The block and the list of blocks agree; the block wins.
fn pod_cidrs(spec: &mut Map<String, Value>) {
    let first = spec.get("podCIDRs").and_then(|blocks| blocks[0].as_str()).unwrap_or_default();
    let (one, first) = (spec.text("podCIDR").to_owned(), first.to_owned());
    if one.is_empty() && !first.is_empty() {
        spec.insert("podCIDR".into(), first.into());
    } else if one != first {
        spec.insert("podCIDRs".into(), json!([one]));
    }
}

fn namespace(namespace: &mut Map<String, Value>) {
    let metadata = namespace.inside("metadata");
    let name = metadata.text("name").to_owned();
    if !name.is_empty() {
        metadata.inside("labels").insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

/// A container's default limit is the maximum, its default request the limit, or else the minimum.
fn limit_range_item(item: &mut Map<String, Value>) {
    if item.text("type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")]
    {
        let amounts = item.get(from).cloned().unwrap_or_else(empty);
        for (name, amount) in amounts.as_object().into_iter().flatten() {
            item.inside(to).entry(name).or_insert_with(|| amount.clone());
        }
    }
}
