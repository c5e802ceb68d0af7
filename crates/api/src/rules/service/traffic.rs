//! Where a service's traffic comes from and goes.
use super::super::Field;
use crate::field::Path;
use crate::names::{self, ip};
use std::collections::BTreeSet;

const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

pub fn needs_health_check(spec: &Field<'_, '_>) -> bool {
    spec.at("type").text() == "LoadBalancer" && spec.at("externalTrafficPolicy").text() == "Local"
}

fn is_external(spec: &Field<'_, '_>) -> bool {
    match spec.at("type").text() {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !spec.at("externalIPs").is_empty(),
        _ => false,
    }
}

pub fn node_ports(spec: &Field<'_, '_>) {
    let mut taken = BTreeSet::new();
    for port in spec.at("ports").items() {
        let node = port.at("nodePort");
        if node.int() == 0 {
            continue;
        }
        if spec.at("type").text() == "ClusterIP" {
            node.forbidden("may not be used when `type` is 'ClusterIP'");
        }
        if !taken.insert((port.at("protocol").text(), node.int())) {
            node.duplicate();
        }
    }
}

pub fn balancer(service: &Field<'_, '_>, spec: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
    let balanced = spec.at("type").text() == "LoadBalancer";
    let ranges = spec.at("loadBalancerSourceRanges");
    let annotations = service.at("metadata.annotations");
    let annotation = annotations.key(SOURCE_RANGES);
    let known: Vec<String> = old
        .map(|old| {
            old.at("spec.loadBalancerSourceRanges")
                .texts()
                .map(|text| text.trim().to_owned())
                .collect()
        })
        .unwrap_or_default();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    if !ranges.is_empty() {
        let place = ranges.on_path(spec.path().child("LoadBalancerSourceRanges"));
        if !balanced {
            place.forbidden(ONLY_BALANCED);
        }
        for range in place.items() {
            range.extend(ip::cidr_for_legacy_field(
                range.path(),
                range.text().trim(),
                true,
                &known,
            ));
        }
    } else if annotation.exists() {
        if !balanced {
            annotation.forbidden(ONLY_BALANCED);
        }
        for range in annotation.text().split(',').map(str::trim).filter(|range| !range.is_empty()) {
            annotation.extend(ip::cidr_for_legacy_field(annotation.path(), range, true, &[]));
        }
    }
    let allocate = spec.at("allocateLoadBalancerNodePorts");
    if allocate.exists() && !balanced {
        allocate.forbidden(ONLY_BALANCED);
    }
    if balanced && !allocate.exists() {
        allocate.on_path(Path::new("allocateLoadBalancerNodePorts")).required("");
    }
    balancer_class(spec);
}

pub fn balancer_class(spec: &Field<'_, '_>) {
    let class = spec.at("loadBalancerClass");
    if class.exists() {
        if spec.at("type").text() != "LoadBalancer" {
            class.forbidden(ONLY_BALANCED);
        } else {
            class.faults(names::qualified_name(class.text()));
        }
    }
}

pub fn policies(spec: &Field<'_, '_>) {
    let (external, internal) = (spec.at("externalTrafficPolicy"), spec.at("internalTrafficPolicy"));
    if is_external(spec) {
        external.require_one_of(&["Cluster", "Local"]);
    } else if !external.is_empty() {
        external.invalid("may only be set for externally-accessible services");
    }
    let port = spec.at("healthCheckNodePort");
    if port.int() != 0 {
        match needs_health_check(spec) {
            true => {
                port.port();
            }
            false => port.invalid(
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
            ),
        }
    }
    if !internal.exists()
        && matches!(spec.at("type").text(), "NodePort" | "LoadBalancer" | "ClusterIP")
    {
        internal.required("");
    }
    internal.one_of_if_given(&["Cluster", "Local"]);
    spec.at("trafficDistribution").one_of_if_given(&[
        "PreferClose",
        "PreferSameZone",
        "PreferSameNode",
    ]);
}
