//! Service.
//!
//! Addresses and node ports are allocated by the server, before this is asked.
use super::table::{AGE, Column, NAME, labels, text, with};
use super::{Field, Kind, NameRule, Part, Strategy, endpoints, prepare};
use crate::field::{BadValue, Error, Path};
use crate::names::{self, ip};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

impl Kind for Service {
    const STRATEGY: Strategy = Strategy::USUAL.without_generation().creates_on_update();
    const NAME: NameRule = names::name_is_dns_label;
    const COLUMNS: &[Column] = &[
        NAME,
        text("Type", "spec.type"),
        with("Cluster-IP", |service, _| {
            service.at("spec.clusterIPs").texts().next().unwrap_or("<none>").into()
        }),
        with("External-IP", |service, _| external_ip(service).into()),
        with("Port(s)", |service, _| ports_cell(&service.at("spec.ports")).into()),
        AGE,
        with("Selector", |service, _| labels(&service.at("spec.selector"))).wide(),
    ];

    fn prepare_create(service: &mut Value) {
        prepare::create(service, &Self::STRATEGY);
        both_addresses(&mut service["spec"]);
    }

    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
        if part == Part::Main {
            forget_other_types(&mut new["spec"], &old["spec"]);
            keep_allocated(&mut new["spec"], &old["spec"]);
            both_addresses(&mut new["spec"]);
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
        kept_addresses(&spec, &before);
        let (class, was) = (spec.at("loadBalancerClass"), before.at("loadBalancerClass"));
        let balanced = |spec: &Field<'_, '_>| spec.at("type").text() == "LoadBalancer";
        if balanced(&spec) && balanced(&before) && class.value() != was.value() {
            class.invalid_as(class_shown(&class), "may not change once set");
        }
        if needs_health_check(&spec) && needs_health_check(&before) {
            let (port, held) = (spec.at("healthCheckNodePort"), before.at("healthCheckNodePort"));
            if port.int() != held.int() {
                port.forbidden("field is immutable");
            }
        }
        whole(new, Some(old));
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        warnings(new)
    }
}

fn class_shown(class: &Field<'_, '_>) -> BadValue {
    if class.exists() { class.shown() } else { BadValue::null() }
}

fn is_headless(spec: &Field<'_, '_>) -> bool {
    spec.at("clusterIP").text() == "None"
}

fn needs_health_check(spec: &Field<'_, '_>) -> bool {
    spec.at("type").text() == "LoadBalancer" && spec.at("externalTrafficPolicy").text() == "Local"
}

fn is_external(spec: &Field<'_, '_>) -> bool {
    match spec.at("type").text() {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !spec.at("externalIPs").is_empty(),
        _ => false,
    }
}

/// The one address and the list of addresses agree.
fn both_addresses(spec: &mut Value) {
    let (one, list) = (spec.get("clusterIP").cloned(), spec.get("clusterIPs").cloned());
    if let (Some(one), None) = (&one, &list)
        && *one != ""
    {
        spec["clusterIPs"] = json!([one]);
    }
}

/// What the server once allocated stays, unless the request says something new about it.
fn keep_allocated(new: &mut Value, old: &Value) {
    let named = |spec: &Value| spec["type"] == "ExternalName";
    if !named(new) && !named(old) {
        let empty =
            |value: Option<&Value>| value.is_none_or(|value| *value == "" || *value == json!([]));
        if empty(new.get("clusterIP")) && empty(new.get("clusterIPs")) {
            prepare::put(new, "clusterIP", old.get("clusterIP"));
        }
        if new.get("clusterIP") == old.get("clusterIP") {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if empty(new.get(field)) {
                    prepare::put(new, field, old.get(field));
                }
            }
        }
    }
    let has_node_ports =
        |spec: &Value| matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer"));
    if has_node_ports(new) && has_node_ports(old) {
        let held = old["ports"].as_array().cloned().unwrap_or_default();
        for port in new.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let same =
                |old: &&Value| old["port"] == port["port"] && old["protocol"] == port["protocol"];
            let before = held.iter().find(same).and_then(|old| old.get("nodePort"));
            if port.get("nodePort").is_none() {
                prepare::put(port, "nodePort", before);
            }
        }
    }
    let healthy =
        |spec: &Value| spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local";
    if healthy(new) && healthy(old) && new.get("healthCheckNodePort").is_none() {
        prepare::put(new, "healthCheckNodePort", old.get("healthCheckNodePort"));
    }
}

