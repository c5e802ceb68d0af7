//! The etcd face, driven by the real `etcdctl` and by our own etcd engine.
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use store::embedded::{Embedded, Options, backup};
use store::etcd::{Etcd, EtcdOptions, EtcdTls};
use store::face::{Face, FaceError, FaceTls, Listen};
use store::*;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::contract::check_contract;
use crate::etcd_server::{Pki, ensure_installed};

struct Served {
    engine: Embedded,
    url: String,
    directory: TempDir,
    arguments: Vec<String>,
    _stop: oneshot::Sender<()>,
}

async fn serve(listen: Listen, pki: Option<Pki>) -> Served {
    ensure_installed();
    let directory = tempfile::tempdir().unwrap();
    let engine = Embedded::open(&directory.path().join("data"), Options::default()).unwrap();
    let mut arguments = Vec::new();
    let tls = pki.map(|pki| {
        for (flag, name, pem) in [
            ("--cacert", "ca.pem", &pki.ca),
            ("--cert", "client.pem", &pki.client.0),
            ("--key", "client-key.pem", &pki.client.1),
        ] {
            let path = directory.path().join(name);
            std::fs::write(&path, pem).unwrap();
            arguments.extend([flag.to_owned(), path.display().to_string()]);
        }
        let (certificate, key) = pki.server;
        FaceTls { certificate, key, client_ca: Some(pki.ca) }
    });
    let face = Face::bind(listen, tls).await.unwrap();
    let url = face.url().to_owned();
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move { drop(stopped.await) };
    let serving = engine.clone();
    tokio::spawn(async move { face.serve(serving, shutdown).await.unwrap() });
    Served { engine, url, directory, arguments, _stop: stop }
}

fn loopback() -> Listen {
    Listen::Tcp("127.0.0.1:0".parse().unwrap())
}

impl Served {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        // Without its scheme: etcdctl 3.4 would send "http://…" as the request's authority in
        // some commands, which is no authority, and HTTP/2 refuses it.
        let endpoint = self.url.trim_start_matches("http://");
        command.env("ETCDCTL_API", "3").args(["--endpoints", endpoint]).args(&self.arguments);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What `etcdctl` prints; on failure what it complains about.
    async fn etcdctl(
        &self,
        arguments: &[&str],
        input: &str,
    ) -> std::result::Result<String, String> {
        let mut child = self.command(arguments).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        // Not on the runtime's thread: the server may need it.
        let output =
            tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }
}

