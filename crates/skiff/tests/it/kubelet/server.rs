//! What kubectl does to containers through the API server and the kubelet.
use super::Node;
use crate::cluster::Cluster;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// `shell` echoes what it is told, `web` serves a page.
const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: node
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
  - name: shell
    image: localhost/busybox:1
    imagePullPolicy: Never
    stdin: true
    command: [sh, -c, "echo first; echo wrong >&2; echo last; while read line; do echo got $line; done"]
  - {name: web, image: localhost/skiff/demo, imagePullPolicy: Never}
"#;

fn pod_on_a_node(cluster: &Cluster) -> Node<'_> {
    let node = Node::start(cluster).until_ready();
    node.import_busybox();
    assert_eq!(cluster.kubectl_with("create -f -", POD), "pod/web created");
    let ready = "get pod web -o jsonpath={.status.containerStatuses[*].ready}";
    cluster.until(ready, "true true");
    node
}

#[test]
fn logs_are_what_a_container_wrote() {
    let cluster = Cluster::start().with_default_account();
    let _node = pod_on_a_node(&cluster);
    // Two streams have no order between them.
    let begun = Instant::now();
    loop {
        let said = cluster.kubectl("logs web -c shell");
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort();
        if lines == ["first", "last", "wrong"] {
            break;
        }
        assert!(begun.elapsed().as_secs() < 30, "{said}");
    }
    let tail = cluster.kubectl("logs web -c shell --tail=2");
    assert_eq!(tail.lines().count(), 2, "{tail}");
    let stamped = cluster.kubectl("logs web -c shell --timestamps --tail=1");
    let (time, text) = stamped.split_once(' ').unwrap_or_default();
    assert!(time.starts_with("20") && time.ends_with('Z') && tail.ends_with(text), "{stamped}");
    assert_eq!(cluster.kubectl("logs web -c shell --limit-bytes=3").len(), 3);
    assert_eq!(cluster.kubectl("logs web -c shell --since-time=2999-01-01T00:00:00Z"), "");
    let previous = cluster.kubectl("logs web -c shell --previous");
    assert!(
        previous.contains("previous terminated container \"shell\" in pod \"web\" not found"),
        "{previous}"
    );
    let stream = "/api/v1/namespaces/default/pods/web/log?container=shell&stream=Stderr";
    assert_eq!(cluster.kubectl(&format!("get --raw {stream}")), "wrong");

    let (mut following, mut output) = cluster.stream("logs -f web -c shell");
    let said = cluster.kubectl_with("exec -i web -c shell -- tee /proc/1/fd/1", "through exec\n");
    assert_eq!(said, "through exec");
    let mut said = Vec::new();
    while !said.iter().any(|line| line == "through exec\n") {
        let mut line = String::new();
        assert!(output.read_line(&mut line).expect("a line") > 0, "{said:?}");
        said.push(line);
    }
    assert_eq!(said.len(), 4, "{said:?}");
    // With its container a log ends.
    cluster.kubectl("exec web -c shell -- kill -9 1");
    cluster.kubectl("delete pod web --wait=false");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the end");
    assert!(following.wait().expect("it ends").success());
}

#[test]
fn commands_run_in_containers() {
    let cluster = Cluster::start().with_default_account();
    let _node = pod_on_a_node(&cluster);
    assert_eq!(cluster.kubectl("exec web -c shell -- hostname"), "web");
    assert_eq!(cluster.kubectl_with("exec -i web -c shell -- cat", "a\nb"), "a\nb");
    let failed = cluster.kubectl_args(&["exec", "web", "-c", "shell", "--", "sh", "-c", "exit 3"]);
    assert_eq!(failed, "error: command terminated with exit code 3");
    let missing = cluster.kubectl("exec web -c shell -- nothing");
    assert!(missing.starts_with("error: "), "{missing}");

    let from = cluster.folder.path().join("from");
    fs::write(&from, "copied").expect("a file");
    let copied = cluster.kubectl(&format!("cp {} default/web:/there -c shell", from.display()));
    assert_eq!(copied, "");
    assert_eq!(cluster.kubectl("exec web -c shell -- cat /there"), "copied");
    let back = cluster.folder.path().join("back");
    cluster.kubectl(&format!("cp default/web:/there {} -c shell", back.display()));
    assert_eq!(fs::read_to_string(&back).expect("a file"), "copied");

    let mut attached = cluster.command("attach -i web -c shell");
    attached.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut attached = attached.spawn().expect("kubectl runs");
    attached.stdin.as_mut().expect("a pipe").write_all(b"hello\n").expect("written");
    let mut output = std::io::BufReader::new(attached.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "got hello\n");
    attached.kill().expect("it runs");
    attached.wait().expect("it ends");
}

