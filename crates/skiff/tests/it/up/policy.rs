//! NetworkPolicies and load balancers of a whole cluster, with real pods.
use crate::cluster::Cluster;
use std::process::Stdio;
use std::time::{Duration, Instant};
use testkit::network::{Held, dual_machine, within};

const OBJECTS: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: friend}}}]
    ports: [{port: http}]
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: a
    image: localhost/skiff/demo
    ports: [{name: http, containerPort: 8080}]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: friend, labels: {app: friend}}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: "localhost/busybox:1", command: [sleep, "1000"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger, labels: {app: stranger}}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: "localhost/busybox:1", command: [sleep, "1000"]}]}
"#;

const QUIET: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: quiet}
spec: {podSelector: {matchLabels: {app: friend}}, policyTypes: [Egress]}
"#;

#[test]
fn a_policy_in_and_a_policy_out() {
    let cluster = Cluster::whole();
    cluster.import_busybox("localhost/busybox:1");
    cluster.kubectl_with("apply -f -", OBJECTS);
    for pod in ["web", "friend", "stranger"] {
        let ready =
            format!("get pod {pod} -o jsonpath={{.status.conditions[?(@.type=='Ready')].status}}");
        cluster.until(&ready, "True");
    }
    let ip = cluster.kubectl("get pod web -o jsonpath={.status.podIP}");
    let service = cluster.kubectl("get service web -o jsonpath={.spec.clusterIP}");
    let ask = |from: &str, at: &str| {
        let request = format!("printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' | busybox nc -w 2 {at}");
        cluster.kubectl_args(&["exec", from, "--", "sh", "-c", &request])
    };
    let is_reached = |from: &str, at: &str| ask(from, at).ends_with("web");
    let until = |from: &str, at: &str, expected: bool| {
        let begun = Instant::now();
        while is_reached(from, at) != expected {
            assert!(begun.elapsed() < Duration::from_secs(20), "{from} to {at}: {}", ask(from, at));
        }
    };
    let (direct, service) = (format!("{ip} 8080"), format!("{service} 80"));
    assert!(!is_reached("stranger", &direct), "from its first packet");
    until("friend", &direct, true);
    until("friend", &service, true);
    assert!(!is_reached("stranger", &service), "by its service neither");

    // What is dropped can be seen, by whom it is dropped too.
    let mut flows = within(cluster.network.as_ref(), env!("CARGO_BIN_EXE_skiff").as_ref());
    flows.args(["flows", "--count=1", "--kubeconfig"]).arg(cluster.kubeconfig());
    let flows = flows.stdout(Stdio::piped()).spawn().expect("it starts");
    let flows = std::thread::spawn(move || flows.wait_with_output().expect("it ends").stdout);
    let begun = Instant::now();
    while !flows.is_finished() {
        assert!(!is_reached("stranger", &direct));
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing was told");
    }
    let told = String::from_utf8_lossy(&flows.join().expect("a line")).into_owned();
    let expected = "ingress default/stranger -> default/web TCP 8080 dropped by default/web\n";
    assert_eq!(told, expected);

    cluster.kubectl_with("apply -f -", QUIET);
    until("friend", &direct, false);
    cluster.kubectl("delete networkpolicy quiet web");
    until("friend", &direct, true);
    until("stranger", &service, true);
}

const BALANCED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: a, image: localhost/skiff/demo}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: foreign}
spec: {type: LoadBalancer, loadBalancerClass: example.com/x, selector: {app: web}, ports: [{port: 81}]}
"#;

const SECOND: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: second}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"#;

