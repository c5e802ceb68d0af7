//! A Gateway's listeners and those that ListenerSets add: which can be served, who may be behind them, and
//! what is said about them.
use super::addresses::{self, Given, Wrong};
use super::conditions::{Condition, Conditions, no, yes};
use super::conflicts::conflicts;
use super::types::{Custom, GatewaySpec, Listener, Namespaces, SetSpec};
use super::{GROUP, clients, references};
use crate::GATEWAY_CONTROLLER;
use crate::host::{Depth, Pattern};
use crate::plan::{Kind, Status, World};
use crate::table::{self, Certificate, Clients, Identity, Inside, Site, Table, Taker};
use api::names::NamespacedName;
use api::pool::Pool;
use api::selector::label::Selector;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Why something is not so: a reason that programs read, and a text for people.
pub type Why = (&'static str, String);

/// A Gateway of ours.
pub struct Gateway<'w> {
    pub key: &'w NamespacedName,
    pub object: &'w Custom<GatewaySpec>,
    /// Its own, then those of its sets.
    pub listeners: Vec<Heard<'w>>,
    pub sets: Vec<Set<'w>>,
    /// Whom it proves to be to pods.
    pub identity: Result<Option<Identity>, Why>,
    /// Services that routes behind it lead to.
    pub reached: BTreeSet<NamespacedName>,
    given: Given,
    /// It is not served at all.
    refused: Option<Why>,
}

/// A ListenerSet that names a Gateway.
pub struct Set<'w> {
    pub key: &'w NamespacedName,
    pub object: &'w Custom<SetSpec>,
    /// The Gateway lets it in.
    pub is_allowed: bool,
}

/// One of a Gateway's listeners, and what became of it.
pub struct Heard<'w> {
    pub spec: &'w Listener,
    /// Of which of the Gateway's sets it is; `None`: its own.
    pub set: Option<usize>,
    /// Whose owner says what may be behind it.
    pub namespace: &'w str,
    pub host: Pattern,
    /// Hosts that other listeners of the Gateway name better.
    pub except: Arc<[Pattern]>,
    pub kinds: Vec<&'static str>,
    /// Where routes get through it; empty: nowhere.
    pub sites: Vec<Site>,
    pub inside: Inside,
    pub clients: Option<Arc<Clients>>,
    pub attached: usize,
    conditions: Vec<Condition>,
}

/// All Gateways of ours, the oldest first; their ports and certificates are in the table.
pub fn all<'w>(
    world: &'w World,
    pool: &Pool,
    nodes: &[IpAddr],
    table: &mut Table,
) -> Vec<Gateway<'w>> {
    let objects = &world.gateway;
    let is_ours = |object: &Custom<GatewaySpec>| {
        let class = objects.classes.get(&object.spec.gateway_class_name);
        class.is_some_and(|class| class.spec.controller_name == GATEWAY_CONTROLLER)
    };
    let mut ours: Vec<_> = objects.gateways.iter().filter(|(_, object)| is_ours(object)).collect();
    ours.sort_by_key(|(key, object)| (object.created, *key));
    let given = addresses::give(&ours, pool, nodes);
    table.own = given.iter().filter_map(|given| given.own.as_ref()).flatten().copied().collect();
    let gateway =
        |((key, object), given): ((&'w NamespacedName, &'w Arc<Custom<GatewaySpec>>), _)| {
            Gateway::new(world, key, object, given, table)
        };
    ours.into_iter().zip(given).map(gateway).collect()
}

/// Whether the labels of a namespace are those that somebody wants, or it is the owner's.
fn is_from(world: &World, wanted: &Namespaces, usual: &str, owner: &str, namespace: &str) -> bool {
    match wanted.from.as_deref().unwrap_or(usual) {
        "All" => true,
        "Selector" => {
            let labels = world.namespaces.get(namespace).map(|facts| &facts.labels);
            let selector = Selector::from_label_selector(wanted.selector.as_ref());
            matches!((selector, labels), (Ok(selector), Some(labels)) if selector.matches(labels))
        }
        "Same" => owner == namespace,
        _ => false,
    }
}

