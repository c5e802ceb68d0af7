//! The Node authorizer: a node may see what its pods need, and write what is its own.
//!
//! What is peculiar to a resource is decided here, with the [`graph`] of what belongs to which node;
//! for everything else the rules of the role `system:node` hold for all nodes alike. What is inside
//! an object that a node writes is for the admission plugin NodeRestriction to judge.
pub mod graph;

use super::rules::allows;
use super::{Attributes, Opinion, Selected, What, roles};
use crate::guard::authn::User;
use graph::{Graph, Object};
use k8s_openapi::api::rbac::v1::PolicyRule;
use std::sync::LazyLock;

static RULES: LazyLock<Vec<PolicyRule>> = LazyLock::new(|| {
    let role = roles::objects().into_iter().find(|object| {
        object["kind"] == "ClusterRole" && object["metadata"]["name"] == "system:node"
    });
    let rules = role.map(|role| serde_json::from_value(role["rules"].clone()));
    rules.and_then(Result::ok).unwrap_or_default()
});

/// The node that a user is: empty if it is one and does not say which.
pub fn identity(user: &User) -> Option<&str> {
    let is_node = user.groups.iter().any(|group| group == "system:nodes");
    user.name.strip_prefix("system:node:").filter(|_| is_node)
}

/// The leases that nodes renew are all in one namespace.
const LEASES: &str = "kube-node-lease";

pub fn decide(graph: &Graph, user: &User, attributes: &Attributes) -> Opinion {
    let Some(node) = identity(user) else { return Opinion::none("") };
    if node.is_empty() {
        return Opinion::none(format!("unknown node for user {:?}", user.name));
    }
    let What::Resource { group, resource, subresource, namespace, name, .. } = &attributes.what
    else {
        return by_rules(attributes);
    };
    let asked = Asked {
        graph,
        node,
        verb: &attributes.verb,
        part: subresource,
        place: namespace,
        name,
        selected: &attributes.selected,
    };
    match (group.as_str(), resource.as_str()) {
        ("", "secrets") => asked.read(Object::Secret),
        ("", "configmaps") => asked.read(Object::ConfigMap),
        ("", "persistentvolumeclaims") if subresource == "status" => asked.update_claim_status(),
        ("", "persistentvolumeclaims") => asked.get(Object::PersistentVolumeClaim),
        ("", "persistentvolumes") => asked.get(Object::PersistentVolume),
        ("resource.k8s.io", "resourceclaims") => asked.get(Object::ResourceClaim),
        ("storage.k8s.io", "volumeattachments") => asked.get(Object::VolumeAttachment),
        ("", "serviceaccounts") => asked.service_account(),
        ("coordination.k8s.io", "leases") => asked.lease(),
        ("storage.k8s.io", "csinodes") => asked.csi_node(),
        ("resource.k8s.io", "resourceslices") => asked.resource_slice(),
        ("certificates.k8s.io", "podcertificaterequests") => asked.pod_certificate_request(),
        ("", "nodes") => asked.node(),
        ("", "pods") => asked.pod(),
        _ => by_rules(attributes),
    }
}

fn by_rules(attributes: &Attributes) -> Opinion {
    match RULES.iter().any(|rule| allows(rule, attributes)) {
        true => Opinion::Allow(String::new()),
        false => Opinion::none(""),
    }
}

/// One question of a node about one resource.
struct Asked<'a> {
    graph: &'a Graph,
    node: &'a str,
    verb: &'a str,
    part: &'a str,
    place: &'a str,
    name: &'a str,
    selected: &'a Selected,
}

fn allow() -> Opinion {
    Opinion::Allow(String::new())
}

