//! What a write to a service keeps.
use super::super::prepare;
use serde_json::Value;

/// Node ports that the server once allocated stay with the port of the same name, unless another
/// port has them now.
pub fn keep_ports(new: &mut Value, old: &Value) {
    let has_node_ports =
        |spec: &Value| matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer"));
    let number = |port: &Value| port["nodePort"].as_i64().filter(|number| *number != 0);
    let ports = |spec: &Value| spec["ports"].as_array().cloned().unwrap_or_default();
    if has_node_ports(new) && has_node_ports(old) {
        let (held, given) = (ports(old), ports(new));
        let taken: Vec<i64> = given.iter().filter_map(number).collect();
        for port in new.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let before = held.iter().rfind(|old| old.get("name") == port.get("name"));
            let before = before.and_then(number).filter(|before| !taken.contains(before));
            if let (None, Some(before)) = (number(port), before) {
                port["nodePort"] = before.into();
            }
        }
    }
    let healthy =
        |spec: &Value| spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local";
    if healthy(new) && healthy(old) && new["healthCheckNodePort"].as_i64().unwrap_or(0) == 0 {
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
