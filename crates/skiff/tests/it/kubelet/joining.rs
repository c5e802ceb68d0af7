//! A node that comes with nothing but a bootstrap kubeconfig, as kubeadm writes one: it asks for a
//! certificate, is known by it from then on, and comes again without the token.
use super::places;
use crate::apiserver::Running;
use crate::cluster::Cluster;
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;

const TOKEN: (&str, &str) = ("abcdef", "0123456789abcdef");

/// Who has the token may ask for a node's certificate, and gets it; all of this is kubeadm's.
fn let_nodes_join(cluster: &Cluster) {
    let (id, secret) = TOKEN;
    let made = cluster.kubectl(&format!(
        "create secret generic bootstrap-token-{id} -n kube-system --type=bootstrap.kubernetes.io/token \
         --from-literal=token-id={id} --from-literal=token-secret={secret} \
         --from-literal=usage-bootstrap-authentication=true"
    ));
    assert!(made.ends_with("created"), "{made}");
    let approve = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
    for (name, role) in [("ask", "system:node-bootstrapper"), ("approve", approve)] {
        let made = cluster.kubectl(&format!(
            "create clusterrolebinding {name} --clusterrole={role} --group=system:bootstrappers"
        ));
        assert!(made.ends_with("created"), "{made}");
    }
}

/// The control loops that approve of requests and sign them.
fn signer(cluster: &Cluster) -> Running {
    let pki = |file: &str| cluster.folder.path().join("pki").join(file);
    let mut manager = Command::new(env!("CARGO_BIN_EXE_skiff"));
    manager.args(["controller-manager", "--leader-elect=false", "--secure-port=0", "--kubeconfig"]);
    manager.arg(cluster.kubeconfig());
    manager.arg("--cluster-signing-cert-file").arg(pki("ca.crt"));
    manager.arg("--cluster-signing-key-file").arg(pki("ca.key"));
    Running(manager.spawn().expect("it starts"))
}

/// The administrator's kubeconfig with a token in the place of who he is.
fn bootstrap_kubeconfig(cluster: &Cluster) -> PathBuf {
    let own = cluster.json("config view --raw");
    let (id, secret) = TOKEN;
    let made = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "join",
        "clusters": [{ "name": "there", "cluster": own["clusters"][0]["cluster"] }],
        "contexts": [{ "name": "join", "context": { "cluster": "there", "user": "token" } }],
        "users": [{ "name": "token", "user": { "token": format!("{id}.{secret}") } }],
    });
    let path = cluster.folder.path().join("bootstrap.conf");
    std::fs::write(&path, made.to_string()).expect("written");
    path
}

fn kubelet(cluster: &Cluster, bootstrap: &PathBuf) -> Running {
    let at = |name: &str| cluster.folder.path().join(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_skiff"));
    command.args(["kubelet", "--hostname-override=joiner", "--port=0", "--healthz-port=0"]);
    command.args(["--node-ip=127.0.0.1", "--pod-network=false"]);
    command.arg("--eviction-hard=memory.available<1Mi");
    command.arg("--bootstrap-kubeconfig").arg(bootstrap).arg("--kubeconfig").arg(at("node.conf"));
    command.arg("--cert-dir").arg(at("certificates"));
    command.arg("--root-dir").arg(at("kubelet")).arg("--pod-logs-dir").arg(at("logs"));
    Running(command.args(places(cluster)).spawn().expect("it starts"))
}

#[test]
fn a_node_joins_by_a_bootstrap_kubeconfig() {
    let cluster = Cluster::start().with_default_account();
    let_nodes_join(&cluster);
    let _signer = signer(&cluster);
    let bootstrap = bootstrap_kubeconfig(&cluster);
    let joined = kubelet(&cluster, &bootstrap);
    let ready = "get node joiner -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    cluster.until(ready, "True");
    let requests = cluster.json("get certificatesigningrequests");
    let request = &requests["items"][0]["spec"];
    assert_eq!(request["username"], format!("system:bootstrap:{}", TOKEN.0), "{requests}");
    assert_eq!(request["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
    let own = std::fs::read_to_string(cluster.folder.path().join("node.conf")).expect("it is made");
    assert!(own.contains("kubelet-client-current.pem") && !own.contains(TOKEN.1), "{own}");
    // It is a node now, and nothing else.
    let asks = |what: &str| {
        let mut command = cluster.command("");
        command.arg("--kubeconfig").arg(cluster.folder.path().join("node.conf"));
        let output = command.args(what.split(' ')).output().expect("kubectl runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert!(asks("auth whoami").contains("system:node:joiner"), "{}", asks("auth whoami"));
    assert!(asks("auth can-i list secrets -A").starts_with("no"));
    // Without the token it comes again as who it is.
    drop(joined);
    cluster.kubectl(&format!("delete secret bootstrap-token-{} -n kube-system", TOKEN.0));
    std::fs::remove_file(&bootstrap).expect("it was there");
    cluster.kubectl("delete node joiner");
    let again = kubelet(&cluster, &bootstrap);
    cluster.until(ready, "True");
    let requests = cluster.json("get certificatesigningrequests");
    assert_eq!(
        requests["items"].as_array().map(Vec::len),
        Some(1),
        "it has asked once: {requests}"
    );
    drop(again);
    let mut reset = Command::new(env!("CARGO_BIN_EXE_skiff"));
    let none = cluster.folder.path().join("none");
    reset.args(["reset", "--yes"]).args(&places(&cluster)[..3]).arg("--data-dir").arg(&none);
    reset.arg("--kubelet-dir").arg(&none).arg("--pod-logs-dir").arg(&none);
    assert!(reset.output().expect("it runs").status.success());
}
