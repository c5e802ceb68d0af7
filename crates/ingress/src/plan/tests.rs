//! Objects as people write them, and the table that they come to.
mod gateway;

use super::*;
use crate::table::{Action, PathMatch, Port, Rule, To, Verified};
use api::object::{Keep, Object};
use expect_test::{Expect, expect};
use serde_json::Value;
use std::fmt::Write;

/// What a cluster with these objects serves and says. Names of the fields that every object has are left
/// out where they do not matter.
pub fn world(yaml: &str) -> World {
    let mut world = World::default();
    for document in api::codec::yaml::documents(yaml) {
        let tree = api::codec::yaml::decode_untyped(document.as_bytes()).expect("YAML").value;
        add(&mut world, tree);
    }
    world
}

fn add(world: &mut World, mut tree: Value) {
    let kind = tree["kind"].as_str().expect("a kind").to_owned();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if !matches!(kind.as_str(), "IngressClass" | "Node" | "Namespace" | "GatewayClass")
        && tree["metadata"]["namespace"].is_null()
    {
        tree["metadata"]["namespace"] = "default".into();
    }
    let name = text(&tree["metadata"]["name"]);
    let key = NamespacedName::new(&text(&tree["metadata"]["namespace"]), &name);
    if kind == "Secret" {
        world.secrets.insert(key, Arc::new(SecretFacts(secret(&text(&tree["type"])))));
        return;
    }
    let bytes = serde_json::to_vec(&tree).expect("JSON");
    let object = Arc::new(Object::received(bytes.into()).expect("an object"));
    fn kept<K: Keep>(object: &Arc<Object>) -> Arc<K> {
        K::keep(object).expect("the object is of its kind")
    }
    match kind.as_str() {
        "IngressClass" => drop(world.classes.insert(name, kept(&object))),
        "Ingress" => drop(world.ingresses.insert(key, kept(&object))),
        "Service" => drop(world.services.insert(key, kept(&object))),
        "Node" => drop(world.nodes.insert(name, kept(&object))),
        "Namespace" => drop(world.namespaces.insert(name, kept(&object))),
        "GatewayClass" => drop(world.gateway.classes.insert(name, kept(&object))),
        "ConfigMap" => drop(world.gateway.authorities.insert(key, kept(&object))),
        "Gateway" => drop(world.gateway.gateways.insert(key, kept(&object))),
        "ListenerSet" => drop(world.gateway.sets.insert(key, kept(&object))),
        "HTTPRoute" => drop(world.gateway.http_routes.insert(key, kept(&object))),
        "GRPCRoute" => drop(world.gateway.grpc_routes.insert(key, kept(&object))),
        "TLSRoute" => drop(world.gateway.tls_routes.insert(key, kept(&object))),
        "TCPRoute" => drop(world.gateway.tcp_routes.insert(key, kept(&object))),
        "UDPRoute" => drop(world.gateway.udp_routes.insert(key, kept(&object))),
        "ReferenceGrant" => drop(world.gateway.grants.insert(key, kept(&object))),
        "BackendTLSPolicy" => drop(world.gateway.policies.insert(key, kept(&object))),
        kind => panic!("{kind} is of no interest"),
    }
}

fn secret(kind: &str) -> Result<Arc<rustls::sign::CertifiedKey>, String> {
    if kind == "broken" {
        return Err("broken".to_owned());
    }
    let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).expect("a certificate");
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    crate::facts::certified(chain.as_bytes(), key.as_bytes())
}

pub fn described(plan: &Plan) -> String {
    let mut text = String::new();
    for (site, port) in &plan.table.ports {
        let kind = if port.tls.is_some() { "TLS" } else { "plain" };
        let _ = writeln!(text, "{} {kind}", site.port);
        describe_port(&mut text, port);
    }
    for status in &plan.statuses {
        let _ = writeln!(text, "status {:?} {}: {}", status.kind, status.key, status.status);
    }
    text
}

