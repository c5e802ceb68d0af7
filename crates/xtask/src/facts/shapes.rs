//! Types as Go's reflection names them: the second table of facts, for what upstream's hashes are made of
//! (`crates/api/src/hash`). Only what a pod template consists of is in it.
use super::{GoPackage, short};
use crate::facts::go::{Definition, GoField};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

/// Where the table begins.
const ROOT: (&str, &str) = ("k8s.io/api/core/v1", "PodTemplateSpec");

/// Types whose insides are written by hand: their fields are no part of the API.
const LEAVES: &[&str] = &["resource.Quantity", "intstr.IntOrString", "v1.Time", "v1.FieldsV1"];

const BASIC: &[&str] = &["string", "bool", "int32", "int64", "float64", "uint8"];

pub fn table(packages: &BTreeMap<String, GoPackage>) -> Result<String, String> {
    let mut out = String::new();
    let mut known: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut queue = VecDeque::from([(ROOT.0.to_owned(), ROOT.1.to_owned())]);
    while let Some((path, name)) = queue.pop_front() {
        let shown = format!("{}.{name}", base(&path));
        if LEAVES.contains(&&*shown) {
            continue;
        }
        let place = (path.clone(), name.clone());
        match known.insert(shown.clone(), place.clone()) {
            None => {}
            Some(other) if other == place => continue,
            // Reflection does not tell `core/v1` from `meta/v1`, and so neither could the table.
            Some((other, _)) => {
                return Err(format!("{shown} is of {} and of {}", short(&other), short(&path)));
            }
        }
        let ty = packages.get(&path).and_then(|package| package.types.get(&name));
        let ty = ty.ok_or_else(|| format!("no type {shown}"))?;
        let mut reader = Reader { packages, path: &path, found: Vec::new() };
        match &ty.definition {
            Definition::Struct(fields) => {
                let _ = writeln!(out, "{shown}");
                for field in fields {
                    reader.field(field, &mut out)?;
                }
            }
            Definition::Of(target) | Definition::Alias(target) => {
                let target = reader.shown(target)?;
                let _ = writeln!(out, "{shown} = {target}");
            }
        }
        queue.extend(reader.found);
    }
    Ok(out)
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

struct Reader<'a> {
    packages: &'a BTreeMap<String, GoPackage>,
    path: &'a str,
    /// Types that are to be in the table, too.
    found: Vec<(String, String)>,
}

impl Reader<'_> {
    /// `  GoName jsonName type`; `-` for the name of an embedded struct, whose fields are the object's own.
    fn field(&mut self, field: &GoField, out: &mut String) -> Result<(), String> {
        let json = field.tags.get("json").and_then(|tag| tag.split(',').next()).unwrap_or("");
        let ty = self.shown(&field.ty)?;
        let name = field.name.as_deref().unwrap_or_else(|| ty.rsplit('.').next().unwrap_or(&ty));
        let json = if json.is_empty() { "-" } else { json };
        let _ = writeln!(out, "  {name} {json} {ty}");
        Ok(())
    }

    /// A type as reflection says it.
    fn shown(&mut self, go: &str) -> Result<String, String> {
        for prefix in ["*", "[]"] {
            if let Some(target) = go.strip_prefix(prefix) {
                return Ok(format!("{prefix}{}", self.shown(target)?));
            }
        }
        if let Some((key, value)) = go.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return Ok(format!("map[{}]{}", self.shown(key)?, self.shown(value)?));
        }
        let go = if go == "byte" { "uint8" } else { go };
        if BASIC.contains(&go) {
            return Ok(go.to_owned());
        }
        let (path, name) = match go.split_once('.') {
            Some((alias, name)) => {
                let imports = &self.packages[self.path].imports;
                let path = imports.get(alias).ok_or_else(|| format!("no import {alias}"))?;
                (path.clone(), name)
            }
            None => (self.path.to_owned(), go),
        };
        self.found.push((path.clone(), name.to_owned()));
        Ok(format!("{}.{name}", base(&path)))
    }
}
