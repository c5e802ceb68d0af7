//! Pods whose users are their own: each has a range of the machine's that no other has.
use crate::cluster::Cluster;

fn pod(name: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 0
  securityContext: {{fsGroup: 1234}}
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "cat /proc/self/uid_map | tr -s ' '; echo x > /data/file; stat -c %u:%g /data/file; cat /told/word; echo; test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token; sleep 1000000"]
    volumeMounts: [{{name: data, mountPath: /data}}, {{name: told, mountPath: /told}}]
  volumes:
  - {{name: data, emptyDir: {{}}}}
  - {{name: told, configMap: {{name: told}}}}
"#
    )
}

/// The first user of the machine that is a pod's, after all else that it says is as it should be.
fn first_user(cluster: &Cluster, name: &str) -> u32 {
    cluster.until(&format!("get pod {name} -o jsonpath={{.status.phase}}"), "Running");
    let begun = std::time::Instant::now();
    let said = loop {
        let said = cluster.kubectl(&format!("logs {name}"));
        if said.ends_with("token") {
            break said;
        }
        assert!(begun.elapsed().as_secs() < 30, "{name}: {said}");
    };
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    assert_eq!(lines[1..], ["0:1234", "one", "token"], "{said}");
    let map: Vec<u32> = lines[0].split(' ').map(|word| word.parse().expect("a number")).collect();
    assert_eq!((map[0], map[2]), (0, 65536), "{said}");
    map[1]
}

#[test]
fn pods_have_users_of_their_own() {
    let mut cluster = Cluster::whole();
    cluster.import_busybox("localhost/busybox:1");
    cluster.kubectl("create configmap told --from-literal=word=one");
    for name in ["a", "b"] {
        cluster.kubectl_with("apply -f -", &pod(name));
    }
    let mut users = vec![first_user(&cluster, "a"), first_user(&cluster, "b")];
    // Who comes after a crash knows whose ranges are taken.
    cluster.crash_and_restart();
    cluster.kubectl_with("apply -f -", &pod("c"));
    users.push(first_user(&cluster, "c"));
    for (at, one) in users.iter().enumerate() {
        assert!(*one >= 65536, "{users:?}");
        assert!(users[..at].iter().all(|other| one.abs_diff(*other) >= 65536), "{users:?}");
    }
    // A range that was given back is given again.
    cluster.kubectl("delete pod b --timeout=30s");
    cluster.kubectl_with("apply -f -", &pod("d"));
    let again = first_user(&cluster, "d");
    assert!([users[0], users[2]].iter().all(|other| again.abs_diff(*other) >= 65536), "{again}");
}
