//! ValidatingAdmissionPolicy: what a request is refused for, warned of, or remembered by.
use super::compiled::{Validating, Validation};
use super::conditions::Met;
use super::counts;
use super::in_force::BoundValidating;
use super::input::{Asked, Input, Scope, in_version_of, namespace_of, request};
use super::matching::{Place, Seen, matches};
use super::parameters;
use crate::admission::Attributes;
use api::kinds::Resource;
use api::status::{Cause, Reason, Status};
use cel::{RUNTIME_BUDGET, Value as Cel};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A message that an expression makes may be so long.
const MOST_MESSAGE: usize = 5 * 1024;
const MOST_ANNOTATION: usize = 10 * 1024;
const MOST_FAILURES: usize = 50;

/// One thing that a policy has against a request.
#[derive(Debug, Clone, PartialEq)]
struct Denial {
    /// Which validation.
    index: usize,
    message: String,
    reason: String,
    took: Duration,
}

/// What one evaluation came to.
#[derive(Default)]
struct Findings {
    denials: Vec<Denial>,
    conditions: Option<Met>,
    /// What cannot be evaluated and is passed over, with how long that took.
    passed_over: Vec<(String, Duration)>,
    annotations: Vec<(String, String)>,
    /// Of annotations that could not be made: these refuse whatever the binding's actions are.
    faults: Vec<(String, Duration)>,
}

pub async fn validate(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let policies = attributes.api.policies().current();
    let seen = Seen::of(&attributes.call.resource);
    if policies.validating.is_empty() || seen == Seen::Nobody {
        return Ok(());
    }
    let place = Place::default();
    let mut refusals = Refusals::default();
    for bound in policies.validating.iter().filter(|bound| seen.by(bound.is_manifest)) {
        ask(attributes, bound, &place, &mut refusals).await?;
    }
    if !refusals.failures.is_empty() {
        refusals.failures.truncate(MOST_FAILURES);
        let value = Value::Array(refusals.failures).to_string();
        attributes.annotate("validation.policy.admission.k8s.io/validation_failure", value);
    }
    match refusals.first {
        Some((message, reason)) => Err(refusal(attributes, &message, &reason)),
        None => Ok(()),
    }
}

#[derive(Default)]
struct Refusals {
    /// What the client is told, and the reason; only the first counts.
    first: Option<(String, String)>,
    /// For the audit log.
    failures: Vec<Value>,
}

impl Refusals {
    fn refuse(&mut self, policy: &str, binding: Option<&str>, message: &str, reason: &str) {
        let with = binding.map(|name| format!(" with binding '{name}'")).unwrap_or_default();
        let message =
            format!("ValidatingAdmissionPolicy '{policy}'{with} denied request: {message}");
        self.first.get_or_insert((message, reason.to_owned()));
    }
}

