//! `skiff up`: a whole cluster, as its users have it.
mod demo;
mod encrypted;
mod families;
mod foreign_network;
mod machines;
mod policy;
mod rootless;
mod workloads;

use crate::cluster::{Cluster, places};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use testkit::network::within;

/// What is on the machine because of a cluster: processes, mounts, control groups, files, links and
/// tables of packet rules.
fn traces(cluster: &Cluster) -> BTreeSet<String> {
    let folder = cluster.folder.path().display().to_string();
    let name = cluster.folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").expect("processes").flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&folder) {
            found.insert(format!("process {line}"));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let ours = mounts.lines().filter(|line| line.contains(&folder));
    found.extend(ours.map(|line| format!("mount {line}")));
    for hierarchy in fs::read_dir("/sys/fs/cgroup").expect("control groups").flatten() {
        let group = hierarchy.path().join("skiff").join(name.trim_start_matches('.'));
        if group.exists() {
            found.insert(format!("cgroup {}", group.display()));
        }
    }
    files(cluster.folder.path(), &mut found);
    let network = cluster.network.as_ref().expect("a network of its own");
    let links = netlink::namespace::within(&network.path, || {
        let mut socket = netlink::Socket::open(netlink::Family::Route)?;
        socket.links()
    });
    let links = links.expect("entered").expect("links");
    found.extend(links.into_iter().map(|link| format!("link {}", link.name)));
    found
}

fn files(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found.insert(format!("file {}", entry.path().display()));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files(&entry.path(), found);
        }
    }
}

const PODS: &str = r#"
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
        volumeMounts: [{name: memory, mountPath: /memory}]
      volumes: [{name: memory, emptyDir: {medium: Memory}}]
"#;

#[test]
fn pods_outlive_skiff_and_reset_leaves_the_machine_as_it_was() {
    let mut cluster = Cluster::whole();
    cluster.kubectl_with("apply -f -", PODS);
    let ready = "get deployment web -o jsonpath={.status.readyReplicas}";
    cluster.until(ready, "2");
    let running = "get pods -o jsonpath={.items[*].status.containerStatuses[0].containerID}";
    let before = cluster.kubectl(running);
    cluster.crash_and_restart();
    cluster.until(ready, "2");
    assert_eq!(cluster.kubectl(running), before, "the same containers run");
    let restarts = "get pods -o jsonpath={.items[*].status.containerStatuses[0].restartCount}";
    assert_eq!(cluster.kubectl(restarts), "0 0");

    cluster.stop();
    let shims = |found: &BTreeSet<String>| found.iter().filter(|t| t.contains(" shim ")).count();
    assert_eq!(shims(&traces(&cluster)), 2, "pods outlive skiff");
    let reset = |yes: &[&str]| {
        let mut command = within(cluster.network.as_ref(), env!("CARGO_BIN_EXE_skiff").as_ref());
        command.arg("reset").args(yes).args(places(&cluster.folder));
        command.arg("--data-dir").arg(cluster.folder.path().join("data"));
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(reset(&[]).ends_with("Nothing was removed yet: add --yes.\n"));
    assert_eq!(shims(&traces(&cluster)), 2, "only listed");
    reset(&["--yes"]);
    let kubeconfig = format!("file {}", cluster.kubeconfig().display());
    let left = traces(&cluster).into_iter().filter(|trace| {
        // kubectl's own.
        *trace != kubeconfig && !trace.contains("/.kube")
    });
    assert_eq!(left.collect::<Vec<_>>(), ["link card0", "link lo"]);
}

/// The machine gets another address: the cluster follows, and pods run on.
#[test]
fn a_machine_that_moves_keeps_its_pods() {
    use netlink::addresses::Address;
    use netlink::route::Route;
    let cluster = Cluster::whole();
    cluster.kubectl_with("apply -f -", PODS);
    let ready = "get deployment web -o jsonpath={.status.readyReplicas}";
    cluster.until(ready, "2");
    let running = "get pods -o jsonpath={.items[*].status.containerStatuses[0].containerID}";
    let before = cluster.kubectl(running);
    let network = &cluster.network.as_ref().expect("a network of its own").path;
    let moved = netlink::namespace::within(network, || -> Result<(), netlink::NetlinkError> {
        let mut socket = netlink::Socket::open(netlink::Family::Route)?;
        let link = socket.link("card0")?.expect("a card").index;
        let old = testkit::network::ADDRESS.into();
        socket.remove_address(&Address { address: old, prefix: 24, link })?;
        socket.add_address(link, "192.0.2.9".parse().expect("an address"), 24)?;
        let gateway = Some("192.0.2.1".parse().expect("an address"));
        let destination = ("0.0.0.0".parse().expect("an address"), 0);
        socket.set_route(&Route { destination, link, gateway })
    });
    moved.expect("entered").expect("moved");
    let address = "get node node -o jsonpath={.status.addresses[?(@.type=='InternalIP')].address}";
    cluster.until(address, "192.0.2.9");
    let server = "get endpointslice kubernetes -o jsonpath={.endpoints[*].addresses[*]}";
    cluster.until(server, "192.0.2.9");
    cluster.until(ready, "2");
    assert_eq!(cluster.kubectl(running), before, "the same containers run");
}
