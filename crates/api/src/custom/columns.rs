//! A definition's columns: what `kubectl get` prints of its objects
//! (`apiextensions-apiserver/pkg/registry/customresource/tableconvertor`).
use super::{Definition, JsonPath};
use crate::meta::TableColumnDefinition;
use crate::rules::{Row, elapsed};
use jiff::Timestamp;
use serde_json::Value;

/// One column beside the name.
#[derive(Debug, Clone)]
pub struct Column {
    pub definition: TableColumnDefinition,
    path: JsonPath,
}

impl Column {
    /// Of an entry of `additionalPrinterColumns`.
    pub fn of(column: &Value) -> Column {
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
        match (self.definition.r#type.as_str(), value) {
            ("string", value) => printed(value).into(),
            ("integer", Value::Number(number)) => match number.as_i64() {
                Some(number) => number.into(),
                None => number.as_f64().map_or(Value::Null, |number| (number as i64).into()),
            },
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(text)) => match text.parse::<Timestamp>() {
                Ok(since) => elapsed(since, now).into(),
                Err(_) => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

/// A value as a JSONPath prints it.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
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
            "t": "2024-01-01T00:00:00Z" } });
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
        ] {
            let column = Column::of(&json!({ "name": "C", "type": r#type, "jsonPath": path }));
            assert_eq!(column.cell(&object, now), expected, "{path} as {type}");
        }
    }
}
