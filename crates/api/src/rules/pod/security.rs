//! Security contexts, operating systems, user namespaces.
use super::super::{Field, shown};
use super::spec::each_container;
use crate::codec::json::decode_untyped;
use crate::field::BadValue;
use crate::names;
use serde_json::{Value, json};

const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
pub const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn id(field: &Field<'_, '_>, rule: fn(i64) -> names::Faults) {
    if field.exists() {
        field.faults(rule(field.int()));
    }
}

pub fn of_pod(context: &Field<'_, '_>, spec: &Field<'_, '_>) {
    id(&context.at("fsGroup"), names::group_id);
    id(&context.at("runAsUser"), names::user_id);
    id(&context.at("runAsGroup"), names::group_id);
    context.at("supplementalGroups").items().for_each(|group| id(&group, names::group_id));
    sysctls(&context.at("sysctls"), spec);
    context.at("fsGroupChangePolicy").one_of_if_given(&["Always", "OnRootMismatch"]);
    seccomp(&context.at("seccompProfile"));
    windows_options(&context.at("windowsOptions"));
    app_armor(&context.at("appArmorProfile"));
    context.at("supplementalGroupsPolicy").one_of_if_given(&["Merge", "Strict"]);
    context.at("seLinuxChangePolicy").one_of_if_given(&["MountOption", "Recursive"]);
}

pub fn of_container(context: &Field<'_, '_>, host_users: bool) {
    if !context.exists() {
        return;
    }
    id(&context.at("runAsUser"), names::user_id);
    id(&context.at("runAsGroup"), names::group_id);
    let proc_mount = context.at("procMount");
    proc_mount.one_of_if_given(&["Default", "Unmasked"]);
    if host_users && proc_mount.text() == "Unmasked" {
        proc_mount.invalid("`hostUsers` must be false to use `Unmasked`");
    }
    seccomp(&context.at("seccompProfile"));
    let escalation = context.at("allowPrivilegeEscalation");
    if escalation.exists() && !escalation.flag() {
        if context.at("privileged").flag() {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            context.invalid_as(shown::structure(context.value(), shown::SECURITY_CONTEXT), detail);
        }
        if context.at("capabilities.add").texts().any(|name| name == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            context.invalid_as(shown::structure(context.value(), shown::SECURITY_CONTEXT), detail);
        }
    }
    windows_options(&context.at("windowsOptions"));
    app_armor(&context.at("appArmorProfile"));
}

fn seccomp(profile: &Field<'_, '_>) {
    if !profile.exists() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    if kind.require_for("type is required when seccompProfile is set") {
        kind.one_of(PROFILES);
    }
    match (kind.text() == "Localhost", local.exists()) {
        (true, false) => local.required("must be set when seccomp type is Localhost"),
        (true, true) => local.descending_path(),
        (false, true) => {
            let shown = profile.internal(&[
                ("Type", "type", "\"\""),
                ("LocalhostProfile", "localhostProfile", "null"),
            ]);
            local.invalid_as(shown, "can only be set when seccomp type is Localhost");
        }
        (false, false) => {}
    }
}

