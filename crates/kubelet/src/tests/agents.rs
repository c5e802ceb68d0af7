//! Agents of the node that ask the kubelet about pods, and no API server.
use super::{Machine, one};
use crate::plugins::connect;
use crate::pods_api::proto::pods_client::PodsClient;
use crate::pods_api::proto::{
    EventType, GetPodRequest, ListPodsRequest, WatchPodsEvent, WatchPodsRequest,
};
use crate::testing::until;
use api::codec::protobuf::decode_message;
use api::schema::builtin;
use api::status::Status;
use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Channel;

async fn agent(machine: &Machine) -> PodsClient<Channel> {
    let socket = machine.folder.path().join("kubelet/pods-api/pods-api.sock");
    until("the kubelet listens", || socket.exists()).await;
    PodsClient::new(connect(&socket).unwrap())
}

fn decode(pod: &[u8]) -> Value {
    decode_message(pod, builtin().named("core/v1.Pod").unwrap()).unwrap()
}

/// `web Running True 0`: phase, readiness, restarts.
fn shown(pod: &Value) -> String {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|one| one["type"] == "Ready");
    let ready = ready.map_or("-", |one| one["status"].as_str().unwrap());
    let phase = pod["status"]["phase"].as_str().unwrap_or("-");
    let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0);
    format!("{} {phase} {ready} {restarts}", pod["metadata"]["name"].as_str().unwrap())
}

fn told(event: &WatchPodsEvent) -> String {
    match event.r#type() {
        EventType::InitialSyncComplete => "complete".to_owned(),
        kind => format!("{} {}", kind.as_str_name().to_lowercase(), shown(&decode(&event.pod))),
    }
}

#[tokio::test]
async fn agents_hear_of_pods_from_their_node() {
    let machine = Machine::new();
    machine.run_kubelet_with(machine.context.clone(), |_| {});
    let mut agent = agent(&machine).await;
    until("all is known", || {
        machine.world.get::<k8s_openapi::api::core::v1::Node>("", "n1").is_some()
    })
    .await;
    let mut watch = loop {
        match agent.watch_pods(WatchPodsRequest {}).await {
            Ok(watch) => break watch.into_inner(),
            Err(status) => assert_eq!(status.message(), "Kubelet is initializing"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    let mut heard = Vec::new();
    heard.push(told(&watch.message().await.unwrap().unwrap()));
    machine.pod(one(json!({})));
    while heard.last().is_none_or(|last| !last.ends_with("Running True 0")) {
        heard.push(told(&watch.message().await.unwrap().unwrap()));
    }
    assert_eq!(heard[..2], ["complete", "added web Pending False 0"], "{heard:?}");
    assert!(heard[2..].iter().all(|event| event.starts_with("modified web")), "{heard:?}");

    let listed = agent.list_pods(ListPodsRequest {}).await.unwrap().into_inner().pods;
    let listed: Vec<Value> = listed.iter().map(|pod| decode(pod)).collect();
    assert_eq!(listed.iter().map(shown).collect::<Vec<_>>(), ["web Running True 0"]);
    assert_eq!(listed[0]["spec"]["containers"][0]["name"], "c");
    let ask = |uid: &str| GetPodRequest { pod_uid: uid.to_owned() };
    let uid = listed[0]["metadata"]["uid"].as_str().unwrap();
    let got = agent.get_pod(ask(uid)).await.unwrap().into_inner().pod;
    assert_eq!(decode(&got), listed[0]);
    let refused = agent.get_pod(ask("nobody")).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::NotFound, "pod with UID nobody not found")
    );

    // The API server is away; what happens here is heard all the same.
    machine.world.refuse(|_| Some(Status::service_unavailable("connection refused")));
    machine.runtime.exit("c", 1);
    let mut last = String::new();
    while !last.ends_with("True 1") {
        last = told(&watch.message().await.unwrap().unwrap());
    }
    let got = agent.get_pod(ask(uid)).await.unwrap().into_inner().pod;
    assert!(shown(&decode(&got)).ends_with("True 1"));
    machine.world.refuse_nothing();
}
