//! `skiff up` without a node: manifests in a folder, a configuration file, and several servers on one etcd.
use crate::apiserver::{Running, etcd};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a machine runs that is no node.
pub const NO_NODE: &str = "kubelet,network-policy,proxy,metrics-server,servicelb,dns";

/// A server with its data in a folder; it is ready.
fn up(data: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skiff"));
    command.args(["up", "--bind-address=127.0.0.1", "--data-dir"]).arg(data).args(arguments);
    // Whoever runs the tests by sudo gets no kubeconfig of theirs.
    command.env_remove("SUDO_UID");
    let mut process = command.stdout(Stdio::piped()).spawn().expect("skiff starts");
    let mut line = String::new();
    let output = process.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("skiff speaks");
    assert!(line.starts_with("skiff is ready at https://127.0.0.1:"), "{line}");
    Running(process)
}

fn kubectl(data: &Path, arguments: &str) -> String {
    let mut command = Command::new(testkit::tools::program("kubectl", "kubernetes-client"));
    command.args(arguments.split_whitespace()).env("HOME", data);
    let output = command.env("KUBECONFIG", data.join("kubeconfig")).output().expect("kubectl runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => text(&output.stdout),
        false => format!("error: {}", text(&output.stderr)),
    }
}

fn until(data: &Path, arguments: &str, expected: &str) {
    let begun = Instant::now();
    loop {
        let said = kubectl(data, arguments);
        if said.contains(expected) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{arguments}: {said}");
    }
}

#[test]
fn manifests_in_a_folder_are_applied_and_pruned() {
    let data = TempDir::new().expect("a folder");
    let data = data.path();
    let folder = data.join("manifests");
    std::fs::create_dir(&folder).expect("a folder");
    let configmap =
        |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n---\n");
    std::fs::write(folder.join("first.yaml"), configmap("a") + &configmap("b")).expect("a file");
    // Settings come from a file as well as from flags.
    std::fs::write(data.join("config.yaml"), format!("disable: [{NO_NODE}]\nport: 0\n"))
        .expect("a file");
    let config = format!("--config={}", data.join("config.yaml").display());
    let _server = up(data, &[&config]);
    until(data, "get configmaps -o name", "configmap/b");
    // A changed file: what it has no longer goes.
    std::fs::write(folder.join("first.yaml"), configmap("b") + &configmap("c")).expect("a file");
    until(data, "get configmaps -o name", "configmap/c");
    until(data, "get configmap a", "NotFound");
    // A definition and an object of it, in one file: the second waits for the first.
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
        metadata: {name: boats.example.com}\nspec:\n  group: example.com\n  scope: Namespaced\n  \
        names: {plural: boats, kind: Boat}\n  versions:\n  - name: v1\n    served: true\n    \
        storage: true\n    schema: {openAPIV3Schema: {type: object, \
        x-kubernetes-preserve-unknown-fields: true}}\n---\n\
        apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: skiff, namespace: kube-system}\n";
    std::fs::write(folder.join("second.yaml"), definition).expect("a file");
    until(data, "get boats -n kube-system -o name", "boat.example.com/skiff");
    // It can be asked about, too, though nobody here knows its kind: it is kept by a finalizer.
    kubectl(
        data,
        r#"patch boat skiff -n kube-system --type=merge -p {"metadata":{"finalizers":["a/b"]}}"#,
    );
    kubectl(data, "delete boat skiff -n kube-system --wait=false");
    let mut why = Command::new(env!("CARGO_BIN_EXE_skiff"));
    why.args(["why", "boats/skiff", "-n", "kube-system", "--data-dir"]).arg(data);
    let said = String::from_utf8_lossy(&why.output().expect("it runs").stdout).into_owned();
    assert!(said.contains("a/b must be taken off it first"), "{said}");
    kubectl(
        data,
        r#"patch boat skiff -n kube-system --type=merge -p {"metadata":{"finalizers":null}}"#,
    );
    // What is wrong is said.
    std::fs::write(
        folder.join("third.yaml"),
        "apiVersion: v1\nkind: Secret\nmetadata: {name: A_B}\n",
    )
    .expect("a file");
    let status = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skiff"));
        let output = command.args(["status", "--data-dir"]).arg(data).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let begun = Instant::now();
    while !status().contains("Manifest    third.yaml: Secret A_B:") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", status());
    }
    // What cannot be understood takes nothing away: it may be where something went.
    std::fs::write(folder.join("first.yaml"), configmap("c")).expect("a file");
    std::fs::write(folder.join("fourth.yaml"), "kind: [").expect("a file");
    let begun = Instant::now();
    while !status().contains("Manifest    fourth.yaml: ") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", status());
    }
    std::fs::write(folder.join("first.yaml"), "").expect("a file");
    while !status().contains("Manifest    first.yaml: it is empty, and what it made stays") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", status());
    }
    let there = kubectl(data, "get configmaps -o name");
    assert!(there.contains("configmap/b") && there.contains("configmap/c"), "{there}");
    // It went to the other file, which is whole now; another one is in none any more.
    let moved = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, labels: {is: moved}}\n";
    std::fs::write(folder.join("fourth.yaml"), moved).expect("a file");
    std::fs::remove_file(folder.join("first.yaml")).expect("it was there");
    until(data, "get configmap c", "NotFound");
    until(data, "get configmaps -l is=moved -o name", "configmap/b");
    // A file that is gone takes everything along.
    std::fs::remove_file(folder.join("second.yaml")).expect("it was there");
    until(data, "get crd boats.example.com", "NotFound");
    assert!(kubectl(data, "get configmaps -o name").contains("configmap/b"));
}

