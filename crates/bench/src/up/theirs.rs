//! The same cluster of upstream's programs: etcd, API server, controller manager, scheduler, kubelet and
//! proxy, with the keys of a `skiff up` that made them and went away.
//!
//! Its kubelet runs on our container runtime with the reference CNI plugins, so that what differs is
//! Kubernetes alone. There is no DNS server: this cluster is given a head start.
use super::{Bed, places};
use crate::report::Report;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{self, ADDRESS, within};

/// What nobody waits for any longer.
const PATIENCE: Duration = Duration::from_secs(120);
const NODE: &str = "bench";

/// The first node's share of pods' addresses.
const CNI: &str = r#"{ "cniVersion": "0.4.0", "name": "bench", "plugins": [
  { "type": "ptp", "ipMasq": true, "ipam": { "type": "host-local", "subnet": "10.244.0.0/24",
    "routes": [{ "dst": "0.0.0.0/0" }] } } ] }
"#;

/// Starts all of them from the folder of programs at once, as `skiff up` starts its own.
pub fn start(skiff: &Path, programs: &Path, folder: &Path, report: &mut Report) -> Bed {
    let mut bed = Bed {
        name: "upstream's",
        skiff: skiff.to_owned(),
        folder: folder.to_owned(),
        network: network::machine(),
        processes: Vec::new(),
    };
    make_keys(&bed);
    let group = super::cgroup_root(folder);
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        if hierarchy.path().is_dir() {
            let _ = std::fs::create_dir_all(hierarchy.path().join(group.trim_start_matches('/')));
        }
    }
    let cni = folder.join("cni");
    std::fs::create_dir_all(&cni).expect("a folder");
    std::fs::write(cni.join("10-ptp.conflist"), CNI).expect("a file is written");
    std::fs::write(folder.join("kubelet.yaml"), kubelet_configuration(folder)).expect("a file");
    let begun = Instant::now();
    let mut runtime = within(Some(&bed.network), skiff);
    runtime.arg("cri").args(arguments(folder, RUNTIME));
    bed.processes.push(listening(&mut runtime));
    for (name, given) in PROGRAMS {
        let mut command = within(Some(&bed.network), &programs.join(name));
        command.args(arguments(folder, given));
        bed.processes.push(spawn(&mut command, folder, name));
        if *name == "kube-apiserver" {
            // The others give up, or wait long before they ask again.
            until(&bed, &["get", "--raw", "/readyz"], "ok");
            let took = begun.elapsed().as_secs_f64() * 1e3;
            report.row("apiserver ready: upstream's", &[("ms", took)]);
        }
    }
    until(&bed, &["get", "nodes", "-o", NODES_READY], "Ready=True -");
    report.row("node ready: upstream's", &[("ms", begun.elapsed().as_secs_f64() * 1e3)]);
    until(&bed, &["get", "serviceaccount", "default", "-o", "name"], "serviceaccount/default");
    report.row("all ready: upstream's", &[("ms", begun.elapsed().as_secs_f64() * 1e3)]);
    bed
}

/// The last condition of a node is its readiness; then its taints, if it has any.
const NODES_READY: &str = "jsonpath={range .items[*]}{.status.conditions[-1].type}=\
                           {.status.conditions[-1].status} -{.spec.taints}{end}";

/// `@` is the folder, `%` the address.
const RUNTIME: &[&str] = &[
    "--listen=unix://@/run/cri.sock",
    "--root=@/data/runtime",
    "--state=@/run",
    "--cgroup-root=&",
    "--cni-conf-dir=@/cni",
];

#[rustfmt::skip]
const PROGRAMS: &[(&str, &[&str])] = &[
    ("etcd", &[
        "--data-dir=@/etcd", "--listen-client-urls=http://127.0.0.1:2379", "--log-level=error",
        "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380",
    ]),
    ("kube-apiserver", &[
        "--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443", "--advertise-address=%",
        "--tls-cert-file=@/data/pki/apiserver.crt", "--tls-private-key-file=@/data/pki/apiserver.key",
        "--client-ca-file=@/data/pki/ca.crt", "--service-account-key-file=@/data/pki/sa.pub",
        "--service-account-signing-key-file=@/data/pki/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/12", "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
    ]),
    ("kube-controller-manager", &[
        "--kubeconfig=@/data/controller-manager.conf", "--root-ca-file=@/data/pki/ca.crt",
        "--service-account-private-key-file=@/data/pki/sa.key", "--use-service-account-credentials",
        "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--leader-elect=false",
    ]),
    ("kube-scheduler", &["--kubeconfig=@/data/scheduler.conf", "--leader-elect=false"]),
    ("kubelet", &[
        "--kubeconfig=@/data/kubelet.conf", "--config=@/kubelet.yaml", "--root-dir=@/kubelet",
        "--hostname-override=bench", "--node-ip=%",
    ]),
    ("kube-proxy", &[
        "--kubeconfig=@/data/proxy.conf", "--proxy-mode=nftables", "--hostname-override=bench",
        "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
    ]),
];

fn arguments(folder: &Path, given: &[&str]) -> Vec<String> {
    let (here, group) = (folder.display().to_string(), super::cgroup_root(folder));
    let fill = |text: &&str| {
        text.replace('@', &here).replace('%', &ADDRESS.to_string()).replace('&', &group)
    };
    given.iter().map(fill).collect()
}

fn kubelet_configuration(folder: &Path) -> String {
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                authentication: { anonymous: { enabled: false }, x509: { clientCAFile: @/data/pki/ca.crt } }\n\
                containerRuntimeEndpoint: unix://@/run/cri.sock\nfailCgroupV1: false\n\
                failSwapOn: false\ncgroupDriver: cgroupfs\ncgroupRoot: &\npodLogsDir: @/logs\n\
                enforceNodeAllocatable: [none]\nevictionHard: { memory.available: 100Mi }\n\
                imageGCHighThresholdPercent: 100\n";
    arguments(folder, &[text]).concat()
}

/// A server of ours that is asked for nothing but what it makes when it begins.
fn make_keys(bed: &Bed) {
    let mut server = within(Some(&bed.network), &bed.skiff);
    server.args(["up", "--disable", "*", "--node-name", NODE]).args(places(&bed.folder));
    let mut server = listening(server.stderr(Stdio::null()));
    let _ = server.kill();
    let _ = server.wait();
}

/// Starts what says a line when it is ready.
fn listening(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("skiff starts");
    let output = child.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut String::new()).expect("skiff speaks");
    child
}

fn spawn(command: &mut Command, folder: &Path, name: &str) -> Child {
    let log = File::create(folder.join(format!("{name}.log"))).expect("a log");
    let other = log.try_clone().expect("a log");
    command.stdout(other).stderr(log).spawn().expect("upstream's program is in the folder")
}

fn until(bed: &Bed, question: &[&str], answer: &str) {
    let begun = Instant::now();
    loop {
        let said = bed.kubectl(question).stderr(Stdio::null()).output().expect("kubectl runs");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        if said.trim() == answer {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{question:?} says {said:?}, not {answer:?}");
    }
}
