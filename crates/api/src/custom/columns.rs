//! A definition's columns: what `kubectl get` prints of its objects
//! (`apiextensions-apiserver/pkg/registry/customresource/tableconvertor`).
use super::{Definition, JsonPath};
use crate::field::BadValue;
use crate::jsonpath;
use crate::meta::TableColumnDefinition;
use crate::quote::go_json;
use crate::rules::{Row, elapsed};
use crate::time;
use jiff::Timestamp;
use serde_json::Value;

/// One column beside the name.
#[derive(Debug, Clone)]
pub struct Column {
    pub definition: TableColumnDefinition,
    path: JsonPath,
}

impl Column {
    /// Of `additionalPrinterColumns`: those before the first whose path is none.
    pub fn all(columns: &[Value]) -> Vec<Column> {
        let is_path = |column: &&Value| {
            let path = column["jsonPath"].as_str().unwrap_or_default();
            jsonpath::check(&format!("{{{path}}}")).is_ok()
        };
        columns.iter().take_while(is_path).map(Column::of).collect()
    }

    /// Of one entry.
    fn of(column: &Value) -> Column {
        let text = |name: &str| column[name].as_str().unwrap_or_default();
        let path = text("jsonPath");
        let description = match text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            description => description.to_owned(),
        };
        let priority = column["priority"].as_i64().and_then(|number| i32::try_from(number).ok());
        let (name, r#type, format) = (text("name"), text("type"), text("format"));
        let priority = priority.unwrap_or_default();
        let definition = TableColumnDefinition::new(name, r#type, format, priority, &description);
        Column { definition, path: JsonPath::parse(path) }
    }

    /// What is shown of a definition that says nothing about columns.
    pub fn age() -> Column {
        let description = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
        Column {
            definition: TableColumnDefinition::new("Age", "date", "", 0, description),
            path: JsonPath::parse(".metadata.creationTimestamp"),
        }
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(value) = self.path.first(object) else { return Value::Null };
        match (self.definition.r#type.as_str(), &*value) {
            ("string", value) => printed(value).into(),
            ("integer", Value::Number(number)) => match number.as_i64() {
                Some(number) => number.into(),
                None => number.as_f64().map_or(Value::Null, |number| (number as i64).into()),
            },
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.into_owned(),
            ("date", Value::String(text)) => since(text, now).into(),
            _ => Value::Null,
        }
    }
}

/// How long ago a moment is. None, and the first of all, are unknown ones.
fn since(text: &str, now: Timestamp) -> String {
    if matches!(text, "" | "null" | "0001-01-01T00:00:00Z") {
        return "<unknown>".to_owned();
    }
    let read = time::parse(text).ok().and_then(|(seconds, nanos)| time::timestamp(seconds, nanos));
    read.map_or_else(|| "<invalid>".to_owned(), |then| elapsed(then, now))
}

/// A value as a JSONPath prints it.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<no value>".to_owned(),
        Value::Number(number) if number.is_f64() => {
            let number = BadValue::from(number.as_f64().unwrap_or_default());
            number.text().unwrap_or_default().to_owned()
        }
        other => go_json(other).unwrap_or_default(),
    }
}

/// All columns, the name's first.
pub fn definitions(definition: &Definition) -> Vec<TableColumnDefinition> {
    let description = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
    let name = TableColumnDefinition::new("Name", "string", "name", 0, description);
    let others = definition.version.columns.iter().map(|column| column.definition.clone());
    std::iter::once(name).chain(others).collect()
}

pub fn row(definition: &Definition, object: &Value, now: Timestamp) -> Row {
    let name = object["metadata"]["name"].clone();
    let others = definition.version.columns.iter().map(|column| column.cell(object, now));
    Row { cells: std::iter::once(name).chain(others).collect(), conditions: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cell_has_the_type_of_its_column() {
        let object = json!({ "spec": { "n": 3, "s": "x", "f": 1.5, "b": true, "o": { "a": 1 },
            "null": null, "big": 1e22, "mid": 1e8, "odd": ["<a>"], "e": "", "z": "0001-01-01T00:00:00Z",
            "lax": "2024-01-01 00:00:00Z", "t": "2024-01-01T00:00:00Z" } });
        let now = "2024-01-03T00:00:00Z".parse().unwrap();
        for (path, r#type, expected) in [
            (".spec.n", "integer", json!(3)),
            (".spec.n", "string", json!("3")),
            (".spec.f", "integer", json!(1)),
            (".spec.f", "number", json!(1.5)),
            (".spec.s", "integer", json!(null)),
            (".spec.b", "boolean", json!(true)),
            (".spec.o", "string", json!(r#"{"a":1}"#)),
            (".spec.t", "date", json!("2d")),
            (".spec.s", "date", json!("<invalid>")),
            (".spec.none", "string", json!(null)),
            (".spec.null", "string", json!("<no value>")),
            (".spec.null", "integer", json!(null)),
            (".spec.big", "string", json!("1e+22")),
            (".spec.mid", "string", json!("1e+08")),
            (".spec.odd", "string", json!(r#"["\u003ca\u003e"]"#)),
            (".spec.e", "date", json!("<unknown>")),
            (".spec.z", "date", json!("<unknown>")),
            (".spec.lax", "date", json!("<invalid>")),
        ] {
            let column = Column::of(&json!({ "name": "C", "type": r#type, "jsonPath": path }));
            assert_eq!(column.cell(&object, now), expected, "{path} as {type}");
        }
    }

    #[test]
    fn a_column_without_a_path_is_the_last() {
        let columns = [".spec.a", ".spec.b[", ".spec.c"].map(|path| json!({ "jsonPath": path }));
        assert_eq!(Column::all(&columns).len(), 1);
    }
}