impl Asked<'_> {
    fn related(&self, kind: Object) -> Opinion {
        if self.name.is_empty() {
            return Opinion::none("No Object name found");
        }
        self.reachable(kind)
    }

    fn reachable(&self, kind: Object) -> Opinion {
        if self.graph.leads_to(kind, self.place, self.name, self.node) {
            return allow();
        }
        let node = self.node;
        Opinion::none(format!("no relationship found between node '{node}' and this object"))
    }

    fn get(&self, kind: Object) -> Opinion {
        match (self.verb, self.part) {
            ("get", "") => self.related(kind),
            ("get", _) => Opinion::none("cannot get subresource"),
            _ => Opinion::none("can only get individual resources of this type"),
        }
    }

    fn read(&self, kind: Object) -> Opinion {
        if !matches!(self.verb, "get" | "list" | "watch") {
            return Opinion::none("can only read resources of this type");
        }
        match (self.part, self.place) {
            ("", "") => Opinion::none("can only read namespaced object of this type"),
            ("", _) => self.related(kind),
            _ => Opinion::none("cannot read subresource"),
        }
    }

    fn update_claim_status(&self) -> Opinion {
        match self.verb {
            "update" | "patch" => self.related(Object::PersistentVolumeClaim),
            _ => Opinion::none("can only get/update/patch this type"),
        }
    }

    fn service_account(&self) -> Opinion {
        if self.verb == "get" && self.part.is_empty() {
            return self.read(Object::ServiceAccount);
        }
        if self.verb != "create" || self.name.is_empty() {
            return Opinion::none("can only create tokens for individual service accounts");
        }
        match self.part {
            "token" => self.reachable(Object::ServiceAccount),
            _ => Opinion::none("can only create token subresource of serviceaccount"),
        }
    }

    /// What a node makes for itself has its name; on creation only admission sees that.
    fn own(&self, refusal: &str) -> Opinion {
        match self.verb == "create" || self.name == self.node {
            true => allow(),
            false => Opinion::none(refusal),
        }
    }

    fn lease(&self) -> Opinion {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return Opinion::none("can only get, create, update, patch, or delete a node lease");
        }
        if self.place != LEASES {
            return Opinion::none(format!(
                "can only access leases in the {LEASES:?} system namespace"
            ));
        }
        self.own("can only access node lease with the same name as the requesting node")
    }

    fn csi_node(&self) -> Opinion {
        match (self.part, self.verb) {
            ("", "get" | "create" | "update" | "patch" | "delete") => {
                self.own("can only access CSINode with the same name as the requesting node")
            }
            ("", _) => Opinion::none("can only get, create, update, patch, or delete a CSINode"),
            ("status", _) => {
                Opinion::none("CSINode status access requires CSIVolumeHealth feature")
            }
            _ => Opinion::none("cannot authorize CSINode subresources"),
        }
    }

    /// Whether the question is about objects of this node only.
    fn selects_own(&self, field: &str) -> bool {
        self.selected.has_field(field, self.node)
    }

    fn resource_slice(&self) -> Opinion {
        match (self.part, self.verb) {
            ("", "create") => allow(),
            ("", "get" | "update" | "patch" | "delete") => self.related(Object::ResourceSlice),
            ("", "list" | "watch" | "deletecollection") => {
                match self.selects_own("spec.nodeName") {
                    true => allow(),
                    false => Opinion::none(
                        "can only list/watch/deletecollection resourceslices with nodeName field selector",
                    ),
                }
            }
            ("", _) => Opinion::none(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
            _ => Opinion::none("cannot authorize ResourceSlice subresources"),
        }
    }

    fn pod_certificate_request(&self) -> Opinion {
        match (self.part, self.verb) {
            ("", "create") => allow(),
            ("", "get") => self.related(Object::PodCertificateRequest),
            ("", "list" | "watch") => match self.selects_own("spec.nodeName") {
                true => allow(),
                false => Opinion::none(
                    "can only list/watch podcertificaterequests with nodeName field selector",
                ),
            },
            ("", verb) => Opinion::none(format!("nodes may not {verb} podcertificaterequests")),
            _ => Opinion::none(
                "nodes may not access the status subresource of PodCertificateRequests",
            ),
        }
    }

    /// By name, not by what is there: a node looks for itself before it is made.
    fn node(&self) -> Opinion {
        let node = self.node;
        match (self.part, self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => allow(),
            ("", "get" | "list" | "watch") => match self.name {
                name if name == node => allow(),
                "" => Opinion::none(format!(
                    "node '{node}' cannot read all nodes, only its own Node object"
                )),
                other => Opinion::none(format!(
                    "node '{node}' cannot read '{other}', only its own Node object"
                )),
            },
            _ => Opinion::none(""),
        }
    }

    fn pod(&self) -> Opinion {
        match (self.part, self.verb) {
            ("", "get") => self.get(Object::Pod),
            ("", "list" | "watch") if self.selects_own("spec.nodeName") => allow(),
            ("", "list" | "watch") if !self.name.is_empty() => self.related(Object::Pod),
            ("", "list" | "watch") => {
                Opinion::none("can only list/watch pods with spec.nodeName field selector")
            }
            // Mirror pods, and the states of the pods that run here.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                allow()
            }
            _ => Opinion::none(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn world() -> Graph {
        let mut graph = Graph::default();
        let pod = |name: &str, node: &str, secret: &str| {
            json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": {
                "nodeName": node, "serviceAccountName": format!("{name}-account"),
                "imagePullSecrets": [{ "name": "pull" }],
                "containers": [{ "env": [{ "name": "A",
                    "valueFrom": { "secretKeyRef": { "name": secret, "key": "k" } } }],
                    "envFrom": [{ "configMapRef": { "name": "settings" } }] }],
                "volumes": [
                    { "name": "data", "persistentVolumeClaim": { "claimName": "data" } },
                    { "name": "own", "ephemeral": {} },
                    { "name": "all", "projected": { "sources": [
                        { "configMap": { "name": "projected" } }] } }],
                "resourceClaims": [{ "name": "gpu", "resourceClaimName": "gpu" }] } })
        };
        graph.add("Pod", &pod("web", "n1", "password"));
        graph.add("Pod", &pod("db", "n2", "other"));
        graph.add(
            "PersistentVolume",
            &json!({ "metadata": { "name": "pv" }, "spec": {
            "claimRef": { "namespace": "ns", "name": "data" },
            "csi": { "nodeStageSecretRef": { "name": "stage", "namespace": "storage" } } } }),
        );
        graph.add(
            "ResourceSlice",
            &json!({ "metadata": { "name": "slice" }, "spec": { "nodeName": "n1" } }),
        );
        graph.remove("Pod", &pod("db", "n2", "other"));
        graph
    }

    /// `verb group resource[/part] [namespace/]name [field=value]`, as node n1.
    fn check(asked: &str) -> Opinion {
        let words: Vec<&str> = asked.split_whitespace().collect();
        let (resource, part) = words[2].split_once('/').unwrap_or((words[2], ""));
        let object = words.get(3).copied().filter(|word| !word.contains('='));
        let (namespace, name) = object.map_or(("", ""), |o| o.split_once('/').unwrap_or(("", o)));
        let group = if words[1] == "core" { "" } else { words[1] };
        let mut attributes = Attributes::right(words[0], group, resource, namespace, name);
        if let What::Resource { subresource, .. } = &mut attributes.what {
            *subresource = part.into();
        }
        let field = words.iter().find(|word| word.contains('='));
        attributes.selected = Selected::parse(field.copied().unwrap_or_default(), "");
        let user = User {
            name: "system:node:n1".into(),
            groups: vec!["system:nodes".into()],
            ..User::default()
        };
        decide(&world(), &user, &attributes)
    }

    #[test]
    fn a_node_may_see_what_its_pods_need_and_write_its_own() {
        for asked in [
            "get core secrets ns/password",
            "watch core secrets ns/pull",
            "get core secrets storage/stage",
            "get core configmaps ns/settings",
            "list core configmaps ns/projected",
            "get core persistentvolumeclaims ns/data",
            "get core persistentvolumeclaims ns/web-own",
            "update core persistentvolumeclaims/status ns/data",
            "get core persistentvolumes pv",
            "get resource.k8s.io resourceclaims ns/gpu",
            "create core serviceaccounts/token ns/web-account",
            "get core pods ns/web",
            "list core pods spec.nodeName=n1",
            "update core pods/status ns/any",
            "get core nodes n1",
            "patch core nodes/status n1",
            "update coordination.k8s.io leases kube-node-lease/n1",
            "get storage.k8s.io csinodes n1",
            "get resource.k8s.io resourceslices slice",
            "create certificates.k8s.io certificatesigningrequests",
            "list core services",
        ] {
            assert!(matches!(check(asked), Opinion::Allow(_)), "{asked}: {:?}", check(asked));
        }
    }

    #[test]
    fn and_nothing_else() {
        for (asked, reason) in [
            (
                "get core secrets ns/other",
                "no relationship found between node 'n1' and this object",
            ),
            ("list core secrets", "can only read namespaced object of this type"),
            ("list core secrets ns/", "No Object name found"),
            ("delete core secrets ns/password", "can only read resources of this type"),
            ("get core pods ns/db", "no relationship found between node 'n1' and this object"),
            ("list core pods", "can only list/watch pods with spec.nodeName field selector"),
            (
                "list core pods spec.nodeName=n2",
                "can only list/watch pods with spec.nodeName field selector",
            ),
            ("get core nodes n2", "node 'n1' cannot read 'n2', only its own Node object"),
            ("list core nodes", "node 'n1' cannot read all nodes, only its own Node object"),
            (
                "update coordination.k8s.io leases kube-node-lease/n2",
                "can only access node lease with the same name as the requesting node",
            ),
            (
                "update coordination.k8s.io leases ns/n1",
                "can only access leases in the \"kube-node-lease\" system namespace",
            ),
            (
                "create core serviceaccounts/token ns/db-account",
                "no relationship found between node 'n1' and this object",
            ),
            ("delete core nodes n1", ""),
            ("create apps deployments", ""),
        ] {
            assert_eq!(check(asked), Opinion::none(reason), "{asked}");
        }
    }
}
