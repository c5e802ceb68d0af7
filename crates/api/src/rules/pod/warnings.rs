//! What is allowed in a pod and yet probably not meant.
use super::super::Field;
use super::overlaps;
use super::security::{APP_ARMOR, app_armor_of_annotation};
use super::spec::each_container;
use crate::names::{self, ip};
use crate::quote::Quoted;

/// Labels of nodes that have newer names.
const DEPRECATED_LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
];
const DEPRECATED_ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
const DEPRECATED_VOLUMES: &[(&str, &str, &str)] = &[
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

pub fn pod(pod: &Field<'_, '_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let faults = names::dns1123_label(pod.at("metadata.name").text());
    if !faults.is_empty() {
        warnings.push(format!("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]", faults.join(" ")));
    }
    warnings.extend(shared(pod));
    warnings
}

/// A template's annotations are not made fields of, as a pod's are.
pub fn template(template: &Field<'_, '_>) -> Vec<String> {
    let mut warnings = shared(template);
    let mut warn = |at: &Field<'_, '_>, text: &str| warnings.push(format!("{}: {text}", at.path()));
    app_armor(template, &mut warn);
    warnings
}

/// A container's profile that only an annotation of old gives, and not what the pod's own says.
fn app_armor(template: &Field<'_, '_>, warn: Warn<'_>) {
    let (annotations, spec) = (template.at("metadata.annotations"), template.at("spec"));
    let of_pod = spec.at("securityContext.appArmorProfile");
    each_container(&spec, |container| {
        let key = format!("{APP_ARMOR}{}", container.at("name").text());
        let entry = annotations.key(&key);
        let profile = app_armor_of_annotation(entry.text());
        let same = of_pod.exists() && profile.is_some_and(|profile| profile == *of_pod.value());
        if entry.exists() && !container.at("securityContext.appArmorProfile").exists() && !same {
            warn(&entry, "deprecated since v1.30; use the \"appArmorProfile\" field instead");
        }
    });
}

/// Of a pod, or of a template of pods: what has metadata and a spec.
fn shared(template: &Field<'_, '_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let (spec, annotations) = (template.at("spec"), template.at("metadata.annotations"));
    let mut warn = |at: &Field<'_, '_>, text: &str| warnings.push(format!("{}: {text}", at.path()));
    nodes(&spec, &mut warn);
    for (key, message) in DEPRECATED_ANNOTATIONS {
        if annotations.key(key).exists() {
            warn(&annotations.key(key), message);
        }
    }
    for volume in spec.at("volumes").items() {
        for (field, spelled, message) in DEPRECATED_VOLUMES {
            if volume.at(field).exists() {
                warn(&volume.spelled(spelled), message);
            }
        }
    }
    warnings.extend(spec.at("volumes").items().flat_map(|volume| overlaps::warnings(&volume)));
    let mut warn = |at: &Field<'_, '_>, text: &str| warnings.push(format!("{}: {text}", at.path()));
    for (list, field, word) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
        let mut seen = Vec::new();
        for item in spec.at(list).items() {
            let value = item.at(field);
            if seen.contains(&value.text()) {
                warn(&value, &format!("duplicate {word} {}", Quoted(value.text())));
            }
            seen.push(value.text());
        }
    }
    for secret in spec.at("imagePullSecrets").items() {
        if secret.at("name").is_empty() {
            warn(&secret.at("name"), "invalid empty name \"\"");
        }
    }
    fractional_bytes(&spec.at("overhead"), &mut warn);
    seccomp(&annotations, &spec, &mut warn);
    each_container(&spec, |container| {
        fractional_bytes(&container.at("resources.limits"), &mut warn);
        fractional_bytes(&container.at("resources.requests"), &mut warn);
        hidden_variables(container, &mut warn);
    });
    ports(&spec, &mut warn);
    let grace = spec.at("terminationGracePeriodSeconds");
    if grace.int() < 0 {
        warn(&grace, "must be >= 0; negative values are invalid and will be treated as 1");
    }
    affinity(&spec.at("affinity"), &mut warn);
    for server in spec.at("dnsConfig.nameservers").items() {
        warnings.extend(ip::ip_warnings(server.path(), server.text()));
    }
    for alias in spec.at("hostAliases").items() {
        let address = alias.at("ip");
        warnings.extend(ip::ip_warnings(address.path(), address.text()));
    }
    warnings
}

type Warn<'a> = &'a mut dyn FnMut(&Field<'_, '_>, &str);

