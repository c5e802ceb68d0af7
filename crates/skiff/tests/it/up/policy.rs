//! NetworkPolicies and load balancers of a whole cluster, with real pods.
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
        let ready =
            format!("get pod {pod} -o jsonpath={{.status.conditions[?(@.type=='Ready')].status}}");
        cluster.until(&ready, "True");
    }
    let ip = cluster.kubectl("get pod web -o jsonpath={.status.podIP}");
    let service = cluster.kubectl("get service web -o jsonpath={.spec.clusterIP}");
    let ask = |from: &str, at: &str| {
        let request = format!("printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' | busybox nc -w 2 {at}");
        cluster.kubectl_args(&["exec", from, "--", "sh", "-c", &request])
    };
    let is_reached = |from: &str, at: &str| ask(from, at).ends_with("web");
    let until = |from: &str, at: &str, expected: bool| {
        let begun = Instant::now();
        while is_reached(from, at) != expected {
            assert!(begun.elapsed() < Duration::from_secs(20), "{from} to {at}: {}", ask(from, at));
        }
    };
    let (direct, service) = (format!("{ip} 8080"), format!("{service} 80"));
    assert!(!is_reached("stranger", &direct), "from its first packet");
    until("friend", &direct, true);
    until("friend", &service, true);
    assert!(!is_reached("stranger", &service), "by its service neither");

    cluster.kubectl_with("apply -f -", QUIET);
    until("friend", &direct, false);
    cluster.kubectl("delete networkpolicy quiet web");
    until("friend", &direct, true);
    until("stranger", &service, true);
}

const BALANCED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: a, image: localhost/skiff/demo}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: foreign}
spec: {type: LoadBalancer, loadBalancerClass: example.com/x, selector: {app: web}, ports: [{port: 81}]}
"#;

const SECOND: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: second}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"#;

#[test]
fn a_load_balancer_has_the_nodes_address() {
    let cluster = Cluster::whole();
    cluster.kubectl_with("apply -f -", BALANCED);
    let address = "get service web -o jsonpath={.status.loadBalancer.ingress[*].ip}";
    let expected = testkit::network::ADDRESS.to_string();
    cluster.until(address, &expected);
    let curl = testkit::tools::program("curl", "curl");
    let begun = Instant::now();
    loop {
        let mut command = testkit::network::within(cluster.network.as_ref(), &curl);
        command.args(["-sS", "--max-time", "5", &format!("http://{expected}/hostname")]);
        let output = command.output().expect("curl runs");
        if output.stdout.trim_ascii() == b"web" {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{output:?}");
    }
    // A port is one service's: the other is told.
    cluster.kubectl_with("apply -f -", SECOND);
    let told =
        "get events --field-selector involvedObject.name=second -o jsonpath={.items[*].message}";
    cluster.until(told, "port 80/TCP of the nodes is default/web's");
    let foreign = "get service foreign -o jsonpath={.status.loadBalancer}";
    assert_eq!(cluster.kubectl(foreign), "{}");
    let plain = r#"{"spec":{"type":"ClusterIP","externalTrafficPolicy":null}}"#;
    cluster.kubectl_args(&["patch", "service", "web", "-p", plain]);
    cluster.until(address, "");
    cluster.until("get service second -o jsonpath={.status.loadBalancer.ingress[*].ip}", &expected);
}
