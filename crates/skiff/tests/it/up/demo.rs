//! The README's demo, word by word: what its commands say is what they do.
use crate::cluster::Cluster;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
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

/// A connection through a service, held open.
struct Held(BufReader<TcpStream>);

impl Held {
    fn open(cluster: &Cluster, ip: &str) -> std::io::Result<Held> {
        let network = cluster.network.as_ref().expect("a network of its own");
        let connect = || TcpStream::connect((ip, 80));
        let stream = netlink::namespace::within(&network.path, connect).expect("entered")?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Held(BufReader::new(stream)))
    }

    /// Which pod answers.
    fn ask(&mut self) -> std::io::Result<String> {
        self.0.get_mut().write_all(b"GET /hostname HTTP/1.1\r\nHost: web\r\n\r\n")?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line)?;
            let line = line.trim().to_ascii_lowercase();
            match line.strip_prefix("content-length:") {
                Some(text) => length = text.trim().parse().unwrap_or(0),
                None if line.is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(String::from_utf8_lossy(&body).trim().to_owned())
    }
}

#[test]
fn connections_through_a_service_outlive_skiff() {
    let mut cluster = Cluster::whole();
    cluster.kubectl_with("apply -f -", ROLLED);
    cluster.until("get deployment web -o jsonpath={.status.availableReplicas}", "2");
    let ip = cluster.kubectl("get service web -o jsonpath={.spec.clusterIP}");
    let begun = Instant::now();
    let mut held = loop {
        match Held::open(&cluster, &ip) {
            Ok(held) => break held,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
        }
    };
    let pod = held.ask().expect("an answer");
    assert!(pod.starts_with("web-"), "{pod}");
    cluster.stop();
    assert_eq!(held.ask().expect("it lives on"), pod);
    // New ones are made, too: the rules are the kernel's.
    let mut new = Held::open(&cluster, &ip).expect("a connection");
    assert!(new.ask().expect("an answer").starts_with("web-"));
    cluster.start_again();
    assert_eq!(held.ask().expect("it is left alone"), pod);
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
