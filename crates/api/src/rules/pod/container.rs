//! Containers: regular, init, ephemeral.
use super::super::Field;
use super::spec::Context;
use super::{env, mount, probe, resources, security, untrimmed};
use crate::field::Error;
use crate::names;
use std::collections::HashSet;

pub const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
/// What debugging needs; an ephemeral container has nothing else.
const EPHEMERAL: &[&str] = &[
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "envFrom",
    "env",
    "volumeMounts",
    "volumeDevices",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
    "targetContainerName",
];

pub fn regular(containers: &Field<'_, '_>, context: &Context<'_>) {
    if !containers.require() {
        return;
    }
    let mut names = HashSet::new();
    for container in containers.items() {
        common(&container, context);
        if !names.insert(container.at("name").text()) {
            container.at("name").duplicate();
        }
        hooks_and_probes(&container, context);
        restart_policy(&container);
    }
    host_ports(containers);
}

pub fn init(containers: &Field<'_, '_>, spec: &Field<'_, '_>, context: &Context<'_>) {
    let regular = spec.at("containers");
    let mut names: HashSet<&str> =
        regular.list().iter().filter_map(|c| c["name"].as_str()).collect();
    for container in containers.items() {
        common(&container, context);
        restart_policy(&container);
        let name = container.at("name");
        if names.contains(name.text()) {
            name.duplicate();
        } else if !name.is_empty() {
            names.insert(name.text());
        }
        let sidecar = container.at("restartPolicy").text() == "Always";
        if sidecar {
            hooks_and_probes(&container, context);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.at(field).exists() {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    container.at(field).forbidden(detail);
                }
            }
            for policy in container.at("resizePolicy").items() {
                let policy = policy.at("restartPolicy");
                if policy.text() == "RestartContainer" {
                    policy.invalid(
                        "must not be set to 'RestartContainer' for non-sidecar initContainers",
                    );
                }
            }
        }
    }
    containers.items().for_each(|container| host_ports_of(&container, &mut HashSet::new()));
}

pub fn ephemeral(containers: &Field<'_, '_>, spec: &Field<'_, '_>, context: &Context<'_>) {
    let mut others = HashSet::new();
    for list in ["containers", "initContainers"] {
        others.extend(spec.at(list).list().iter().filter_map(|c| c["name"].as_str()));
    }
    let mut names = others.clone();
    for container in containers.items() {
        common(&container, context);
        untrimmed(&container.at("image"));
        if !names.insert(container.at("name").text()) {
            container.at("name").duplicate();
        }
        let target = container.at("targetContainerName");
        if !target.is_empty() && !others.contains(target.text()) {
            target.not_found();
        }
        for field in container.map().into_iter().flatten().map(|(field, _)| field.as_str()) {
            let empty = container.value()[field].as_object().is_some_and(serde_json::Map::is_empty);
            let nothing = field == "resources" && empty;
            if !nothing && !EPHEMERAL.contains(&field) {
                container.spelled(field).forbidden("cannot be set for an Ephemeral Container");
            }
        }
        for mount in container.at("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.at(field).is_empty() {
                    mount.at(field).forbidden("cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

fn common(container: &Field<'_, '_>, context: &Context<'_>) {
    container.at("name").named(names::dns1123_label);
    container.at("image").require();
    container.at("terminationMessagePolicy").require_one_of(&["File", "FallbackToLogsOnError"]);
    ports(&container.at("ports"));
    env::variables(&container.at("env"));
    env::sources(&container.at("envFrom"));
    mount::mounts(container, context);
    mount::devices(container, context);
    container.at("imagePullPolicy").require_one_of(PULL_POLICIES);
    resources::of_container(&container.at("resources"), context);
    resize_policy(&container.at("resizePolicy"), context.restart_policy);
    security::of_container(&container.at("securityContext"), context.host_users);
}

fn hooks_and_probes(container: &Field<'_, '_>, context: &Context<'_>) {
    let grace = context.grace_period;
    let lifecycle = container.at("lifecycle");
    for hook in ["postStart", "preStop"] {
        let hook = lifecycle.at(hook);
        if hook.exists() {
            probe::handler(&hook, &["exec", "httpGet", "tcpSocket", "sleep"], grace);
        }
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container.at(field).exists() {
            probe::validate(&container.at(field), field == "readinessProbe", grace);
        }
    }
}

fn ports(ports: &Field<'_, '_>) {
    let mut seen = HashSet::new();
    for port in ports.items() {
        let name = port.at("name");
        if !name.is_empty()
            && name.faults(names::port_name(name.text()))
            && !seen.insert(name.text())
        {
            name.duplicate();
        }
        if port.at("containerPort").require() {
            port.at("containerPort").port();
        }
        if port.at("hostPort").int() != 0 {
            port.at("hostPort").port();
        }
        port.at("protocol").require_one_of(PROTOCOLS);
    }
}

fn host_ports(containers: &Field<'_, '_>) {
    let mut taken = HashSet::new();
    containers.items().for_each(|container| host_ports_of(&container, &mut taken));
}

fn host_ports_of(container: &Field<'_, '_>, taken: &mut HashSet<String>) {
    for port in container.at("ports").items() {
        let host = port.at("hostPort");
        if host.int() == 0 {
            continue;
        }
        let (protocol, address) = (port.at("protocol").text(), port.at("hostIP").text());
        let key = format!("{protocol}/{address}/{}", host.int());
        if !taken.insert(key.clone()) {
            host.push(Error::duplicate(host.path(), key));
        }
    }
}

fn resize_policy(policies: &Field<'_, '_>, pod_policy: &str) {
    let mut seen = Vec::new();
    for policy in policies.items() {
        let (resource, restart) = (policy.at("resourceName"), policy.at("restartPolicy"));
        if seen.contains(&resource.text()) {
            policy.push(Error::duplicate(policy.path(), resource.text()));
        }
        seen.push(resource.text());
        let at_list = |field: &Field<'_, '_>, supported: &[&str]| match field.text() {
            "" => policies.required(""),
            text if supported.contains(&text) => {}
            text => policies.push(Error::not_supported(policies.path(), text, supported)),
        };
        at_list(&resource, &["cpu", "memory"]);
        at_list(&restart, &["NotRequired", "RestartContainer"]);
        if pod_policy == "Never" && restart.text() != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            policies.invalid_as(restart.text(), detail);
        }
    }
}

fn restart_policy(container: &Field<'_, '_>) {
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    if policy.exists() {
        policy.one_of(&["Always", "Never", "OnFailure"]);
    } else if !rules.is_empty() {
        policy.required("must specify restartPolicy when restart rules are used");
    }
    rules.at_most(20);
    for rule in rules.items() {
        rule.at("action").one_of(&["Restart", "RestartAllContainers"]);
        let codes = rule.at("exitCodes");
        if codes.exists() {
            codes.at("operator").one_of(&["In", "NotIn"]);
            codes.at("values").at_most(255);
        } else {
            codes.required("must be specified");
        }
    }
}
