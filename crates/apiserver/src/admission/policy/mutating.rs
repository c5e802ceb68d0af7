//! MutatingAdmissionPolicy: changes that policies make to what is written.
use super::in_force::BoundMutating;
use super::input::{Asked, Input, Scope, in_version_of, namespace_of, request};
use super::matching::{Place, is_exempt, matches};
use super::mutation;
use super::parameters;
use crate::admission::{Attributes, Operation};
use api::kinds::ResourceRef;
use api::rules::defaults;
use api::status::{Cause, Reason, Status};
use serde_json::Value;

/// A policy with one binding and one parameter, for one request.
struct Invocation<'p> {
    bound: &'p BoundMutating,
    binding: &'p str,
    matched: ResourceRef,
    params: Value,
    /// Whether it was called, and whether something has changed the object since.
    called: bool,
    outdated: bool,
}

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let policies = attributes.api.policies().current();
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if policies.mutating.is_empty() || !writes || is_exempt(&attributes.call.resource) {
        return Ok(());
    }
    let place = Place::of(attributes).await?;
    let mut errors = Errors::default();
    let mut invocations = Vec::new();
    for bound in &policies.mutating {
        select(attributes, bound, &place, &mut invocations, &mut errors).await;
    }
    // Whoever wants to see what others changed is called once more.
    for again in [false, true] {
        for at in 0..invocations.len() {
            let spec = invocations[at].bound.policy.spec.as_ref();
            let if_needed = spec.and_then(|spec| spec.reinvocation_policy.as_deref());
            let stale = invocations[at].called && invocations[at].outdated;
            if again && !(stale && if_needed == Some("IfNeeded")) {
                continue;
            }
            if invoke(attributes, &mut invocations[at], &place, &mut errors).await {
                for (other, invocation) in invocations.iter_mut().enumerate() {
                    invocation.outdated |= other != at;
                }
            }
        }
    }
    errors.refusal(attributes)
}

#[derive(Default)]
struct Errors(Vec<(String, Reason)>);

impl Errors {
    fn push(&mut self, bound: &BoundMutating, binding: Option<&str>, error: &str, reason: Reason) {
        let spec = bound.policy.spec.as_ref();
        if spec.and_then(|spec| spec.failure_policy.as_deref()) == Some("Ignore") {
            return;
        }
        let policy = bound.policy.metadata.name.as_deref().unwrap_or_default();
        let message = match binding {
            Some(binding) => {
                format!("policy '{policy}' with binding '{binding}' denied request: {error}")
            }
            None => format!("policy {policy:?} denied request: {error}"),
        };
        self.0.push((message, reason));
    }

    fn configuration(&mut self, bound: &BoundMutating, binding: Option<&str>, error: &str) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        let error = format!("failed to configure {what}: {error}");
        self.push(bound, binding, &error, Reason::Unknown);
    }

    fn refusal(self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let Some((message, reason)) = self.0.first() else { return Ok(()) };
        let mut status = attributes.forbidden("");
        status.message.clone_from(message);
        if *reason != Reason::Unknown {
            status.reason = reason.clone();
        }
        if let Some(details) = &mut status.details {
            let cause = |(message, _)| Cause { message, ..Cause::default() };
            details.causes.extend(self.0.into_iter().map(cause));
        }
        Err(status)
    }
}

