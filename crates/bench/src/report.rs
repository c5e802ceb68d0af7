//! What a benchmark found: rows of named figures, printed as a table or as JSON.
use serde_json::{Map, Value, json};

pub struct Report {
    bench: &'static str,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    figures: Vec<(&'static str, f64)>,
}

impl Report {
    pub fn new(bench: &'static str) -> Self {
        Report { bench, rows: Vec::new() }
    }

    /// Adds a row; the figures' names (with their unit, as in `"MB/s"`) become columns.
    pub fn row(&mut self, name: impl Into<String>, figures: &[(&'static str, f64)]) {
        self.rows.push(Row { name: name.into(), figures: figures.to_vec() });
    }

    pub fn print_json(&self) {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let figures: Map<String, Value> = row
                    .figures
                    .iter()
                    .map(|(name, value)| ((*name).into(), json!(value)))
                    .collect();
                json!({ "name": row.name, "figures": figures })
            })
            .collect();
        println!("{}", json!({ "bench": self.bench, "rows": rows }));
    }

    /// Rows with the same columns share a heading.
    pub fn print_table(&self) {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let mut heading: Vec<&str> = Vec::new();
        for row in &self.rows {
            let columns: Vec<&str> = row.figures.iter().map(|(name, _)| *name).collect();
            if columns != heading {
                let cells: Vec<String> = columns.iter().map(|c| format!("{c:>14}")).collect();
                println!("{:width$}{}", "", cells.concat());
                heading = columns;
            }
            let cells: Vec<String> =
                row.figures.iter().map(|(_, v)| format!("{v:>14.2}")).collect();
            println!("{:width$}{}", row.name, cells.concat());
        }
    }
}
