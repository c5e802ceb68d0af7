//! Objects as rows of a table: the columns and cells of `kubectl get`.
//!
//! A kind's table is one row per column, which says what is in its cell: mostly just where in the
//! object it is.
use super::Field;
use crate::duration::Duration;
use crate::meta::{TableColumnDefinition, TableRowCondition};
use crate::selector::label::format_label_selector;
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
    cell: Cell,
}

/// Where the content of a cell comes from.
#[derive(Debug, Clone, Copy)]
enum Cell {
    /// A field, or else a word.
    Text(&'static str, &'static str),
    Number(&'static str),
    Flag(&'static str),
    /// How many items there are.
    Count(&'static str),
    /// How long ago.
    Age(&'static str),
    With(fn(&Field<'_, '_>, Timestamp) -> Value),
}

pub const NAME: Column = Column { format: "name", ..text("Name", "metadata.name") };
pub const AGE: Column = since("Age", "metadata.creationTimestamp");

const fn column(name: &'static str, r#type: &'static str, cell: Cell) -> Column {
    Column { name, r#type, format: "", priority: 0, description: "", cell }
}

pub const fn text(name: &'static str, path: &'static str) -> Column {
    column(name, "string", Cell::Text(path, ""))
}

/// A field, or a word for its absence.
pub const fn text_or(name: &'static str, path: &'static str, absent: &'static str) -> Column {
    column(name, "string", Cell::Text(path, absent))
}

pub const fn integer(name: &'static str, path: &'static str) -> Column {
    column(name, "integer", Cell::Number(path))
}

pub const fn boolean(name: &'static str, path: &'static str) -> Column {
    column(name, "boolean", Cell::Flag(path))
}

pub const fn count(name: &'static str, path: &'static str) -> Column {
    column(name, "integer", Cell::Count(path))
}

pub const fn since(name: &'static str, path: &'static str) -> Column {
    column(name, "string", Cell::Age(path))
}

pub const fn with(name: &'static str, cell: fn(&Field<'_, '_>, Timestamp) -> Value) -> Column {
    column(name, "string", Cell::With(cell))
}

impl Column {
    /// Of another type than its content suggests.
    pub const fn of(self, r#type: &'static str) -> Column {
        Column { r#type, ..self }
    }

    pub const fn named(self) -> Column {
        Column { format: "name", ..self }
    }

    /// Shown in wide output only.
    pub const fn wide(self) -> Column {
        Column { priority: 1, ..self }
    }

    pub fn definition(&self) -> TableColumnDefinition {
        let Column { name, r#type, format, priority, description, .. } = *self;
        TableColumnDefinition::new(name, r#type, format, priority, description)
    }

    pub fn cell(&self, object: &Field<'_, '_>, now: Timestamp) -> Value {
        match self.cell {
            Cell::Text(path, absent) => {
                let field = object.at(path);
                match field.value() {
                    Value::Null => absent.into(),
                    Value::String(text) if text.is_empty() => absent.into(),
                    Value::Number(number) => number.to_string().into(),
                    value => value.clone(),
                }
            }
            Cell::Number(path) => object.at(path).int().into(),
            Cell::Flag(path) => object.at(path).flag().into(),
            Cell::Count(path) => object.at(path).len().into(),
            Cell::Age(path) => age(&object.at(path), now).into(),
            Cell::With(cell) => cell(object, now),
        }
    }
}

/// An object's cells, one for each column, and the marks on it.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Row {
    pub cells: Vec<Value>,
    pub conditions: Vec<TableRowCondition>,
}

/// What upstream prints of a kind that has no columns of its own.
pub const USUAL: &[Column] =
    &[NAME, column("Created At", "date", Cell::Text("metadata.creationTimestamp", ""))];

/// How long ago, in kubectl's words.
pub fn age(time: &Field<'_, '_>, now: Timestamp) -> String {
    timestamp(time).map_or_else(|| "<unknown>".to_owned(), |since| elapsed(since, now))
}

pub fn elapsed(since: Timestamp, until: Timestamp) -> String {
    Duration::from_secs(until.as_second() - since.as_second()).human()
}

pub fn timestamp(time: &Field<'_, '_>) -> Option<Timestamp> {
    time.text().parse().ok()
}

/// Names of a template's containers, or their images.
pub fn containers(spec: &Field<'_, '_>, part: &'static str) -> Value {
    let list = spec.at("containers");
    let texts: Vec<&str> = list.items().map(|container| container.at(part).text()).collect();
    texts.join(",").into()
}

pub fn selector(selector: &Field<'_, '_>) -> Value {
    format_label_selector(selector.read().as_ref()).into()
}

/// `a=b,c=d`, or that there is nothing.
pub fn labels(map: &Field<'_, '_>) -> Value {
    let pairs: Vec<String> =
        map.labels().iter().map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",").into() }
}

/// The first few of many.
pub fn first_of(list: &[String], max: usize, separator: &str) -> String {
    match list {
        [] => "<none>".to_owned(),
        _ if list.len() <= max => list.join(separator),
        _ => format!("{} + {} more...", list[..max].join(separator), list.len() - max),
    }
}
