//! Services and what is behind them, ingresses, network policies, addresses.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Seen;
use super::around::{Slot, Want};
use super::common::{
    annotations, format_labels, head, int, items, labels, labels_and_annotations, long_conditions,
    moment, name, namespace, optional, or, selector_text, shown, text, texts,
};
use super::writer::{Writer, put};

const SERVICE_NAME: &str = "kubernetes.io/service-name";

pub fn wants_of_service(service: &Value) -> Vec<Want> {
    vec![slices_of(namespace(service), name(service))]
}

fn slices_of(namespace: &str, service: &str) -> Want {
    let want = Want::all(Slot::EndpointSlices, "discovery.k8s.io/v1", "endpointslices", namespace);
    want.labels(format!("{SERVICE_NAME}={service}"))
}

pub fn service(w: &mut Writer, service: &Value, seen: &Seen<'_>) {
    let spec = &service["spec"];
    head(w, service, true);
    labels_and_annotations(w, service);
    put!(w, 0, "Selector:\t{}\n", format_labels(&spec["selector"]));
    put!(w, 0, "Type:\t{}\n", text(&spec["type"]));
    optional(w, 0, "IP Family Policy", &spec["ipFamilyPolicy"]);
    put!(w, 0, "IP Families:\t{}\n", or(&texts(&spec["ipFamilies"]).join(","), "<none>"));
    put!(w, 0, "IP:\t{}\n", text(&spec["clusterIP"]));
    put!(w, 0, "IPs:\t{}\n", or(&texts(&spec["clusterIPs"]).join(","), "<none>"));
    joined(w, "External IPs", &spec["externalIPs"]);
    optional(w, 0, "Desired LoadBalancer IP", &spec["loadBalancerIP"]);
    optional(w, 0, "External Name", &spec["externalName"]);
    let balancers = items(&service["status"]["loadBalancer"]["ingress"]);
    if !balancers.is_empty() {
        let shown: Vec<String> = balancers.iter().map(balancer).collect();
        put!(w, 0, "LoadBalancer Ingress:\t{}\n", shown.join(", "));
    }
    let slices = seen.around.list(Slot::EndpointSlices).unwrap_or_default();
    for port in items(&spec["ports"]) {
        service_port(w, port, &slices);
    }
    put!(w, 0, "Session Affinity:\t{}\n", text(&spec["sessionAffinity"]));
    optional(w, 0, "External Traffic Policy", &spec["externalTrafficPolicy"]);
    optional(w, 0, "Internal Traffic Policy", &spec["internalTrafficPolicy"]);
    if int(&spec["healthCheckNodePort"]) != 0 {
        put!(w, 0, "HealthCheck NodePort:\t{}\n", int(&spec["healthCheckNodePort"]));
    }
    joined(w, "LoadBalancer Source Ranges", &spec["loadBalancerSourceRanges"]);
    optional(w, 0, "Traffic Distribution", &spec["trafficDistribution"]);
}

fn joined(w: &mut Writer, title: &str, value: &Value) {
    let values = texts(value);
    if !values.is_empty() {
        put!(w, 0, "{title}:\t{}\n", values.join(","));
    }
}

fn balancer(ingress: &Value) -> String {
    match (text(&ingress["ip"]), text(&ingress["ipMode"])) {
        ("", _) => text(&ingress["hostname"]).to_owned(),
        (ip, "") => ip.to_owned(),
        (ip, mode) => format!("{ip} ({mode})"),
    }
}

fn service_port(w: &mut Writer, port: &Value, slices: &[&Value]) {
    let (name, protocol) = (or(text(&port["name"]), "<unset>"), text(&port["protocol"]));
    put!(w, 0, "Port:\t{name}\t{}/{protocol}\n", int(&port["port"]));
    let target = shown(&port["targetPort"]);
    put!(w, 0, "TargetPort:\t{}/{protocol}\n", or(&target, "0"));
    optional(w, 0, "AppProtocol", &port["appProtocol"]);
    if int(&port["nodePort"]) != 0 {
        put!(w, 0, "NodePort:\t{name}\t{}/{protocol}\n", int(&port["nodePort"]));
    }
    put!(w, 0, "Endpoints:\t{}\n", endpoints(slices, text(&port["name"])));
}

