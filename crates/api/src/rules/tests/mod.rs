//! The rules as data: an object, changes to it, and what upstream's server says of each.
//!
//! `UPDATE_EXPECT=1` rewrites the expectations. All that are about creations have been compared with
//! upstream's own server, and are what it says but for two that show whole structs.
mod again;
mod batch;
mod cluster;
mod defaults;
mod definitions;
mod devices;
mod empty;
mod network;
mod order;
mod parsers;
mod pods;
mod questions;
mod storage;
mod tables;
mod updates;
mod workloads;

use super::{Part, defaults as fill};
use crate::codec::{given, json, yaml};
use crate::kinds::{self, Resource};
use crate::patch::merge;
use expect_test::Expect;
use serde_json::Value;
use std::fmt::Write;

pub const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: default}
spec: {containers: [{name: c, image: 'nginx:1'}]}";

/// What is said of an object with each change made to it, alone.
pub fn check(base: &str, changes: &[&str], expect: Expect) {
    let (resource, base) = read(base);
    let mut said = String::new();
    for change in changes {
        let (_, object) = create(resource, &base, change);
        let _ = writeln!(said, "{change}");
        say(&mut said, (resource.rules.validate_create)(resource, &object));
    }
    expect.assert_eq(&said);
}

/// What is said of an object with one change.
pub fn said(base: &str, change: &str) -> String {
    let (resource, base) = read(base);
    let (_, object) = create(resource, &base, change);
    let mut said = String::new();
    say(&mut said, (resource.rules.validate_create)(resource, &object));
    said.lines().map(|line| format!("{}\n", line.trim_start())).collect()
}

/// What is said of each change to an object that exists.
pub fn check_update(base: &str, part: Part<'_>, changes: &[&str], expect: Expect) {
    let (resource, base) = read(base);
    let (old, _) = create(resource, &base, "{}");
    // As it was stored: rules may leave nulls behind.
    let mut old = canonical(old, resource);
    old["metadata"]["resourceVersion"] = "1".into();
    let mut said = String::new();
    for change in changes {
        let mut new = old.clone();
        merge(&mut new, change);
        let mut new = canonical(new, resource);
        fill::set(&mut new, resource.ty());
        (resource.rules.prepare_update)(resource, &mut new, &old, part);
        let _ = writeln!(said, "{change}");
        say(&mut said, (resource.rules.validate_update)(resource, &new, &old, part));
    }
    expect.assert_eq(&said);
}

/// What `metadata.generation` is after a change to an object that exists.
pub fn generation_after(base: &str, change: &str) -> i64 {
    let (resource, base) = read(base);
    let (old, _) = create(resource, &base, "{}");
    let mut new = old.clone();
    merge(&mut new, change);
    let mut new = canonical(new, resource);
    fill::set(&mut new, resource.ty());
    (resource.rules.prepare_update)(resource, &mut new, &old, Part::Main);
    new["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// The object as it is stored, beside what everyone has.
pub fn check_stored(text: &str, expect: Expect) {
    let (resource, base) = read(text);
    let (mut object, _) = create(resource, &base, "{}");
    given::forget_empty(&mut object, resource.ty());
    fill::set(&mut object, resource.ty());
    for field in ["uid", "creationTimestamp", "namespace"] {
        super::prepare::put(&mut object["metadata"], field, None);
    }
    let text = serde_json::to_string_pretty(&object).expect("a tree is JSON");
    expect.assert_eq(&text);
}

/// What `kubectl get -o wide` shows.
pub fn check_table(objects: &[&str], expect: Expect) {
    let now = "2030-01-01T00:00:00Z".parse().expect("a time");
    let mut table: Vec<Vec<String>> = Vec::new();
    for text in objects {
        let (resource, base) = read(text);
        let object = canonical(base, resource);
        if table.is_empty() {
            table.push(
                resource.rules.columns.iter().map(|column| column.name.to_uppercase()).collect(),
            );
        }
        let row = (resource.rules.row)(resource, &object, now).expect("a row");
        let cell = |cell: &Value| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned);
        table.push(row.cells.iter().map(cell).collect());
    }
    let width = |i: usize| table.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(i, cell)| format!("{cell:<w$}", w = width(i)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    expect.assert_eq(&table.iter().map(line).collect::<String>());
}

fn read(text: &str) -> (&'static Resource, Value) {
    let object = yaml::decode_untyped(text.as_bytes()).expect("YAML").value;
    let word = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    (kinds::find_kind(&word("apiVersion"), &word("kind")).expect("a kind"), object)
}

fn canonical(object: Value, resource: &Resource) -> Value {
    json::canonicalize_given(object, resource.ty()).expect("a sound object").value
}

/// The object as the rules get it, twice.
fn create(resource: &Resource, base: &Value, change: &str) -> (Value, Value) {
    let mut object = base.clone();
    // A question has no identity.
    if resource.is_stored() {
        object["metadata"]["uid"] = "u".into();
        object["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
    }
    merge(&mut object, change);
    let mut object = canonical(object, resource);
    fill::set(&mut object, resource.ty());
    (resource.rules.prepare_create)(resource, &mut object);
    (object.clone(), object)
}

fn merge(object: &mut Value, change: &str) {
    let change = yaml::decode_untyped(change.as_bytes()).expect("YAML").value;
    merge::apply(object, &change).expect("a patch");
}

fn say(said: &mut String, verdict: Result<super::Verdict, serde_json::Error>) {
    let verdict = verdict.expect("sound metadata");
    for error in &verdict.errors {
        let _ = writeln!(said, "    {error}");
    }
    for warning in &verdict.warnings {
        let _ = writeln!(said, "    warning: {warning}");
    }
    if verdict.errors.is_empty() && verdict.warnings.is_empty() {
        let _ = writeln!(said, "    fine");
    }
}
