//! Expressions that do not compile, found when their policy or webhook is written.
use super::compiled::{ANNOTATION, Composed, Expression};
use super::environment::{Has, environment};
use api::field::{Error, ErrorList, Path};
use api::kinds::Resource;
use cel::{CompileError, Environment, Type};
use k8s_openapi::api::admissionregistration::v1::Variable;
use serde_json::Value;

/// What is wrong with the expressions of an object; nothing for kinds without any.
pub fn faults(resource: &Resource, object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    const GROUP: &str = "admissionregistration.k8s.io";
    match resource.built_in() {
        (GROUP, "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            let root = Path::new("webhooks");
            for (at, webhook) in items(&object["webhooks"]).iter().enumerate() {
                let webhook_path = root.index(at);
                let path = webhook_path.child("matchConditions");
                conditions(&webhook["matchConditions"], false, &path, &mut errors);
            }
        }
        (GROUP, "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy") => {
            policy(object, &mut errors);
        }
        _ => {}
    }
    errors
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// An expression that is there is compiled; that one is missing is told elsewhere.
fn compile(
    environment: &Environment,
    expression: &Value,
    wanted: &[Type],
    path: &Path<'_>,
    errors: &mut ErrorList,
) {
    let text = text(expression);
    if text.trim().is_empty() {
        return;
    }
    if let Err(error) = environment.compile(text, wanted) {
        errors.push(fault(path, text, &error));
    }
}

fn fault(path: &Path<'_>, text: &str, error: &CompileError) -> Error {
    match error {
        CompileError::Constant(_) => Error::internal(path, error),
        error => Error::invalid(path, text, error.to_string()),
    }
}

fn conditions(list: &Value, params: bool, path: &Path<'_>, errors: &mut ErrorList) {
    if items(list).is_empty() {
        return;
    }
    let environment = environment(Has { params, authorizer: true, patches: false });
    for (at, condition) in items(list).iter().enumerate() {
        let item = path.index(at);
        let path = item.child("expression");
        compile(&environment, &condition["expression"], &[Type::Bool], &path, errors);
    }
}

fn policy(object: &Value, errors: &mut ErrorList) {
    let spec = &object["spec"];
    let params = spec["paramKind"].is_object();
    let patches = spec["mutations"].is_array();
    let root = Path::new("spec");
    conditions(&spec["matchConditions"], params, &root.child("matchConditions"), errors);
    let given: Vec<Variable> = items(&spec["variables"])
        .iter()
        .map(|variable| Variable {
            name: text(&variable["name"]).to_owned(),
            expression: text(&variable["expression"]).to_owned(),
        })
        .collect();
    let composed = Composed::new(Some(&given), params, patches);
    let variables = root.child("variables");
    for (at, variable) in composed.variables.iter().enumerate() {
        let Expression { text, program } = &variable.expression;
        if let Err(error) = program
            && !text.trim().is_empty()
        {
            let item = variables.index(at);
            errors.push(fault(&item.child("expression"), text, error));
        }
    }
    let with = composed.environment(true, patches);
    let without = composed.environment(false, false);
    let validations = root.child("validations");
    for (at, validation) in items(&spec["validations"]).iter().enumerate() {
        let item = validations.index(at);
        let path = item.child("expression");
        compile(&with, &validation["expression"], &[Type::Bool], &path, errors);
        let path = item.child("messageExpression");
        compile(&without, &validation["messageExpression"], &[Type::String], &path, errors);
    }
    let annotations = root.child("auditAnnotations");
    for (at, annotation) in items(&spec["auditAnnotations"]).iter().enumerate() {
        let item = annotations.index(at);
        let path = item.child("valueExpression");
        compile(&with, &annotation["valueExpression"], ANNOTATION, &path, errors);
    }
    let mutations = root.child("mutations");
    for (at, mutation) in items(&spec["mutations"]).iter().enumerate() {
        let item = mutations.index(at);
        let wanted = [
            ("applyConfiguration", Type::object("Object")),
            ("jsonPatch", Type::list(Type::object("JSONPatch"))),
        ];
        for (field, ty) in wanted {
            let part = item.child(field);
            let path = part.child("expression");
            compile(&with, &mutation[field]["expression"], &[ty], &path, errors);
        }
    }
}
