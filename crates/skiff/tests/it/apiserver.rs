//! `skiff apiserver` in the place of upstream's: its flags, a real etcd below it.
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

pub fn etcd(folder: &Path) -> (Running, String) {
    let (client, peer) = (free_port(), free_port());
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let process = Command::new(testkit::tools::program("etcd", "etcd-server"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--data-dir"])
        .arg(folder.join("etcd"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts");
    (Running(process), client)
}

/// Starts a server and waits for the line that says it is ready; returns its address.
pub fn server(folder: &Path, arguments: &[&str]) -> (Running, String) {
    let given = arguments.iter().find(|argument| argument.starts_with("--secure-port="));
    let port = given.unwrap_or(&"--secure-port=0");
    let mut process = Command::new(env!("CARGO_BIN_EXE_skiff"))
        .args(["apiserver", "--bind-address=127.0.0.1", port, "--cert-dir"])
        .arg(folder.join("certs"))
        .args(arguments.iter().filter(|argument| *argument != port))
        .stdout(Stdio::piped())
        .spawn()
        .expect("skiff starts");
    let mut line = String::new();
    let output = process.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("skiff speaks");
    let address =
        line.trim().strip_prefix("the API server is ready at ").expect("ready").to_owned();
    (Running(process), address)
}

pub fn kubectl(folder: &Path, server: &str, arguments: &str) -> String {
    let output = command(folder, server, arguments).output().expect("kubectl runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => text(&output.stdout),
        false => format!("error: {}", text(&output.stderr)),
    }
}

pub fn command(folder: &Path, server: &str, arguments: &str) -> Command {
    let certs = folder.join("certs");
    let mut command = Command::new(testkit::tools::program("kubectl", "kubernetes-client"));
    command
        .arg(format!("--server={server}"))
        .arg(format!("--certificate-authority={}", certs.join("ca.crt").display()))
        .arg(format!("--client-certificate={}", certs.join("admin.crt").display()))
        .arg(format!("--client-key={}", certs.join("admin.key").display()))
        .args(arguments.split_whitespace())
        .env("KUBECONFIG", "/dev/null")
        .env("HOME", folder);
    command
}

#[test]
fn two_servers_share_an_etcd() {
    let folder = TempDir::new().expect("a folder");
    let (_etcd, client) = etcd(folder.path());
    let flag = format!("--etcd-servers={client}");
    let range = "--service-cluster-ip-range=10.20.0.0/16";
    let (first, one) = server(folder.path(), &[&flag, range]);
    let (_second, two) = server(folder.path(), &[&flag, range]);
    let created = kubectl(folder.path(), &one, "create configmap c --from-literal=a=b -n default");
    assert_eq!(created, "configmap/c created");
    let read = "get configmap c -n default -o jsonpath={.data.a}";
    assert_eq!(kubectl(folder.path(), &two, read), "b");
    let made = kubectl(folder.path(), &two, "create service clusterip s --tcp=80 -n default");
    assert_eq!(made, "service/s created");
    let service = kubectl(folder.path(), &one, "get service s -n default -o json");
    let service: Value = serde_json::from_str(&service).expect("JSON");
    let address = service["spec"]["clusterIP"].as_str().expect("an address");
    assert!(address.starts_with("10.20."), "{address}");
    drop(first);
    let changed = kubectl(folder.path(), &two, "label configmap c -n default x=y");
    assert_eq!(changed, "configmap/c labeled");
}

#[test]
fn a_flag_that_is_wrong_is_explained() {
    let folder = TempDir::new().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_skiff"))
        .args(["apiserver", "--tls-cert-file", "/nowhere", "--tls-private-key-file", "/nowhere"])
        .args(["--secure-port=0", "--cert-dir"])
        .arg(folder.path().join("certs"))
        .arg("--data-dir")
        .arg(folder.path())
        .output()
        .expect("skiff runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("failed to read /nowhere"), "{said}");
}

#[test]
fn a_profile_is_taken_where_that_is_switched_on() {
    let folder = TempDir::new().expect("a folder");
    let data = format!("--data-dir={}", folder.path().join("data").display());
    {
        let (_server, address) = server(folder.path(), &[&data]);
        let refused = kubectl(folder.path(), &address, "get --raw /debug/pprof/cmdline");
        assert!(refused.contains("could not find the requested resource"), "{refused}");
    }
    let (_server, address) = server(folder.path(), &[&data, "--profiling"]);
    let words = kubectl(folder.path(), &address, "get --raw /debug/pprof/cmdline");
    assert!(words.contains("--profiling"), "{words}");
    let refused = kubectl(folder.path(), &address, "get --raw /debug/pprof/cmdline --as=somebody");
    assert!(refused.contains("cannot get path \"/debug/pprof/cmdline\""), "{refused}");
    let profile = folder.path().join("profile");
    let certs = folder.path().join("certs");
    let taken = Command::new(testkit::tools::program("curl", "curl"))
        .args(["--silent", "--fail", "--output"])
        .arg(&profile)
        .arg("--cacert")
        .arg(certs.join("ca.crt"))
        .arg("--cert")
        .arg(certs.join("admin.crt"))
        .arg("--key")
        .arg(certs.join("admin.key"))
        .arg(format!("{address}/debug/pprof/profile?seconds=1"))
        .status()
        .expect("curl runs");
    assert!(taken.success());
    let bytes = std::fs::read(&profile).expect("a profile");
    assert!(bytes.starts_with(&[0x1f, 0x8b]), "it is compressed");
}

#[test]
fn components_say_how_they_are() {
    let folder = TempDir::new().expect("a folder");
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let (_server, address) = server(folder.path(), &[&data]);
    let list = kubectl(folder.path(), &address, "get componentstatuses -o json");
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let items = list["items"].as_array().expect("items");
    let find = |name: &str| items.iter().find(|item| item["metadata"]["name"] == name);
    let etcd = find("etcd-0").expect("the store");
    assert_eq!(etcd["conditions"][0]["status"], "True", "{etcd}");
    assert!(find("scheduler").is_some() && find("controller-manager").is_some(), "{list}");
    let etcd = kubectl(folder.path(), &address, "get cs etcd-0");
    assert!(etcd.contains("Healthy"), "{etcd}");
    let missing = kubectl(folder.path(), &address, "get cs nobody");
    assert!(missing.contains("NotFound"), "{missing}");
}
