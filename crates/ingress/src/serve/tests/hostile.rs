//! Clients and pods that mean no good, or do not know better.
use super::stage::{self, Stage, backend, get, pod, raw};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn stage() -> Stage {
    let pod = pod().await;
    let mut stage = Stage::new();
    stage.service("web", &[pod]).rule("a.test", "/", "web").open();
    stage
}

#[tokio::test]
async fn requests_that_can_be_read_in_two_ways_are_refused() {
    let stage = stage().await;
    for (request, code) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", 200),
        ("GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: user@a.test\r\n\r\n", 400),
        ("GET /a/..%2f HTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a.test\r\nBad Name: 1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a.test\r\n X: folded\r\n\r\n", 400),
        (
            "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
            400,
        ),
        ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: -1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        ("CONNECT a.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n", 405),
    ] {
        let request = request.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        let answer = raw(stage.address(), &request).await;
        let said = answer.split(' ').nth(1).unwrap_or_default();
        assert_eq!(said, code.to_string(), "{request:?}: {answer}");
    }
}

#[tokio::test]
async fn two_lengths_make_one_request_whose_length_everybody_sees() {
    let stage = stage().await;
    // By `Content-Length` a second request follows; by `Transfer-Encoding`, which counts, it is the body.
    let request = "POST /one HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\
        Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
        1e\r\nGET /two HTTP/1.1\r\nHost: b\r\n\r\n\r\n0\r\n\r\n";
    let answer = raw(stage.address(), request).await;
    assert!(answer.contains("POST /one\n"), "{answer}");
    assert!(!answer.contains("content-length: 4"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
}

#[tokio::test]
async fn heads_have_an_end() {
    let stage = stage().await;
    let large = "x".repeat(100 << 10);
    let answer = raw(
        stage.address(),
        &format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Large: {large}\r\n\r\n"),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let many: String = (0..500).map(|i| format!("X-{i}: 1\r\n")).collect();
    let answer =
        raw(stage.address(), &format!("GET / HTTP/1.1\r\nHost: a.test\r\n{many}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn clients_that_do_not_say_what_they_want_are_let_go() {
    let stage = stage().await;
    for begun in ["", "G", "GET / HTTP/1.1\r\nHost: a.te", "PRI * HTTP/2.0\r\n"] {
        let mut client = TcpStream::connect(stage.address()).await.unwrap();
        client.write_all(begun.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Nothing else happens, so time passes until somebody gives up.
        let ended = tokio::time::timeout(Duration::from_secs(300), client.read_to_end(&mut answer));
        assert!(ended.await.is_ok(), "{begun:?}");
    }
}

#[tokio::test]
async fn pods_that_break_off_or_talk_nonsense_are_a_bad_gateway() {
    let mut stage = Stage::new();
    for (name, answer) in [
        ("silent", &b""[..]),
        ("garbage", b"\x00\x01\x02 hello\r\n\r\n"),
        ("half", b"HTTP/1.1 200 OK\r\nContent-Le"),
        ("twice", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        (
            "switching",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        ),
    ] {
        let pod = backend::saying(answer).await;
        stage.service(name, &[pod]).rule(&format!("{name}.test"), "/", name);
    }
    let short = backend::saying(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort").await;
    stage.service("short", &[short]).rule("short.test", "/", "short").open();
    for name in ["silent", "garbage", "half", "twice", "switching"] {
        assert_eq!(get(&stage, &format!("{name}.test"), "/").await.0, 502, "{name}");
    }
    // What has begun cannot be taken back: the client sees that it is not whole.
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: short.test\r\n\r\n").await.unwrap();
    let head = stage::head(&mut client).await;
    assert!(head.contains("content-length: 10"), "{head}");
    let mut body = Vec::new();
    let _ = client.read_to_end(&mut body).await;
    assert!(body.len() < 10, "{body:?}");
}

#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_again() {
    let (counting, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let breaking = backend::with(move |mut stream| {
        let counting = counting.clone();
        async move {
            stage::head(&mut stream).await;
            let _ = counting.send(());
        }
    })
    .await;
    let pod = pod().await;
    let mut stage = Stage::new();
    stage.service("web", &[breaking]).rule("a.test", "/", "web");
    stage.service("other", &[pod]).rule("b.test", "/", "other").open();
    assert_eq!(get(&stage, "a.test", "/").await.0, 502);
    assert_eq!(get(&stage, "b.test", "/").await.0, 200);
    assert_eq!(seen.recv().await, Some(()));
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn who_asks_when_the_port_closes_gets_an_answer() {
    let (telling, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let waiting = {
        let go = go.clone();
        backend::with(move |mut stream| {
            let (telling, go) = (telling.clone(), go.clone());
            async move {
                stage::head(&mut stream).await;
                let _ = telling.send(());
                go.notified().await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate").await;
            }
        })
        .await
    };
    let mut stage = Stage::new();
    stage.service("web", &[waiting]).rule("a.test", "/", "web").open();
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    asked.recv().await;
    let closing = tokio::spawn(stage.close());
    go.notify_one();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("late"), "{answer}");
    closing.await.unwrap();
}
