//! One mutation: an expression's outcome, applied to an object.
use super::compiled::Mutation;
use super::input::Scope;
use crate::admission::webhook::{self, Named};
use api::codec::json::FieldValidation;
use api::patch::apply::typed;
use api::patch::json_patch::{self, Limits};
use api::schema::{ListKind, Type, TypeRef};
use api::status::Status;
use cel::{Map, RUNTIME_BUDGET, Value as Cel};
use serde_json::{Value, json};

/// Why there is no object after a mutation.
#[derive(Debug)]
pub enum Fault {
    /// The policy's own `failurePolicy` decides what becomes of the request.
    Failed(String),
    /// The request is refused, whatever the policy says.
    Refused(Box<Status>),
}

impl Fault {
    pub fn message(&self) -> &str {
        match self {
            Fault::Failed(message) => message,
            Fault::Refused(status) => &status.message,
        }
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Fault::Failed(message)
    }
}

/// The object after the mutation, with the defaults of what was added. Both are as `target`, the kind and
/// version that the policy is about, has them.
pub fn apply(
    mutation: &Mutation,
    scope: &Scope<'_, '_>,
    object: &Value,
    target: &Named,
) -> Result<Value, Fault> {
    let mut budget = RUNTIME_BUDGET;
    match mutation {
        Mutation::Apply(expression) => {
            let value = scope.evaluate(expression, &mut budget)??;
            let mut patch = written(&value)?;
            for field in ["apiVersion", "kind"] {
                patch[field] = object[field].clone();
            }
            let mut object = merged(object, &patch, target)
                .map_err(|error| format!("error applying patch: {error}"))?;
            target.set_defaults(&mut object);
            Ok(object)
        }
        Mutation::JsonPatch(expression) => {
            let value = scope.evaluate(expression, &mut budget)??;
            let Some(patched) = patched(object, operations(&value)?)? else {
                return Ok(object.clone());
            };
            webhook::read_again(patched, target, FieldValidation::Strict)
                .map_err(|status| Fault::Refused(Box::new(status)))
        }
    }
}

/// As JSON, where every part of an `Object` is named by the way there.
fn written(value: &Cel<'_>) -> Result<Value, String> {
    if let Cel::Map(Map::Object(object)) = value {
        names_match(object, "Object").map_err(|error| format!("type mismatch: {error}"))?;
    }
    value.to_json().ok_or_else(|| format!("invalid return type: {}", value.type_name()))
}

fn names_match(object: &cel::Object<'_>, path: &str) -> Result<(), String> {
    if *object.name != *path {
        return Err(format!(
            "unexpected type name {:?}, expected {path:?}, which matches field name path from root \
             Object type",
            object.name
        ));
    }
    for (field, value) in &object.fields {
        parts_match(value, &format!("{path}.{field}"))?;
    }
    Ok(())
}

fn parts_match(value: &Cel<'_>, path: &str) -> Result<(), String> {
    match value {
        Cel::Map(Map::Object(object)) => names_match(object, path),
        Cel::Map(Map::Owned(entries)) => {
            entries.list().iter().try_for_each(|(_, value)| parts_match(value, path))
        }
        Cel::List(cel::List::Owned(items)) => {
            items.iter().try_for_each(|item| parts_match(item, path))
        }
        _ => Ok(()),
    }
}

fn merged(object: &Value, patch: &Value, target: &Named) -> Result<Value, String> {
    let ty = target.ty().ok_or_else(|| format!("no type of {:?} is known", target.kind))?;
    typed::validate(patch, ty, false)
        .map_err(|error| format!("failed to convert patch object to typed object: {error}"))?;
    let mut atomics = Vec::new();
    find_atomics(patch, ty, None, "", &mut atomics);
    if !atomics.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    Ok(typed::merge(object, patch, ty))
}

/// Where the patch would replace something as a whole, and so take away what it does not name.
fn find_atomics(
    value: &Value,
    ty: TypeRef<'_>,
    said: Option<bool>,
    path: &str,
    found: &mut Vec<String>,
) {
    match (ty.get(), value) {
        (Type::Struct(object), Value::Object(fields)) => {
            if said.unwrap_or(object.atomic) {
                found.push(path.to_owned());
            }
            for (name, value) in fields {
                if let Some(field) = object.field(name) {
                    let path = format!("{path}.{name}");
                    find_atomics(value, ty.at(field.ty), field.atomic, &path, found);
                }
            }
        }
        (Type::Map(map), Value::Object(_)) if said.unwrap_or(map.atomic) => {
            found.push(path.to_owned());
        }
        (Type::List(list), Value::Array(items)) => {
            if list.kind == ListKind::Atomic {
                found.push(path.to_owned());
            }
            for (at, item) in items.iter().enumerate() {
                find_atomics(item, ty.at(list.element), None, &format!("{path}[{at}]"), found);
            }
        }
        _ => {}
    }
}

/// A list of `JSONPatch` as a JSON patch.
fn operations(value: &Cel<'_>) -> Result<Value, String> {
    let mismatch = || "type mismatch: JSONPatchType.expression should evaluate to array".to_owned();
    let list = value.as_list().ok_or_else(mismatch)?;
    let mut operations = Vec::with_capacity(list.len());
    for item in list.iter() {
        let fields = item.as_map().ok_or_else(mismatch)?;
        let text = |name: &str| fields.field(name).and_then(|v| v.as_str().map(str::to_owned));
        let mut operation = json!({
            "op": text("op").unwrap_or_default(),
            "path": text("path").unwrap_or_default(),
        });
        if let Some(from) = text("from").filter(|from| !from.is_empty()) {
            operation["from"] = from.into();
        }
        if let Some(value) = fields.field("value") {
            if let Cel::Map(Map::Object(object)) = &value {
                let name = object.name.clone();
                names_match(object, &name).map_err(|error| format!("type mismatch: {error}"))?;
            }
            operation["value"] = value.to_json().ok_or_else(|| {
                "JSONPath valueExpression evaluated to a type that could not marshal to JSON"
                    .to_owned()
            })?;
        }
        operations.push(operation);
    }
    Ok(Value::Array(operations))
}

/// None: a test of the patch failed, which leaves the object as it is.
fn patched(object: &Value, operations: Value) -> Result<Option<Value>, String> {
    let limits = Limits::default();
    let patch = json_patch::Patch::decode(operations, &limits)
        .map_err(|error| format!("JSON Patch: {error}"))?;
    match patch.apply(object.clone(), &limits) {
        Ok(patched) => Ok(Some(patched)),
        Err(json_patch::Error::TestFailed(_)) => Ok(None),
        Err(error) => Err(format!("JSON Patch: {error}")),
    }
}
