//! Services, nodes and endpoints as data; then the loop on a world in memory.
use super::facts;
use super::seen::World;
use super::*;
use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

/// A cluster as lines: `service NAME AGE PORT… [local] [dual] [class] [plain] [has=ADDRESS]
/// [asks=ADDRESS]`, `node NAME ADDRESS… [external=ADDRESS] [unready] [excluded]`,
/// `endpoint SERVICE NODE`.
fn world(lines: &str) -> World {
    let mut world = World::default();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, rest) = (words[1], &words[2..]);
        let has = |word: &str| rest.contains(&word);
        let values = |key: &str| -> Vec<&str> {
            rest.iter().filter_map(|word| word.strip_prefix(key)?.strip_prefix('=')).collect()
        };
        match words[0] {
            "service" => {
                let ports = rest.iter().filter_map(|word| {
                    let (port, protocol) = word.split_once('/')?;
                    Some(json!({ "port": port.parse::<u16>().ok()?, "protocol": protocol }))
                });
                let ingress = values("has").into_iter().map(|ip| json!({ "ip": ip }));
                let families = if has("dual") { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
                let made = format!("2026-01-01T00:00:{:02}Z", rest[0].parse::<u8>().unwrap());
                let service = json!({
                    "metadata": { "name": name, "creationTimestamp": made },
                    "spec": {
                        "type": if has("plain") { "ClusterIP" } else { "LoadBalancer" },
                        "loadBalancerClass": if has("class") { json!("x/y") } else { Value::Null },
                        "loadBalancerIP": values("asks").first(),
                        "ipFamilies": families,
                        "externalTrafficPolicy": if has("local") { "Local" } else { "Cluster" },
                        "ports": ports.collect::<Vec<_>>(),
                    },
                    "status": { "loadBalancer": { "ingress": ingress.collect::<Vec<_>>() } },
                });
                let facts = facts::service(&serde_json::from_value(service).unwrap());
                world.services.insert(NamespacedName::new("default", name), Arc::new(facts));
            }
            "node" => {
                let node = node(name, rest, &values("external"), !has("unready"), has("excluded"));
                world.nodes.insert(name.to_owned(), Arc::new(facts::node(&node)));
            }
            _ => {
                let key = NamespacedName::new("default", name);
                world.endpoints.entry(key).or_default().insert(rest[0].to_owned());
            }
        }
    }
    world
}

fn node(name: &str, words: &[&str], external: &[&str], is_ready: bool, excluded: bool) -> Node {
    let internal = words.iter().filter(|word| word.parse::<std::net::IpAddr>().is_ok());
    let internal = internal.map(|address| json!({ "type": "InternalIP", "address": address }));
    let external = external.iter().map(|ip| json!({ "type": "ExternalIP", "address": ip }));
    let labels = match excluded {
        true => json!({ "node.kubernetes.io/exclude-from-external-load-balancers": "" }),
        false => json!({}),
    };
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels },
        "status": {
            "addresses": internal.chain(external).collect::<Vec<_>>(),
            "conditions": [{ "type": "Ready", "status": if is_ready { "True" } else { "False" } }],
        },
    }))
    .unwrap()
}

fn check(lines: &str, pool: &str, expected: Expect) {
    let settings = Settings { pool: pool.parse().unwrap(), reserved: vec![6443] };
    let text: String = plan(&world(lines), &settings)
        .into_iter()
        .map(|(key, wanted)| {
            let said = if wanted.is_said { " as it says" } else { "" };
            let refusal = wanted.refusal.map_or_else(String::new, |text| format!(" {text}"));
            format!("{} {:?}{said}{refusal}\n", key.name, wanted.addresses)
        })
        .collect();
    expected.assert_eq(&text);
}

const NODES: &str = "
    node a 192.0.2.1 2001:db8::1
    node b 192.0.2.2
    node c 192.0.2.3 unready
    node d 192.0.2.4 excluded";

