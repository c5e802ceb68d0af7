//! The way in: an Ingress and a Gateway, asked by name through the node's own ports.
use crate::cluster::Cluster;
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::network::{ADDRESS, within};

/// Two pods behind a service.
const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: demo
        image: localhost/skiff/demo
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
"#;

const INGRESS: &str = r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  tls: [{hosts: [web.test], secretName: web}]
  rules:
  - host: web.test
    http:
      paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]
"#;

const GATEWAY: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gate}
spec:
  gatewayClassName: skiff
  listeners:
  - {name: http, port: 8080, protocol: HTTP}
  - {name: https, port: 8443, protocol: HTTPS, hostname: web.test, tls: {certificateRefs: [{name: web}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: gate}]
  hostnames: [web.test]
  rules:
  - matches: [{path: {type: PathPrefix, value: /old}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
    backendRefs: [{name: web, port: 80}]
  - matches: [{path: {type: Exact, value: /away}}]
    filters: [{type: RequestRedirect, requestRedirect: {hostname: other.test, statusCode: 301}}]
"#;

/// What curl says with these arguments, from the node's own network.
fn curl(cluster: &Cluster, arguments: &[&str]) -> String {
    let mut curl = within(cluster.network.as_ref(), &testkit::tools::program("curl", "curl"));
    let output = curl.args(["-sS", "--max-time", "5"]).args(arguments).output();
    let output = output.expect("curl runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Asks again until the answer is right.
fn until(cluster: &Cluster, arguments: &[&str], is_right: impl Fn(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let said = curl(cluster, arguments);
        if is_right(&said) {
            return said;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{arguments:?}: {said}");
    }
}

/// A certificate of `web.test` as a Secret; the file of whoever vouches for it.
fn certificate(cluster: &Cluster) -> String {
    let made = rcgen::generate_simple_self_signed(["web.test".to_owned()]).expect("a certificate");
    let folder = cluster.folder.path();
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let certificate = write("web.crt", made.cert.pem());
    let key = write("web.key", made.signing_key.serialize_pem());
    assert!(Path::new(&key).exists());
    let said = cluster.kubectl(&format!("create secret tls web --cert={certificate} --key={key}"));
    assert_eq!(said, "secret/web created");
    certificate
}

#[test]
fn an_ingress_is_reached_by_name_with_and_without_tls() {
    let cluster = Cluster::whole();
    let authority = certificate(&cluster);
    cluster.until("get ingressclass skiff -o jsonpath={.spec.controller}", "skiff.dev/ingress");
    cluster.kubectl_with("apply -f -", WEB);
    cluster.kubectl_with("apply -f -", INGRESS);
    let class = cluster.kubectl("get ingress web -o jsonpath={.spec.ingressClassName}");
    assert_eq!(class, "skiff", "the default class is ours");
    cluster.until("get deployment web -o jsonpath={.status.availableReplicas}", "2");
    let is_pod = |said: &str| said.starts_with("web-");
    let plain = format!("http://{ADDRESS}/hostname");
    until(&cluster, &["-H", "Host: web.test", &plain], is_pod);
    let resolve = format!("web.test:443:{ADDRESS}");
    let secure = ["--cacert", &authority, "--resolve", &resolve, "https://web.test/hostname"];
    let said = until(&cluster, &secure, is_pod);
    assert!(is_pod(&said), "{said}");
    // Both pods have their turn.
    let mut seen = std::collections::BTreeSet::new();
    let begun = Instant::now();
    while seen.len() < 2 && begun.elapsed() < Duration::from_secs(30) {
        seen.insert(curl(&cluster, &["-H", "Host: web.test", &plain]));
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    let other = curl(&cluster, &["-H", "Host: other.test", &plain]);
    assert_eq!(other, "404 Not Found");
    cluster.until(
        "get ingress web -o jsonpath={.status.loadBalancer.ingress[*].ip}",
        &ADDRESS.to_string(),
    );
    // Nobody is there; then there is nobody to ask.
    cluster.kubectl("scale deployment web --replicas=0");
    until(&cluster, &["-H", "Host: web.test", &plain], |said| said == "503 Service Unavailable");
    cluster.kubectl("delete ingress web");
    until(&cluster, &["-H", "Host: web.test", &plain], |said| said.contains("onnect to"));
}

#[test]
fn a_gateway_has_routes_and_says_what_became_of_them() {
    let cluster = Cluster::whole();
    let authority = certificate(&cluster);
    let accepted =
        "get gatewayclass skiff -o jsonpath={.status.conditions[?(@.type=='Accepted')].status}";
    cluster.until(accepted, "True");
    cluster.kubectl_with("apply -f -", WEB);
    let said = cluster.kubectl_with("apply -f -", GATEWAY);
    assert!(said.ends_with("created"), "{said}");
    cluster.until("get deployment web -o jsonpath={.status.availableReplicas}", "2");
    let is_pod = |said: &str| said.starts_with("web-");
    let plain = format!("http://{ADDRESS}:8080/old/hostname");
    until(&cluster, &["-H", "Host: web.test", &plain], is_pod);
    let resolve = format!("web.test:8443:{ADDRESS}");
    let secure =
        ["--cacert", &authority, "--resolve", &resolve, "https://web.test:8443/old/hostname"];
    until(&cluster, &secure, is_pod);
    let away = format!("http://{ADDRESS}:8080/away");
    let said =
        curl(&cluster, &["-H", "Host: web.test", "-w", "%{http_code} %{redirect_url}", &away]);
    assert_eq!(said, "301 http://other.test:8080/away");
    for (what, expected) in [
        ("gateway gate -o jsonpath={.status.addresses[*].value}", ADDRESS.to_string()),
        ("gateway gate -o jsonpath={.status.conditions[*].status}", "True True".to_owned()),
        ("gateway gate -o jsonpath={.status.listeners[*].attachedRoutes}", "1 1".to_owned()),
        (
            "httproute web -o jsonpath={.status.parents[0].conditions[*].status}",
            "True True".to_owned(),
        ),
    ] {
        cluster.until(&format!("get {what}"), &expected);
    }
    // A service that is not there is said, and answered with an error.
    let patch =
        r#"[{"op": "replace", "path": "/spec/rules/0/backendRefs/0/name", "value": "gone"}]"#;
    let said = cluster.kubectl_args(&["patch", "httproute", "web", "--type=json", "-p", patch]);
    assert_eq!(said, "httproute.gateway.networking.k8s.io/web patched");
    let reason = "get httproute web -o jsonpath={.status.parents[0].conditions[?(@.type=='ResolvedRefs')].reason}";
    cluster.until(reason, "BackendNotFound");
    until(&cluster, &["-H", "Host: web.test", &plain], |said| said == "500 Internal Server Error");
}
