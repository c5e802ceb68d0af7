//! A node's part and the writer of statuses, on a world in memory and with real sockets.
use super::*;
use crate::serve::tests::backend_servers as backend;
use crate::serve::tests::stage::raw;
use crate::world::resource;
use client::ApiResource;
use client::testing::World;
use k8s_openapi::api::core::v1::{Event, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

fn put<T: api::rules::Form>(world: &World, tree: Value) {
    world.put_tree(&ApiResource::of::<T>(), tree);
}

/// A cluster with a node and a service whose pods are there.
fn cluster(world: &World, pods: &[SocketAddr]) {
    put::<IngressClass>(
        world,
        json!({ "metadata": { "name": "skiff" }, "spec": { "controller": "skiff.dev/ingress" } }),
    );
    put::<Node>(
        world,
        json!({ "metadata": { "name": "one", "labels": { "skiff.dev/ingress": "true" } }, "status": {
            "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }],
            "conditions": [{ "type": "Ready", "status": "True" }] } }),
    );
    put::<Service>(
        world,
        json!({ "metadata": { "name": "web", "namespace": "default" },
            "spec": { "ports": [{ "name": "http", "port": 80 }] } }),
    );
    endpoints(world, pods);
}

fn endpoints(world: &World, pods: &[SocketAddr]) {
    let port = pods.first().map_or(1, SocketAddr::port);
    let endpoints: Vec<Value> =
        pods.iter().map(|pod| json!({ "addresses": [pod.ip().to_string()] })).collect();
    put::<EndpointSlice>(
        world,
        json!({ "metadata": { "name": "web-1", "namespace": "default",
                "labels": { "kubernetes.io/service-name": "web" } },
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{ "name": "http", "port": port }] }),
    );
}

fn ingress(world: &World) {
    put::<Ingress>(
        world,
        json!({ "metadata": { "name": "web", "namespace": "default" },
            "spec": { "ingressClassName": "skiff", "defaultBackend":
                { "service": { "name": "web", "port": { "number": 80 } } } } }),
    );
}

/// Where each port is really served.
type Open = Arc<Mutex<BTreeMap<u16, SocketAddr>>>;

fn config(open: &Open) -> Config {
    let (open, of_datagrams) = (open.clone(), open.clone());
    let datagrams = move |wanted: SocketAddr| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        of_datagrams.lock().insert(wanted.port(), socket.local_addr()?);
        UdpSocket::from_std(socket)
    };
    let bind = move |port: u16| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        open.lock().insert(port, listener.local_addr()?);
        TcpListener::from_std(listener)
    };
    Config {
        http_port: 80,
        https_port: 443,
        pool: Pool::default(),
        node_name: "one".to_owned(),
        bind: Bind { connections: Arc::new(bind), datagrams: Arc::new(datagrams) },
    }
}

/// Looks until it is so.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let looking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), looking).await.is_ok(), "{what}");
}

async fn answers(open: &Open, port: u16, expected: &str) -> bool {
    let Some(at) = open.lock().get(&port).copied() else { return false };
    let request = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    raw(at, request).await.contains(expected)
}

