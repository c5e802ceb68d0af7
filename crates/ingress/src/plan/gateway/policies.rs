//! BackendTLSPolicy: TLS between us and pods, and whom pods have to prove to be.
use super::clients;
use super::conditions::{Condition, Conditions, no, yes};
use super::listeners::Gateway;
use super::types::{Custom, PolicySpec, SubjectAltName};
use crate::GATEWAY_CONTROLLER;
use crate::facts::ServiceFacts;
use crate::plan::{Kind, Plan, Status, World};
use crate::table::{Alternative, Verified};
use api::names::NamespacedName;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a policy comes to: what pods prove, or why nobody can tell.
type Outcome = Result<Arc<Verified>, (&'static str, String)>;

pub struct Policies<'w> {
    /// By service and name of its port, the oldest first; no name: all ports.
    by_service: BTreeMap<(NamespacedName, Option<String>), Vec<&'w NamespacedName>>,
    outcomes: BTreeMap<&'w NamespacedName, Outcome>,
}

impl<'w> Policies<'w> {
    pub fn new(world: &'w World) -> Policies<'w> {
        let mut all: Vec<_> = world.gateway.policies.iter().collect();
        all.sort_by_key(|(key, policy)| (policy.created, *key));
        let mut policies = Policies { by_service: BTreeMap::new(), outcomes: BTreeMap::new() };
        for (key, policy) in all {
            let of_services = policy.spec.target_refs.iter();
            for target in of_services.filter(|one| one.group.is_empty() && one.kind == "Service") {
                let service = NamespacedName::new(&key.namespace, &target.name);
                let port = (service, target.section_name.clone());
                policies.by_service.entry(port).or_default().push(key);
            }
            policies.outcomes.insert(key, verified(world, key, policy));
        }
        policies
    }

    /// The policy of a service's port: that of the port before that of all, the oldest of several.
    fn key(&self, service: &NamespacedName, port: &str) -> Option<&'w NamespacedName> {
        let of = |name: Option<String>| {
            self.by_service.get(&(service.clone(), name)).and_then(|all| all.first().copied())
        };
        of(Some(port.to_owned())).or_else(|| of(None))
    }

    /// What pods behind this port prove, if they have to; an error: nobody can tell.
    pub fn of(
        &self,
        service: &NamespacedName,
        facts: &ServiceFacts,
        number: u16,
    ) -> Result<Option<Arc<Verified>>, ()> {
        let port = facts.ports.iter().find(|port| port.number == number);
        let port = port.map(|port| port.name.as_str()).unwrap_or_default();
        match self.key(service, port).map(|key| &self.outcomes[key]) {
            None => Ok(None),
            Some(Ok(verified)) => Ok(Some(verified.clone())),
            Some(Err(_)) => Err(()),
        }
    }

    /// Another, older one is for the same.
    fn is_overruled(&self, key: &NamespacedName, policy: &PolicySpec) -> bool {
        policy.target_refs.iter().any(|target| {
            let service = NamespacedName::new(&key.namespace, &target.name);
            let all = self.by_service.get(&(service, target.section_name.clone()));
            all.and_then(|all| all.first()).is_some_and(|first| *first != key)
        })
    }
}

fn verified(world: &World, key: &NamespacedName, policy: &Custom<PolicySpec>) -> Outcome {
    let validation = &policy.spec.validation;
    let authorities = match validation.well_known.as_deref() {
        Some("System") => None,
        Some(other) => return Err(("Invalid", format!("nobody knows the authorities {other}"))),
        None => {
            let mut text = String::new();
            for reference in &validation.ca_certificate_refs {
                if !reference.is("", "ConfigMap", "") {
                    let kind = reference.kind.as_deref().unwrap_or_default();
                    return Err(("InvalidKind", format!("authorities are not read from a {kind}")));
                }
                let map = NamespacedName::new(&key.namespace, &reference.name);
                let Some(found) = clients::certificates_of(world, &map) else {
                    let text = format!("configmap {map} has no certificates as ca.crt");
                    return Err(("InvalidCACertificateRef", text));
                };
                text.push_str(found);
                text.push('\n');
            }
            Some(text)
        }
    };
    let name = |one: &SubjectAltName| match one.r#type.as_str() {
        "Hostname" => Ok(Alternative::Host(one.hostname.clone())),
        "URI" => Ok(Alternative::Uri(one.uri.clone())),
        other => Err(("Invalid", format!("nobody knows names of type {other}"))),
    };
    let alternatives = validation.subject_alt_names.iter().map(name);
    Ok(Arc::new(Verified {
        name: validation.hostname.clone(),
        alternatives: alternatives.collect::<Result<_, _>>()?,
        authorities,
        identity: None,
    }))
}

/// What is said about policies, to every Gateway of ours: any of them may lead to their services.
pub fn statuses(
    world: &World,
    gateways: &[Gateway<'_>],
    policies: &Policies<'_>,
    now: &str,
    plan: &mut Plan,
) {
    for (key, policy) in &world.gateway.policies {
        let known = policy.status["ancestors"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (ours, others): (Vec<&Value>, Vec<&Value>) =
            known.iter().partition(|one| one["controllerName"] == GATEWAY_CONTROLLER);
        if ours.is_empty() && gateways.is_empty() {
            continue;
        }
        let mut ancestors: Vec<Value> = others.into_iter().cloned().collect();
        // The API takes sixteen: first those through which somebody comes to the service.
        let reaches = |gateway: &&Gateway<'_>| {
            policy.spec.target_refs.iter().any(|target| {
                gateway.reached.contains(&NamespacedName::new(&key.namespace, &target.name))
            })
        };
        let (near, far): (Vec<_>, Vec<_>) = gateways.iter().partition(reaches);
        for gateway in near.into_iter().chain(far).take(16_usize.saturating_sub(ancestors.len())) {
            let shown = json!({
                "group": super::GROUP,
                "kind": "Gateway",
                "namespace": *gateway.key.namespace,
                "name": *gateway.key.name,
            });
            let before = ours.iter().find(|one| one["ancestorRef"] == shown);
            let before = before.copied().unwrap_or(&Value::Null);
            let mut conditions = Conditions::new(before, policy.generation, now);
            conditions.set(&said(policies, key, policy));
            ancestors.push(json!({
                "ancestorRef": shown,
                "controllerName": GATEWAY_CONTROLLER,
                "conditions": conditions.all(),
            }));
        }
        let status = json!({ "ancestors": ancestors });
        let status =
            Status::unless_said(Kind::BackendTlsPolicy, key.clone(), &policy.status, status);
        plan.statuses.extend(status);
    }
}

fn said(
    policies: &Policies<'_>,
    key: &NamespacedName,
    policy: &Custom<PolicySpec>,
) -> Vec<Condition> {
    let outcome = policies.outcomes.get(key);
    let resolved = match outcome {
        Some(Err((reason @ ("InvalidKind" | "InvalidCACertificateRef"), text))) => {
            no("ResolvedRefs", reason, text.clone())
        }
        _ => yes("ResolvedRefs", "ResolvedRefs", ""),
    };
    let accepted = match outcome {
        Some(Err(("Invalid", text))) => no("Accepted", "Invalid", text.clone()),
        Some(Err((_, text))) => no("Accepted", "NoValidCACertificate", text.clone()),
        _ if policies.is_overruled(key, &policy.spec) => {
            no("Accepted", "Conflicted", "an older policy is for the same service")
        }
        _ => yes("Accepted", "Accepted", ""),
    };
    vec![accepted, resolved]
}
