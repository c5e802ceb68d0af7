//! Real etcd, as Debian has it, on loopback; installed if it is missing.
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub struct Cluster {
    pub members: Vec<Member>,
    directory: TempDir,
    tls: Option<Pki>,
}

pub struct Member {
    pub name: String,
    pub client_url: String,
    child: Option<Child>,
    arguments: Vec<String>,
}

/// Certificates for loopback, as PEM.
#[derive(Clone)]
pub struct Pki {
    pub ca: String,
    pub server: (String, String),
    pub client: (String, String),
}

impl Pki {
    pub fn new() -> Self {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
        let ca_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::new(params, ca_key);
        let leaf = || {
            let key = KeyPair::generate().unwrap();
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
            (leaf.pem(), key.serialize_pem())
        };
        Pki { ca, server: leaf(), client: leaf() }
    }
}

/// Fails the test loudly if etcd can neither be found nor installed.
pub fn ensure_installed() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let found = |name: &str| Command::new(name).arg("--help").output().is_ok();
        if found("etcd") && found("etcdctl") {
            return;
        }
        let install = Command::new("apt-get")
            .args(["install", "-y", "--no-install-recommends", "etcd-server", "etcd-client"])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .output()
            .expect("etcd is not installed and there is no apt-get to install it");
        assert!(install.status.success(), "{}", String::from_utf8_lossy(&install.stderr));
    });
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Cluster {
    pub async fn start(size: usize, tls: Option<Pki>) -> Self {
        ensure_installed();
        let directory = tempfile::tempdir().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let ports: Vec<(u16, u16)> = (0..size).map(|_| (free_port(), free_port())).collect();
        let initial: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(i, (_, peer))| format!("m{i}=http://127.0.0.1:{peer}"))
            .collect();
        let mut members = Vec::new();
        for (i, (client, peer)) in ports.iter().enumerate() {
            let (client, peer) =
                (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
            let data = directory.path().join(format!("m{i}"));
            let mut arguments: Vec<String> = [
                ("--name", format!("m{i}")),
                ("--data-dir", data.display().to_string()),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client.clone()),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer),
                ("--initial-cluster", initial.join(",")),
                ("--logger", "zap".into()),
                ("--log-level", "error".into()),
            ]
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .collect();
            if let Some(pki) = &tls {
                let file = |name: &str, pem: &str| {
                    let path = directory.path().join(name);
                    std::fs::write(&path, pem).unwrap();
                    path.display().to_string()
                };
                arguments.extend([
                    "--client-cert-auth".into(),
                    format!("--trusted-ca-file={}", file("ca.pem", &pki.ca)),
                    format!("--cert-file={}", file("server.pem", &pki.server.0)),
                    format!("--key-file={}", file("server-key.pem", &pki.server.1)),
                ]);
                file("client.pem", &pki.client.0);
                file("client-key.pem", &pki.client.1);
            }
            let name = format!("m{i}");
            members.push(Member { name, client_url: client, child: None, arguments });
        }
        let mut cluster = Cluster { members, directory, tls };
        for i in 0..size {
            cluster.spawn(i);
        }
        cluster.wait_healthy().await;
        cluster
    }

    pub fn spawn(&mut self, i: usize) {
        let member = &mut self.members[i];
        let child = Command::new("etcd")
            .args(&member.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        member.child = Some(child);
    }

    /// As `kill -9`.
    pub fn kill(&mut self, i: usize) {
        if let Some(mut child) = self.members[i].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client_url.clone()).collect()
    }

    /// Runs `etcdctl` on one member.
    pub fn etcdctl(&self, i: usize, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(&self.members[i].client_url);
        if self.tls.is_some() {
            let path = |name: &str| self.directory.path().join(name);
            command.arg("--cacert").arg(path("ca.pem")).arg("--cert").arg(path("client.pem"));
            command.arg("--key").arg(path("client-key.pem"));
        }
        command.args(arguments).output().unwrap()
    }

    pub async fn wait_healthy(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        for i in 0..self.members.len() {
            while !self.etcdctl(i, &["endpoint", "health"]).status.success() {
                assert!(Instant::now() < deadline, "etcd {} did not start", self.members[i].name);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    pub fn leader(&self) -> Option<usize> {
        (0..self.members.len()).find(|i| {
            let output = self.etcdctl(*i, &["endpoint", "status", "-w", "fields"]).stdout;
            let text = String::from_utf8_lossy(&output).into_owned();
            let field = |name: &str| {
                let line = text.lines().find(|line| line.starts_with(&format!("\"{name}\"")))?;
                Some(line.split(" : ").nth(1)?.to_owned())
            };
            field("Leader").is_some() && field("Leader") == field("MemberID")
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for i in 0..self.members.len() {
            self.kill(i);
        }
    }
}