/// The first three endpoints of a port that are ready, and how many more there are.
fn endpoints(slices: &[&Value], port_name: &str) -> String {
    const MOST: usize = 3;
    if slices.is_empty() {
        return "<none>".to_owned();
    }
    let mut all: Vec<String> = Vec::new();
    // Whether the list was full when another endpoint came by, ready or not.
    let mut more = false;
    let mut count = 0;
    for slice in slices {
        let ports = items(&slice["ports"]);
        let ports: Vec<Option<&Value>> = match ports.is_empty() {
            // A headless service may have no ports.
            true => vec![None],
            false => {
                ports.iter().filter(|port| text(&port["name"]) == port_name).map(Some).collect()
            }
        };
        for port in ports {
            for endpoint in items(&slice["endpoints"]) {
                more |= all.len() == MOST;
                if endpoint["conditions"]["ready"] == Value::Bool(false) {
                    continue;
                }
                count += 1;
                if !more {
                    let address = text(&endpoint["addresses"][0]);
                    all.push(match port {
                        None => address.to_owned(),
                        Some(port) if address.contains(':') => {
                            format!("[{address}]:{}", int(&port["port"]))
                        }
                        Some(port) => format!("{address}:{}", int(&port["port"])),
                    });
                }
            }
        }
    }
    let shown = all.join(",");
    if more { format!("{shown} + {} more...", count - MOST) } else { shown }
}

/// The services that an ingress leads to.
fn backends(ingress: &Value) -> impl Iterator<Item = &Value> {
    let rules = items(&ingress["spec"]["rules"]).iter();
    let paths = rules.flat_map(|rule| items(&rule["http"]["paths"])).map(|path| &path["backend"]);
    std::iter::once(&ingress["spec"]["defaultBackend"]).chain(paths)
}

pub fn wants_of_ingress(ingress: &Value) -> Vec<Want> {
    let namespace = namespace(ingress);
    let services: BTreeSet<&str> = backends(ingress)
        .map(|backend| text(&backend["service"]["name"]))
        .filter(|name| !name.is_empty())
        .collect();
    let wants = services.into_iter().flat_map(|service| {
        [
            slices_of(namespace, service),
            Want::one(Slot::Services, "v1", "services", namespace, service),
        ]
    });
    wants.collect()
}

pub fn ingress(w: &mut Writer, ingress: &Value, seen: &Seen<'_>) {
    let spec = &ingress["spec"];
    put!(w, 0, "Name:\t{}\n", name(ingress));
    labels(w, "Labels", &ingress["metadata"]["labels"]);
    put!(w, 0, "Namespace:\t{}\n", namespace(ingress));
    let addresses: BTreeSet<&str> = items(&ingress["status"]["loadBalancer"]["ingress"])
        .iter()
        .map(|address| or(text(&address["ip"]), text(&address["hostname"])))
        .filter(|address| !address.is_empty())
        .collect();
    put!(w, 0, "Address:\t{}\n", addresses.into_iter().collect::<Vec<_>>().join(","));
    put!(w, 0, "Ingress Class:\t{}\n", spec["ingressClassName"].as_str().unwrap_or("<none>"));
    let default = match spec["defaultBackend"].is_object() {
        true => backend(&spec["defaultBackend"], seen),
        false => "<default>".to_owned(),
    };
    put!(w, 0, "Default backend:\t{default}\n");
    if !items(&spec["tls"]).is_empty() {
        w.write(0, "TLS:\n");
    }
    for tls in items(&spec["tls"]) {
        let hosts = texts(&tls["hosts"]).join(",");
        match text(&tls["secretName"]) {
            "" => put!(w, 1, "SNI routes {hosts}\n"),
            secret => put!(w, 1, "{secret} terminates {hosts}\n"),
        }
    }
    w.write(0, "Rules:\n  Host\tPath\tBackends\n");
    w.write(1, "----\t----\t--------\n");
    let mut rules = items(&spec["rules"]).iter().filter(|rule| rule["http"].is_object()).peekable();
    if rules.peek().is_none() {
        put!(w, 1, "*\t*\t{default}\n");
    }
    for rule in rules {
        put!(w, 1, "{}\t\n", or(text(&rule["host"]), "*"));
        for path in items(&rule["http"]["paths"]) {
            put!(w, 2, "\t{} \t{}\n", text(&path["path"]), backend(&path["backend"], seen));
        }
    }
    annotations(w, "Annotations", &ingress["metadata"]["annotations"]);
}

