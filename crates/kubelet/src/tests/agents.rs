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
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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

fn pod(machine: &Machine, name: &str) {
    let mut spec = one(json!({}));
    spec["nodeName"] = "n1".into();
    let metadata = json!({ "name": name, "namespace": "default", "uid": name, "generation": 1 });
    let pod = json!({ "metadata": metadata, "spec": spec });
    machine.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
}

fn phase(machine: &Machine, name: &str) -> Option<String> {
    machine.world.get::<Pod>("default", name)?.status.clone()?.phase
}

#[tokio::test]
async fn agents_hear_of_pods_from_their_node() {
    let machine = Machine::new();
    machine.run_kubelet_with(machine.context.clone(), |_| {});
    let mut agent = agent(&machine).await;
    // Once that runs, all who want pods have said so.
    pod(&machine, "early");
    until("early runs", || phase(&machine, "early").as_deref() == Some("Running")).await;
    let mut watch = agent.watch_pods(WatchPodsRequest {}).await.unwrap().into_inner();
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last| last != "complete") {
        heard.push(told(&watch.message().await.unwrap().unwrap()));
    }
    assert_eq!(heard[0], "added early Running True 0");
    pod(&machine, "web");
    while heard.last().is_none_or(|last| !last.ends_with("Running True 0")) {
        heard.push(told(&watch.message().await.unwrap().unwrap()));
    }
    let of_web: Vec<_> = heard.iter().filter(|event| event.contains(" web ")).collect();
    assert_eq!(of_web[0], "added web Pending False 0");
    assert!(of_web[1..].iter().all(|event| event.starts_with("modified web")), "{heard:?}");

    let listed = agent.list_pods(ListPodsRequest {}).await.unwrap().into_inner().pods;
    let listed: Vec<Value> = listed.iter().map(|pod| decode(pod)).collect();
    let rows: Vec<_> = listed.iter().map(shown).collect();
    assert_eq!(rows, ["early Running True 0", "web Running True 0"]);
    let web = &listed[1];
    assert_eq!(web["spec"]["containers"][0]["name"], "c");
    let ask = |uid: &str| GetPodRequest { pod_uid: uid.to_owned() };
    let uid = web["metadata"]["uid"].as_str().unwrap();
    let got = agent.get_pod(ask(uid)).await.unwrap().into_inner().pod;
    assert_eq!(&decode(&got), web);
    let refused = agent.get_pod(ask("nobody")).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::NotFound, "pod with UID nobody not found")
    );

    // The API server is away; what happens here is heard all the same.
    machine.world.refuse(|_| Some(Status::service_unavailable("connection refused")));
    machine.runtime.exit("c", 1);
    let mut last = String::new();
    while last != "modified web Running True 1" {
        last = told(&watch.message().await.unwrap().unwrap());
    }
    let got = agent.get_pod(ask(uid)).await.unwrap().into_inner().pod;
    assert!(shown(&decode(&got)).ends_with("True 1"));
    machine.world.refuse_nothing();

    let mut ended = Pod::clone(&machine.world.get::<Pod>("default", "web").unwrap());
    ended.metadata.deletion_timestamp = Some(Time(machine.context.now()));
    ended.metadata.deletion_grace_period_seconds = Some(1);
    machine.world.put(&ended);
    while last != "deleted web - - 0" {
        last = told(&watch.message().await.unwrap().unwrap());
    }
}