fn app_armor(profile: &Field<'_, '_>) {
    if !profile.exists() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    match kind.text() {
        "Localhost" => {
            let text = local.text();
            if text.trim() != text {
                local.invalid("must not be padded with whitespace");
            } else if text.is_empty() {
                local.required("must be set when AppArmor type is Localhost");
            }
            if text.len() > 4095 {
                local.too_long(4095);
            }
        }
        "RuntimeDefault" | "Unconfined" if local.exists() => {
            local.invalid("can only be set when AppArmor type is Localhost");
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => kind.required("type is required when appArmorProfile is set"),
        _ => kind.not_supported(PROFILES),
    }
}

fn sysctls(sysctls: &Field<'_, '_>, spec: &Field<'_, '_>) {
    let mut seen = Vec::new();
    for sysctl in sysctls.items() {
        let name = sysctl.at("name");
        if name.require() {
            if !is_sysctl(name.text()) {
                name.invalid(format!("must have at most 253 characters and match regex {SYSCTL}"));
            } else if seen.contains(&name.text()) {
                name.duplicate();
            }
        }
        seen.push(name.text());
        let dotted = name.text().replace('/', ".");
        let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."];
        if spec.at("hostNetwork").flag() && dotted.starts_with("net.") {
            name.invalid("may not be specified when 'hostNetwork' is true");
        }
        if spec.at("hostIPC").flag()
            && (dotted == "kernel.sem" || ipc.iter().any(|prefix| dotted.starts_with(prefix)))
        {
            name.invalid("may not be specified when 'hostIPC' is true");
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let segment = |segment: &str| {
        let bytes = segment.as_bytes();
        bytes.first().copied().is_some_and(alnum)
            && bytes.last().copied().is_some_and(alnum)
            && bytes.iter().all(|b| alnum(*b) || matches!(b, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

fn windows_options(options: &Field<'_, '_>) {
    let name = options.at("gmsaCredentialSpecName");
    if name.exists() {
        name.faults(names::dns1123_subdomain(name.text()));
    }
    let spec = options.at("gmsaCredentialSpec");
    if spec.exists() && spec.text().is_empty() {
        spec.invalid("gmsaCredentialSpec cannot be an empty string");
    } else if spec.text().len() > 64 * 1024 {
        spec.invalid("gmsaCredentialSpec size must be under 64 KiB");
    }
    let user = options.at("runAsUserName");
    if user.exists() {
        windows_user(&user);
    }
}

fn windows_user(field: &Field<'_, '_>) {
    let text = field.text();
    if text.is_empty() {
        return field.invalid("runAsUserName cannot be an empty string");
    }
    if text.chars().any(|c| c.is_ascii_control()) {
        // A pointer, which is shown as JSON.
        let shown = BadValue::json(text);
        return field.invalid_as(shown, "runAsUserName cannot contain control characters");
    }
    let parts: Vec<&str> = text.split('\\').collect();
    let (domain, user) = match parts[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return field.invalid("runAsUserName cannot contain more than one backslash"),
    };
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            field.invalid("runAsUserName's Domain length must be under 256 characters");
        }
        let odd = |c: char| "\\/:*?\"<>|".contains(c);
        let net_bios =
            (1..=15).contains(&domain.len()) && !domain.contains(odd) && !domain.starts_with('.');
        if !net_bios && !names::dns1123_subdomain(&domain.to_lowercase()).is_empty() {
            field.invalid("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        field.invalid("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        field.invalid("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        field.invalid("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        field.invalid(
            "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]",
        );
    }
}

/// A pod with users of its own has no namespaces of the host.
pub fn host_users(spec: &Field<'_, '_>) {
    let users = spec.at("hostUsers");
    if !users.exists() || users.flag() {
        return;
    }
    for (field, name) in
        [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")]
    {
        if spec.at(field).flag() {
            spec.spelled(name).forbidden("when `hostUsers` is false");
        }
    }
    each_container(spec, |container| {
        let devices = container.at("volumeDevices");
        if !devices.is_empty() {
            devices.forbidden("when `hostUsers` is false");
        }
    });
}

/// Either all containers of a pod are processes of the (Windows) host, or none.
pub fn host_process(spec: &Field<'_, '_>) {
    let asked =
        |context: &Field<'_, '_>| context.at("windowsOptions.hostProcess").value().as_bool();
    let pod = asked(&spec.at("securityContext"));
    let (mut all, mut host) = (0, 0);
    each_container(spec, |container| {
        all += 1;
        let context = container.at("securityContext");
        let own = asked(&context);
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            context.at("windowsOptions.hostProcess").invalid(format!(
                "pod hostProcess value must be identical if both are specified, was {pod}"
            ));
        }
        host += i32::from(own.or(pod).unwrap_or(false));
    });
    if host > 0 && host != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        spec.invalid_as("", detail);
    }
    if host > 0 && !spec.at("hostNetwork").flag() {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        spec.at("hostNetwork").invalid_as(false, detail);
    }
}

const NOT_ON_WINDOWS: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
const NOT_IN_WINDOWS_CONTAINERS: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

pub fn os(spec: &Field<'_, '_>) {
    let os = spec.at("os");
    if !os.exists() || !os.at("name").require() {
        return;
    }
    let forbid = |context: &Field<'_, '_>, fields: &[&'static str], detail: &'static str| {
        for field in fields.iter().filter(|field| context.at(field).exists()) {
            context.at(field).forbidden(detail);
        }
    };
    let pod = spec.at("securityContext");
    match os.at("name").text() {
        "linux" => {
            let detail = "windows options cannot be set for a linux pod";
            forbid(&pod, &["windowsOptions"], detail);
            each_container(spec, |container| {
                forbid(&container.at("securityContext"), &["windowsOptions"], detail);
            });
        }
        "windows" => {
            let detail = "cannot be set for a windows pod";
            forbid(&pod, NOT_ON_WINDOWS, detail);
            forbid(spec, &["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"], detail);
            each_container(spec, |container| {
                forbid(&container.at("securityContext"), NOT_IN_WINDOWS_CONTAINERS, detail);
            });
        }
        name => {
            os.push(crate::field::Error::not_supported(os.path(), name, ["linux", "windows"]));
        }
    }
}

/// Profiles that are still written as annotations.
pub fn annotations(annotations: &Field<'_, '_>, spec: &Field<'_, '_>) {
    for (key, entry) in annotations.entries() {
        if key == TOLERATIONS
            && let Err(fault) = decode_untyped(entry.text().as_bytes())
            && !entry.is_empty()
        {
            annotations.invalid_as(TOLERATIONS, fault.to_string());
        }
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp_annotation(&entry.on_path(annotations.path().child(key)));
        }
        if let Some(name) = key.strip_prefix(APP_ARMOR) {
            let mut found = false;
            each_container(spec, |container| found |= container.at("name").text() == name);
            if !found {
                entry.invalid_as(name, "container not found");
            }
            let profile = entry.text();
            if !matches!(profile, "" | "runtime/default" | "unconfined")
                && !profile.starts_with("localhost/")
            {
                entry.invalid(format!(
                    "invalid AppArmor profile name: {}",
                    crate::quote::Quoted(profile)
                ));
            }
        }
    }
}

fn seccomp_annotation(entry: &Field<'_, '_>) {
    match entry.text() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix("localhost/") {
            Some(path) => entry.with_value(&json!(path), |path| path.descending_path()),
            None => entry.invalid("must be a valid seccomp profile"),
        },
    }
}

/// An annotation and the field that replaces it must agree.
pub fn annotations_match(pod: &Field<'_, '_>) {
    let (annotations, spec) = (pod.at("metadata.annotations"), pod.at("spec"));
    let given = |key: &str| annotations.key(key).value().as_str().map(str::to_owned);
    let seccomp = |annotation: Option<String>, profile: &Field<'_, '_>| {
        if let Some(text) = annotation.filter(|_| profile.exists()) {
            matches_profile(&text, profile, "seccomp");
        }
    };
    seccomp(given(SECCOMP_POD), &spec.at("securityContext.seccompProfile"));
    let windows = spec.at("os.name").text() == "windows";
    let pod_profile = spec.at("securityContext.appArmorProfile");
    each_container(&spec, |container| {
        let name = container.at("name").text();
        let context = container.at("securityContext");
        seccomp(given(&format!("{SECCOMP_CONTAINER}{name}")), &context.at("seccompProfile"));
        let own = context.at("appArmorProfile");
        let effective = if own.exists() { own } else { pod_profile.on_path(*own.path()) };
        if let Some(text) = given(&format!("{APP_ARMOR}{name}"))
            && effective.exists()
            && !windows
        {
            matches_profile(&text, &effective, "apparmor");
        }
    });
}

/// The profile that an annotation means, if it is a valid one.
pub fn app_armor_of_annotation(text: &str) -> Option<Value> {
    match text {
        "unconfined" => Some(json!({ "type": "Unconfined" })),
        "runtime/default" => Some(json!({ "type": "RuntimeDefault" })),
        other => {
            let profile = other.strip_prefix("localhost/")?;
            let valid = !profile.is_empty() && profile.trim() == profile && profile.len() <= 4095;
            valid.then(|| json!({ "type": "Localhost", "localhostProfile": profile }))
        }
    }
}

fn matches_profile(annotation: &str, profile: &Field<'_, '_>, kind: &str) {
    let (of, local) = (profile.at("type"), profile.at("localhostProfile"));
    let same = match of.text() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || kind == "seccomp" && annotation == "docker/default"
        }
        "Localhost" => annotation.starts_with("localhost/"),
        _ => true,
    };
    if !same {
        of.forbidden(format!("{kind} type in annotation and field must match"));
    } else if of.text() == "Localhost"
        && annotation.strip_prefix("localhost/") != Some(local.text())
    {
        local.forbidden(format!("{kind} profile in annotation and field must match"));
    }
}
