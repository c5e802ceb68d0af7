//! What people do with a cluster, as far as an API server alone can answer.
use crate::cluster::Cluster;
use serde_json::{Value, json};

const WEB: &str = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"default"},
    "spec":{"replicas":2,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},
    "spec":{"containers":[{"name":"web","image":"web:1"}]}}}}"#;

#[test]
fn output_comes_in_every_form() {
    let cluster = Cluster::start();
    cluster.kubectl_with("create -f -", WEB);
    let wide = cluster.kubectl("get deployment web -o wide");
    let header: Vec<&str> = wide.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(
        header,
        ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    );
    assert!(cluster.kubectl("get deployment web -o yaml").contains("progressDeadlineSeconds: 600"));
    let path = "get deployment web -o jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(cluster.kubectl(path), "web:1");
    let columns = "get deployment web -o custom-columns=N:.metadata.name,R:.spec.replicas";
    assert_eq!(
        cluster.kubectl(columns).split_whitespace().collect::<Vec<_>>(),
        ["N", "R", "web", "2"]
    );
    assert_eq!(
        cluster.kubectl("get deployment -A --no-headers").split_whitespace().next(),
        Some("default")
    );
}

#[test]
fn replace_diff_and_wait() {
    let cluster = Cluster::start();
    cluster.kubectl_with("create -f -", WEB);
    let changed = WEB.replace("web:1", "web:2");
    let difference = cluster.kubectl_with("diff -f -", &changed);
    assert!(difference.starts_with("error: "), "a difference is an exit code: {difference}");
    assert_eq!(cluster.kubectl("get deployment web -o jsonpath={..image}"), "web:1");
    assert_eq!(cluster.kubectl_with("replace -f -", &changed), "deployment.apps/web replaced");
    assert_eq!(cluster.kubectl_with("diff -f -", &changed), "");
    let waited = "wait deployment/web --for=jsonpath={.spec.replicas}=2 --timeout=20s";
    assert_eq!(cluster.kubectl(waited), "deployment.apps/web condition met");
    assert_eq!(cluster.kubectl("get deployment web -o jsonpath={.metadata.generation}"), "2");
}

#[test]
fn a_deletion_says_what_becomes_of_the_rest() {
    let cluster = Cluster::start();
    for (policy, finalizer) in [
        ("foreground", Some("foregroundDeletion")),
        ("orphan", Some("orphan")),
        ("background", None),
    ] {
        cluster.kubectl_with("create -f -", WEB);
        let deleted = format!("delete deployment web --cascade={policy} --wait=false");
        assert!(cluster.kubectl(&deleted).starts_with("deployment.apps \"web\" deleted"));
        let left = cluster.kubectl("get deployment web -o json");
        match finalizer {
            None => assert!(left.contains("NotFound"), "{left}"),
            Some(finalizer) => {
                let left: Value = serde_json::from_str(&left).expect("it waits for the collector");
                assert_eq!(left["metadata"]["finalizers"], json!([finalizer]));
                let freed =
                    r#"patch deployment web --type=merge -p {"metadata":{"finalizers":null}}"#;
                cluster.kubectl(freed);
            }
        }
    }
}

#[test]
fn a_rollouts_history_can_be_read() {
    let cluster = Cluster::start();
    cluster.kubectl_with("create -f -", WEB);
    let uid = cluster.kubectl("get deployment web -o jsonpath={.metadata.uid}");
    for revision in ["1", "2"] {
        let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {
            "name": format!("web-{revision}"), "namespace": "default", "labels": {"app": "web"},
            "annotations": {"deployment.kubernetes.io/revision": revision, "kubernetes.io/change-cause": format!("change {revision}")},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "controller": true}]},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": format!("web:{revision}")}]}}}});
        let created = cluster.kubectl_with("create -f -", &set.to_string());
        assert_eq!(created, format!("replicaset.apps/web-{revision} created"));
    }
    let history = cluster.kubectl("rollout history deployment/web");
    assert!(
        history.contains("1         change 1") && history.contains("2         change 2"),
        "{history}"
    );
}