#[tokio::test]
async fn an_ingress_is_served_while_it_is_there_by_the_pods_that_are() {
    let (context, pod) = (Context::new(), backend::named("pod").await);
    let (world, open) = (World::new(&context), Open::default());
    cluster(&world, &[pod]);
    let running = tokio::spawn(run(context.clone(), world.source(), config(&open)));
    ingress(&world);
    until("it is served", async || answers(&open, 80, "200 OK").await).await;
    endpoints(&world, &[]);
    until("no pod is left", async || answers(&open, 80, "503").await).await;
    endpoints(&world, &[pod]);
    until("one is back", async || answers(&open, 80, "200 OK").await).await;
    let at = open.lock()[&80];
    world.remove::<Ingress>("default", "web");
    until("the port is closed", async || tokio::net::TcpStream::connect(at).await.is_err()).await;
    context.stop();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn gateways_are_served_once_they_are_defined() {
    let (context, pod) = (Context::new(), backend::named("pod").await);
    let (world, open) = (World::new(&context), Open::default());
    cluster(&world, &[pod]);
    tokio::spawn(run(context.clone(), world.source(), config(&open)));
    tokio::spawn(crate::status::run(context.clone(), world.source(), config(&open)));
    for mut definition in crate::gateway_definitions() {
        let plural = definition["spec"]["names"].clone();
        definition["status"] = json!({ "acceptedNames": plural,
            "conditions": [{ "type": "Established", "status": "True" }] });
        put::<CustomResourceDefinition>(&world, definition);
    }
    let (class, tree) = crate::gateway_class();
    world.put_tree(&class, tree);
    world.put_tree(
        &resource("Gateway"),
        json!({ "metadata": { "name": "gate", "namespace": "default" }, "spec": {
            "gatewayClassName": "skiff",
            "listeners": [{ "name": "http", "port": 8080, "protocol": "HTTP" }] } }),
    );
    world.put_tree(
        &resource("HTTPRoute"),
        json!({ "metadata": { "name": "web", "namespace": "default" }, "spec": {
            "parentRefs": [{ "name": "gate" }],
            "rules": [{ "backendRefs": [{ "name": "web", "port": 80 }] }] } }),
    );
    until("it is served", async || answers(&open, 8080, "200 OK").await).await;
    let attached = async || {
        let gateway = world.get_tree(&resource("Gateway"), "default", "gate");
        gateway.is_some_and(|gateway| gateway["status"]["listeners"][0]["attachedRoutes"] == 1)
    };
    until("its status says so", attached).await;
    let route = world.get_tree(&resource("HTTPRoute"), "default", "web").unwrap();
    assert_eq!(route["status"]["parents"][0]["controllerName"], "skiff.dev/gateway");
    // What is no longer defined is no longer served.
    let at = open.lock()[&8080];
    world.remove::<CustomResourceDefinition>("", "gateways.gateway.networking.k8s.io");
    until("the port is closed", async || tokio::net::TcpStream::connect(at).await.is_err()).await;
    context.stop();
}

#[tokio::test(start_paused = true)]
async fn a_port_that_is_taken_is_told_once_and_tried_again() {
    let context = Context::new();
    let (world, tries) = (World::new(&context), Arc::new(Mutex::new(0)));
    cluster(&world, &[]);
    ingress(&world);
    let counted = tries.clone();
    let bind = move |port: u16| {
        *counted.lock() += usize::from(port == 80);
        Err(io::Error::from(io::ErrorKind::AddrInUse))
    };
    let usual = config(&Open::default());
    let bind = Bind { connections: Arc::new(bind), ..usual.bind.clone() };
    let config = Config { bind, ..usual };
    tokio::spawn(run(context.clone(), world.source(), config));
    until("it is tried again", async || *tries.lock() > 3).await;
    let events = world.all::<Event>();
    let mut notes: Vec<_> = events
        .iter()
        .map(|event| (event.involved_object.kind.clone(), event.count, event.message.clone()))
        .collect();
    notes.sort();
    let note = |port: u16| {
        let text = format!("failed to listen on port {port}: address in use; trying again");
        (Some("Node".to_owned()), Some(1), Some(text))
    };
    assert_eq!(notes, [note(443), note(80)]);
    context.stop();
}

#[tokio::test(start_paused = true)]
async fn statuses_are_written_once_and_follow_the_nodes() {
    let context = Context::new();
    let world = World::new(&context);
    cluster(&world, &[]);
    ingress(&world);
    let writing = crate::status::run(context.clone(), world.source(), config(&Open::default()));
    tokio::spawn(writing);
    let shown = || {
        let ingress = world.get::<Ingress>("default", "web");
        let status = ingress.and_then(|one| one.status.clone()?.load_balancer?.ingress);
        let all = status.unwrap_or_default();
        all.into_iter().filter_map(|one| one.ip).collect::<Vec<_>>().join(" ")
    };
    until("the address is said", async || shown() == "192.0.2.1").await;
    put::<Node>(
        &world,
        json!({ "metadata": { "name": "two", "labels": { "skiff.dev/ingress": "true" } }, "status": {
            "addresses": [{ "type": "InternalIP", "address": "192.0.2.2" }],
            "conditions": [{ "type": "Ready", "status": "True" }] } }),
    );
    until("another node is said", async || shown() == "192.0.2.1 192.0.2.2").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let written: Vec<String> = world.written();
    let patches = written.iter().filter(|line| line.starts_with("patch ingresses")).count();
    assert_eq!(patches, 2, "{written:?}");
    context.stop();
}
