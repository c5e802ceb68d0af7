//! Settings of the kernel that a pod may have of its own: those that are known to touch nobody else,
//! and those that the node's owner allows (`pkg/kubelet/sysctl`).
use super::Refusal;
use crate::pod;
use k8s_openapi::api::core::v1::Pod;

/// Isolated and namespaced: upstream's list.
const SAFE: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
];

/// Which namespace a setting belongs to; what belongs to none cannot be a pod's.
fn namespace(name: &str) -> Option<&'static str> {
    const ROWS: &[(&str, &str)] = &[
        ("kernel.sem", "ipc"),
        ("kernel.shm", "ipc"),
        ("kernel.msg", "ipc"),
        ("fs.mqueue.", "ipc"),
        ("net.", "net"),
        ("user.", "user"),
    ];
    ROWS.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, namespace)| *namespace)
}

/// With dots, however it is spelled: the first separator tells which one is meant.
fn plain(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name
            .chars()
            .map(|letter| match letter {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// A name, or all that begin so: `net.core.*`. What is not namespaced is refused at the start.
pub fn parse(pattern: &str) -> Result<String, String> {
    let pattern = plain(pattern);
    match namespace(pattern.trim_end_matches('*')) {
        Some(_) => Ok(pattern),
        None => Err(format!("the sysctls {pattern:?} are not known to be namespaced")),
    }
}

pub fn admit(pod: &Pod, allowed: &[String]) -> Result<(), Refusal> {
    let spec = pod::spec(pod);
    let asked = spec.security_context.as_ref().and_then(|all| all.sysctls.as_ref());
    for one in asked.into_iter().flatten() {
        let name = plain(&one.name);
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *pattern,
        };
        let why = if !SAFE.contains(&name.as_str()) && !allowed.iter().any(fits) {
            format!("{name:?} not allowlisted")
        } else {
            let host = match namespace(&name) {
                Some("ipc") if spec.host_ipc == Some(true) => "ipc",
                Some("net") if spec.host_network == Some(true) => "net",
                Some("user") if spec.host_users != Some(false) => "user",
                _ => continue,
            };
            format!("{name:?} not allowed with host {host} enabled")
        };
        return Err(Refusal::new("SysctlForbidden", format!("forbidden sysctl: {why}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(name: &str, extra: serde_json::Value, expected: &str) {
        let mut spec = json!({ "containers": [],
            "securityContext": { "sysctls": [{ "name": name, "value": "1" }] } });
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let pod = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
        let allowed = [parse("net.core.*").unwrap(), parse("kernel.msgmax").unwrap()];
        let said = admit(&pod, &allowed).err().map(|refusal| refusal.message);
        assert_eq!(said.unwrap_or_default().trim_start_matches("forbidden sysctl: "), expected);
    }

    #[test]
    fn what_touches_others_is_forbidden() {
        check("net.ipv4.tcp_syncookies", json!({}), "");
        check("net/ipv4/tcp_syncookies", json!({}), "");
        check("net.core.somaxconn", json!({}), "");
        check("kernel.msgmax", json!({}), "");
        check("kernel.shmmax", json!({}), "\"kernel.shmmax\" not allowlisted");
        check("vm.swappiness", json!({}), "\"vm.swappiness\" not allowlisted");
        check(
            "net.ipv4.tcp_syncookies",
            json!({ "hostNetwork": true }),
            "\"net.ipv4.tcp_syncookies\" not allowed with host net enabled",
        );
        assert!(parse("vm.*").is_err());
    }
}
