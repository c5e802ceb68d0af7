//! Ingresses: rules of hosts and paths, certificates, and a backend for the rest.
use super::{Kind, Places, Plan, Status, World, destination};
use crate::INGRESS_CONTROLLER;
use crate::facts::{BackendFacts, IngressFacts};
use crate::host::{Depth, Pattern};
use crate::path;
use crate::table::{Action, Backend, Certificate, Origin, PathMatch, Port, Rule, Site, Tls, To};
use api::names::NamespacedName;
use http::StatusCode;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

pub fn plan(world: &World, places: &Places, addresses: &[IpAddr], plan: &mut Plan) {
    let mut ours: Vec<_> =
        world.ingresses.iter().filter(|(_, ingress)| is_ours(world, ingress)).collect();
    ours.sort_by_key(|(key, ingress)| (ingress.created, *key));
    if ours.is_empty() {
        return;
    }
    let (mut http, mut https) = (Port::default(), Port::default());
    let mut tls = Tls { is_open: true, ..Tls::default() };
    for (key, ingress) in ours {
        certificates(world, key, ingress, &mut tls);
        rules(world, key, ingress, &mut http);
        rules(world, key, ingress, &mut https);
        plan.statuses.extend(status(key, ingress, addresses));
    }
    https.tls = Some(tls);
    plan.table.ports.insert(Site::shared(places.http), http);
    plan.table.ports.insert(Site::shared(places.https), https);
}

/// It is of a class of ours; without one, if the class that is the default is ours.
fn is_ours(world: &World, ingress: &IngressFacts) -> bool {
    let mut ours = world.classes.iter().filter(|(_, class)| class.controller == INGRESS_CONTROLLER);
    match &ingress.class {
        Some(name) => ours.any(|(known, _)| known == name),
        None => ours.any(|(_, class)| class.is_default),
    }
}

fn certificates(world: &World, key: &NamespacedName, ingress: &IngressFacts, tls: &mut Tls) {
    for wanted in ingress.tls.iter().filter(|wanted| !wanted.secret.is_empty()) {
        let secret = NamespacedName::new(&key.namespace, &wanted.secret);
        let found = world.secrets.get(&secret).and_then(|facts| facts.0.as_ref().ok());
        let Some(certified) = found else { continue };
        let any = [String::new()];
        let hosts = if wanted.hosts.is_empty() { &any[..] } else { &wanted.hosts[..] };
        for host in hosts {
            let certificate = Certificate { secret: secret.clone(), key: certified.clone() };
            tls.certificates.insert(&Pattern::parse(host, Depth::One), certificate);
        }
    }
}

fn rules(world: &World, key: &NamespacedName, ingress: &IngressFacts, port: &mut Port) {
    let insert = |port: &mut Port, host: Pattern, path: PathMatch, place, is_default, action| {
        let origin = Origin { is_default, created: ingress.created, key: key.clone(), place };
        let rule = Rule {
            host,
            except: Arc::default(),
            clients: None,
            path,
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
            origin,
            action,
        };
        // Only an expression can be wrong, and there is none.
        let _ = port.hosts.insert(rule);
    };
    for (i, rule) in ingress.rules.iter().enumerate() {
        let host = Pattern::parse(&rule.host, Depth::One);
        for (j, path) in rule.paths.iter().enumerate() {
            let text = path::of_rule(&path.path);
            let matched = match path.is_exact {
                true => PathMatch::Exact(text),
                false => PathMatch::Prefix(text),
            };
            let action = action(world, key, &path.backend);
            insert(port, host.clone(), matched, (i, j), false, action);
        }
    }
    if let Some(backend) = &ingress.default {
        let hosts = ingress.rules.iter().map(|rule| Pattern::parse(&rule.host, Depth::One));
        let hosts: BTreeSet<Pattern> = hosts.chain([Pattern::Any]).collect();
        let action = action(world, key, backend);
        for host in hosts {
            let all = PathMatch::Prefix("/".to_owned());
            insert(port, host, all, (usize::MAX, 0), true, action.clone());
        }
    }
}

fn action(world: &World, key: &NamespacedName, backend: &BackendFacts) -> Arc<Action> {
    let found = match backend {
        BackendFacts::Service { name, port } => {
            let service = NamespacedName::new(&key.namespace, name);
            world.services.get(&service).and_then(|facts| destination(&service, facts, port))
        }
        BackendFacts::Resource => None,
    };
    let to = found.map_or(To::Nobody(StatusCode::SERVICE_UNAVAILABLE), To::Service);
    let backends = vec![Backend { weight: 1, to, filters: Vec::new() }];
    Arc::new(Action { backends, ..Action::default() })
}

fn status(key: &NamespacedName, ingress: &IngressFacts, addresses: &[IpAddr]) -> Option<Status> {
    let wanted: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    if ingress.said == wanted {
        return None;
    }
    let ingress: Vec<_> = wanted.iter().map(|ip| json!({ "ip": ip })).collect();
    let ingress = if ingress.is_empty() { json!(null) } else { json!(ingress) };
    let status = json!({ "loadBalancer": { "ingress": ingress } });
    Some(Status { kind: Kind::Ingress, key: key.clone(), status })
}
