//! What objects use of their namespace's quota, and in which scopes they are.
//!
//! The API server charges by it, and the quota controller counts by it.
pub mod list;
pub mod pods;
pub mod scope;
pub mod volumes;

pub use list::{ResourceList, add};
pub use scope::{Selector, of_quota as scopes};

use crate::quantity::Quantity;
use jiff::Timestamp;
use serde_json::Value;

/// What an object of a kind uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uses {
    Pods,
    Services,
    Volumes,
    /// Every other kind is only counted, by these names.
    Place(Vec<String>),
}

/// Kinds of old that are also counted by their plain name.
const ALIASES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
const SERVICES: [&str; 4] =
    ["count/services", "services", "services.nodeports", "services.loadbalancers"];

impl Uses {
    pub fn of(group: &str, plural: &str) -> Uses {
        match (group, plural) {
            ("", "pods") => Uses::Pods,
            ("", "services") => Uses::Services,
            ("", "persistentvolumeclaims") => Uses::Volumes,
            ("", plural) => {
                let alias = ALIASES.contains(&plural).then(|| plural.to_owned());
                Uses::Place([format!("count/{plural}")].into_iter().chain(alias).collect())
            }
            (group, plural) => Uses::Place(vec![format!("count/{plural}.{group}")]),
        }
    }

    /// Whether a resource that a quota limits is one of these.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Uses::Pods => pods::is_mine(name),
            Uses::Services => SERVICES.contains(&name),
            Uses::Volumes => volumes::is_mine(name),
            Uses::Place(names) => names.iter().any(|known| known == name),
        }
    }

    /// Whether objects of the kind have scopes at all.
    pub fn has_scopes(&self) -> bool {
        matches!(self, Uses::Pods | Uses::Volumes)
    }

    pub fn is_in_scope(&self, selector: &Selector, object: &Value) -> Result<bool, String> {
        match self {
            Uses::Pods => pods::is_in_scope(selector, object),
            Uses::Volumes => volumes::is_in_scope(selector, object),
            _ => Ok(false),
        }
    }

    pub fn usage(&self, object: &Value, now: Timestamp) -> ResourceList {
        match self {
            Uses::Pods => pods::usage(object, now),
            Uses::Services => service_usage(object),
            Uses::Volumes => volumes::usage(object),
            Uses::Place(names) => names.iter().map(|name| (name.clone(), count(1))).collect(),
        }
    }
}

/// A number of things.
pub fn count(number: usize) -> Quantity {
    number.to_string().parse().expect("a number is an amount")
}

/// A list that may not be there.
fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A text that may not be there.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn service_usage(service: &Value) -> ResourceList {
    let ports = items(&service["spec"]["ports"]);
    let kind = text(&service["spec"]["type"]);
    let node_ports = match kind {
        "LoadBalancer" if service["spec"]["allocateLoadBalancerNodePorts"] == false => {
            ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count()
        }
        "NodePort" | "LoadBalancer" => ports.len(),
        _ => 0,
    };
    let balancers = usize::from(kind == "LoadBalancer");
    let amounts = [1, 1, node_ports, balancers];
    SERVICES.iter().zip(amounts).map(|(name, amount)| ((*name).to_owned(), count(amount))).collect()
}

#[cfg(test)]
mod tests {
    use super::list::printed;
    use super::*;
    use serde_json::json;

    #[test]
    fn services_use_ports_of_the_nodes() {
        let check = |spec: Value, expected: &str| {
            assert_eq!(printed(&service_usage(&json!({"spec": spec}))), expected);
        };
        let ports = json!([{"port": 1}, {"port": 2, "nodePort": 30000}]);
        check(
            json!({"type": "ClusterIP", "ports": ports}),
            "count/services=1,services=1,services.loadbalancers=0,services.nodeports=0",
        );
        check(
            json!({"type": "NodePort", "ports": ports}),
            "count/services=1,services=1,services.loadbalancers=0,services.nodeports=2",
        );
        check(
            json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false}),
            "count/services=1,services=1,services.loadbalancers=1,services.nodeports=1",
        );
    }

    #[test]
    fn every_kind_is_counted_by_its_full_name() {
        let names = |version: &str, kind: &str| {
            let resource = crate::kinds::find_kind(version, kind).unwrap();
            printed(
                &Uses::of(resource.group, resource.plural)
                    .usage(&Value::Null, Timestamp::UNIX_EPOCH),
            )
        };
        assert_eq!(names("v1", "ConfigMap"), "configmaps=1,count/configmaps=1");
        assert_eq!(names("apps/v1", "Deployment"), "count/deployments.apps=1");
        assert_eq!(names("v1", "ServiceAccount"), "count/serviceaccounts=1");
    }
}
