//! Every verb, driven by the real kubectl.
use crate::cluster::Cluster;
use serde_json::Value;
use std::io::BufRead;
use std::process::Command;

#[test]
fn objects_are_created_read_changed_and_deleted() {
    let cluster = Cluster::start();
    assert_eq!(cluster.kubectl("create namespace shop"), "namespace/shop created");
    assert_eq!(
        cluster.kubectl("create configmap c -n default --from-literal=a=b"),
        "configmap/c created"
    );
    let first = cluster.json("get configmap c -n default");
    assert_eq!(first["data"]["a"], "b");
    assert_eq!(cluster.kubectl("label configmap c -n default color=blue"), "configmap/c labeled");
    assert_eq!(cluster.kubectl("annotate configmap c -n default note=x"), "configmap/c annotated");
    let second = cluster.json("get configmap c -n default");
    assert_eq!(second["metadata"]["labels"]["color"], "blue");
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"]);
    assert_ne!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(cluster.kubectl("get configmap -n default -l color=blue -o name"), "configmap/c");
    assert_eq!(cluster.kubectl("get configmap -n default -l color=red -o name"), "");
    assert_eq!(
        cluster.kubectl("get configmap -A --field-selector metadata.name=c -o name"),
        "configmap/c"
    );
    let table = cluster.kubectl("get configmap -n default");
    assert!(table.starts_with("NAME ") && table.contains("\nc "), "{table}");
    assert_eq!(cluster.kubectl("delete configmap c -n default"), "configmap \"c\" deleted");
    assert_eq!(
        cluster.kubectl("get configmap c -n default"),
        "error: Error from server (NotFound): configmaps \"c\" not found"
    );
    let again = cluster.kubectl("create namespace shop");
    assert_eq!(
        again,
        "error: Error from server (AlreadyExists): namespaces \"shop\" already exists"
    );
}

