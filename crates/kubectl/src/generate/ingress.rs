//! Ingresses, whose rules have a grammar of their own: `host/path=service:port[,tls[=secret]]`.

use serde_json::{Map, Value, json};

use super::{Generator, Made, Rim, int_or_string, name};
use crate::failure::Outcome;
use crate::flags::{Arguments, each, text};

pub static INGRESS: Generator = Generator {
    name: "ingress",
    aliases: &["ing"],
    about: "Create an ingress with the specified name",
    usage: "NAME --rule=host/path=service:port[,tls[=secret]]",
    flags: &[
        text("class", "", "Class of the ingress."),
        each(
            "rule",
            "HOST/PATH=SERVICE:PORT[,tls[=SECRET]]; a path that ends in * is a prefix; may be repeated.",
        ),
        text("default-backend", "", "SERVICE:PORT for what no rule catches."),
        each("annotation", "KEY=VALUE; may be repeated."),
    ],
    refused: "failed to create ingress: ",
    make: ingress,
    ..Generator::EMPTY
};

/// A rule, read.
struct Rule<'a> {
    host: &'a str,
    path: &'a str,
    service: &'a str,
    /// Whether it asks for TLS, and by which secret.
    tls: Option<&'a str>,
}

fn ingress(arguments: &Arguments, _: &Rim<'_>) -> Outcome<Made> {
    let name = name(arguments)?;
    let (rules, default) = (arguments.list("rule"), arguments.text("default-backend"));
    if rules.is_empty() && default.is_empty() {
        return Err("not enough information provided: every ingress has to either specify a default-backend (which \
             catches all traffic) or a list of rules (which catch specific paths)"
            .into());
    }
    let rules: Vec<Rule<'_>> = rules.iter().map(|text| rule(text)).collect::<Outcome<_>>()?;
    let mut annotations = Map::new();
    for annotation in arguments.list("annotation") {
        match annotation.split_once('=') {
            Some((key, value)) => annotations.insert(key.to_owned(), value.into()),
            None => {
                return Err(format!(
                    "annotation {annotation} is invalid and should be in format key=[value]"
                )
                .into());
            }
        };
    }
    let mut spec = json!({});
    super::put(&mut spec, "ingressClassName", arguments.text("class"));
    if !default.is_empty() {
        if default.split(':').count() != 2 {
            return Err("default-backend should be in format servicename:serviceport".into());
        }
        spec["defaultBackend"] = backend(default);
    }
    super::put(&mut spec, "tls", tls(&rules));
    super::put(&mut spec, "rules", by_host(&rules));
    let mut object = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"loadBalancer": {}},
    });
    super::put(&mut object["metadata"], "annotations", annotations);
    Ok(object.into())
}

/// `^[\w*.-]*/.*=[\w-]+:[\w-]+(,tls(=[\w-]+)?)?`: what comes after is not looked at, as upstream's
/// pattern has no end.
fn rule(text: &str) -> Outcome<Rule<'_>> {
    read(text).ok_or_else(|| {
        format!("rule {text} is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]").into()
    })
}

fn read(text: &str) -> Option<Rule<'_>> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let (route, tls) = match text.split_once(',') {
        Some((route, tls)) => (route, Some(tls)),
        None => (text, None),
    };
    let slash = route.find('/')?;
    let (host, rest) = route.split_at(slash);
    if !host.chars().all(|c| is_word(c) || c == '*' || c == '.') {
        return None;
    }
    let (path, service) = rest.split_once('=')?;
    let (name, port) = service.split_once(':')?;
    if name.is_empty() || !name.chars().all(is_word) || !port.starts_with(is_word) {
        return None;
    }
    let tls = tls.map(|tls| tls.split_once('=').map_or("", |(_, secret)| secret));
    Some(Rule { host, path, service, tls })
}

fn tls(rules: &[Rule<'_>]) -> Vec<Value> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for rule in rules {
        let Some(secret) = rule.tls.filter(|_| !seen.contains(&rule.host)) else { continue };
        seen.push(rule.host);
        match all.iter_mut().find(|(known, _)| *known == secret) {
            Some((_, hosts)) => hosts.push(rule.host),
            None if rule.host.is_empty() && secret.is_empty() => {}
            None if rule.host.is_empty() => all.push((secret, Vec::new())),
            None => all.push((secret, vec![rule.host])),
        }
    }
    let entry = |(secret, hosts): (&str, Vec<&str>)| {
        let mut entry = json!({});
        super::put(&mut entry, "hosts", hosts);
        super::put(&mut entry, "secretName", secret);
        entry
    };
    all.into_iter().map(entry).collect()
}

fn by_host(rules: &[Rule<'_>]) -> Vec<Value> {
    let mut all: Vec<(&str, Vec<Value>)> = Vec::new();
    for rule in rules {
        let (path, kind) = match rule.path.strip_suffix('*') {
            Some(prefix) => (prefix, "Prefix"),
            None => (rule.path, "Exact"),
        };
        let path = json!({"path": path, "pathType": kind, "backend": backend(rule.service)});
        match all.iter_mut().find(|(host, _)| *host == rule.host) {
            Some((_, paths)) => paths.push(path),
            None => all.push((rule.host, vec![path])),
        }
    }
    let entry = |(host, paths): (&str, Vec<Value>)| {
        let mut entry = json!({"http": {"paths": paths}});
        super::put(&mut entry, "host", host);
        entry
    };
    all.into_iter().map(entry).collect()
}

fn backend(service: &str) -> Value {
    let mut parts = service.split(':');
    let (name, port) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let port = match int_or_string(port) {
        Value::Number(number) => json!({"number": number}),
        name => json!({"name": name}),
    };
    json!({"service": {"name": name, "port": port}})
}