#[test]
fn what_is_left_out_later_goes_and_comes_back() {
    let data = TempDir::new().expect("a folder");
    let data = data.path();
    let found_by = |name: &str| {
        let shown =
            ::apiserver::pki::shown(&data.join("pki/apiserver.crt")).expect("a certificate");
        shown.names.iter().any(|one| one == name)
    };
    let all = ["--port=0", "--disable", NO_NODE];
    let server = up(data, &all);
    until(data, "get ingressclass skiff -o name", "ingressclass");
    until(data, "get storageclass local -o name", "storageclass");
    assert!(!found_by("api.example.test"));
    // Somebody has made this one theirs.
    let changed = kubectl(data, "label clusterrole skiff:local-storage is=theirs");
    assert!(changed.contains("labeled"), "{changed}");
    drop(server);
    let fewer =
        [&all[..], &["--disable=ingress,local-storage", "--tls-san=api.example.test"]].concat();
    let server = up(data, &fewer);
    for gone in ["ingressclass skiff", "storageclass local", "clusterrole skiff:ingress"] {
        until(data, &format!("get {gone}"), "NotFound");
    }
    let theirs = kubectl(data, "get clusterrole skiff:local-storage -o name");
    assert_eq!(theirs, "clusterrole.rbac.authorization.k8s.io/skiff:local-storage");
    // Definitions stay: people's own objects would go with them.
    let definition = kubectl(data, "get crd gateways.gateway.networking.k8s.io -o name");
    assert!(definition.starts_with("customresourcedefinition"), "{definition}");
    assert!(found_by("api.example.test"));
    drop(server);
    let _server = up(data, &all);
    until(data, "get ingressclass skiff -o name", "ingressclass");
    until(data, "get storageclass local -o name", "storageclass");
    until(data, "get clusterrole skiff:ingress -o name", "clusterrole");
}

#[test]
fn servers_on_one_etcd_stand_in_for_each_other() {
    let folder = TempDir::new().expect("a folder");
    let (_etcd, client) = etcd(folder.path());
    let flag = format!("--etcd-servers={client}");
    let [one, two, three] = ["one", "two", "three"].map(|name| folder.path().join(name));
    let first = up(&one, &[&flag, "--disable", NO_NODE, "--port=0", "--node-name=one"]);
    let token = std::fs::read_to_string(one.join("server-token")).expect("a token");
    let token = format!("--token={}", token.trim());
    let _second = up(&two, &[&flag, "--disable", NO_NODE, "--port=0", "--node-name=two", &token]);
    // A stranger gets nothing.
    let mut command = Command::new(env!("CARGO_BIN_EXE_skiff"));
    command.args(["up", "--disable", "*", "--port=0", &flag, "--token=0123456789abcdef"]);
    let refused = command.arg("--data-dir").arg(&three).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("the token is not that of"), "{said}");
    // What one writes the other has, encrypted at rest or not; either one's administrator is both's.
    assert!(kubectl(&one, "create secret generic s --from-literal=a=b").contains("created"));
    assert_eq!(kubectl(&two, "get secret s -o jsonpath={.data.a}"), "Yg==");
    let read = |data: &Path| std::fs::read(data.join("pki/ca.crt")).expect("a CA");
    assert_eq!(read(&one), read(&two));
    // One of them acts; when it is gone, the other does.
    assert!(kubectl(&two, "create namespace before").contains("created"));
    until(&two, "get serviceaccount default -n before -o name", "serviceaccount/default");
    drop(first);
    assert!(kubectl(&two, "create namespace after").contains("created"));
    until(&two, "get serviceaccount default -n after -o name", "serviceaccount/default");
}