/// What a service had for its former type goes, unless the request says something new about it.
fn forget_other_types(new: &mut Value, old: &Value) {
    let kind = |spec: &Value| spec["type"].as_str().unwrap_or_default().to_owned();
    let (now, then) = (kind(new), kind(old));
    let same = |new: &Value, field: &str| new.get(field) == old.get(field);
    if then != "ExternalName" && now == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if same(new, field) {
                prepare::put(new, field, None);
            }
        }
    }
    let has_node_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    if has_node_ports(&then) && !has_node_ports(&now) && new.get("ports") == old.get("ports") {
        for port in new.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            prepare::put(port, "nodePort", None);
        }
    }
    let healthy =
        |spec: &Value| kind(spec) == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local";
    if healthy(old) && !healthy(new) && same(new, "healthCheckNodePort") {
        prepare::put(new, "healthCheckNodePort", None);
    }
    if then == "LoadBalancer" && now != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(new, field) {
                prepare::put(new, field, None);
            }
        }
    }
    let external = |kind: &str, spec: &Value| {
        has_node_ports(kind)
            || kind == "ClusterIP"
                && spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty())
    };
    if external(&then, old) && !external(&now, new) && same(new, "externalTrafficPolicy") {
        prepare::put(new, "externalTrafficPolicy", None);
    }
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
                if !spec.at(field).is_empty() {
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
    addresses(&spec);
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
    node_ports(&spec);
    balancer(service, &spec, old);
    traffic(&spec);
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
    let (mut named, mut taken) = (BTreeSet::new(), BTreeSet::new());
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

/// Addresses in the cluster and their families. What is missing the server allocates.
fn addresses(spec: &Field<'_, '_>) {
    if spec.at("type").text() == "ExternalName" {
        return;
    }
    let (one, list, families) =
        (spec.at("clusterIP"), spec.at("clusterIPs"), spec.at("ipFamilies"));
    if !one.is_empty() {
        if list.is_empty() {
            list.required("");
        } else if list.texts().next() != Some(one.text()) {
            list.invalid("first value must match `clusterIP`");
        }
    } else if !list.is_empty() {
        list.invalid("must be empty when `clusterIP` is not specified");
    }
    for family in families.items() {
        family.one_of(FAMILIES);
    }
    families.unique();
    spec.at("ipFamilyPolicy").one_of_if_given(&[
        "PreferDualStack",
        "RequireDualStack",
        "SingleStack",
    ]);
    if spec.at("ipFamilyPolicy").text() == "SingleStack" {
        let policy = spec.at("ipFamilyPolicy");
        if families.len() == 2 {
            policy.invalid("must be RequireDualStack or PreferDualStack when multiple ipFamilies are specified");
        }
        if list.len() == 2 {
            policy.invalid("must be RequireDualStack or PreferDualStack when multiple clusterIPs are specified");
        }
    }
    let given: Vec<&str> = list.texts().collect();
    if given.len() > 1 && given.contains(&"None") {
        let place = list.items().find(|item| item.text() == "None");
        if let Some(place) = place {
            place.invalid("may not be set to 'None' with other IPs");
        }
    }
    let family_of =
        |text: &str| ip::parse_ip_sloppy(text).map(|a| if a.is_ipv4() { "IPv4" } else { "IPv6" });
    for (i, address) in list.items().enumerate().filter(|(_, address)| address.text() != "None") {
        address.extend(ip::ip_for_legacy_field(address.path(), address.text(), true, &[]));
        if let (Some(family), Some(wanted)) = (family_of(address.text()), families.texts().nth(i))
            && family != wanted
        {
            address
                .invalid(format!("expected an {wanted} value as indicated by `ipFamilies[{i}]`"));
        }
    }
    if list.len() > 2 {
        list.invalid("may only hold up to 2 values");
    }
    if families.len() > 2 {
        families.invalid("may only hold up to 2 values");
    }
}

/// The addresses of a service stay while its type does.
fn kept_addresses(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let named = |spec: &Field<'_, '_>| spec.at("type").text() == "ExternalName";
    if named(new) || named(old) {
        return;
    }
    let (now, then) = (new.at("clusterIPs"), old.at("clusterIPs"));
    let (a, b): (Vec<&str>, Vec<&str>) = (now.texts().collect(), then.texts().collect());
    if !b.is_empty() && a.first() != b.first() {
        let path = now.path().index(0);
        let shown = BadValue::json(now.value());
        now.on_path(path).invalid_as(shown, "may not change once set");
    }
    let (now, then) = (new.at("ipFamilies"), old.at("ipFamilies"));
    if !then.is_empty() && now.texts().next() != then.texts().next() {
        let path = now.path().index(0);
        let shown = BadValue::json(now.value());
        now.on_path(path).invalid_as(shown, "may not change once set");
    }
}

fn node_ports(spec: &Field<'_, '_>) {
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

fn balancer(service: &Field<'_, '_>, spec: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
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
    let class = spec.at("loadBalancerClass");
    if class.exists() {
        if !balanced {
            class.forbidden(ONLY_BALANCED);
        } else {
            class.faults(names::qualified_name(class.text()));
        }
    }
}

fn traffic(spec: &Field<'_, '_>) {
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

fn warnings(service: &Field<'_, '_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let (spec, annotations) = (service.at("spec"), service.at("metadata.annotations"));
    let hints = annotations.key("service.kubernetes.io/topology-aware-hints");
    if hints.exists() {
        warnings.push(format!(
            "{}: deprecated; use \"service.kubernetes.io/topology-mode\" annotation instead",
            hints.path()
        ));
    }
    if !spec.at("externalIPs").is_empty() {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .to_owned(),
        );
    }
    if !spec.at("externalName").is_empty() && spec.at("type").text() != "ExternalName" {
        warnings
            .push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
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
    for list in ["clusterIPs", "externalIPs"] {
        for address in spec.at(list).items().filter(|address| address.text() != "None") {
            warnings.extend(ip::ip_warnings(address.path(), address.text()));
        }
    }
    let balancer = spec.at("loadBalancerIP");
    if !balancer.is_empty() {
        warnings.extend(ip::ip_warnings(balancer.path(), balancer.text()));
    }
    for range in spec.at("loadBalancerSourceRanges").items() {
        warnings.extend(ip::cidr_warnings(range.path(), range.text()));
    }
    if spec.at("trafficDistribution").text() == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\""
                .to_owned(),
        );
    }
    warnings
}

fn external_ip(service: &Field<'_, '_>) -> String {
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

fn ports_cell(ports: &Field<'_, '_>) -> String {
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
