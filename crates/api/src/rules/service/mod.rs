//! Service.
//!
//! Addresses and node ports are allocated by the server, before this is asked.
mod addresses;
pub mod families;
mod shown;
mod strategy;
mod traffic;

pub use shown::balancer_addresses;
pub use strategy::keep_ports;

use super::table::{AGE, Column, NAME, labels, text, with};
use super::{Field, Kind, NameRule, Part, Strategy, endpoints, prepare};
use crate::field::{BadValue, Error};
use crate::names::{self, ip};
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;
use std::collections::BTreeSet;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

impl Kind for Service {
    const STRATEGY: Strategy = Strategy::USUAL.without_generation().creates_on_update();
    const NAME: NameRule = names::name_is_dns_label;
    const COLUMNS: &[Column] = &[
        NAME,
        text("Type", "spec.type"),
        with("Cluster-IP", |service, _| {
            service.at("spec.clusterIPs").texts().next().unwrap_or("<none>").into()
        }),
        with("External-IP", |service, _| shown::external_ip(service).into()),
        with("Port(s)", |service, _| shown::ports_cell(&service.at("spec.ports")).into()),
        AGE,
        with("Selector", |service, _| labels(&service.at("spec.selector"))).wide(),
    ];

    fn prepare_create(service: &mut Value) {
        prepare::create(service, &Self::STRATEGY);
        families::keep_addresses(&mut service["spec"], None);
    }

    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
        if part == Part::Main {
            strategy::forget_other_types(&mut new["spec"], &old["spec"]);
            families::keep_addresses(&mut new["spec"], Some(&old["spec"]));
            strategy::keep_ports(&mut new["spec"], &old["spec"]);
        }
    }

    fn validate(service: &Field<'_, '_>) {
        whole(service, None);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part != Part::Main {
            return status(new, old);
        }
        let (spec, before) = (new.at("spec"), old.at("spec"));
        addresses::kept(&spec, &before);
        let (class, was) = (spec.at("loadBalancerClass"), before.at("loadBalancerClass"));
        let balanced = |spec: &Field<'_, '_>| spec.at("type").text() == "LoadBalancer";
        if balanced(&spec) && balanced(&before) && class.value() != was.value() {
            class.invalid_as(class_shown(&class), "may not change once set");
        }
        traffic::balancer_class(&spec);
        if traffic::needs_health_check(&spec) && traffic::needs_health_check(&before) {
            let (port, held) = (spec.at("healthCheckNodePort"), before.at("healthCheckNodePort"));
            if port.int() != held.int() {
                port.forbidden("field is immutable");
            }
        }
        whole(new, Some(old));
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        shown::warnings(new)
    }
}

fn class_shown(class: &Field<'_, '_>) -> BadValue {
    if class.exists() { class.shown() } else { BadValue::null() }
}

fn is_headless(spec: &Field<'_, '_>) -> bool {
    spec.at("clusterIP").text() == "None"
}

fn whole(service: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
    let spec = service.at("spec");
    let (kind, headless) = (spec.at("type").text(), is_headless(&spec));
    topology(&service.at("metadata.annotations"));
    if spec.at("ports").is_empty() && !headless && kind != "ExternalName" {
        spec.at("ports").required("");
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let list = spec.at("clusterIPs");
            let path = list.path().index(0);
            list.on_path(path)
                .invalid_as("None", format!("may not be set to 'None' for {kind} services"));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let given = match field {
                    "ipFamilyPolicy" => spec.at(field).exists(),
                    _ => !spec.at(field).is_empty(),
                };
                if given {
                    spec.at(field).forbidden("may not be set for ExternalName services");
                }
            }
            let name = spec.at("externalName");
            let cname = name.text().strip_suffix('.').unwrap_or(name.text());
            if cname.is_empty() {
                name.required("");
            }
            if !cname.is_empty() {
                names::dns1123_subdomain(cname)
                    .into_iter()
                    .for_each(|fault| name.invalid_as(cname, fault));
            }
        }
        _ => {}
    }
    ports(&spec.at("ports"));
    spec.at("selector").label_map();
    affinity(&spec);
    let before: Vec<&str> =
        old.map(|old| old.at("spec.clusterIPs").texts().collect()).unwrap_or_default();
    addresses::related(&spec, &before);
    let known: Vec<&str> =
        old.map(|old| old.at("spec.externalIPs").texts().collect()).unwrap_or_default();
    for address in spec.at("externalIPs").items() {
        let faults = ip::ip_for_legacy_field(address.path(), address.text(), true, &known);
        match faults.is_empty() {
            true => endpoints::endpoint_address(&address),
            false => address.extend(faults),
        }
    }
    spec.at("type").require_one_of(TYPES);
    traffic::node_ports(&spec);
    ports_once(&spec.at("ports"));
    traffic::balancer(service, &spec, old);
    traffic::policies(&spec);
}

