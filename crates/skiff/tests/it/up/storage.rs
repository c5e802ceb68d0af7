//! Volumes that are made for claims: of the class that is there from the first boot on.
use crate::cluster::Cluster;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const WRITER: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      securityContext: {runAsUser: 1234}
      containers:
      - name: a
        image: localhost/busybox:1
        command: [sh, -c, "hostname >> /data/who; sleep 1000"]
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

const SHARED: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shared}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: shares}
spec:
  containers: [{name: a, image: localhost/skiff/demo, volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: shared}}]
"#;

fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

fn folder(cluster: &Cluster, claim: &str) -> PathBuf {
    let volume = cluster.kubectl(&format!("get pvc {claim} -o jsonpath={{.spec.volumeName}}"));
    PathBuf::from(cluster.kubectl(&format!("get pv {volume} -o jsonpath={{.spec.local.path}}")))
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// A claim that names no class has a folder of its node, which any user may write to, which outlives its pods and
/// the cluster's restart, and is gone with the claim.
#[test]
fn a_claim_has_a_folder_until_it_goes() {
    let mut cluster = Cluster::whole();
    cluster.import_busybox("localhost/busybox:1");
    cluster.kubectl_with("apply -f -", WRITER);
    cluster.until("get statefulset db -o jsonpath={.status.readyReplicas}", "2");
    let data = folder(&cluster, "data-db-0");
    let all = data.parent().and_then(Path::parent).expect("the folder of all volumes").to_owned();
    assert!(all.starts_with(cluster.folder.path()), "{}", all.display());
    let written = || std::fs::read_to_string(data.join("who")).unwrap_or_default();
    until("db-0 writes", || written() == "db-0\n");
    cluster.kubectl("delete pod db-0");
    until("db-0 writes again", || written() == "db-0\ndb-0\n");

    let grown = "patch pvc data-db-0 --patch={\"spec\":{\"resources\":{\"requests\":{\"storage\":\"2Gi\"}}}}";
    cluster.kubectl(grown);
    cluster.until("get pvc data-db-0 -o jsonpath={.status.capacity.storage}", "2Gi");

    // What cannot be is said, by an event of the claim.
    cluster.kubectl_with("apply -f -", SHARED);
    let event = "get events -o jsonpath={.items[?(@.reason=='ProvisioningFailed')].message}";
    until("the refusal of a shared folder", || {
        cluster.kubectl(event).contains("ReadWriteMany is not for folders of one node")
    });
    cluster.kubectl("delete pod shares --now");
    cluster.kubectl("delete pvc shared");

    cluster.stop();
    cluster.start_again();
    assert_eq!(written(), "db-0\ndb-0\n");
    // As deep as a container likes.
    let deep = "i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done";
    let deep = format!("cd /data; {deep}");
    cluster.kubectl_args(&["exec", "db-1", "--", "sh", "-c", &deep]);
    cluster.kubectl("delete statefulset db");
    cluster.kubectl("delete pvc --all");
    cluster.until("get pv -o name", "");
    until("all folders are gone", || is_empty(&all));
    cluster.until("get pods -n kube-system -l skiff.dev/local-volume -o name", "");
}