impl<'w> Gateway<'w> {
    fn new(
        world: &'w World,
        key: &'w NamespacedName,
        object: &'w Custom<GatewaySpec>,
        given: Given,
        table: &mut Table,
    ) -> Gateway<'w> {
        let refused = if object.spec.infrastructure.parameters_ref.is_some() {
            Some(("InvalidParameters", "Gateways take no parameters".to_owned()))
        } else if let Some(Wrong::Unsupported(text)) = &given.wrong {
            Some(("UnsupportedAddress", text.clone()))
        } else {
            None
        };
        let sets = sets(world, key, object);
        let identity = clients::identity(world, key, object);
        let (listeners, reached) = (Vec::new(), BTreeSet::new());
        let mut gateway =
            Gateway { key, object, listeners, sets, identity, reached, given, refused };
        gateway.hear_all(world, table);
        gateway.isolate();
        gateway
    }

    fn hear_all(&mut self, world: &'w World, table: &mut Table) {
        let own: (Owner<'w>, &'w [Listener]) =
            (Owner { kind: "Gateway", key: self.key, set: None }, &self.object.spec.listeners);
        let added = self.sets.iter().enumerate().filter(|(_, set)| set.is_allowed);
        let added = added.map(|(at, set)| {
            let owner = Owner { kind: "ListenerSet", key: set.key, set: Some(at) };
            (owner, set.object.spec.listeners.as_slice())
        });
        let groups: Vec<(Owner<'w>, &'w [Listener])> = [own].into_iter().chain(added).collect();
        let specs: Vec<&[Listener]> = groups.iter().map(|(_, specs)| *specs).collect();
        let addresses: Vec<Option<IpAddr>> = match (&self.refused, &self.given.own) {
            (Some(_), _) => Vec::new(),
            (None, Some(own)) => own.iter().copied().map(Some).collect(),
            (None, None) => vec![None],
        };
        for ((owner, specs), found) in groups.into_iter().zip(conflicts(&specs)) {
            for (spec, conflict) in specs.iter().zip(found) {
                let sites = addresses.iter().map(|&address| Site { address, port: spec.port });
                let place = Place { owner, spec, sites: sites.collect(), conflict };
                self.listeners.push(hear(world, self.object, self.key, place, table));
            }
        }
    }
}

/// The ListenerSets that name a Gateway, the oldest first.
fn sets<'w>(world: &'w World, key: &NamespacedName, object: &Custom<GatewaySpec>) -> Vec<Set<'w>> {
    let names = |set: &Custom<SetSpec>, namespace: &str| {
        let parent = &set.spec.parent_ref;
        parent.group.as_deref().unwrap_or(GROUP) == GROUP
            && parent.kind.as_deref().unwrap_or("Gateway") == "Gateway"
            && *parent.name == *key.name
            && *parent.namespace.as_deref().unwrap_or(namespace) == *key.namespace
    };
    let all = world.gateway.sets.iter();
    let mut all: Vec<_> = all.filter(|(set, object)| names(object, &set.namespace)).collect();
    all.sort_by_key(|(set, object)| (object.created, *set));
    let wanted = &object.spec.allowed_listeners.namespaces;
    let set = |(set, object): (&'w NamespacedName, &'w Arc<Custom<SetSpec>>)| Set {
        key: set,
        object,
        is_allowed: is_from(world, wanted, "None", &key.namespace, &set.namespace),
    };
    all.into_iter().map(set).collect()
}

/// Whose a listener is.
#[derive(Clone, Copy)]
struct Owner<'w> {
    kind: &'static str,
    key: &'w NamespacedName,
    set: Option<usize>,
}

/// A listener among the others.
struct Place<'w> {
    owner: Owner<'w>,
    spec: &'w Listener,
    sites: Vec<Site>,
    conflict: Option<Why>,
}

