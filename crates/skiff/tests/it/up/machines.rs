//! Several machines on one link: more nodes, and more servers.
use crate::apiserver::Running;
use crate::cluster::{Cluster, places};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::network::{Held, Machines, add_private, address_of, machines, within};

/// A machine that has joined a cluster; it ends, and what it made goes, when this does.
pub(super) struct Agent {
    pub(super) folder: TempDir,
    network: Held,
    process: Child,
}

impl Agent {
    /// By a token without the CA's hash.
    fn join(cluster: &Cluster, network: Held, server: u8) -> Agent {
        Agent::join_by(cluster, network, server, &["--short"], &[])
    }

    pub(super) fn join_with(cluster: &Cluster, network: Held, server: u8, flags: &[&str]) -> Agent {
        Agent::join_by(cluster, network, server, &[], flags)
    }

    fn join_by(
        cluster: &Cluster,
        network: Held,
        server: u8,
        form: &[&str],
        flags: &[&str],
    ) -> Agent {
        let folder = TempDir::new().expect("a folder");
        let mut token = within(cluster.network.as_ref(), env!("CARGO_BIN_EXE_skiff").as_ref());
        token.args(["token", "create"]).args(form);
        token.arg("--data-dir").arg(cluster.folder.path().join("data"));
        token.arg("--kubeconfig").arg(cluster.kubeconfig());
        let token = token.output().expect("it runs").stdout;
        let token = String::from_utf8(token).expect("text");
        let flags = [&["--token", token.trim()], flags].concat();
        let process = start(&folder, &network, server, &flags);
        Agent { folder, network, process }
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().expect("a running process");
        self.process.wait().expect("a killed process");
    }

    /// It has joined before: the token is not needed.
    pub(super) fn start_again(&mut self, server: u8, flags: &[&str]) {
        self.process = start(&self.folder, &self.network, server, flags);
    }
}

fn start(folder: &TempDir, network: &Held, server: u8, more: &[&str]) -> Child {
    let mut agent = within(Some(network), env!("CARGO_BIN_EXE_skiff").as_ref());
    agent.args(["agent", "--node-name=other", "--server"]);
    agent.arg(format!("https://{}:6443", address_of(server))).args(more).args(places(folder));
    agent.arg("--data-dir").arg(folder.path().join("data"));
    let mut process = agent.stdout(Stdio::piped()).spawn().expect("skiff starts");
    let mut line = String::new();
    let output = process.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("skiff speaks");
    assert!(line.starts_with("this machine is node other of "), "{line}");
    process
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let mut reset = within(Some(&self.network), env!("CARGO_BIN_EXE_skiff").as_ref());
        reset.args(["reset", "--yes"]).args(places(&self.folder));
        let _ = reset.arg("--data-dir").arg(self.folder.path().join("data")).output();
    }
}

pub(super) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(90), "{what}");
    }
}

