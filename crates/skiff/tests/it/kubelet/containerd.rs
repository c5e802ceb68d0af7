//! Another runtime in the place of ours: Debian's containerd, over its CRI socket.
use crate::apiserver::Running;
use crate::cluster::Cluster;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{self, ADDRESS, within};

/// A containerd with its own folders, in a cluster's network; with what it runs it goes.
struct Containerd {
    folder: PathBuf,
    process: Running,
}

impl Containerd {
    fn start(cluster: &Cluster) -> Containerd {
        let folder = cluster.folder.path().join("containerd");
        std::fs::create_dir_all(folder.join("cni")).expect("a folder");
        let at = |name: &str| folder.join(name).display().to_string();
        testkit::tools::program("runc", "runc");
        let plugins = testkit::tools::program("/usr/lib/cni/ptp", "containernetworking-plugins");
        let plugins = plugins.parent().expect("a folder").display().to_string();
        let network = format!(
            r#"{{ "cniVersion": "0.4.0", "name": "test", "plugins": [{{ "type": "ptp", "ipam": {{
                "type": "host-local", "subnet": "10.88.0.0/24", "dataDir": "{}" }} }}] }}"#,
            at("addresses")
        );
        std::fs::write(folder.join("cni/10-test.conflist"), network).expect("a file");
        let cri = r#"plugins."io.containerd.grpc.v1.cri""#;
        // Without the right to do so, nobody can be made less likely to be killed than we are.
        let text = format!(
            "version = 2\nroot = \"{}\"\nstate = \"{}\"\noom_score = 0\n\
             [grpc]\naddress = \"{}\"\n[ttrpc]\naddress = \"{}\"\n\
             [{cri}]\nsandbox_image = \"localhost/pause:1\"\nrestrict_oom_score_adj = true\n\
             disable_apparmor = true\n\
             [{cri}.cni]\nbin_dir = \"{plugins}\"\nconf_dir = \"{}\"\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{}\"\n",
            at("root"),
            at("state"),
            at("sock"),
            at("ttrpc"),
            at("cni"),
            at("opt"),
        );
        std::fs::write(folder.join("config.toml"), text).expect("a file");
        let program = testkit::tools::program("containerd", "containerd");
        let mut command = within(cluster.network.as_ref(), &program);
        command.arg("--config").arg(folder.join("config.toml")).stderr(Stdio::null());
        let process = Running(command.spawn().expect("it starts"));
        let containerd = Containerd { folder, process };
        until("containerd answers", || containerd.ctr("version").is_some());
        let archive = containerd.folder.join("image.tar");
        testkit::image::write_pause(&archive, "localhost/pause:1").expect("an archive");
        containerd.ctr(&format!("images import {}", archive.display())).expect("it is imported");
        testkit::image::write_busybox(&archive, "localhost/busybox:1", &[]).expect("an archive");
        containerd.ctr(&format!("images import {}", archive.display())).expect("it is imported");
        containerd
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("sock")
    }

    /// What its own client says; nothing, if it fails.
    fn ctr(&self, arguments: &str) -> Option<String> {
        let mut ctr = Command::new(testkit::tools::program("ctr", "containerd"));
        ctr.arg("--address").arg(self.socket()).args(["--namespace", "k8s.io"]);
        let output = ctr.args(arguments.split_whitespace()).output().expect("it runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // After a failed test everything is still there.
        for task in self.ctr("tasks ls -q").unwrap_or_default().lines() {
            let _ = self.ctr(&format!("tasks delete --force {task}"));
        }
        let _ = self.process.0.kill();
        let _ = self.process.0.wait();
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        let here = self.folder.display().to_string();
        let mounts = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for mount in mounts.filter(|mount| mount.starts_with(&here)) {
            let _ = Command::new("umount").arg("-l").arg(mount).status();
        }
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
    }
}

/// The same of what kubectl says; if it does not come to that, what it says of pods.
fn until_said(cluster: &Cluster, arguments: &str, expected: &str) {
    let begun = Instant::now();
    while cluster.kubectl(arguments) != expected {
        let is_late = begun.elapsed() > Duration::from_secs(60);
        assert!(!is_late, "{arguments}\n{}", cluster.kubectl("describe pods"));
    }
}

