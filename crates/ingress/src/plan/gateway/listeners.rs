//! A Gateway's listeners: which can be served, who may be behind them, and what is said about them.
use super::conditions::{Condition, Conditions, no, yes};
use super::types::{Address, Custom, GatewaySpec, Listener};
use super::{GROUP, references};
use crate::GATEWAY_CONTROLLER;
use crate::host::{Depth, Pattern};
use crate::plan::{Kind, Status, World};
use crate::table::{Certificate, Table};
use api::names::NamespacedName;
use api::selector::label::Selector;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;

/// A Gateway of ours.
pub struct Gateway<'w> {
    pub key: &'w NamespacedName,
    pub object: &'w Custom<GatewaySpec>,
    pub listeners: Vec<Heard<'w>>,
}

/// One of its listeners, and what became of it.
pub struct Heard<'w> {
    pub spec: &'w Listener,
    pub host: Pattern,
    /// Hosts that other listeners of the Gateway name better.
    pub except: Arc<[Pattern]>,
    pub kinds: Vec<&'static str>,
    /// Routes get through it.
    pub is_served: bool,
    pub attached: usize,
    conditions: Vec<Condition>,
}

/// All Gateways of ours, the oldest first; their ports and certificates are in the table.
pub fn all<'w>(world: &'w World, table: &mut Table) -> Vec<Gateway<'w>> {
    let objects = &world.gateway;
    let is_ours = |object: &Custom<GatewaySpec>| {
        let class = objects.classes.get(&object.spec.gateway_class_name);
        class.is_some_and(|class| class.spec.controller_name == GATEWAY_CONTROLLER)
    };
    let mut ours: Vec<_> = objects.gateways.iter().filter(|(_, object)| is_ours(object)).collect();
    ours.sort_by_key(|(key, object)| (object.created, *key));
    let gateway = |(key, object): (&'w NamespacedName, &'w Arc<Custom<GatewaySpec>>)| {
        let specs = &object.spec.listeners;
        let listeners = specs.iter().map(|spec| hear(world, key, object, spec, table));
        let mut gateway = Gateway { key, object, listeners: listeners.collect() };
        gateway.isolate();
        gateway
    };
    ours.into_iter().map(gateway).collect()
}

/// What a listener of this protocol can have behind it.
fn kinds_of(protocol: &str) -> &'static [&'static str] {
    match protocol {
        "HTTP" | "HTTPS" => &["HTTPRoute", "GRPCRoute"],
        "TLS" => &["TLSRoute"],
        _ => &[],
    }
}

fn hear<'w>(
    world: &'w World,
    key: &'w NamespacedName,
    object: &Custom<GatewaySpec>,
    spec: &'w Listener,
    table: &mut Table,
) -> Heard<'w> {
    let host = Pattern::parse(spec.hostname.as_deref().unwrap_or_default(), Depth::Many);
    let able = kinds_of(&spec.protocol);
    let asked = &spec.allowed_routes.kinds;
    let is_known = |kind: &str| {
        asked.iter().any(|one| one.group.as_deref().unwrap_or(GROUP) == GROUP && one.kind == kind)
    };
    let kinds: Vec<&'static str> =
        able.iter().copied().filter(|kind| asked.is_empty() || is_known(kind)).collect();
    let others_asked = asked.len() > kinds.len() && !asked.is_empty();

    let conflict = conflict(&object.spec.listeners, spec);
    let is_tls = spec.protocol != "HTTP";
    let is_passed = spec.tls.as_ref().and_then(|tls| tls.mode.as_deref()) == Some("Passthrough");
    let is_taken = table.ports.get(&spec.port).is_some_and(|port| port.tls.is_some() != is_tls);
    let accepted = if able.is_empty() {
        Err(("UnsupportedProtocol", format!("protocol {} is not served", spec.protocol)))
    } else if (spec.protocol == "TLS") != is_passed {
        let text = "TLS is passed on by listeners of TLS, and ended by those of HTTPS";
        Err(("UnsupportedValue", text.to_owned()))
    } else if let Some((reason, text)) = &conflict {
        Err((*reason, text.clone()))
    } else if is_taken {
        let other = if is_tls { "without" } else { "with" };
        Err(("PortUnavailable", format!("port {} is served {other} TLS already", spec.port)))
    } else {
        Ok(())
    };
    let certificates = match spec.protocol.as_str() {
        "HTTPS" if accepted.is_ok() => certificates(world, key, spec),
        _ => Ok(Vec::new()),
    };
    let resolved = match &certificates {
        Err((reason, text)) => Err((*reason, text.clone())),
        Ok(_) if others_asked => {
            Err(("InvalidRouteKinds", "not all kinds of routes are known".to_owned()))
        }
        Ok(_) => Ok(()),
    };
    let is_served = accepted.is_ok() && certificates.is_ok();
    if is_served {
        let port = table.ports.entry(spec.port).or_default();
        if is_tls {
            let tls = port.tls.get_or_insert_default();
            for certificate in certificates.unwrap_or_default() {
                tls.certificates.insert(&host, certificate);
            }
            if !is_passed {
                tls.listeners.insert(&host, host.clone());
            }
        }
    }
    let told =
        |kind, good: &'static str, outcome: &Result<(), (&'static str, String)>| match outcome {
            Ok(()) => yes(kind, good, ""),
            Err((reason, text)) => no(kind, reason, text.clone()),
        };
    let conditions = vec![
        told("Accepted", "Accepted", &accepted),
        match is_served {
            true => yes("Programmed", "Programmed", ""),
            false => no("Programmed", "Invalid", "the listener is not served"),
        },
        told("ResolvedRefs", "ResolvedRefs", &resolved),
        match conflict {
            Some((reason, text)) => {
                Condition { kind: "Conflicted", is_true: true, reason, message: text }
            }
            None => no("Conflicted", "NoConflicts", ""),
        },
    ];
    Heard { spec, host, except: Arc::default(), kinds, is_served, attached: 0, conditions }
}

