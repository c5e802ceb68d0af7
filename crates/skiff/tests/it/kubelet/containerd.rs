//! The same kubelet on Debian's containerd, in folders of its own.
use super::Node;
use crate::apiserver::Running;
use crate::cluster::Cluster;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::tools::program;

/// A containerd without a network: its pods have the host's.
struct Containerd {
    socket: PathBuf,
    _process: Running,
}

/// Our own, which containerd has to be able to read.
const PAUSE: &str = "localhost/skiff/pause:latest";

impl Containerd {
    fn start(cluster: &Cluster) -> Containerd {
        let folder = cluster.folder.path();
        let containerd = program("containerd", "containerd");
        let at = |name: &str| folder.join("containerd").join(name);
        fs::create_dir_all(at("net.d")).expect("a folder");
        let network = r#"{"cniVersion":"0.4.0","name":"lo","plugins":[{"type":"loopback"}]}"#;
        fs::write(at("net.d/10-lo.conflist"), network).expect("a file");
        let socket = at("containerd.sock");
        let text = format!(
            "version = 2\nroot = {root:?}\nstate = {state:?}\n\
             [grpc]\naddress = {socket:?}\n[ttrpc]\naddress = {ttrpc:?}\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = {PAUSE:?}\n\
             stream_server_port = \"0\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n\
             conf_dir = {net:?}\nbin_dir = \"/usr/lib/cni\"\n",
            root = at("root"),
            state = at("state"),
            ttrpc = at("ttrpc.sock"),
            net = at("net.d"),
        );
        fs::write(at("config.toml"), text).expect("a file");
        let process = Command::new(containerd).arg("--config").arg(at("config.toml")).spawn();
        let process = Running(process.expect("it starts"));
        let containerd = Containerd { socket, _process: process };
        let archive = folder.join("image.tar");
        let mut export = Command::new(env!("CARGO_BIN_EXE_skiff"));
        export.arg("image").args(super::places(cluster)).args(["export", PAUSE]).arg(&archive);
        let output = export.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        containerd.import(&archive);
        testkit::image::write_busybox(&archive, "localhost/busybox:1", &[]).expect("an archive");
        containerd.import(&archive);
        containerd
    }

    /// Tries until containerd answers.
    fn import(&self, archive: &Path) {
        let begun = std::time::Instant::now();
        loop {
            let mut ctr = Command::new(program("ctr", "containerd"));
            ctr.arg("--address").arg(&self.socket).args(["-n", "k8s.io", "images", "import"]);
            let output = ctr.arg(archive).output().expect("it runs");
            if output.status.success() {
                return;
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(begun.elapsed().as_secs() < 30, "{said}");
        }
    }
}

#[test]
fn pods_run_on_containerd() {
    let cluster = Cluster::start().with_default_account();
    let containerd = Containerd::start(&cluster);
    let endpoint = format!("--container-runtime-endpoint=unix://{}", containerd.socket.display());
    let flags: &'static [&'static str] = Box::leak(Box::new([&*Box::leak(endpoint.into())]));
    let _node = Node::start_with(&cluster, flags).until_ready();
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" }, "spec": {
        "nodeName": "node", "hostNetwork": true, "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": "c", "image": "localhost/busybox:1", "imagePullPolicy": "Never",
            "command": ["sh", "-c", "echo hello; exec sleep 1000"],
            "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }],
        "volumes": [{ "name": "v", "emptyDir": {} }],
    } });
    assert_eq!(cluster.kubectl_with("create -f -", &pod.to_string()), "pod/web created");
    cluster.until("get pod web -o jsonpath={.status.phase}", "Running");
    let id = cluster.kubectl("get pod web -o jsonpath={.status.containerStatuses[0].containerID}");
    assert!(id.starts_with("containerd://"), "{id}");
    cluster.until("logs web", "hello");
    assert_eq!(cluster.kubectl("exec web -- echo inside"), "inside");
    cluster.kubectl("delete pod web --wait=false");
    cluster.until("get pods -o name", "");
}
