//! A pod that takes more disk than it may goes, and what it wrote with it.
use super::Node;
use crate::cluster::Cluster;
use serde_json::json;

#[test]
fn a_pod_that_fills_its_volume_is_evicted() {
    let cluster = Cluster::start().with_default_account();
    let node = Node::start(&cluster).until_ready();
    node.import_busybox();
    let script = "dd if=/dev/zero of=/scratch/file bs=1M count=3; exec sleep 1000";
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "greedy" }, "spec": {
        "nodeName": "node", "automountServiceAccountToken": false,
        "containers": [{ "name": "c", "image": "localhost/busybox:1", "imagePullPolicy": "Never",
            "command": ["sh", "-c", script],
            "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }] }],
        "volumes": [{ "name": "scratch", "emptyDir": { "sizeLimit": "1Mi" } }],
    } });
    assert_eq!(cluster.kubectl_with("create -f -", &pod.to_string()), "pod/greedy created");
    cluster.until("get pod greedy -o jsonpath={.status.phase}", "Failed");
    let told = cluster.kubectl("get pod greedy -o jsonpath={.status.reason}{'|'}{.status.message}");
    assert_eq!(told, "Evicted|Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\".");
    let uid = cluster.kubectl("get pod greedy -o jsonpath={.metadata.uid}");
    let volumes = cluster.folder.path().join("kubelet/pods").join(uid).join("volumes");
    assert!(!volumes.exists(), "{} is left", volumes.display());
}
