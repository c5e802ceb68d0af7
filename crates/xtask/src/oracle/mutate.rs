//! Objects that are a little wrong, made from one that is right.
use api::schema::{Named, Scalar, Type, TypeRef};
use serde_json::{Map, Value, json};

/// One change of an object, and its description.
pub struct Mutation {
    pub object: Value,
    pub about: String,
}

/// Every change of every field that the object has, and of every field that it could have.
pub fn all(object: &Value, ty: TypeRef<'_>) -> Vec<Mutation> {
    let mut changes = Vec::new();
    walk(object, ty, &mut Vec::new(), &mut changes);
    changes
        .into_iter()
        .filter_map(|(path, value)| {
            let mut object = object.clone();
            let about = match &value {
                None => format!("without {}", path.join(".")),
                Some(value) => {
                    let text = value.to_string();
                    let cut: String = text.chars().take(60).collect();
                    format!("with {} = {cut}", path.join("."))
                }
            };
            put(&mut object, &path, value)?;
            Some(Mutation { object, about })
        })
        .collect()
}

type Change = (Vec<String>, Option<Value>);

fn walk(value: &Value, ty: TypeRef<'_>, path: &mut Vec<String>, changes: &mut Vec<Change>) {
    match (ty.get(), value) {
        (Type::Struct(s), Value::Object(fields)) => {
            path.push("unknownField".into());
            changes.push((path.clone(), Some(json!("x"))));
            path.pop();
            for field in &s.fields {
                // What the server writes itself says nothing about it.
                let own = path.first().is_some_and(|first| first == "metadata")
                    && matches!(&*field.name, "managedFields" | "uid" | "selfLink");
                let type_meta = path.is_empty() && matches!(&*field.name, "kind" | "apiVersion");
                if own || type_meta || path.is_empty() && &*field.name == "status" {
                    continue;
                }
                path.push(field.name.to_string());
                let child = ty.at(field.ty);
                match fields.get(&*field.name) {
                    Some(known) => {
                        changes.push((path.clone(), None));
                        values(known, child, path, changes);
                        walk(known, child, path, changes);
                    }
                    None => values(&Value::Null, child, path, changes),
                }
                path.pop();
            }
        }
        (Type::List(list), Value::Array(items)) => {
            if let Some(first) = items.first() {
                path.push("0".into());
                values(first, ty.at(list.element), path, changes);
                walk(first, ty.at(list.element), path, changes);
                path.pop();
                let doubled: Vec<&Value> = items.iter().chain([first]).collect();
                changes.push((path.clone(), Some(json!(doubled))));
            }
        }
        (Type::Map(map), Value::Object(entries)) => {
            if let Some((key, entry)) = entries.iter().next() {
                path.push(key.clone());
                values(entry, ty.at(map.value), path, changes);
                walk(entry, ty.at(map.value), path, changes);
                path.pop();
                let mut odd: Map<String, Value> = entries.clone();
                odd.insert("Bad Key!".into(), entry.clone());
                changes.push((path.clone(), Some(odd.into())));
            }
        }
        _ => {}
    }
}

/// Values of the type that are worth a try in this place.
fn values(known: &Value, ty: TypeRef<'_>, path: &[String], changes: &mut Vec<Change>) {
    let candidates = match ty.get() {
        Type::Scalar(Named { values, .. }) if !values.is_empty() => {
            vec![json!("Bogus"), json!(""), json!(values[0]), json!(values[values.len() - 1])]
        }
        Type::Scalar(named) => scalars(named.scalar),
        Type::List(list) => match ty.at(list.element).get() {
            Type::Struct(_) => vec![json!([]), json!([{}])],
            _ => vec![json!([]), json!([""]), json!(["Bad_Value!", "Bad_Value!"])],
        },
        Type::Map(_) => vec![json!({}), json!({ "Bad Key!": "x" }), json!({ "a": "Bad Value!" })],
        Type::Struct(_) => vec![json!({})],
        _ => Vec::new(),
    };
    for candidate in candidates.into_iter().filter(|candidate| candidate != known) {
        changes.push((path.to_vec(), Some(candidate)));
    }
}

fn scalars(scalar: Scalar) -> Vec<Value> {
    match scalar {
        Scalar::String => {
            vec![
                json!(""),
                json!("Bad_Value!"),
                json!("a".repeat(300)),
                json!("-x"),
                json!("good-name"),
            ]
        }
        Scalar::Bool => vec![json!(true), json!(false)],
        Scalar::Int32 => vec![json!(-1), json!(0), json!(70_000), json!(i32::MAX), json!("1")],
        Scalar::Int64 => vec![json!(-1), json!(0), json!(i64::MAX)],
        Scalar::Quantity => vec![json!("-1"), json!("0"), json!("1.5"), json!("bad")],
        Scalar::IntOrString => vec![json!(-1), json!(0), json!("50%"), json!("bad name!")],
        Scalar::Time => vec![json!("2020-01-01T00:00:00Z"), json!("yesterday")],
        Scalar::Bytes => vec![json!("AAEC"), json!("not base64")],
        Scalar::Duration => vec![json!("-1s"), json!("soon")],
        _ => Vec::new(),
    }
}

fn put(object: &mut Value, path: &[String], value: Option<Value>) -> Option<()> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(object, |value, step| match value {
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        Value::Object(fields) => fields.get_mut(step),
        _ => None,
    })?;
    match (parent, value) {
        (Value::Object(fields), Some(value)) => drop(fields.insert(last.clone(), value)),
        (Value::Object(fields), None) => drop(fields.remove(last)),
        (Value::Array(items), Some(value)) => {
            *items.get_mut(last.parse::<usize>().ok()?)? = value;
        }
        _ => return None,
    }
    Some(())
}