fn kubelet(cluster: &Cluster, socket: &Path) -> Running {
    let at = |name: &str| cluster.folder.path().join(name);
    let pki = |name: &str| at("data/pki").join(name);
    let mut command = within(cluster.network.as_ref(), env!("CARGO_BIN_EXE_skiff").as_ref());
    command.args(["kubelet", "--hostname-override=node", "--pod-network=false"]);
    command.arg(format!("--node-ip={ADDRESS}"));
    command.arg("--eviction-hard=memory.available<1Mi");
    command.arg("--kubeconfig").arg(at("data/kubelet.conf"));
    command.arg("--tls-cert-file").arg(pki("kubelet.crt"));
    command.arg("--tls-private-key-file").arg(pki("kubelet.key"));
    command.arg("--client-ca-file").arg(pki("ca.crt"));
    command.arg("--root-dir").arg(at("kubelet")).arg("--pod-logs-dir").arg(at("logs"));
    let name = cluster.folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    command.arg(format!("--cgroup-root=/skiff/{}", name.trim_start_matches('.')));
    command.arg(format!("--container-runtime-endpoint=unix://{}", socket.display()));
    Running(command.spawn().expect("it starts"))
}

const PODS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: told}
data: {word: one}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 0
  initContainers:
  - name: first
    image: localhost/busybox:1
    command: [sh, -c, "cat /told/word > /shared/word"]
    volumeMounts: [{name: shared, mountPath: /shared}, {name: told, mountPath: /told}]
  - name: beside
    image: localhost/busybox:1
    restartPolicy: Always
    command: [sleep, "1000000"]
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "cat /shared/word; echo; sleep 1000000"]
    resources: {limits: {cpu: 200m, memory: 50Mi}}
    readinessProbe: {exec: {command: [test, -f, /shared/word]}, periodSeconds: 1}
    volumeMounts: [{name: shared, mountPath: /shared}]
  volumes:
  - {name: shared, emptyDir: {medium: Memory}}
  - {name: told, configMap: {name: told}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: a, image: "localhost/busybox:1", command: [echo, done]}]
"#;

#[test]
fn pods_run_on_containerd() {
    let without = "--disable=kubelet,proxy,dns,network-policy,servicelb,metrics-server";
    let cluster = Cluster::whole_on(network::machine(), &[without]);
    let containerd = Containerd::start(&cluster);
    let mut node = kubelet(&cluster, &containerd.socket());
    let ready = "get node node -o jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    until_said(&cluster, ready, "True");
    let runtime = "get node node -o jsonpath={.status.nodeInfo.containerRuntimeVersion}";
    assert!(cluster.kubectl(runtime).starts_with("containerd://"), "{}", cluster.kubectl(runtime));
    cluster.kubectl_with("apply -f -", PODS);
    until_said(&cluster, "get pod web -o jsonpath={.status.containerStatuses[0].ready}", "true");
    until_said(&cluster, "get job once -o jsonpath={.status.succeeded}", "1");
    assert_eq!(cluster.kubectl("logs web -c main"), "one");
    assert_eq!(cluster.kubectl("logs job/once"), "done");
    assert_eq!(cluster.kubectl("exec web -c main -- cat /shared/word"), "one");

    // A kubelet that was killed finds what it left.
    let running = "get pod web -o jsonpath={.status.containerStatuses[*].containerID}/{.status.initContainerStatuses[*].containerID}";
    let before = cluster.kubectl(running);
    node.0.kill().expect("a running process");
    node.0.wait().expect("a killed process");
    node = kubelet(&cluster, &containerd.socket());
    until("it answers again", || cluster.kubectl("exec web -c main -- cat /shared/word") == "one");
    assert_eq!(cluster.kubectl(running), before, "the same containers run");

    cluster.kubectl("delete pod/web job/once --timeout=60s");
    until("nothing is left", || containerd.ctr("containers ls -q").as_deref() == Some(""));
    drop(node);
}