#[test]
fn a_load_balancer_has_the_nodes_address() {
    let cluster = Cluster::whole();
    cluster.kubectl_with("apply -f -", BALANCED);
    let address = "get service web -o jsonpath={.status.loadBalancer.ingress[*].ip}";
    let expected = testkit::network::ADDRESS.to_string();
    cluster.until(address, &expected);
    let curl = testkit::tools::program("curl", "curl");
    let begun = Instant::now();
    loop {
        let mut command = within(cluster.network.as_ref(), &curl);
        command.args(["-sS", "--max-time", "5", &format!("http://{expected}/hostname")]);
        let output = command.output().expect("curl runs");
        if output.stdout.trim_ascii() == b"web" {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{output:?}");
    }
    // A port is one service's: the other is told.
    cluster.kubectl_with("apply -f -", SECOND);
    let told =
        "get events --field-selector involvedObject.name=second -o jsonpath={.items[*].message}";
    cluster.until(told, "port 80/TCP of the nodes is default/web's");
    let foreign = "get service foreign -o jsonpath={.status.loadBalancer}";
    assert_eq!(cluster.kubectl(foreign), "{}");
    let plain = r#"{"spec":{"type":"ClusterIP","externalTrafficPolicy":null}}"#;
    cluster.kubectl_args(&["patch", "service", "web", "-p", plain]);
    cluster.until(address, "");
    cluster.until("get service second -o jsonpath={.status.loadBalancer.ingress[*].ip}", &expected);
}

const POOLED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: a, image: localhost/skiff/demo}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  ipFamilyPolicy: PreferDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"#;

/// A machine beside the cluster's, which asks its neighbours for addresses as any does.
fn neighbour(cluster: &Cluster) -> Held {
    use netlink::{Family, Socket};
    use std::os::fd::AsFd;
    let there = Held::new();
    let file = std::fs::File::open(&there.path).expect("a namespace");
    let network = &cluster.network.as_ref().expect("a network of its own").path;
    netlink::namespace::within(network, || {
        let mut socket = Socket::open(Family::Route).expect("a socket");
        let master = socket.link("card0").expect("links").expect("a card").index;
        let (name, peer, namespace, mtu) = ("beside", "eth0", file.as_fd(), 1500);
        let veth = netlink::route::Veth { name, peer, namespace, master, mtu };
        socket.create_veth(&veth).expect("a cable");
    })
    .expect("entered");
    let mut socket = Socket::open_in(Family::Route, &there.path).expect("a socket");
    let eth0 = socket.link("eth0").expect("links").expect("a card").index;
    socket.set_link_up(eth0).expect("up");
    for (address, prefix) in [("192.0.2.50", 24), ("2001:db8::50", 64)] {
        socket.add_address(eth0, address.parse().expect("an address"), prefix).expect("given");
    }
    there
}

#[test]
fn a_load_balancer_has_an_address_of_the_pool_that_neighbours_find() {
    let cluster = Cluster::whole_on(
        dual_machine(),
        &[
            "--cluster-cidr=10.244.0.0/16,fd44::/48",
            "--service-cidr=10.96.0.0/12,fd96::/112",
            "--load-balancer-pool=192.0.2.100-192.0.2.110,2001:db8::100-2001:db8::110",
        ],
    );
    let beside = neighbour(&cluster);
    cluster.kubectl_with("apply -f -", POOLED);
    let address = "get service web -o jsonpath={.status.loadBalancer.ingress[*].ip}";
    cluster.until(address, "192.0.2.100 2001:db8::100");
    let curl = testkit::tools::program("curl", "curl");
    let begun = Instant::now();
    for url in ["http://192.0.2.100/hostname", "http://[2001:db8::100]/hostname"] {
        loop {
            let mut command = within(Some(&beside), &curl);
            command.args(["-gsS", "--max-time", "2", url]);
            let output = command.output().expect("curl runs");
            if output.stdout.trim_ascii() == b"web" {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{url}: {output:?}");
        }
    }
    cluster.kubectl("delete service web");
    let network = &cluster.network.as_ref().expect("a network of its own").path;
    let left = || {
        let mut socket = netlink::Socket::open(netlink::Family::Route).expect("a socket");
        socket.addresses_of(Some(0x5f)).expect("addresses").len()
    };
    let begun = Instant::now();
    while netlink::namespace::within(network, left).expect("entered") > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "its addresses are still there");
    }
}