/// Lets one policy have its say. What is refused whatever it says, for want of a namespace, is an error.
async fn ask(
    attributes: &mut Attributes<'_>,
    bound: &BoundValidating,
    place: &Place,
    refusals: &mut Refusals,
) -> Result<(), Status> {
    let Some(spec) = &bound.policy.spec else { return Ok(()) };
    let policy = bound.policy.metadata.name.as_deref().unwrap_or_default();
    let fails = spec.failure_policy.as_deref() != Some("Ignore");
    let misconfigured = |refusals: &mut Refusals, binding: Option<&str>, error: &str| {
        if fails {
            let what = if binding.is_some() { "binding" } else { "policy" };
            let message = format!("failed to configure {what}: {error}");
            refusals.refuse(policy, binding, &message, "");
        }
    };
    let Some(constraints) = &spec.match_constraints else {
        let error = "policy contained no match constraints, a required field";
        misconfigured(refusals, None, error);
        return Ok(());
    };
    let matched = match matches(constraints, attributes, place).await {
        Ok(Some(matched)) => matched,
        Ok(None) => return Ok(()),
        Err(error) => {
            misconfigured(refusals, None, &error);
            return Ok(());
        }
    };
    let kind = spec.param_kind.as_ref();
    if let Some(Err(error)) = kind.map(|kind| parameters::resource(attributes.api, kind)) {
        misconfigured(refusals, None, &error);
        return Ok(());
    }
    let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for binding in &bound.bindings {
        let name = binding.metadata.name.as_deref().unwrap_or_default();
        let binding_spec = &binding.spec;
        if let Some(resources) = &binding_spec.match_resources {
            match matches(resources, attributes, place).await {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(error) => {
                    misconfigured(refusals, Some(name), &error);
                    continue;
                }
            }
        }
        let reference = binding_spec.param_ref.as_ref();
        let namespace = namespace_of(attributes).to_owned();
        let params = parameters::collect(attributes.api, kind, reference, &namespace).await;
        let params = match params {
            Ok(params) => params,
            Err(error) => {
                misconfigured(refusals, Some(name), &error);
                continue;
            }
        };
        let objects = match Objects::of(attributes, &matched).await {
            Ok(objects) => objects,
            Err(error) => {
                let error = format!("failed to convert object version: {error}");
                misconfigured(refusals, Some(name), &error);
                continue;
            }
        };
        let in_namespace = place.namespace(attributes).await?;
        for params in &params {
            let findings = {
                let request = request(attributes, &matched);
                let authorizer = Asked { api: attributes.api, user: attributes.user };
                let (object, old) = objects.pair(attributes);
                evaluate(
                    &bound.compiled,
                    fails,
                    Input {
                        object,
                        old,
                        request: &request,
                        namespace: in_namespace,
                        params,
                        authorizer: &authorizer,
                    },
                )
            };
            act(attributes, policy, binding, &findings, refusals);
            for (key, value) in findings.annotations {
                let values = annotations.entry(key).or_default();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
    }
    for (key, values) in annotations {
        attributes.annotate(&format!("{policy}/{key}"), values.join(", "));
    }
    Ok(())
}

/// The objects as the version that the policy is about has them; none if that is the request's own.
struct Objects(Option<(Value, Value)>);

impl Objects {
    async fn of(attributes: &Attributes<'_>, matched: &Resource) -> Result<Objects, String> {
        let own = &attributes.call.resource;
        let foreign = attributes.call.subresource.is_some_and(|part| part.kind.is_some());
        if foreign || (own.group, own.version) == (matched.group, matched.version) {
            return Ok(Objects(None));
        }
        let old = attributes.old.unwrap_or(&Value::Null);
        let new = in_version_of(attributes, matched, attributes.new_object()).await?;
        Ok(Objects(Some((new, in_version_of(attributes, matched, old).await?))))
    }

    fn pair<'v>(&'v self, attributes: &'v Attributes<'_>) -> (&'v Value, &'v Value) {
        match &self.0 {
            Some((object, old)) => (object, old),
            None => (attributes.new_object(), attributes.old.unwrap_or(&Value::Null)),
        }
    }
}

/// Does with what was found what the binding says.
fn act(
    attributes: &mut Attributes<'_>,
    policy: &str,
    binding: &ValidatingAdmissionPolicyBinding,
    findings: &Findings,
    refusals: &mut Refusals,
) {
    let name = binding.metadata.name.as_deref().unwrap_or_default();
    let actions = &binding.spec.validation_actions;
    let registry = &attributes.api.extend().counts;
    let named = counts::Named { policy, binding: name };
    if let Some(met) = &findings.conditions {
        counts::judged(registry, policy, attributes.operation.as_str(), met);
    }
    for (message, took) in &findings.passed_over {
        counts::checked(registry, named, counts::ALLOW, message, *took);
    }
    for denial in &findings.denials {
        for action in actions {
            if let Some(action) = counts::action(action) {
                counts::checked(registry, named, action, &denial.message, denial.took);
            }
            match action.as_str() {
                "Deny" => refusals.refuse(policy, Some(name), &denial.message, &denial.reason),
                "Audit" => refusals.failures.push(json!({
                    "message": denial.message,
                    "policy": policy,
                    "binding": name,
                    "expressionIndex": denial.index,
                    "validationActions": actions,
                })),
                "Warn" => attributes.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding \
                     '{name}': {}",
                    denial.message
                )),
                _ => {}
            }
        }
    }
    for (fault, took) in &findings.faults {
        counts::checked(registry, named, "deny", fault, *took);
        refusals.refuse(policy, Some(name), fault, "");
    }
}

