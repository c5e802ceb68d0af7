//! `skiff up`: a whole cluster, as its users have it.
mod coming_and_going;
mod demo;
mod encrypted;
mod families;
mod foreign_network;
mod ingress;
mod machines;
mod policy;
mod rootless;
mod status;
mod storage;
mod workloads;

use crate::cluster::{Cluster, places};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::network::{Held, within};

/// What is on the machine because of a cluster.
fn traces(cluster: &Cluster) -> BTreeSet<String> {
    traces_in(&cluster.folder, cluster.network.as_ref().expect("a network of its own"))
}

/// What is on the machine because of clusters in a folder and a network: processes, mounts, control
/// groups, files, links, tables of packet rules and sockets that are listened on.
fn traces_in(place: &TempDir, network: &Held) -> BTreeSet<String> {
    let folder = place.path().display().to_string();
    let name = place.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
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
    files(place.path(), &mut found);
    let links = netlink::namespace::within(&network.path, || {
        let mut socket = netlink::Socket::open(netlink::Family::Route)?;
        socket.links()
    });
    let links = links.expect("entered").expect("links");
    found.extend(links.into_iter().map(|link| format!("link {}", link.name)));
    let mut nft = within(Some(network), &testkit::tools::program("nft", "nftables"));
    let tables = nft.args(["list", "tables"]).output().expect("nft runs").stdout;
    found.extend(String::from_utf8_lossy(&tables).lines().map(str::to_owned));
    found.extend(listeners(network));
    found
}

/// The addresses that somebody listens on in a network, as the kernel writes them.
fn listeners(network: &Held) -> Vec<String> {
    const LISTENS: &str = "0A";
    let read = |kind: &str| {
        let path = format!("/proc/thread-self/net/{kind}");
        fs::read_to_string(path).unwrap_or_default()
    };
    let read = || ["tcp", "tcp6"].map(read).concat();
    let sockets = netlink::namespace::within(&network.path, read).expect("entered");
    let columns = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = columns.filter(|columns| columns.get(3) == Some(&LISTENS));
    listening.map(|columns| format!("listener {}", columns[1])).collect()
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

/// The processes of a cluster's pods: those in its control groups.
fn processes(cluster: &Cluster) -> BTreeSet<String> {
    fn members(group: &Path, found: &mut BTreeSet<String>) {
        let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        found.extend(processes.lines().map(str::to_owned));
        for entry in fs::read_dir(group).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                members(&entry.path(), found);
            }
        }
    }
    let name = cluster.folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let group = format!("skiff/{}", name.trim_start_matches('.'));
    let root = Path::new("/sys/fs/cgroup");
    let mut found = BTreeSet::new();
    members(&root.join(&group), &mut found);
    for hierarchy in fs::read_dir(root).expect("control groups").flatten() {
        members(&hierarchy.path().join(&group), &mut found);
    }
    found
}

/// How soon a cluster is ready again whose pods run on; a build without optimisation has the time.
const READY_AGAIN: Duration = Duration::from_secs(10);

#[test]
fn pods_outlive_skiff_and_reset_leaves_the_machine_as_it_was() {
    let asked = std::env::var("RESTART_PODS").ok();
    let count: usize = asked.and_then(|text| text.parse().ok()).unwrap_or(5);
    let mut cluster = Cluster::whole();
    let pods = PODS.replace("replicas: 2", &format!("replicas: {count}"));
    cluster.kubectl_with("apply -f -", &pods);
    let said = cluster.kubectl("rollout status deployment/web --timeout=180s");
    assert!(said.ends_with("successfully rolled out"), "{said}");
    let running = "get pods -o jsonpath={.items[*].status.containerStatuses[0].containerID}";
    let restarts = "get pods -o jsonpath={.items[*].status.containerStatuses[0].restartCount}";
    let (before, inside) = (cluster.kubectl(running), processes(&cluster));
    assert_eq!(before.split(' ').count(), count, "{before}");
    assert!(inside.len() >= count, "{inside:?}");
    for how in ["killed", "ended"] {
        match how {
            "killed" => cluster.stop(),
            _ => cluster.terminate(),
        }
        assert_eq!(processes(&cluster), inside, "{how}: pods run on");
        let begun = Instant::now();
        cluster.start_again();
        let took = begun.elapsed();
        println!("{how} with {count} pods: ready {} ms after the start", took.as_millis());
        assert!(took < READY_AGAIN, "{how}: it took {took:?}");
        // The kubelet itself answers, where the API may only remember what it said.
        cluster.until("get --raw /api/v1/nodes/node/proxy/healthz", "ok");
        let ready = "get node node -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        cluster.until(ready, "True");
        let all_ready = "get deployment web -o jsonpath={.status.readyReplicas}";
        cluster.until(all_ready, &count.to_string());
        assert_eq!(cluster.kubectl(running), before, "{how}: the same containers run");
        assert_eq!(cluster.kubectl(restarts), vec!["0"; count].join(" "), "{how}");
        assert_eq!(processes(&cluster), inside, "{how}: the same processes run");
    }

    cluster.stop();
    let shims = |found: &BTreeSet<String>| found.iter().filter(|t| t.contains(" shim ")).count();
    assert_eq!(shims(&traces(&cluster)), count, "pods outlive skiff");
    let reset = |yes: &[&str]| {
        let mut command = within(cluster.network.as_ref(), env!("CARGO_BIN_EXE_skiff").as_ref());
        command.arg("reset").args(yes).args(places(&cluster.folder));
        command.arg("--data-dir").arg(cluster.folder.path().join("data"));
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(reset(&[]).ends_with("Nothing was removed yet: add --yes.\n"));
    assert_eq!(shims(&traces(&cluster)), count, "only listed");
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
