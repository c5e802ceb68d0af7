//! Objects as rows of a table: the columns and cells of `kubectl get`.
use super::Field;
use crate::duration::Duration;
use crate::meta::{TableColumnDefinition, TableRowCondition};
use jiff::Timestamp;
use serde_json::Value;

/// A column of a kind's table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub r#type: &'static str,
    pub format: &'static str,
    /// 0 is always shown, higher numbers only in wide output.
    pub priority: i32,
    pub description: &'static str,
}

impl Column {
    pub const NAME: Column =
        Column { format: "name", ..Column::text("Name", "The name of the object.") };
    pub const AGE: Column = Column::text("Age", "How long ago the object was created.");

    pub const fn text(name: &'static str, description: &'static str) -> Column {
        Column { name, r#type: "string", format: "", priority: 0, description }
    }

    pub const fn of(self, r#type: &'static str) -> Column {
        Column { r#type, ..self }
    }

    /// Shown in wide output only.
    pub const fn wide(self) -> Column {
        Column { priority: 1, ..self }
    }

    pub fn definition(&self) -> TableColumnDefinition {
        let Column { name, r#type, format, priority, description } = *self;
        TableColumnDefinition::new(name, r#type, format, priority, description)
    }
}

/// An object's cells, one for each column, and the marks on it.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Row {
    pub cells: Vec<Value>,
    pub conditions: Vec<TableRowCondition>,
}

impl From<Vec<Value>> for Row {
    fn from(cells: Vec<Value>) -> Row {
        Row { cells, conditions: Vec::new() }
    }
}

/// What upstream prints of a kind that has no columns of its own.
pub const USUAL: &[Column] =
    &[Column::NAME, Column::text("Created At", "When the object was created.").of("date")];

pub fn usual(object: &Field<'_, '_>) -> Row {
    let cell = |field| object.at("metadata").at(field).value().clone();
    vec![cell("name"), cell("creationTimestamp")].into()
}

/// How long ago, in kubectl's words.
pub fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(
        || "<unknown>".to_owned(),
        |since| Duration::from_secs(now.as_second() - since.as_second()).human(),
    )
}
