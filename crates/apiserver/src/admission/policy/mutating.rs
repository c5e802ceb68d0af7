//! MutatingAdmissionPolicy: changes that policies make to what is written.
use super::counts;
use super::in_force::BoundMutating;
use super::input::{Asked, Input, Scope, in_version_of, namespace_of, request};
use super::matching::{Place, Seen, matches};
use super::mutation::{self, Fault};
use super::parameters;
use crate::admission::webhook::Named;
use crate::admission::{Attributes, Operation};
use api::kinds::ResourceRef;
use api::status::{Cause, Reason, Status};
use serde_json::Value;
use std::time::Instant;

/// A policy with one binding and one parameter, for one request.
struct Invocation<'p> {
    bound: &'p BoundMutating,
    binding: &'p str,
    matched: ResourceRef,
    params: Value,
}

impl Invocation<'_> {
    /// What tells it from all others of the request.
    fn name(&self) -> String {
        let policy = self.bound.policy.metadata.name.as_deref().unwrap_or_default();
        let of_params = |name: &str| self.params["metadata"][name].as_str().unwrap_or_default();
        let (namespace, name) = (of_params("namespace"), of_params("name"));
        format!("{policy}/{}/{namespace}/{name}", self.binding)
    }

    fn may_be_repeated(&self) -> bool {
        let spec = self.bound.policy.spec.as_ref();
        spec.and_then(|spec| spec.reinvocation_policy.as_deref()) == Some("IfNeeded")
    }
}

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let policies = attributes.api.policies().current();
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    let seen = Seen::of(&attributes.call.resource);
    if policies.mutating.is_empty() || !writes || seen == Seen::Nobody {
        return Ok(());
    }
    let place = Place::default();
    let mut errors = Errors::default();
    let mut invocations = Vec::new();
    for bound in policies.mutating.iter().filter(|bound| seen.by(bound.is_manifest)) {
        select(attributes, bound, &place, &mut invocations, &mut errors).await;
    }
    if !invocations.is_empty() {
        let namespace = place.namespace(attributes).await?;
        dispatch(attributes, &invocations, namespace, &mut errors).await?;
    }
    errors.refusal(attributes)
}

/// One policy after the other, each seeing what those before it changed. A policy that wants to see what
/// others changed is asked again in the second round, and then only (`mutating/dispatcher.go`).
async fn dispatch(
    attributes: &mut Attributes<'_>,
    invocations: &[Invocation<'_>],
    namespace: &Value,
    errors: &mut Errors,
) -> Result<(), Status> {
    if attributes.reinvocation.is_again {
        attributes.reinvocation.policies.begin_again(attributes.object.as_deref());
    }
    let mut patched = false;
    for invocation in invocations {
        let Some(done) = invoke(attributes, invocation, namespace, errors).await? else { continue };
        let seen = &mut attributes.reinvocation.policies;
        patched |= done.patched;
        if done.changed {
            seen.object_changed();
        }
        if invocation.may_be_repeated() {
            seen.has_asked(invocation.name());
        }
    }
    if patched {
        // Whoever patched the object is one of those who have not seen what became of it: a policy that may be
        // repeated is, even if it was alone.
        attributes.reinvocation.wanted = true;
        attributes.reinvocation.policies.object_changed();
    }
    attributes.reinvocation.policies.leave(attributes.object.as_deref());
    Ok(())
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
    let matched = match matches(constraints, attributes, place).await {
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
            match matches(resources, attributes, place).await {
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
            })),
            Err(error) => errors.configuration(bound, Some(name), &error),
        }
    }
}

/// What a policy did.
struct Done {
    /// A mutation came to something, be it what was there before.
    patched: bool,
    changed: bool,
}

/// Calls a policy; none if its conditions or the round leave it out.
async fn invoke(
    attributes: &mut Attributes<'_>,
    invocation: &Invocation<'_>,
    namespace: &Value,
    errors: &mut Errors,
) -> Result<Option<Done>, Status> {
    let (matched, own) = (&invocation.matched, &attributes.call.resource);
    let Some(object) = attributes.object.as_deref() else { return Ok(None) };
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
            return Ok(None);
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
        namespace,
        params: &invocation.params,
        authorizer: &authorizer,
    };
    let binding = Some(invocation.binding);
    let its_policy = invocation.bound.policy.metadata.name.as_deref().unwrap_or_default();
    let registry = &attributes.api.extend().counts;
    let met = policy.conditions.met(Input { object: &new, ..input });
    counts::judged(registry, its_policy, attributes.operation.as_str(), &met);
    match met.outcome {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(error) => {
            errors.push(invocation.bound, binding, &error, Reason::Invalid);
            return Ok(None);
        }
    }
    let reinvocation = &attributes.reinvocation;
    if reinvocation.is_again && reinvocation.policies.spares(&invocation.name()) {
        return Ok(None);
    }
    // A scale and the like are of other types than their resource.
    let target = Named::of(matched, attributes.call.subresource);
    let mut patched = false;
    let counted = counts::Named { policy: its_policy, binding: invocation.binding };
    for mutation in &policy.mutations {
        let begun = Instant::now();
        let outcome = {
            let scope = Scope::new(Input { object: &new, ..input }, &policy.composed.variables);
            mutation::apply(mutation, &scope, &new, &target)
        };
        let error = outcome.as_ref().err().map(Fault::message);
        counts::mutated(registry, counted, error, begun.elapsed());
        match outcome {
            Ok(after) => (new, patched) = (after, true),
            Err(Fault::Failed(error)) => {
                errors.push(invocation.bound, binding, &error, Reason::Invalid);
            }
            Err(Fault::Refused(status)) => return Err(*status),
        }
    }
    let changed = new != before;
    if changed {
        let back = if same { Ok(new) } else { in_version_of(attributes, own, &new).await };
        let back = back.map_err(|error| {
            Status::internal_error(format!("failed to convert object: {error}"))
        })?;
        if let Some(object) = attributes.object.as_deref_mut() {
            *object = back;
        }
    }
    Ok(Some(Done { patched, changed }))
}