/// One pod on each machine that takes pods.
pub(super) const SPREAD: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: demo, image: localhost/skiff/demo}]
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        nodeTaintsPolicy: Honor
        labelSelector: {matchLabels: {app: web}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec: {nodeName: node, containers: [{name: demo, image: localhost/skiff/demo}]}
"#;

pub(super) const READY: &str = "get deployment web -o jsonpath={.status.readyReplicas}";
const ON: &str = "get pods -l app=web --field-selector status.phase=Running \
                  -o jsonpath={.items[*].spec.nodeName}";

pub(super) fn nodes_of_pods(cluster: &Cluster) -> Vec<String> {
    let mut all: Vec<String> = cluster.kubectl(ON).split(' ').map(str::to_owned).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_machine_joins_dies_comes_back_and_is_drained() {
    let Machines { mut all, switch: _switch } = machines(2);
    let other = all.pop().expect("two machines");
    let cluster = Cluster::whole_on(all.remove(0), &[]);
    let mut agent = Agent::join(&cluster, other, 0);
    let is_ready = "get node other -o jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    until("the node is ready", || cluster.kubectl(is_ready) == "True");
    cluster.kubectl_with("apply -f -", SPREAD);
    until("a pod on each", || nodes_of_pods(&cluster) == ["node", "other"]);
    cluster.until(READY, "2");
    cluster.kubectl("wait --for=condition=Ready pod/client --timeout=60s");
    let fetch = || cluster.kubectl("exec client -- /skiff demo --get http://web/hostname");
    let answered_by =
        |count: usize| (0..12).map(|_| fetch()).collect::<BTreeSet<_>>().len() >= count;
    until("pods on both machines answer", || answered_by(2));

    // Without its agent the pods there run on, and are found; with it again they are the same.
    let running =
        "get pods -l app=web -o jsonpath={.items[*].status.containerStatuses[0].containerID}";
    let before = cluster.kubectl(running);
    agent.kill();
    until("the pod over there answers", || answered_by(2));
    agent.start_again(0, &[]);
    cluster.kubectl_args(&["label", "node", "other", "seen=yes"]);
    let logs = "logs -l app=web --prefix";
    until("its kubelet answers", || !cluster.kubectl(logs).contains("error"));
    assert_eq!(cluster.kubectl(running), before, "the same containers run");

    // Its pods go where there is room, and come again when it may take them.
    let drained = cluster.kubectl("drain other --ignore-daemonsets --timeout=60s");
    assert!(drained.contains("drained"), "{drained}");
    until("both are here", || nodes_of_pods(&cluster) == ["node", "node"]);
    cluster.kubectl("uncordon other");
    cluster.kubectl("scale deployment web --replicas=3");
    until("one is there again", || nodes_of_pods(&cluster) == ["node", "node", "other"]);
}

/// One member of an etcd cluster of three, on the machine of that number.
fn etcd(folder: &TempDir, network: &Held, number: u8) -> Running {
    let url = |number: u8, port: u16| format!("http://{}:{port}", address_of(number));
    let all: Vec<String> = (0..3).map(|at| format!("e{at}={}", url(at, 2380))).collect();
    let mut etcd = within(Some(network), &testkit::tools::program("etcd", "etcd-server"));
    etcd.args(["--name", &format!("e{number}"), "--initial-cluster", &all.join(",")]);
    for flag in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
        etcd.args([flag, &url(number, 2380)]);
    }
    for flag in ["--listen-client-urls", "--advertise-client-urls"] {
        etcd.args([flag, &url(number, 2379)]);
    }
    etcd.arg("--data-dir").arg(folder.path().join(format!("etcd-{number}")));
    Running(etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("etcd starts"))
}

/// Two servers and three members of etcd; a whole machine dies of them, with the server that the node
/// knows and that leads.
#[test]
fn a_server_dies_and_nothing_that_was_acknowledged_is_lost() {
    let Machines { all, switch: _switch } = machines(4);
    let folder = TempDir::new().expect("a folder");
    let mut members: Vec<Running> =
        all[..3].iter().zip(0..).map(|(network, at)| etcd(&folder, network, at)).collect();
    let stores: Vec<String> = (0..3).map(|at| format!("http://{}:2379", address_of(at))).collect();
    let stores = format!("--etcd-servers={}", stores.join(","));
    let mut all = all.into_iter();
    let mut next = || all.next().expect("four machines");
    let mut first = Cluster::whole_on(next(), &[&stores]);
    let token = std::fs::read_to_string(first.folder.path().join("data/server-token"));
    let token = format!("--token={}", token.expect("a token").trim());
    let second = Cluster::whole_on(next(), &[&stores, &token, "--node-name=second"]);
    let _third = next();
    let _agent = Agent::join(&first, next(), 0);
    let is_ready = "get nodes -o jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}";
    until("three nodes", || second.kubectl(is_ready) == "True True True");

    let (is_over, mut acknowledged) = (AtomicBool::new(false), Vec::new());
    std::thread::scope(|scope| {
        let write = || {
            let mut acknowledged = Vec::new();
            for number in 0.. {
                if is_over.load(Relaxed) {
                    break;
                }
                let name = format!("c{number}");
                let said =
                    second.kubectl(&format!("create configmap {name} --request-timeout=10s"));
                acknowledged.extend(said.contains("created").then_some(name));
            }
            acknowledged
        };
        let writer = scope.spawn(write);
        first.stop();
        drop(members.remove(0));
        // Loops, scheduler, and the node that had joined the one that is gone.
        let pods = "create deployment after --image=localhost/skiff/demo --replicas=2";
        until("the other takes it", || second.kubectl(pods).contains("created"));
        let on_it = r#"--patch={"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"other"}}}}}"#;
        until("it is changed", || {
            second.kubectl_args(&["patch", "deployment", "after", on_it]).contains("patched")
        });
        let rolled =
            "get deployment after -o jsonpath={.status.updatedReplicas}/{.status.readyReplicas}";
        until("pods on the node", || second.kubectl(rolled) == "2/2");
        is_over.store(true, Relaxed);
        acknowledged = writer.join().expect("it ends");
    });
    let found = second.kubectl("get configmaps -o name");
    let lost: Vec<_> =
        acknowledged.iter().filter(|name| !found.contains(&format!("configmap/{name}"))).collect();
    assert!(lost.is_empty() && acknowledged.len() > 5, "{lost:?} of {}", acknowledged.len());
    // And it comes back.
    let network = first.network.as_ref().expect("a network of its own");
    members.push(etcd(&folder, network, 0));
    first.start_again();
    until("the first serves", || first.kubectl("get configmaps -o name").contains("configmap/"));
}

/// As behind a router: it reaches the server, and nobody reaches it.
#[test]
fn a_node_that_cannot_be_dialled_is_reached_through_its_own_tunnel() {
    let Machines { mut all, switch: _switch } = machines(2);
    let other = all.pop().expect("two machines");
    add_private(&other, std::net::Ipv4Addr::new(203, 0, 113, 7));
    let cluster = Cluster::whole_on(all.remove(0), &[]);
    let mut agent = Agent::join_with(&cluster, other, 0, &["--node-ip=203.0.113.7"]);
    let is_ready = "get node other -o jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    until("the node is ready", || cluster.kubectl(is_ready) == "True");
    let address = "get node other -o jsonpath={.status.addresses[?(@.type=='InternalIP')].address}";
    assert_eq!(cluster.kubectl(address), "203.0.113.7");
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "there"}, "spec": {"nodeName": "other",
        "terminationGracePeriodSeconds": 1, "containers": [{"name": "demo", "image": "localhost/skiff/demo"}]}}"#;
    cluster.kubectl_with("create -f -", pod);
    cluster.kubectl("wait --for=condition=Ready pod/there --timeout=60s");
    let version = || cluster.kubectl("exec there -- /skiff --version");
    until("commands run there", || version().starts_with("skiff "));
    assert!(!cluster.kubectl("logs there").contains("error"));
    until("what it uses is known", || {
        let used = cluster.kubectl("get --raw /apis/metrics.k8s.io/v1beta1/nodes/other");
        used.contains("\"cpu\"") && used.contains("\"memory\"")
    });
    // Whoever comes back opens it again.
    agent.kill();
    agent.start_again(0, &[]);
    until("commands run there again", || version().starts_with("skiff "));
    // Nobody else opens a way to a node.
    let told = cluster.kubectl("get --raw /skiff/tunnel");
    assert!(told.contains("a tunnel is opened by a node, to itself"), "{told}");
}
