//! What `skiff status` says of a whole cluster, and where what it counts is found.
use crate::cluster::Cluster;
use testkit::network::{ADDRESS, within};

#[test]
fn a_cluster_says_how_it_is() {
    let cluster = Cluster::whole();
    let mut status = within(cluster.network.as_ref(), env!("CARGO_BIN_EXE_skiff").as_ref());
    status.args(["status", "--data-dir"]).arg(cluster.folder.path().join("data"));
    let output = status.arg("--kubeconfig").arg(cluster.kubeconfig()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let has = |line: &str| said.lines().any(|found| found.starts_with(line));
    assert!(
        has("Components  controller-manager, scheduler, kubelet, network-policy, proxy"),
        "{said}"
    );
    assert!(!said.contains("does not answer") && !said.contains("left out"), "{said}");
    assert!(has("Nodes       1 of 1 ready"), "{said}");
    assert!(has(&format!("            node, v1.37.0, {ADDRESS}")), "{said}");
    assert!(has("Store       ") && has("Certificate "), "{said}");

    // The administrator's certificate is one at every component.
    let pki = |file: &str| cluster.folder.path().join("data/pki").join(file);
    for port in [10257, 10259] {
        let mut curl = within(cluster.network.as_ref(), &testkit::tools::program("curl", "curl"));
        curl.args(["-sk", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}"]);
        curl.arg("--cert").arg(pki("admin.crt")).arg("--key").arg(pki("admin.key"));
        let answer = curl.arg(format!("https://{ADDRESS}:{port}/metrics")).output();
        let answer = answer.expect("curl runs").stdout;
        assert_eq!(String::from_utf8_lossy(&answer), "200", "port {port}");
    }

    // DNS counts where its service says.
    let slices =
        cluster.json("get endpointslice -n kube-system -l kubernetes.io/service-name=kube-dns");
    let slice = &slices["items"][0];
    let mut ports = slice["ports"].as_array().into_iter().flatten();
    let metrics = ports.find(|port| port["name"] == "metrics").expect("a port for metrics");
    let address = slice["endpoints"][0]["addresses"][0].as_str().expect("an address");
    let mut curl = within(cluster.network.as_ref(), &testkit::tools::program("curl", "curl"));
    curl.args(["-s", "--max-time", "10"]);
    let counted = curl.arg(format!("http://{address}:{}/metrics", metrics["port"])).output();
    let counted = String::from_utf8_lossy(&counted.expect("curl runs").stdout).into_owned();
    assert!(counted.contains("coredns_dns_requests_total"), "{counted}");
}
