//! `skiff controller-manager` beside an API server, as upstream's would be.
use crate::apiserver::Running;
use crate::cluster::Cluster;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

fn manager(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skiff"));
    command.args(["controller-manager", "--kubeconfig"]).arg(cluster.kubeconfig()).args(arguments);
    command
}

#[test]
fn one_of_several_leads_and_a_deployment_gets_its_pods() {
    let cluster = Cluster::start();
    let start = || {
        let ca = cluster.folder.path().join("pki/ca.crt");
        let root_ca = format!("--root-ca-file={}", ca.display());
        let arguments = [&root_ca, "--secure-port=0"];
        Running(manager(&cluster, &arguments).spawn().expect("it starts"))
    };
    let both = [start(), start()];
    cluster.until("get serviceaccounts default -o name", "serviceaccount/default");
    cluster.until("get configmaps kube-root-ca.crt -o name", "configmap/kube-root-ca.crt");
    cluster.kubectl("create deployment web --image=web --replicas=2");
    cluster.until("get deployment web -o jsonpath={.status.replicas}", "2");
    let holder =
        "get lease -n kube-system kube-controller-manager -o jsonpath={.spec.holderIdentity}";
    assert!(!cluster.kubectl(holder).is_empty());
    cluster.kubectl("delete deployment web");
    cluster.until("get pods,replicasets -o name", "");
    drop(both);
}

#[test]
fn loops_write_as_their_own_service_accounts() {
    let cluster = Cluster::start();
    let arguments = ["--secure-port=0", "--use-service-account-credentials"];
    let running = Running(manager(&cluster, &arguments).spawn().expect("it starts"));
    cluster.kubectl("create deployment web --image=web --replicas=1");
    cluster.until("get deployment web -o jsonpath={.status.replicas}", "1");
    let account = "get serviceaccount -n kube-system deployment-controller -o name";
    cluster.until(account, "serviceaccount/deployment-controller");
    drop(running);
}

/// Nobody told this process what the cluster's users have defined: it asks.
#[test]
fn policies_are_checked_with_the_types_of_custom_kinds() {
    let cluster = Cluster::start();
    let arguments = ["--secure-port=0", "--use-service-account-credentials"];
    let running = Running(manager(&cluster, &arguments).spawn().expect("it starts"));
    let names = json!({ "plural": "widgets", "singular": "widget", "kind": "Widget" });
    let spec = json!({ "type": "object", "properties": { "size": { "type": "integer" } } });
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced", "names": names,
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema } }] },
    });
    cluster.kubectl_with("create -f -", &definition.to_string());
    cluster.kubectl("wait --for=condition=Established crd/widgets.example.com");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "sizes" },
        "spec": {
            "matchConstraints": { "resourceRules": [{ "apiGroups": ["example.com"],
                "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["widgets"] }]},
            "validations": [
                { "expression": "object.spec.size > 1" },
                { "expression": "object.spec.size > 'a'" },
            ],
        },
    });
    cluster.kubectl_with("create -f -", &policy.to_string());
    let status = "get validatingadmissionpolicy sizes -o jsonpath={.status";
    cluster.until(&format!("{status}.observedGeneration}}"), "1");
    let checked = cluster.kubectl(&format!("{status}.typeChecking}}"));
    let checked: Value = serde_json::from_str(&checked).expect("JSON");
    let warnings = checked["expressionWarnings"].as_array().expect("warnings");
    assert_eq!(warnings.len(), 1, "{checked}");
    assert_eq!(warnings[0]["fieldRef"], "spec.validations[1].expression");
    let told = warnings[0]["warning"].as_str().unwrap_or_default();
    let expected = "example.com/v1, Kind=Widget: ERROR: <input>:1:18: found no matching overload for '_>_' applied to '(int, string)'";
    assert!(told.starts_with(expected), "{told}");
    drop(running);
}

#[test]
fn a_misspelt_control_loop_is_told_at_once() {
    let cluster = Cluster::start();
    let mut command = manager(&cluster, &["--controllers=*,-replica-set"]);
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("is no controller"), "{said}");
}
