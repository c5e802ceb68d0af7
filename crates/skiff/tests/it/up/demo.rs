//! The README's demo, word by word: what its commands say is what they do.
use crate::cluster::Cluster;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::network::{ADDRESS, within};

const README: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md"));

/// The commands of the demo: lines that begin with `kubectl` in its section.
fn commands() -> Vec<String> {
    let section = README.split("## A first application").nth(1).expect("the demo's section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().map(str::trim).filter(|line| line.starts_with("kubectl "));
    lines.map(|line| line.split(" #").next().unwrap_or(line).trim().to_owned()).collect()
}

fn fetch(cluster: &Cluster, url: &str) -> Result<String, String> {
    let mut curl = within(cluster.network.as_ref(), &testkit::tools::program("curl", "curl"));
    let output = curl.args(["-sS", "--max-time", "5", url]).output().expect("curl runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn the_readmes_demo_does_what_it_says() {
    let cluster = Cluster::whole();
    let all = commands();
    assert!(all.len() >= 8, "{all:?}");
    for line in &all {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let said = cluster.kubectl_args(&words);
        assert!(!said.starts_with("error: "), "{line}: {said}");
        if line.contains("--get") {
            assert!(said.contains("web-"), "{line}: {said}");
        }
    }
    // Through its node port, from outside of the pod network, until the rules are there.
    let port = cluster.kubectl("get service web -o jsonpath={.spec.ports[0].nodePort}");
    let begun = Instant::now();
    let seen = loop {
        match fetch(&cluster, &format!("http://{ADDRESS}:{port}/hostname")) {
            Ok(seen) => break seen,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
        }
    };
    assert!(seen.starts_with("web-"), "{seen}");
}

#[test]
fn nobody_notices_a_rollout() {
    let cluster = Cluster::whole();
    cluster.kubectl_with("apply -f -", ROLLED);
    cluster.until("get deployment web -o jsonpath={.status.availableReplicas}", "2");
    let ip = cluster.kubectl("get service web -o jsonpath={.spec.clusterIP}");
    let url = format!("http://{ip}/hostname");
    let begun = Instant::now();
    while let Err(error) = fetch(&cluster, &url) {
        assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
    }
    let done = AtomicBool::new(false);
    let (asked, failures) = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let (mut asked, mut failures) = (0, Vec::new());
            while !done.load(Ordering::Relaxed) {
                asked += 1;
                failures.extend(fetch(&cluster, &url).err());
            }
            (asked, failures)
        });
        cluster.kubectl("scale deployment web --replicas=4");
        cluster.until("get deployment web -o jsonpath={.status.availableReplicas}", "4");
        cluster.kubectl("set env deployment/web COLOUR=green");
        let said = cluster.kubectl("rollout status deployment/web --timeout=60s");
        done.store(true, Ordering::Relaxed);
        assert!(said.ends_with("successfully rolled out"), "{said}");
        client.join().expect("a client")
    });
    assert!(asked > 5, "{asked}");
    assert_eq!(failures, Vec::<String>::new(), "of {asked}");
}

/// A pod serves on for a moment after it was told to end, as every good server does.
const ROLLED: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 0}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: demo
        image: localhost/skiff/demo
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 2}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"#;
