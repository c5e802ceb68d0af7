//! Secrets at rest.
use crate::cluster::Cluster;
use std::fs;
use std::path::Path;

/// Whether any file of the folder holds these bytes.
fn holds(folder: &Path, text: &[u8]) -> bool {
    let mut found = false;
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        found |= if path.is_dir() {
            holds(&path, text)
        } else {
            fs::read(&path).expect("a file").windows(text.len()).any(|window| window == text)
        };
    }
    found
}

#[test]
fn secrets_are_on_disk_but_not_to_be_read_there() {
    let mut cluster = Cluster::start();
    cluster.kubectl("create secret generic s -n default --from-literal=a=under-the-mattress");
    cluster.kubectl("create configmap c -n default --from-literal=a=on-the-table");
    // As it is stored: base64.
    let secret = b"dW5kZXItdGhlLW1hdHRyZXNz";
    let folder = cluster.folder.path().join("store");
    assert!(holds(&folder, b"on-the-table"), "the log is where it is thought to be");
    assert!(holds(&folder, b"k8s:enc:secretbox:v1:key1:"));
    assert!(!holds(&folder, secret) && !holds(&folder, b"under-the-mattress"));
    let data = |cluster: &Cluster| cluster.json("get secret s -n default")["data"]["a"].clone();
    assert_eq!(data(&cluster), "dW5kZXItdGhlLW1hdHRyZXNz");
    cluster.crash_and_restart();
    assert_eq!(data(&cluster), "dW5kZXItdGhlLW1hdHRyZXNz");
    assert!(cluster.kubectl("get secrets -n default -o name").contains("secret/s"));
}

#[test]
fn a_lost_key_costs_its_secrets_and_nothing_else() {
    let mut cluster = Cluster::start();
    cluster.kubectl("create secret generic old -n default --from-literal=a=b");
    let file = cluster.folder.path().join("encryption-config.yaml");
    let good = fs::read_to_string(&file).expect("the key");
    fs::write(&file, good.replace("name: key1", "name: key2")).expect("a file");
    cluster.crash_and_restart();
    let failure =
        "Internal error occurred: no matching key was found for the provided Secretbox transformer";
    assert!(cluster.kubectl("get secret old -n default").contains(failure));
    let list = cluster.kubectl("get secrets -n default");
    assert!(list.contains("unable to transform key \"/registry/secrets/default/old\""), "{list}");
    cluster.kubectl("create secret generic new -n default --from-literal=a=c");
    assert_eq!(cluster.json("get secret new -n default")["data"]["a"], "Yw==");
    assert!(cluster.kubectl("get configmaps -n kube-system -o name").starts_with("configmap/"));
    assert_eq!(cluster.kubectl("get --raw /readyz"), "ok");
    fs::write(&file, good).expect("a file");
    cluster.crash_and_restart();
    assert_eq!(cluster.json("get secret old -n default")["data"]["a"], "Yg==");
}

#[test]
fn an_update_without_changes_takes_an_object_to_the_new_key() {
    let mut cluster = Cluster::start();
    cluster.kubectl("create secret generic s -n default --from-literal=a=b");
    let version = |cluster: &Cluster| {
        cluster.json("get secret s -n default")["metadata"]["resourceVersion"].clone()
    };
    let same = |cluster: &Cluster| {
        let secret = cluster.kubectl("get secret s -n default -o json");
        cluster.kubectl_with("replace -f -", &secret);
    };
    let first = version(&cluster);
    same(&cluster);
    assert_eq!(version(&cluster), first, "nothing was written");
    let file = cluster.folder.path().join("encryption-config.yaml");
    let text = fs::read_to_string(&file).expect("the key");
    let old = "      - name: key1";
    let new = "      - name: key2\n        secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n";
    fs::write(&file, text.replace(old, &format!("{new}{old}"))).expect("a file");
    cluster.crash_and_restart();
    same(&cluster);
    assert_ne!(version(&cluster), first, "it was written with the new key");
    let folder = cluster.folder.path().join("store");
    assert!(holds(&folder, b"k8s:enc:secretbox:v1:key2:"));
    let second = version(&cluster);
    same(&cluster);
    assert_eq!(version(&cluster), second, "nothing was written");
}
