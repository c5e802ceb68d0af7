//! Connections that are a pod's from the first byte, and addresses that one Gateway has for itself.
use super::stage::{PORT, Stage, get, head};
use crate::host::{Depth, Pattern};
use crate::serve::passing::QUIET;
use crate::serve::tests::backend_servers as backend;
use crate::table::{
    Action, Backend, Origin, PathMatch, Port, Protocol, Rule, Site, Table, Taker, To,
};
use api::names::NamespacedName;
use http::StatusCode;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

/// Says its name, and then what it is told.
async fn echo(name: &'static str) -> SocketAddr {
    backend::with(move |mut stream| async move {
        let _ = stream.write_all(name.as_bytes()).await;
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await
}

fn taken(stage: &Stage, weights: &[(&str, u32)]) -> Action {
    let backend = |(name, weight): &(&str, u32)| Backend { weight: *weight, ..stage.backend(name) };
    Action { backends: weights.iter().map(backend).collect(), ..Action::default() }
}

fn take(stage: &mut Stage, action: Option<Action>) {
    stage.port.taker = Some(Taker(action.map(Arc::new)));
}

/// Who answers, if anybody does.
async fn who(stage: &Stage) -> String {
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    let mut name = [0; 3];
    match client.read_exact(&mut name).await {
        Ok(_) => String::from_utf8_lossy(&name).into_owned(),
        Err(_) => "-".to_owned(),
    }
}

#[tokio::test]
async fn whatever_a_client_says_its_pod_hears_and_answers() {
    let one = echo("one").await;
    let mut stage = Stage::new();
    stage.speaking("one", &[one], Protocol::Bytes);
    let action = taken(&stage, &[("one", 1)]);
    take(&mut stage, Some(action));
    stage.open();
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    let said: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let (mut from, mut to) = client.split();
    let speaking = async {
        to.write_all(&said).await.unwrap();
        to.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let hearing = from.read_to_end(&mut heard);
    let ((), length) = tokio::join!(speaking, hearing);
    // One side has ended and the other has not: what is under way arrives.
    assert_eq!(length.unwrap(), said.len() + 3);
    assert!(heard.starts_with(b"one") && heard[3..] == said);
}

#[tokio::test]
async fn connections_are_shared_out_by_weight_and_some_are_for_nobody() {
    let (one, two) = (echo("one").await, echo("two").await);
    let mut stage = Stage::new();
    stage.speaking("one", &[one], Protocol::Bytes).speaking("two", &[two], Protocol::Bytes);
    let mut action = taken(&stage, &[("one", 3), ("two", 1)]);
    let nobody = To::Nobody(StatusCode::INTERNAL_SERVER_ERROR);
    action.backends.push(Backend { weight: 1, to: nobody, filters: Vec::new() });
    take(&mut stage, Some(action));
    stage.open();
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..400 {
        *counts.entry(who(&stage).await).or_default() += 1;
    }
    assert!((180..300).contains(&counts["one"]), "{counts:?}");
    assert!(counts["two"] > 40 && counts["-"] > 40, "{counts:?}");
}

#[tokio::test]
async fn without_a_route_or_a_pod_a_connection_is_closed() {
    let mut stage = Stage::new();
    take(&mut stage, None);
    stage.open();
    assert_eq!(who(&stage).await, "-");
    let gone = super::stage::nobody().await;
    stage.speaking("gone", &[gone], Protocol::Bytes);
    let action = taken(&stage, &[("gone", 1)]);
    take(&mut stage, Some(action));
    stage.open();
    assert_eq!(who(&stage).await, "-");
}

#[tokio::test(start_paused = true)]
async fn a_connection_on_which_nobody_says_anything_ends() {
    let one = echo("one").await;
    let mut stage = Stage::new();
    stage.speaking("one", &[one], Protocol::Bytes);
    let action = taken(&stage, &[("one", 1)]);
    take(&mut stage, Some(action));
    stage.open();
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    let mut name = [0; 3];
    client.read_exact(&mut name).await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut rest = Vec::new();
    // Nothing else happens, so time passes until somebody gives up.
    let ended = timeout(2 * QUIET, client.read_to_end(&mut rest)).await;
    assert!(ended.is_ok() && begun.elapsed() >= QUIET, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn connections_that_are_passed_on_leave_room_for_requests() {
    let one = echo("one").await;
    let mut stage = Stage::new();
    stage.speaking("one", &[one], Protocol::Bytes);
    let action = taken(&stage, &[("one", 1)]);
    take(&mut stage, Some(action));
    stage.open();
    // As if all of their seats were taken.
    let count = u32::try_from(stage.proxy.passed.available_permits()).unwrap();
    let taken = stage.proxy.passed.clone().acquire_many_owned(count).await.unwrap();
    assert_eq!(who(&stage).await, "-");
    assert!(stage.proxy.clients.available_permits() > 0);
    drop(taken);
    assert_eq!(who(&stage).await, "one");
}

#[tokio::test]
async fn an_address_of_ones_own_is_for_nobody_else() {
    let (shared, own) = (backend::named("shared").await, backend::named("own").await);
    let mut stage = Stage::new();
    stage.service("shared", &[shared]).service("own", &[own]).rule("", "/", "shared").open();
    assert_eq!(get(&stage, "a.test", "/").await.1, "shared");
    let local = stage.address().ip();
    let rule = |name: &str| {
        let mut port = Port::default();
        let rule = Rule {
            host: Pattern::parse("", Depth::One),
            except: Arc::default(),
            clients: None,
            path: PathMatch::Prefix("/".to_owned()),
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
            origin: Origin {
                is_default: false,
                created: 0,
                key: NamespacedName::new("default", name),
                place: (0, 0),
            },
            action: Arc::new(taken(&stage, &[(name, 1)])),
        };
        port.hosts.insert(rule).expect("a rule");
        port
    };
    let table = |own_port: u16| Table {
        ports: [
            (Site::shared(PORT), rule("shared")),
            (Site { address: Some(local), port: own_port }, rule("own")),
        ]
        .into(),
        own: [local].into(),
        ..Table::default()
    };
    stage.proxy.set_table(table(PORT));
    stage.set_addresses();
    assert_eq!(get(&stage, "a.test", "/").await.1, "own");
    // What its Gateway does not serve there, nobody does.
    stage.proxy.set_table(table(PORT + 1));
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    let _ = client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let mut answer = Vec::new();
    let ended = timeout(Duration::from_secs(10), client.read_to_end(&mut answer)).await;
    assert!(ended.is_ok() && answer.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn a_table_that_no_longer_has_a_port_closes_what_comes_to_it() {
    let one = echo("one").await;
    let mut stage = Stage::new();
    stage.speaking("one", &[one], Protocol::Bytes).rule("a.test", "/", "one").open();
    let mut client = TcpStream::connect(stage.address()).await.unwrap();
    client.write_all(b"GET /x HTTP/1.1\r\nHost: none.test\r\n\r\n").await.unwrap();
    assert!(head(&mut client).await.starts_with("HTTP/1.1 404"));
    stage.proxy.set_table(Table::default());
    assert_eq!(who(&stage).await, "-");
}
