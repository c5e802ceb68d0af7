//! What a container may do beyond what any process may.
use super::{Verdict, containers, named, quoted, setters, shown, violation};
use crate::admission::{items, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// What containers have by default, without raw sockets.
const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

pub fn privileged(pod: &Value) -> Verdict {
    let bad = named(pod, |container| container["securityContext"]["privileged"] == true);
    let detail = || format!("{} must not set securityContext.privileged=true", shown(&bad));
    (!bad.is_empty()).then(|| violation("privileged", detail()))
}

pub fn escalation(pod: &Value) -> Verdict {
    let bad = named(pod, |c| c["securityContext"]["allowPrivilegeEscalation"] != false);
    let detail =
        || format!("{} must set securityContext.allowPrivilegeEscalation=false", shown(&bad));
    (!bad.is_empty()).then(|| violation("allowPrivilegeEscalation != false", detail()))
}

/// The capabilities that a container adds beyond those allowed.
fn added<'v>(container: &'v Value, allowed: &[&str]) -> Vec<&'v str> {
    let added = items(&container["securityContext"]["capabilities"]["add"]).iter().map(text);
    added.filter(|capability| !allowed.contains(capability)).collect()
}

/// Who adds more than is allowed, and what.
fn adding(pod: &Value, allowed: &[&str]) -> Option<String> {
    let bad = named(pod, |container| !added(container, allowed).is_empty());
    let all: BTreeSet<&str> = containers(pod).flat_map(|c| added(c, allowed)).collect();
    let (who, all) = (shown(&bad), quoted(&all));
    let text = format!("{who} must not include {all} in securityContext.capabilities.add");
    (!bad.is_empty()).then_some(text)
}

pub fn capabilities_baseline(pod: &Value) -> Verdict {
    Some(violation("non-default capabilities", adding(pod, DEFAULT_CAPABILITIES)?))
}

pub fn capabilities_restricted(pod: &Value) -> Verdict {
    let keeping = named(pod, |container| {
        let dropped = items(&container["securityContext"]["capabilities"]["drop"]);
        !dropped.iter().any(|capability| capability == "ALL")
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let who = shown(&keeping);
        details.push(format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    details.extend(adding(pod, &["NET_BIND_SERVICE"]));
    (!details.is_empty()).then(|| violation("unrestricted capabilities", details.join("; ")))
}

pub fn proc_mount(pod: &Value) -> Verdict {
    let other = |container: &Value| {
        let mount = container["securityContext"]["procMount"].as_str();
        mount.filter(|mount| *mount != "Default").map(str::to_owned)
    };
    let bad = named(pod, |container| other(container).is_some());
    let all: BTreeSet<String> = containers(pod).filter_map(other).collect();
    let (who, all) = (shown(&bad), quoted(&all));
    let detail = format!("{who} must not set securityContext.procMount to {all}");
    (!bad.is_empty()).then(|| violation("procMount", detail))
}

pub fn non_root(pod: &Value) -> Verdict {
    const REASON: &str = "runAsNonRoot != true";
    let set = |context: &Value| context["runAsNonRoot"].as_bool();
    let of_pod = set(&pod["spec"]["securityContext"]);
    let explicit = named(pod, |container| set(&container["securityContext"]) == Some(false));
    if let Some(who) = setters(of_pod == Some(false), &explicit) {
        return Some(violation(
            REASON,
            format!("{who} must not set securityContext.runAsNonRoot=false"),
        ));
    }
    let silent = named(pod, |container| set(&container["securityContext"]).is_none());
    if of_pod == Some(true) || silent.is_empty() {
        return None;
    }
    let who = shown(&silent);
    Some(violation(REASON, format!("pod or {who} must set securityContext.runAsNonRoot=true")))
}

pub fn user(pod: &Value) -> Verdict {
    let root = |context: &Value| context["runAsUser"] == 0;
    let bad = named(pod, |container| root(&container["securityContext"]));
    let who = setters(root(&pod["spec"]["securityContext"]), &bad)?;
    Some(violation("runAsUser=0", format!("{who} must not set runAsUser=0")))
}