/// What a listener of this protocol can have behind it.
fn kinds_of(protocol: &str) -> &'static [&'static str] {
    match protocol {
        "HTTP" | "HTTPS" => &["HTTPRoute", "GRPCRoute"],
        "TLS" => &["TLSRoute"],
        "TCP" => &["TCPRoute"],
        "UDP" => &["UDPRoute"],
        _ => &[],
    }
}

fn hear<'w>(
    world: &'w World,
    gateway: &Custom<GatewaySpec>,
    gateway_key: &NamespacedName,
    place: Place<'w>,
    table: &mut Table,
) -> Heard<'w> {
    let Place { owner, spec, sites, conflict } = place;
    let hostname = match spec.protocol.as_str() {
        "TCP" | "UDP" => "",
        _ => spec.hostname.as_deref().unwrap_or_default(),
    };
    let host = Pattern::parse(hostname, Depth::Many);
    let able = kinds_of(&spec.protocol);
    let asked = &spec.allowed_routes.kinds;
    let is_known = |kind: &str| {
        asked.iter().any(|one| one.group.as_deref().unwrap_or(GROUP) == GROUP && one.kind == kind)
    };
    let kinds: Vec<&'static str> =
        able.iter().copied().filter(|kind| asked.is_empty() || is_known(kind)).collect();
    let others_asked = asked.len() > kinds.len() && !asked.is_empty();
    let is_passed = spec.tls.as_ref().and_then(|tls| tls.mode.as_deref()) == Some("Passthrough");
    let inside = match (spec.protocol.as_str(), is_passed) {
        ("TLS", true) => Inside::Unknown,
        ("TLS", false) => Inside::Bytes,
        _ => Inside::Requests,
    };
    let proved = match spec.protocol.as_str() {
        "HTTPS" => clients::wanted(world, gateway_key, gateway, spec.port),
        _ => clients::Proved::default(),
    };
    let certificates = match (spec.protocol.as_str(), inside) {
        ("HTTPS", _) | ("TLS", Inside::Bytes) => certificates(world, owner, spec),
        _ => Ok(Vec::new()),
    };
    let heard = table::Listener { host: host.clone(), inside, clients: proved.clients.clone() };
    let accepted = if able.is_empty() {
        Err(("UnsupportedProtocol", format!("protocol {} is not served", spec.protocol)))
    } else if spec.protocol == "HTTPS" && is_passed {
        Err(("UnsupportedValue", "TLS is passed on by listeners of protocol TLS".to_owned()))
    } else if let Some((reason, text)) = &conflict {
        Err((*reason, text.clone()))
    } else if proved.is_nobody {
        Err(("NoValidCACertificate", "there is no authority to know clients by".to_owned()))
    } else if let Some(text) = sites.iter().find_map(|site| taken(table, *site, spec, &heard)) {
        Err(("PortUnavailable", text))
    } else {
        Ok(())
    };
    let resolved = match (&certificates, &proved.wrong) {
        (Err(why), _) | (Ok(_), Some(why)) => Err(why.clone()),
        (Ok(_), None) if others_asked => {
            Err(("InvalidRouteKinds", "not all kinds of routes are known".to_owned()))
        }
        (Ok(_), None) => Ok(()),
    };
    let is_served = accepted.is_ok() && certificates.is_ok() && !sites.is_empty();
    let sites = if is_served { sites } else { Vec::new() };
    let heard = Arc::new(heard);
    for site in &sites {
        open(table, *site, spec, &heard, certificates.as_deref().unwrap_or_default());
    }
    let programmed = match &accepted {
        _ if is_served => yes("Programmed", "Programmed", ""),
        Err((reason, text)) if conflict.is_some() || *reason == "PortUnavailable" => {
            no("Programmed", reason, text.clone())
        }
        _ => no("Programmed", "Invalid", "the listener is not served"),
    };
    let conditions = vec![
        told("Accepted", "Accepted", &accepted),
        programmed,
        told("ResolvedRefs", "ResolvedRefs", &resolved),
        match conflict {
            Some((reason, text)) => {
                Condition { kind: "Conflicted", is_true: true, reason, message: text }
            }
            None => no("Conflicted", "NoConflicts", ""),
        },
    ];
    Heard {
        spec,
        set: owner.set,
        namespace: &owner.key.namespace,
        host,
        except: Arc::default(),
        kinds,
        sites,
        inside,
        clients: proved.clients,
        attached: 0,
        conditions,
    }
}

