//! What each check says, by version.
use super::*;
use serde_json::json;

fn evaluated(level: &str, version: &str, pod: &Value) -> String {
    let level = Level::parse(level).unwrap();
    let version = Version::parse(version).unwrap();
    evaluate(LevelVersion { level, version }, pod).details()
}

/// A pod that the restricted level lets in, with something put in it.
fn pod(path: &str, value: Value) -> Value {
    let mut pod = json!({"metadata": {"annotations": {}}, "spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {"name": "a", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}},
            {"name": "b", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}},
        ],
    }});
    let mut place = &mut pod;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        place = match part.parse::<usize>() {
            Ok(i) => &mut place[i],
            Err(_) => &mut place[part],
        };
    }
    if !path.is_empty() {
        *place = value;
    }
    pod
}

#[test]
fn rows_are_in_the_order_of_their_names() {
    assert!(CHECKS.is_sorted_by_key(|check| (check.level, check.id)));
    let known = |id: &str| CHECKS.iter().any(|check| check.id == id);
    for check in CHECKS {
        assert!(check.versions.is_sorted_by_key(|(since, _)| since), "{}", check.id);
        assert!(check.overrides.is_empty() || known(check.overrides), "{}", check.id);
    }
}

#[test]
fn a_careful_pod_is_let_in_by_every_version() {
    for minor in 0..=NEWEST + 1 {
        let version = format!("v1.{minor}");
        assert_eq!(evaluated("restricted", &version, &pod("", Value::Null)), "", "{version}");
    }
}

#[test]
fn a_careless_pod_hears_everything() {
    let pod = json!({"spec": {"containers": [{"name": "a"}]}});
    assert_eq!(evaluated("baseline", "latest", &pod), "");
    assert_eq!(
        evaluated("restricted", "latest", &pod),
        "allowPrivilegeEscalation != false (container \"a\" must set \
         securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \
         \"a\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or \
         container \"a\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or \
         container \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
         \"Localhost\")"
    );
    assert_eq!(
        evaluated("restricted", "v1.7", &pod),
        "runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true)"
    );
}

#[test]
#[rustfmt::skip]
fn each_check_names_who_does_it() {
    let context = "spec/containers/0/securityContext";
    let cases: &[(&str, &str, &str, Value, &str)] = &[
        ("baseline", "latest", "spec/hostPID", json!(true), "host namespaces (hostPID=true)"),
        ("baseline", "v1.0", "spec/containers/1/ports", json!([{"hostPort": 90}, {"hostPort": 8}]),
            "hostPort (container \"b\" uses hostPorts 8, 90)"),
        ("baseline", "latest", "spec/containers/1/livenessProbe", json!({"httpGet": {"host": "h"}}),
            "probe or lifecycle host (container \"b\" uses probe or lifecycle host \"h\")"),
        ("baseline", "v1.33", "spec/containers/1/livenessProbe", json!({"httpGet": {"host": "h"}}), ""),
        ("baseline", "latest", "spec/volumes", json!([{"name": "v", "hostPath": {}}]),
            "hostPath volumes (volume \"v\")"),
        ("restricted", "latest", "spec/volumes", json!([{"name": "v", "hostPath": {}}, {"name": "w", "nfs": {}}]),
            "restricted volume types (volumes \"v\", \"w\" use restricted volume types \"hostPath\", \"nfs\")"),
        ("baseline", "latest", &format!("{context}/privileged"), json!(true),
            "privileged (container \"a\" must not set securityContext.privileged=true)"),
        ("baseline", "latest", &format!("{context}/capabilities/add"), json!(["NET_RAW", "CHOWN", "BPF"]),
            "non-default capabilities (container \"a\" must not include \"BPF\", \"NET_RAW\" in securityContext.capabilities.add)"),
        ("restricted", "latest", &format!("{context}/capabilities/add"), json!(["CHOWN"]),
            "unrestricted capabilities (container \"a\" must not include \"CHOWN\" in securityContext.capabilities.add)"),
        ("restricted", "v1.21", &format!("{context}/capabilities/add"), json!(["CHOWN"]), ""),
        ("baseline", "latest", &format!("{context}/procMount"), json!("Unmasked"),
            "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")"),
        ("baseline", "latest", "spec/securityContext/windowsOptions", json!({"hostProcess": true}),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)"),
        ("restricted", "latest", "spec/securityContext/runAsUser", json!(0),
            "runAsUser=0 (pod must not set runAsUser=0)"),
        ("restricted", "v1.22", "spec/securityContext/runAsUser", json!(0), ""),
        ("restricted", "latest", &format!("{context}/runAsNonRoot"), json!(false),
            "runAsNonRoot != true (container \"a\" must not set securityContext.runAsNonRoot=false)"),
        ("baseline", "v1.26", "spec/securityContext/sysctls", json!([{"name": "net.ipv4.ip_local_reserved_ports"}]),
            "forbidden sysctls (net.ipv4.ip_local_reserved_ports)"),
        ("baseline", "v1.27", "spec/securityContext/sysctls", json!([{"name": "net.ipv4.ip_local_reserved_ports"}]), ""),
        ("baseline", "latest", "spec/securityContext/seLinuxOptions", json!({"type": "spc_t", "user": "u"}),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set)"),
        ("baseline", "v1.30", "spec/securityContext/seLinuxOptions", json!({"type": "container_engine_t"}),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"container_engine_t\")"),
        ("baseline", "v1.31", "spec/securityContext/seLinuxOptions", json!({"type": "container_engine_t"}), ""),
        ("baseline", "latest", "spec/securityContext/seccompProfile/type", json!("Unconfined"),
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")"),
        ("baseline", "latest", "metadata/annotations", json!({"container.apparmor.security.beta.kubernetes.io/a": "unconfined"}),
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")"),
        ("baseline", "v1.18", "metadata/annotations", json!({"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}),
            "seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")"),
    ];
    for (level, version, path, value, expected) in cases {
        assert_eq!(evaluated(level, version, &pod(path, value.clone())), *expected, "{version} {path}");
    }
}

#[test]
fn a_pod_with_users_of_its_own_may_be_root_there() {
    let mut root = pod("spec/securityContext/runAsUser", json!(0));
    root["spec"]["hostUsers"] = false.into();
    assert_eq!(evaluated("restricted", "v1.35", &root), "");
    assert_ne!(evaluated("restricted", "v1.34", &root), "");
}

#[test]
fn a_windows_pod_need_not_set_what_it_cannot() {
    let bare = json!({"spec": {"os": {"name": "windows"}, "containers": [{"name": "a"}],
        "securityContext": {"runAsNonRoot": true}}});
    assert_eq!(evaluated("restricted", "v1.25", &bare), "");
    assert_ne!(evaluated("restricted", "v1.24", &bare), "");
}
