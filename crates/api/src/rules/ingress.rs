//! Ingress and IngressClass.
use super::service::balancer_addresses;
use super::table::{AGE, Column, NAME, first_of, text, text_or, with};
use super::{Anew, Field, Kind, Part, Strategy};
use crate::field::{BadValue, Path};
use crate::names::{self, ip};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";

impl Kind for Ingress {
    const NAMED_ANEW: Anew = Anew::Last;
    const COLUMNS: &[Column] = &[
        NAME,
        text_or("Class", "spec.ingressClassName", "<none>"),
        with("Hosts", |ingress, _| {
            let rules = ingress.at("spec.rules");
            let hosts: Vec<String> = rules
                .items()
                .map(|rule| rule.at("host").text().to_owned())
                .filter(|host| !host.is_empty())
                .collect();
            if hosts.is_empty() { "*".into() } else { first_of(&hosts, 3, ",").into() }
        }),
        with("Address", |ingress, _| {
            let addresses = balancer_addresses(&ingress.at("status.loadBalancer.ingress"));
            addresses.into_iter().collect::<Vec<_>>().join(",").into()
        }),
        with("Ports", |ingress, _| {
            if ingress.at("spec.tls").is_empty() { "80".into() } else { "80, 443".into() }
        }),
        AGE,
    ];

    fn validate(ingress: &Field<'_, '_>) {
        whole(&ingress.at("spec"));
        let annotations = ingress.at("metadata.annotations");
        let (old, class) = (annotations.key(CLASS_ANNOTATION), ingress.at("spec.ingressClassName"));
        if old.exists() && class.exists() && old.text() != class.text() {
            let path = Path::new("annotations");
            old.on_path(path.child(CLASS_ANNOTATION))
                .invalid("must match `ingressClassName` when both are specified");
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            return whole(&new.at("spec"));
        }
        let before = old.at("status.loadBalancer.ingress");
        let known: Vec<&str> =
            before.list().iter().filter_map(|entry| entry["ip"].as_str()).collect();
        for point in new.at("status.loadBalancer.ingress").items() {
            let (address, name) = (point.at("ip"), point.at("hostname"));
            if !address.is_empty() {
                address.extend(ip::ip_for_legacy_field(
                    address.path(),
                    address.text(),
                    true,
                    &known,
                ));
            }
            if !name.is_empty() {
                name.faults(names::dns1123_subdomain(name.text()));
                not_an_address(&name);
            }
        }
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        let annotation = new.at("metadata.annotations");
        let old =
            annotation.key(CLASS_ANNOTATION).exists() && !new.at("spec.ingressClassName").exists();
        let text = "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
        old.then(|| text.to_owned()).into_iter().collect()
    }
}

fn not_an_address(name: &Field<'_, '_>) {
    if ip::parse_ip_sloppy(name.text()).is_some() {
        name.invalid("must be a DNS name, not an IP address");
    }
}

fn host_name(host: &Field<'_, '_>) {
    match host.text().contains('*') {
        true => host.faults(names::wildcard_dns1123_subdomain(host.text())),
        false => host.faults(names::dns1123_subdomain(host.text())),
    };
}

fn whole(spec: &Field<'_, '_>) {
    let rules = spec.at("rules");
    if rules.is_empty() && !spec.at("defaultBackend").exists() {
        let shown =
            if rules.exists() { BadValue::json(rules.value()) } else { BadValue::json(&[0; 0]) };
        let shown = if rules.exists() { shown } else { BadValue::null() };
        spec.invalid_as(shown, "either `defaultBackend` or `rules` must be specified");
    }
    if spec.at("defaultBackend").exists() {
        backend(&spec.at("defaultBackend"));
    }
    for rule in rules.items() {
        let host = rule.at("host");
        if !host.is_empty() {
            not_an_address(&host);
            host_name(&host);
        }
        let http = rule.at("http");
        if http.exists() {
            http.at("paths").require();
            http.at("paths").items().for_each(|path| http_path(&path));
        }
    }
    for tls in spec.at("tls").items() {
        tls.at("hosts").items().for_each(|host| host_name(&host));
        let secret = tls.at("secretName");
        if !secret.is_empty() {
            secret.faults(names::name_is_dns_subdomain(secret.text(), false));
        }
    }
    let class = spec.at("ingressClassName");
    if class.exists() {
        class.faults(names::name_is_dns_subdomain(class.text(), false));
    }
}

