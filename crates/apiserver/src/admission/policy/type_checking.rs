//! What a policy's expressions would do wrong with the kinds it is about, for the control loop that
//! tells it in the policy's status.
//!
//! An expression sees its object as JSON, and most faults show only when it is evaluated. Where the
//! rules name kinds, it is checked once more with their types; that it then fails is a warning
//! (`apiserver/pkg/admission/plugin/policy/validating/typechecking.go`).
use super::compiled::Composed;
use api::kinds::{Registry, Resource, ResourceRef};
use cel::CompileError;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicySpec;
use serde_json::{Value, json};

/// So many kinds that one rule names are looked at; the rules behind it are not, then.
const MOST_KINDS: usize = 10;

/// The `expressionWarnings` of a policy's status, for the kinds that are known.
pub fn warnings(spec: &ValidatingAdmissionPolicySpec, registry: &Registry) -> Vec<Value> {
    let kinds = kinds(spec, registry);
    let params = spec.param_kind.is_some();
    let composed: Vec<(&ResourceRef, Composed)> = kinds
        .into_iter()
        .map(|kind| (kind, Composed::of_kind(kind, spec.variables.as_deref(), params)))
        .collect();
    let mut warnings = Vec::new();
    for (at, validation) in spec.validations.iter().flatten().enumerate() {
        let message = validation.message_expression.as_deref().filter(|text| !text.is_empty());
        let expressions =
            [("expression", Some(validation.expression.as_str())), ("messageExpression", message)];
        for (field, expression) in expressions {
            let Some(expression) = expression else { continue };
            let mut faults = Vec::new();
            for (kind, composed) in &composed {
                let environment = composed.environment(true, false);
                if let Err(CompileError::Issues(issues)) = environment.compile(expression, &[]) {
                    let Resource { group, version, kind, .. }: &Resource = kind;
                    faults.push(format!("{group}/{version}, Kind={kind}: {issues}\n"));
                }
            }
            if !faults.is_empty() {
                let place = format!("spec.validations[{at}].{field}");
                warnings.push(json!({ "fieldRef": place, "warning": faults.join("\n") }));
            }
        }
    }
    warnings
}

/// The kinds that the rules name, in the order of their names. A rule with a star among its groups or versions
/// names none; resources with a star, and parts of others, are passed over.
fn kinds<'r>(spec: &ValidatingAdmissionPolicySpec, registry: &'r Registry) -> Vec<&'r ResourceRef> {
    let mut kinds: Vec<&'r ResourceRef> = Vec::new();
    let constraints = spec.match_constraints.as_ref();
    let rules = constraints.and_then(|constraints| constraints.resource_rules.as_deref());
    for rule in rules.unwrap_or_default() {
        let (groups, versions) =
            (sorted(rule.api_groups.as_deref()), sorted(rule.api_versions.as_deref()));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        let mut resources = sorted(rule.resources.as_deref());
        resources.retain(|name| !name.contains(['*', '/']));
        let each = groups.iter().flat_map(|group| versions.iter().map(move |v| (*group, *v)));
        let each = each.flat_map(|(group, version)| {
            resources.iter().filter_map(move |plural| registry.find(group, version, plural))
        });
        let named: Vec<&'r ResourceRef> = each.take(MOST_KINDS).collect();
        let is_enough = named.len() == MOST_KINDS;
        kinds.extend(named);
        if is_enough {
            break;
        }
    }
    kinds.sort_by_key(|kind| (kind.group, kind.version, kind.kind));
    kinds.dedup_by_key(|kind| (kind.group, kind.version, kind.kind));
    kinds
}

