//! The spec of a pod, in a pod or in a template.
use super::super::{Field, scheduling};
use super::{container, resources, security, volumes};
use crate::names::{self, ip};
use serde_json::Value;
use std::collections::HashMap;

pub const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const CLAIM: &[(&str, &str, &str)] = &[
    ("Name", "name", "\"\""),
    ("ResourceClaimName", "resourceClaimName", "null"),
    ("ResourceClaimTemplateName", "resourceClaimTemplateName", "null"),
];
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;

/// What containers need to know of their pod.
pub struct Context<'v> {
    /// The sound volumes, by name.
    pub volumes: HashMap<&'v str, &'v Value>,
    pub claims: Vec<&'v str>,
    pub restart_policy: &'v str,
    pub grace_period: Option<i64>,
    pub host_users: bool,
    pub os: &'v str,
}

/// `name` is the pod's, or empty in a template.
pub fn validate(spec: &Field<'_, '_>, name: &str, is_pod: bool) {
    let grace = spec.at("terminationGracePeriodSeconds");
    if !grace.exists() {
        grace.required("");
    }
    let host_users = spec.at("hostUsers");
    let sound = volumes::validate(&spec.at("volumes"), name);
    let claims = spec.at("resourceClaims");
    let context = Context {
        volumes: sound,
        claims: claims.list().iter().filter_map(|claim| claim["name"].as_str()).collect(),
        restart_policy: spec.at("restartPolicy").text(),
        grace_period: grace.value().as_i64(),
        host_users: !host_users.exists() || host_users.flag(),
        os: spec.at("os.name").text(),
    };
    resource_claims(&claims);
    container::regular(&spec.at("containers"), &context);
    container::init(&spec.at("initContainers"), spec, &context);
    container::ephemeral(&spec.at("ephemeralContainers"), spec, &context);
    resources::of_pod(spec, &context);
    if spec.at("hostNetwork").flag() {
        host_network_ports(spec, is_pod);
    }
    spec.at("restartPolicy").require_one_of(RESTART_POLICIES);
    spec.at("dnsPolicy").require_one_of(DNS_POLICIES);
    spec.at("nodeSelector").label_map();
    security::of_pod(&spec.at("securityContext"), spec);
    if spec.at("shareProcessNamespace").flag() && spec.at("hostPID").flag() {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        spec.at("shareProcessNamespace").invalid(detail);
    }
    scheduling::affinity(&spec.at("affinity"));
    dns_config(spec);
    for gate in spec.at("readinessGates").items() {
        let condition = gate.at("conditionType");
        condition.faults(names::qualified_name(condition.text()));
    }
    scheduling_gates(&spec.at("schedulingGates"));
    scheduling::spread(&spec.at("topologySpreadConstraints"));
    security::host_process(spec);
    security::host_users(spec);
    host_name(spec);
    let subdomain = |field: &'static str| {
        if spec.at(field).exists() {
            spec.at(field).faults(names::name_is_dns_subdomain(spec.at(field).text(), false));
        }
    };
    subdomain("serviceAccountName");
    subdomain("nodeName");
    let deadline = spec.at("activeDeadlineSeconds");
    if deadline.exists() {
        deadline.between(1, i32::MAX.into());
    }
    spec.at("hostname").named_if_given(names::dns1123_label);
    spec.at("subdomain").named_if_given(names::dns1123_label);
    scheduling::tolerations(&spec.at("tolerations"));
    for alias in spec.at("hostAliases").items() {
        let address = alias.at("ip");
        address.extend(ip::ip_for_legacy_field(address.path(), address.text(), true, &[]));
        for name in alias.at("hostnames").items() {
            name.faults(names::dns1123_subdomain(name.text()));
        }
    }
    subdomain("priorityClassName");
    subdomain("runtimeClassName");
    let preemption = spec.at("preemptionPolicy");
    if preemption.exists() {
        preemption.require_one_of(&["PreemptLowerPriority", "Never"]);
    }
    resources::overhead(&spec.at("overhead"));
    security::os(spec);
    file_key_refs(spec);
}

/// Every container of a spec, whatever its class.
pub fn each_container(spec: &Field<'_, '_>, mut visit: impl FnMut(&Field<'_, '_>)) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.at(list).items() {
            visit(&container);
        }
    }
}

