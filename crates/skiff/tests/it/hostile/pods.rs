//! What a pod of somebody with no other right than to make pods does to the machine below it: by the volumes that
//! the kubelet writes again, by what it reads of them, by what others of the machine find of it.
use crate::cluster::Cluster;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const IMAGE: &str = "localhost/busybox:hostile";

/// Says of itself what it could do; then it waits.
const WRITER: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: shown}
data: {a: "1"}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: IMAGE
    imagePullPolicy: Never
    command:
    - sh
    - -c
    - |
      for volume in /shown /projected /downward; do
        touch $volume/x 2>/dev/null && echo "$volume was written"
        rm $volume/..data 2>/dev/null && echo "$volume was changed"
      done
      test -d /shown/within && touch /shown/within/x && echo ready
      sleep 100000
    volumeMounts:
    - {name: shown, mountPath: /shown}
    - {name: within, mountPath: /shown/within}
    - {name: projected, mountPath: /projected}
    - {name: downward, mountPath: /downward}
  volumes:
  - {name: shown, configMap: {name: shown}}
  - {name: within, emptyDir: {}}
  - {name: projected, projected: {sources: [{configMap: {name: shown}}]}}
  - {name: downward, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
"#;

/// Its last word is a pipe that nobody writes to.
const PIPE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  initContainers:
  - name: make
    image: IMAGE
    imagePullPolicy: Never
    command: [mknod, /v/pipe, p]
    volumeMounts: [{name: v, mountPath: /v}]
  containers:
  - name: c
    image: IMAGE
    imagePullPolicy: Never
    command: ["true"]
    volumeMounts: [{name: v, mountPath: /dev/termination-log, subPath: pipe}]
  volumes: [{name: v, emptyDir: {}}]
"#;

#[test]
fn a_pod_has_no_way_to_its_node_by_its_volumes() {
    let cluster = Cluster::whole();
    cluster.import_busybox(IMAGE);
    let made = cluster.kubectl_with("create -f -", &WRITER.replace("IMAGE", IMAGE));
    assert!(made.contains("pod/writer created"), "{made}");
    // More of them than the server has threads.
    let threads = std::thread::available_parallelism().map_or(8, |count| count.get()) + 2;
    for number in 0..threads {
        let pipe = PIPE.replace("IMAGE", IMAGE).replace("NAME", &format!("pipe{number}"));
        let made = cluster.kubectl_with("create -f -", &pipe);
        assert!(made.contains("created"), "{made}");
    }
    cluster.until("logs writer", "ready");
    for number in 0..threads {
        let phase = format!("get pod pipe{number} -o jsonpath={{.status.phase}}");
        cluster.until(&phase, "Succeeded");
    }
    // What it shows changes all the same.
    cluster.kubectl_args(&["patch", "configmap", "shown", "--patch", r#"{"data":{"a":"2"}}"#]);
    cluster.until("exec writer -- cat /shown/a", "2");

    // Tokens are below these, and whatever a container wrote, as it wrote it.
    let others = |path: &Path| Some(path.metadata().ok()?.permissions().mode() & 0o007);
    let folder = cluster.folder.path();
    for kept in ["kubelet/pods", "data/runtime/layers", "data/runtime/blobs/sha256"] {
        assert_eq!(others(&folder.join(kept)), Some(0), "{kept}");
    }
    let containers = std::fs::read_dir(folder.join("data/runtime/containers")).expect("a folder");
    let modes: Vec<_> = containers.flatten().filter_map(|entry| others(&entry.path())).collect();
    assert!(!modes.is_empty() && modes.iter().all(|mode| *mode == 0), "{modes:?}");
}
