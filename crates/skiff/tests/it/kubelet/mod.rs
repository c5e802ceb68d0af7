//! First light: a Deployment's pods are real containers, on our own parts alone.
mod containerd;
mod eviction;
mod faults;
mod hostile;
mod joining;
mod limits;
mod server;
mod users;

use crate::apiserver::Running;
use crate::cluster::Cluster;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A kubelet with folders of its own; what it made goes with it.
struct Node<'c> {
    cluster: &'c Cluster,
    process: Running,
    flags: &'static [&'static str],
}

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeName: node
      terminationGracePeriodSeconds: 1
      containers: [{name: demo, image: localhost/skiff/demo, imagePullPolicy: Never}]
"#;

/// A cgroup for this test alone.
fn places(cluster: &Cluster) -> Vec<String> {
    let at = |name: &str| cluster.folder.path().join(name).display().to_string();
    let group =
        cluster.folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let group = group.trim_start_matches('.').to_owned();
    [
        format!("--root={}", at("runtime")),
        format!("--state={}", at("run")),
        format!("--cgroup-root=/skiff/{group}"),
        format!("--cni-conf-dir={}", at("none")),
    ]
    .to_vec()
}

impl<'c> Node<'c> {
    fn start(cluster: &'c Cluster) -> Node<'c> {
        Node::start_with(cluster, &[])
    }

    fn start_with(cluster: &'c Cluster, flags: &'static [&'static str]) -> Node<'c> {
        Node { cluster, process: Node::run(cluster, flags), flags }
    }

    fn run(cluster: &Cluster, flags: &[&str]) -> Running {
        let at = |name: &str| cluster.folder.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_skiff"));
        command.args(["kubelet", "--hostname-override=node", "--port=0", "--healthz-port=0"]);
        command.args(["--node-ip=127.0.0.1", "--pod-network=false"]);
        // How full this machine's disk is is no concern of these tests.
        command.arg("--eviction-hard=memory.available<1Mi");
        command.arg("--kubeconfig").arg(cluster.kubeconfig());
        // The certificate of another server of the cluster's at this address.
        let pki = |file: &str| cluster.folder.path().join("pki").join(file);
        command.arg("--tls-cert-file").arg(pki("apiserver.crt"));
        command.arg("--tls-private-key-file").arg(pki("apiserver.key"));
        command.arg("--client-ca-file").arg(pki("ca.crt"));
        command.arg("--root-dir").arg(at("kubelet")).arg("--pod-logs-dir").arg(at("logs"));
        Running(command.args(flags).args(places(cluster)).spawn().expect("it starts"))
    }

    /// Brings in an image of busybox called `localhost/busybox`.
    fn import_busybox(&self) {
        let archive = self.cluster.folder.path().join("busybox.tar");
        testkit::image::write_busybox(&archive, "localhost/busybox:1", &[]).expect("an archive");
        let mut import = Command::new(env!("CARGO_BIN_EXE_skiff"));
        import.arg("image").args(places(self.cluster)).arg("import").arg(&archive);
        let output = import.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn until_ready(self) -> Self {
        let ready = "get node node -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        self.cluster.until(ready, "True");
        self
    }

    /// Killed without warning, and started again.
    fn crash_and_restart(&mut self) {
        self.process.0.kill().expect("a running process");
        self.process.0.wait().expect("a killed process");
        self.process = Node::run(self.cluster, self.flags);
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        let _ = self.process.0.kill();
        let _ = self.process.0.wait();
        let mut reset = Command::new(env!("CARGO_BIN_EXE_skiff"));
        let at = |name: &str| self.cluster.folder.path().join(name);
        reset.args(["reset", "--yes"]).args(&places(self.cluster)[..3]);
        reset.arg("--data-dir").arg(at("none")).arg("--kubelet-dir").arg(at("none"));
        let _ = reset.arg("--pod-logs-dir").arg(at("none")).output();
    }
}

/// Whether there is a folder, a log or a control group of a pod.
fn is_left(cluster: &Cluster, uid: &str) -> bool {
    let folder = cluster.folder.path();
    let named = |at: PathBuf| {
        let mut entries = fs::read_dir(at).into_iter().flatten().flatten();
        entries.any(|entry| entry.file_name().to_string_lossy().contains(uid))
    };
    let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let mut groups = hierarchies.map(|entry| entry.path().join("kubepods/besteffort"));
    named(folder.join("kubelet/pods")) || named(folder.join("logs")) || groups.any(named)
}

#[test]
fn a_deployment_runs_outlives_its_kubelet_and_goes() {
    let cluster = Cluster::start();
    let mut manager = Command::new(env!("CARGO_BIN_EXE_skiff"));
    manager.args(["controller-manager", "--leader-elect=false", "--kubeconfig"]);
    manager.arg(cluster.kubeconfig()).arg("--root-ca-file");
    let manager = manager.arg(cluster.folder.path().join("pki/ca.crt")).spawn();
    let manager = Running(manager.expect("it starts"));
    let mut node = Node::start(&cluster).until_ready();
    // Pods act as somebody.
    cluster.until("get serviceaccounts default -o name", "serviceaccount/default");
    assert!(cluster.kubectl_with("create -f -", DEPLOYMENT).contains("created"));
    cluster.until("get deployment web -o jsonpath={.status.availableReplicas}", "2");
    let running = "get pods -l app=web -o \
        jsonpath={range.items[*]}{.status.containerStatuses[0].containerID}{.status.containerStatuses[0].restartCount}{end}";
    let before = cluster.kubectl(running);
    assert_eq!(before.matches("skiff://").count(), 2, "{before}");
    let reasons = "get pods -l app=web -o jsonpath={.items[*].status.conditions[*].reason}";
    cluster.until(reasons, "");

    node.crash_and_restart();
    cluster.kubectl("scale deployment web --replicas=3");
    cluster.until("get deployment web -o jsonpath={.status.availableReplicas}", "3");
    let after = cluster.kubectl(running);
    assert_eq!(after.matches("skiff://").count(), 3, "{after}");
    for container in before.split("skiff://").filter(|id| !id.is_empty()) {
        assert!(after.contains(container), "{container} was not taken over: {after}");
    }

    let uids = cluster.kubectl("get pods -o jsonpath={.items[*].metadata.uid}");
    cluster.kubectl("delete deployment web");
    cluster.until("get pods -o name", "");
    let begun = std::time::Instant::now();
    while let Some(left) = uids.split(' ').find(|uid| is_left(&cluster, uid)) {
        assert!(begun.elapsed().as_secs() < 30, "something of pod {left} is left");
    }
    drop((node, manager));
}
