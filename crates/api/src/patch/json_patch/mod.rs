//! JSON Patch (RFC 6902): a list of operations on paths, done in order or not at all.
//!
//! It follows the library upstream uses (`evanphx/json-patch`), which is more forgiving than the
//! standard: a negative index counts from the end, `replace` also creates a field, and `test`
//! finds null in a field that is absent. Clients have come to rely on each of these.

mod bounds;
mod error;
mod pointer;
#[cfg(test)]
mod tests;

use crate::quote::json_type;
use bounds::Bounds;
pub use error::Error;
use pointer::{Container, find};
use serde_json::{Map, Value};

/// What one patch may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub operations: usize,
    /// The bytes that all `copy` operations together may add; each is counted as JSON.
    pub copied_bytes: usize,
    /// The values that all operations together may look into or move: a second's work.
    pub work: usize,
}

/// Upstream's limits. Without the second a short patch doubles an object many times over; the third
/// is ours.
impl Default for Limits {
    fn default() -> Self {
        Limits { operations: 10_000, copied_bytes: 3 * 1024 * 1024, work: 100_000_000 }
    }
}

/// A decoded patch, which can be applied to any number of documents.
#[derive(Clone, Debug)]
pub struct Patch {
    operations: Vec<Map<String, Value>>,
}

impl Patch {
    pub fn decode(patch: Value, limits: &Limits) -> Result<Self, Error> {
        let operations = match patch {
            Value::Null => Vec::new(),
            Value::Array(operations) => operations,
            other => return Err(Error::NotAPatch(json_type(&other))),
        };
        if operations.len() > limits.operations {
            return Err(Error::TooMany { limit: limits.operations, actual: operations.len() });
        }
        let operations = operations.into_iter().map(|operation| match operation {
            Value::Null => Ok(Map::new()),
            Value::Object(operation) => Ok(operation),
            other => Err(Error::NotAnOperation(json_type(&other))),
        });
        Ok(Patch { operations: operations.collect::<Result<_, _>>()? })
    }

    /// The changed document. A failed operation, a `test` for instance, fails the whole patch.
    pub fn apply(&self, mut document: Value, limits: &Limits) -> Result<Value, Error> {
        let bounds = &mut Bounds::new(&document, limits);
        for fields in &self.operations {
            let operation = Operation(fields);
            match operation.kind() {
                "add" => add(&mut document, operation, bounds)?,
                "remove" => remove(&mut document, operation, bounds)?,
                "replace" => replace(&mut document, operation, bounds)?,
                "move" => move_(&mut document, operation, bounds)?,
                "test" => test(&mut document, operation)?,
                "copy" => copy(&mut document, operation, bounds)?,
                other => return Err(Error::Kind(other.to_owned())),
            }
        }
        Ok(document)
    }
}

#[derive(Clone, Copy)]
struct Operation<'a>(&'a Map<String, Value>);

impl<'a> Operation<'a> {
    fn kind(self) -> &'a str {
        self.0.get("op").and_then(Value::as_str).unwrap_or("unknown")
    }

    fn path(self, operation: &'static str) -> Result<&'a str, Error> {
        self.text(operation, "path")
    }

    fn from(self, operation: &'static str) -> Result<&'a str, Error> {
        self.text(operation, "from")
    }

    fn text(self, operation: &'static str, field: &'static str) -> Result<&'a str, Error> {
        match self.0.get(field) {
            Some(Value::String(text)) => Ok(text),
            None | Some(Value::Null) => Err(Error::NoPath { operation, field }),
            Some(other) => Err(Error::BadPath { operation, field, actual: json_type(other) }),
        }
    }

    /// An absent value counts as null.
    fn value(self) -> Value {
        self.0.get("value").cloned().unwrap_or_default()
    }
}

fn add(
    document: &mut Value,
    operation: Operation<'_>,
    bounds: &mut Bounds<'_>,
) -> Result<(), Error> {
    let path = operation.path("add")?;
    let (mut parent, key) = find(document, path)
        .ok_or_else(|| Error::missing("add", "doc is missing path: ", path, true))?;
    let value = operation.value();
    bounds.put(path, &value)?;
    bounds.spend(parent.moved_by_change())?;
    parent.add(&key, value).map_err(|source| Error::At {
        operation: "add",
        path: path.to_owned(),
        source,
    })
}

