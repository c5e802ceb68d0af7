//! A cluster in a file, and the cluster that comes out of it.
use crate::cluster::Cluster;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

fn skiff(command: &str, file: &Path, data_dir: &Path) -> Result<String, String> {
    let mut run = Command::new(env!("CARGO_BIN_EXE_skiff"));
    run.args(command.split(' ')).arg(file).arg("--data-dir").arg(data_dir);
    let output = run.output().expect("skiff runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

#[test]
fn a_cluster_comes_back_from_a_backup_taken_while_it_ran() {
    let mut cluster = Cluster::start();
    cluster.kubectl("create configmap before --from-literal=a=1");
    cluster.kubectl("create secret generic hidden --from-literal=password=s3cret");
    let place = TempDir::new().expect("a folder");
    let (running, stopped) = (place.path().join("running"), place.path().join("stopped"));
    skiff("backup", &running, cluster.folder.path()).expect("a backup");
    cluster.kubectl("create configmap after --from-literal=a=1");
    let refused = skiff("restore", &running, cluster.folder.path()).expect_err("in use");
    assert!(refused.contains("there is a cluster in"), "{refused}");
    cluster.stop();
    skiff("backup", &stopped, cluster.folder.path()).expect("a backup");

    for (file, seen) in [(&running, "before"), (&stopped, "after\nconfigmap/before")] {
        let folder = TempDir::new().expect("a folder");
        let told = skiff("restore", file, folder.path()).expect("restored");
        assert!(told.contains("`skiff up` runs the cluster"), "{told}");
        // By its own keys: who was known to the old cluster is known to the new one.
        let restored = Cluster::at(folder);
        let found = restored.kubectl("get configmap -n default -o name");
        assert_eq!(found, format!("configmap/{seen}"));
        let secret = restored.kubectl("get secret hidden -o jsonpath={.data.password}");
        assert_eq!(secret, "czNjcmV0");
    }
}

#[test]
fn what_can_be_read_of_a_store_becomes_a_backup() {
    let mut cluster = Cluster::start();
    cluster.kubectl("create configmap kept --from-literal=a=1");
    cluster.stop();
    let place = TempDir::new().expect("a folder");
    let file = place.path().join("salvaged");
    let told = skiff("restore --salvage", &file, cluster.folder.path()).expect("salvaged");
    assert!(told.contains("objects could be read"), "{told}");
    let folder = TempDir::new().expect("a folder");
    skiff("restore", &file, folder.path()).expect("restored");
    let restored = Cluster::at(folder);
    assert_eq!(restored.kubectl("get configmap kept -o name"), "configmap/kept");
}
