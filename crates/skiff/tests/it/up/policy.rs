//! NetworkPolicies of a whole cluster, with real pods.
use crate::cluster::Cluster;
use std::time::{Duration, Instant};

const OBJECTS: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: friend}}}]
    ports: [{port: http}]
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: a
    image: localhost/skiff/demo
    ports: [{name: http, containerPort: 8080}]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: friend, labels: {app: friend}}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: "localhost/busybox:1", command: [sleep, "1000"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger, labels: {app: stranger}}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: "localhost/busybox:1", command: [sleep, "1000"]}]}
"#;

const QUIET: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: quiet}
spec: {podSelector: {matchLabels: {app: friend}}, policyTypes: [Egress]}
"#;

#[test]
fn a_policy_in_and_a_policy_out() {
    let cluster = Cluster::whole();
    cluster.import_busybox("localhost/busybox:1");
    cluster.kubectl_with("apply -f -", OBJECTS);
    for pod in ["web", "friend", "stranger"] {
        let ready = format!("get pod {pod} -o jsonpath={{.status.conditions[?(@.type=='Ready')].status}}");
        cluster.until(&ready, "True");
    }
    let ip = cluster.kubectl("get pod web -o jsonpath={.status.podIP}");
    let ask = |from: &str, at: &str| {
        cluster.kubectl(&format!("exec {from} -- wget -q -T 2 -O - http://{at}/hostname"))
    };
    let is_reached = |from: &str, at: &str| ask(from, at) == "web";
    let until = |from: &str, at: &str, expected: bool| {
        let begun = Instant::now();
        while is_reached(from, at) != expected {
            assert!(begun.elapsed() < Duration::from_secs(20), "{from} to {at}: {}", ask(from, at));
        }
    };
    let direct = format!("{ip}:8080");
    assert!(!is_reached("stranger", &direct), "from its first packet");
    until("friend", &direct, true);
    until("friend", "web", true);
    assert!(!is_reached("stranger", "web"), "by its service neither");

    cluster.kubectl_with("apply -f -", QUIET);
    until("friend", &direct, false);
    let found = cluster.kubectl("exec friend -- nslookup web.default.svc.cluster.local");
    assert!(found.contains("Address"), "the node's own DNS answers: {found}");
    cluster.kubectl("delete networkpolicy quiet web");
    until("friend", &direct, true);
    until("stranger", "web", true);
}
