//! Upstream's default priority levels and flow schemas.
use serde_json::{Value, json};

const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// Name, shares, percent that may be lent, and (queues, hand size) for those that queue.
type Level = (&'static str, i64, i64, Option<(i64, i64)>);

const LEVELS: &[Level] = &[
    ("catch-all", 5, 0, None),
    ("global-default", 20, 50, Some((128, 6))),
    ("leader-election", 10, 0, Some((16, 4))),
    ("node-high", 40, 25, Some((64, 6))),
    ("system", 30, 33, Some((64, 6))),
    ("workload-high", 40, 50, Some((128, 6))),
    ("workload-low", 100, 90, Some((128, 6))),
];
const QUEUE_LENGTH: i64 = 50;

/// What requests a schema is about.
#[derive(Clone, Copy)]
enum About {
    Everything,
    Probes,
    LeaderElection,
    Nodes,
}

struct Schema {
    name: &'static str,
    precedence: i64,
    level: &'static str,
    /// How requests are told apart within it.
    by: &'static str,
    /// `group:NAME`, `user:NAME`, `accounts:NAMESPACE`.
    subjects: &'static [&'static str],
    about: About,
}

const EVERYBODY: &[&str] = &["group:system:unauthenticated", "group:system:authenticated"];
const COMPONENTS: &[&str] =
    &["user:system:kube-controller-manager", "user:system:kube-scheduler", "accounts:kube-system"];

const fn schema(
    name: &'static str,
    precedence: i64,
    level: &'static str,
    by: &'static str,
    subjects: &'static [&'static str],
    about: About,
) -> Schema {
    Schema { name, precedence, level, by, subjects, about }
}

#[rustfmt::skip]
const SCHEMAS: &[Schema] = &[
    schema("exempt", 1, "exempt", "", &["group:system:masters"], About::Everything),
    schema("probes", 2, "exempt", "", EVERYBODY, About::Probes),
    schema("system-leader-election", 100, "leader-election", "ByUser", COMPONENTS, About::LeaderElection),
    schema("system-node-high", 400, "node-high", "ByUser", &["group:system:nodes"], About::Nodes),
    schema("system-nodes", 500, "system", "ByUser", &["group:system:nodes"], About::Everything),
    schema("kube-controller-manager", 800, "workload-high", "ByNamespace", &["user:system:kube-controller-manager"], About::Everything),
    schema("kube-scheduler", 800, "workload-high", "ByNamespace", &["user:system:kube-scheduler"], About::Everything),
    schema("kube-system-service-accounts", 900, "workload-high", "ByNamespace", &["accounts:kube-system"], About::Everything),
    schema("service-accounts", 9000, "workload-low", "ByUser", &["group:system:serviceaccounts"], About::Everything),
    schema("global-default", 9900, "global-default", "ByUser", EVERYBODY, About::Everything),
    schema("catch-all", 10000, "catch-all", "ByUser", EVERYBODY, About::Everything),
];

pub fn objects() -> Vec<Value> {
    let exempt = json!({
        "type": "Exempt", "exempt": { "nominalConcurrencyShares": 0, "lendablePercent": 0 },
    });
    let mut all = vec![object("PriorityLevelConfiguration", "exempt", exempt)];
    for (name, shares, lendable, queues) in LEVELS {
        let response = match queues {
            None => json!({ "type": "Reject" }),
            Some((queues, hand)) => json!({ "type": "Queue", "queuing": {
                "queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH } }),
        };
        let limited = json!({
            "nominalConcurrencyShares": shares, "lendablePercent": lendable,
            "limitResponse": response,
        });
        let spec = json!({ "type": "Limited", "limited": limited });
        all.push(object("PriorityLevelConfiguration", name, spec));
    }
    all.extend(SCHEMAS.iter().map(Schema::object));
    all
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let annotations = json!({ "apf.kubernetes.io/autoupdate-spec": "true" });
    json!({
        "apiVersion": API_VERSION, "kind": kind,
        "metadata": { "name": name, "annotations": annotations }, "spec": spec,
    })
}

impl Schema {
    fn object(&self) -> Value {
        let subjects: Vec<Value> = self.subjects.iter().map(|text| subject(text)).collect();
        let mut rule = self.about.rules();
        rule["subjects"] = json!(subjects);
        let mut spec = json!({
            "matchingPrecedence": self.precedence,
            "priorityLevelConfiguration": { "name": self.level }, "rules": [rule],
        });
        if !self.by.is_empty() {
            spec["distinguisherMethod"] = json!({ "type": self.by });
        }
        object("FlowSchema", self.name, spec)
    }
}

impl About {
    fn rules(self) -> Value {
        match self {
            About::Everything => json!({
                "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "namespaces": ["*"], "clusterScope": true }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            }),
            About::Probes => json!({ "nonResourceRules": [
                { "verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"] }] }),
            About::LeaderElection => json!({ "resourceRules": [{
                "verbs": ["get", "create", "update"], "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"], "namespaces": ["*"] }] }),
            About::Nodes => json!({ "resourceRules": [
                { "verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"],
                    "namespaces": ["*"], "clusterScope": true },
                { "verbs": ["*"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                    "namespaces": ["*"] }] }),
        }
    }
}

fn subject(text: &str) -> Value {
    match text.split_once(':') {
        Some(("group", name)) => json!({ "kind": "Group", "group": { "name": name } }),
        Some(("accounts", namespace)) => json!({
            "kind": "ServiceAccount", "serviceAccount": { "namespace": namespace, "name": "*" } }),
        Some((_, name)) => json!({ "kind": "User", "user": { "name": name } }),
        None => Value::Null,
    }
}
