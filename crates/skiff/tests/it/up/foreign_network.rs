//! A pod network that others make: whatever is configured for CNI, in place of ours.
use crate::cluster::Cluster;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: demo, image: localhost/skiff/demo}]
"#;

/// Says which plugin makes the network.
fn configure(folder: &Path) {
    let list = r#"{"cniVersion": "1.0.0", "name": "theirs", "plugins": [{"type": "theirs"}]}"#;
    fs::write(folder.join("net.d/10-theirs.conflist"), list).expect("a file");
}

/// A plugin in a folder that says what it was asked in the file `said`, and the flags with which it is used.
fn plugin(folder: &Path) -> [String; 2] {
    let at = |name: &str| folder.join(name);
    fs::create_dir(at("net.d")).expect("a folder");
    // It says what it was asked, with whose result, and gives everybody the same address.
    let said = at("said").display().to_string();
    let plugin = format!(
        "#!/bin/sh\nconfig=$(cat)\nby=${{config##*\\\"by\\\":\\\"}}\n\
         echo \"$CNI_COMMAND $CNI_IFNAME ${{by%%\\\"*}} $CNI_ARGS\" | cut -d';' -f1-3 >>{said}\n\
         [ $CNI_COMMAND = ADD ] || exit 0\n\
         echo '{{\"cniVersion\": \"1.0.0\", \"by\": \"theirs\", \"ips\": [{{\"address\": \"10.77.0.2/24\"}}]}}'\n"
    );
    fs::write(at("theirs"), plugin).expect("a file");
    fs::set_permissions(at("theirs"), fs::Permissions::from_mode(0o755)).expect("a program");
    [
        format!("--cni-conf-dir={}", at("net.d").display()),
        format!("--cni-bin-dir={}", folder.display()),
    ]
}

#[test]
fn plugins_that_come_later_make_the_pod_network() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let [conf, bin] = plugin(folder.path());
    // It is ready without a network: whoever brings one needs a cluster.
    let flags = ["--disable=network", &conf, &bin];
    let cluster = Cluster::whole_on(testkit::network::machine(), &flags);
    let ready = "get node node -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    cluster.until(ready, "False");
    let why = "get node node -o jsonpath={.status.conditions[?(@.type==\"Ready\")].message}";
    let why = cluster.kubectl(why);
    assert!(why.contains("no network config found"), "{why}");
    configure(folder.path());
    cluster.until(ready, "True");
    cluster.kubectl_with("apply -f -", POD);
    cluster.until("get pod web -o jsonpath={.status.podIP}", "10.77.0.2");
    cluster.kubectl("delete pod web --wait=true");
}

#[test]
fn plugins_of_others_make_the_pod_network() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let said = folder.path().join("said");
    let flags = plugin(folder.path());
    configure(folder.path());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let cluster = Cluster::whole_on(testkit::network::machine(), &flags);
    cluster.kubectl_with("apply -f -", POD);
    cluster.until("get pod web -o jsonpath={.status.phase}", "Running");
    assert_eq!(cluster.kubectl("get pod web -o jsonpath={.status.podIP}"), "10.77.0.2");
    cluster.kubectl("delete pod web --wait=true");
    let network = &cluster.network.as_ref().expect("a network of its own").path;
    let links = netlink::namespace::within(network, || {
        netlink::Socket::open(netlink::Family::Route)?.links()
    });
    let links = links.expect("entered").expect("links");
    assert!(links.iter().all(|link| link.name != "skiff0"), "ours is not made: {links:?}");
    let said = fs::read_to_string(said).expect("it was asked");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("NAME=web")).collect();
    let about = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web";
    assert!(lines[0].starts_with("ADD eth0 ") && lines[0].ends_with(about), "{said}");
    assert_eq!(lines[1], format!("DEL eth0 theirs {about}"), "{said}");
}
