//! Objects that flags make: what `create`, `run`, `expose` and `autoscale` send.
//!
//! ```text
//!  Generator   a row per object: its flags, how it is made, what a refusal is called
//!  workload · config · service · ingress · access · policy    the rows of `create`
//!  pod (run) · expose · autoscale · token                      what has a command of its own
//! ```
//!
//! A generator is a function of typed words and of what the command found for them at its rim
//! ([`Rim`]: files, the server's resources). Objects look as Go's typed objects are written: a few
//! empty fields are part of them, since people keep what `--dry-run=client -o yaml` prints.

pub mod access;
pub mod autoscale;
pub mod config;
pub mod expose;
pub mod ingress;
pub mod pod;
pub mod policy;
pub mod service;
#[cfg(test)]
mod tests;
pub mod token;
pub mod workload;

use std::collections::BTreeMap;

use api::patch::{json_patch, merge, strategic};
use api::quote::Quoted;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag};

/// How an object is made of flags.
pub struct Generator {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub about: &'static str,
    pub usage: &'static str,
    pub flags: &'static [Flag],
    /// Flags that have to be there.
    pub required: &'static [&'static str],
    /// What goes before a refusal of the server.
    pub refused: &'static str,
    pub make: fn(&Arguments, &Rim<'_>) -> Outcome<Made>,
}

impl Generator {
    /// A row to be filled.
    pub const EMPTY: Generator = Generator {
        name: "",
        aliases: &[],
        about: "",
        usage: "",
        flags: &[],
        required: &[],
        refused: "",
        make: |_, _| Ok(Made { object: Value::Null, warnings: Vec::new() }),
    };

    /// The object that the words mean.
    pub fn make(&self, arguments: &Arguments, rim: &Rim<'_>) -> Outcome<Made> {
        required(arguments, self.required)?;
        (self.make)(arguments, rim)
    }
}

/// An object, and what its maker is to be told about it.
#[derive(Debug)]
pub struct Made {
    pub object: Value,
    pub warnings: Vec<String>,
}

impl From<Value> for Made {
    fn from(object: Value) -> Made {
        Made { object, warnings: Vec::new() }
    }
}

/// The plural and group that the server has for a resource.
pub type Resolved = (String, String);

/// What generators may ask for: all that is not in the words themselves.
pub struct Rim<'a> {
    pub read: &'a dyn Fn(&str) -> std::io::Result<Source>,
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> String,
    /// So many random characters.
    pub random: &'a dyn Fn(usize) -> String,
    /// The plural and group that the server has for a resource and group.
    pub resource: &'a (dyn Fn(&str, &str) -> Option<Resolved> + 'a),
    /// The CronJob that `--from` names.
    pub cron_job: Option<&'a Value>,
}

/// What is found at a path.
#[derive(Clone, Debug)]
pub enum Source {
    File(Vec<u8>),
    /// The regular files of a folder, by name.
    Folder(Vec<(String, Vec<u8>)>),
}

/// Flags that a command cannot do without, in the words of upstream's parser.
pub fn required(arguments: &Arguments, names: &[&str]) -> Outcome {
    let missing: Vec<String> = names
        .iter()
        .filter(|name| !arguments.given(name))
        .map(|name| format!("\"{name}\""))
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::Plain(format!("required flag(s) {} not set", missing.join(", ")))),
    }
}

/// The one name that was typed; what follows `--` is none.
pub fn name(arguments: &Arguments) -> Outcome<&str> {
    let count = arguments.dash.unwrap_or(arguments.words.len());
    match arguments.words.first().filter(|_| count == 1) {
        Some(name) if name.is_empty() => Err("name must be specified".into()),
        Some(name) => Ok(name),
        None => Err(Failure::Plain(format!(
            "exactly one NAME is required, got {count}\nSee '{} -h' for help and examples",
            arguments.command
        ))),
    }
}

/// What follows the name: a command to run.
fn command(arguments: &Arguments) -> &[String] {
    arguments.words.get(1..).unwrap_or_default()
}

/// An object with a name and nothing else.
fn named(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

/// Gives a field that is not empty to an object.
fn put(object: &mut Value, field: &str, value: impl Into<Value>) {
    let value = value.into();
    let empty = match &value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    if !empty {
        object[field] = value;
    }
}

/// Labels as `a=b,c=d`.
pub fn labels(text: &str) -> Outcome<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    if text.is_empty() {
        return Ok(labels);
    }
    for spec in text.split(',') {
        let parts: Vec<&str> = spec.split('=').collect();
        match parts[..] {
            ["", _] => return Err("unexpected empty label key".into()),
            [key, value] => labels.insert(key.to_owned(), value.to_owned()),
            _ => return Err(format!("unexpected label spec: {spec}").into()),
        };
    }
    Ok(labels)
}

/// A number or a name of a port.
fn int_or_string(text: &str) -> Value {
    match text.parse::<i32>() {
        Ok(number) => json!(number),
        Err(_) => json!(text),
    }
}

/// Changes an object that flags made by what `--overrides` says.
pub fn overridden(mut object: Value, arguments: &Arguments) -> Outcome<Value> {
    let Some(text) = arguments.some("overrides") else { return Ok(object) };
    let patch: Value =
        serde_json::from_str(text).map_err(|error| match arguments.text("override-type") {
            "json" => Failure::Plain(error.to_string()),
            "strategic" => Failure::from("invalid JSON document"),
            _ => Failure::from("Invalid JSON Patch"),
        })?;
    match arguments.text("override-type") {
        "merge" | "" => {
            merge::apply(&mut object, &patch).map_err(|error| Failure::Plain(error.to_string()))?;
            Ok(object)
        }
        "json" => {
            let failed = |error: json_patch::Error| Failure::Plain(error.to_string());
            let limits = json_patch::Limits::default();
            json_patch::Patch::decode(patch, &limits)
                .and_then(|patch| patch.apply(object, &limits))
                .map_err(failed)
        }
        "strategic" => {
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            let Some(row) = api::kinds::find_kind(&text("apiVersion"), &text("kind")) else {
                return Ok(object);
            };
            strategic::merge(object, patch, row.ty())
                .map_err(|error| Failure::Plain(error.to_string()))
        }
        other => Err(format!("invalid override type: {other}").into()),
    }
}

/// A list of texts as JSON.
fn strings(items: &[String]) -> Value {
    items.iter().map(|item| json!(item)).collect()
}

/// Texts without those that were there before.
fn unique(items: &[String]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for item in items {
        if !out.contains(item) {
            out.push(item.clone());
        }
    }
    out
}

/// Go's `%q`.
fn quoted(text: &str) -> String {
    Quoted(text).to_string()
}
