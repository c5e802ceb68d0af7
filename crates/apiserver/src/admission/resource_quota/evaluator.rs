//! What an object of a kind uses: one evaluator for each kind that uses more than a place.
use super::devices::Devices;
use super::scope::Selector;
use super::{pods, volumes};
use crate::admission::resource_list::ResourceList;
use crate::admission::{Attributes, Operation, items, text};
use api::kinds::Resource;
use api::quantity::Quantity;
use api::status::Status;
use jiff::Timestamp;
use serde_json::Value;

pub enum Evaluator {
    Pods,
    Services,
    Volumes,
    Devices(Devices),
    /// Every other kind is only counted, by these names.
    Count(Vec<String>),
}

/// Kinds of old that are also counted by their plain name.
const ALIASES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
const SERVICES: [&str; 4] =
    ["count/services", "services", "services.nodeports", "services.loadbalancers"];

impl Evaluator {
    pub fn of(resource: &Resource) -> Evaluator {
        match (resource.group, resource.plural) {
            ("", "pods") => Evaluator::Pods,
            ("", "services") => Evaluator::Services,
            ("", "persistentvolumeclaims") => Evaluator::Volumes,
            ("resource.k8s.io", "resourceclaims") => Evaluator::Devices(Devices::default()),
            ("", plural) => {
                let alias = ALIASES.contains(&plural).then(|| plural.to_owned());
                Evaluator::Count([format!("count/{plural}")].into_iter().chain(alias).collect())
            }
            (group, plural) => Evaluator::Count(vec![format!("count/{plural}.{group}")]),
        }
    }

    /// Whether a write may change what is used.
    pub fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let created = attributes.creates();
        match (self, attributes.part()) {
            (Evaluator::Pods, "") => {
                let (new, old) = (attributes.new_object(), attributes.old);
                let turns =
                    old.is_some_and(|old| pods::is_terminating(old) != pods::is_terminating(new));
                created || turns
            }
            (Evaluator::Pods, "resize") | (Evaluator::Volumes, "status") => {
                attributes.operation == Operation::Update
            }
            (Evaluator::Services | Evaluator::Volumes | Evaluator::Devices(_), "") => true,
            _ => created,
        }
    }

    /// Reads what else an evaluation depends on.
    pub async fn look_around(&mut self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match self {
            Evaluator::Devices(devices) => devices.look_around(attributes).await,
            _ => Ok(()),
        }
    }

    /// Whether a resource that a quota limits is one of this evaluator's.
    pub fn is_mine(&self, name: &str) -> bool {
        match self {
            Evaluator::Pods => pods::is_mine(name),
            Evaluator::Services => SERVICES.contains(&name),
            Evaluator::Volumes => volumes::is_mine(name),
            Evaluator::Devices(devices) => devices.is_mine(name),
            Evaluator::Count(names) => names.iter().any(|known| known == name),
        }
    }

    /// Whether objects of the kind have scopes at all.
    pub fn has_scopes(&self) -> bool {
        matches!(self, Evaluator::Pods | Evaluator::Volumes)
    }

    pub fn is_in_scope(&self, selector: &Selector, object: &Value) -> Result<bool, String> {
        match self {
            Evaluator::Pods => pods::is_in_scope(selector, object),
            Evaluator::Volumes => volumes::is_in_scope(selector, object),
            _ => Ok(false),
        }
    }

    /// What the object has to say about itself, so that it can be charged.
    pub fn check(&self, required: &[&str], object: &Value) -> Result<(), String> {
        match self {
            Evaluator::Pods => pods::check(required, object),
            _ => Ok(()),
        }
    }

    pub fn usage(&self, object: &Value, now: Timestamp) -> ResourceList {
        match self {
            Evaluator::Pods => pods::usage(object, now),
            Evaluator::Services => service_usage(object),
            Evaluator::Volumes => volumes::usage(object),
            Evaluator::Devices(devices) => devices.usage(object),
            Evaluator::Count(names) => names.iter().map(|name| (name.clone(), count(1))).collect(),
        }
    }
}

/// A number of things.
pub fn count(number: usize) -> Quantity {
    number.to_string().parse().expect("a number is an amount")
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
    use super::*;
    use crate::admission::resource_list::printed;
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
            let resource = api::kinds::find_kind(version, kind).unwrap();
            printed(&Evaluator::of(resource).usage(&Value::Null, Timestamp::UNIX_EPOCH))
        };
        assert_eq!(names("v1", "ConfigMap"), "configmaps=1,count/configmaps=1");
        assert_eq!(names("apps/v1", "Deployment"), "count/deployments.apps=1");
        assert_eq!(names("v1", "ServiceAccount"), "count/serviceaccounts=1");
    }
}
