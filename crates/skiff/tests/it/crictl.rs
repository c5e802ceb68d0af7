//! `skiff crictl` and real containers: a sandbox from its first line to its last.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
use crate::images::Runtime;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const SKIFF: &str = env!("CARGO_BIN_EXE_skiff");
const IMAGE: &str = "localhost/busybox:1";

fn crictl(runtime: &Runtime, arguments: &[&str]) -> Command {
    let mut command = Command::new(SKIFF);
    let endpoint = format!("unix://{}", runtime.path("cri.sock"));
    command.args(["crictl", "-t", "20s", "-r", &endpoint]).args(arguments).stdin(Stdio::null());
    command
}

fn ended(runtime: &Runtime, arguments: &[&str]) -> Output {
    crictl(runtime, arguments).output().unwrap()
}

/// What a command line that goes well prints.
fn told(runtime: &Runtime, arguments: &[&str]) -> String {
    let output = ended(runtime, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// What one that does not go well says.
fn fault(runtime: &Runtime, arguments: &[&str]) -> String {
    let output = ended(runtime, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Files that describe a sandbox and a container that says a word now and then.
fn configs(runtime: &Runtime) -> (String, String) {
    let (pod, container) = (runtime.path("pod.yaml"), runtime.path("container.json"));
    let logs = runtime.path("logs");
    let text = format!(
        "metadata: {{name: web-0, namespace: default, uid: u}}\nlog_directory: {logs}\n\
         linux: {{security_context: {{namespace_options: {{network: 2}}}}}}\n"
    );
    std::fs::write(&pod, text).unwrap();
    let script = "printf 'one\\n\\033[2Jtwo\\377\\n'; echo three >&2; trap 'exit 0' TERM; \
                  while true; do sleep 0.1; done";
    let config = serde_json::json!({
        "metadata": { "name": "main" },
        "image": { "image": IMAGE },
        "command": ["sh", "-c", script],
        "envs": [{ "key": "WORD", "value": "a b" }],
        "labels": { "io.kubernetes.pod.name": "web-0", "io.kubernetes.pod.namespace": "default" },
        "log_path": "main.log",
    });
    std::fs::write(&container, config.to_string()).unwrap();
    (pod, container)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_from_its_first_line_to_its_last() {
    let runtime = Runtime::start().await;
    let archive = runtime.path("busybox.tar");
    testkit::image::write_busybox(Path::new(&archive), IMAGE, &[]).unwrap();
    runtime.image(&["import", &archive]);
    let (pod_file, container_file) = configs(&runtime);
    assert!(told(&runtime, &["images"]).contains("localhost/busybox"));
    assert!(told(&runtime, &["version"]).contains("RuntimeApiVersion:  v1"));

    let pod = told(&runtime, &["runp", &pod_file]);
    let id = told(&runtime, &["create", "--no-pull", &pod, &container_file, &pod_file]);
    assert_eq!(told(&runtime, &["ps", "-a", "--state", "created", "-q"]), id);
    assert_eq!(told(&runtime, &["start", &id]), id);
    let pods = told(&runtime, &["pods"]);
    assert!(
        pods.contains(&pod[..13]) && pods.contains("Ready") && pods.contains("web-0"),
        "{pods}"
    );
    let listed = told(&runtime, &["ps"]);
    for word in [&id[..13], "Running", "main", &pod[..13], "web-0", "default"] {
        assert!(listed.contains(word), "{word} is not in\n{listed}");
    }

    let shown: serde_json::Value =
        serde_json::from_str(&told(&runtime, &["inspect", &id])).unwrap();
    assert_eq!(shown["status"]["state"], "CONTAINER_RUNNING");
    assert_eq!(shown["status"]["metadata"]["name"], "main");
    assert!(shown["info"].is_object() || shown["info"].is_string() || shown["info"].is_null());
    let template =
        ["inspectp", "-o", "go-template", "--template", "{{.status.metadata.name}}", &pod];
    assert_eq!(told(&runtime, &template), "web-0");

    // Bytes of a log are a container's own.
    let logs = || ended(&runtime, &["logs", &id]);
    until("the log", || logs().stderr == b"three\n").await;
    assert_eq!(logs().stdout, b"one\n\x1b[2Jtwo\xff\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_in_containers() {
    let runtime = Runtime::start().await;
    let archive = runtime.path("busybox.tar");
    testkit::image::write_busybox(Path::new(&archive), IMAGE, &[]).unwrap();
    runtime.image(&["import", &archive]);
    let (pod_file, container_file) = configs(&runtime);
    let id = told(&runtime, &["run", "--no-pull", &container_file, &pod_file]);
    let pod = told(&runtime, &["pods", "-q"]);

    assert_eq!(told(&runtime, &["exec", &id, "sh", "-c", "echo $WORD"]), "a b");
    assert_eq!(told(&runtime, &["exec", "-s", &id, "echo", "-n", "x"]), "x");
    let failed = fault(&runtime, &["exec", &id, "sh", "-c", "exit 7"]);
    assert!(failed.contains("command terminated with exit code 7"), "{failed}");
    let failed = fault(&runtime, &["exec", "--sync", &id, "sh", "-c", "exit 7"]);
    assert!(failed.contains("exited with 7"), "{failed}");
    let mut cat = crictl(&runtime, &["exec", "-i", &id, "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    cat.stdin.take().unwrap().write_all(b"to and fro").unwrap();
    assert_eq!(cat.wait_with_output().unwrap().stdout, b"to and fro");
    assert!(fault(&runtime, &["exec", "-it", &id, "sh"]).contains("input is not a terminal"));

    let running = fault(&runtime, &["rm", &id]);
    assert!(running.contains("is running, please stop it first"), "{running}");
    // A log that is followed ends with its container.
    let follower = crictl(&runtime, &["logs", "-f", &id]).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(told(&runtime, &["stop", "-t", "10", &id]), id);
    assert!(follower.wait_with_output().unwrap().stdout.starts_with(b"one\n"));
    assert_eq!(told(&runtime, &["ps", "-q"]), "");
    assert_eq!(
        told(
            &runtime,
            &["inspect", "-o", "go-template", "--template", "{{.status.exitCode}}", &id]
        ),
        "0"
    );
    assert_eq!(told(&runtime, &["rm", &id]), id);
    assert!(!Path::new(&runtime.path("logs/main.log")).exists(), "its log goes with it");
    assert!(fault(&runtime, &["inspect", &id]).contains("NotFound"));
    assert!(fault(&runtime, &["rmp", &pod]).contains("is running, please stop it first"));
    assert!(told(&runtime, &["rmp", "-f", &pod]).ends_with(&format!("Removed sandbox {pod}")));
    assert_eq!(told(&runtime, &["pods", "-q"]), "");
    assert_eq!(told(&runtime, &["rmi", IMAGE]), format!("Deleted: {IMAGE}"));
    assert!(fault(&runtime, &["start", "--", "--all"]).contains("NotFound"));
}
