//! `skiff scheduler` beside an API server, as upstream's would be.
use crate::apiserver::Running;
use crate::cluster::Cluster;
use std::process::Command;

/// A node that nobody runs: the API server takes its word for what it has.
fn node(cluster: &Cluster, name: &str, cpu: &str) {
    let node = format!(
        r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}","labels":{{"kubernetes.io/hostname":"{name}"}}}}}}"#
    );
    cluster.kubectl_with("create -f -", &node);
    let allocatable = format!(r#"{{"cpu":"{cpu}","memory":"8Gi","pods":"110"}}"#);
    let patch = format!(
        r#"{{"status":{{"capacity":{allocatable},"allocatable":{allocatable},"conditions":[{{"type":"Ready","status":"True"}}]}}}}"#
    );
    let patched =
        cluster.kubectl_args(&["patch", "node", name, "--subresource=status", "-p", &patch]);
    assert!(patched.contains("patched"), "{patched}");
    // What admission adds until the node lifecycle controller takes it away.
    cluster.kubectl_args(&["patch", "node", name, "-p", r#"{"spec":{"taints":null}}"#]);
}

fn pod(cluster: &Cluster, name: &str, cpu: &str, more: &str) {
    let pod = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{{more}"terminationGracePeriodSeconds":0,"containers":[{{"name":"c","image":"i","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}}}"#
    );
    let created = cluster.kubectl_with("create -f -", &pod);
    assert!(created.contains("created"), "{created}");
}

fn start(cluster: &Cluster) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skiff"));
    // Two of them share a machine here, and tests run beside each other.
    command.args(["scheduler", "--secure-port=0", "--kubeconfig"]).arg(cluster.kubeconfig());
    Running(command.spawn().expect("it starts"))
}

#[test]
fn pods_get_nodes_and_important_ones_get_room() {
    let cluster = Cluster::start().with_default_account();
    let _both = [start(&cluster), start(&cluster)];
    node(&cluster, "a", "2");
    pod(&cluster, "fits", "1", "");
    let node_of = |pod: &str| format!("get pod {pod} -o jsonpath={{.spec.nodeName}}");
    cluster.until(&node_of("fits"), "a");
    let condition = |pod: &str, field: &str| {
        format!(
            "get pod {pod} -o jsonpath={{.status.conditions[?(@.type==\"PodScheduled\")].{field}}}"
        )
    };
    cluster.until(&condition("fits", "status"), "True");
    let scheduled = "get events --field-selector reason=Scheduled,involvedObject.name=fits -o jsonpath={.items[*].message}";
    cluster.until(scheduled, "Successfully assigned default/fits to a");
    let holder = "get lease -n kube-system kube-scheduler -o jsonpath={.spec.holderIdentity}";
    assert!(!cluster.kubectl(holder).is_empty());

    pod(&cluster, "waits", "2", "");
    cluster.until(
        &condition("waits", "message"),
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
    );
    cluster.until(&condition("waits", "reason"), "Unschedulable");
    let failed = "get events --field-selector reason=FailedScheduling,involvedObject.name=waits -o jsonpath={.items[0].type}";
    cluster.until(failed, "Warning");
    node(&cluster, "b", "2");
    cluster.until(&node_of("waits"), "b");

    let class = r#"{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"high"},"value":1000}"#;
    cluster.kubectl_with("create -f -", class);
    pod(&cluster, "important", "2", r#""priorityClassName":"high","#);
    // Nobody runs the victim: whoever stands for its kubelet lets it go.
    let victim =
        "get events --field-selector reason=Preempted -o jsonpath={.items[0].involvedObject.name}";
    let begun = std::time::Instant::now();
    let name = loop {
        let name = cluster.kubectl(victim);
        if ["fits", "waits"].contains(&name.as_str()) {
            break name;
        }
        assert!(begun.elapsed().as_secs() < 30, "{name}");
    };
    cluster.kubectl(&format!("delete pod {name} --force --grace-period=0"));
    let expected = if name == "fits" { "a" } else { "b" };
    cluster.until(&node_of("important"), expected);
}
