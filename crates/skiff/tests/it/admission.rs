//! Admission from outside: the real kubectl against namespaces with limits, quotas and levels.
use crate::apiserver;
use crate::cluster::Cluster;
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn apply(cluster: &Cluster, text: &str) -> String {
    cluster.kubectl_with("create -f -", text)
}

/// A quota whose status somebody has filled in: a controller's work, done by hand.
fn quota(cluster: &Cluster, namespace: &str, hard: &str, used: &str) {
    let quota = format!(
        r#"{{"apiVersion":"v1","kind":"ResourceQuota","metadata":{{"name":"q","namespace":"{namespace}"}},"spec":{{"hard":{hard}}}}}"#
    );
    assert_eq!(apply(cluster, &quota), "resourcequota/q created");
    let status = format!(r#"{{"status":{{"hard":{hard},"used":{used}}}}}"#);
    let patch =
        ["patch", "quota", "q", "-n", namespace, "--subresource=status", "--type=merge", "-p"];
    let patched = cluster.kubectl_args(&[&patch[..], &[status.as_str()]].concat());
    assert_eq!(patched, "resourcequota/q patched");
}

#[test]
fn a_quota_of_five_admits_five_of_forty_at_once() {
    let cluster = Cluster::start();
    cluster.kubectl("create namespace shop");
    quota(&cluster, "shop", r#"{"configmaps":"5"}"#, r#"{"configmaps":"0"}"#);
    let creations: Vec<_> = (0..40)
        .map(|i| {
            let mut command = cluster.command(&format!("create configmap c{i} -n shop"));
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("kubectl runs")
        })
        .collect();
    let outcomes: Vec<_> =
        creations.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
    let admitted = outcomes.iter().filter(|outcome| outcome.status.success()).count();
    for refused in outcomes.iter().filter(|outcome| !outcome.status.success()) {
        let text = String::from_utf8_lossy(&refused.stderr);
        let cause =
            "exceeded quota: q, requested: configmaps=1, used: configmaps=5, limited: configmaps=5";
        assert!(text.contains(cause), "{text}");
    }
    assert_eq!(admitted, 5);
    assert_eq!(cluster.json("get quota q -n shop")["status"]["used"]["configmaps"], "5");
    let there = cluster.kubectl("get configmaps -n shop -o name");
    assert_eq!(there.lines().count(), 5, "{there}");
}

#[test]
fn what_fails_is_not_charged() {
    let cluster = Cluster::start();
    cluster.kubectl("create namespace shop");
    quota(&cluster, "shop", r#"{"configmaps":"5"}"#, r#"{"configmaps":"0"}"#);
    let used = || cluster.json("get quota q -n shop")["status"]["used"]["configmaps"].clone();
    cluster.kubectl("create configmap a -n shop --dry-run=server");
    assert_eq!(used(), "0");
    cluster.kubectl("create configmap a -n shop");
    let again = cluster.kubectl("create configmap a -n shop");
    assert!(again.contains("already exists"), "{again}");
    assert_eq!(used(), "1");
}

#[test]
fn a_namespace_has_its_level() {
    let cluster = Cluster::start();
    cluster.kubectl("create namespace shop");
    cluster.kubectl("create serviceaccount default -n shop");
    let careless = "run web --image=web -n shop";
    assert_eq!(cluster.kubectl(careless), "pod/web created");
    let label = "label namespace shop pod-security.kubernetes.io/enforce=restricted";
    let warned = cluster.command(label).output().expect("kubectl runs");
    let warned = String::from_utf8_lossy(&warned.stderr).into_owned();
    let expected = [
        "Warning: existing pods in namespace \"shop\" violate the new PodSecurity enforce level \"restricted:latest\"",
        "Warning: web: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile",
    ];
    assert!(expected.iter().all(|line| warned.contains(line)), "{warned}");
    let refused = cluster.kubectl("run other --image=web -n shop");
    let text = "pods \"other\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"other\" must set securityContext.allowPrivilegeEscalation=false)";
    assert!(refused.contains(text), "{refused}");
    // A template is let in: its pods will not be.
    let output = cluster.command("create deployment web --image=web -n shop").output();
    let output = output.expect("kubectl runs");
    assert!(output.status.success());
    let remark = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(remark.starts_with("Warning: would violate PodSecurity"), "{remark}");
    let wrong = cluster.kubectl("label namespace shop pod-security.kubernetes.io/warn=x");
    assert!(wrong.contains("must be one of privileged, baseline, restricted"), "{wrong}");
}

#[test]
fn a_limit_range_gives_and_refuses() {
    let cluster = Cluster::start().with_default_account();
    apply(
        &cluster,
        r#"{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"l","namespace":"default"},
            "spec":{"limits":[{"type":"Container","default":{"cpu":"1"},"defaultRequest":{"cpu":"500m"},"max":{"cpu":"2"}}]}}"#,
    );
    assert_eq!(cluster.kubectl("run web --image=web -n default"), "pod/web created");
    let pod = cluster.json("get pod web -n default");
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(
        (&resources["limits"]["cpu"], &resources["requests"]["cpu"]),
        (&"1".into(), &"500m".into())
    );
    let greedy = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"greedy","namespace":"default"},
        "spec":{"containers":[{"name":"a","image":"i","resources":{"limits":{"cpu":"3"}}}]}}"#;
    let refused = apply(&cluster, greedy);
    assert!(refused.contains("maximum cpu usage per Container is 2, but limit is 3"), "{refused}");
}

