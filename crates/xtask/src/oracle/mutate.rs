//! Objects that are a little wrong, made from one that is right.
use api::schema::{Named, Scalar, Type, TypeRef};
use serde_json::{Map, Value, json};
use testkit::sample::Random;

/// One field of an object as it shall be, or gone.
#[derive(Debug, Clone)]
pub struct Change {
    path: Vec<String>,
    value: Option<Value>,
}

/// Every change of every field that the object has, and of every field that it could have: of its
/// status, or of all the rest.
pub fn all(object: &Value, ty: TypeRef<'_>, of_status: bool) -> Vec<Change> {
    let mut changes = Vec::new();
    walk(object, ty, &mut Vec::new(), of_status, &mut changes);
    changes.retain(|change| change.apply(object).is_some());
    changes
}

/// So many times some changes at once: what a server says first, and what it then leaves unsaid.
pub fn several(changes: &[Change], times: usize, random: &mut Random) -> Vec<Vec<Change>> {
    let mut pick = || {
        let count = 2 + random.below(3);
        let one = |_| changes[random.below(changes.len() as u64) as usize].clone();
        (0..count).map(one).collect()
    };
    if changes.is_empty() { Vec::new() } else { (0..times).map(|_| pick()).collect() }
}

impl Change {
    /// A value in a place, whose steps are between dots.
    pub fn to(place: &str, value: Value) -> Change {
        Change { path: place.split('.').map(str::to_owned).collect(), value: Some(value) }
    }

    pub fn about(&self) -> String {
        let path = self.path.join(".");
        match &self.value {
            None => format!("without {path}"),
            Some(value) => {
                let cut: String = value.to_string().chars().take(60).collect();
                format!("with {path} = {cut}")
            }
        }
    }

    /// The object with the change, if it has the place for it.
    pub fn apply(&self, object: &Value) -> Option<Value> {
        let mut object = object.clone();
        put(&mut object, &self.path, self.value.clone())?;
        Some(object)
    }

    /// As a JSON Patch.
    pub fn json_patch(&self, object: &Value) -> Value {
        let step = |step: &String| format!("/{}", step.replace('~', "~0").replace('/', "~1"));
        let path: String = self.path.iter().map(step).collect();
        let is_there = object.pointer(&path).is_some();
        match &self.value {
            None => json!([{ "op": "remove", "path": path }]),
            Some(value) => {
                let op = if is_there { "replace" } else { "add" };
                json!([{ "op": op, "path": path, "value": value }])
            }
        }
    }

    /// As a merge patch, which can say nothing of an item: the list is named as a whole.
    pub fn merge_patch(&self, object: &Value) -> Option<Value> {
        let changed = self.apply(object)?;
        let (mut place, mut depth) = (&changed, 0);
        while let (Value::Object(fields), Some(step)) = (place, self.path.get(depth)) {
            place = fields.get(step).unwrap_or(&Value::Null);
            depth += 1;
        }
        let wrap = |inner: Value, step: &String| json!({ step.as_str(): inner });
        Some(self.path[..depth].iter().rev().fold(place.clone(), wrap))
    }
}

fn walk(
    value: &Value,
    ty: TypeRef<'_>,
    path: &mut Vec<String>,
    of_status: bool,
    changes: &mut Vec<Change>,
) {
    match (ty.get(), value) {
        (Type::Struct(s), Value::Object(fields)) => {
            if !(path.is_empty() && of_status) {
                path.push("unknownField".into());
                changes.push(Change { path: path.clone(), value: Some(json!("x")) });
                path.pop();
            }
            for field in &s.fields {
                // What the server writes itself says nothing about it.
                let own = path.first().is_some_and(|first| first == "metadata")
                    && matches!(&*field.name, "managedFields" | "uid" | "selfLink");
                let type_meta = path.is_empty() && matches!(&*field.name, "kind" | "apiVersion");
                let other = path.is_empty() && (&*field.name == "status") != of_status;
                if own || type_meta || other {
                    continue;
                }
                path.push(field.name.to_string());
                let child = ty.at(field.ty);
                match fields.get(&*field.name) {
                    Some(known) => {
                        changes.push(Change { path: path.clone(), value: None });
                        values(known, child, path, changes);
                        walk(known, child, path, of_status, changes);
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
                walk(first, ty.at(list.element), path, of_status, changes);
                path.pop();
                let doubled: Vec<&Value> = items.iter().chain([first]).collect();
                changes.push(Change { path: path.clone(), value: Some(json!(doubled)) });
            }
        }
        (Type::Map(map), Value::Object(entries)) => {
            if let Some((key, entry)) = entries.iter().next() {
                path.push(key.clone());
                values(entry, ty.at(map.value), path, changes);
                walk(entry, ty.at(map.value), path, of_status, changes);
                path.pop();
                let mut odd: Map<String, Value> = entries.clone();
                odd.insert("Bad Key!".into(), entry.clone());
                changes.push(Change { path: path.clone(), value: Some(odd.into()) });
            }
        }
        // The schemas in a CustomResourceDefinition.
        (Type::Either(_, props), Value::Object(_)) => {
            walk(value, ty.at(*props), path, of_status, changes);
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
        Type::Either(..) => vec![json!(true), json!({}), json!([{ "type": "string" }])],
        _ => Vec::new(),
    };
    for candidate in candidates.into_iter().filter(|candidate| candidate != known) {
        changes.push(Change { path: path.to_vec(), value: Some(candidate) });
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
        Scalar::Double => vec![json!(-1), json!(0), json!(1.5)],
        Scalar::Quantity => vec![json!("-1"), json!("0"), json!("1.5"), json!("bad")],
        Scalar::IntOrString => vec![json!(-1), json!(0), json!("50%"), json!("bad name!")],
        Scalar::Time | Scalar::MicroTime => {
            vec![json!("2020-01-01T00:00:00Z"), json!("yesterday")]
        }
        Scalar::Bytes => vec![json!("AAEC"), json!("not base64")],
        Scalar::Duration => vec![json!("-1s"), json!("soon")],
        Scalar::Json => vec![json!("a"), json!(1), json!({ "a": "b" })],
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
