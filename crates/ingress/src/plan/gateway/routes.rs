//! Routes: which listeners take them, what their rules say, and what is said about them.
use super::conditions::{Condition, Conditions, no, yes};
use super::filters;
use super::listeners::{Gateway, Heard};
use super::policies::Policies;
use super::types::{
    BackendRef, Custom, GrpcMatch, GrpcSpec, Match, NamedMatch, ParentRef, Reference, RouteSpec,
    RuleSpec, TypedValue,
};
use super::{GROUP, references};
use crate::GATEWAY_CONTROLLER;
use crate::facts::PortName;
use crate::host::{Depth, Pattern};
use crate::path;
use crate::plan::{Kind, Plan, Status, World, datagrams, destination};
use crate::table::{
    Action, Backend, Destination, Identity, Inside, Origin, Passed, PathMatch, Port, Protocol,
    Rule, Site, Table, TextMatch, To, Verified,
};
use api::names::NamespacedName;
use api::regexp::Regexp;
use http::StatusCode;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// A route of any kind.
struct Route<'w> {
    kind: Kind,
    key: &'w NamespacedName,
    created: i64,
    generation: i64,
    status: &'w Value,
    parents: &'w [ParentRef],
    hostnames: &'w [String],
    rules: Vec<RuleOf<'w>>,
}

/// One of its rules, whatever its kind calls it.
struct RuleOf<'w> {
    matches: Cow<'w, [Match]>,
    filters: &'w [super::types::FilterSpec],
    backends: &'w [BackendRef],
    timeouts: super::types::Timeouts,
}

pub fn plan(
    world: &World,
    gateways: &mut [Gateway<'_>],
    tls: &Policies<'_>,
    now: &str,
    plan: &mut Plan,
) {
    let objects = &world.gateway;
    let of_http = objects.http_routes.iter().map(|(key, one)| http(Kind::HttpRoute, key, one));
    let of_grpc = objects.grpc_routes.iter().map(|(key, one)| grpc(key, one));
    let of_tls = objects.tls_routes.iter().map(|(key, one)| http(Kind::TlsRoute, key, one));
    let of_tcp = objects.tcp_routes.iter().map(|(key, one)| http(Kind::TcpRoute, key, one));
    let of_udp = objects.udp_routes.iter().map(|(key, one)| http(Kind::UdpRoute, key, one));
    // Of several that want the same connections the oldest has them.
    let mut of_bytes: Vec<Route<'_>> = of_tls.chain(of_tcp).chain(of_udp).collect();
    of_bytes.sort_by_key(|route| (route.created, route.key));
    for route in of_http.chain(of_grpc).chain(of_bytes) {
        let mut built = Variants::new(world, &route, tls);
        let mut said = Vec::new();
        for parent in route.parents {
            let outcome = attach(world, gateways, &route, parent, &mut built, &mut plan.table);
            said.extend(outcome.map(|accepted| (parent, accepted)));
        }
        plan.statuses.extend(status(&route, &said, built.first(), now));
    }
}

fn http<'w>(kind: Kind, key: &'w NamespacedName, object: &'w Custom<RouteSpec>) -> Route<'w> {
    let rule = |rule: &'w RuleSpec| RuleOf {
        matches: Cow::Borrowed(&rule.matches),
        filters: &rule.filters,
        backends: &rule.backend_refs,
        timeouts: rule.timeouts.clone(),
    };
    Route {
        kind,
        key,
        created: object.created,
        generation: object.generation,
        status: &object.status,
        parents: &object.spec.parent_refs,
        hostnames: &object.spec.hostnames,
        rules: object.spec.rules.iter().map(rule).collect(),
    }
}

/// A method of gRPC is a path.
fn grpc<'w>(key: &'w NamespacedName, object: &'w Custom<GrpcSpec>) -> Route<'w> {
    let rules = object.spec.rules.iter().map(|rule| RuleOf {
        matches: rule.matches.iter().map(grpc_match).collect(),
        filters: &rule.filters,
        backends: &rule.backend_refs,
        timeouts: super::types::Timeouts::default(),
    });
    Route {
        kind: Kind::GrpcRoute,
        key,
        created: object.created,
        generation: object.generation,
        status: &object.status,
        parents: &object.spec.parent_refs,
        hostnames: &object.spec.hostnames,
        rules: rules.collect(),
    }
}

