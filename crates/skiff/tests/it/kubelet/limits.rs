//! What pods are held to: control groups, admission, the size of their logs.
use super::Node;
use crate::cluster::Cluster;
use serde_json::json;
use std::fs;
use std::io::BufRead;
use std::path::PathBuf;

fn pod(name: &str, container: serde_json::Value) -> String {
    let mut container = container;
    container["name"] = "c".into();
    container["image"] = "localhost/busybox:1".into();
    container["imagePullPolicy"] = "Never".into();
    let spec = json!({
        "nodeName": "node", "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": false, "containers": [container],
    });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec })
        .to_string()
}

fn create(cluster: &Cluster, name: &str, container: serde_json::Value) {
    let made = cluster.kubectl_with("create -f -", &pod(name, container));
    assert_eq!(made, format!("pod/{name} created"));
}

/// A file of a group, in the hierarchy that has it.
fn read(group: &str, files: [&str; 2]) -> String {
    let below = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let mut roots: Vec<PathBuf> = below.map(|entry| entry.path()).collect();
    roots.push(PathBuf::from("/sys/fs/cgroup"));
    let places = roots.iter().flat_map(|root| files.map(|file| root.join(group).join(file)));
    let mut found = places.filter_map(|place| fs::read_to_string(place).ok());
    found.next().unwrap_or_else(|| panic!("{group} has none of {files:?}")).trim().to_owned()
}

#[test]
fn requests_and_limits_are_those_of_control_groups() {
    let cluster = Cluster::start().with_default_account();
    let node =
        Node::start_with(&cluster, &["--system-reserved=cpu=100m,memory=100Mi"]).until_ready();
    node.import_busybox();
    let sleep = ["sleep", "1000"];
    let limits = json!({ "cpu": "100m", "memory": "64Mi" });
    create(&cluster, "sure", json!({ "command": sleep, "resources": { "limits": limits } }));
    let asked = json!({ "cpu": "50m" });
    create(&cluster, "some", json!({ "command": sleep, "resources": { "requests": asked } }));
    create(&cluster, "none", json!({ "command": sleep }));
    create(&cluster, "large", json!({ "resources": { "requests": { "cpu": "9999" } } }));
    for name in ["sure", "some", "none"] {
        cluster.until(&format!("get pod {name} -o jsonpath={{.status.phase}}"), "Running");
    }
    let uid =
        |name: &str| cluster.kubectl(&format!("get pod {name} -o jsonpath={{.metadata.uid}}"));
    let sure = format!("kubepods/pod{}", uid("sure"));
    assert_eq!(read(&sure, ["memory.limit_in_bytes", "memory.max"]), (64 << 20).to_string());
    let quota = read(&sure, ["cpu.cfs_quota_us", "cpu.max"]);
    assert_eq!(quota.split(' ').next(), Some("10000"));
    let some = format!("kubepods/burstable/pod{}", uid("some"));
    let shares = read(&some, ["cpu.shares", "cpu.weight"]);
    assert!(["51", "2"].contains(&shares.as_str()), "{shares}");
    let none = format!("kubepods/besteffort/pod{}", uid("none"));
    let shares = read(&none, ["cpu.shares", "cpu.weight"]);
    assert!(["2", "1"].contains(&shares.as_str()), "{shares}");
    let score = "exec none -- cat /proc/1/oom_score_adj";
    assert_eq!(cluster.kubectl(score), "1000");

    cluster.until("get pod large -o jsonpath={.status.phase}/{.status.reason}", "Failed/OutOfcpu");
    let node = cluster.json("get node node");
    let amount = |list: &str| {
        let text = node["status"][list]["memory"].as_str().expect("memory").to_owned();
        text.trim_end_matches("Ki").parse::<u64>().expect("a number")
    };
    // A hundred for the system, and one that eviction keeps free, as the node's flags have it.
    assert_eq!(amount("capacity") - amount("allocatable"), 101 << 10);
}