fn backend(backend: &Value, seen: &Seen<'_>) -> String {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    if service.is_object() {
        let (name, port) = (text(&service["name"]), &service["port"]);
        let port_shown = match int(&port["number"]) {
            0 => text(&port["name"]).to_owned(),
            number => number.to_string(),
        };
        let of_service = |want: &Want| want.labels == format!("{SERVICE_NAME}={name}");
        let fault = seen.around.fault_where(Slot::EndpointSlices, of_service);
        let fault = fault.or_else(|| {
            seen.around.fault_where(Slot::Services, |want| want.name.as_deref() == Some(name))
        });
        if let Some(fault) = fault {
            return format!("{name}:{port_shown} (<error: {}>)", fault.message);
        }
        let services = seen.around.list(Slot::Services).unwrap_or_default();
        let ports = services
            .iter()
            .find(|service| self::name(service) == name)
            .map(|service| &service["spec"]["ports"]);
        let is_port = |candidate: &&Value| match int(&port["number"]) {
            0 => !text(&port["name"]).is_empty() && candidate["name"] == port["name"],
            number => int(&candidate["port"]) == number,
        };
        let port_name = ports
            .and_then(|ports| items(ports).iter().rfind(is_port))
            .map_or("", |port| text(&port["name"]));
        let mut slices = seen.around.list(Slot::EndpointSlices).unwrap_or_default();
        slices.retain(|slice| text(&slice["metadata"]["labels"][SERVICE_NAME]) == name);
        return format!("{name}:{port_shown} ({})", endpoints(&slices, port_name));
    }
    if resource.is_object() {
        let group = resource["apiGroup"].as_str().unwrap_or("<none>");
        return format!(
            "APIGroup: {group}, Kind: {}, Name: {}",
            text(&resource["kind"]),
            text(&resource["name"])
        );
    }
    String::new()
}

pub fn ingress_class(w: &mut Writer, class: &Value, _: &Seen<'_>) {
    head(w, class, false);
    labels_and_annotations(w, class);
    put!(w, 0, "Controller:\t{}\n", text(&class["spec"]["controller"]));
    let parameters = &class["spec"]["parameters"];
    if parameters.is_object() {
        w.write(0, "Parameters:\n");
        optional(w, 1, "APIGroup", &parameters["apiGroup"]);
        put!(w, 1, "Kind:\t{}\n", text(&parameters["kind"]));
        put!(w, 1, "Name:\t{}\n", text(&parameters["name"]));
    }
}

pub fn service_cidr(w: &mut Writer, cidr: &Value, _: &Seen<'_>) {
    head(w, cidr, false);
    labels_and_annotations(w, cidr);
    put!(w, 0, "CIDRs:\t{}\n", texts(&cidr["spec"]["cidrs"]).join(", "));
    let conditions = items(&cidr["status"]["conditions"]);
    if !conditions.is_empty() {
        w.write(0, "Status:\n");
        long_conditions(w, conditions);
    }
}

pub fn ip_address(w: &mut Writer, address: &Value, _: &Seen<'_>) {
    head(w, address, false);
    labels_and_annotations(w, address);
    let parent = &address["spec"]["parentRef"];
    if parent.is_object() {
        w.write(0, "Parent Reference:\n");
        for (title, field) in [
            ("Group", "group"),
            ("Resource", "resource"),
            ("Namespace", "namespace"),
            ("Name", "name"),
        ] {
            put!(w, 1, "{title}:\t{}\n", text(&parent[field]));
        }
    }
}

pub fn endpoints_object(w: &mut Writer, object: &Value, _: &Seen<'_>) {
    head(w, object, true);
    labels_and_annotations(w, object);
    w.write(0, "Subsets:\n");
    for subset in items(&object["subsets"]) {
        for (title, field) in
            [("Addresses", "addresses"), ("NotReadyAddresses", "notReadyAddresses")]
        {
            let addresses: Vec<&str> =
                items(&subset[field]).iter().map(|address| text(&address["ip"])).collect();
            put!(w, 1, "{title}:\t{}\n", or(&addresses.join(","), "<none>"));
        }
        let ports = items(&subset["ports"]);
        if !ports.is_empty() {
            w.write(1, "Ports:\n");
            w.write(2, "Name\tPort\tProtocol\n");
            w.write(2, "----\t----\t--------\n");
        }
        for port in ports {
            let name = or(text(&port["name"]), "<unset>");
            put!(w, 2, "{name}\t{}\t{}\n", int(&port["port"]), text(&port["protocol"]));
        }
        w.write(0, "\n");
    }
}