fn grpc_match(of: &GrpcMatch) -> Match {
    let is_expression = of.method.r#type.as_deref() == Some("RegularExpression");
    let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (kind, value) = match (text(&of.method.service), text(&of.method.method)) {
        (None, None) => ("PathPrefix", "/".to_owned()),
        (service, method) if is_expression => {
            let any = || "[^/]+".to_owned();
            let (service, method) = (service.unwrap_or_else(any), method.unwrap_or_else(any));
            ("RegularExpression", format!("/(?:{service})/(?:{method})"))
        }
        (Some(service), Some(method)) => ("Exact", format!("/{service}/{method}")),
        (Some(service), None) => ("PathPrefix", format!("/{service}")),
        // Names of methods are letters, digits and underscores: nothing has to be escaped.
        (None, Some(method)) => ("RegularExpression", format!("/[^/]+/{method}")),
    };
    let path = Some(TypedValue { r#type: Some(kind.to_owned()), value: Some(value) });
    Match { path, headers: of.headers.clone(), ..Match::default() }
}

/// What a route's rules come to, whoever serves them.
struct Built {
    rules: Vec<BuiltRule>,
    /// What is wrong with objects that it names.
    unresolved: Option<(&'static str, String)>,
    /// What it says that nobody understands here.
    unknown: Option<String>,
}

struct BuiltRule {
    matches: Vec<Match>,
    action: Arc<Action>,
}

/// What the listener that a route is behind has to do with connections to pods.
#[derive(Clone, PartialEq)]
struct Means {
    /// Clients' TLS ends at the listener: TLS to pods is ours.
    is_ended: bool,
    identity: Option<Identity>,
}

/// A route for each kind of listener that it is behind.
struct Variants<'a> {
    world: &'a World,
    route: &'a Route<'a>,
    tls: &'a Policies<'a>,
    all: Vec<(Means, Arc<Built>)>,
}

impl<'a> Variants<'a> {
    fn new(world: &'a World, route: &'a Route<'a>, tls: &'a Policies<'a>) -> Variants<'a> {
        let mut variants = Variants { world, route, tls, all: Vec::new() };
        variants.of(Means { is_ended: true, identity: None });
        variants
    }

    fn first(&self) -> &Built {
        &self.all[0].1
    }

    fn of(&mut self, means: Means) -> Arc<Built> {
        if let Some((_, built)) = self.all.iter().find(|(known, _)| *known == means) {
            return built.clone();
        }
        let built = Arc::new(Built::new(self.world, self.route, self.tls, &means));
        self.all.push((means, built.clone()));
        built
    }
}

impl Built {
    fn new(world: &World, route: &Route<'_>, tls: &Policies<'_>, means: &Means) -> Built {
        let mut built = Built { rules: Vec::new(), unresolved: None, unknown: None };
        let mut to = |reference: &Reference| {
            let found = backend(world, route, reference, tls, means);
            found.unwrap_or_else(|why| {
                built.unresolved.get_or_insert(why);
                To::Nobody(StatusCode::INTERNAL_SERVER_ERROR)
            })
        };
        let mut rules = Vec::new();
        for rule in &route.rules {
            let read = |specs: &[super::types::FilterSpec],
                        to: &mut dyn FnMut(&Reference) -> To| {
                filters::read(specs, to)
            };
            let (of_rule, mut unknown) = match read(rule.filters, &mut to) {
                Ok(filters) => (filters, None),
                Err(why) => (Vec::new(), Some(why)),
            };
            let mut backends = Vec::new();
            for spec in rule.backends {
                let filters = match read(&spec.filters, &mut to) {
                    Ok(filters) => filters,
                    Err(why) => {
                        unknown = Some(why);
                        Vec::new()
                    }
                };
                let weight = spec.weight.unwrap_or(1);
                backends.push(Backend { weight, to: to(&spec.to), filters });
            }
            let action = Action {
                filters: of_rule,
                backends,
                request_timeout: duration(rule.timeouts.request.as_deref()),
                backend_timeout: duration(rule.timeouts.backend_request.as_deref()),
            };
            rules.push((rule, action, unknown));
        }
        for (rule, action, unknown) in rules {
            // What would be changed and is not must not get through as it came.
            if let Some(why) = unknown {
                built.unknown.get_or_insert(why);
                continue;
            }
            let matches = match rule.matches.is_empty() {
                true => vec![Match::default()],
                false => rule.matches.to_vec(),
            };
            built.rules.push(BuiltRule { matches, action: Arc::new(action) });
        }
        built
    }
}

/// The service that a reference names, or why it is none.
fn backend(
    world: &World,
    route: &Route<'_>,
    reference: &Reference,
    tls: &Policies<'_>,
    means: &Means,
) -> Result<To, (&'static str, String)> {
    if !reference.is("", "Service", "Service") {
        let kind = reference.kind.as_deref().unwrap_or("Service");
        return Err(("InvalidKind", format!("requests are not sent to a {kind}")));
    }
    let key = reference.key(&route.key.namespace);
    let (from, namespace) = (route.kind.name(), &route.key.namespace);
    if !references::may(&world.gateway, from, namespace, "", "Service", &key) {
        return Err(("RefNotPermitted", format!("no ReferenceGrant is for service {key}")));
    }
    let missing = || ("BackendNotFound", format!("service {key} is not there"));
    let service = world.services.get(&key).ok_or_else(missing)?;
    let number = reference.port.unwrap_or(0);
    let (found, by) = match route.kind {
        Kind::UdpRoute => (datagrams(&key, service, number), " of UDP"),
        _ => (destination(&key, service, &PortName::Number(number)), ""),
    };
    let found = found
        .ok_or_else(|| ("BackendNotFound", format!("service {key} has no port {number}{by}")))?;
    let protocol = match route.kind {
        Kind::GrpcRoute => Protocol::Http2,
        Kind::TlsRoute | Kind::TcpRoute => Protocol::Bytes,
        _ => found.protocol,
    };
    let verified = match route.kind {
        // It is the client's own TLS that is passed on, if there is any.
        Kind::TcpRoute | Kind::UdpRoute => Ok(None),
        Kind::TlsRoute if !means.is_ended => Ok(None),
        _ => tls.of(&key, service, number),
    };
    let with_identity = |tls: Arc<Verified>| match &means.identity {
        Some(identity) => Arc::new(Verified { identity: Some(identity.clone()), ..(*tls).clone() }),
        None => tls,
    };
    match verified.map(|tls| tls.map(with_identity)) {
        Ok(tls) => Ok(To::Service(Arc::new(Destination { protocol, tls, ..(*found).clone() }))),
        // Whoever wants TLS that cannot be had wants no plain text either; the policy says why.
        Err(()) => Ok(To::Nobody(StatusCode::INTERNAL_SERVER_ERROR)),
    }
}

/// `1h30m`, `500ms` (GEP-2257); none at all is no limit, and so is zero.
fn duration(text: Option<&str>) -> Option<Duration> {
    let mut rest = text?;
    let mut whole = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        whole += match &rest[..unit] {
            "h" => Duration::from_secs(number.checked_mul(3600)?),
            "m" => Duration::from_secs(number.checked_mul(60)?),
            "s" => Duration::from_secs(number),
            "ms" => Duration::from_millis(number),
            _ => return None,
        };
        rest = &rest[unit..];
    }
    Some(whole).filter(|whole| !whole.is_zero())
}

/// Puts a route behind the listeners of one parent; `None`: that parent is not ours.
fn attach(
    world: &World,
    gateways: &mut [Gateway<'_>],
    route: &Route<'_>,
    parent: &ParentRef,
    built: &mut Variants<'_>,
    table: &mut Table,
) -> Option<Condition> {
    let namespace = parent.namespace.as_deref().unwrap_or(&route.key.namespace);
    let key = NamespacedName::new(namespace, &parent.name);
    let (gateway, set) = find(gateways, parent, &key)?;
    let is_meant = |listener: &Heard<'_>| {
        let (name, port) = (&listener.spec.name, listener.spec.port);
        listener.set == set
            && parent.section_name.as_deref().is_none_or(|wanted| wanted == name)
            && parent.port.is_none_or(|wanted| wanted == port)
    };
    let meant: Vec<usize> =
        (0..gateway.listeners.len()).filter(|&at| is_meant(&gateway.listeners[at])).collect();
    if meant.is_empty() {
        let text = match set {
            Some(_) => "the ListenerSet has no such listener that its Gateway lets in",
            None => "the Gateway has no such listener",
        };
        return Some(no("Accepted", "NoMatchingParent", text));
    }
    let (namespace, kind) = (&route.key.namespace, route.kind.name());
    let let_in =
        meant.into_iter().filter(|&at| gateway.listeners[at].lets_in(world, namespace, kind));
    let let_in: Vec<usize> = let_in.collect();
    if let_in.is_empty() {
        let text = "no listener takes routes of this kind from this namespace";
        return Some(no("Accepted", "NotAllowedByListeners", text));
    }
    if let Some(why) = &built.first().unknown
        && built.first().rules.is_empty()
    {
        return Some(no("Accepted", "UnsupportedValue", why.clone()));
    }
    let identity = gateway.identity.as_ref().ok().cloned().flatten();
    let mut is_hosted = false;
    for at in let_in {
        let listener = &mut gateway.listeners[at];
        let hosts = hosts(route.hostnames, &listener.host);
        if hosts.is_empty() {
            continue;
        }
        is_hosted = true;
        listener.attached += 1;
        let is_ended = listener.inside != Inside::Unknown;
        let built = built.of(Means { is_ended, identity: identity.clone() });
        for site in &listener.sites {
            insert(route, &built, &hosts, listener, *site, table);
        }
    }
    if is_hosted {
        let services = route.rules.iter().flat_map(|rule| rule.backends);
        gateway.reached.extend(services.map(|one| one.to.key(&route.key.namespace)));
    }
    Some(match is_hosted {
        true => yes("Accepted", "Accepted", ""),
        false => {
            let text = "the route's hostnames are none of the listener's";
            no("Accepted", "NoMatchingListenerHostname", text)
        }
    })
}

/// The Gateway of ours that a parent is, or that the ListenerSet is for which is one.
fn find<'g, 'w>(
    gateways: &'g mut [Gateway<'w>],
    parent: &ParentRef,
    key: &NamespacedName,
) -> Option<(&'g mut Gateway<'w>, Option<usize>)> {
    if parent.group.as_deref().unwrap_or(GROUP) != GROUP {
        return None;
    }
    match parent.kind.as_deref().unwrap_or("Gateway") {
        "Gateway" => {
            let found = gateways.iter_mut().find(|gateway| gateway.key == key)?;
            Some((found, None))
        }
        "ListenerSet" => gateways.iter_mut().find_map(|gateway| {
            let at = gateway.sets.iter().position(|set| set.key == key)?;
            Some((gateway, Some(at)))
        }),
        _ => None,
    }
}

fn hosts(names: &[String], listener: &Pattern) -> Vec<Pattern> {
    if names.is_empty() {
        return vec![listener.clone()];
    }
    let of = |name: &String| Pattern::parse(name, Depth::Many).and(listener);
    names.iter().filter_map(of).collect()
}

fn insert(
    route: &Route<'_>,
    built: &Built,
    hosts: &[Pattern],
    listener: &Heard<'_>,
    site: Site,
    table: &mut Table,
) {
    let whole = || built.rules.first().map(|rule| rule.action.clone());
    if route.kind == Kind::UdpRoute {
        let taker = table.datagrams.entry(site).or_default();
        taker.0 = taker.0.take().or_else(whole);
        return;
    }
    let port = table.ports.entry(site).or_default();
    match route.kind {
        Kind::TcpRoute => {
            let taker = port.taker.get_or_insert_default();
            taker.0 = taker.0.take().or_else(whole);
        }
        Kind::TlsRoute => {
            let tls = port.tls.get_or_insert_default();
            for host in hosts {
                let passed =
                    whole().map(|action| Passed { except: listener.except.clone(), action });
                passed.into_iter().for_each(|passed| tls.passed.insert(host, passed));
            }
        }
        _ => {
            for host in hosts {
                insert_rules(route, built, host, listener, port);
            }
        }
    }
}

fn insert_rules(
    route: &Route<'_>,
    built: &Built,
    host: &Pattern,
    listener: &Heard<'_>,
    port: &mut Port,
) {
    for (i, rule) in built.rules.iter().enumerate() {
        for (j, wanted) in rule.matches.iter().enumerate() {
            let origin = Origin {
                is_default: false,
                created: route.created,
                key: route.key.clone(),
                place: (i, j),
            };
            let made = made(wanted, host, listener, origin, &rule.action);
            // An expression that cannot be read matches nothing.
            if let Some(made) = made {
                let _ = port.hosts.insert(made);
            }
        }
    }
}

fn made(
    wanted: &Match,
    host: &Pattern,
    listener: &Heard<'_>,
    origin: Origin,
    action: &Arc<Action>,
) -> Option<Rule> {
    let path = wanted.path.as_ref();
    let text = path.and_then(|path| path.value.as_deref()).unwrap_or("/");
    let path = match path.and_then(|path| path.r#type.as_deref()) {
        Some("Exact") => PathMatch::Exact(path::of_rule(text)),
        Some("RegularExpression") => PathMatch::Expression(text.to_owned()),
        _ => PathMatch::Prefix(path::of_rule(text)),
    };
    let mut headers = Vec::new();
    for header in &wanted.headers {
        let name: http::HeaderName = header.name.parse().ok()?;
        // Of several for one header the first one counts.
        if !headers.iter().any(|(known, _)| *known == name) {
            headers.push((name, text_match(header)?));
        }
    }
    let mut query: Vec<(String, TextMatch)> = Vec::new();
    for parameter in &wanted.query_params {
        if !query.iter().any(|(known, _)| *known == parameter.name) {
            query.push((parameter.name.clone(), text_match(parameter)?));
        }
    }
    Some(Rule {
        host: host.clone(),
        except: listener.except.clone(),
        clients: listener.clients.clone(),
        path,
        method: wanted.method.as_deref().map(str::parse).transpose().ok()?,
        headers,
        query,
        origin,
        action: action.clone(),
    })
}

fn text_match(of: &NamedMatch) -> Option<TextMatch> {
    match of.r#type.as_deref() {
        Some("RegularExpression") => {
            Regexp::compile(&format!("^(?:{})$", of.value)).ok().map(TextMatch::Expression)
        }
        _ => Some(TextMatch::Exact(of.value.clone())),
    }
}