fn sorted(names: Option<&[String]>) -> Vec<&str> {
    let mut names: Vec<&str> = names.unwrap_or_default().iter().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_that_rules_name() {
        let check = |rules: Value, expected: &[&str]| {
            let spec = json!({ "matchConstraints": { "resourceRules": rules } });
            let spec = serde_json::from_value(spec).expect("a spec");
            let registry = Registry::default();
            let found: Vec<&str> = kinds(&spec, &registry).iter().map(|kind| kind.kind).collect();
            assert_eq!(found, expected, "{rules}");
        };
        let rule = |groups: Value, versions: Value, resources: Value| {
            let mut rule = json!({ "apiGroups": groups, "apiVersions": versions });
            rule["resources"] = resources;
            rule
        };
        let pods = rule(json!([""]), json!(["v1"]), json!(["pods", "pods/status", "*/scale"]));
        let apps = rule(json!(["apps"]), json!(["v1"]), json!(["statefulsets", "daemonsets"]));
        check(json!([apps, pods, pods]), &["Pod", "DaemonSet", "StatefulSet"]);
        check(
            json!([rule(json!(["apps", "*"]), json!(["v1"]), json!(["daemonsets"])), pods]),
            &["Pod"],
        );
        check(json!([rule(json!(["apps"]), json!(["v1", "*"]), json!(["daemonsets"]))]), &[]);
    }

    #[test]
    fn each_kind_that_minds_has_its_own_lines() {
        let spec = json!({
            "matchConstraints": { "resourceRules": [{ "apiGroups": ["", "apps"],
                "apiVersions": ["v1"], "resources": ["pods", "deployments"] }]},
            "validations": [{ "expression": "object.nope" }],
        });
        let spec = serde_json::from_value(spec).expect("a spec");
        let found = warnings(&spec, &Registry::default());
        let text = found[0]["warning"].as_str().expect("a text");
        assert!(text.starts_with("/v1, Kind=Pod: ERROR: "), "{text}");
        assert!(text.contains("\n\napps/v1, Kind=Deployment: ERROR: "), "{text}");
    }

    /// Of each warning, and where it is.
    fn first_lines(spec: Value, registry: &Registry) -> Vec<String> {
        let spec = serde_json::from_value(spec).expect("a spec");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |warning: &Value| {
            let told = text(&warning["warning"]);
            let first = told.lines().next().unwrap_or_default();
            format!("{}: {first}", text(&warning["fieldRef"]))
        };
        warnings(&spec, registry).iter().map(line).collect()
    }

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
        assert_eq!(
            first_lines(spec, &Registry::default()),
            [
                "spec.validations[0].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'",
                "spec.validations[0].messageExpression: apps/v1, Kind=Deployment: ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(string, int)'",
                "spec.validations[2].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'nope'",
            ]
        );
    }

    #[test]
    fn custom_kinds_have_the_types_of_their_definitions() {
        let version = |name: &str, size: &str| {
            let spec = json!({ "type": "object", "properties": {
                "size": { "type": size },
                "inner": { "type": "object", "x-kubernetes-embedded-resource": true },
            }});
            let schema = json!({ "type": "object", "properties": { "spec": spec } });
            json!({ "name": name, "served": true, "storage": name == "v1",
                "schema": { "openAPIV3Schema": schema } })
        };
        let names = json!({ "plural": "widgets", "singular": "widget", "kind": "Widget",
            "listKind": "WidgetList" });
        let definition = json!({
            "metadata": { "name": "widgets.example.com", "uid": "u" },
            "spec": { "group": "example.com", "scope": "Namespaced", "names": names,
                "versions": [version("v1", "integer"), version("v2", "string")] },
            "status": { "acceptedNames": names },
        });
        let defined = api::custom::define(&definition).expect("a sound definition");
        let registry =
            Registry::new(1, defined.rows.into_iter().map(ResourceRef::Defined).collect());
        let check = |version: &str, expressions: &[&str], expected: &[&str]| {
            let validations: Vec<Value> =
                expressions.iter().map(|text| json!({ "expression": text })).collect();
            let spec = json!({
                "matchConstraints": { "resourceRules": [{ "apiGroups": ["example.com"],
                    "apiVersions": [version], "resources": ["widgets", "gadgets"] }]},
                "validations": validations,
            });
            assert_eq!(first_lines(spec.clone(), &registry), expected, "{version}");
            // Whoever does not know the definition says nothing of it.
            assert!(first_lines(spec, &Registry::default()).is_empty(), "{version}");
        };
        check(
            "v1",
            &[
                "object.spec.size > 1 && oldObject.kind == 'Widget'",
                "object.spec.nope == 1",
                "object.metadata.labels['a'] == 'b' && object.metadata.ownerReferences[0].controller",
                "object.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z')",
                "object.spec.inner.metadata.annotations.size() == 0",
                "object.metadata.nope == 1",
                "object.spec > 1",
            ],
            &[
                "spec.validations[1].expression: example.com/v1, Kind=Widget: ERROR: <input>:1:12: undefined field 'nope'",
                "spec.validations[5].expression: example.com/v1, Kind=Widget: ERROR: <input>:1:16: undefined field 'nope'",
                "spec.validations[6].expression: example.com/v1, Kind=Widget: ERROR: <input>:1:13: found no matching overload for '_>_' applied to '(Widget.spec, int)'",
            ],
        );
        check(
            "v2",
            &["object.spec.size > 1"],
            &[
                "spec.validations[0].expression: example.com/v2, Kind=Widget: ERROR: <input>:1:18: found no matching overload for '_>_' applied to '(string, int)'",
            ],
        );
        check("v3", &["object.spec.nope == 1"], &[]);
    }
}
