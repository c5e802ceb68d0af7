//! The commands about images and containers, beside a daemon on the same folders.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SKIFF: &str = env!("CARGO_BIN_EXE_skiff");

/// A runtime of the test's own.
pub struct Runtime {
    pub folder: tempfile::TempDir,
    daemon: Child,
}

impl Runtime {
    pub async fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("sk").tempdir().unwrap();
        let socket = folder.path().join("cri.sock");
        let daemon = Command::new(SKIFF)
            .args(["cri", "--listen", &format!("unix://{}", socket.display())])
            .args(places(folder.path()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let listening = async {
            while tokio::net::UnixStream::connect(&socket).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), listening).await.unwrap();
        Runtime { folder, daemon }
    }

    pub fn image(&self, arguments: &[&str]) -> String {
        let places = places(self.folder.path());
        output(Command::new(SKIFF).arg("image").args(places).args(arguments))
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let places = places(self.folder.path());
        let none = self.path("none");
        let others = ["data-dir", "kubelet-dir", "pod-logs-dir"].map(|o| format!("--{o}={none}"));
        let places = places.iter().filter(|place| !place.starts_with("--cni"));
        let mut reset = Command::new(SKIFF);
        let _ = reset.args(["reset", "--yes"]).args(places).args(others).output();
    }
}

fn places(folder: &Path) -> Vec<String> {
    let name = folder.file_name().unwrap().to_string_lossy();
    [
        ("root", folder.join("root")),
        ("state", folder.join("st")),
        ("cni-conf-dir", folder.join("n")),
    ]
    .map(|(option, path)| format!("--{option}={}", path.display()))
    .into_iter()
    .chain([format!("--cgroup-root=/skiff-{name}")])
    .collect()
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_machine_has_two_images_and_the_daemon_sees_what_is_imported() {
    let runtime = Runtime::start().await;
    let list = runtime.image(&["ls"]);
    for name in ["localhost/skiff/pause:latest", "localhost/skiff/demo:latest"] {
        assert!(list.contains(name), "{name} is not in\n{list}");
    }
    assert!(runtime.image(&["pull", "localhost/skiff/demo"]).contains("localhost/skiff/demo"));
    let shown: serde_json::Value =
        serde_json::from_str(&runtime.image(&["inspect", "localhost/skiff/demo"])).unwrap();
    assert_eq!(shown["defaults"]["Entrypoint"], serde_json::json!(["/skiff", "demo"]));

    let archive = runtime.path("busybox.tar");
    testkit::image::write_busybox(Path::new(&archive), "localhost/busybox:1", &[]).unwrap();
    runtime.image(&["import", &archive]);
    let socket = runtime.folder.path().join("cri.sock");
    let client = runtime::cri::Client::new(&socket).unwrap();
    let seen = async || {
        use runtime::cri::Cri;
        let list = client.list_images(Default::default()).await.unwrap().images;
        list.into_iter().flat_map(|image| image.repo_tags).collect::<Vec<_>>()
    };
    assert!(seen().await.contains(&"localhost/busybox:1".to_owned()));
    runtime.image(&["rm", "localhost/busybox:1"]);
    assert!(!seen().await.contains(&"localhost/busybox:1".to_owned()));
    let layers = std::fs::read_dir(runtime.path("root/layers")).unwrap().count();
    assert_eq!(layers, 1, "what nobody needs is gone at once; both built-in images share one");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_built_in_programs_end_when_asked() {
    for arguments in [&["pause"][..], &["demo", "--port", "0"]] {
        let mut child = Command::new(SKIFF)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Once it is asleep it has said which signals it hears.
        let ready = async {
            loop {
                let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
                let status = status.unwrap_or_default();
                let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t"));
                let caught = caught.and_then(|text| u64::from_str_radix(text, 16).ok());
                if caught.is_some_and(|signals| signals & 1 << 14 != 0) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ready).await.unwrap();
        output(Command::new("kill").arg(child.id().to_string()));
        let status = tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{arguments:?} ended with {status}");
    }
}
