//! A cluster of upstream's, on its own API server and etcd, with our parts as guests.
//!
//! A part that is not named runs from our binary, alone and told by upstream's flags: what takes the other's
//! place must understand them. Keys and kubeconfigs are those that `skiff up` makes. DNS is ours, as nothing
//! of upstream's can be had without images.
use super::cluster::{Member, PATIENCE};
use super::shell::{self, failed};
use super::upstream::{API_SERVER, PARTS, Part, Place};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Where upstream's API server finds its store.
pub const ETCD: &str = "http://127.0.0.1:2379";

/// Starts everything on this machine, and waits until its node takes pods.
pub fn run(
    node: &Member,
    skiff: &Path,
    programs: &Path,
    theirs: &[&Part],
    running: &mut Vec<Child>,
) -> Result<(), String> {
    make_keys(node, skiff)?;
    let place = node.place(theirs);
    // What an earlier run has left there is not known to `skiff reset`.
    let _ = std::fs::remove_dir_all(store(&place));
    running.push(node.spawn(&programs.join("etcd"), &etcd(&place), "etcd")?);
    for part in PARTS {
        let is_theirs = theirs.iter().any(|named| named.name == part.name);
        if is_theirs && part.ours == "kubelet" {
            return Err("a cluster that is all upstream's has nothing of ours to judge".to_owned());
        }
        let mut arguments = part.arguments(&place)?;
        let program = match is_theirs {
            true => programs.join(part.name),
            false => {
                arguments.insert(0, part.ours.to_owned());
                skiff.to_owned()
            }
        };
        if !is_theirs && part.ours == "kubelet" {
            arguments.extend(embedded(&place, &node.registries()));
        }
        running.push(node.spawn(&program, &arguments, part.name)?);
        if part.name == API_SERVER {
            until_served(node, programs)?;
        }
    }
    publish_dns(node, programs, &place)?;
    running.push(node.spawn(skiff, &dns(&place), "dns")?);
    node.until_ready(programs)
}

/// A server of ours that is asked for nothing but what it makes when it begins.
fn make_keys(node: &Member, skiff: &Path) -> Result<(), String> {
    let mut command = node.within(skiff);
    command.args(["up", "--disable", "*"]).args(node.places()).args(node.machine());
    let mut server = node.start(command, "skiff is ready")?;
    let ended = server.kill().and_then(|()| server.wait());
    ended.map(drop).map_err(|error| format!("the server that makes keys does not end: {error}"))
}

fn store(place: &Place) -> PathBuf {
    place.folder.join("etcd")
}

fn etcd(place: &Place) -> Vec<String> {
    vec![
        format!("--data-dir={}", store(place).display()),
        format!("--listen-client-urls={ETCD}"),
        format!("--advertise-client-urls={ETCD}"),
        "--log-level=error".to_owned(),
    ]
}

/// What our kubelet is told that upstream's is not: its runtime and the pod network are in its process.
fn embedded(place: &Place, registries: &Path) -> Vec<String> {
    vec![
        format!("--root={}", place.data("runtime")),
        format!("--state={}", place.state),
        format!("--cgroup-root={}", place.cgroup_root),
        format!("--registries={}", registries.display()),
        // None is there: pods have the network of our own.
        format!("--cni-conf-dir={}", place.cni().display()),
    ]
}

fn dns(place: &Place) -> Vec<String> {
    vec![
        "dns".to_owned(),
        format!("--kubeconfig={}", place.data("kubeconfig")),
        format!("--listen={}:53", place.address),
    ]
}

fn until_served(node: &Member, programs: &Path) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let said = shell::output(kubectl(node, programs).args(["get", "--raw", "/readyz"]));
        match said {
            Ok(_) => return Ok(()),
            Err(problem) if begun.elapsed() > PATIENCE => {
                return Err(format!("{API_SERVER} does not answer, see its log: {problem}"));
            }
            Err(_) => {}
        }
    }
}

/// The service by which pods find DNS leads to this machine.
fn publish_dns(node: &Member, programs: &Path, place: &Place) -> Result<(), String> {
    let ports = r#"{ "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53, "protocol": "TCP" }"#;
    let text = format!(
        r#"{{ "apiVersion": "v1", "kind": "List", "items": [
  {{ "apiVersion": "v1", "kind": "Service", "metadata": {{ "name": "kube-dns", "namespace": "kube-system" }},
    "spec": {{ "clusterIP": "10.96.0.10", "ports": [{ports}] }} }},
  {{ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
    "metadata": {{ "name": "kube-dns", "namespace": "kube-system",
      "labels": {{ "kubernetes.io/service-name": "kube-dns" }} }},
    "endpoints": [{{ "addresses": ["{}"] }}], "ports": [{ports}] }} ] }}"#,
        place.address
    );
    let mut command = kubectl(node, programs);
    command.args(["create", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().map_err(failed("start", &programs.join("kubectl")))?;
    let mut input = child.stdin.take().expect("asked for a pipe");
    input.write_all(text.as_bytes()).map_err(|error| format!("kubectl: {error}"))?;
    drop(input);
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        status => Err(format!("the service of DNS was not made: {status:?}")),
    }
}

fn kubectl(node: &Member, programs: &Path) -> Command {
    let mut command = node.within(&programs.join("kubectl"));
    command.arg("--kubeconfig").arg(node.folder.join("data/kubeconfig"));
    command
}