/// What is said about a route by those of its parents that are ours; others keep what theirs say.
fn status(
    route: &Route<'_>,
    said: &[(&ParentRef, Condition)],
    built: &Built,
    now: &str,
) -> Option<Status> {
    let known = route.status["parents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (ours, others): (Vec<&Value>, Vec<&Value>) =
        known.iter().partition(|one| one["controllerName"] == GATEWAY_CONTROLLER);
    if ours.is_empty() && said.is_empty() {
        return None;
    }
    let mut parents: Vec<Value> = others.into_iter().cloned().collect();
    for (parent, accepted) in said {
        let shown = shown(parent);
        let before = ours.iter().find(|one| one["parentRef"] == shown);
        let mut conditions =
            Conditions::new(before.unwrap_or(&&Value::Null), route.generation, now);
        let accepted = Condition { message: accepted.message.clone(), ..*accepted };
        let resolved = match &built.unresolved {
            Some((reason, text)) => no("ResolvedRefs", reason, text.clone()),
            None => yes("ResolvedRefs", "ResolvedRefs", ""),
        };
        conditions.set(&[accepted, resolved]);
        if let Some(why) = built.unknown.as_ref().filter(|_| !built.rules.is_empty()) {
            let message = format!("Dropped Rule: {why}");
            let reason = "UnsupportedValue";
            conditions.set(&[Condition {
                kind: "PartiallyInvalid",
                is_true: true,
                reason,
                message,
            }]);
        } else {
            conditions.remove("PartiallyInvalid");
        }
        parents.push(json!({
            "parentRef": shown,
            "controllerName": GATEWAY_CONTROLLER,
            "conditions": conditions.all(),
        }));
    }
    let status = json!({ "parents": parents });
    Status::unless_said(route.kind, route.key.clone(), route.status, status)
}

/// A parent as the API server writes it, its defaults among it.
pub fn shown(parent: &ParentRef) -> Value {
    let mut shown = json!({
        "group": parent.group.as_deref().unwrap_or(GROUP),
        "kind": parent.kind.as_deref().unwrap_or("Gateway"),
        "name": parent.name,
    });
    if let Some(namespace) = &parent.namespace {
        shown["namespace"] = namespace.as_str().into();
    }
    if let Some(section) = &parent.section_name {
        shown["sectionName"] = section.as_str().into();
    }
    if let Some(port) = parent.port {
        shown["port"] = port.into();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_gateway_api_writes_them() {
        let read = |text: &str| duration(Some(text)).map(|duration| duration.as_millis());
        assert_eq!(read("500ms"), Some(500));
        assert_eq!(read("1h30m"), Some(5_400_000));
        assert_eq!(read("10s5ms"), Some(10_005));
        assert_eq!(read("0s"), None);
        assert_eq!(read("1d"), None);
        assert_eq!(read("s"), None);
        assert_eq!(duration(None), None);
    }
}
