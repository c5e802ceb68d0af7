//! What a write to a service keeps.
use super::super::prepare;
use serde_json::{Value, json};

/// The one address and the list of addresses agree.
pub fn both_addresses(spec: &mut Value) {
    let (one, list) = (spec.get("clusterIP").cloned(), spec.get("clusterIPs").cloned());
    if let (Some(one), None) = (&one, &list)
        && *one != ""
    {
        spec["clusterIPs"] = json!([one]);
    }
}

/// What the server once allocated stays, unless the request says something new about it.
pub fn keep_allocated(new: &mut Value, old: &Value) {
    let named = |spec: &Value| spec["type"] == "ExternalName";
    if !named(new) && !named(old) {
        let empty =
            |value: Option<&Value>| value.is_none_or(|value| *value == "" || *value == json!([]));
        if empty(new.get("clusterIP")) && empty(new.get("clusterIPs")) {
            prepare::put(new, "clusterIP", old.get("clusterIP"));
        }
        if new.get("clusterIP") == old.get("clusterIP") {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if empty(new.get(field)) {
                    prepare::put(new, field, old.get(field));
                }
            }
        }
    }
    let has_node_ports =
        |spec: &Value| matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer"));
    if has_node_ports(new) && has_node_ports(old) {
        let held = old["ports"].as_array().cloned().unwrap_or_default();
        for port in new.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let same =
                |old: &&Value| old["port"] == port["port"] && old["protocol"] == port["protocol"];
            let before = held.iter().find(same).and_then(|old| old.get("nodePort"));
            if port.get("nodePort").is_none() {
                prepare::put(port, "nodePort", before);
            }
        }
    }
    let healthy =
        |spec: &Value| spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local";
    if healthy(new) && healthy(old) && new.get("healthCheckNodePort").is_none() {
        prepare::put(new, "healthCheckNodePort", old.get("healthCheckNodePort"));
    }
}

/// What a service had for its former type goes, unless the request says something new about it.
pub fn forget_other_types(new: &mut Value, old: &Value) {
    let kind = |spec: &Value| spec["type"].as_str().unwrap_or_default().to_owned();
    let (now, then) = (kind(new), kind(old));
    let same = |new: &Value, field: &str| new.get(field) == old.get(field);
    if then != "ExternalName" && now == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if same(new, field) {
                prepare::put(new, field, None);
            }
        }
    }
    let has_node_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    if has_node_ports(&then) && !has_node_ports(&now) && new.get("ports") == old.get("ports") {
        for port in new.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            prepare::put(port, "nodePort", None);
        }
    }
    let healthy =
        |spec: &Value| kind(spec) == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local";
    if healthy(old) && !healthy(new) && same(new, "healthCheckNodePort") {
        prepare::put(new, "healthCheckNodePort", None);
    }
    if then == "LoadBalancer" && now != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(new, field) {
                prepare::put(new, field, None);
            }
        }
    }
    let external = |kind: &str, spec: &Value| {
        has_node_ports(kind)
            || kind == "ClusterIP"
                && spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty())
    };
    if external(&then, old) && !external(&now, new) && same(new, "externalTrafficPolicy") {
        prepare::put(new, "externalTrafficPolicy", None);
    }
}
