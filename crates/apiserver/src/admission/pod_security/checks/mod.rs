//! The checks: one row each, with the versions in which it changed.
//!
//! A level's checks in a version are those of its rows that were there by then. The restricted
//! level has the baseline's too, but for those that a stricter one takes the place of.
mod host;
mod privileges;
mod profiles;
mod volumes;

use super::policy::{Level, LevelVersion, Version};
use crate::admission::{items, text};
use serde_json::Value;

/// What a pod does that its level does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Violation {
    reason: &'static str,
    detail: String,
}

type Verdict = Option<Violation>;

type Look = fn(&Value) -> Verdict;
/// From which minor version on, what a check does.
type Versions = &'static [(u32, Look)];

struct Check {
    id: &'static str,
    level: Level,
    versions: Versions,
    /// The baseline check that it takes the place of.
    overrides: &'static str,
}

const fn baseline(id: &'static str, versions: Versions) -> Check {
    Check { id, level: Level::Baseline, versions, overrides: "" }
}

const fn restricted(id: &'static str, versions: Versions, overrides: &'static str) -> Check {
    Check { id, level: Level::Restricted, versions, overrides }
}

/// Later versions are as this one.
const NEWEST: u32 = 37;

/// By level, then by name: the order in which violations are told.
#[rustfmt::skip]
static CHECKS: &[Check] = &[
    baseline("appArmorProfile", &[(0, profiles::app_armor)]),
    baseline("capabilities_baseline", &[(0, privileges::capabilities_baseline)]),
    baseline("hostNamespaces", &[(0, host::namespaces)]),
    baseline("hostPathVolumes", &[(0, volumes::host_path)]),
    baseline("hostPorts", &[(0, host::ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, host::probes)]),
    baseline("privileged", &[(0, privileges::privileged)]),
    baseline("procMount", &[(0, privileges::proc_mount), (35, |pod| own_users(pod, privileges::proc_mount))]),
    baseline("seLinuxOptions", &[(0, |pod| profiles::selinux(pod, 0)), (31, |pod| profiles::selinux(pod, 31))]),
    baseline("seccompProfile_baseline", &[(0, profiles::seccomp_annotations), (19, profiles::seccomp_baseline)]),
    baseline("sysctls", &[
        (0, |pod| profiles::sysctls(pod, 0)), (27, |pod| profiles::sysctls(pod, 27)),
        (29, |pod| profiles::sysctls(pod, 29)), (32, |pod| profiles::sysctls(pod, 32)),
        (37, |pod| profiles::sysctls(pod, 37)),
    ]),
    baseline("windowsHostProcess", &[(0, host::process)]),
    restricted("allowPrivilegeEscalation", &[
        (8, privileges::escalation), (25, |pod| windows(pod, privileges::escalation)),
    ], ""),
    restricted("capabilities_restricted", &[
        (22, privileges::capabilities_restricted),
        (25, |pod| windows(pod, privileges::capabilities_restricted)),
    ], "capabilities_baseline"),
    restricted("procMount_restricted", &[(35, privileges::proc_mount)], "procMount"),
    restricted("restrictedVolumes", &[(0, volumes::restricted)], "hostPathVolumes"),
    restricted("runAsNonRoot", &[
        (0, privileges::non_root), (35, |pod| own_users(pod, privileges::non_root)),
    ], ""),
    restricted("runAsUser", &[
        (23, privileges::user), (35, |pod| own_users(pod, privileges::user)),
    ], ""),
    restricted("seccompProfile_restricted", &[
        (19, profiles::seccomp_restricted), (25, |pod| windows(pod, profiles::seccomp_restricted)),
    ], "seccompProfile_baseline"),
];

/// A pod in its own user namespace is root there only.
fn own_users(pod: &Value, check: Look) -> Verdict {
    if pod["spec"]["hostUsers"] == false { None } else { check(pod) }
}

/// What a Windows pod cannot set, it need not.
fn windows(pod: &Value, check: Look) -> Verdict {
    if pod["spec"]["os"]["name"] == "windows" { None } else { check(pod) }
}

impl Check {
    /// What the check does in a version, if it was there.
    fn at(&self, minor: u32) -> Option<Look> {
        let found = self.versions.iter().rfind(|(since, _)| *since <= minor);
        found.map(|(_, check)| *check)
    }
}

/// All that a pod does wrong.
pub struct Violations(Vec<Violation>);

pub fn evaluate(level: LevelVersion, pod: &Value) -> Violations {
    let minor = match level.version {
        Version::Minor(minor) => minor.min(NEWEST),
        Version::Latest => NEWEST,
    };
    let overridden = |check: &Check| {
        let mut stricter = CHECKS.iter().filter(|other| other.overrides == check.id);
        level.level == Level::Restricted && stricter.any(|other| other.at(minor).is_some())
    };
    let mut found = Vec::new();
    for check in CHECKS.iter().filter(|check| check.level <= level.level) {
        if let Some(verdict) = check.at(minor)
            && !overridden(check)
        {
            found.extend(verdict(pod));
        }
    }
    Violations(found)
}

impl Violations {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn reasons(&self) -> String {
        let reasons: Vec<&str> = self.0.iter().map(|violation| violation.reason).collect();
        reasons.join(", ")
    }

    pub fn details(&self) -> String {
        let each = self.0.iter().map(|Violation { reason, detail }| match detail.as_str() {
            "" => (*reason).to_owned(),
            detail => format!("{reason} ({detail})"),
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

/// All containers, in the order they are told in.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| items(&pod["spec"][list]))
}

/// The names of the containers that do something.
fn named(pod: &Value, bad: impl Fn(&Value) -> bool) -> Vec<&str> {
    containers(pod).filter(|container| bad(container)).map(|c| text(&c["name"])).collect()
}

fn violation(reason: &'static str, detail: String) -> Violation {
    Violation { reason, detail }
}

fn quoted<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    let items: Vec<String> = items.into_iter().map(|i| format!("\"{}\"", i.as_ref())).collect();
    items.join(", ")
}

/// `container "a"`, `containers "a", "b"`.
fn shown(containers: &[&str]) -> String {
    format!("{} {}", one_or_more("container", "containers", containers.len()), quoted(containers))
}

fn one_or_more<'w>(one: &'w str, more: &'w str, count: usize) -> &'w str {
    if count == 1 { one } else { more }
}

/// Who sets something: the pod, containers, or both; nobody is none.
fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    let mut all = Vec::new();
    if pod {
        all.push("pod".to_owned());
    }
    if !containers.is_empty() {
        all.push(shown(containers));
    }
    (!all.is_empty()).then(|| all.join(" and "))
}

#[cfg(test)]
mod tests;
