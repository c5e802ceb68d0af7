//! Clients that are slow, greedy, or gone.
use super::{Server, admin, nobody, run};
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::Duration;
use testkit::client::{Endpoint, Wire};

/// A head is enough: the answer comes though the body that it announces never does, and nobody who
/// asks the same way afterwards is kept out.
#[test]
fn no_body_is_waited_for_that_nobody_needs() {
    let server = Server::start();
    let rows = [
        ("GET /version", false, 200),
        ("GET /healthz", false, 200),
        ("GET /no/such/path", false, 403),
        ("GET /api/v1/namespaces", false, 403),
        ("POST /api/v1/namespaces", false, 403),
        ("DELETE /api/v1/nodes", false, 403),
        ("GET /api/v1/namespaces", true, 200),
        ("GET /api/v1/namespaces/default", true, 200),
        ("GET /openapi/v3", true, 200),
    ];
    run(async {
        let mut held = Vec::new();
        for _ in 0..10 {
            for (request, is_admin, code) in rows {
                let endpoint = if is_admin { admin(&server) } else { nobody(&server) };
                let mut wire = Wire::open(&endpoint).await.expect("a connection");
                let head = format!(
                    "{request} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n{{"
                );
                wire.say(head).await.expect("it is heard");
                assert_eq!(wire.code().await.expect("an answer"), code, "{request}");
                held.push(wire);
            }
        }
    });
    assert!(server.kubectl("get namespaces").contains("default"));
}

/// Whoever has not said who he is may hold a connection, not all of them.
#[test]
fn strangers_keep_nobody_out() {
    let server = Server::start();
    run(async {
        let endpoint = nobody(&server);
        let mut held = Vec::new();
        for number in 0..1200 {
            let mut wire = Wire::open(&endpoint).await.expect("a connection");
            // Half a head.
            wire.say("GET /version HTTP/1.1\r\nHo").await.expect("it is heard");
            held.push(wire);
            if number % 400 == 399 {
                let text = server.kubectl("get --raw /readyz");
                assert_eq!(text, "ok", "after {number}");
            }
        }
        // The oldest had to go.
        assert_eq!(held[0].hear().await.expect("an end"), b"");
    });
}

/// What strangers send and nobody reads is not kept: bodies that are announced to documents, and heads
/// that never end.
#[test]
fn strangers_hold_little_memory() {
    let server = Server::start();
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.id()));
        let status = status.expect("a process");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
        let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse().ok());
        kilobytes.unwrap_or(0_u64) >> 10
    };
    let before = resident();
    run(async {
        let endpoint = nobody(&server);
        let mut held = Vec::new();
        let body = "x".repeat(256 << 10);
        let head = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: {}", "x".repeat(120 << 10));
        let said = [
            format!("POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n{body}"),
            head,
        ];
        for said in said.iter().cycle().take(400) {
            let mut wire = Wire::open(&endpoint).await.expect("a connection");
            // What is not read stays on the way, or the server has hung up.
            let _ = tokio::time::timeout(Duration::from_millis(100), wire.say(said)).await;
            held.push(wire);
        }
        let now = resident();
        assert!(now < before + 150, "{before} MB before, {now} MB now");
        // A head that is longer than any is refused before it has ended.
        let mut wire = Wire::open(&endpoint).await.expect("a connection");
        let long = "x".repeat(300 << 10);
        let _ = wire.say(format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: {long}")).await;
        assert!(matches!(wire.code().await.expect("an end"), 0 | 431));
    });
    assert_eq!(server.kubectl("get --raw /readyz"), "ok");
}

