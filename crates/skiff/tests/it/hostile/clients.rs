//! Clients that are slow, greedy, or gone.
use super::{Server, admin, nobody, run};
use std::collections::HashSet;
use std::time::Duration;
use testkit::client::Wire;

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
