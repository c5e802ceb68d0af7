//! Clusters of both address families, and of IPv6 alone: nodes, pods, services, DNS and policies.
use crate::cluster::Cluster;
use std::time::{Duration, Instant};
use testkit::network::{ADDRESS, ADDRESS6, dual_machine, ipv6_machine, within};

const DUAL: [&str; 2] =
    ["--cluster-cidr=10.244.0.0/16,fd44::/48", "--service-cidr=10.96.0.0/12,fd96::/112"];

const OBJECTS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: a
    image: localhost/skiff/demo
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  ipFamilyPolicy: PreferDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, labels: {app: client}}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: localhost/skiff/demo}]}
---
apiVersion: v1
kind: Pod
metadata: {name: host}
spec: {hostNetwork: true, containers: [{name: a, image: localhost/skiff/pause}]}
"#;

const CLOSED: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{ipBlock: {cidr: 10.244.0.0/16}}]}]
"#;

/// The page of the demo, as a pod sees it.
fn fetch(cluster: &Cluster, from: &str, url: &str) -> String {
    cluster.kubectl_args(&["exec", from, "--", "/skiff", "demo", "--get", url])
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
    }
}

fn start(cluster: &Cluster) {
    cluster.kubectl_with("apply -f -", OBJECTS);
    for pod in ["web", "client", "host"] {
        let ready =
            format!("get pod {pod} -o jsonpath={{.status.conditions[?(@.type=='Ready')].status}}");
        cluster.until(&ready, "True");
    }
}

#[test]
fn a_cluster_of_both_families() {
    let cluster = Cluster::whole_on(dual_machine(), &DUAL);
    start(&cluster);
    let get = |what: &str, path: &str| cluster.kubectl(&format!("get {what} -o jsonpath={path}"));
    assert_eq!(get("node node", "{.spec.podCIDRs}"), r#"["10.244.0.0/24","fd44::/64"]"#);
    let own = get("node node", "{.status.addresses[?(@.type=='InternalIP')].address}");
    assert_eq!(own, format!("{ADDRESS} {ADDRESS6}"));
    assert_eq!(get("pod host", "{.status.podIPs[*].ip}"), format!("{ADDRESS} {ADDRESS6}"));
    assert_eq!(get("pod host", "{.status.hostIPs[*].ip}"), format!("{ADDRESS} {ADDRESS6}"));
    let pods = get("pod web", "{.status.podIPs[*].ip}");
    let pods: Vec<&str> = pods.split(' ').collect();
    assert!(pods[0].starts_with("10.244.0.") && pods[1].starts_with("fd44::"), "{pods:?}");
    let services = get("service web", "{.spec.clusterIPs[*]}");
    let services: Vec<&str> = services.split(' ').collect();
    assert!(services[1].starts_with("fd96::"), "{services:?}");
    for family in ["IPv4", "IPv6"] {
        let of = format!("{{.items[?(@.addressType=='{family}')].addressType}}");
        let slices = "get endpointslices -l kubernetes.io/service-name=web -o jsonpath=";
        cluster.until(&format!("{slices}{of}"), family);
    }
    let dns = cluster.kubectl("get service kube-dns -n kube-system -o jsonpath={.spec.clusterIPs}");
    assert_eq!(dns, r#"["10.96.0.10","fd96::a"]"#);

    for at in [
        format!("{}:8080", pods[0]),
        format!("[{}]:8080", pods[1]),
        format!("{}:80", services[0]),
        format!("[{}]:80", services[1]),
        "web".to_owned(),
        "headless:8080".to_owned(),
    ] {
        let url = format!("http://{at}/hostname");
        until(&url, || fetch(&cluster, "client", &url) == "web");
    }
    let port = get("service web", "{.spec.ports[0].nodePort}");
    let curl = testkit::tools::program("curl", "curl");
    for host in [ADDRESS.to_string(), format!("[{ADDRESS6}]")] {
        let url = format!("http://{host}:{port}/hostname");
        until(&url, || {
            let mut command = within(cluster.network.as_ref(), &curl);
            let output = command.args(["-gsS", "--max-time", "5", &url]).output().expect("curl");
            output.stdout.trim_ascii() == b"web"
        });
    }
    // A policy that grants one family grants nothing of the other.
    cluster.kubectl_with("apply -f -", CLOSED);
    let open = format!("http://{}:8080/hostname", pods[0]);
    let closed = format!("http://[{}]:8080/hostname", pods[1]);
    let (open, closed) = (&open, &closed);
    let ask = |url: &str| {
        cluster.kubectl_args(&[
            "exec",
            "client",
            "--request-timeout=2s",
            "--",
            "/skiff",
            "demo",
            "--get",
            url,
        ])
    };
    until("closed", || ask(closed) != "web");
    assert_eq!(ask(open), "web");
}

#[test]
fn a_cluster_of_ipv6_alone() {
    let flags = ["--cluster-cidr=fd44::/48", "--service-cidr=fd96::/112"];
    let cluster = Cluster::whole_on(ipv6_machine(), &flags);
    start(&cluster);
    let get = |what: &str, path: &str| cluster.kubectl(&format!("get {what} -o jsonpath={path}"));
    assert_eq!(get("node node", "{.spec.podCIDRs}"), r#"["fd44::/64"]"#);
    let own = get("node node", "{.status.addresses[?(@.type=='InternalIP')].address}");
    assert_eq!(own, ADDRESS6.to_string());
    assert_eq!(get("service kubernetes", "{.spec.clusterIPs}"), r#"["fd96::1"]"#);
    let endpoints = "get endpointslice kubernetes -o jsonpath={.endpoints[*].addresses[*]}";
    assert_eq!(cluster.kubectl(endpoints), ADDRESS6.to_string());
    for at in ["web", "headless:8080", "web.default.svc.cluster.local"] {
        let url = format!("http://{at}/hostname");
        until(&url, || fetch(&cluster, "client", &url) == "web");
    }
    let pods = get("pod web", "{.status.podIPs[*].ip}");
    assert!(pods.starts_with("fd44::"), "{pods}");
    assert!(cluster.kubectl("logs web").contains("listening on port 8080"));
}
