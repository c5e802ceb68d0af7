//! The crate that components stand on, against the real server.
// In tests a panic is the report, in what they share too.
#![allow(clippy::unwrap_used)]
use crate::cluster::Cluster;
use client::events::{Happening, Recorder, Reporter, reference};
use client::https::{Config, Https};
use client::leader::{Election, Elector, End};
use client::source::{At, Collection, Delete, Page, Patch, Raw, Said};
use client::{ApiResource, Client, Context, Informers, NamespacedName, Object, OwnWrites};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// With `CLIENT_KUBECONFIG` it is another server that is asked, upstream's own above all: what the crate
/// expects of a server is then seen to be true of that one.
fn connect(cluster: &Cluster, change: impl FnOnce(&mut Config)) -> (Context, Client) {
    let other = std::env::var_os("CLIENT_KUBECONFIG").map(std::path::PathBuf::from);
    let file = other.unwrap_or_else(|| cluster.folder.path().join("kubeconfig"));
    let mut config = Config::from_kubeconfig(&file, None).expect("a kubeconfig");
    change(&mut config);
    let context = Context::new();
    let source = Https::new(&context, config.for_component("tester")).expect("a good config");
    (context, Client::new(Arc::new(source)).managed_by("tester"))
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let (name, namespace) = (Some(name.to_owned()), Some("default".to_owned()));
    let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
    let data = [("k".to_owned(), value.to_owned())].into();
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

fn value(object: &Object) -> String {
    let typed = object.typed::<ConfigMap>().expect("a ConfigMap");
    typed.data.as_ref().and_then(|data| data.get("k").cloned()).unwrap_or_default()
}

fn everything() -> Collection {
    Collection::all(ApiResource::of::<ConfigMap>()).in_namespace("default")
}

async fn soon<T>(what: &str, of: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, of).await.unwrap_or_else(|_| panic!("{what} took too long"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_is_understood() {
    let cluster = Cluster::start();
    for http2 in [true, false] {
        let (_, client) = connect(&cluster, |config| config.http2 = http2);
        verbs(&client).await;
    }
}

async fn verbs(client: &Client) {
    let made = client.create(&config_map("c", "1")).await.unwrap();
    assert!(made.revision() > 0 && !made.uid().is_empty(), "{made:?}");
    let again = client.create(&config_map("c", "1")).await.unwrap_err();
    assert!(again.is_already_exists(), "{again:?}");
    let got = client.get::<ConfigMap>("default", "c").await.unwrap();
    assert_eq!((got.revision(), value(&got)), (made.revision(), "1".to_owned()));

    let mut typed: ConfigMap = got.decode().unwrap();
    typed.data.get_or_insert_default().insert("k".into(), "2".into());
    let updated = client.update(&typed).await.unwrap();
    assert_eq!(value(&updated), "2");
    let stale = client.update(&typed).await.unwrap_err();
    assert!(stale.is_conflict(), "{stale:?}");

    let own = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "applied": "yes" },
        "metadata": { "name": "c", "namespace": "default" } });
    let patches = [
        Patch::Json(json!([{ "op": "replace", "path": "/data/k", "value": "3" }])),
        Patch::Merge(json!({ "data": { "k": "4" } })),
        Patch::Strategic(json!({ "data": { "k": "5" } })),
        Patch::Apply(own),
    ];
    let mut values = Vec::new();
    for patch in patches {
        let patched = client.patch::<ConfigMap>("default", "c", patch).await.unwrap();
        values.push(value(&patched));
    }
    assert_eq!(values, ["3", "4", "5", "5"]);
    let tree = client.get::<ConfigMap>("default", "c").await.unwrap().tree().unwrap();
    let managers = tree["metadata"]["managedFields"].as_array().unwrap().iter();
    assert!(managers.clone().any(|m| m["manager"] == "tester" && m["operation"] == "Apply"));

    let other = Delete::uid("another");
    let refused = client.delete::<ConfigMap>("default", "c", other).await.unwrap_err();
    assert!(refused.is_conflict(), "{refused:?}");
    let gone = client.delete::<ConfigMap>("default", "c", Delete::uid(made.uid())).await.unwrap();
    assert!(matches!(gone, Said::Status(_)), "{gone:?}");
    let missing = client.get::<ConfigMap>("default", "c").await.unwrap_err();
    assert_eq!(missing.message, "configmaps \"c\" not found");

    let wrong = json!({ "metadata": { "name": "Wrong" } });
    let invalid = client.create_in(ApiResource::of::<ConfigMap>(), "default", wrong).await;
    assert_eq!(invalid.unwrap_err().code, 422);

    let version = client.source().raw(Raw::get("/version")).await.unwrap().bytes().await.unwrap();
    let version: Value = serde_json::from_slice(&version).unwrap();
    assert_eq!(version["major"], "1");
    let nowhere = client.source().raw(Raw::get("/nowhere")).await.err().unwrap();
    assert_eq!(nowhere.code, 404, "{nowhere:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn subresources_are_written() {
    let cluster = Cluster::start().with_default_account();
    let (_, client) = connect(&cluster, |_| ());
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let pods = ApiResource::of::<Pod>();
    client.create_in(pods.clone(), "default", pod).await.unwrap();
    let key = NamespacedName::new("default", "p");
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "p" },
        "target": { "kind": "Node", "name": "n" } });
    let bound = client.post::<Pod>(&key, "binding", &binding).await.unwrap();
    assert!(matches!(bound, Said::Status(_)), "{bound:?}");
    let phase = Patch::Strategic(json!({ "status": { "phase": "Running" } }));
    let patched = client.patch_status::<Pod>("default", "p", phase).await.unwrap();
    let pod = patched.typed::<Pod>().unwrap();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    assert_eq!((node, phase), (Some("n"), Some("Running")));
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "audiences": [] } });
    let account = NamespacedName::new("default", "default");
    let token = client
        .post::<k8s_openapi::api::core::v1::ServiceAccount>(&account, "token", &request)
        .await
        .unwrap();
    let Said::Object(token) = token else { panic!("{token:?}") };
    let token = token.tree().unwrap()["status"]["token"].as_str().unwrap().to_owned();
    // Who has only the token is the account, and nobody else.
    let file = cluster.folder.path().join("token");
    std::fs::write(&file, token).unwrap();
    let (_, account) = connect(&cluster, |config| {
        config.proof = client::https::Proof::default();
        config.proof.token = Some(client::https::Token::File(file));
    });
    let refused = account.get::<Pod>("default", "p").await.unwrap_err();
    let who = "User \"system:serviceaccount:default:default\" cannot get resource \"pods\"";
    assert!(refused.message.contains(who), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages_packed_and_whole() {
    let cluster = Cluster::start();
    let (_, client) = connect(&cluster, |_| ());
    let large = "x".repeat(2000);
    for i in 0..120 {
        client.create(&config_map(&format!("c-{i:03}"), &large)).await.unwrap();
    }
    // Packed, as it is large; and in pages.
    let whole = client.source().list(everything(), Page::default()).await.unwrap();
    let first = Page { limit: 50, ..Page::default() };
    let page = client.source().list(everything(), first).await.unwrap();
    assert_eq!(
        (page.items.len(), page.remaining_item_count),
        (50, Some(whole.items.len() as i64 - 50))
    );
    let next = Page { limit: 500, continue_token: page.continue_token.clone(), ..Page::default() };
    let rest = client.source().list(everything(), next).await.unwrap();
    assert_eq!(50 + rest.items.len(), whole.items.len());
    assert!(whole.items.len() >= 120 && rest.continue_token.is_empty());
    let one = whole.items.iter().find(|object| object.name() == "c-007").unwrap();
    assert_eq!((value(one).len(), one.type_meta().unwrap().kind.as_str()), (2000, "ConfigMap"));
    let old = Page { at: At::Exactly(one.revision()), ..Page::default() };
    let then = client.source().list(everything(), old).await.unwrap();
    assert!(then.items.len() < whole.items.len() && then.revision == one.revision());
    let labels = "c=d".parse().unwrap();
    let none = client.list(everything().with_labels(labels)).await.unwrap();
    assert!(none.items.is_empty());
    client.delete_collection(everything(), Delete::default()).await.unwrap();
    assert!(client.list(everything()).await.unwrap().items.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informer_sees_what_its_owner_writes() {
    let cluster = Cluster::start();
    for http2 in [true, false] {
        let (context, client) = connect(&cluster, |config| config.http2 = http2);
        let informers = Informers::new(&context, client.source().clone());
        let maps = informers.of::<ConfigMap>();
        let namespaces = informers.objects(Collection::all(ApiResource::of::<Namespace>()));
        soon("the first list", informers.synced()).await;
        assert!(namespaces.read().find("", "kube-system").is_some());
        let own: OwnWrites<&str> = OwnWrites::new();
        for i in 0..50 {
            let made = client.create(&config_map(&format!("c-{i}"), "1")).await.unwrap();
            own.wrote(&"key", &maps, &made);
            assert!(own.visible(&"key", PATIENCE).await);
            assert!(maps.get(&NamespacedName::of(&made)).is_some(), "{i}");
        }
        let key = NamespacedName::new("default", "c-7");
        let uid = maps.get(&key).unwrap().metadata.uid.clone().unwrap();
        client.delete::<ConfigMap>("default", "c-7", Delete::default()).await.unwrap();
        own.deleted(&"key", &maps, &key, &uid);
        assert!(own.visible(&"key", PATIENCE).await);
        assert!(maps.get(&key).is_none());
        client.delete_collection(everything(), Delete::default()).await.unwrap();
        context.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_its_events_are_there() {
    let cluster = Cluster::start();
    let (context, client) = connect(&cluster, |_| ());
    let recorder = Recorder::core(&context, client.clone(), Reporter::new("tester", ""));
    let election = Election::new(&context, "default", "test", "host");
    let elector = Elector::new(&context, client.clone(), election.clone()).unwrap();
    let term = elector.recording(recorder.clone()).run(|_| async {
        let lease = client.get::<Lease>("default", "test").await.unwrap();
        let spec = lease.typed::<Lease>().unwrap().spec.clone().unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some(&*election.identity));
        let about = reference(&*lease.typed::<Lease>().unwrap());
        for _ in 0..3 {
            recorder.record(Happening::warning(about.clone(), "Testing", "again"));
        }
    });
    assert_eq!(soon("a term", term).await, End::Stopped);
    let lease = client.get::<Lease>("default", "test").await.unwrap();
    let holder = lease.tree().unwrap()["spec"]["holderIdentity"].clone();
    assert!(holder.as_str().is_none_or(str::is_empty), "{holder}");

    let informers = Informers::new(&context, client.source().clone());
    let events = informers.of::<Event>();
    let counted = async {
        loop {
            let counts: Vec<i32> = {
                let read = events.read();
                let testing = read.iter().filter(|(_, e)| e.reason.as_deref() == Some("Testing"));
                testing.filter_map(|(_, event)| event.count).collect()
            };
            if counts == [3] {
                return;
            }
            events.seen(events.revision() + 1).await;
        }
    };
    soon("an event that is counted", counted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_a_status() {
    let cluster = Cluster::start();
    let (_, client) = connect(&cluster, |config| config.server = "https://127.0.0.1:1".to_owned());
    let refused = client.get::<Pod>("default", "p").await.unwrap_err();
    assert_eq!(refused.code, 503, "{refused:?}");
    assert!(refused.message.starts_with("failed to connect to 127.0.0.1:1"), "{refused:?}");
    let (_, stranger) = connect(&cluster, |config| config.server_name = Some("stranger".into()));
    let refused = stranger.get::<Pod>("default", "p").await.unwrap_err();
    assert!(refused.message.contains("not valid for name"), "{refused:?}");
}
