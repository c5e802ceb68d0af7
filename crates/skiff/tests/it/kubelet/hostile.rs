//! What cannot be run: the node says why, and stays as it is for everybody else.
use super::Node;
use crate::cluster::Cluster;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

fn pod(name: &str, container: Value, volumes: Value) -> String {
    let mut container = container;
    container["name"] = "c".into();
    container["image"] = "localhost/busybox:1".into();
    container["imagePullPolicy"] = "Never".into();
    let spec = json!({
        "nodeName": "node", "terminationGracePeriodSeconds": 0, "restartPolicy": "Never",
        "automountServiceAccountToken": false, "containers": [container], "volumes": volumes,
    });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec })
        .to_string()
}

fn until_event(cluster: &Cluster, pod: &str, reason: &str, part: &str) {
    let begun = Instant::now();
    loop {
        let field = format!("involvedObject.name={pod},reason={reason}");
        let said = cluster.kubectl(&format!(
            "get events --field-selector {field} -o jsonpath={{.items[*].message}}"
        ));
        if said.contains(part) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{pod}: {reason}: {said:?}");
    }
}

#[test]
fn what_cannot_be_run_is_told_and_the_node_stays_ready() {
    let cluster = Cluster::start().with_default_account();
    let manifests = cluster.folder.path().join("manifests");
    fs::create_dir(&manifests).expect("a folder");
    let broken: &[(&str, &[u8])] = &[
        ("empty.yaml", b""),
        ("binary.yaml", &[0xff, 0x00, 0xfe, 0x7f]),
        ("deep.json", &[b'['; 20_000]),
        ("list.yaml", b"- a\n- b\n"),
        ("service.yaml", b"apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"),
        ("nameless.yaml", b"apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a}]}\n"),
        ("wrong.yaml", b"apiVersion: v1\nkind: Pod\nmetadata: {name: Wrong_Name}\nspec: {containers: 7}\n"),
        ("anchors.yaml", b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c]\n"),
    ];
    for (name, bytes) in broken {
        fs::write(manifests.join(name), bytes).expect("written");
    }
    let flag: &'static str =
        Box::leak(format!("--pod-manifest-path={}", manifests.display()).into_boxed_str());
    let flags: &'static [&'static str] = Box::leak(Box::new([flag]));
    let node = Node::start_with(&cluster, flags).until_ready();
    node.import_busybox();
    // As much environment as an object can hold, and more than the kernel lets a program have.
    let value = "x".repeat(100_000);
    let many: Vec<Value> =
        (0..14).map(|at| json!({ "name": format!("V{at}"), "value": value })).collect();
    let one = json!([{ "name": "LONG", "value": "x".repeat(200_000) }]);
    let say = json!(["sh", "-c", "echo ${#V13}"]);
    let container = json!({ "command": say, "env": many });
    let made = |text: String| {
        let said = cluster.kubectl_with("create -f -", &text);
        assert!(said.ends_with("created"), "{said}");
    };
    made(pod("roomy", container, json!([])));
    made(pod("long", json!({ "command": ["true"], "env": one }), json!([])));
    let mounted =
        json!({ "command": ["true"], "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = "v".into();
        json!([volume])
    };
    made(pod("mapless", mounted.clone(), volume(json!({ "configMap": { "name": "none" } }))));
    let nfs = json!({ "nfs": { "server": "127.0.0.1", "path": "/none" } });
    made(pod("mountless", mounted.clone(), volume(nfs)));
    let folder = json!({ "hostPath": { "path": "/none/such", "type": "Directory" } });
    made(pod("pathless", mounted, volume(folder)));
    until_event(&cluster, "mapless", "FailedMount", "configmap \"none\" not found");
    until_event(&cluster, "mountless", "FailedMount", "mount failed: exit status");
    until_event(
        &cluster,
        "pathless",
        "FailedMount",
        "hostPath type check failed: /none/such is not a directory",
    );
    // A program that the kernel does not start is one that failed; one that it does runs.
    let state = |name: &str| {
        let path = "{.status.phase} {.status.containerStatuses[0].state.terminated.reason}";
        format!("get pod {name} -o jsonpath={}", path.replace(' ', "/"))
    };
    cluster.until(&state("long"), "Failed/StartError");
    cluster.until(&state("roomy"), "Succeeded/Completed");
    assert_eq!(cluster.kubectl("logs roomy"), "100000");
    // All of that is nothing to others.
    made(pod("good", json!({ "command": ["true"] }), json!([])));
    cluster.until("get pod good -o jsonpath={.status.phase}", "Succeeded");
    let ready = "get node node -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    assert_eq!(cluster.kubectl(ready), "True");
    // What never ran goes at once.
    let gone = cluster.kubectl("delete pods --all --timeout=30s");
    assert!(!gone.contains("error"), "{gone}");
    assert_eq!(cluster.kubectl("get pods -o name"), "");
}
