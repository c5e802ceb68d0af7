//! The binary under the names and flags by which controller-runtime's `envtest` starts a control plane:
//! links called `etcd` and `kube-apiserver`, asked what flags they know, started, asked whether they are
//! well, used, and ended.
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Ended when the test does, however it does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(folder: &Path, program: &str, flags: &[String]) -> Running {
        let mut command = Command::new(folder.join(program));
        command.args(flags).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().expect("it starts"))
    }

    /// As envtest ends it: by SIGTERM, and it has twenty seconds for that.
    fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let begun = Instant::now();
        self.0.wait().expect("a child");
        assert!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
    }
}

fn curl(arguments: &[&str]) -> Output {
    let curl = testkit::tools::program("curl", "curl");
    Command::new(curl).args(["-s", "-f", "--max-time", "5"]).args(arguments).output().expect("curl")
}

fn wait_until_well(process: &mut Running, url: &str) {
    let begun = Instant::now();
    while !curl(&["-k", url]).status.success() {
        assert!(process.0.try_wait().expect("a child").is_none(), "it ended");
        assert!(begun.elapsed() < Duration::from_secs(20), "{url} is never well");
    }
}

/// Whether `--help` names a flag, by the pattern that envtest looks for.
fn knows(folder: &Path, program: &str, flag: &str) -> bool {
    let help = Command::new(folder.join(program)).arg("--help").output().expect("it runs");
    assert!(help.status.success());
    let named = |line: &str| {
        let rest = line.trim_start().strip_prefix("--").and_then(|line| line.strip_prefix(flag));
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    String::from_utf8_lossy(&help.stdout).lines().any(named)
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port()
}

/// The certificates that envtest makes: of the server, of the key that signs tokens, of its clients.
fn write_certificates(folder: &Path) {
    let authority = |name: &str| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let write =
        |name: &str, text: String| std::fs::write(folder.join(name), text).expect("written");
    let key = KeyPair::generate().expect("a key");
    write("sa-signer.crt", authority("envtest-environment").self_signed(&key).expect("one").pem());
    write("sa-signer.key", key.serialize_pem());
    let key = KeyPair::generate().expect("a key");
    write("serving-ca.crt", authority("serving").self_signed(&key).expect("a CA").pem());
    let issuer = Issuer::new(authority("serving"), key);
    let serving = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    let key = KeyPair::generate().expect("a key");
    write("apiserver.crt", serving.signed_by(&key, &issuer).expect("a certificate").pem());
    write("apiserver.key", key.serialize_pem());
    let key = KeyPair::generate().expect("a key");
    write("client-cert-auth-ca.crt", authority("clients").self_signed(&key).expect("a CA").pem());
    let issuer = Issuer::new(authority("clients"), key);
    let mut client = CertificateParams::default();
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    client.distinguished_name.push(DnType::CommonName, "admin");
    client.distinguished_name.push(DnType::OrganizationName, "system:masters");
    let key = KeyPair::generate().expect("a key");
    write("client.crt", client.signed_by(&key, &issuer).expect("a certificate").pem());
    write("client.key", key.serialize_pem());
}

#[test]
fn the_binary_is_the_control_plane_that_envtest_starts() {
    let folder = TempDir::new().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    for name in ["etcd", "kube-apiserver"] {
        symlink(env!("CARGO_BIN_EXE_skiff"), folder.path().join(name)).expect("a link");
    }
    write_certificates(folder.path());
    // What it asks before: the first decides whether it gives the flag, the other must be unknown.
    assert!(knows(folder.path(), "etcd", "unsafe-no-fsync"));
    assert!(!knows(folder.path(), "kube-apiserver", "insecure-port"));

    let (store, peers, port) = (free_port(), free_port(), free_port());
    let flags = [
        format!("--advertise-client-urls=http://127.0.0.1:{store}"),
        format!("--data-dir={}", at("data")),
        format!("--listen-client-urls=http://127.0.0.1:{store}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peers}"),
        "--unsafe-no-fsync=true".into(),
    ];
    let mut etcd = Running::start(folder.path(), "etcd", &flags);
    wait_until_well(&mut etcd, &format!("http://127.0.0.1:{store}/health"));
    let flags = [
        "--allow-privileged=true".into(),
        "--authorization-mode=RBAC".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--cert-dir={}", folder.path().display()),
        format!("--client-ca-file={}", at("client-cert-auth-ca.crt")),
        "--disable-admission-plugins=ServiceAccount".into(),
        format!("--etcd-servers=http://127.0.0.1:{store}"),
        format!("--secure-port={port}"),
        format!("--service-account-issuer=https://127.0.0.1:{port}/"),
        format!("--service-account-key-file={}", at("sa-signer.crt")),
        format!("--service-account-signing-key-file={}", at("sa-signer.key")),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
    ];
    let mut api = Running::start(folder.path(), "kube-apiserver", &flags);
    let server = format!("https://127.0.0.1:{port}");
    wait_until_well(&mut api, &format!("{server}/healthz"));

    let (certificate, key, trusted) = (at("client.crt"), at("client.key"), at("serving-ca.crt"));
    let ask = |path: &str, body: &str| -> Value {
        let url = format!("{server}{path}");
        let mut arguments = vec!["--cacert", &*trusted, "--cert", &*certificate, "--key", &*key];
        arguments.extend(["-H", "content-type: application/json", &*url]);
        if !body.is_empty() {
            arguments.extend(["-d", body]);
        }
        let output = curl(&arguments);
        assert!(output.status.success(), "{path}: {output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    // The namespace is there as soon as the server is well.
    assert_eq!(ask("/api/v1/namespaces/default", "")["metadata"]["name"], "default");
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
        "spec": { "containers": [{ "name": "a", "image": "a",
            "securityContext": { "privileged": true } }] } });
    ask("/api/v1/namespaces/default/pods", &pod.to_string());
    let token =
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "a" } });
    ask("/api/v1/namespaces/default/serviceaccounts", &token.to_string());
    let token = ask("/api/v1/namespaces/default/serviceaccounts/a/token", "{}");
    assert!(token["status"]["token"].is_string(), "{token}");
    // What it was given is still what it was given, and nothing was put beside it.
    assert!(!folder.path().join("ca.key").exists());
    api.end();
    etcd.end();
}