#[test]
fn a_log_that_grows_is_rotated_and_nothing_of_it_is_lost() {
    let cluster = Cluster::start().with_default_account();
    let flags = &["--container-log-max-size=4Ki", "--container-log-monitor-interval=1"];
    let node = Node::start_with(&cluster, flags).until_ready();
    node.import_busybox();
    let count = "for i in $(seq 1 400); do echo line $i; sleep 0.01; done; sleep 1000";
    create(&cluster, "talker", json!({ "command": ["sh", "-c", count] }));
    cluster.until("get pod talker -o jsonpath={.status.phase}", "Running");
    let (mut following, output) = cluster.stream("logs -f talker");
    let said: Vec<String> =
        output.lines().map_while(Result::ok).take_while(|line| line != "line 400").collect();
    following.kill().expect("it runs");
    following.wait().expect("it ends");
    let first: u32 = said.first().and_then(|line| line[5..].parse().ok()).expect("a number");
    let expected: Vec<String> = (first..400).map(|number| format!("line {number}")).collect();
    assert_eq!(said, expected);
    let uid = cluster.kubectl("get pod talker -o jsonpath={.metadata.uid}");
    let folder = cluster.folder.path().join(format!("logs/default_talker_{uid}/c"));
    let files = fs::read_dir(folder).expect("a folder").count();
    assert!((2..=5).contains(&files), "{files} files");
}

#[test]
fn a_container_can_be_added_to_look_into_another() {
    let cluster = Cluster::start().with_default_account();
    let node = Node::start(&cluster).until_ready();
    node.import_busybox();
    create(&cluster, "web", json!({ "command": ["sleep", "1000"] }));
    cluster.until("get pod web -o jsonpath={.status.phase}", "Running");
    let mut pod = cluster.json("get pod web");
    pod["spec"]["ephemeralContainers"] = json!([{
        "name": "debug", "image": "localhost/busybox:1", "imagePullPolicy": "Never",
        "targetContainerName": "c", "command": ["sh", "-c", "cat /proc/1/cmdline | tr '\\0' ' '"],
    }]);
    let path = "/api/v1/namespaces/default/pods/web/ephemeralcontainers";
    let added = cluster.kubectl_with(&format!("replace --raw {path} -f -"), &pod.to_string());
    assert!(added.contains("\"debug\""), "{added}");
    let ended =
        "get pod web -o jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}";
    cluster.until(ended, "0");
    // It sees the processes of the other.
    assert_eq!(cluster.kubectl("logs web -c debug"), "sleep 1000");
}

#[test]
fn limits_change_while_a_container_runs() {
    let cluster = Cluster::start().with_default_account();
    let node = Node::start(&cluster).until_ready();
    node.import_busybox();
    let limits = |cpu: &str| json!({ "limits": { "cpu": cpu, "memory": "32Mi" } });
    create(&cluster, "web", json!({ "command": ["sleep", "1000"], "resources": limits("100m") }));
    cluster.until("get pod web -o jsonpath={.status.phase}", "Running");
    let resize = |cpu: &str| {
        let mut pod = cluster.json("get pod web");
        for list in ["limits", "requests"] {
            pod["spec"]["containers"][0]["resources"][list]["cpu"] = cpu.into();
        }
        let path = "/api/v1/namespaces/default/pods/web/resize";
        let said = cluster.kubectl_with(&format!("replace --raw {path} -f -"), &pod.to_string());
        assert!(said.starts_with('{'), "{said}");
    };
    let given = "get pod web -o jsonpath={.status.containerStatuses[0].resources.limits.cpu}/{.status.containerStatuses[0].restartCount}";
    cluster.until(given, "100m/0");
    resize("200m");
    cluster.until(given, "200m/0");
    let uid = cluster.kubectl("get pod web -o jsonpath={.metadata.uid}");
    let quota = read(&format!("kubepods/pod{uid}"), ["cpu.cfs_quota_us", "cpu.max"]);
    assert_eq!(quota.split(' ').next(), Some("20000"));
    // Another takes all but half a processor: more than that has to wait until it is gone.
    let cpus = cluster.kubectl("get node node -o jsonpath={.status.allocatable.cpu}");
    let most = cpus.parse::<u32>().expect("whole processors") * 1000 - 500;
    let asked = json!({ "requests": { "cpu": format!("{most}m") } });
    create(&cluster, "other", json!({ "command": ["sleep", "1000"], "resources": asked }));
    cluster.until("get pod other -o jsonpath={.status.phase}", "Running");
    resize("600m");
    let condition =
        "get pod web -o jsonpath={.status.conditions[?(@.type==\"PodResizePending\")].reason}";
    cluster.until(condition, "Deferred");
    assert_eq!(cluster.kubectl(given), "200m/0");
    cluster.kubectl("delete pod other");
    cluster.until(condition, "");
    cluster.until(given, "600m/0");
}