fn nodes(spec: &Field<'_, '_>, warn: Warn<'_>) {
    let deprecated = |key: &str| {
        DEPRECATED_LABELS.iter().find(|(label, _)| *label == key).map(|(_, message)| *message)
    };
    for (key, entry) in spec.at("nodeSelector").entries() {
        if let Some(message) = deprecated(key) {
            warn(&entry, message);
        }
    }
    let affinity = spec.at("affinity.nodeAffinity");
    let required = affinity.at("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    let term = |term: &Field<'_, '_>, warn: Warn<'_>| {
        for expression in term.at("matchExpressions").items() {
            let key = expression.at("key");
            if let Some(message) = deprecated(key.text()) {
                warn(&key, &format!("{} is {message}", key.text()));
            }
        }
    };
    required.items().for_each(|each| term(&each, warn));
    for preferred in affinity.at("preferredDuringSchedulingIgnoredDuringExecution").items() {
        term(&preferred.at("preference"), warn);
    }
    for constraint in spec.at("topologySpreadConstraints").items() {
        let key = constraint.at("topologyKey");
        if let Some(message) = deprecated(key.text()) {
            warn(&key, &format!("{} is {message}", key.text()));
        }
        if !constraint.at("labelSelector").exists() {
            warn(&constraint.at("labelSelector"), NULL_SELECTOR);
        }
    }
}

fn fractional_bytes(amounts: &Field<'_, '_>, warn: Warn<'_>) {
    for name in ["memory", "ephemeral-storage"] {
        let entry = amounts.key(name);
        if let Some(quantity) =
            entry.quantity().filter(|quantity| quantity.milli_value() % 1000 != 0)
        {
            let text = quantity.to_string();
            warn(
                &entry,
                &format!("fractional byte value {} is invalid, must be an integer", Quoted(&text)),
            );
        }
    }
}

fn seccomp(annotations: &Field<'_, '_>, spec: &Field<'_, '_>, warn: Warn<'_>) {
    let mut check = |key: &str, profile: bool| {
        let entry = annotations.key(key);
        if entry.exists() && !profile {
            warn(&entry, "non-functional in v1.27+; use the \"seccompProfile\" field instead");
        }
    };
    check(
        "seccomp.security.alpha.kubernetes.io/pod",
        spec.at("securityContext.seccompProfile").exists(),
    );
    each_container(spec, |container| {
        let key = format!(
            "container.seccomp.security.alpha.kubernetes.io/{}",
            container.at("name").text()
        );
        check(&key, container.at("securityContext.seccompProfile").exists());
    });
}

fn hidden_variables(container: &Field<'_, '_>, warn: Warn<'_>) {
    let mut seen = Vec::new();
    for variable in container.at("env").items() {
        let (name, value) = (variable.at("name").text(), variable.at("value").text());
        let reference = format!("$({name})");
        let extends =
            value != reference && value.contains(&reference) && !variable.at("valueFrom").exists();
        if seen.contains(&name) && !extends {
            let name = Quoted(name);
            warn(
                &variable,
                &format!(
                    "hides previous definition of {name}, which may be dropped when using apply"
                ),
            );
        }
        seen.push(name);
    }
}

struct Port {
    path: String,
    key: (i64, String),
    host: (String, i64),
}

fn ports(spec: &Field<'_, '_>, warn: Warn<'_>) {
    let (mut all, mut named): (Vec<Port>, Vec<(String, String)>) = (Vec::new(), Vec::new());
    each_container(spec, |container| {
        for port in container.at("ports").items() {
            let path = port.path().to_string();
            if !port.at("hostIP").is_empty() && port.at("hostPort").int() == 0 {
                let (name, number) = (port.at("name").text(), port.at("containerPort").int());
                let (protocol, ip) = (port.at("protocol").text(), port.at("hostIP").text());
                warn(
                    &port,
                    &format!(
                        "hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{ip}}}"
                    ),
                );
            }
            let host = (port.at("hostIP").text().to_owned(), port.at("hostPort").int());
            let key = (port.at("containerPort").int(), port.at("protocol").text().to_owned());
            for other in all.iter().filter(|other| other.key == key) {
                let fault = if host == other.host {
                    "duplicate"
                } else if host.1 == 0 || other.host.1 == 0 {
                    "overlapping"
                } else if host.1 == other.host.1 && host.0.is_empty() != other.host.0.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                warn(&port, &format!("{fault} port definition with {}", other.path));
            }
            all.push(Port { path, key, host });
        }
    });
    each_container(spec, |container| {
        for port in container.at("ports").items() {
            let (name, path) = (port.at("name").text(), port.path().to_string());
            if name.is_empty() {
                continue;
            }
            match named.iter().find(|(other, _)| other == name) {
                Some((_, other)) => warn(
                    &port,
                    &format!(
                        "duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                        Quoted(name)
                    ),
                ),
                None => named.push((name.to_owned(), path)),
            }
        }
    });
}

fn affinity(affinity: &Field<'_, '_>, warn: Warn<'_>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.at(kind);
        for term in pods.at("requiredDuringSchedulingIgnoredDuringExecution").items() {
            if !term.at("labelSelector").exists() {
                warn(&term.at("labelSelector"), NULL_SELECTOR);
            }
        }
        for term in pods.at("preferredDuringSchedulingIgnoredDuringExecution").items() {
            let term = term.at("podAffinityTerm");
            if !term.at("labelSelector").exists() {
                warn(&term.at("labelSelector"), NULL_SELECTOR);
            }
        }
    }
}