fn remove(
    document: &mut Value,
    operation: Operation<'_>,
    bounds: &mut Bounds<'_>,
) -> Result<(), Error> {
    let path = operation.path("remove")?;
    let (mut parent, key) = find(document, path)
        .ok_or_else(|| Error::missing("remove", "doc is missing path: ", path, true))?;
    bounds.spend(parent.moved_by_change())?;
    parent.remove(&key).map_err(|source| Error::At {
        operation: "remove",
        path: path.to_owned(),
        source,
    })?;
    Ok(())
}

fn replace(
    document: &mut Value,
    operation: Operation<'_>,
    bounds: &mut Bounds<'_>,
) -> Result<(), Error> {
    let path = operation.path("replace")?;
    let value = operation.value();
    bounds.put(path, &value)?;
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(Error::ReplaceWithScalar);
        }
        *document = value;
        return Ok(());
    }
    let (mut parent, key) = find(document, path)
        .ok_or_else(|| Error::missing("replace", "doc is missing path: ", path, false))?;
    match &mut parent {
        Container::Object(fields) => {
            fields.insert(key, value);
        }
        Container::Array(_) => match parent.get(&key) {
            Ok(Some(place)) => *place = value,
            _ => return Err(Error::missing("replace", "doc is missing key: ", path, false)),
        },
    }
    Ok(())
}

fn move_(
    document: &mut Value,
    operation: Operation<'_>,
    bounds: &mut Bounds<'_>,
) -> Result<(), Error> {
    let from = operation.from("move")?;
    let (mut parent, key) = find(document, from)
        .ok_or_else(|| Error::missing("move", "doc is missing from path: ", from, false))?;
    bounds.spend(parent.moved_by_change())?;
    let value = parent.remove(&key);
    // Upstream names the last part of the path here, not the path.
    let value = value.map_err(|source| Error::At { operation: "move", path: key, source })?;
    let path = operation.path("move")?;
    let (mut parent, key) = find(document, path)
        .ok_or_else(|| Error::missing("move", "doc is missing destination path: ", path, false))?;
    bounds.moved(from, path, &value)?;
    bounds.spend(parent.moved_by_change())?;
    parent.add(&key, value).map_err(|source| Error::At {
        operation: "move",
        path: path.to_owned(),
        source,
    })
}

fn test(document: &mut Value, operation: Operation<'_>) -> Result<(), Error> {
    let path = operation.path("test")?;
    let failed = || Error::TestFailed(path.to_owned());
    let wanted = operation.value();
    if path.is_empty() {
        return if *document == wanted { Ok(()) } else { Err(failed()) };
    }
    let (mut parent, key) = find(document, path)
        .ok_or_else(|| Error::missing("test", "is missing path: ", path, false))?;
    let actual = parent.get(&key).map_err(|source| Error::At {
        operation: "test",
        path: path.to_owned(),
        source,
    })?;
    let same = actual.map_or(wanted.is_null(), |actual| *actual == wanted);
    if same { Ok(()) } else { Err(failed()) }
}

fn copy(
    document: &mut Value,
    operation: Operation<'_>,
    bounds: &mut Bounds<'_>,
) -> Result<(), Error> {
    let from = operation.from("copy")?;
    let (mut parent, key) = find(document, from)
        .ok_or_else(|| Error::missing("copy", "doc is missing from path: ", from, false))?;
    let value = parent
        .get(&key)
        .map_err(|source| Error::CopyFrom { path: from.to_owned(), source })?
        .cloned()
        .unwrap_or_default();
    let path = operation.path("copy")?;
    let (mut parent, key) = find(document, path)
        .ok_or_else(|| Error::missing("copy", "doc is missing destination path: ", path, false))?;
    bounds.copied(&value)?;
    bounds.put(path, &value)?;
    bounds.spend(parent.moved_by_change())?;
    parent.add(&key, value).map_err(Error::CopyTo)
}