#[test]
fn limits_of_whole_pods_and_of_sidecars_change_while_they_run() {
    let cluster = Cluster::start().with_default_account();
    let node = Node::start(&cluster).until_ready();
    node.import_busybox();
    let container = |name: &str, limits: serde_json::Value| {
        json!({
            "name": name, "image": "localhost/busybox:1", "imagePullPolicy": "Never",
            "command": ["sleep", "1000"], "resources": { "limits": limits },
        })
    };
    let mut sidecar = container("side", json!({ "cpu": "50m", "memory": "16Mi" }));
    sidecar["restartPolicy"] = "Always".into();
    let main = container("main", json!({ "cpu": "50m", "memory": "16Mi" }));
    let all = json!({ "cpu": "200m", "memory": "64Mi" });
    let spec = json!({
        "nodeName": "node", "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": false, "resources": { "limits": all, "requests": all },
        "initContainers": [sidecar], "containers": [main],
    });
    let pod =
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" }, "spec": spec });
    assert_eq!(cluster.kubectl_with("create -f -", &pod.to_string()), "pod/web created");
    cluster.until("get pod web -o jsonpath={.status.phase}", "Running");
    let uid = cluster.kubectl("get pod web -o jsonpath={.metadata.uid}");
    let group = format!("kubepods/pod{uid}");
    let quota = || {
        let quota = read(&group, ["cpu.cfs_quota_us", "cpu.max"]);
        quota.split(' ').next().unwrap_or_default().to_owned()
    };
    let memory = || read(&group, ["memory.limit_in_bytes", "memory.max"]);
    assert_eq!((quota(), memory()), ("20000".to_owned(), (64 << 20).to_string()));
    let resize = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut pod = cluster.json("get pod web");
        change(&mut pod["spec"]);
        let path = "/api/v1/namespaces/default/pods/web/resize";
        let said = cluster.kubectl_with(&format!("replace --raw {path} -f -"), &pod.to_string());
        assert!(said.starts_with('{'), "{said}");
    };
    let restarts = "{.status.initContainerStatuses[0].restartCount}{.status.containerStatuses[0].restartCount}";
    let side = format!(
        "get pod web -o jsonpath={{.status.initContainerStatuses[0].resources.limits.cpu}}/{restarts}"
    );
    cluster.until(&side, "50m/00");
    // The sidecar alone: what the whole pod has stays.
    resize(&|spec| {
        for list in ["limits", "requests"] {
            spec["initContainers"][0]["resources"][list]["cpu"] = "80m".into();
        }
    });
    cluster.until(&side, "80m/00");
    assert_eq!(quota(), "20000");
    // The whole pod: what its containers have stays.
    resize(&|spec| {
        for list in ["limits", "requests"] {
            spec["resources"][list] = json!({ "cpu": "400m", "memory": "96Mi" });
        }
    });
    let whole = format!("get pod web -o jsonpath={{.status.resources.limits.cpu}}/{restarts}");
    cluster.until(&whole, "400m/00");
    assert_eq!((quota(), memory()), ("40000".to_owned(), (96 << 20).to_string()));
    cluster.until(&side, "80m/00");
    let pending =
        "get pod web -o jsonpath={.status.conditions[?(@.type==\"PodResizePending\")].reason}";
    assert_eq!(cluster.kubectl(pending), "");
}
