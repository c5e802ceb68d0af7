//! UDP with real sockets: clients, pods, and those who send as if they were many.
use super::stage::Stage;
use crate::serve::datagrams::Bounds;
use crate::table::{Action, Backend, Protocol};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tokio::net::UdpSocket;
use tokio::time::{Duration, timeout};

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A pod that answers with its name and what it was told; `quiet` is told, and not answered.
async fn pod(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let address = socket.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut buffer = vec![0; 70_000];
        while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
            if &buffer[..length] != b"quiet" {
                let mut answer = name.as_bytes().to_vec();
                answer.extend_from_slice(&buffer[..length]);
                let _ = socket.send_to(&answer[..answer.len().min(65_000)], client).await;
            }
        }
    });
    address
}

async fn client(stage: &Stage) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    socket.connect(stage.address_of_datagrams()).await.expect("an address");
    socket
}

/// Asks until there is an answer: datagrams get lost.
async fn ask(client: &UdpSocket, text: &[u8]) -> String {
    let asking = async {
        let mut buffer = vec![0; 70_000];
        loop {
            client.send(text).await.expect("it is sent");
            let answer = timeout(Duration::from_millis(500), client.recv(&mut buffer)).await;
            if let Ok(Ok(length)) = answer {
                return String::from_utf8_lossy(&buffer[..length]).into_owned();
            }
        }
    };
    timeout(PATIENCE, asking).await.expect("an answer")
}

/// The same, once: who asks again after an answer has shown that he hears.
async fn ask_once(client: &UdpSocket, text: &[u8]) -> String {
    let mut buffer = vec![0; 70_000];
    client.send(text).await.expect("it is sent");
    let length = timeout(PATIENCE, client.recv(&mut buffer)).await.expect("in time");
    String::from_utf8_lossy(&buffer[..length.expect("an answer")]).into_owned()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, looking).await.is_ok(), "{what}");
}

fn staged(bounds: Bounds, services: &[(&str, &[SocketAddr], u32)]) -> Stage {
    let mut stage = Stage::bounded(bounds);
    for (name, pods, _) in services {
        stage.speaking(name, pods, Protocol::Datagrams);
    }
    route(&mut stage, services);
    stage.open();
    stage
}

fn route(stage: &mut Stage, services: &[(&str, &[SocketAddr], u32)]) {
    let backend =
        |(name, _, weight): &(&str, _, u32)| Backend { weight: *weight, ..stage.backend(name) };
    let backends = services.iter().map(backend).collect();
    stage.datagrams = Some(Action { backends, ..Action::default() });
}

#[tokio::test]
async fn a_client_keeps_its_pod_and_others_get_theirs_by_weight() {
    let (one, two) = (pod("one ").await, pod("two ").await);
    let stage = staged(Bounds::default(), &[("one", &[one], 4), ("two", &[two], 1)]);
    let mut counts = BTreeMap::<String, usize>::new();
    for _ in 0..150 {
        let client = client(&stage).await;
        let first = ask(&client, b"x").await;
        assert_eq!(ask(&client, b"x").await, first);
        *counts.entry(first).or_default() += 1;
    }
    assert!(counts["one x"] > 85 && counts["two x"] > 8, "{counts:?}");
}

#[tokio::test]
async fn large_and_empty_datagrams_arrive_whole() {
    let one = pod("one ").await;
    let stage = staged(Bounds::default(), &[("one", &[one], 1)]);
    let client = client(&stage).await;
    assert_eq!(ask(&client, b"").await, "one ");
    let large = vec![b'x'; 60_000];
    assert_eq!(ask(&client, &large).await.len(), 60_004);
}

#[tokio::test]
async fn a_session_goes_with_its_pod_or_its_route() {
    let (one, two) = (pod("one ").await, pod("two ").await);
    let mut stage = staged(Bounds::default(), &[("web", &[one], 1)]);
    let client = client(&stage).await;
    assert_eq!(ask(&client, b"x").await, "one x");
    // Another pod in its place.
    stage.speaking("web", &[two], Protocol::Datagrams);
    stage.set_addresses();
    assert_eq!(ask(&client, b"y").await, "two y");
    // Another service.
    stage.speaking("other", &[one], Protocol::Datagrams);
    route(&mut stage, &[("other", &[], 1)]);
    stage.open();
    assert_eq!(ask(&client, b"z").await, "one z");
    assert_eq!(stage.proxy.sessions.count(), 1);
}