fn told(kind: &'static str, good: &'static str, outcome: &Result<(), Why>) -> Condition {
    match outcome {
        Ok(()) => yes(kind, good, ""),
        Err((reason, text)) => no(kind, reason, text.clone()),
    }
}

/// What an Ingress or an older Gateway keeps a listener from.
fn taken(table: &Table, site: Site, spec: &Listener, wanted: &table::Listener) -> Option<String> {
    let port = spec.port;
    if spec.protocol == "UDP" {
        let is_taken = table.datagrams.contains_key(&site);
        return is_taken.then(|| format!("another Gateway has port {port} of UDP"));
    }
    let there = table.ports.get(&site)?;
    if there.taker.is_some() || spec.protocol == "TCP" {
        return Some(format!("port {port} is served by another protocol already"));
    }
    match (&there.tls, spec.protocol == "HTTP") {
        (None, true) => None,
        (None, false) => Some(format!("port {port} is served without TLS already")),
        (Some(_), true) => Some(format!("port {port} is served with TLS already")),
        (Some(tls), false) => {
            let mut same = tls.listeners.at(&wanted.host);
            let is_other = same.any(|other| **other != *wanted);
            is_other.then(|| format!("another Gateway serves that host of port {port} otherwise"))
        }
    }
}

fn open(
    table: &mut Table,
    site: Site,
    spec: &Listener,
    heard: &Arc<table::Listener>,
    certificates: &[Certificate],
) {
    if spec.protocol == "UDP" {
        table.datagrams.entry(site).or_default();
        return;
    }
    let port = table.ports.entry(site).or_default();
    match spec.protocol.as_str() {
        "HTTP" => {}
        "TCP" => port.taker = Some(Taker::default()),
        _ => {
            let tls = port.tls.get_or_insert_default();
            for certificate in certificates {
                tls.certificates.insert(&heard.host, certificate.clone());
            }
            tls.listeners.insert(&heard.host, heard.clone());
        }
    }
}

fn certificates(world: &World, owner: Owner<'_>, spec: &Listener) -> Result<Vec<Certificate>, Why> {
    let refs = spec.tls.as_ref().map(|tls| tls.certificate_refs.as_slice()).unwrap_or_default();
    if refs.is_empty() {
        return Err(("InvalidCertificateRef", "there is no certificate".to_owned()));
    }
    let one = |reference: &super::types::Reference| {
        if !reference.is("", "Secret", "Secret") {
            return Err(("InvalidCertificateRef", "a certificate is a Secret".to_owned()));
        }
        let (namespace, secret) = (&owner.key.namespace, reference.key(&owner.key.namespace));
        if !references::may(&world.gateway, owner.kind, namespace, "", "Secret", &secret) {
            return Err(("RefNotPermitted", format!("no ReferenceGrant is for secret {secret}")));
        }
        let wrong =
            |text: String| Err(("InvalidCertificateRef", format!("secret {secret}: {text}")));
        match world.secrets.get(&secret).map(|facts| &facts.0) {
            None => wrong("it is missing, or of another type than kubernetes.io/tls".to_owned()),
            Some(Err(error)) => wrong(error.clone()),
            Some(Ok(pair)) => Ok(Certificate { key: pair.clone(), secret }),
        }
    };
    refs.iter().map(one).collect()
}