/// The invocations of one policy, one for each binding and parameter.
async fn select<'p>(
    attributes: &Attributes<'p>,
    bound: &'p BoundMutating,
    place: &Place,
    invocations: &mut Vec<Invocation<'p>>,
    errors: &mut Errors,
) {
    let Some(spec) = &bound.policy.spec else { return };
    let Some(constraints) = &spec.match_constraints else {
        let error = "policy contained no match constraints, a required field";
        return errors.configuration(bound, None, error);
    };
    let matched = match matches(constraints, attributes, place) {
        Ok(Some(matched)) => matched,
        Ok(None) => return,
        Err(error) => return errors.configuration(bound, None, &error),
    };
    let kind = spec.param_kind.as_ref();
    if let Some(Err(error)) = kind.map(|kind| parameters::resource(attributes.api, kind)) {
        return errors.configuration(bound, None, &error);
    }
    for binding in &bound.bindings {
        let name = binding.metadata.name.as_deref().unwrap_or_default();
        let Some(binding_spec) = &binding.spec else { continue };
        if let Some(resources) = &binding_spec.match_resources {
            match matches(resources, attributes, place) {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(error) => {
                    errors.configuration(bound, Some(name), &error);
                    continue;
                }
            }
        }
        let reference = binding_spec.param_ref.as_ref();
        let namespace = namespace_of(attributes);
        match parameters::collect(attributes.api, kind, reference, namespace).await {
            Ok(params) => invocations.extend(params.into_iter().map(|params| Invocation {
                bound,
                binding: name,
                matched: matched.clone(),
                params,
                called: false,
                outdated: false,
            })),
            Err(error) => errors.configuration(bound, Some(name), &error),
        }
    }
}

/// Calls a policy; true if it changed the object.
async fn invoke(
    attributes: &mut Attributes<'_>,
    invocation: &mut Invocation<'_>,
    place: &Place,
    errors: &mut Errors,
) -> bool {
    let (matched, own) = (&invocation.matched, &attributes.call.resource);
    let Some(object) = attributes.object.as_deref() else { return false };
    let same = (own.group, own.version) == (matched.group, matched.version);
    let was = attributes.old.unwrap_or(&Value::Null);
    let converted = match same {
        true => (Ok(object.clone()), Ok(was.clone())),
        false => (
            in_version_of(attributes, matched, object).await,
            in_version_of(attributes, matched, was).await,
        ),
    };
    let (mut new, old) = match converted {
        (Ok(new), Ok(old)) => (new, old),
        (Err(error), _) | (_, Err(error)) => {
            errors.configuration(invocation.bound, None, &error);
            return false;
        }
    };
    let before = new.clone();
    let policy = &invocation.bound.compiled;
    let request = request(attributes, matched);
    let authorizer = Asked { api: attributes.api, user: attributes.user };
    let input = Input {
        object: &Value::Null,
        old: &old,
        request: &request,
        namespace: &place.namespace,
        params: &invocation.params,
        authorizer: &authorizer,
    };
    let binding = Some(invocation.binding);
    match policy.conditions.met(Input { object: &new, ..input }) {
        Ok(true) => {}
        Ok(false) => return false,
        Err(error) => {
            errors.push(invocation.bound, binding, &error, Reason::Invalid);
            return false;
        }
    }
    // A scale and the like are of other types than their resource.
    let foreign = attributes.call.subresource.and_then(|part| part.kind);
    let ty = foreign.map_or_else(|| matched.ty(), |foreign| foreign.ty());
    for mutation in &policy.mutations {
        let outcome = {
            let scope = Scope::new(Input { object: &new, ..input }, &policy.composed.variables);
            mutation::apply(mutation, &scope, &new, ty)
        };
        match outcome {
            Ok(mut changed) => {
                match foreign {
                    Some(_) => defaults::set(&mut changed, ty),
                    None => matched.set_defaults(&mut changed),
                }
                new = changed;
            }
            Err(error) => errors.push(invocation.bound, binding, &error, Reason::Invalid),
        }
    }
    invocation.called = true;
    invocation.outdated = false;
    if new == before {
        return false;
    }
    let back = if same { Ok(new) } else { in_version_of(attributes, own, &new).await };
    match (back, attributes.object.as_deref_mut()) {
        (Ok(new), Some(object)) => {
            *object = new;
            true
        }
        (Err(error), _) => {
            errors.configuration(invocation.bound, binding, &error);
            false
        }
        _ => false,
    }
}