#[test]
fn a_service_has_the_addresses_of_the_nodes_that_take_part() {
    check(
        &format!(
            "{NODES}
             service web 1 80/TCP
             service both 1 81/TCP dual
             service other 1 80/TCP class
             service far 1 82/TCP local
             service near 1 83/TCP local has=192.0.2.2
             endpoint near b
             service left 1 84/TCP plain has=192.0.2.1
             service plain 1 85/TCP plain"
        ),
        "",
        expect![[r#"
            both [192.0.2.1, 192.0.2.2, 2001:db8::1]
            far [] as it says
            left []
            near [192.0.2.2] as it says
            web [192.0.2.1, 192.0.2.2]
        "#]],
    );
    check(
        "node a 192.0.2.1 external=198.51.100.1
         node b 192.0.2.2
         service web 1 80/TCP",
        "",
        expect![[r#"
            web [198.51.100.1]
        "#]],
    );
}

#[test]
fn a_port_of_the_nodes_is_one_services() {
    check(
        &format!(
            "{NODES}
             service young 9 80/TCP has=192.0.2.1 has=192.0.2.2
             service old 1 80/TCP 81/TCP
             service next 2 81/TCP
             service last 3 81/TCP
             service datagrams 3 81/UDP
             service api 1 6443/TCP"
        ),
        "",
        expect![[r#"
            api [] as it says port 6443/TCP of the nodes is Kubernetes' own
            datagrams [192.0.2.1, 192.0.2.2]
            last [] as it says port 81/TCP of the nodes is default/next's
            next [192.0.2.1, 192.0.2.2]
            old [] as it says port 80/TCP of the nodes is default/young's
            young [192.0.2.1, 192.0.2.2] as it says
        "#]],
    );
}

#[test]
fn a_pool_gives_each_service_an_address_of_its_own() {
    check(
        "service a 1 80/TCP
         service b 2 80/TCP dual has=192.0.2.100 has=2001:db8::7
         service c 3 80/TCP asks=192.0.2.102
         service d 4 80/TCP asks=192.0.2.9
         service e 5 80/TCP
         service f 6 80/TCP asks=192.0.2.102",
        "192.0.2.100-192.0.2.102,2001:db8::/120",
        expect![[r#"
            a [192.0.2.101]
            b [192.0.2.100, 2001:db8::7] as it says
            c [192.0.2.102]
            d [] as it says the address 192.0.2.9 is not of the pool
            e [] as it says no IPv4 address of the pool is free
            f [] as it says the address 192.0.2.102 is default/c's
        "#]],
    );
}

#[test]
fn what_is_no_pool_is_said() {
    for text in ["192.0.2.1-", "x", "192.0.2.9-192.0.2.1", "192.0.2.1-2001:db8::1", "192.0.2.0/33"]
    {
        let error = text.parse::<Pool>().unwrap_err().to_string();
        assert!(error.starts_with("invalid range of addresses"), "{text}: {error}");
    }
}

#[tokio::test]
async fn status_follows_services_and_nodes() {
    let context = Context::new();
    let world = client::testing::World::new(&context);
    let running = tokio::spawn(run(context.clone(), world.source(), Settings::default()));
    world.put(&node("a", &["192.0.2.1"], &[], true, false));
    let service: Service = serde_json::from_value(json!({
        "metadata": { "namespace": "default", "name": "web" },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }], "ipFamilies": ["IPv4"] },
    }))
    .unwrap();
    world.put(&service);
    let ingress = || {
        let service = world.get::<Service>("default", "web").unwrap();
        let balancer = service.status.clone().and_then(|status| status.load_balancer);
        let ingress = balancer.and_then(|one| one.ingress).unwrap_or_default();
        ingress.into_iter().filter_map(|one| one.ip).collect::<Vec<_>>()
    };
    let until = async |expected: &[&str]| {
        while ingress() != expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    until(&["192.0.2.1"]).await;
    world.put(&node("b", &["192.0.2.2"], &[], true, false));
    until(&["192.0.2.1", "192.0.2.2"]).await;
    world.remove::<Node>("", "a");
    until(&["192.0.2.2"]).await;
    let mut plain = (*world.get::<Service>("default", "web").unwrap()).clone();
    plain.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
    world.put(&plain);
    until(&[]).await;
    context.stop();
    running.await.unwrap();
}
