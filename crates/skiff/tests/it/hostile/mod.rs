//! What an attacker tries, as rows: who he is, what he may, what he sends, how slowly, and that he is
//! gone before the answer. One server a theme, one row an attack.
mod authorization;
mod broken;
mod certificates;
mod clients;
mod depth;
mod fuzz;
mod identity;
mod node;
mod pods;
mod proxies;
mod scope;

use crate::access::wait_until;
use crate::cluster::Cluster;
use crate::cluster::Cluster as Server;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use testkit::client::Endpoint;

/// A client that says exactly what it is told to.
pub struct Wire {
    address: String,
    admin: Arc<ClientConfig>,
    nobody: Arc<ClientConfig>,
    kubelet_client: Arc<ClientConfig>,
}

pub struct Answer {
    pub code: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The value of a header; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        found.next().map_or("", |(_, value)| value.trim())
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Who {
    Admin,
    Nobody,
    /// Who the server is to kubelets.
    KubeletClient,
}

impl Wire {
    pub fn new(cluster: &Cluster) -> Wire {
        let pki = cluster.folder.path().join("pki");
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(pki.join("ca.crt")).expect("a CA");
        roots.add(ca).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(roots.clone())
        };
        let with = |name: &str| {
            let file = |end: &str| pki.join(format!("{name}.{end}"));
            let chain = vec![CertificateDer::from_pem_file(file("crt")).expect("a certificate")];
            let key = PrivateKeyDer::from_pem_file(file("key")).expect("a key");
            Arc::new(builder().with_client_auth_cert(chain, key).expect("a client"))
        };
        let server =
            cluster.kubectl("config view --minify -o jsonpath={.clusters[0].cluster.server}");
        Wire {
            address: server.strip_prefix("https://").expect("an address").to_owned(),
            admin: with("admin"),
            nobody: Arc::new(builder().with_no_client_auth()),
            kubelet_client: with("apiserver-kubelet-client"),
        }
    }

    pub fn connect(&self, who: Who) -> StreamOwned<ClientConnection, TcpStream> {
        let config = match who {
            Who::Admin => &self.admin,
            Who::Nobody => &self.nobody,
            Who::KubeletClient => &self.kubelet_client,
        };
        let name = "127.0.0.1".try_into().expect("a name");
        let connection = ClientConnection::new(config.clone(), name).expect("a connection");
        let stream = TcpStream::connect(&self.address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        StreamOwned::new(connection, stream)
    }

    /// Asks `METHOD /path`, with these headers, and reads the answer to its end.
    pub fn ask(&self, who: Who, what: &str, headers: &[&[u8]], body: &str) -> Answer {
        let mut stream = self.connect(who);
        let mut request = format!("{what} HTTP/1.1\r\nHost: {}\r\n", self.address).into_bytes();
        for header in headers {
            request.extend_from_slice(header);
            request.extend_from_slice(b"\r\n");
        }
        let end = format!("Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        request.extend_from_slice(end.as_bytes());
        stream.write_all(&request).expect("sent");
        let mut bytes = Vec::new();
        // A server that closes without a farewell has said what it had to say.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let code = head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let body = match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            true => unchunked(body),
            false => body.to_owned(),
        };
        Answer { code, head: head.to_owned(), body }
    }

    /// The same as somebody else.
    pub fn ask_as(&self, user: &str, what: &str, headers: &[&str], body: &str) -> Answer {
        let acting = format!("Impersonate-User: {user}");
        let mut all: Vec<&[u8]> = vec![acting.as_bytes()];
        all.extend(headers.iter().map(|header| header.as_bytes()));
        self.ask(Who::Admin, what, &all, body)
    }

    /// Who the server takes the sender of such headers for.
    pub fn whoami(&self, who: Who, headers: &[&[u8]]) -> (u16, Value) {
        let review =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let mut all = headers.to_vec();
        all.push(JSON.as_bytes());
        let what = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer = self.ask(who, what, &all, &review.to_string());
        (answer.code, answer.json()["status"]["userInfo"].clone())
    }
}

pub const JSON: &str = "Content-Type: application/json";
pub const MERGE: &str = "Content-Type: application/merge-patch+json";
pub const APPLY: &str = "Content-Type: application/apply-patch+yaml";
pub const JSON_PATCH: &str = "Content-Type: application/json-patch+json";

fn unchunked(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        let Some(piece) = rest.get(..length).filter(|piece| !piece.is_empty()) else { break };
        out.push_str(piece);
        body = rest.get(length + 2..).unwrap_or_default();
    }
    out
}

/// Gives a user a role of these rules, in a namespace or everywhere, and waits until it holds.
pub fn grant(cluster: &Cluster, wire: &Wire, user: &str, namespace: Option<&str>, rules: Value) {
    let (kind, place) = match namespace {
        Some(_) => ("Role", json!(namespace)),
        None => ("ClusterRole", Value::Null),
    };
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let metadata = json!({ "name": user, "namespace": place });
    let role = json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules });
    let binding = json!({ "apiVersion": version, "kind": format!("{kind}Binding"), "metadata": metadata,
        "roleRef": { "apiGroup": group, "kind": kind, "name": user },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": user }] });
    let both = json!({ "apiVersion": "v1", "kind": "List", "items": [role, binding] });
    let made = cluster.kubectl_with("create -f -", &both.to_string());
    assert!(made.contains("binding"), "{made}");
    let wanted = json!({ "namespace": namespace.unwrap_or_default(),
        "verb": rules[0]["verbs"][0], "group": rules[0]["apiGroups"][0],
        "resource": rules[0]["resources"][0].as_str().and_then(|r| r.split('/').next()),
        "subresource": rules[0]["resources"][0].as_str().and_then(|r| r.split('/').nth(1)) });
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": wanted } });
    wait_until(|| {
        let what = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        wire.ask_as(user, what, &[JSON], &review.to_string()).json()["status"]["allowed"] == true
    });
}

/// The administrator, over HTTP/1.1: what is said on the wire is text.
fn admin(server: &Server) -> Arc<Endpoint> {
    Arc::new(Endpoint::read(&server.kubeconfig(), false).expect("a kubeconfig"))
}

fn nobody(server: &Server) -> Arc<Endpoint> {
    Arc::new(Endpoint::nobody(&server.kubeconfig(), false).expect("a kubeconfig"))
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(test);
}
