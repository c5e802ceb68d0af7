//! A node's own doors: the kubelet, the health of components, the metrics API, DNS. Who is nobody, who may
//! not, who never finishes, who sends what is no packet.
use crate::access::wait_until;
use crate::cluster::Cluster;
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use testkit::network::{ADDRESS, within};

/// What a kubelet shows nobody without asking who it is.
const KUBELET: &[&str] = &[
    "/pods",
    "/runningpods/",
    "/metrics",
    "/metrics/resource",
    "/metrics/cadvisor",
    "/stats/summary",
    "/configz",
    "/logs/",
    "/logs/../../../etc/shadow",
    "/logs/%2e%2e/%2e%2e/etc/shadow",
    "/containerLogs/default/web/demo",
    "/exec/default/web/demo?command=sh&output=1",
    "/attach/default/web/demo?output=1",
    "/portForward/default/web",
    "/run/default/web/demo?cmd=id",
    "/checkpoint/default/web/demo",
    "/debug/pprof/heap",
    "/",
    "//pods",
    "/nonsense",
];

/// Where somebody may hold a request that never ends.
const DOORS: &[u16] = &[6443, 10250, 10256, 10257, 10259, 4443];
const HELD: usize = 40;

fn curl(cluster: &Cluster, arguments: &[&str]) -> String {
    let program = testkit::tools::program("curl", "curl");
    let mut curl = within(cluster.network.as_ref(), &program);
    curl.args(["-sk", "--path-as-is", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}"]);
    let output = curl.args(arguments).output().expect("curl runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_nodes_doors_open_for_those_who_may_and_stay_open_for_them() {
    let cluster = Cluster::whole();
    cluster.kubectl("run web --image=localhost/skiff/demo");
    cluster.until("get pod web -o jsonpath={.status.phase}", "Running");
    let token = format!("Authorization: Bearer {}", cluster.kubectl("create token default"));
    for path in KUBELET {
        let url = format!("https://{ADDRESS}:10250{path}");
        for method in ["GET", "POST", "DELETE"] {
            assert_eq!(curl(&cluster, &["-X", method, &url]), "401", "{method} {path}");
            let refused = curl(&cluster, &["-X", method, "-H", &token, &url]);
            assert!(["403", "404", "405"].contains(&&*refused), "{method} {path}: {refused}");
        }
    }
    // The metrics API speaks to the API server alone: without its certificate there is no handshake.
    let metrics = format!("https://{ADDRESS}:4443/apis/metrics.k8s.io/v1/nodes");
    assert_eq!(curl(&cluster, &["-H", &token, &metrics]), "000");

    let network = cluster.network.as_ref().expect("a network of its own");
    let gateway = cluster.kubectl(
        "get endpointslices -n kube-system -l k8s-app=kube-dns -o jsonpath={.items[0].endpoints[0].addresses[0]}",
    );
    let dns: SocketAddr = format!("{gateway}:53").parse().expect("an address");
    let attack = || {
        let mut held = Vec::new();
        let doors = DOORS.iter().map(|port| SocketAddr::from((ADDRESS, *port))).chain([dns]);
        for door in doors {
            for _ in 0..HELD {
                let mut stream = TcpStream::connect(door).expect("it listens");
                // Half a greeting, half a request, half a packet.
                stream.write_all(&[22, 3, 1, 2, 0, 1]).expect("it is heard");
                held.push(stream);
            }
        }
        let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
        let mut packets = broken_packets();
        packets.extend((0..500_u32).map(noise));
        for packet in packets {
            socket.send_to(&packet, dns).expect("sent");
        }
        held
    };
    let held = netlink::namespace::within(&network.path, attack).expect("entered");
    let ip = cluster.kubectl("get pod web -o jsonpath={.status.podIP}");
    assert_eq!(curl(&cluster, &[&format!("http://{ip}:8080/hostname")]), "200");
    let logs = cluster.kubectl("logs web --tail=1");
    assert!(!logs.starts_with("error"), "{logs}");
    for port in [10257, 10259] {
        let healthy = || curl(&cluster, &[&format!("https://{ADDRESS}:{port}/healthz")]) == "200";
        wait_until(healthy);
    }
    let resolve =
        "exec web -- /skiff demo --get http://web.default.svc.cluster.local:8080/hostname";
    cluster.kubectl("expose pod web --port 8080");
    cluster.until(resolve, "web");
    drop(held);
}

/// Questions that lead in circles, out of the packet, or are no questions.
fn broken_packets() -> Vec<Vec<u8>> {
    let head = |questions: u8| vec![0, 7, 1, 0, 0, questions, 0, 0, 0, 0, 0, 0];
    let with = |questions: u8, rest: &[u8]| [head(questions), rest.to_vec()].concat();
    vec![
        Vec::new(),
        vec![0],
        head(1),
        head(255),
        // A name that is itself, one that points behind its end, two that point at each other.
        with(1, &[0xc0, 12, 0, 1, 0, 1]),
        with(1, &[0xff, 0xff, 0, 1, 0, 1]),
        with(1, &[0xc0, 14, 0xc0, 12, 0, 1, 0, 1]),
        // A label that is longer than the packet, and a name that is longer than names are.
        with(1, &[63, b'a']),
        with(1, &[&[1, b'a'][..]; 200].concat()),
        // An answer instead of a question.
        [vec![0, 7, 0x81, 0x80], head(1)[4..].to_vec(), vec![0, 0, 1, 0, 1]].concat(),
    ]
}

/// Bytes that mean nothing, the same at every run.
fn noise(seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let length = next() % 600;
    (0..length).map(|_| next().to_le_bytes()[0]).collect()
}