/// What keeps a listener from being served beside the others of its Gateway: the first of two is.
fn conflict(all: &[Listener], spec: &Listener) -> Option<(&'static str, String)> {
    let before = all.iter().take_while(|other| !std::ptr::eq(*other, spec));
    let mut same_port = before.filter(|other| other.port == spec.port);
    same_port.find_map(|other| {
        if (other.protocol == "HTTP") != (spec.protocol == "HTTP") {
            let text = format!("listener {} has the same port and another protocol", other.name);
            return Some(("ProtocolConflict", text));
        }
        let host = |one: &Listener| one.hostname.clone().unwrap_or_default().to_ascii_lowercase();
        (host(other) == host(spec)).then(|| {
            ("HostnameConflict", format!("listener {} has the same port and host", other.name))
        })
    })
}

fn certificates(
    world: &World,
    key: &NamespacedName,
    spec: &Listener,
) -> Result<Vec<Certificate>, (&'static str, String)> {
    let refs = spec.tls.as_ref().map(|tls| tls.certificate_refs.as_slice()).unwrap_or_default();
    if refs.is_empty() {
        return Err(("InvalidCertificateRef", "there is no certificate".to_owned()));
    }
    let one = |reference: &super::types::Reference| {
        if !reference.is("", "Secret", "Secret") {
            return Err(("InvalidCertificateRef", "a certificate is a Secret".to_owned()));
        }
        let secret = reference.key(&key.namespace);
        if !references::may(&world.gateway, "Gateway", &key.namespace, "", "Secret", &secret) {
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
        let known: Vec<(u16, Pattern)> = self
            .listeners
            .iter()
            .filter(|one| one.is_served)
            .map(|one| (one.spec.port, one.host.clone()))
            .collect();
        for listener in &mut self.listeners {
            let better = known.iter().filter(|(port, host)| {
                *port == listener.spec.port && host.weight() > listener.host.weight()
            });
            let better = better.map(|(_, host)| host);
            listener.except =
                better.filter(|host| listener.host.and(host).is_some()).cloned().collect();
        }
    }

    /// Whether the owner of a listener lets routes of this namespace and kind in.
    pub fn lets_in(
        &self,
        world: &World,
        listener: &Heard<'_>,
        namespace: &str,
        kind: &str,
    ) -> bool {
        let namespaces = &listener.spec.allowed_routes.namespaces;
        let is_from = match namespaces.from.as_deref().unwrap_or("Same") {
            "All" => true,
            "Selector" => {
                let labels = world.namespaces.get(namespace).map(|facts| &facts.labels);
                let selector = Selector::from_label_selector(namespaces.selector.as_ref());
                matches!((selector, labels), (Ok(selector), Some(labels)) if selector.matches(labels))
            }
            "Same" => *namespace == *self.key.namespace,
            _ => false,
        };
        is_from && listener.kinds.contains(&kind)
    }

    pub fn status(&self, addresses: &[IpAddr], now: &str) -> Option<Status> {
        let (said, generation) = (&self.object.status, self.object.generation);
        let valid = self.listeners.iter().filter(|one| one.is_served).count();
        let wrong = self.object.spec.addresses.iter().find_map(|one| unusable(one, addresses));
        let accepted = if self.object.spec.infrastructure.parameters_ref.is_some() {
            no("Accepted", "InvalidParameters", "Gateways take no parameters")
        } else if let Some((false, text)) = &wrong {
            no("Accepted", "UnsupportedAddress", text.clone())
        } else if valid == self.listeners.len() {
            yes("Accepted", "Accepted", "")
        } else {
            let text = "not every listener can be served";
            match valid {
                0 => no("Accepted", "ListenersNotValid", text),
                _ => yes("Accepted", "ListenersNotValid", text),
            }
        };
        let programmed = if !accepted.is_true {
            no("Programmed", "Invalid", "the Gateway is not accepted")
        } else if let Some((true, text)) = wrong {
            no("Programmed", "AddressNotUsable", text)
        } else if addresses.is_empty() {
            no("Programmed", "AddressNotAssigned", "no node is ready")
        } else {
            yes("Programmed", "Programmed", "")
        };
        let is_programmed = programmed.is_true;
        let mut conditions = Conditions::new(said, generation, now);
        conditions.set(&[accepted, programmed]);
        let shown = addresses.iter().filter(|_| is_programmed);
        let shown: Vec<Value> =
            shown.map(|ip| json!({ "type": "IPAddress", "value": ip.to_string() })).collect();
        let listeners: Vec<Value> =
            self.listeners.iter().map(|one| one.status(said, generation, now)).collect();
        let status =
            json!({ "addresses": shown, "conditions": conditions.all(), "listeners": listeners });
        Status::unless_said(Kind::Gateway, self.key.clone(), said, status)
    }
}

/// Why an address that is asked for cannot be had, and whether it is one that others could.
fn unusable(asked: &Address, addresses: &[IpAddr]) -> Option<(bool, String)> {
    if asked.r#type.as_deref().unwrap_or("IPAddress") != "IPAddress" {
        return Some((false, "only addresses of type IPAddress are known".to_owned()));
    }
    let is_there = asked.value.is_empty()
        || asked.value.parse().is_ok_and(|asked: IpAddr| addresses.contains(&asked));
    (!is_there).then(|| (true, format!("no node has the address {}", asked.value)))
}

impl Heard<'_> {
    fn status(&self, gateway: &Value, generation: i64, now: &str) -> Value {
        let known = gateway["listeners"].as_array().map(Vec::as_slice).unwrap_or_default();
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
