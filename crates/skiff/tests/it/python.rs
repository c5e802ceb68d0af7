//! The Python client: another reading of the same API.
use crate::cluster::Cluster;
use std::process::Command;

const SCRIPT: &str = r#"
import sys, threading
from kubernetes import client, config, watch
config.load_kube_config(sys.argv[1])
core, apps = client.CoreV1Api(), client.AppsV1Api()
core.create_namespace({"metadata": {"name": "py"}})
core.create_namespaced_config_map("py", {"metadata": {"name": "c", "labels": {"x": "y"}}, "data": {"a": "b"}})
events = watch.Watch()
seen = []
for event in events.stream(core.list_namespaced_config_map, "py", label_selector="x=y", timeout_seconds=30):
    seen.append((event["type"], event["object"].data["a"]))
    if len(seen) == 1:
        core.patch_namespaced_config_map("c", "py", {"data": {"a": "z"}})
    elif len(seen) == 2:
        core.delete_namespaced_config_map("c", "py")
    else:
        events.stop()
assert seen == [("ADDED", "b"), ("MODIFIED", "z"), ("DELETED", "z")], seen
template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
spec = {"selector": {"matchLabels": {"app": "w"}}, "template": template}
apps.create_namespaced_deployment("py", {"metadata": {"name": "w"}, "spec": spec})
apps.patch_namespaced_deployment_scale("w", "py", {"spec": {"replicas": 7}})
found = apps.read_namespaced_deployment("w", "py")
assert found.spec.replicas == 7 and found.spec.strategy.type == "RollingUpdate", found.spec
try:
    apps.replace_namespaced_deployment("w", "py", {"metadata": {"name": "w", "resourceVersion": "1"}, "spec": spec})
    raise SystemExit("a stale version was taken")
except client.ApiException as error:
    assert error.status == 409, error
page = core.list_namespace(limit=2)
assert len(page.items) == 2 and page.metadata._continue, page.metadata
rest = core.list_namespace(limit=50, _continue=page.metadata._continue)
assert {n.metadata.name for n in page.items + rest.items} >= {"default", "kube-system", "py"}
assert client.VersionApi().get_code().minor == "37"
print("done")
"#;

#[test]
fn the_python_client_is_at_home() {
    let cluster = Cluster::start();
    let output = Command::new(testkit::tools::python("kubernetes", "python3-kubernetes"))
        .args(["-c", SCRIPT])
        .arg(cluster.folder.path().join("kubeconfig"))
        .output()
        .expect("Python runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("done", ""));
}