#[test]
fn a_kubelet_writes_what_is_its_own() {
    let cluster = Cluster::start();
    let node = |name: &str| {
        let text = format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}"}}}}"#);
        cluster.kubectl_with("create -f - --as=system:node:a --as-group=system:nodes", &text)
    };
    // The rights of kubelets are another matter: they get all of them here.
    cluster.kubectl("create clusterrolebinding n --clusterrole=cluster-admin --group=system:nodes");
    assert_eq!(node("a"), "node/a created");
    let refused = node("b");
    assert!(refused.contains("node \"a\" is not allowed to modify node \"b\""), "{refused}");
    let label =
        "label node a node-role.kubernetes.io/x=y --as=system:node:a --as-group=system:nodes";
    let refused = cluster.kubectl(label);
    let text = "is not allowed to modify labels: node-role.kubernetes.io/x";
    assert!(refused.contains(text), "{refused}");
}

#[test]
fn two_servers_charge_the_same_quota() {
    let folder = TempDir::new().expect("a folder");
    let (_etcd, client) = apiserver::etcd(folder.path());
    let flag = format!("--etcd-servers={client}");
    let servers =
        [apiserver::server(folder.path(), &[&flag]), apiserver::server(folder.path(), &[&flag])];
    let run =
        |i: usize, arguments: &str| apiserver::kubectl(folder.path(), &servers[i % 2].1, arguments);
    run(0, "create namespace shop");
    run(0, "create quota q -n shop --hard=configmaps=4");
    let status = r#"{"status":{"hard":{"configmaps":"4"},"used":{"configmaps":"0"}}}"#;
    let patch = format!("patch quota q -n shop --subresource=status --type=merge -p {status}");
    assert_eq!(run(1, &patch), "resourcequota/q patched");
    let creations: Vec<_> = (0..20)
        .map(|i| {
            let arguments = format!("create configmap c{i} -n shop");
            let mut command = apiserver::command(folder.path(), &servers[i % 2].1, &arguments);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("kubectl runs")
        })
        .collect();
    let mut admitted = 0;
    for mut creation in creations {
        admitted += usize::from(creation.wait().expect("it ends").success());
    }
    assert_eq!(admitted, 4);
    assert_eq!(run(0, "get quota q -n shop -o jsonpath={.status.used.configmaps}"), "4");
}

#[test]
fn flags_choose_the_plugins() {
    let folder = TempDir::new().expect("a folder");
    let data = format!("--data-dir={}", folder.path().display());
    let (_server, address) =
        apiserver::server(folder.path(), &[&data, "--enable-admission-plugins=AlwaysDeny"]);
    let run = |arguments: &str| apiserver::kubectl(folder.path(), &address, arguments);
    let denied = "admission control is denying all modifications";
    for arguments in [
        "create configmap c -n default",
        "delete namespace kube-node-lease",
        "get --raw /api/v1/nodes/a/proxy/stats",
    ] {
        let said = run(arguments);
        assert!(said.contains(denied), "{arguments}: {said}");
    }
    assert_eq!(run("get configmaps -n default -o name"), "");
}

#[test]
fn a_plugin_that_nobody_knows_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_skiff"))
        .args(["apiserver", "--secure-port=0", "--disable-admission-plugins=Nobody", "--data-dir"])
        .arg(folder.path())
        .output()
        .expect("skiff runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = "disable-admission-plugins plugin \"Nobody\" is unknown";
    assert!(!output.status.success() && said.contains(text), "{said}");
}