#[test]
fn all_four_patches_and_scale() {
    let cluster = Cluster::start();
    cluster.kubectl("create deployment web --image=web:1 -n default");
    let patch = |kind: &str, patch: &str| {
        cluster.kubectl(&format!("patch deployment web -n default --type={kind} -p {patch}"))
    };
    let strategic = r#"{"spec":{"template":{"spec":{"containers":[{"name":"web","tty":true}]}}}}"#;
    assert_eq!(patch("strategic", strategic), "deployment.apps/web patched");
    assert_eq!(patch("merge", r#"{"spec":{"paused":true}}"#), "deployment.apps/web patched");
    let operations =
        r#"[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:2"}]"#;
    assert_eq!(patch("json", operations), "deployment.apps/web patched");
    assert_eq!(
        cluster.kubectl("scale deployment web --replicas=3 -n default"),
        "deployment.apps/web scaled"
    );
    let web = cluster.json("get deployment web -n default");
    let container = &web["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["tty"]), (&"web:2".into(), &true.into()));
    assert_eq!((&web["spec"]["paused"], &web["spec"]["replicas"]), (&true.into(), &3.into()));
    assert_eq!(web["metadata"]["generation"], 5);
    let same = patch("merge", r#"{"spec":{"paused":true}}"#);
    assert_eq!(same, "deployment.apps/web patched (no change)");
    assert_eq!(
        cluster.json("get deployment web -n default"),
        web,
        "a patch that changes nothing writes nothing"
    );
}

#[test]
fn apply_on_both_sides() {
    let cluster = Cluster::start();
    let map = |data: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c","namespace":"default"}},"data":{data}}}"#
        )
    };
    let apply = |arguments: &str, data: &str| {
        cluster.kubectl_with(&format!("apply -f - {arguments}"), &map(data))
    };
    assert_eq!(
        apply("--server-side --field-manager=one", r#"{"x":"1","y":"1"}"#),
        "configmap/c serverside-applied"
    );
    let conflict = apply("--server-side --field-manager=two", r#"{"x":"2"}"#);
    assert!(
        conflict.contains("Apply failed with 1 conflict: conflict with \"one\": .data.x"),
        "{conflict}"
    );
    apply("--server-side --field-manager=two --force-conflicts", r#"{"x":"2"}"#);
    apply("--server-side --field-manager=one", r#"{}"#);
    assert_eq!(cluster.json("get configmap c -n default")["data"], serde_json::json!({"x": "2"}));

    let client =
        |data: &str| cluster.kubectl_with("apply -f -", &map(data).replace("\"c\"", "\"d\""));
    assert_eq!(client(r#"{"x":"1","y":"1"}"#), "configmap/d created");
    assert_eq!(client(r#"{"x":"2"}"#), "configmap/d configured");
    assert_eq!(client(r#"{"x":"2"}"#), "configmap/d unchanged");
    assert_eq!(cluster.json("get configmap d -n default")["data"], serde_json::json!({"x": "2"}));
}

#[test]
fn unknown_fields_are_warned_about_or_refused() {
    let cluster = Cluster::start().with_default_account();
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default"},
        "spec":{"containers":[{"name":"c","image":"x","imagee":"x"}]}}"#;
    let refused = cluster.kubectl_with("create -f - --validate=strict", pod);
    assert!(
        refused.contains("strict decoding error: unknown field \"spec.containers[0].imagee\""),
        "{refused}"
    );
    assert_eq!(cluster.kubectl_with("create -f - --validate=ignore", pod), "pod/p created");
}

#[test]
fn a_watch_tells_what_changes() {
    let cluster = Cluster::start();
    cluster.kubectl("create configmap one -n default");
    let (mut kubectl, mut output) = cluster.stream("get configmap -n default -w -o name");
    let mut next = || {
        let mut line = String::new();
        output.read_line(&mut line).expect("kubectl speaks");
        line.trim().to_owned()
    };
    assert_eq!(next(), "configmap/one");
    cluster.kubectl("create configmap two -n default");
    assert_eq!(next(), "configmap/two");
    cluster.kubectl("label configmap one -n default x=y");
    assert_eq!(next(), "configmap/one");
    kubectl.kill().expect("a running kubectl");
    kubectl.wait().expect("a killed kubectl");
}

#[test]
fn finalizers_hold_an_object_and_everything_survives_a_crash() {
    let mut cluster = Cluster::start();
    let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"default","finalizers":["example.com/hold"]}}"#;
    cluster.kubectl_with("create -f -", map);
    cluster.kubectl("delete configmap c -n default --wait=false");
    cluster.crash_and_restart();
    assert!(
        cluster.json("get configmap c -n default")["metadata"]["deletionTimestamp"].is_string()
    );
    cluster.kubectl(
        r#"patch configmap c -n default --type=merge -p {"metadata":{"finalizers":null}}"#,
    );
    assert!(cluster.kubectl("get configmap c -n default").contains("not found"));
}

#[test]
fn large_lists_come_in_chunks() {
    let cluster = Cluster::start();
    let items: Vec<Value> = (0..60)
        .map(|i| serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{i:02}"), "namespace": "default"}}))
        .collect();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
    let created = cluster.kubectl_with("create -f -", &list.to_string());
    assert_eq!(created.lines().count(), 60, "{created}");
    let names = cluster.kubectl("get configmap -n default --chunk-size=7 -o name");
    assert_eq!(names.lines().count(), 60);
    let first: Value = serde_json::from_str(
        &cluster.kubectl("get --raw /api/v1/namespaces/default/configmaps?limit=7"),
    )
    .expect("JSON");
    assert_eq!(first["items"].as_array().map(Vec::len), Some(7));
    assert_eq!(first["metadata"]["remainingItemCount"], 53);
}

#[test]
fn the_server_explains_itself() {
    let cluster = Cluster::start();
    let resources = cluster.kubectl("api-resources -o name");
    assert!(resources.lines().any(|line| line == "deployments.apps"), "{resources}");
    let explained = cluster.kubectl("explain pod.spec.containers.imagePullPolicy");
    assert!(explained.contains("FIELD: imagePullPolicy <string>"), "{explained}");
    assert_eq!(cluster.kubectl("get --raw /readyz"), "ok");
    let difference = cluster.kubectl_with(
        "apply -f - --dry-run=server -o name",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"default"}}"#,
    );
    assert_eq!(difference, "configmap/c");
    assert_eq!(cluster.kubectl("get configmap -n default -o name"), "", "a dry run stores nothing");
}

#[test]
fn a_server_that_is_asked_to_stop_stops() {
    let mut cluster = Cluster::start();
    cluster.kubectl("create configmap one -n default");
    let (mut kubectl, mut output) = cluster.stream("get configmap -n default -w -o name");
    let mut line = String::new();
    output.read_line(&mut line).expect("kubectl speaks");
    let kill =
        Command::new("kill").arg(cluster.process.id().to_string()).status().expect("kill runs");
    assert!(kill.success());
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(cluster.process.wait()));
        let status =
            ended.recv_timeout(std::time::Duration::from_secs(30)).expect("it ends in time");
        assert!(status.expect("a status").success(), "and in good order");
    });
    kubectl.kill().expect("a running kubectl");
    kubectl.wait().expect("a killed kubectl");
}