fn http_path(path: &Field<'_, '_>) {
    let (kind, text) = (path.at("pathType"), path.at("path"));
    if !kind.exists() {
        return kind.required("pathType must be specified");
    }
    let absolute = text.text().starts_with('/');
    match kind.text() {
        "Exact" | "Prefix" => {
            if !absolute {
                text.invalid("must be an absolute path");
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.text().contains(sequence) {
                    text.invalid(format!("must not contain '{sequence}'"));
                }
            }
            for suffix in ["/..", "/."] {
                if text.text().ends_with(suffix) {
                    text.invalid(format!("cannot end with '{suffix}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !absolute {
                text.invalid("must be an absolute path");
            }
        }
        _ => kind.not_supported(&["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&path.at("backend"));
}

fn backend(backend: &Field<'_, '_>) {
    let (resource, service) = (backend.at("resource"), backend.at("service"));
    match (resource.exists(), service.exists()) {
        (true, true) => backend.invalid_as("", "cannot set both resource and service backends"),
        (true, false) => typed_reference(&resource, false),
        (false, true) => {
            let name = service.at("name");
            if name.require() {
                name.faults(names::name_is_dns_label(name.text(), false));
            }
            let (word, number) = (service.at("port.name"), service.at("port.number"));
            match (!word.is_empty(), number.int() != 0) {
                (true, true) => backend.invalid_as("", "cannot set both port name & port number"),
                (true, false) => {
                    word.faults(names::port_name(word.text()));
                }
                (false, true) => {
                    number.port();
                }
                (false, false) => backend.required("port name or number is required"),
            }
        }
        (false, false) => backend.invalid_as("", "resource or service backend is required"),
    }
}

fn typed_reference(reference: &Field<'_, '_>, declared: bool) {
    let group = reference.at("apiGroup");
    if group.exists() {
        group.faults(names::dns1123_subdomain(group.text()));
    }
    for field in ["kind", "name"] {
        match declared {
            true => reference.at(field).declared_named(names::path_segment_name),
            false => reference.at(field).named(names::path_segment_name),
        }
    }
}

impl Kind for IngressClass {
    const NAMED_ANEW: Anew = Anew::ByKind;
    const STRATEGY: Strategy = Strategy::USUAL.without_status();
    const COLUMNS: &[Column] = &[
        with("Name", |class, _| {
            let name = class.at("metadata.name").text();
            match class.at("metadata.annotations").key(DEFAULT_CLASS).text() {
                "true" => format!("{name} (default)").into(),
                _ => name.into(),
            }
        })
        .named(),
        text("Controller", "spec.controller"),
        with("Parameters", |class, _| {
            let parameters = class.at("spec.parameters");
            if !parameters.exists() {
                return "<none>".into();
            }
            let (kind, name, group) =
                (parameters.at("kind"), parameters.at("name"), parameters.at("apiGroup"));
            let dot = if group.exists() { "." } else { "" };
            format!("{}{dot}{}/{}", kind.text(), group.text(), name.text()).into()
        }),
        AGE,
    ];

    fn validate(class: &Field<'_, '_>) {
        let controller = class.at("spec.controller");
        if controller.text().len() > 250 {
            controller.too_long(250);
        }
        controller.extend(names::domain_prefixed_path(controller.path(), controller.text()));
        let parameters = class.at("spec.parameters");
        if !parameters.exists() {
            return;
        }
        typed_reference(&parameters, true);
        let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
        if !scope.exists() {
            return scope.required("");
        }
        match scope.text() {
            "Namespace" if !namespace.exists() => {
                namespace.required("`parameters.scope` is set to 'Namespace'");
            }
            "Namespace" => {
                namespace.faults(names::name_is_dns_label(namespace.text(), false));
            }
            "Cluster" if namespace.exists() => {
                namespace.forbidden("`parameters.scope` is set to 'Cluster'");
            }
            "Cluster" => {}
            _ => scope.not_supported(&["Cluster", "Namespace"]),
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        new.at("spec.controller").immutable(&old.at("spec.controller"));
        super::named_anew::<Self>(new);
        Self::validate(new);
    }
}
