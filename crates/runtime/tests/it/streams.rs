//! Exec, attach and port-forward over WebSocket, as kubectl's newest way does it. Over SPDY they
//! are tried with upstream's crictl and critest.
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use runtime::cri::Cri;
use runtime::cri::v1::*;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::machine::{Machine, until};

pub async fn connect(url: &str) -> WebSocketStream<TcpStream> {
    let mut request = url.replace("http://", "ws://").into_client_request().unwrap();
    let protocol = "v5.channel.k8s.io".parse().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", protocol);
    let address = request.uri().authority().unwrap().to_string();
    let stream = TcpStream::connect(address).await.unwrap();
    let (socket, answer) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "v5.channel.k8s.io");
    socket
}

pub async fn send(socket: &mut WebSocketStream<TcpStream>, channel: u8, bytes: &[u8]) {
    let message: Bytes = [&[channel], bytes].concat().into();
    socket.send(Message::Binary(message)).await.unwrap();
}

/// What came on each channel until the server closed.
pub async fn drain(mut socket: WebSocketStream<TcpStream>) -> [String; 4] {
    let mut channels = [const { Vec::new() }; 4];
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(bytes) = message {
            channels[usize::from(bytes[0])].extend_from_slice(&bytes[1..]);
        }
    }
    channels.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

pub fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_has_its_streams_and_says_how_it_ended() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine.run(&sandbox, "sleep 1000", |_| {}).await;
    let exec = |cmd: Vec<String>, tty| ExecRequest {
        container_id: id.clone(),
        cmd,
        tty,
        stdin: true,
        stdout: true,
        stderr: !tty,
    };
    let mut command = words("sh -c");
    command.push("cat; echo oops >&2; exit 4".to_owned());
    let url = machine.service.exec(exec(command, false)).await.unwrap().url;
    let mut socket = connect(&url).await;
    send(&mut socket, 0, b"line one\n").await;
    send(&mut socket, 255, &[0]).await;
    let [_, stdout, stderr, status] = drain(socket).await;
    assert_eq!((stdout.as_str(), stderr.as_str()), ("line one\n", "oops\n"));
    assert!(status.contains("NonZeroExitCode") && status.contains("\"4\""), "{status}");

    let mut command = words("sh -c");
    command.push("tty; read x; stty size; echo got $x".to_owned());
    let url = machine.service.exec(exec(command, true)).await.unwrap().url;
    let mut socket = connect(&url).await;
    send(&mut socket, 4, br#"{"Width":123,"Height":45}"#).await;
    send(&mut socket, 0, b"typed\n").await;
    let [_, stdout, _, status] = drain(socket).await;
    for part in ["/dev/pts/", "45 123", "got typed"] {
        assert!(stdout.contains(part), "{part:?} is not in {stdout:?}: {status}");
    }
    assert!(status.contains("Success"), "{status}");
    assert_eq!(plain_status(&url).await, 404, "a URL is good for once");
    machine.finish().await;
}

/// The status of a plain GET.
async fn plain_status(url: &str) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let uri: http::Uri = url.parse().unwrap();
    let host = uri.authority().unwrap().to_string();
    let mut stream = TcpStream::connect(&host).await.unwrap();
    let request =
        format!("GET {} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n", uri.path());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn attaching_joins_the_container_s_own_streams() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine
        .run(&sandbox, "while read x; do echo got $x; done; echo end", |c| {
            c.stdin = true;
            c.stdin_once = true;
        })
        .await;
    let request = AttachRequest {
        container_id: id.clone(),
        stdin: true,
        tty: false,
        stdout: true,
        stderr: true,
    };
    let url = machine.service.attach(request).await.unwrap().url;
    let mut socket = connect(&url).await;
    send(&mut socket, 0, b"a\nb\n").await;
    let log = || async { machine.log(&machine.status(&id).await) };
    until(|| async { log().await.contains("got b").then_some(()) }).await;
    send(&mut socket, 255, &[0]).await;
    let [_, stdout, _, status] = drain(socket).await;
    assert_eq!(stdout, "got a\ngot b\nend\n");
    assert!(status.contains("Success"), "{status}");
    assert_eq!(log().await, "got a\ngot b\nend");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_is_reached_inside_the_sandbox() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine
        .run(&sandbox, "echo up; while true; do echo answer | nc -l -p 8080; done", |_| {})
        .await;
    let listening = ["sh", "-c", "cat /proc/net/tcp /proc/net/tcp6 | grep -q :1F90"];
    until(|| async {
        let seen = machine.exec(&id, &listening).await;
        (seen.exit_code == 0).then_some(())
    })
    .await;
    let request = PortForwardRequest { pod_sandbox_id: sandbox, port: vec![8080] };
    let url = machine.service.port_forward(request).await.unwrap().url;
    let mut socket = connect(&url).await;
    let mut data = Vec::new();
    while let Some(Ok(Message::Binary(bytes))) = socket.next().await {
        if bytes[0] == 0 {
            data.extend_from_slice(&bytes[1..]);
        }
        if data.ends_with(b"answer\n") {
            break;
        }
    }
    assert_eq!(data, [&8080u16.to_le_bytes()[..], b"answer\n"].concat());
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_exec_ends_in_time() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine.run(&sandbox, "sleep 1000", |_| {}).await;
    let done = machine.exec(&id, &["sh", "-c", "echo out; echo err >&2; exit 9"]).await;
    assert_eq!((done.stdout, done.stderr, done.exit_code), (b"out\n".into(), b"err\n".into(), 9));
    let request = ExecSyncRequest { container_id: id.clone(), cmd: words("sleep 600"), timeout: 1 };
    let error = machine.service.exec_sync(request).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::DeadlineExceeded);
    until(|| async {
        let seen = machine.exec(&id, &["ps"]).await;
        (!String::from_utf8_lossy(&seen.stdout).contains("sleep 600")).then_some(())
    })
    .await;
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_up_nobody_else() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let loud = machine.run(&sandbox, "yes", |_| {}).await;
    let request = AttachRequest {
        container_id: loud.clone(),
        stdin: false,
        tty: false,
        stdout: true,
        stderr: true,
    };
    let url = machine.service.attach(request).await.unwrap().url;
    let stuck = connect(&url).await;
    let size = || async {
        let status = machine.status(&loud).await;
        std::fs::metadata(status.log_path).map_or(0, |found| found.len())
    };
    // Its output stops growing when everything on the way is full.
    until(|| async {
        let before = size().await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        (before > 0 && before == size().await).then_some(())
    })
    .await;
    let (code, log) = machine.output(&sandbox, "echo others go on", |_| {}).await;
    assert_eq!((code, log.as_str()), (0, "others go on"));
    machine.stop(&loud, 0).await;
    assert_eq!(machine.status(&loud).await.exit_code, 137);
    drop(stuck);
    machine.finish().await;
}