/// What a policy has against a request. `fails`: what cannot be evaluated counts against it.
fn evaluate(policy: &Validating, fails: bool, input: Input<'_>) -> Findings {
    let mut findings = Findings::default();
    let took = Duration::ZERO;
    let failed = |message: String| match fails {
        true => Findings {
            denials: vec![Denial { index: 0, message, reason: String::new(), took }],
            ..Findings::default()
        },
        false => Findings { passed_over: vec![(message, took)], ..Findings::default() },
    };
    let met = policy.conditions.met(input);
    let held = met.outcome.clone();
    findings.conditions = Some(met);
    match held {
        Ok(true) => {}
        Ok(false) => return findings,
        // To a policy that is passed over where it cannot be evaluated, the request does not match.
        Err(_) if !fails => return findings,
        Err(error) => return Findings { conditions: findings.conditions, ..failed(error) },
    }
    let scope = Scope::new(input, &policy.composed.variables);
    let mut budget = RUNTIME_BUDGET;
    for (index, validation) in policy.validations.iter().enumerate() {
        let begun = Instant::now();
        let outcome = match scope.evaluate(&validation.expression, &mut budget) {
            Ok(outcome) => outcome,
            Err(error) => return Findings { conditions: findings.conditions, ..failed(error) },
        };
        let took = begun.elapsed();
        match outcome {
            Ok(value) if value.as_bool() == Some(true) => {}
            Ok(_) => {
                let (message, reason) = (String::new(), validation.reason.clone());
                findings.denials.push(Denial { index, message, reason, took });
            }
            Err(message) if fails => {
                findings.denials.push(Denial { index, message, reason: String::new(), took });
            }
            Err(message) => findings.passed_over.push((message, took)),
        }
    }
    for denial in &mut findings.denials {
        if denial.message.is_empty() {
            denial.message = message(&policy.validations[denial.index], &scope, &mut budget);
        }
    }
    let mut budget = RUNTIME_BUDGET;
    for annotation in &policy.annotations {
        let begun = Instant::now();
        let outcome = match scope.evaluate(&annotation.value, &mut budget) {
            Ok(outcome) => outcome,
            Err(error) => return Findings { conditions: findings.conditions, ..failed(error) },
        };
        let took = begun.elapsed();
        match outcome {
            Ok(Cel::Null) => {}
            Ok(value) => match value.as_str().map(str::trim) {
                Some("") => {}
                Some(text) => {
                    let mut end = text.len().min(MOST_ANNOTATION);
                    while !text.is_char_boundary(end) {
                        end -= 1;
                    }
                    findings.annotations.push((annotation.key.clone(), text[..end].to_owned()));
                }
                None => {
                    let fault = format!(
                        "valueExpression '{}' resulted in unsupported return type: {}. Return type \
                         must be either string or null.",
                        annotation.value.text,
                        value.type_name()
                    );
                    findings.faults.push((fault, took));
                }
            },
            Err(error) if fails => findings.faults.push((error, took)),
            Err(_) => {}
        }
    }
    findings
}

/// What a policy that fails closed says against a request.
#[cfg(test)]
pub fn messages(policy: &Validating, input: Input<'_>) -> Vec<String> {
    evaluate(policy, true, input).denials.into_iter().map(|denial| denial.message).collect()
}

/// What the client is told of a validation that does not hold.
fn message(validation: &Validation, scope: &Scope<'_, '_>, budget: &mut u64) -> String {
    if let Some(expression) = &validation.message_expression
        && let Ok(Ok(value)) = scope.evaluate(expression, budget)
        && let Some(text) = value.as_str().map(str::trim)
        && !text.is_empty()
        && text.len() <= MOST_MESSAGE
        && !text.contains('\n')
    {
        return text.to_owned();
    }
    match validation.message.trim() {
        "" => format!("failed expression: {}", validation.expression.text.trim()),
        text => text.to_owned(),
    }
}

fn refusal(attributes: &Attributes<'_>, message: &str, reason: &str) -> Status {
    let mut status = attributes.forbidden(message);
    let reason = if reason.is_empty() { "Invalid" } else { reason };
    status.reason = Reason::from(reason);
    status.code = match reason {
        "Unauthorized" => 401,
        "Forbidden" => 403,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { message: message.to_owned(), ..Cause::default() });
    }
    status
}
