//! The proxy with real sockets: clients and pods of every kind on 127.0.0.1.
pub mod backend_servers;
mod datagrams;
mod hostile;
mod passing;
mod secure;
pub mod stage;

use crate::filters::{Filter, HeaderChange, PathChange, Redirect};
use crate::table::{Action, Protocol};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use stage::{Stage, backend, get, pod, raw};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_request_comes_to_a_pod_with_what_is_said_about_its_client() {
    let pod = pod().await;
    let mut stage = Stage::new();
    stage.service("web", &[pod]).rule("a.test", "/", "web").open();
    let answer = raw(
        stage.address(),
        "GET /x//y/../z?q=1 HTTP/1.1\r\nHost: A.test:80\r\nX-Forwarded-For: 10.9.9.9\r\n\
         Connection: close, x-mine\r\nX-Mine: 1\r\nX-Kept: 2\r\n\r\n",
    )
    .await;
    expect_test::expect![[r#"
        HTTP/1.1 200 OK
        GET /x//z?q=1
        host: A.test:80
        x-forwarded-for: 127.0.0.1
        x-forwarded-host: A.test:80
        x-forwarded-port: 80
        x-forwarded-proto: http
        x-kept: 2
        x-real-ip: 127.0.0.1
    "#]]
    .assert_eq(&answer);
}

#[tokio::test]
async fn who_is_not_there_is_said_to_be_missing() {
    let mut stage = Stage::new();
    stage.service("none", &[]).rule("none.test", "/", "none").open();
    assert_eq!(get(&stage, "none.test", "/").await, (503, "503 Service Unavailable\n".to_owned()));
    assert_eq!(get(&stage, "other.test", "/").await, (404, "404 Not Found\n".to_owned()));
}

#[tokio::test]
async fn pods_that_refuse_are_passed_over_and_if_all_do_that_is_said() {
    let (gone, pod) = (stage::nobody().await, pod().await);
    let mut stage = Stage::new();
    stage.service("some", &[gone, pod]).rule("some.test", "/", "some");
    stage.service("all", &[gone]).rule("all.test", "/", "all").open();
    for _ in 0..20 {
        assert_eq!(get(&stage, "some.test", "/").await.0, 200);
    }
    assert_eq!(get(&stage, "all.test", "/").await.0, 502);
}

#[tokio::test]
async fn connections_are_used_again_and_one_that_ended_meanwhile_is_no_failure() {
    let (address, connections) = backend::closing_after(1).await;
    let (kept, opened) = backend::closing_after(1000).await;
    let mut stage = Stage::new();
    stage.service("closing", &[address]).rule("closing.test", "/", "closing");
    stage.service("kept", &[kept]).rule("kept.test", "/", "kept").open();
    for _ in 0..20 {
        assert_eq!(get(&stage, "closing.test", "/").await.0, 200);
        assert_eq!(get(&stage, "kept.test", "/").await.0, 200);
    }
    let count =
        |of: &Arc<std::sync::atomic::AtomicUsize>| of.load(std::sync::atomic::Ordering::Relaxed);
    assert!(count(&connections) >= 20, "{}", count(&connections));
    assert!(count(&opened) < 10, "{}", count(&opened));
}

#[tokio::test]
async fn large_bodies_flow_both_ways() {
    const SIZE: usize = 24 << 20;
    let pod = pod().await;
    let mut stage = Stage::new();
    stage.service("web", &[pod]).rule("a.test", "/", "web").open();
    let stream = TcpStream::connect(stage.address()).await.unwrap();
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let sent = Bytes::from((0..SIZE).map(|i| (i % 251) as u8).collect::<Vec<_>>());
    let request = Request::post("/echo").header("host", "a.test").body(Full::new(sent.clone()));
    let response = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.into_body().collect().await.unwrap().to_bytes() == sent);
}

#[tokio::test]
async fn http2_from_end_to_end_with_trailers() {
    let pod = backend::http2().await;
    let mut stage = Stage::new();
    stage.speaking("grpc", &[pod], Protocol::Http2).rule("grpc.test", "/", "grpc").open();
    let stream = TcpStream::connect(stage.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let many = (0..50).map(|i| {
        let request = Request::post(format!("http://grpc.test/service/method?{i}"))
            .header("te", "trailers")
            .body(Full::new(Bytes::from(format!("message {i}"))));
        let answer = sender.send_request(request.unwrap());
        async move {
            let answer = answer.await.unwrap().into_body().collect().await.unwrap();
            let trailers = answer.trailers().cloned().unwrap();
            assert_eq!(trailers["grpc-status"], "0");
            let text = String::from_utf8(answer.to_bytes().to_vec()).unwrap();
            assert_eq!(text, format!("/service/method?{i} trailers message {i}"));
        }
    });
    futures_util::future::join_all(many).await;
}

#[tokio::test]
async fn both_sides_may_speak_something_else() {
    let pod = backend::upgrading().await;
    let mut stage = Stage::new();
    stage.service("web", &[pod]).rule("a.test", "/", "web").open();
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    client
        .write_all(
            b"GET /socket HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Key: x\r\n\r\n",
        )
        .await
        .unwrap();
    let head = stage::head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.to_ascii_lowercase().contains("upgrade: websocket"), "{head}");
    for word in ["one", "two"] {
        client.write_all(word.as_bytes()).await.unwrap();
        let mut back = vec![0; word.len()];
        client.read_exact(&mut back).await.unwrap();
        assert_eq!(back, word.to_ascii_uppercase().as_bytes());
    }
    client.shutdown().await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn filters_change_what_they_say() {
    let (pod, other) = (pod().await, pod().await);
    let mut stage = Stage::new();
    stage.service("web", &[pod]).service("copy", &[other]);
    let header = |name: &'static str, value: &'static str| {
        vec![(HeaderName::from_static(name), HeaderValue::from_static(value))]
    };
    let request = HeaderChange { set: header("x-set", "new"), ..HeaderChange::default() };
    let response = HeaderChange { add: header("x-answer", "yes"), ..HeaderChange::default() };
    let to_web = stage.backend("web");
    stage.action(
        "a.test",
        "/old",
        Action {
            filters: vec![
                Filter::RequestHeaders(request),
                Filter::ResponseHeaders(response),
                Filter::Rewrite {
                    host: Some(HeaderValue::from_static("inside.test")),
                    path: Some(PathChange::Prefix("/new".to_owned())),
                },
            ],
            backends: vec![to_web],
            ..Action::default()
        },
    );
    stage.action(
        "a.test",
        "/away",
        Action {
            filters: vec![Filter::Redirect(Redirect {
                scheme: Some("https".to_owned()),
                host: None,
                port: None,
                path: None,
                code: StatusCode::MOVED_PERMANENTLY,
            })],
            ..Action::default()
        },
    );
    stage.action("a.test", "/nowhere", Action::default());
    stage.open();
    let answer = raw(
        stage.address(),
        "GET /old/x HTTP/1.1\r\nHost: a.test\r\nX-Set: old\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert!(answer.contains("GET /new/x\nhost: inside.test\n"), "{answer}");
    assert!(answer.contains("x-set: new\n") && !answer.contains("old"), "{answer}");
    let (head, _) = stage::ask(&stage, "GET /old/x HTTP/1.1\r\nHost: a.test\r\n").await;
    assert!(head.contains("x-answer: yes"), "{head}");
    let (head, _) = stage::ask(&stage, "GET /away/x?y HTTP/1.1\r\nHost: a.test\r\n").await;
    assert!(head.starts_with("HTTP/1.1 301"), "{head}");
    assert!(head.contains("location: https://a.test/away/x?y"), "{head}");
    assert_eq!(get(&stage, "a.test", "/nowhere").await.0, 500);
}

#[tokio::test]
async fn weights_say_how_many_go_where_and_copies_go_besides() {
    let (one, two) = (backend::named("one").await, backend::named("two").await);
    let (copied, mut copies) = backend::telling().await;
    let mut stage = Stage::new();
    stage.service("one", &[one]).service("two", &[two]).service("copy", &[copied]);
    let weighted = |name: &str, weight: u32, stage: &Stage| {
        let mut backend = stage.backend(name);
        backend.weight = weight;
        backend
    };
    let backends =
        vec![weighted("one", 9, &stage), weighted("two", 1, &stage), weighted("copy", 0, &stage)];
    let to = stage.backend("copy").to;
    let filters = vec![Filter::Mirror { to, numerator: 1, denominator: 1 }];
    stage.action("a.test", "/", Action { backends, filters, ..Action::default() });
    stage.open();
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..200 {
        let (head, body) =
            stage::ask(&stage, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello")
                .await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        *counts.entry(body).or_default() += 1;
    }
    assert_eq!(counts.values().sum::<usize>(), 200);
    assert!((140..199).contains(&counts["one"]), "{counts:?}");
    for _ in 0..200 {
        let copy = tokio::time::timeout(Duration::from_secs(10), copies.recv()).await;
        assert_eq!(copy.unwrap().unwrap(), "hello");
    }
}

#[tokio::test]
async fn a_pod_that_hangs_has_as_long_as_the_rule_says() {
    let pod = backend::hanging().await;
    let mut stage = Stage::new();
    stage.service("web", &[pod]);
    let limit = Some(Duration::from_millis(100));
    let backends = vec![stage.backend("web")];
    stage.action("a.test", "/", Action { request_timeout: limit, backends, ..Action::default() });
    let backends = vec![stage.backend("web")];
    stage.action("b.test", "/", Action { backend_timeout: limit, backends, ..Action::default() });
    stage.open();
    assert_eq!(get(&stage, "a.test", "/").await.0, 504);
    assert_eq!(get(&stage, "b.test", "/").await.0, 504);
}
