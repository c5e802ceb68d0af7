//! What every component says of itself, and to whom: `/statusz` and `/flagz`.
use crate::cluster::Cluster;
use serde_json::Value;
use std::time::{Duration, Instant};
use testkit::network::{ADDRESS, within};

/// A component, where it is, and what it says to a stranger.
const COMPONENTS: &[(&str, &str, &str)] = &[
    ("apiserver", "https://ADDRESS:6443", "403"),
    ("kube-controller-manager", "https://ADDRESS:10257", "403"),
    ("kube-scheduler", "https://ADDRESS:10259", "403"),
    ("kubelet", "https://ADDRESS:10250", "401"),
    // On the machine itself, in the clear, as upstream's.
    ("kube-proxy", "http://127.0.0.1:10249", "200"),
];

/// What is said, and its code after it.
fn fetch(cluster: &Cluster, url: &str, token: &str, accept: &str) -> (String, String) {
    let curl = testkit::tools::program("curl", "curl");
    let mut curl = within(cluster.network.as_ref(), &curl);
    curl.args([
        "-sk",
        "--max-time",
        "10",
        "-w",
        "\n%{http_code}",
        "-H",
        &format!("Accept: {accept}"),
    ]);
    if !token.is_empty() {
        curl.args(["-H", &format!("Authorization: Bearer {token}")]);
    }
    let output = curl.arg(url).output().expect("curl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = text.rsplit_once('\n').expect("a code");
    (body.to_owned(), code.to_owned())
}

#[test]
fn every_component_says_what_it_is_to_those_who_may_know() {
    let cluster = Cluster::whole();
    cluster.kubectl("create serviceaccount reader");
    let roles = ["system:monitoring", "node-reader"];
    cluster.kubectl(
        "create clusterrole node-reader --verb=get --resource=nodes/statusz,nodes/configz",
    );
    for role in roles {
        let name = role.trim_start_matches("system:");
        let account = "--serviceaccount=default:reader";
        cluster
            .kubectl(&format!("create clusterrolebinding {name} --clusterrole={role} {account}"));
    }
    let token = cluster.kubectl("create token reader");
    for (component, address, to_a_stranger) in COMPONENTS {
        for kind in ["Statusz", "Flagz"] {
            let page = kind.to_lowercase();
            let url = format!("{}/{page}", address.replace("ADDRESS", &ADDRESS.to_string()));
            assert_eq!(fetch(&cluster, &url, "", "*/*").1, *to_a_stranger, "{url}");
            let begun = Instant::now();
            let text = loop {
                let (text, code) = fetch(&cluster, &url, &token, "*/*");
                if code == "200" {
                    break text;
                }
                assert!(begun.elapsed() < Duration::from_secs(20), "{url}: {text} {code}");
            };
            let head = format!("\n{component} {page}\nWarning: This endpoint is not meant to be");
            assert!(text.starts_with(&head), "{text}");
            let form = format!("application/json;g=config.k8s.io;v=v1beta1;as={kind}");
            let (said, code) = fetch(&cluster, &url, &token, &form);
            assert_eq!(code, "200", "{url}: {said}");
            let said: Value = serde_json::from_str(&said).expect("JSON");
            assert_eq!(said["kind"], kind);
            assert_eq!(said["metadata"]["name"], *component);
            match kind {
                "Statusz" => {
                    let paths = said["paths"].as_array().expect("paths");
                    assert!(paths.contains(&"/flagz".into()), "{said}");
                    assert!(said["startTime"].as_str().is_some_and(|time| time.ends_with('Z')));
                }
                _ => assert_eq!(said["flags"]["node-name"], "node", "{said}"),
            }
            assert_eq!(fetch(&cluster, &url, &token, "application/json").1, "406", "{url}");
        }
    }
}
