//! An object in the store that nobody can read: a disk's fault, or another program's.
use super::Server;
use store::embedded::Embedded;
use store::{Op, Txn};

/// Puts what is no object where one should be.
fn break_in(server: &mut Server, key: &str) {
    server.stop();
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let folder = server.folder.path().join("store");
        let engine = Embedded::open(&folder, Default::default()).expect("a store");
        let txn = Txn { success: vec![Op::put(key, "no object", 0)], ..Txn::default() };
        engine.txn(txn).await.expect("it is written");
        engine.close().await;
    });
    server.start_again();
}

#[test]
fn one_broken_object_is_left_out_reported_and_removed() {
    let mut server = Server::start();
    server.kubectl("create configmap whole");
    for (key, place) in [
        ("/registry/configmaps/default/broken", "configmap broken"),
        ("/registry/rolebindings/default/broken", "rolebinding broken"),
    ] {
        break_in(&mut server, key);
        let kind = place.split(' ').next().expect("a kind");
        for form in ["", "-o json", "-o yaml", "-o name"] {
            let list = server.kubectl(&format!("get {kind}s {form}"));
            assert!(!list.contains("error") && !list.contains("broken"), "{form}: {list}");
        }
        let whole = server.kubectl("get configmaps -o name");
        assert!(whole.contains("configmap/whole"), "{whole}");
        // The others go on: grants change.
        server.kubectl("create role reader --verb=list --resource=pods");
        server.kubectl("create rolebinding jane --role=reader --user=jane");
        server.until("auth can-i list pods --as=jane", "yes");
        server.kubectl("delete rolebinding jane");
        // It is said where people look.
        let health = server.kubectl("get --raw /healthz");
        assert!(health.contains("[-]stored-objects failed"), "{health}");
        assert_eq!(server.kubectl("get --raw /readyz"), "ok");
        let metrics = server.kubectl("get --raw /metrics");
        assert!(metrics.contains("apiserver_storage_decode_errors_total{group="), "{metrics}");
        let said = server.kubectl(&format!("get {place} -o json"));
        assert!(said.contains("StorageError: corrupt object"), "{said}");
        // Nobody guesses what it was: it goes only if that is asked for, by whoever may.
        let said = server.kubectl(&format!("delete {place}"));
        assert!(said.starts_with("error"), "{said}");
        let path = match kind {
            "configmap" => "/api/v1/namespaces/default/configmaps/broken",
            _ => "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/broken",
        };
        let option = "ignoreStoreReadErrorWithClusterBreakingPotential=true";
        let remove = format!("delete --raw {path}?{option}");
        server
            .kubectl("create clusterrole deleter --verb=delete --resource=configmaps,rolebindings");
        server.kubectl("create clusterrolebinding deleter --clusterrole=deleter --user=joe");
        server.until(&format!("auth can-i delete {kind}s --as=joe"), "yes");
        let said = server.kubectl(&format!("{remove} --as=joe"));
        assert!(said.contains("unsafe-delete-ignore-read-errors"), "{said}");
        let said = server.kubectl(&remove);
        assert!(said.contains("Success"), "{said}");
        assert_eq!(server.kubectl("get --raw /healthz"), "ok");
        let said = server.kubectl(&format!("get {place}"));
        assert!(said.contains("not found"), "{said}");
    }
    // What can be read is not removed this way.
    let option = "ignoreStoreReadErrorWithClusterBreakingPotential=true";
    let path = "/api/v1/namespaces/default/configmaps/whole";
    let said = server.kubectl(&format!("delete --raw {path}?{option}"));
    assert!(said.contains("the object is decodable from storage"), "{said}");
}
