//! What docs/hardening.md says of a fresh cluster: files, doors, strangers.
use crate::cluster::Cluster;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use testkit::network::{ADDRESS, within};

/// Files with more in their mode than they may have.
fn loose(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let (path, status) = (entry.path(), entry.metadata().expect("it is there"));
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_certificate = name.ends_with(".crt") || name.ends_with(".pub");
        let may = match is_certificate {
            true => 0o644,
            false => 0o600,
        };
        let mode = status.mode() & 0o777;
        if status.is_file() && mode & !may != 0 || status.uid() != 0 || status.gid() != 0 {
            found.push(format!("{} {mode:o} {}:{}", path.display(), status.uid(), status.gid()));
        }
        if status.is_dir() {
            loose(&path, found);
        }
    }
}

/// What a port says to a stranger; nothing, if nobody listens.
fn ask(cluster: &Cluster, url: &str) -> String {
    let program = testkit::tools::program("curl", "curl");
    let mut curl = within(cluster.network.as_ref(), &program);
    curl.args(["-sk", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}", url]);
    String::from_utf8_lossy(&curl.output().expect("curl runs").stdout).into_owned()
}

#[test]
fn a_fresh_cluster_is_as_the_benchmark_wants_it() {
    let cluster = Cluster::whole();
    let data = cluster.folder.path().join("data");
    let mut found = Vec::new();
    for folder in ["pki", "store", "audit"] {
        loose(&data.join(folder), &mut found);
    }
    assert!(found.is_empty(), "{found:#?}");
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").mode() & 0o777;
    for private in ["store", "audit", "pki"] {
        assert_eq!(mode(&data.join(private)) & 0o022, 0, "{private}");
    }
    assert_eq!(mode(&data.join("store")), 0o700);
    assert_eq!(mode(&cluster.kubeconfig()), 0o600);
    assert_eq!(mode(&data.join("store.sock")) & 0o077, 0);

    for (url, answer) in [
        (format!("https://{ADDRESS}:6443/readyz"), "200"),
        (format!("https://{ADDRESS}:6443/version"), "200"),
        (format!("https://{ADDRESS}:6443/api/v1/namespaces"), "403"),
        (format!("https://{ADDRESS}:6443/metrics"), "403"),
        (format!("https://{ADDRESS}:6443/debug/pprof/profile"), "403"),
        (format!("https://{ADDRESS}:10250/pods"), "401"),
        (format!("https://{ADDRESS}:10257/healthz"), "200"),
        (format!("https://{ADDRESS}:10257/metrics"), "403"),
        (format!("https://{ADDRESS}:10259/metrics"), "403"),
        // No store, no port of old, nothing in the clear.
        (format!("http://{ADDRESS}:2379/version"), "000"),
        (format!("http://{ADDRESS}:8080/version"), "000"),
        (format!("http://{ADDRESS}:10255/pods"), "000"),
        (format!("http://{ADDRESS}:10249/metrics"), "000"),
        (format!("http://{ADDRESS}:10248/healthz"), "000"),
        ("http://127.0.0.1:10249/metrics".to_owned(), "200"),
        ("http://127.0.0.1:10248/healthz".to_owned(), "200"),
    ] {
        assert_eq!(ask(&cluster, &url), answer, "{url}");
    }
    // Old versions of TLS are not spoken.
    let program = testkit::tools::program("curl", "curl");
    for port in [6443, 10250, 10257, 10259] {
        let mut curl = within(cluster.network.as_ref(), &program);
        curl.args(["-sk", "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0"]);
        let ended = curl.arg(format!("https://{ADDRESS}:{port}/healthz")).status();
        assert!(!ended.expect("curl runs").success(), "port {port}");
    }
}