fn describe_port(text: &mut String, port: &Port) {
    if let Some(tls) = &port.tls {
        let mut shown: Vec<String> = Vec::new();
        for host in ["a.com", "x.a.com", "y.x.a.com", "other"] {
            let secrets = tls.certificates.of(host).map(|one| one.secret.to_string());
            let secrets: Vec<String> = secrets.collect();
            if !secrets.is_empty() {
                shown.push(format!("  certificate of {host}: {}", secrets.join(" ")));
            }
        }
        for line in &shown {
            let _ = writeln!(text, "{line}");
        }
    }
    let mut rules: Vec<&Arc<Rule>> = port.hosts.rules().collect();
    rules.sort_by_key(|rule| {
        (std::cmp::Reverse(rule.host.weight()), rule.host.clone(), &rule.path, &rule.origin)
    });
    for rule in rules {
        let _ = writeln!(text, "  {}", describe_rule(rule));
    }
}

pub fn describe_rule(rule: &Rule) -> String {
    let path = match &rule.path {
        PathMatch::Exact(path) => format!("={path}"),
        PathMatch::Prefix(path) => path.clone(),
        PathMatch::Expression(path) => format!("~{path}"),
    };
    let mut line = format!("{} {path}", rule.host);
    if let Some(method) = &rule.method {
        let _ = write!(line, " {method}");
    }
    if rule.origin.is_default {
        line.push_str(" (default)");
    }
    if let Some(clients) = &rule.clients {
        line.push_str(if clients.is_optional {
            " (clients may prove)"
        } else {
            " (clients prove)"
        });
    }
    format!("{line} -> {}", describe_action(&rule.action))
}

pub fn describe_action(action: &Action) -> String {
    let to = |to: &To| match to {
        To::Service(one) => {
            let how = match one.protocol {
                crate::table::Protocol::Http1 => "",
                crate::table::Protocol::Http2 => " h2",
                crate::table::Protocol::Bytes => " bytes",
                crate::table::Protocol::Datagrams => " datagrams",
            };
            let identity = |tls: &Verified| {
                let identity = tls.identity.as_ref();
                identity.map_or_else(String::new, |one| format!(" as {}", one.secret))
            };
            let tls = one.tls.as_ref();
            let tls =
                tls.map_or_else(String::new, |tls| format!(" tls={}{}", tls.name, identity(tls)));
            format!("{}:{}{how}{tls}", one.service, one.port)
        }
        To::Nobody(code) => code.as_u16().to_string(),
    };
    let backends = action.backends.iter().map(|backend| match action.backends.len() {
        1 => to(&backend.to),
        _ => format!("{}*{}", backend.weight, to(&backend.to)),
    });
    let mut all: Vec<String> = action.filters.iter().map(|filter| format!("{filter:?}")).collect();
    all.extend(backends);
    all.join(" ")
}

fn check(yaml: &str, expected: Expect) {
    let plan = plan(&world(&format!("{COMMON}---\n{yaml}")), &places(), NOW);
    expected.assert_eq(&described(&plan));
}

fn places() -> Places {
    Places { http: 80, https: 443, ..Places::default() }
}

const NOW: &str = "2026-01-01T00:00:00Z";

const COMMON: &str = "
kind: IngressClass
metadata: {name: skiff, annotations: {ingressclass.kubernetes.io/is-default-class: 'true'}}
spec: {controller: skiff.dev/ingress}
---
kind: IngressClass
metadata: {name: other}
spec: {controller: example.com/other}
---
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}, {name: h2, port: 81, appProtocol: kubernetes.io/h2c}]}
---
kind: Service
metadata: {name: away}
spec: {type: ExternalName, externalName: example.com, ports: [{port: 80}]}
---
kind: Node
metadata: {name: one, labels: {skiff.dev/ingress: 'true'}}
status:
  addresses: [{type: InternalIP, address: 192.0.2.1}, {type: Hostname, address: one}]
  conditions: [{type: Ready, status: 'True'}]
---
kind: Node
metadata: {name: joined}
status:
  addresses: [{type: InternalIP, address: 192.0.2.2}]
  conditions: [{type: Ready, status: 'True'}]