#[test]
fn ports_are_forwarded() {
    let cluster = Cluster::start().with_default_account();
    let _node = pod_on_a_node(&cluster);
    let (mut forwarding, mut output) =
        cluster.stream("port-forward pod/web :8080 --address 127.0.0.1");
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
    let port: u16 = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    for _ in 0..3 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("kubectl listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
            .expect("written");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("an answer");
        assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    }
    forwarding.kill().expect("it runs");
    forwarding.wait().expect("it ends");
}

#[test]
fn the_kubelet_tells_what_pods_use_to_those_who_may_know() {
    let cluster = Cluster::start().with_default_account();
    let _node = pod_on_a_node(&cluster);
    let node = cluster.json("get node node");
    let addresses = node["status"]["addresses"].as_array().expect("addresses");
    let address = addresses[0]["address"].as_str().expect("an address");
    // The API server passes nobody on to its own machine under that name.
    if !address.starts_with("127.") {
        let raw =
            |path: &str| cluster.kubectl(&format!("get --raw /api/v1/nodes/node/proxy/{path}"));
        let begun = Instant::now();
        loop {
            let summary: Value = serde_json::from_str(&raw("stats/summary")).expect("a summary");
            let pod = &summary["pods"][0];
            assert_eq!(pod["podRef"]["name"], "web", "{summary}");
            assert!(summary["node"]["memory"]["workingSetBytes"].as_u64() > Some(0), "{summary}");
            let containers = pod["containers"].as_array().expect("containers");
            let used = |one: &Value| one["memory"]["workingSetBytes"].as_u64() > Some(0);
            if containers.len() == 2 && containers.iter().all(used) {
                break;
            }
            assert!(begun.elapsed().as_secs() < 30, "{summary}");
        }
        let metrics = raw("metrics/resource");
        let sample = "container_memory_working_set_bytes{container=\"shell\",namespace=\"default\",pod=\"web\"} ";
        assert!(metrics.contains(sample), "{metrics}");
        assert!(raw("metrics/cadvisor").contains("container_memory_usage_bytes{"));
        assert!(raw("metrics").contains("kubelet_running_pods 1\n"));
        let pods: Value = serde_json::from_str(&raw("pods")).expect("a list");
        assert_eq!(pods["items"][0]["metadata"]["name"], "web");
        assert!(raw("runningpods/").contains("\"web\""));
        assert_eq!(raw("healthz"), "ok");
    }

    let port = &node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
    let curl = testkit::tools::program("curl", "curl");
    let ask = |path: &str, arguments: &[&str]| {
        let mut command = Command::new(&curl);
        command.args(["-sk", "-w", " %{http_code}", &format!("https://127.0.0.1:{port}{path}")]);
        let output = command.args(arguments).output().expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(ask("/pods", &[]), "Unauthorized 401");
    assert_eq!(ask("/pods", &["-H", "Authorization: Bearer made-up"]), "Unauthorized 401");
    let token = cluster.kubectl_with(
        "create --raw /api/v1/namespaces/default/serviceaccounts/default/token -f -",
        r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":[]}}"#,
    );
    let token: Value = serde_json::from_str(&token).expect("a token");
    let token =
        format!("Authorization: Bearer {}", token["status"]["token"].as_str().expect("text"));
    assert_eq!(
        ask("/configz", &["-H", &token]),
        "Forbidden (user=system:serviceaccount:default:default, verb=get, resource=nodes, subresource(s)=[configz proxy])\n 403"
    );
    cluster.kubectl("create clusterrole reader --verb=get --resource=nodes/pods");
    cluster.kubectl(
        "create clusterrolebinding reader --clusterrole=reader --serviceaccount=default:default",
    );
    assert!(ask("/pods", &["-H", &token]).ends_with(" 200"));
    assert!(ask("/metrics", &["-H", &token]).ends_with(" 403"));
}
