//! What a policy's expressions would do wrong with the kinds it is about, for the control loop that
//! tells it in the policy's status.
//!
//! An expression sees its object as JSON, and most faults show only when it is evaluated. Where the
//! rules name kinds, it is checked once more with their types; that it then fails is a warning
//! (`apiserver/pkg/admission/plugin/policy/validating/typechecking.go`).
//!
//! ```text
//!  rules ─► kinds: built-in, or as discovery says ─► types: built-in, or as OpenAPI says ─► warnings
//! ```
//! All of it is a function of the policy and of what servers say. Whoever calls it reads what it asks for, and
//! calls it again; who did not answer is not asked again, and of the kinds that nobody describes nothing is said.
mod kinds;
mod types;

use super::compiled::{Composed, Subject};
use bytes::Bytes;
use cel::CompileError;
use client::source::Raw;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicySpec;
use kinds::Kind;
use serde_json::{Value, json};
use std::collections::HashMap;
use types::Described;

/// What was read so far, by path; nothing where nobody answered.
pub type Answers = HashMap<String, Option<Bytes>>;

/// What has to be read first.
pub type Questions = Vec<Raw>;

/// The `expressionWarnings` of a policy's status.
pub fn warnings(
    spec: &ValidatingAdmissionPolicySpec,
    answers: &Answers,
) -> Result<Vec<Value>, Questions> {
    let kinds = kinds::named(spec, answers)?;
    let parameters = Kind::of_params(spec);
    let about: Vec<&Kind> = kinds.iter().chain(&parameters).collect();
    // Without an object there is nothing to check.
    let about = if kinds.is_empty() { &[][..] } else { &about };
    let described = Described::read(about, answers)?;
    let params = parameters.as_ref().and_then(|kind| {
        // No kind has such a name: an object of the same one may be of another version.
        described.types(kind, &format!("{}@params", kind.kind))
    });
    let composed = kinds.iter().filter_map(|kind| {
        let object = Some(described.types(kind, &kind.kind)?);
        let subject = Subject { object, params: params.clone() };
        let variables = spec.variables.as_deref();
        Some((kind, Composed::about(subject, variables, parameters.is_some())))
    });
    let composed: Vec<(&Kind, Composed)> = composed.collect();
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
                    faults.push(format!("{kind}: {issues}\n"));
                }
            }
            if !faults.is_empty() {
                let place = format!("spec.validations[{at}].{field}");
                warnings.push(json!({ "fieldRef": place, "warning": faults.join("\n") }));
            }
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::kinds::{Registry, ResourceRef};

    /// What servers with these kinds would say of everything that is asked.
    fn asked(spec: &ValidatingAdmissionPolicySpec, registry: &Registry) -> Vec<Value> {
        let mut answers = Answers::new();
        // What is served, then how it is described.
        for _ in 0..2 {
            match warnings(spec, &answers) {
                Ok(warnings) => return warnings,
                Err(questions) => answers.extend(questions.into_iter().map(|question| {
                    let told = said(&question.path, registry).map(|said| said.to_string().into());
                    (question.path, told)
                })),
            }
        }
        warnings(spec, &answers).expect("nothing is asked a third time")
    }

    fn said(path: &str, registry: &Registry) -> Option<Value> {
        if path == "/apis" {
            let served = api::discovery::aggregated(registry, false);
            return Some(serde_json::to_value(served).expect("JSON"));
        }
        let (group, version) = path.strip_prefix("/openapi/v3/apis/")?.split_once('/')?;
        registry.rows_of(group, version).next()?;
        Some(api::openapi::v3::document(registry, group, version))
    }

    #[test]
    fn each_kind_that_minds_has_its_own_lines() {
        let spec = json!({
            "matchConstraints": { "resourceRules": [{ "apiGroups": ["", "apps"],
                "apiVersions": ["v1"], "resources": ["pods", "deployments"] }]},
            "validations": [{ "expression": "object.nope" }],
        });
        let spec = serde_json::from_value(spec).expect("a spec");
        let found = warnings(&spec, &Answers::new()).expect("nothing is asked");
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
        asked(&spec, registry).iter().map(line).collect()
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

    /// With `widgets.example.com`, whose size is a number in v1 and a text in v2.
    fn with_widgets() -> Registry {
        let version = |name: &str, size: &str| {
            let spec = json!({ "type": "object", "properties": {
                "size": { "type": size },
                "port": { "x-kubernetes-int-or-string": true },
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
        Registry::new(1, defined.rows.into_iter().map(ResourceRef::Defined).collect())
    }

    #[test]
    fn custom_kinds_have_the_types_of_their_definitions() {
        let registry = with_widgets();
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
                "object.spec.port == 1 || object.spec.port == 'http'",
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

    #[test]
    fn parameters_have_types_too() {
        let registry = with_widgets();
        let check = |version: &str, kind: &str, expression: &str, expected: &[&str]| {
            let spec = json!({
                "paramKind": { "apiVersion": version, "kind": kind },
                "matchConstraints": { "resourceRules": [{ "apiGroups": ["example.com"],
                    "apiVersions": ["v1"], "resources": ["widgets"] }]},
                "validations": [{ "expression": expression }],
            });
            assert_eq!(first_lines(spec, &registry), expected, "{expression}");
        };
        check("v1", "ConfigMap", "params.data['a'] == 'b' && params.metadata.name == 'x'", &[]);
        check(
            "v1",
            "ConfigMap",
            "params.data == 1",
            &[
                "spec.validations[0].expression: example.com/v1, Kind=Widget: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(map(string, string), int)'",
            ],
        );
        // The object's size is a number, that of the parameters a text.
        let sizes = "object.spec.size > 1 && params.spec.size == 'large'";
        check("example.com/v2", "Widget", sizes, &[]);
        check(
            "example.com/v2",
            "Widget",
            "params.spec.nope == 1",
            &[
                "spec.validations[0].expression: example.com/v1, Kind=Widget: ERROR: <input>:1:12: undefined field 'nope'",
            ],
        );
        // Whatever nobody describes may have any field.
        check("example.com/v9", "Widget", "params.spec.nope == 1", &[]);
        check("v1", "Nobody", "params.spec.nope == 1", &[]);
    }

    #[test]
    fn nothing_is_asked_for_built_in_kinds() {
        let spec = json!({
            "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
            "matchConstraints": { "resourceRules": [{ "apiGroups": ["", "apps"],
                "apiVersions": ["v1"], "resources": ["pods", "deployments"] }]},
            "validations": [{ "expression": "true" }],
        });
        let spec = serde_json::from_value(spec).expect("a spec");
        assert!(warnings(&spec, &Answers::new()).is_ok_and(|found| found.is_empty()));
    }

    /// As many documents as rules name would be as much memory as somebody likes.
    #[test]
    fn no_more_documents_are_read_than_a_policy_may_need() {
        let (mut served, mut rules) = (Vec::new(), Vec::new());
        for at in 0..50 {
            let group = format!("g{at}.io");
            rules.push(
                json!({ "apiGroups": [group], "apiVersions": ["v1"], "resources": ["things"] }),
            );
            served.push(json!({ "metadata": { "name": group }, "versions": [{ "version": "v1",
                "resources": [{ "resource": "things", "responseKind": { "kind": "Thing" } }] }] }));
        }
        let spec = json!({ "matchConstraints": { "resourceRules": rules },
            "validations": [{ "expression": "object.nope" }] });
        let spec = serde_json::from_value(spec).expect("a spec");
        let served = json!({ "items": served }).to_string();
        let mut answers = Answers::from([("/apis".to_owned(), Some(served.into()))]);
        let questions = warnings(&spec, &answers).expect_err("there is something to read");
        assert_eq!((questions.len(), &*questions[0].path), (20, "/openapi/v3/apis/g0.io/v1"));
        answers.extend(questions.into_iter().map(|question| (question.path, None)));
        assert_eq!(warnings(&spec, &answers).expect("nothing more is asked").len(), 0);
    }
}
