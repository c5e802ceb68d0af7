//! The profiles that a container runs under: AppArmor, SELinux, seccomp; and the kernel's settings.
use super::{Verdict, containers, named, one_or_more, quoted, setters, shown, violation};
use crate::admission::{items, text};
use api::quote::Quoted;
use serde_json::Value;
use std::collections::BTreeSet;

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// SELinux types, each since a version.
const SELINUX_TYPES: &[(u32, &str)] = &[
    (0, ""),
    (0, "container_t"),
    (0, "container_init_t"),
    (0, "container_kvm_t"),
    (31, "container_engine_t"),
];

/// The settings that reach no further than the pod, each since a version.
const SYSCTLS: &[(u32, &str)] = &[
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
    (37, "net.ipv4.tcp_slow_start_after_idle"),
    (37, "net.ipv4.tcp_notsent_lowat"),
];

fn is_allowed(table: &[(u32, &str)], minor: u32, name: &str) -> bool {
    table.iter().any(|(since, known)| *since <= minor && *known == name)
}

/// The type of a profile, where one is set that is neither the runtime's nor a file of the node's.
fn other_type(context: &Value, field: &str) -> Option<String> {
    let profile = text(&context.get(field)?["type"]);
    (!matches!(profile, "RuntimeDefault" | "Localhost")).then(|| profile.to_owned())
}

/// Who sets a profile of another type, and the types.
fn other_profiles(pod: &Value, field: &str) -> (Option<String>, BTreeSet<String>) {
    let of_pod = other_type(&pod["spec"]["securityContext"], field);
    let bad = named(pod, |container| other_type(&container["securityContext"], field).is_some());
    let of_containers =
        containers(pod).filter_map(|container| other_type(&container["securityContext"], field));
    let who = setters(of_pod.is_some(), &bad);
    (who, of_pod.iter().cloned().chain(of_containers).collect())
}

fn annotations(pod: &Value) -> impl Iterator<Item = (&str, &str)> {
    let all = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    all.map(|(key, value)| (key.as_str(), text(value)))
}

pub fn app_armor(pod: &Value) -> Verdict {
    let (who, types) = other_profiles(pod, "appArmorProfile");
    let fine =
        |value: &str| matches!(value, "" | "runtime/default") || value.starts_with("localhost/");
    let mut old: Vec<String> = annotations(pod)
        .filter(|(key, value)| key.starts_with(APP_ARMOR) && !fine(value))
        .map(|(key, value)| format!("{key}={}", Quoted(value)))
        .collect();
    old.sort();
    let word = one_or_more("annotation", "annotations", old.len()).to_owned();
    let who: Vec<String> = who.into_iter().chain((!old.is_empty()).then_some(word)).collect();
    let values: Vec<String> = types.into_iter().chain(old).collect();
    let reason = match values.len() {
        1 => "forbidden AppArmor profile",
        _ => "forbidden AppArmor profiles",
    };
    let (who, values) = (who.join(" and "), quoted(&values));
    let detail = format!("{who} must not set AppArmor profile type to {values}");
    (!who.is_empty()).then(|| violation(reason, detail))
}

pub fn selinux(pod: &Value, minor: u32) -> Verdict {
    let options = |context: &Value| context.get("seLinuxOptions").cloned();
    let bad_type = |options: &Value| !is_allowed(SELINUX_TYPES, minor, text(&options["type"]));
    let is_set = |options: &Value, field: &str| !text(&options[field]).is_empty();
    let bad = |context: &Value| {
        options(context).is_some_and(|options| {
            bad_type(&options) || is_set(&options, "user") || is_set(&options, "role")
        })
    };
    let of_pod = &pod["spec"]["securityContext"];
    let who = setters(bad(of_pod), &named(pod, |container| bad(&container["securityContext"])))?;
    let contexts = containers(pod).map(|container| &container["securityContext"]);
    let all: Vec<Value> = [of_pod].into_iter().chain(contexts).filter_map(options).collect();
    let types: BTreeSet<&str> =
        all.iter().filter(|options| bad_type(options)).map(|o| text(&o["type"])).collect();
    let mut faults = Vec::new();
    if !types.is_empty() {
        faults.push(format!("{} {}", one_or_more("type", "types", types.len()), quoted(&types)));
    }
    for field in ["user", "role"] {
        if all.iter().any(|options| is_set(options, field)) {
            faults.push(format!("{field} may not be set"));
        }
    }
    let faults = faults.join("; ");
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {faults}");
    Some(violation("seLinuxOptions", detail))
}

/// Before there were fields for it.
pub fn seccomp_annotations(pod: &Value) -> Verdict {
    let fine = |value: &str| {
        matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
    };
    let of_container = |key: &str| {
        let name = key.strip_prefix(SECCOMP);
        name.is_some_and(|name| containers(pod).any(|container| container["name"] == name))
    };
    let bad: BTreeSet<String> = annotations(pod)
        .filter(|(key, value)| (*key == SECCOMP_POD || of_container(key)) && !fine(value))
        .map(|(key, value)| format!("{key}={}", Quoted(value)))
        .collect();
    let word = one_or_more("annotation", "annotations", bad.len());
    let all: Vec<String> = bad.into_iter().collect();
    let detail = || format!("forbidden {word} {}", all.join(", "));
    (!all.is_empty()).then(|| violation("seccompProfile", detail()))
}

pub fn seccomp_baseline(pod: &Value) -> Verdict {
    let (who, types) = other_profiles(pod, "seccompProfile");
    let (who, types) = (who?, quoted(&types));
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {types}");
    Some(violation("seccompProfile", detail))
}

pub fn seccomp_restricted(pod: &Value) -> Verdict {
    if let Some(violation) = seccomp_baseline(pod) {
        return Some(violation);
    }
    let set = |context: &Value| context.get("seccompProfile").is_some();
    let silent = named(pod, |container| !set(&container["securityContext"]));
    if set(&pod["spec"]["securityContext"]) || silent.is_empty() {
        return None;
    }
    let who = shown(&silent);
    let detail = format!(
        "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
    );
    Some(violation("seccompProfile", detail))
}

pub fn sysctls(pod: &Value, minor: u32) -> Verdict {
    let names = items(&pod["spec"]["securityContext"]["sysctls"]).iter().map(|s| text(&s["name"]));
    let bad: Vec<&str> = names.filter(|name| !is_allowed(SYSCTLS, minor, name)).collect();
    (!bad.is_empty()).then(|| violation("forbidden sysctls", bad.join(", ")))
}