async fn check_etcdctl(served: &Served) {
    let run = async |line: &str| served.etcdctl(&line.split(' ').collect::<Vec<_>>(), "").await;
    for (line, expected) in [
        ("put /a 1", "OK"),
        ("put /a 2 --prev-kv", "OK\n/a\n1"),
        ("put /b 1", "OK"),
        ("get /a", "/a\n2"),
        ("get --prefix / --keys-only", "/a\n\n/b"),
        ("get --prefix / --order=DESCEND --sort-by=KEY --print-value-only", "1\n2"),
        ("get --prefix / --sort-by=MODIFY --order=ASCEND --limit=1", "/a\n2"),
        ("get /a --rev=2", "/a\n1"),
        ("get --from-key /b", "/b\n1"),
        ("del /a --prev-kv", "1\n/a\n2"),
        ("del --prefix /none", "0"),
        ("get /a", ""),
        ("lease grant 100 --hex", "lease 0000000000000001 granted with TTL(100s)"),
        ("put /leased 1 --lease=1", "OK"),
        ("lease list --hex", "found 1 leases\n0000000000000001"),
        ("lease keep-alive --once 1", "lease 0000000000000001 keepalived with TTL(100)"),
        ("lease revoke 1", "lease 0000000000000001 revoked"),
        ("get /leased", ""),
        ("compact 3", "compacted revision 3"),
        ("defrag", "Finished defragmenting etcd member["),
    ] {
        let printed = run(line).await.unwrap();
        if line == "lease grant 100 --hex" || line == "defrag" || line.starts_with("lease list") {
            assert!(
                printed.starts_with(expected.split(" granted").next().unwrap()),
                "{line}: {printed}"
            );
        } else {
            assert_eq!(printed, expected, "{line}");
        }
    }
    for (line, complaint) in [
        ("get /a --rev=2", "required revision has been compacted"),
        ("get /a --rev=1000", "required revision is a future revision"),
        ("put /x 1 --lease=99", "requested lease not found"),
    ] {
        let complained = run(line).await.unwrap_err();
        assert!(complained.contains(complaint), "{line}: {complained}");
    }
    let txn = "mod(\"/b\") > \"0\"\n\nput /won 1\nget /b\n\nput /lost 1\n\n";
    assert_eq!(served.etcdctl(&["txn"], txn).await.unwrap(), "SUCCESS\n\nOK\n\n/b\n1");
    let txn = "version(\"/b\") = \"9\"\n\nput /won 2\n\ndel /won\n\n";
    assert_eq!(served.etcdctl(&["txn"], txn).await.unwrap(), "FAILURE\n\n1");
    let status = run("endpoint status -w fields").await.unwrap();
    assert!(status.contains(&format!("\"Revision\" : {}", served.engine.revision())), "{status}");
    assert!(run("endpoint health").await.is_ok());
    assert!(run("member list").await.unwrap().contains("skiff"));
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_works_on_loopback() {
    check_etcdctl(&serve(loopback(), None).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_works_with_tls_and_client_certificates() {
    let pki = Pki::new();
    let served = serve(loopback(), Some(pki.clone())).await;
    check_etcdctl(&served).await;
    let tls = EtcdTls { ca: pki.ca, certificate: None, key: None };
    let timeout = Duration::from_millis(500);
    let options = EtcdOptions { tls: Some(tls), timeout, ..EtcdOptions::new([&*served.url]) };
    assert!(Etcd::connect(options).await.is_err(), "no certificate, no entry");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_serves_the_contract() {
    // With our own client: etcdctl 3.4 sends the socket's path as the request's authority, which
    // HTTP/2 refuses; later ones send "localhost".
    let place = tempfile::tempdir().unwrap();
    let served = serve(Listen::Unix(place.path().join("etcd.sock")), None).await;
    let store: Store = Etcd::connect(EtcdOptions::new([&*served.url])).await.unwrap().into();
    check_contract(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_watches() {
    let served = serve(loopback(), None).await;
    let put = async |key: &str, value: &str| {
        let txn = Txn { success: vec![Op::put(key, value.to_owned(), 0)], ..Txn::default() };
        served.engine.txn(txn).await.unwrap();
    };
    put("/w/a", "old").await;
    let mut child =
        served.command(&["watch", "--prefix", "/w/", "--rev=1", "--prev-kv"]).spawn().unwrap();
    let output = child.stdout.take().unwrap();
    put("/w/a", "new").await;
    let delete = Txn { success: vec![Op::Delete(KeyRange::key("/w/a"))], ..Txn::default() };
    served.engine.txn(delete).await.unwrap();
    let reading = tokio::task::spawn_blocking(|| {
        let mut lines = BufReader::new(output).lines().map(|line| line.unwrap());
        let mut read: Vec<String> = lines.by_ref().take_while(|line| line != "DELETE").collect();
        read.extend(lines.take(3));
        read
    });
    let lines = tokio::time::timeout(Duration::from_secs(20), reading).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let text = lines.expect("all events arrive").unwrap().join("|");
    assert_eq!(text, "PUT|/w/a|old|PUT|/w/a|old|/w/a|new|/w/a|new|/w/a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_saved_by_etcdctl_can_be_restored() {
    let served = serve(loopback(), None).await;
    for i in 0..3000 {
        let put = Op::put(format!("/{i:04}"), vec![b'x'; 100], 0);
        let txn = Txn { success: vec![put], durability: Durability::Coalescible, ..Txn::default() };
        served.engine.txn(txn).await.unwrap();
    }
    let file = served.directory.path().join("snapshot.db");
    served.etcdctl(&["snapshot", "save", file.to_str().unwrap()], "").await.unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().len() % 512, 32, "whole sectors and a SHA-256");
    let restored = served.directory.path().join("restored");
    let info = backup::restore(&file, &restored, 0).unwrap();
    assert_eq!((info.keys, info.revision), (3000, 3001));
    let copy = Embedded::open(&restored, Options::default()).unwrap();
    let all = RangeRequest::new(KeyRange::prefix(""));
    assert_eq!(copy.range(&all).unwrap().kvs, served.engine.range(&all).unwrap().kvs);
}

#[tokio::test(flavor = "multi_thread")]
async fn our_etcd_engine_keeps_the_contract_over_our_face() {
    let served = serve(loopback(), None).await;
    let store: Store = Etcd::connect(EtcdOptions::new([&*served.url])).await.unwrap().into();
    assert!(store.answers_progress(), "so that the contract's case of progress is run");
    check_contract(&store).await;
}

#[tokio::test]
async fn a_network_address_is_refused() {
    let refused = Face::bind(Listen::Tcp("0.0.0.0:0".parse().unwrap()), None).await;
    assert!(matches!(refused, Err(FaceError::NotLoopback(_))));
}

/// Calls over HTTP/1.1 are what a page in a browser can send to any place, whatever its origin.
#[tokio::test]
async fn a_page_in_a_browser_writes_nothing() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let served = serve(loopback(), None).await;
    let ask = async |head: &str, body: &[u8]| {
        let address = served.url.trim_start_matches("http://");
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let rest = format!(
            " HTTP/1.1\r\nHost: {address}\r\nOrigin: http://evil.example\r\nConnection: close\r\n\
             Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), rest.as_bytes(), body].concat()).await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        said.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let put = b"\0\0\0\0\x09\x0a\x04evil\x12\x01x";
    assert_eq!(ask("POST /etcdserverpb.KV/Put", put).await, "505");
    let all = RangeRequest::new(KeyRange::prefix(""));
    assert_eq!(served.engine.range(&all).unwrap().kvs.len(), 0);
    // Whoever waits until it is ready may ask so.
    assert_eq!(ask("GET /health", b"").await, "200");
}
