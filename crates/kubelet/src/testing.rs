//! A pod and what the runtime has of it, as text; plugins that tests serve.
use crate::backoff::Backoff;
use crate::found::{Container as FoundContainer, Found, Sandbox, State};
use crate::plan::{Probed, backoff_key};
use crate::pod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodReadinessGate, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixListener;
use tonic::service::Routes;

pub struct World {
    pub pod: Pod,
    pub found: Found,
    pub probed: Probed,
    pub backoff: Backoff,
    pub now: i64,
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// One line each: `pod restart=Never deleting gate=TYPE`, `condition TYPE=STATUS`, `init NAME`, `sidecar NAME startup`, `container
/// NAME readiness`, `sandbox s0 ready|not`, `found NAME SANDBOX running|created|exited=CODE
/// [at=SECOND] [changed|started|dead|ready]`, `crashed NAME at=SECOND`, `now SECOND`.
pub fn world(text: &str) -> World {
    let mut pod = Pod::default();
    pod.metadata.name = Some("web".into());
    pod.metadata.namespace = Some("default".into());
    pod.metadata.uid = Some("u1".into());
    pod.metadata.generation = Some(1);
    pod.spec = Some(PodSpec { restart_policy: Some("Always".into()), ..PodSpec::default() });
    let (mut found, mut probed, mut backoff) =
        (Found::default(), Probed::default(), Backoff::default());
    let mut now = 1000;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value =
            |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let has = |name: &str| words.contains(&name);
        let second = |name: &str| value(name).map(|text| text.parse::<i64>().unwrap());
        let spec = pod.spec.as_mut().unwrap();
        let container = || Container {
            name: words[1].to_owned(),
            image: Some("image".into()),
            startup_probe: has("startup").then(Probe::default),
            readiness_probe: has("readiness").then(Probe::default),
            ..Container::default()
        };
        match words[0] {
            "pod" => {
                if let Some(policy) = value("restart") {
                    spec.restart_policy = Some(policy.to_owned());
                }
                if let Some(gate) = value("gate") {
                    let gate = PodReadinessGate { condition_type: gate.to_owned() };
                    spec.readiness_gates.get_or_insert_default().push(gate);
                }
                pod.metadata.deletion_timestamp = has("deleting").then(|| Time(at(900)));
            }
            "condition" => {
                let (type_, status) = words[1].split_once('=').unwrap();
                let status = status.to_owned();
                let one = PodCondition { type_: type_.to_owned(), status, ..Default::default() };
                pod.status.get_or_insert_default().conditions.get_or_insert_default().push(one);
            }
            "init" => spec.init_containers.get_or_insert_default().push(container()),
            "sidecar" => {
                let sidecar = Container { restart_policy: Some("Always".into()), ..container() };
                spec.init_containers.get_or_insert_default().push(sidecar);
            }
            "container" => spec.containers.push(container()),
            "sandbox" => found.sandboxes.push(Sandbox {
                id: words[1].to_owned(),
                attempt: words[1][1..].parse().unwrap(),
                created_at: 1,
                is_ready: has("ready"),
                ips: vec!["10.0.0.5".to_owned()],
            }),
            "found" => {
                let before = found.containers.iter().filter(|one| one.name == words[1]).count();
                let code = value("exited").map(|text| text.parse().unwrap());
                let id = format!("{}-{before}", words[1]);
                if has("started") {
                    probed.started.insert(id.clone(), true);
                }
                if has("dead") {
                    probed.live.insert(id.clone(), false);
                }
                if has("ready") {
                    probed.ready.insert(id.clone(), true);
                }
                let (_, wanted) = pod::container(&pod, words[1]).expect("declared above");
                found.containers.push(FoundContainer {
                    id,
                    name: words[1].to_owned(),
                    sandbox: words[2].to_owned(),
                    restarts: before as u32,
                    hash: if has("changed") { "old".into() } else { pod::hash(&wanted) },
                    state: match words[3] {
                        "running" => State::Running,
                        "created" => State::Created,
                        _ => State::Exited,
                    },
                    created_at: 1 + before as i64,
                    started_at: 50_000_000_000,
                    finished_at: second("at").unwrap_or(100) * 1_000_000_000,
                    exit_code: code.unwrap_or_default(),
                    image: "image".into(),
                    image_id: "sha256:1".into(),
                    ..FoundContainer::default()
                });
            }
            "crashed" => {
                let (_, wanted) = pod::container(&pod, words[1]).expect("declared above");
                let ended = at(second("at").unwrap());
                backoff.next(&backoff_key(words[1], &wanted), ended, ended);
            }
            "now" => now = words[1].parse().unwrap(),
            other => panic!("what is {other}?"),
        }
    }
    found.sort();
    World { pod, found, probed, backoff, now }
}

/// Serves gRPC on a unix socket for as long as the test runs.
pub fn serve<S>(service: S, socket: &Path)
where
    S: tonic::codegen::Service<
            http::Request<tonic::body::Body>,
            Response = http::Response<tonic::body::Body>,
            Error = std::convert::Infallible,
        > + tonic::server::NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    serve_all(Routes::new(service), socket);
}

/// The same of several services.
pub fn serve_all(services: Routes, socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    let incoming = futures_util::stream::unfold(listener, |listener| async {
        let stream = listener.accept().await.map(|(stream, _)| stream);
        Some((stream, listener))
    });
    let server = tonic::transport::Server::builder().add_routes(services);
    tokio::spawn(server.serve_with_incoming(incoming));
}

/// Waits until something is so.
pub async fn until(what: &str, is: impl Fn() -> bool) {
    let wait = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), wait).await.is_ok(), "never: {what}");
}
