//! Pages and places behind the server: what they get to see, and where it goes for others.
use super::{JSON, MERGE, Who, Wire};
use crate::cluster::Cluster;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

const PAGE: &str = r#"<html><a href="/next">next</a><img src="here.png"></html>"#;

/// A pod's own server: a page, whatever is asked. Hands over the head of each request.
fn backend(address: IpAddr) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind((address, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, heads) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|n| n > 0) {}
            let redirects = head.contains("/away ");
            let upgrades = head.to_lowercase().contains("upgrade: websocket");
            if sender.send(head).is_err() {
                return;
            }
            let answer = match (upgrades, redirects) {
                (true, _) => "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".to_owned(),
                (_, true) => "HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
                _ => format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{PAGE}",
                    PAGE.len()
                ),
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (port, heads)
}

fn make(cluster: &Cluster, object: &Value) {
    let made = cluster.kubectl_with("create -f -", &object.to_string());
    assert!(made.ends_with("created"), "{made}");
}

fn set_status(wire: &Wire, path: &str, status: &Value) {
    let body = json!({ "status": status }).to_string();
    let answer = wire.ask(Who::Admin, &format!("PATCH {path}/status"), &[MERGE.as_bytes()], &body);
    assert_eq!(answer.code, 200, "{}", answer.body);
}

#[test]
fn a_proxy_reaches_pods_and_shows_them_no_more_than_they_should_see() {
    let cluster = Cluster::start().with_default_account();
    let wire = Wire::new(&cluster);
    let address = apiserver::pki::own_address().expect("this machine has an address");
    let (port, heads) = backend(address);
    let pod = |name: &str| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "i" }] } })
    };
    make(&cluster, &pod("p"));
    let ip = json!({ "podIP": address, "podIPs": [{ "ip": address }] });
    set_status(&wire, "/api/v1/namespaces/default/pods/p", &ip);
    let at = format!("/api/v1/namespaces/default/pods/p:{port}/proxy");

    // A page's links lead through the proxy, and nobody else's scripts read it.
    let page = wire.ask(Who::Admin, &format!("GET {at}/"), &[b"Authorization: Bearer secret"], "");
    assert_eq!(page.code, 200, "{}", page.body);
    assert_eq!(page.body, PAGE.replace("/next", &format!("{at}/next")));
    assert_eq!(page.header("access-control-allow-origin"), "");
    let head = heads.recv().expect("a request").to_lowercase();
    assert!(
        !head.contains("authorization") && head.contains(&format!("x-forwarded-uri: {at}/")),
        "{head}"
    );
    let away = wire.ask(Who::Admin, &format!("GET {at}/away"), &[], "");
    assert_eq!((away.code, away.header("location")), (302, &*format!("{at}/there")));
    let folder = wire.ask(Who::Admin, &format!("GET {at}?a=b"), &[], "");
    assert_eq!((folder.code, folder.header("location")), (301, &*format!("{at}/?a=b")));
    drop(heads.recv());

    // Every method is passed on.
    for method in ["OPTIONS", "DELETE", "PATCH", "HEAD"] {
        assert_eq!(
            wire.ask(Who::Admin, &format!("{method} {at}/x"), &[], "").code,
            200,
            "{method}"
        );
        assert!(heads.recv().expect("a request").starts_with(method));
    }
    assert_eq!(wire.ask_as("nobody", &format!("OPTIONS {at}/x"), &[], "").code, 403);

    // A token among a WebSocket's protocols is for the server alone.
    let mut stream = wire.connect(Who::Admin);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: chat, base64url.bearer.authorization.k8s.io.c2VjcmV0";
    write!(stream, "GET {at}/ws HTTP/1.1\r\nHost: x\r\n{upgrade}\r\n\r\n").expect("sent");
    let mut first = [0; 12];
    stream.read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 101");
    let head = heads.recv().expect("a request").to_lowercase();
    assert!(
        head.contains("sec-websocket-protocol: chat\r\n") && !head.contains("bearer"),
        "{head}"
    );

    // Somebody writes into a slice what he likes; the server goes only to pods.
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s", "namespace": "default" },
        "spec": { "ports": [{ "port": 80 }] } });
    make(&cluster, &service);
    let slice = |name: &str, pod: &str| {
        json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": name, "namespace": "default", "labels": { "kubernetes.io/service-name": "s" } },
        "addressType": "IPv4", "ports": [{ "port": port }],
        "endpoints": [{ "addresses": [address], "targetRef": { "kind": "Pod", "name": pod, "namespace": "default" } }] })
    };
    make(&cluster, &pod("q"));
    make(&cluster, &slice("forged", "q"));
    let service = "GET /api/v1/namespaces/default/services/s:80/proxy/";
    let answer = wire.ask(Who::Admin, service, &[], "");
    assert_eq!(answer.code, 503, "{}", answer.body);
    assert!(answer.body.contains("no endpoints available"), "{}", answer.body);
    make(&cluster, &slice("true", "p"));
    assert_eq!(wire.ask(Who::Admin, service, &[], "").code, 200);

    the_servers_own_machine_is_out_of_reach(&cluster, &wire);
}

fn the_servers_own_machine_is_out_of_reach(cluster: &Cluster, wire: &Wire) {
    let server = cluster.kubectl("config view --minify -o jsonpath={.clusters[0].cluster.server}");
    let port: u16 = server.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    make(cluster, &json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "evil" } }));
    for (kind, address) in [
        ("InternalIP", "127.0.0.1"),
        ("InternalIP", "127.1.2.3"),
        ("InternalIP", "::1"),
        ("InternalIP", "::ffff:127.0.0.1"),
        ("InternalIP", "169.254.169.254"),
        ("InternalIP", "::ffff:169.254.169.254"),
        ("InternalIP", "0.0.0.0"),
        ("Hostname", "localhost"),
    ] {
        let status = json!({ "addresses": [{ "type": kind, "address": address }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": port } } });
        set_status(wire, "/api/v1/nodes/evil", &status);
        for name in ["evil".to_owned(), format!("https:evil:{port}"), "evil:80".to_owned()] {
            let what = format!("GET /api/v1/nodes/{name}/proxy/api/v1/secrets");
            let answer = wire.ask(Who::Admin, &what, &[JSON.as_bytes()], "");
            assert_eq!(answer.code, 400, "{address} {name}: {}", answer.body);
            assert!(answer.body.contains("address not allowed"), "{address}: {}", answer.body);
        }
    }
}
