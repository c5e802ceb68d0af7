//! What is worth a word in a service, and what is printed of it.
use super::super::Field;
use super::is_headless;
use crate::names::ip;
use std::collections::BTreeSet;

pub fn warnings(service: &Field<'_, '_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let (spec, annotations) = (service.at("spec"), service.at("metadata.annotations"));
    let hints = annotations.key("service.kubernetes.io/topology-aware-hints");
    if hints.exists() {
        warnings.push(format!(
            "{}: deprecated; use \"service.kubernetes.io/topology-mode\" annotation instead",
            hints.path()
        ));
    }
    for address in spec.at("clusterIPs").items().filter(|address| address.text() != "None") {
        warnings.extend(ip::ip_warnings(address.path(), address.text()));
    }
    if is_headless(&spec) {
        if !spec.at("loadBalancerIP").is_empty() {
            warnings.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if !spec.at("externalIPs").is_empty() {
            warnings.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if spec.at("sessionAffinity").text() != "None" {
            warnings.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    let external = spec.at("externalIPs");
    for address in external.items() {
        warnings.extend(ip::ip_warnings(address.path(), address.text()));
    }
    let named = spec.at("type").text() == "ExternalName";
    if !external.is_empty() && !is_headless(&spec) && !named {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .to_owned(),
        );
    }
    let balancer = spec.at("loadBalancerIP");
    if !balancer.is_empty() {
        warnings.extend(ip::ip_warnings(balancer.path(), balancer.text()));
    }
    for range in spec.at("loadBalancerSourceRanges").items() {
        warnings.extend(ip::cidr_warnings(range.path(), range.text()));
    }
    if !external.is_empty() && named {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !spec.at("externalName").is_empty() && !named {
        warnings
            .push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.at("trafficDistribution").text() == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\""
                .to_owned(),
        );
    }
    warnings
}

pub fn external_ip(service: &Field<'_, '_>) -> String {
    let external: Vec<&str> = service.at("spec.externalIPs").texts().collect();
    match service.at("spec.type").text() {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let ingresses = balancer_addresses(&service.at("status.loadBalancer.ingress"));
            let all: Vec<&str> = ingresses.iter().map(String::as_str).chain(external).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => service.at("spec.externalName").text().to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The addresses or else names of a load balancer, sorted.
pub fn balancer_addresses(ingresses: &Field<'_, '_>) -> BTreeSet<String> {
    let address = |ingress: Field<'_, '_>| match ingress.at("ip").text() {
        "" => ingress.at("hostname").text().to_owned(),
        ip => ip.to_owned(),
    };
    ingresses.items().map(address).filter(|address| !address.is_empty()).collect()
}

pub fn ports_cell(ports: &Field<'_, '_>) -> String {
    let cell = |port: Field<'_, '_>| {
        let (number, node, protocol) =
            (port.at("port").int(), port.at("nodePort").int(), port.at("protocol").text());
        match node > 0 {
            true => format!("{number}:{node}/{protocol}"),
            false => format!("{number}/{protocol}"),
        }
    };
    let cells: Vec<String> = ports.items().map(cell).collect();
    if cells.is_empty() { "<none>".to_owned() } else { cells.join(",") }
}