/// A change that nobody waits for any more is still a change, and is in the log.
#[test]
fn what_was_written_is_recorded_whatever_its_client_does() {
    let server = Server::start();
    run(async {
        let endpoint = admin(&server);
        for number in 0..50 {
            let body = format!(r#"{{"metadata":{{"name":"vanished-{number}"}}}}"#);
            let mut wire = Wire::open(&endpoint).await.expect("a connection");
            let head = format!(
                "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            wire.say(head).await.expect("it is heard");
            // Gone at once, or while it is written, or just before the answer.
            tokio::time::sleep(Duration::from_micros(400 * number)).await;
            drop(wire);
        }
    });
    // Those that were read before their client was gone are there; what is there is in the log.
    let made = || -> HashSet<String> {
        let names = server.kubectl("get configmaps -o name");
        let names = names.lines().filter_map(|name| name.strip_prefix("configmap/vanished-"));
        names.map(str::to_owned).collect()
    };
    let logged = || -> HashSet<String> {
        let path = server.folder.path().join("audit/audit.log");
        let text = std::fs::read_to_string(path).expect("a log");
        let lines = text.lines().filter(|line| line.contains("\"ResponseComplete\""));
        let lines = lines.filter(|line| line.contains("\"verb\":\"create\""));
        lines
            .filter_map(|line| Some(line.split("vanished-").nth(1)?.split('"').next()?.to_owned()))
            .collect()
    };
    let begun = std::time::Instant::now();
    loop {
        let (made, logged) = (made(), logged());
        if !made.is_empty() && made.is_subset(&logged) {
            break;
        }
        assert!(begun.elapsed().as_secs() < 30, "made {made:?}, logged {logged:?}");
    }
}

/// A program gets few open files if it does not ask for more; a server has one for each connection.
#[test]
fn a_server_has_as_many_open_files_as_it_may() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let few = "ulimit -Sn 100 && exec \"$0\" \"$@\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", few, env!("CARGO_BIN_EXE_skiff"), "up", "--disable", "*", "--port", "0"]);
    command.args(["--bind-address", "127.0.0.1", "--kubeconfig"]).arg(&kubeconfig);
    command.arg("--data-dir").arg(folder.path()).stdout(std::process::Stdio::piped());
    let mut process = command.spawn().expect("skiff starts");
    let mut line = String::new();
    let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
    output.read_line(&mut line).expect("skiff speaks");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.id()));
    run(async {
        let endpoint = Arc::new(Endpoint::read(&kubeconfig, false).expect("a kubeconfig"));
        let mut held = Vec::new();
        for _ in 0..200 {
            held.push(Wire::open(&endpoint).await.expect("a connection"));
        }
        let last = held.last_mut().expect("a connection");
        last.say("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it is heard");
        assert_eq!(last.code().await.expect("an answer"), 200);
    });
    process.kill().expect("a running process");
    process.wait().expect("a killed process");
    let limits = limits.expect("limits");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let numbers: Vec<&str> = files.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "{files}");
    assert_ne!(numbers[0], "100", "{files}");
}

/// Whoever watches has nothing to say: a message that would have to be kept ends the connection,
/// whether it comes as one frame or as many.
#[test]
fn a_websocket_takes_no_long_messages() {
    let server = Server::start();
    let path = "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=0";
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    // A frame's first byte (the last of a message has the highest bit), its length, and that it is
    // masked, by nothing.
    let frame = |first: u8, length: u64, sent: usize| {
        let mut frame = vec![first, 0x80 | 127];
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.resize(frame.len() + sent, b'x');
        frame
    };
    let announced = vec![frame(0x81, 64 << 20, 1000)];
    let endless = vec![frame(0x81, u64::MAX >> 1, 1000)];
    let mut pieces = vec![frame(0x01, 60 << 10, 60 << 10)];
    pieces.extend(std::iter::repeat_n(frame(0x00, 60 << 10, 60 << 10), 20));
    let short = vec![frame(0x81, 100, 100)];
    run(async {
        for (what, frames, ends) in [
            ("a long frame", announced, true),
            ("an endless frame", endless, true),
            ("a message in pieces", pieces, true),
            ("a short message", short, false),
        ] {
            let mut wire = Wire::open(&admin(&server)).await.expect("a connection");
            wire.say(&head).await.expect("it is heard");
            assert_eq!(wire.code().await.expect("an answer"), 101, "{what}");
            for frame in frames {
                // It may have hung up already.
                if wire.say(frame).await.is_err() {
                    break;
                }
            }
            if ends {
                // Its last words, if it has some, are a close.
                let mut heard = wire.hear().await.expect("an end");
                while !heard.is_empty() {
                    assert_eq!(heard[0], 0x88, "{what}: {heard:?}");
                    heard = wire.hear().await.expect("an end");
                }
            } else {
                let made = server.kubectl("create configmap short -n default");
                assert!(made.contains("created"), "{made}");
                let heard = wire.hear().await.expect("an event");
                assert_eq!(heard[0], 0x81, "{what}: {heard:?}");
            }
        }
    });
}