impl Gateway<'_> {
    /// A request is for the listener that names its host best, and for no other of the same Gateway.
    fn isolate(&mut self) {
        let served = self.listeners.iter().filter(|one| one.is_served());
        let known: Vec<(u16, Pattern)> =
            served.map(|one| (one.spec.port, one.host.clone())).collect();
        for listener in &mut self.listeners {
            let better = known.iter().filter(|(port, host)| {
                *port == listener.spec.port && host.weight() > listener.host.weight()
            });
            let better = better.map(|(_, host)| host);
            listener.except =
                better.filter(|host| listener.host.and(host).is_some()).cloned().collect();
        }
    }

    /// What is said about the Gateway and the sets that it lets in.
    pub fn statuses(&self, addresses: &[IpAddr], now: &str) -> Vec<Status> {
        let sets = self.sets.iter().enumerate();
        let sets = sets.filter_map(|(at, set)| self.status_of_set(at, set, now));
        sets.chain(self.status(addresses, now)).collect()
    }

    fn status(&self, addresses: &[IpAddr], now: &str) -> Option<Status> {
        let (said, generation) = (&self.object.status, self.object.generation);
        let own: Vec<&Heard<'_>> = self.listeners.iter().filter(|one| one.set.is_none()).collect();
        let valid = own.iter().filter(|one| one.is_valid()).count();
        let accepted = match &self.refused {
            Some((reason, text)) => no("Accepted", reason, text.clone()),
            None => summed("Accepted", valid, own.len(), "not every listener can be served"),
        };
        let asked = &self.object.spec.addresses;
        let shown: Vec<IpAddr> = match &self.given.own {
            Some(own) => own.iter().copied().collect(),
            None => {
                let asked: Vec<IpAddr> =
                    asked.iter().filter_map(|one| one.value.parse().ok()).collect();
                let is_shown = |one: &&IpAddr| asked.is_empty() || asked.contains(one);
                addresses.iter().filter(is_shown).copied().collect()
            }
        };
        let programmed = if !accepted.is_true {
            no("Programmed", "Invalid", "the Gateway is not accepted")
        } else if let Some(Wrong::Unusable(text)) = &self.given.wrong {
            no("Programmed", "AddressNotUsable", text.clone())
        } else if shown.is_empty() && self.given.own.is_some() {
            no("Programmed", "AddressNotAssigned", "no address of the pool is left")
        } else if shown.is_empty() {
            no("Programmed", "AddressNotAssigned", "no node is ready")
        } else {
            yes("Programmed", "Programmed", "")
        };
        // One's own are kept by being said.
        let is_shown = programmed.is_true || (self.given.own.is_some() && self.refused.is_none());
        let mut conditions = Conditions::new(said, generation, now);
        conditions.set(&[accepted, programmed]);
        let wants_identity = self.object.spec.tls.backend.client_certificate_ref.is_some();
        if wants_identity || conditions.has("ResolvedRefs") {
            let resolved = match &self.identity {
                Ok(_) => yes("ResolvedRefs", "ResolvedRefs", ""),
                Err((reason, text)) => no("ResolvedRefs", reason, text.clone()),
            };
            conditions.set(&[resolved]);
        }
        const INSECURE: &str = "InsecureFrontendValidationMode";
        match clients::is_anybody(self.object) {
            true => conditions.set(&[yes(
                INSECURE,
                "ConfigurationChanged",
                "clients are let in whatever certificate they have",
            )]),
            false => conditions.remove(INSECURE),
        }
        let shown: Vec<Value> = shown
            .iter()
            .filter(|_| is_shown)
            .map(|ip| json!({ "type": "IPAddress", "value": ip.to_string() }))
            .collect();
        let listeners: Vec<Value> =
            own.iter().map(|one| one.status(said, generation, now)).collect();
        let attached = (0..self.sets.len()).filter(|at| self.valid_of_set(*at).0 > 0).count();
        let mut status =
            json!({ "addresses": shown, "conditions": conditions.all(), "listeners": listeners });
        if !self.sets.is_empty() || !said["attachedListenerSets"].is_null() {
            status["attachedListenerSets"] = attached.into();
        }
        Status::unless_said(Kind::Gateway, self.key.clone(), said, status)
    }

    /// How many listeners of a set can be served, and how many it has.
    fn valid_of_set(&self, at: usize) -> (usize, usize) {
        let of_it = || self.listeners.iter().filter(|one| one.set == Some(at));
        let valid = of_it().filter(|one| one.is_valid()).count();
        (if self.refused.is_some() { 0 } else { valid }, of_it().count())
    }

    fn status_of_set(&self, at: usize, set: &Set<'_>, now: &str) -> Option<Status> {
        let (said, generation) = (&set.object.status, set.object.generation);
        let (valid, all) = self.valid_of_set(at);
        let wrong = if !set.is_allowed {
            Some(("NotAllowed", "NotAllowed", "the Gateway does not let this set in"))
        } else if self.refused.is_some() {
            Some(("ParentNotAccepted", "ParentNotProgrammed", "the Gateway is not accepted"))
        } else {
            None
        };
        let (accepted, programmed) = match wrong {
            Some((accepted, programmed, text)) => {
                (no("Accepted", accepted, text), no("Programmed", programmed, text))
            }
            None => {
                let accepted = summed("Accepted", valid, all, "not every listener can be served");
                let programmed = match accepted.is_true {
                    true => yes("Programmed", "Programmed", ""),
                    false => no("Programmed", "ListenersNotValid", "no listener can be served"),
                };
                (accepted, programmed)
            }
        };
        let mut conditions = Conditions::new(said, generation, now);
        conditions.set(&[accepted, programmed]);
        let of_it = self.listeners.iter().filter(|one| one.set == Some(at));
        let listeners: Vec<Value> = of_it.map(|one| one.status(said, generation, now)).collect();
        let status = json!({ "conditions": conditions.all(), "listeners": listeners });
        Status::unless_said(Kind::ListenerSet, set.key.clone(), said, status)
    }
}

