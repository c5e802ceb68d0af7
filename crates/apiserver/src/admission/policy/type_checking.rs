//! What a policy's expressions would do wrong with the kinds it is about, for the control loop that
//! tells it in the policy's status.
//!
//! An expression sees its object as JSON, and most faults show only when it is evaluated. Where the
//! rules name kinds, it is checked once more with their types; that it then fails is a warning.
use super::compiled::Composed;
use api::kinds::{Resource, find};
use cel::CompileError;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicySpec;
use serde_json::{Value, json};

/// So many kinds are looked at.
const MOST_KINDS: usize = 10;

/// The `expressionWarnings` of a policy's status.
pub fn warnings(spec: &ValidatingAdmissionPolicySpec) -> Vec<Value> {
    let kinds = kinds(spec);
    let params = spec.param_kind.is_some();
    let composed: Vec<(&Resource, Composed)> = kinds
        .into_iter()
        .map(|kind| (kind, Composed::of_kind(kind, spec.variables.as_deref(), params)))
        .collect();
    let mut warnings = Vec::new();
    for (at, validation) in spec.validations.iter().flatten().enumerate() {
        let message = validation.message_expression.as_deref().filter(|text| !text.is_empty());
        let expressions = [
            ("expression", Some(validation.expression.as_str()), true),
            ("messageExpression", message, false),
        ];
        for (field, expression, authorizer) in expressions {
            let Some(expression) = expression else { continue };
            let mut faults = String::new();
            for (kind, composed) in &composed {
                let environment = composed.environment(authorizer, false);
                if let Err(CompileError::Issues(issues)) = environment.compile(expression, &[]) {
                    let (version, kind) = (kind.api_version(), kind.kind);
                    faults += &format!("{version}, Kind={kind}: {issues}\n");
                }
            }
            if !faults.is_empty() {
                let place = format!("spec.validations[{at}].{field}");
                warnings.push(json!({ "fieldRef": place, "warning": faults }));
            }
        }
    }
    warnings
}

/// The kinds that the rules name, by name and not by a star.
fn kinds(spec: &ValidatingAdmissionPolicySpec) -> Vec<&'static Resource> {
    let mut kinds: Vec<&'static Resource> = Vec::new();
    let constraints = spec.match_constraints.as_ref();
    let rules = constraints.and_then(|constraints| constraints.resource_rules.as_deref());
    for rule in rules.unwrap_or_default() {
        for group in rule.api_groups.iter().flatten() {
            for version in rule.api_versions.iter().flatten() {
                for plural in rule.resources.iter().flatten() {
                    let known =
                        |kind: &Resource| kinds.iter().any(|seen| std::ptr::eq(*seen, kind));
                    match find(group, version, plural) {
                        Some(kind) if !known(kind) && kinds.len() < MOST_KINDS => kinds.push(kind),
                        _ => {}
                    }
                }
            }
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_named_kinds_are_minded() {
        let spec = json!({
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
            }]},
            "variables": [{ "name": "n", "expression": "object.spec.replicas" }],
            "validations": [
                { "expression": "object.spec.replicas > '1'", "messageExpression": "'got ' + variables.n" },
                { "expression": "variables.n > 1 && object.metadata.labels.all(k, k != 'x')" },
                { "expression": "object.spec.nope < 10" },
            ],
        });
        let spec = serde_json::from_value(spec).expect("a spec");
        let found: Vec<String> = warnings(&spec)
            .iter()
            .map(|warning| {
                let text = warning["warning"].as_str().unwrap_or_default();
                format!(
                    "{}: {}",
                    warning["fieldRef"].as_str().unwrap_or_default(),
                    text.lines().next().unwrap_or_default()
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                "spec.validations[0].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'",
                "spec.validations[0].messageExpression: apps/v1, Kind=Deployment: ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(string, int)'",
                "spec.validations[2].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'nope'",
            ]
        );
    }
}
