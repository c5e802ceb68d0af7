//! What people run: jobs, daemons, pods that fail, configuration that changes.
use crate::cluster::Cluster;
use std::time::{Duration, Instant};
use testkit::network::within;

const OBJECTS: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: a, image: localhost/skiff/demo, command: [/skiff, --version]}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: a, image: localhost/skiff/demo}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: a, image: localhost/skiff/demo}]}
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: crashing}
spec: {containers: [{name: a, image: localhost/skiff/demo, command: [/skiff, nonsense]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec: {containers: [{name: a, image: localhost/skiff/demo, resources: {requests: {cpu: "1000"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: nowhere}
spec: {containers: [{name: a, image: "localhost/no/such:image", imagePullPolicy: Never}]}
"#;

/// Until what kubectl says has all of this in it.
fn until_has(cluster: &Cluster, arguments: &str, expected: &[&str]) {
    let begun = Instant::now();
    loop {
        let said = cluster.kubectl(arguments);
        if expected.iter().all(|part| said.contains(part)) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(40), "{arguments}: {expected:?} in {said}");
    }
}

/// A component's own page, which only those see whom the API server lets.
fn assert_counts(cluster: &Cluster, port: u16, family: &str) {
    let address = cluster.kubectl("get node node -o jsonpath={.status.addresses[0].address}");
    let url = format!("https://{address}:{port}");
    let token = cluster.kubectl("create token default");
    let fetch = |path: &str, token: &str| {
        let curl = testkit::tools::program("curl", "curl");
        let mut curl = within(cluster.network.as_ref(), &curl);
        curl.args(["-sk", "-w", " %{http_code}", "-H", &format!("Authorization: Bearer {token}")]);
        let output = curl.arg(format!("{url}{path}")).output().expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(fetch("/healthz", ""), "ok 200");
    let nobody = fetch("/metrics", "");
    assert!(nobody.contains("User \\\"system:anonymous\\\" cannot get path"), "{nobody}");
    assert!(nobody.ends_with(" 403"), "{nobody}");
    assert!(fetch("/metrics", "nonsense").ends_with(" 401"));
    assert!(fetch("/metrics", &token).ends_with(" 403"));
    cluster.kubectl("create serviceaccount reader");
    let role = "--clusterrole=system:monitoring --serviceaccount=default:reader";
    cluster.kubectl(&format!("create clusterrolebinding reads-metrics {role}"));
    let token = cluster.kubectl("create token reader");
    let begun = Instant::now();
    loop {
        let page = fetch("/metrics", &token);
        if page.ends_with(" 200") && page.contains(family) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{page}");
    }
}

#[test]
fn workloads_run_and_what_is_wrong_is_said() {
    let cluster = Cluster::whole();
    cluster.kubectl_with("apply -f -", OBJECTS);
    cluster.until("get job once -o jsonpath={.status.succeeded}", "2");
    cluster.until("get daemonset agent -o jsonpath={.status.numberReady}", "1");
    cluster.until("get statefulset db -o jsonpath={.status.readyReplicas}", "2");
    let logs = cluster.kubectl("logs job/once");
    assert!(logs.contains("skiff "), "{logs}");
    // Each of a stateful set is known by name.
    let name = "http://db-1.db.default.svc.cluster.local:8080/hostname";
    let begun = Instant::now();
    loop {
        let said = cluster.kubectl(&format!("exec db-0 -- /skiff demo --get {name}"));
        if said == "db-1" {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{said}");
    }
    let events = |pod: &str| format!("get events --field-selector involvedObject.name={pod}");
    until_has(&cluster, &events("crashing"), &["BackOff", "Back-off restarting failed container"]);
    until_has(&cluster, "get pod crashing", &["CrashLoopBackOff"]);
    let unschedulable = "0/1 nodes are available: 1 Insufficient cpu";
    until_has(&cluster, &events("huge"), &["FailedScheduling", unschedulable]);
    until_has(&cluster, &events("nowhere"), &["ErrImageNeverPull"]);
    until_has(&cluster, "get pod nowhere", &["ErrImageNeverPull"]);
    // One plain answer, without reading events.
    let why = |object: &str| {
        let mut skiff = within(cluster.network.as_ref(), env!("CARGO_BIN_EXE_skiff").as_ref());
        skiff.args(["why", object, "--kubeconfig"]).arg(cluster.kubeconfig());
        let output = skiff.output().expect("skiff runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(why("pod/huge").contains("fits nowhere: 0/1 nodes are available: 1 Insufficient cpu"));
    assert!(why("pod/crashing").contains("container a ends again and again"));
    assert!(why("sts/db").starts_with("Nothing is known to be wrong with statefulset default/db"));
    // What they use is told, and autoscalers and people can ask.
    until_has(&cluster, "top nodes --no-headers", &["node "]);
    until_has(&cluster, "top pods --no-headers", &["db-0 ", "agent-", "Mi"]);
    // Each component counts for itself, for those who may read it.
    for (port, family) in
        [(10257, "workqueue_adds_total"), (10259, "scheduler_schedule_attempts_total")]
    {
        assert_counts(&cluster, port, family);
    }
    until_has(&cluster, "get apiservices v1.metrics.k8s.io --no-headers", &["True"]);
}

const CONFIGURED: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  containers:
  - name: a
    image: localhost/skiff/demo
    volumeMounts: [{name: settings, mountPath: /settings}]
  volumes: [{name: settings, configMap: {name: settings}}]
"#;

#[test]
fn a_changed_configuration_is_seen_in_the_pod() {
    let cluster = Cluster::whole();
    cluster.kubectl_with("apply -f -", CONFIGURED);
    cluster.until("get pod reader -o jsonpath={.status.phase}", "Running");
    let read = || {
        let uid = cluster.kubectl("get pod reader -o jsonpath={.metadata.uid}");
        let volume = format!("kubelet/pods/{uid}/volumes/kubernetes.io~configmap/settings/colour");
        std::fs::read_to_string(cluster.folder.path().join(volume)).unwrap_or_default()
    };
    assert_eq!(read(), "red");
    let patch = r#"{"data":{"colour":"blue"}}"#;
    cluster.kubectl_args(&["patch", "configmap", "settings", "-p", patch]);
    let begun = Instant::now();
    while read() != "blue" {
        assert!(begun.elapsed() < Duration::from_secs(30), "still {}", read());
        std::thread::yield_now();
    }
}

/// Two volumes of the host, and a set that claims them.
const KEEPING: &str = r#"
apiVersion: v1
kind: PersistentVolume
metadata: {name: one}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: plain, hostPath: {path: FOLDER/one, type: DirectoryOrCreate}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: two}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: plain, hostPath: {path: FOLDER/two, type: DirectoryOrCreate}}
---
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
      containers:
      - name: a
        image: localhost/busybox:1
        command: [sh, -c, "hostname >> /data/who; sleep 1000"]
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: plain, resources: {requests: {storage: 1Gi}}}
"#;

#[test]
fn a_stateful_set_keeps_what_it_wrote() {
    let cluster = Cluster::whole();
    cluster.import_busybox("localhost/busybox:1");
    let folder = cluster.folder.path().join("volumes");
    let objects = KEEPING.replace("FOLDER", &folder.display().to_string());
    cluster.kubectl_with("apply -f -", &objects);
    cluster.until("get statefulset db -o jsonpath={.status.readyReplicas}", "2");
    let volume = cluster.kubectl("get pvc data-db-0 -o jsonpath={.spec.volumeName}");
    let written = || std::fs::read_to_string(folder.join(&volume).join("who")).unwrap_or_default();
    let until_written = |expected: &str| {
        let begun = Instant::now();
        while written() != expected {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", written());
            std::thread::yield_now();
        }
    };
    until_written("db-0\n");
    cluster.kubectl("delete pod db-0");
    until_written("db-0\ndb-0\n");
}
