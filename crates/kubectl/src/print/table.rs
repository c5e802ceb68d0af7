//! The table that the server makes of objects, as people see it.
use super::tabs::Tabs;
use serde_json::Value;
use std::fmt::Write as _;

/// What is shown besides the server's own columns.
#[derive(Debug, Clone, Default)]
pub struct Look {
    pub wide: bool,
    pub no_headers: bool,
    pub with_namespace: bool,
    /// `deployment.apps/`, before names.
    pub kind: String,
    pub show_labels: bool,
    pub label_columns: Vec<String>,
}

/// Tables of one resource, one after the other; headers come once.
#[derive(Debug)]
pub struct Tables {
    look: Look,
    tabs: Tabs,
    /// Which of the server's columns are shown, once the first table has come.
    shown: Option<Vec<usize>>,
    name_at: usize,
}

impl Tables {
    pub fn new(look: Look) -> Tables {
        Tables { look, tabs: Tabs::default(), shown: None, name_at: 0 }
    }

    /// Lines for a table's rows, each with what happened to it, if that is wanted.
    pub fn lines(&mut self, table: &Value, event: Option<&str>) -> String {
        let mut rows = Vec::new();
        if self.shown.is_none() {
            let columns: &[Value] =
                table["columnDefinitions"].as_array().map_or(&[], Vec::as_slice);
            let fits =
                |column: &Value| self.look.wide || column["priority"].as_i64().unwrap_or(0) == 0;
            let shown: Vec<usize> = (0..columns.len()).filter(|at| fits(&columns[*at])).collect();
            self.name_at =
                columns.iter().position(|column| column["format"] == "name").unwrap_or_default();
            if !self.look.no_headers {
                rows.push(self.headers(columns, &shown, event.is_some()));
            }
            self.shown = Some(shown);
        }
        for row in table["rows"].as_array().into_iter().flatten() {
            rows.push(self.row(row, event));
        }
        self.tabs.lines(&rows)
    }

    fn headers(&self, columns: &[Value], shown: &[usize], with_event: bool) -> Vec<String> {
        let mut cells = Vec::new();
        if with_event {
            cells.push("EVENT".to_owned());
        }
        if self.look.with_namespace {
            cells.push("NAMESPACE".to_owned());
        }
        let names = shown.iter().map(|at| columns[*at]["name"].as_str().unwrap_or_default());
        cells.extend(names.map(str::to_uppercase));
        for label in &self.look.label_columns {
            cells.push(label.rsplit('/').next().unwrap_or(label).to_uppercase());
        }
        if self.look.show_labels {
            cells.push("LABELS".to_owned());
        }
        cells
    }

    fn row(&self, row: &Value, event: Option<&str>) -> Vec<String> {
        let metadata = &row["object"]["metadata"];
        let mut cells = Vec::new();
        if let Some(event) = event {
            cells.push(event.to_owned());
        }
        if self.look.with_namespace {
            cells.push(metadata["namespace"].as_str().unwrap_or_default().to_owned());
        }
        for at in self.shown.iter().flatten() {
            let cell = cell(&row["cells"][*at]);
            cells.push(match *at == self.name_at {
                true => format!("{}{cell}", self.look.kind),
                false => cell,
            });
        }
        for label in &self.look.label_columns {
            cells.push(metadata["labels"][label].as_str().unwrap_or_default().to_owned());
        }
        if self.look.show_labels {
            cells.push(labels(&metadata["labels"]));
        }
        cells
    }
}

/// A cell in one line.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => {
            let Some(end) = text.find(['\x0c', '\n', '\r']) else { return text.clone() };
            format!("{}...", &text[..end])
        }
        value => super::jsonpath::go_value(value),
    }
}

/// `a=b,c=d`.
pub fn labels(value: &Value) -> String {
    let mut out = String::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        let comma = if out.is_empty() { "" } else { "," };
        let _ = write!(out, "{comma}{key}={}", value.as_str().unwrap_or_default());
    }
    if out.is_empty() { "<none>".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table() -> Value {
        json!({ "columnDefinitions": [
            { "name": "Name", "format": "name" }, { "name": "Ready" },
            { "name": "Node", "priority": 1 } ],
            "rows": [
                { "cells": ["web", "1/1", "n1"], "object": { "metadata": { "namespace": "default",
                    "labels": { "app": "web", "a/tier": "x" } } } },
                { "cells": ["db", 3, null], "object": { "metadata": { "namespace": "default" } } } ] })
    }

    #[test]
    fn a_table_has_the_columns_that_were_asked_for() {
        let mut plain = Tables::new(Look::default());
        assert_eq!(plain.lines(&table(), None), "NAME   READY\nweb    1/1\ndb     3\n");
        assert_eq!(plain.lines(&table(), None), "web    1/1\ndb     3\n");
        let look = Look {
            wide: true,
            with_namespace: true,
            kind: "pod/".to_owned(),
            show_labels: true,
            label_columns: vec!["a/tier".to_owned()],
            ..Look::default()
        };
        assert_eq!(
            Tables::new(look).lines(&table(), None),
            "NAMESPACE   NAME      READY   NODE   TIER   LABELS\n\
             default     pod/web   1/1     n1     x      a/tier=x,app=web\n\
             default     pod/db    3                     <none>\n"
        );
        let look = Look { no_headers: true, ..Look::default() };
        assert_eq!(
            Tables::new(look).lines(&table(), Some("ADDED")),
            "ADDED   web   1/1\nADDED   db    3\n"
        );
    }
}