/// All of them, some, or none.
fn summed(kind: &'static str, valid: usize, all: usize, text: &str) -> Condition {
    match valid {
        _ if valid == all => yes(kind, kind, ""),
        0 => no(kind, "ListenersNotValid", text),
        _ => yes(kind, "ListenersNotValid", text),
    }
}

impl Heard<'_> {
    pub fn is_served(&self) -> bool {
        !self.sites.is_empty()
    }

    /// Nothing is wrong with it; it may be that its Gateway has no address.
    fn is_valid(&self) -> bool {
        let is_true = |kind: &str| {
            let mut all = self.conditions.iter().filter(|one| one.kind == kind);
            all.all(|one| one.is_true)
        };
        self.is_served() || (is_true("Accepted") && is_true("ResolvedRefs"))
    }

    /// Whether its owner lets routes of this namespace and kind in.
    pub fn lets_in(&self, world: &World, namespace: &str, kind: &str) -> bool {
        let wanted = &self.spec.allowed_routes.namespaces;
        is_from(world, wanted, "Same", self.namespace, namespace) && self.kinds.contains(&kind)
    }

    fn status(&self, owner: &Value, generation: i64, now: &str) -> Value {
        let known = owner["listeners"].as_array().map(Vec::as_slice).unwrap_or_default();
        let said = known.iter().find(|one| one["name"] == self.spec.name);
        let mut conditions = Conditions::new(said.unwrap_or(&Value::Null), generation, now);
        conditions.set(&self.conditions);
        let kinds: Vec<Value> =
            self.kinds.iter().map(|kind| json!({ "group": GROUP, "kind": kind })).collect();
        json!({
            "name": self.spec.name,
            "supportedKinds": kinds,
            "attachedRoutes": self.attached,
            "conditions": conditions.all(),
        })
    }
}