pub fn endpoint_slice(w: &mut Writer, slice: &Value, _: &Seen<'_>) {
    head(w, slice, true);
    labels_and_annotations(w, slice);
    put!(w, 0, "AddressType:\t{}\n", text(&slice["addressType"]));
    let ports = items(&slice["ports"]);
    match ports.is_empty() {
        true => w.write(0, "Ports: <unset>\n"),
        false => {
            w.write(0, "Ports:\n");
            w.write(1, "Name\tPort\tProtocol\n");
            w.write(1, "----\t----\t--------\n");
        }
    }
    for port in ports {
        let number = shown(&port["port"]);
        let (name, number) = (or(text(&port["name"]), "<unset>"), or(&number, "<unset>"));
        put!(w, 1, "{name}\t{number}\t{}\n", text(&port["protocol"]));
    }
    let endpoints = items(&slice["endpoints"]);
    w.write(0, if endpoints.is_empty() { "Endpoints: <none>\n" } else { "Endpoints:\n" });
    for endpoint in endpoints {
        put!(w, 1, "- Addresses:\t{}\n", or(&texts(&endpoint["addresses"]).join(", "), "<none>"));
        w.write(2, "Conditions:\n");
        put!(w, 3, "Ready:\t{}\n", or(&shown(&endpoint["conditions"]["ready"]), "<unset>"));
        put!(w, 2, "Hostname:\t{}\n", endpoint["hostname"].as_str().unwrap_or("<unset>"));
        let target = &endpoint["targetRef"];
        if target.is_object() {
            put!(w, 2, "TargetRef:\t{}/{}\n", text(&target["kind"]), text(&target["name"]));
        }
        put!(w, 2, "NodeName:\t{}\n", endpoint["nodeName"].as_str().unwrap_or("<unset>"));
        put!(w, 2, "Zone:\t{}\n", endpoint["zone"].as_str().unwrap_or("<unset>"));
    }
}

pub fn network_policy(w: &mut Writer, policy: &Value, _: &Seen<'_>) {
    let spec = &policy["spec"];
    head(w, policy, true);
    let created = match moment(&policy["metadata"]["creationTimestamp"]) {
        Some(moment) => moment.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string(),
        None => "0001-01-01 00:00:00 +0000 UTC".to_owned(),
    };
    put!(w, 0, "Created on:\t{created}\n");
    labels_and_annotations(w, policy);
    w.write(0, "Spec:\n");
    w.write(1, "PodSelector: ");
    let selected = match selector_text(&spec["podSelector"]) {
        none if none == "<none>" => {
            "<none> (Allowing the specific traffic to all pods in this namespace)".to_owned()
        }
        text => text,
    };
    put!(w, 2, "{selected}\n");
    let types = texts(&spec["policyTypes"]);
    for (kind, low, field, peers, to) in [
        ("Ingress", "ingress", "ingress", "from", "From"),
        ("Egress", "egress", "egress", "to", "To"),
    ] {
        if types.contains(&kind) {
            put!(w, 1, "Allowing {low} traffic:\n");
            policy_rules(w, items(&spec[field]), low, peers, to);
        } else {
            put!(w, 1, "Not affecting {low} traffic\n");
        }
    }
    put!(w, 1, "Policy Types: {}\n", or(&types.join(", "), "<none>"));
}

fn policy_rules(w: &mut Writer, rules: &[Value], way: &str, peers: &str, to: &str) {
    if rules.is_empty() {
        put!(w, 2, "<none> (Selected pods are isolated for {way} connectivity)\n");
    }
    for (i, rule) in rules.iter().enumerate() {
        if items(&rule["ports"]).is_empty() {
            w.write(2, "To Port: <any> (traffic allowed to all ports)\n");
        }
        for port in items(&rule["ports"]) {
            let number = shown(&port["port"]);
            let (number, protocol) = (or(&number, "<nil>"), or(text(&port["protocol"]), "TCP"));
            match port["endPort"].as_i64() {
                None => put!(w, 2, "To Port: {number}/{protocol}\n"),
                Some(end) => put!(w, 2, "To Port Range: {number}-{end}/{protocol}\n"),
            }
        }
        if items(&rule[peers]).is_empty() {
            let end = if peers == "from" { "source" } else { "destination" };
            put!(w, 2, "{to}: <any> (traffic not restricted by {end})\n");
        }
        for peer in items(&rule[peers]) {
            put!(w, 2, "{to}:\n");
            for (title, field) in
                [("NamespaceSelector", "namespaceSelector"), ("PodSelector", "podSelector")]
            {
                if peer[field].is_object() {
                    put!(w, 3, "{title}: {}\n", selector_text(&peer[field]));
                }
            }
            let block = &peer["ipBlock"];
            if block.is_object()
                && !peer["podSelector"].is_object()
                && !peer["namespaceSelector"].is_object()
            {
                w.write(3, "IPBlock:\n");
                put!(w, 4, "CIDR: {}\n", text(&block["cidr"]));
                put!(w, 4, "Except: {}\n", texts(&block["except"]).join(", "));
            }
        }
        if i + 1 < rules.len() {
            w.write(2, "----------\n");
        }
    }
}