#[test]
fn services_get_addresses_and_ports_of_their_own() {
    let cluster = Cluster::start();
    let made = |arguments: &str| cluster.kubectl(&format!("create service {arguments}"));
    assert_eq!(made("clusterip a --tcp=80"), "service/a created");
    assert_eq!(made("nodeport b --tcp=80 --node-port=30100"), "service/b created");
    let service = |name: &str| cluster.json(&format!("get service {name}"));
    let (a, b) = (service("a"), service("b"));
    assert_ne!(a["spec"]["clusterIP"], b["spec"]["clusterIP"]);
    assert_eq!(a["spec"]["ipFamilies"], json!(["IPv4"]));
    let taken = made("nodeport c --tcp=80 --node-port=30100");
    assert!(taken.contains("provided port is already allocated"), "{taken}");
    let address = b["spec"]["clusterIP"].as_str().expect("an address");
    let owner = cluster.json(&format!("get ipaddress {address}"));
    assert_eq!(owner["spec"]["parentRef"]["name"], "b");
    let fixed = made(&format!("clusterip d --tcp=80 --clusterip={address}"));
    assert!(fixed.contains("provided IP is already allocated"), "{fixed}");
    cluster.kubectl("delete service b");
    assert!(cluster.kubectl(&format!("get ipaddress {address}")).contains("NotFound"));
    assert_eq!(made("nodeport c --tcp=80 --node-port=30100"), "service/c created");
    assert_eq!(made(&format!("clusterip d --tcp=80 --clusterip={address}")), "service/d created");
}

#[test]
fn an_eviction_asks_the_disruption_budget() {
    let cluster = Cluster::start().with_default_account();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "labels": {"app": "p"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.kubectl_with("create -f -", &pod.to_string());
    let bind = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let raw = |path: &str, body: &Value| {
        cluster.kubectl_with(
            &format!("create --raw /api/v1/namespaces/default/pods/p/{path} -f -"),
            &body.to_string(),
        )
    };
    assert!(raw("binding", &bind).contains("\"Success\""));
    assert!(raw("binding", &bind).contains("is already assigned to node \"n\""));
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.kubectl_args(&[
        "patch",
        "pod",
        "p",
        "--subresource=status",
        "--type=merge",
        "-p",
        &running.to_string(),
    ]);
    cluster.kubectl("create poddisruptionbudget b --selector=app=p --min-available=1");
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    assert!(
        raw("eviction", &eviction).contains("still being processed")
            || raw("eviction", &eviction).contains("disruption budget")
    );
    let allowed = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}});
    cluster.kubectl_args(&[
        "patch",
        "pdb",
        "b",
        "--subresource=status",
        "--type=merge",
        "-p",
        &allowed.to_string(),
    ]);
    let evicted = raw("eviction", &eviction);
    assert!(evicted.contains("\"Success\""), "{evicted}");
    let budget = cluster.json("get pdb b");
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["p"].is_string());
    let going = cluster.json("get pod p");
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
}

#[test]
fn the_server_speaks_of_itself() {
    let cluster = Cluster::start();
    let verbose = cluster.kubectl("get --raw /readyz?verbose");
    assert!(
        verbose.contains("[+]etcd ok") && verbose.ends_with("readyz check passed"),
        "{verbose}"
    );
    assert!(cluster.kubectl("get --raw /livez/nothing").contains("NotFound"));
    cluster.kubectl("get namespaces");
    let metrics = cluster.kubectl("get --raw /metrics");
    let line = metrics.lines().find(|line| {
        line.starts_with("apiserver_request_total{")
            && line.contains("resource=\"namespaces\"")
            && line.contains("verb=\"LIST\"")
    });
    assert!(line.is_some_and(|line| line.contains("code=\"200\"")), "{metrics}");
    // Whether or not anybody has asked for them since the start.
    for counted in [
        "apiserver_storage_objects{resource=\"clusterroles.rbac.authorization.k8s.io\"}",
        "apiserver_storage_objects{resource=\"deployments.apps\"} 0",
    ] {
        assert!(metrics.contains(counted), "{counted}: {metrics}");
    }
    let index: Value =
        serde_json::from_str(&cluster.kubectl("get --raw /openapi/v3")).expect("JSON");
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().expect("an address");
    assert!(url.starts_with("/openapi/v3/api/v1?hash="), "{url}");
}

#[test]
fn admission_completes_what_is_written() {
    let cluster = Cluster::start();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let refused = cluster.kubectl_with("create -f -", &pod.to_string());
    assert!(refused.contains("error looking up service account default/default"), "{refused}");
    let cluster = cluster.with_default_account();
    cluster.kubectl_with("create -f -", &pod.to_string());
    let pod = cluster.json("get pod p");
    assert_eq!(
        (&pod["spec"]["priority"], &pod["spec"]["serviceAccountName"]),
        (&0.into(), &"default".into())
    );
    assert_eq!(pod["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
    let source = &pod["spec"]["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"];
    assert_eq!(source["expirationSeconds"], 3607);
    cluster.kubectl_with(
        "create -f -",
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}"#,
    );
    assert_eq!(
        cluster.json("get node n")["spec"]["taints"][0]["key"],
        "node.kubernetes.io/not-ready"
    );
    let refused = cluster.kubectl("delete namespace default");
    assert!(refused.contains("this namespace may not be deleted"), "{refused}");
    let nowhere = cluster.kubectl("create configmap c -n nowhere");
    assert!(nowhere.contains("namespaces \"nowhere\" not found"), "{nowhere}");
}
