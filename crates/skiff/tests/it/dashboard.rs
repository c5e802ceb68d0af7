//! `skiff dashboard`: the page, and what it can ask of the cluster.
use crate::apiserver::Running;
use crate::cluster::Cluster;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// A dashboard of a cluster: its process, its address, its key.
fn open(cluster: &Cluster) -> (Running, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skiff"));
    command.arg("dashboard").arg("--kubeconfig").arg(cluster.kubeconfig());
    let mut process =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("skiff starts");
    let mut line = String::new();
    let output = process.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("it says where it is");
    let url = line.split_whitespace().last().expect("an address");
    let (address, key) = url.split_once("/#key=").expect("a key");
    (Running(process), address.to_owned(), key.to_owned())
}

/// The code of an answer, and its body, as curl has it.
fn fetch(url: &str, arguments: &[&str]) -> (String, String) {
    let curl = testkit::tools::program("curl", "curl");
    let mut command = Command::new(curl);
    command.args(["-s", "--max-time", "20", "-w", "\n%{http_code}"]).args(arguments).arg(url);
    let output = command.output().expect("curl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = text.rsplit_once('\n').expect("a code");
    (code.to_owned(), body.to_owned())
}

#[test]
fn the_dashboard_shows_its_owner_the_cluster_and_nobody_else() {
    let cluster = Cluster::start();
    let (_running, address, key) = open(&cluster);
    let (key, table) = (
        format!("X-Skiff-Key: {key}"),
        "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    );
    let (code, page) = fetch(&format!("{address}/"), &[]);
    assert!(code == "200" && page.contains("<title>Skiff</title>"), "{code} {page}");
    let namespaces = format!("{address}/api/v1/namespaces");
    let (code, body) = fetch(&namespaces, &["-H", &key, "-H", table]);
    assert_eq!(code, "200", "{body}");
    assert!(body.contains("\"kind\":\"Table\"") && body.contains("kube-system"), "{body}");
    // Those who only know the address, and pages of others that send what the browser sends.
    assert_eq!(fetch(&namespaces, &[]).0, "401");
    let foreign = "Sec-Fetch-Site: cross-site";
    assert_eq!(fetch(&namespaces, &["-H", &key, "-H", foreign]).0, "403");
    assert_eq!(fetch(&namespaces, &["-H", &key, "-H", "Host: evil.example"]).0, "421");
    // What is written as YAML, and what is refused, goes both ways as it is.
    let maps = format!("{address}/api/v1/namespaces/default/configmaps");
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: seen}\n";
    let yaml = ["-H", &key, "-H", "Content-Type: application/yaml", "-d", map];
    assert_eq!(fetch(&maps, &yaml).0, "201");
    let (code, body) = fetch(&maps, &yaml);
    assert!(code == "409" && body.contains("AlreadyExists"), "{code} {body}");
    // A watch is a stream: what comes first is here although the answer has not ended.
    let watch = format!("{maps}?watch=1&resourceVersion=0&timeoutSeconds=1");
    let (code, events) = fetch(&watch, &["-N", "-H", &key]);
    assert!(code == "200" && events.contains("\"type\":\"ADDED\""), "{code} {events}");
}
