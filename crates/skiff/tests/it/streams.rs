//! What the server passes on: logs and streams of pods, answered by a kubelet.
use crate::cluster::Cluster;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

/// Something that answers as a kubelet would: logs as text, everything else by echoing its path.
fn kubelet(cluster: &Cluster) -> u16 {
    let pki = cluster.folder.path().join("pki");
    let certificate =
        CertificateDer::from_pem_file(pki.join("apiserver.crt")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(pki.join("apiserver.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let connection = rustls::ServerConnection::new(config.clone()).expect("a connection");
            std::thread::spawn(move || answer(rustls::StreamOwned::new(connection, stream)));
        }
    });
    port
}

fn answer(mut stream: impl Read + Write) {
    let mut reader = BufReader::new(&mut stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let upgrades = head.iter().any(|line| line.to_lowercase().starts_with("upgrade:"));
    let path = head[0].split_whitespace().nth(1).unwrap_or_default().to_owned();
    if upgrades {
        let agreed =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
        let _ = stream.write_all(format!("{agreed}{path}\n").as_bytes());
        let mut bytes = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            let _ = stream.write_all(&bytes[..count]);
            let _ = stream.flush();
        }
        return;
    }
    let body = format!("you asked for {path}\n");
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
    let _ = stream.flush();
}

/// A node with that kubelet, and a pod on it.
fn pod_on_a_node(cluster: &Cluster) {
    let port = kubelet(cluster);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    cluster.kubectl_with("create -f -", &node.to_string());
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    cluster.kubectl_args(&[
        "patch",
        "node",
        "n",
        "--subresource=status",
        "--type=merge",
        "-p",
        &status.to_string(),
    ]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let created = cluster.kubectl_with("create -f -", &pod.to_string());
    assert_eq!(created, "pod/p created");
}

#[test]
fn logs_come_from_the_pods_kubelet() {
    let cluster = Cluster::start().with_default_account();
    pod_on_a_node(&cluster);
    let logs = cluster.kubectl("logs p -n default --tail=7 --timestamps");
    assert_eq!(logs, "you asked for /containerLogs/default/p/c?timestamps=true&tailLines=7");
    let missing = cluster.kubectl("get --raw /api/v1/namespaces/default/pods/p/log?container=x");
    assert!(missing.contains("container x is not valid for pod p"), "{missing}");
}

#[test]
fn a_stream_is_a_pipe_to_the_pods_kubelet() {
    let cluster = Cluster::start().with_default_account();
    pod_on_a_node(&cluster);
    let mut stream = connect(&cluster);
    let path = "/api/v1/namespaces/default/pods/p/exec?command=ls&command=-l&stdout=true";
    write!(stream, "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 0\r\n\r\n")
        .expect("sent");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer");
    assert!(line.starts_with("HTTP/1.1 101"), "{line}");
    while line.trim() != "" {
        line.clear();
        reader.read_line(&mut line).expect("a header");
    }
    line.clear();
    reader.read_line(&mut line).expect("the path");
    assert_eq!(line.trim(), "/exec/default/p/c?command=ls&command=-l&output=1");
    reader.get_mut().write_all(b"hello\n").expect("sent");
    line.clear();
    reader.read_line(&mut line).expect("an echo");
    assert_eq!(line, "hello\n");
}

#[test]
fn a_log_can_be_a_websocket() {
    let cluster = Cluster::start().with_default_account();
    pod_on_a_node(&cluster);
    let text = "you asked for /containerLogs/default/p/c?tailLines=7\n";
    let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    for (protocol, kind, expected) in
        [("", 0x82, text), ("binary.k8s.io", 0x82, text), ("base64.binary.k8s.io", 0x81, &*base64)]
    {
        let mut stream = connect(&cluster);
        let offer = match protocol {
            "" => String::new(),
            protocol => format!("Sec-WebSocket-Protocol: other, {protocol}\r\n"),
        };
        let path = "/api/v1/namespaces/default/pods/p/log?tailLines=7";
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{offer}\r\n")
            .expect("sent");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).expect("a header"), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 101"), "{protocol}: {head}");
        let agreed = format!("sec-websocket-protocol: {protocol}\r\n");
        assert_eq!(head.to_lowercase().contains(&agreed), !protocol.is_empty(), "{head}");
        let mut frame = || {
            let mut start = [0; 2];
            reader.read_exact(&mut start).expect("a frame");
            let mut body = vec![0; usize::from(start[1])];
            reader.read_exact(&mut body).expect("a body");
            (start[0], String::from_utf8_lossy(&body).into_owned())
        };
        assert_eq!(frame(), (kind, String::new()), "{protocol}");
        assert_eq!(frame(), (kind, expected.to_owned()), "{protocol}");
        assert_eq!(frame().0, 0x88, "{protocol}: it is closed");
    }
}

#[test]
fn a_watch_can_be_a_websocket() {
    let cluster = Cluster::start();
    cluster.kubectl("create configmap one -n default");
    let mut stream = connect(&cluster);
    let path = "/api/v1/namespaces/default/configmaps?watch=true";
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .expect("sent");
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).expect("a header");
    }
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    // The answer to this key is the specification's own example.
    assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    let mut start = [0; 4];
    reader.read_exact(&mut start).expect("a frame");
    assert_eq!(start[..2], [0x81, 126], "a whole text message of middling length");
    let length = usize::from(u16::from_be_bytes([start[2], start[3]]));
    let mut event = vec![0; length];
    reader.read_exact(&mut event).expect("an event");
    let event: serde_json::Value = serde_json::from_slice(&event).expect("JSON");
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["name"]),
        (&"ADDED".into(), &"one".into())
    );
}

/// A connection to the server as its administrator.
fn connect(cluster: &Cluster) -> impl Read + Write + use<> {
    let config = std::fs::read_to_string(cluster.folder.path().join("kubeconfig")).expect("a file");
    let port: u16 = config
        .split("https://127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .expect("a port");
    let pki = cluster.folder.path().join("pki");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pki.join("ca.crt")).expect("a CA")).expect("a root");
    let chain = vec![CertificateDer::from_pem_file(pki.join("admin.crt")).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(pki.join("admin.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .expect("a client");
    let name = "127.0.0.1".try_into().expect("a name");
    let connection = rustls::ClientConnection::new(Arc::new(config), name).expect("a connection");
    let stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    rustls::StreamOwned::new(connection, stream)
}