#[tokio::test]
async fn a_pod_that_is_gone_is_noticed_and_nobody_is_no_failure() {
    let gone = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let stage = staged(Bounds::default(), &[("gone", &[gone], 1)]);
    let client = client(&stage).await;
    client.send(b"x").await.unwrap();
    until("the session is gone", || stage.proxy.sessions.count() == 0).await;
    let none = staged(Bounds::default(), &[("none", &[], 1)]);
    let other = self::client(&none).await;
    other.send(b"x").await.unwrap();
    let one = pod("one ").await;
    let there = staged(Bounds::default(), &[("one", &[one], 1)]);
    // Whoever was asked later has answered, and nothing has begun.
    assert_eq!(ask(&self::client(&there).await, b"x").await, "one x");
    assert_eq!(none.proxy.sessions.count(), 0);
}

#[tokio::test]
async fn sessions_end_when_nobody_says_anything() {
    let one = pod("one ").await;
    let short = Duration::from_millis(50);
    let bounds = Bounds { doubtful: short, mutual: 4 * short, ..Bounds::default() };
    let stage = staged(bounds, &[("one", &[one], 1)]);
    let client = client(&stage).await;
    assert_eq!(ask(&client, b"x").await, "one x");
    assert_eq!(ask(&client, b"x").await, "one x");
    until("it is over", || stage.proxy.sessions.count() == 0).await;
    // With all that it held.
    let upstream = stage.proxy.upstream(&stage.destination("one")).unwrap();
    until("its socket is closed", || upstream.choose(&[]).unwrap().busy() == 0).await;
    // And begins again.
    assert_eq!(ask(&client, b"y").await, "one y");
}

#[tokio::test]
async fn who_says_to_be_many_takes_nothing_from_those_who_are_there() {
    let one = pod("one ").await;
    let bounds = Bounds { sessions: 40, per_source: 1000, ..Bounds::default() };
    let stage = staged(bounds, &[("one", &[one], 1)]);
    // He hears answers, for he goes on after one.
    let honest = client(&stage).await;
    assert_eq!(ask(&honest, b"x").await, "one x");
    assert_eq!(ask(&honest, b"x").await, "one x");
    let begun = stage.proxy.sessions.begun();
    let mut strangers = Vec::new();
    for _ in 0..300 {
        let stranger = client(&stage).await;
        stranger.send(b"quiet").await.unwrap();
        strangers.push(stranger);
    }
    // Those who come while they do are served as well.
    let late = client(&stage).await;
    assert_eq!(ask(&late, b"x").await, "one x");
    until("all have been heard", || stage.proxy.sessions.begun() >= begun + 100).await;
    assert!(stage.proxy.sessions.count() <= 40, "{}", stage.proxy.sessions.count());
    let before = stage.proxy.sessions.begun();
    assert_eq!(ask(&honest, b"still").await, "one still");
    assert_eq!(stage.proxy.sessions.begun(), before, "it is the session of before");
}

#[tokio::test]
async fn one_source_has_so_many_sessions_and_the_oldest_make_room() {
    let one = pod("one ").await;
    let bounds = Bounds { sessions: 1000, per_source: 10, ..Bounds::default() };
    let stage = staged(bounds, &[("one", &[one], 1)]);
    for _ in 0..50 {
        assert_eq!(ask_once(&client(&stage).await, b"x").await, "one x");
        assert!(stage.proxy.sessions.count() <= 10);
    }
    // All of them hear: nobody makes room, and who comes is not served.
    let stage = staged(bounds, &[("one", &[one], 1)]);
    let mut known = Vec::new();
    for _ in 0..10 {
        let client = client(&stage).await;
        assert_eq!(ask(&client, b"x").await, "one x");
        assert_eq!(ask(&client, b"x").await, "one x");
        known.push(client);
    }
    let before = stage.proxy.sessions.begun();
    let refused = client(&stage).await;
    refused.send(b"x").await.unwrap();
    assert_eq!(ask(&known[0], b"y").await, "one y");
    assert_eq!(stage.proxy.sessions.begun(), before);
}

#[tokio::test]
async fn services_are_not_made_to_answer_each_other() {
    let one = pod("one ").await;
    let stage = staged(Bounds::default(), &[("one", &[one], 1)]);
    let (client, other) = (client(&stage).await, client(&stage).await);
    // Whoever sends from there says that he is a port of ours.
    stage.proxy.sessions.entrances.lock().insert(client.local_addr().unwrap());
    client.send(b"x").await.unwrap();
    assert_eq!(ask(&other, b"y").await, "one y");
    assert_eq!(stage.proxy.sessions.begun(), 1);
    let entrance = stage.address_of_datagrams();
    assert!(stage.proxy.sessions.entrances.lock().contains(&entrance));
    let proxy = stage.proxy.clone();
    stage.close().await;
    assert!(!proxy.sessions.entrances.lock().contains(&entrance));
}