fn topology(annotations: &Field<'_, '_>) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let (mode, hints) =
        (annotations.key("service.kubernetes.io/topology-mode"), annotations.key(HINTS));
    if mode.exists() && hints.exists() && mode.text() != hints.text() {
        mode.invalid(format!("must match annotations[{HINTS}] when both are specified"));
    }
}

fn ports(ports: &Field<'_, '_>) {
    let mut named = BTreeSet::new();
    for port in ports.items() {
        let name = port.at("name");
        if ports.len() > 1 && name.is_empty() {
            name.required("");
        } else if !name.is_empty() {
            name.faults(names::dns1123_label(name.text()));
            if !named.insert(name.text()) {
                name.duplicate();
            }
        }
        port.at("port").port();
        port.at("protocol").require_one_of(PROTOCOLS);
        port.at("targetPort").port_or_name();
        let protocol = port.at("appProtocol");
        if protocol.exists() {
            protocol.faults(names::qualified_name(protocol.text()));
        }
    }
}

/// A port is what its protocol and number are.
fn ports_once(ports: &Field<'_, '_>) {
    let mut taken = BTreeSet::new();
    for port in ports.items() {
        if !taken.insert((port.at("protocol").text(), port.at("port").int())) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                port.at("protocol").value(),
                port.at("port").int()
            );
            port.push(Error::duplicate(port.path(), BadValue::verbatim(shown)));
        }
    }
}

fn affinity(spec: &Field<'_, '_>) {
    let (affinity, config) = (spec.at("sessionAffinity"), spec.at("sessionAffinityConfig"));
    affinity.require_one_of(&["ClientIP", "None"]);
    match affinity.text() {
        "ClientIP" => {
            let timeout = config.at("clientIP.timeoutSeconds");
            if !timeout.exists() {
                timeout.required("when session affinity type is ClientIP");
            } else if !(1..=86_400).contains(&timeout.int()) {
                timeout.invalid("must be greater than 0 and less than 86400");
            }
        }
        "None" if config.exists() => {
            config.forbidden("must not be set when session affinity is None")
        }
        _ => {}
    }
}

fn status(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let ingresses = new.at("status.loadBalancer.ingress");
    let before = old.at("status.loadBalancer.ingress");
    if !ingresses.is_empty()
        && new.at("spec.type").text() != "LoadBalancer"
        && ingresses.value() != before.value()
    {
        return ingresses.forbidden("may only be used when `spec.type` is 'LoadBalancer'");
    }
    let known: Vec<&str> = before.list().iter().filter_map(|entry| entry["ip"].as_str()).collect();
    for ingress in ingresses.items() {
        let (address, mode, name) =
            (ingress.at("ip"), ingress.at("ipMode"), ingress.at("hostname"));
        if !address.is_empty() {
            address.extend(ip::ip_for_legacy_field(address.path(), address.text(), true, &known));
        }
        if !address.is_empty() && !mode.exists() {
            mode.required("must be specified when `ip` is set");
        } else if mode.exists() && address.is_empty() {
            mode.forbidden("may not be specified when `ip` is not set");
        }
        mode.one_of_if_given(&["Proxy", "VIP"]);
        if !name.is_empty() {
            name.faults(names::dns1123_subdomain(name.text()));
            if ip::parse_ip_sloppy(name.text()).is_some() {
                name.invalid("must be a DNS name, not an IP address");
            }
        }
    }
}