fn resource_claims(claims: &Field<'_, '_>) {
    let mut seen = Vec::new();
    for claim in claims.items() {
        let name = claim.at("name");
        if name.require() {
            if seen.contains(&name.text()) {
                name.duplicate();
            } else {
                name.faults(names::dns1123_label(name.text()));
                seen.push(name.text());
            }
        }
        let (direct, template) =
            (claim.at("resourceClaimName"), claim.at("resourceClaimTemplateName"));
        match (direct.exists(), template.exists()) {
            (true, true) => claim.invalid_as(
                claim.internal(CLAIM),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => claim.invalid_as(claim.internal(CLAIM),
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => {}
        }
        for given in [direct, template].iter().filter(|given| given.exists()) {
            given.faults(names::name_is_dns_subdomain(given.text(), false));
        }
    }
}

fn host_network_ports(spec: &Field<'_, '_>, is_pod: bool) {
    for container in spec.at("containers").items() {
        for port in container.at("ports").items() {
            let host = port.at("hostPort");
            if (is_pod || host.int() != 0) && host.int() != port.at("containerPort").int() {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                host.invalid_as(host.int(), detail);
            }
        }
    }
}

fn dns_config(spec: &Field<'_, '_>) {
    let (config, none) = (spec.at("dnsConfig"), spec.at("dnsPolicy").text() == "None");
    let servers = config.at("nameservers");
    if none && !config.exists() {
        return config.required("must provide `dnsConfig` when `dnsPolicy` is None");
    }
    if none && servers.is_empty() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        return servers.required(detail);
    }
    if servers.len() > MAX_NAMESERVERS {
        servers.invalid(format!("must not have more than {MAX_NAMESERVERS} nameservers"));
    }
    for server in servers.items() {
        server.extend(ip::ip_for_legacy_field(server.path(), server.text(), true, &[]));
    }
    let searches = config.at("searches");
    if searches.len() > MAX_SEARCHES {
        searches.invalid(format!("must not have more than {MAX_SEARCHES} search paths"));
    }
    if searches.texts().map(|text| text.len() + 1).sum::<usize>() > MAX_SEARCH_CHARACTERS + 1 {
        searches.invalid(format!(
            "must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list"
        ));
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let text = search.text().strip_suffix('.').unwrap_or(search.text());
        for fault in names::dns1123_subdomain_with_underscore(text) {
            search.invalid_as(text, fault);
        }
    }
    for option in config.at("options").items() {
        if option.at("name").is_empty() {
            option.required("must not be empty");
        }
    }
}

fn scheduling_gates(gates: &Field<'_, '_>) {
    let mut seen = Vec::new();
    for gate in gates.items() {
        let name = gate.at("name").text();
        names::qualified_name(name).into_iter().for_each(|fault| gate.invalid_as(name, fault));
        if seen.contains(&name) {
            gate.push(crate::field::Error::duplicate(gate.path(), name));
        }
        seen.push(name);
    }
}

fn host_name(spec: &Field<'_, '_>) {
    let name = spec.at("hostnameOverride");
    if !name.exists() {
        return;
    }
    if spec.at("setHostnameAsFQDN").flag() {
        name.forbidden("may not be specified when setHostnameAsFQDN is true");
    }
    if spec.at("hostNetwork").flag() {
        name.forbidden("may not be specified when hostNetwork is true");
    }
    if name.text().len() > 64 {
        name.too_long(64);
    }
    name.faults(names::dns1123_subdomain(name.text()));
}

/// Files with variables live in volumes that are made for the pod.
fn file_key_refs(spec: &Field<'_, '_>) {
    let volumes = spec.at("volumes");
    each_container(spec, |container| {
        for variable in container.at("env").items() {
            let reference = variable.at("valueFrom.fileKeyRef");
            if !reference.exists() {
                continue;
            }
            let name = reference.at("volumeName");
            match volumes.items().find(|volume| volume.at("name").text() == name.text()) {
                None => name.not_found(),
                Some(volume) if !volume.at("emptyDir").exists() => {
                    name.invalid("referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
}