---
kind: Node
metadata: {name: down, labels: {skiff.dev/ingress: 'true'}}
status: {addresses: [{type: InternalIP, address: 192.0.2.9}]}
";

#[test]
fn rules_of_an_ingress_are_served_on_both_ports() {
    check(
        "
kind: Ingress
metadata: {name: a}
spec:
  ingressClassName: skiff
  tls: [{hosts: [a.com, '*.a.com'], secretName: pair}, {hosts: [other], secretName: absent}]
  rules:
  - host: A.com
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}
      - {path: /exact, pathType: Exact, backend: {service: {name: web, port: {number: 81}}}}
      - {path: /any, pathType: ImplementationSpecific, backend: {service: {name: web, port: {number: 80}}}}
  - host: '*.a.com'
    http: {paths: [{pathType: ImplementationSpecific, backend: {service: {name: away, port: {number: 80}}}}]}
---
kind: Secret
metadata: {name: pair}
",
        expect![[r#"
            80 plain
              a.com =/exact -> default/web:81 h2
              a.com / -> default/web:80
              a.com /any -> default/web:80
              *.a.com / -> 503
            443 TLS
              certificate of a.com: default/pair
              certificate of x.a.com: default/pair
              a.com =/exact -> default/web:81 h2
              a.com / -> default/web:80
              a.com /any -> default/web:80
              *.a.com / -> 503
            status Ingress default/a: {"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}
        "#]],
    );
}

#[test]
fn ingresses_of_other_classes_are_left_alone() {
    check(
        "
kind: Ingress
metadata: {name: theirs}
spec: {ingressClassName: other, defaultBackend: {service: {name: web, port: {number: 80}}}}
---
kind: Ingress
metadata: {name: unknown}
spec: {ingressClassName: missing, defaultBackend: {service: {name: web, port: {number: 80}}}}
",
        expect![""],
    );
}

#[test]
fn who_names_no_class_gets_the_default_and_the_annotation_names_one_too() {
    check(
        "
kind: Ingress
metadata: {name: none}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
---
kind: Ingress
metadata: {name: old, annotations: {kubernetes.io/ingress.class: other}}
spec: {defaultBackend: {service: {name: web, port: {number: 81}}}}
",
        expect![[r#"
            80 plain
              * / (default) -> default/web:80
            443 TLS
              * / (default) -> default/web:80
        "#]],
    );
}

#[test]
fn a_default_backend_is_for_the_hosts_of_its_ingress_and_for_those_of_nobody() {
    check(
        "
kind: Ingress
metadata: {name: a}
spec:
  defaultBackend: {service: {name: web, port: {number: 81}}}
  rules:
  - host: a.com
    http: {paths: [{path: /x, pathType: Prefix, backend: {service: {name: missing, port: {number: 80}}}}]}
  - host: b.com
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
",
        expect![[r#"
            80 plain
              a.com / (default) -> default/web:81 h2
              a.com /x -> 503
              b.com / (default) -> default/web:81 h2
              * / (default) -> default/web:81 h2
            443 TLS
              a.com / (default) -> default/web:81 h2
              a.com /x -> 503
              b.com / (default) -> default/web:81 h2
              * / (default) -> default/web:81 h2
        "#]],
    );
}

#[test]
fn a_certificate_that_cannot_be_read_is_none() {
    check(
        "
kind: Ingress
metadata: {name: a}
spec:
  tls: [{secretName: broken}, {secretName: pair}]
  defaultBackend: {service: {name: web, port: {number: 80}}}
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
---
kind: Secret
metadata: {name: broken}
type: broken
---
kind: Secret
metadata: {name: pair}
---
kind: Secret
metadata: {name: pair, namespace: elsewhere}
",
        expect![[r#"
            80 plain
              * / (default) -> default/web:80
            443 TLS
              certificate of a.com: default/pair
              certificate of x.a.com: default/pair
              certificate of y.x.a.com: default/pair
              certificate of other: default/pair
              * / (default) -> default/web:80
        "#]],
    );
}
