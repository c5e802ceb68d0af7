//! Objects as rows of a table: what `kubectl get` prints.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ListMeta;
use crate::field::{Error, Path};

/// Columns and rows. `O` is the form in which a row carries its object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Table<O = Value> {
    pub kind: String,
    pub api_version: String,
    #[serde(default)]
    pub metadata: ListMeta,
    pub column_definitions: Vec<TableColumnDefinition>,
    pub rows: Vec<TableRow<O>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableColumnDefinition {
    pub name: String,
    /// An OpenAPI type: `string`, `integer`, `date` and so on.
    pub r#type: String,
    /// An OpenAPI format; `name` marks the column that names the object.
    pub format: String,
    pub description: String,
    /// 0 is always shown, higher numbers only in wide output.
    pub priority: i32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableRow<O = Value> {
    /// One for each column.
    pub cells: Vec<Value>,
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<TableRowCondition>,
    /// As [`IncludeObject`] asked; null if nothing is included.
    #[serde(default = "none")]
    pub object: Option<O>,
}

/// A mark on a row, such as `Completed` on a Pod that has finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRowCondition {
    pub r#type: String,
    pub status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What each row carries of its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl<O> Table<O> {
    /// `version` is that of `meta.k8s.io`.
    pub fn new(
        version: &str,
        metadata: ListMeta,
        column_definitions: Vec<TableColumnDefinition>,
        rows: Vec<TableRow<O>>,
    ) -> Self {
        Table {
            kind: "Table".to_owned(),
            api_version: format!("meta.k8s.io/{version}"),
            metadata,
            column_definitions,
            rows,
        }
    }
}

impl TableColumnDefinition {
    pub fn new(name: &str, r#type: &str, format: &str, priority: i32, description: &str) -> Self {
        TableColumnDefinition {
            name: name.to_owned(),
            r#type: r#type.to_owned(),
            format: format.to_owned(),
            description: description.to_owned(),
            priority,
        }
    }
}

impl IncludeObject {
    /// Reads the query parameter `includeObject`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "None" => Ok(IncludeObject::None),
            "Object" => Ok(IncludeObject::Object),
            other => {
                let detail = "must be 'Metadata', 'Object', 'None', or empty";
                Err(Error::invalid(&Path::new("includeObject"), other, detail))
            }
        }
    }
}

fn none<O>() -> Option<O> {
    None
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_is_written_as_upstream_writes_it() {
        let row =
            TableRow { cells: vec![json!("web"), json!(3)], conditions: vec![], object: None };
        let columns = vec![TableColumnDefinition::new("Name", "string", "name", 0, "")];
        let table: Table = Table::new("v1", ListMeta::default(), columns, vec![row]);
        let text = serde_json::to_string(&table).unwrap();
        expect![[r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"","priority":0}],"rows":[{"cells":["web",3],"object":null}]}"#]]
            .assert_eq(&text);
        assert_eq!(serde_json::from_str::<Table>(&text).unwrap(), table);
    }

    #[test]
    fn rows_carry_metadata_unless_asked_otherwise() {
        assert_eq!(IncludeObject::parse(""), Ok(IncludeObject::Metadata));
        assert_eq!(IncludeObject::parse("None"), Ok(IncludeObject::None));
        expect![[
            r#"includeObject: Invalid value: "All": must be 'Metadata', 'Object', 'None', or empty"#
        ]]
        .assert_eq(&IncludeObject::parse("All").unwrap_err().to_string());
    }
}
