//! `configMapGenerator` and `secretGenerator`.
use super::{Item, texts};
use crate::failure::{Failure, Outcome};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::path::Path;

pub fn add(items: &mut Vec<Item>, folder: &Path, kustomization: &Value) -> Outcome {
    for (field, kind) in [("configMapGenerator", "ConfigMap"), ("secretGenerator", "Secret")] {
        for entry in kustomization[field].as_array().into_iter().flatten() {
            let item = generated(entry, kind, folder, &kustomization["generatorOptions"])?;
            join(items, item, entry["behavior"].as_str().unwrap_or("create"))?;
        }
    }
    Ok(())
}

fn generated(entry: &Value, kind: &str, folder: &Path, common: &Value) -> Outcome<Item> {
    let name = entry["name"].as_str().unwrap_or_default().to_owned();
    let mut pairs: Vec<(String, Vec<u8>)> = Vec::new();
    for literal in texts(&entry["literals"]) {
        let (key, value) = literal.split_once('=').ok_or_else(|| {
            Failure::Plain(format!("invalid literal source {literal}, expected key=value"))
        })?;
        pairs.push((key.to_owned(), value.trim_matches(['"', '\'']).as_bytes().to_vec()));
    }
    for file in texts(&entry["files"]) {
        let (key, path) =
            file.split_once('=').unwrap_or_else(|| (file.rsplit('/').next().unwrap_or(file), file));
        pairs.push((key.to_owned(), read(&folder.join(path))?));
    }
    let single = entry["env"].as_str().into_iter();
    for file in texts(&entry["envs"]).into_iter().chain(single) {
        let text = String::from_utf8_lossy(&read(&folder.join(file))?).into_owned();
        for line in
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            pairs.push((key.to_owned(), value.as_bytes().to_vec()));
        }
    }
    let mut object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } });
    if let Some(namespace) = entry["namespace"].as_str() {
        object["metadata"]["namespace"] = namespace.into();
    }
    if kind == "Secret" {
        object["type"] = entry["type"].as_str().unwrap_or("Opaque").into();
    }
    for (key, value) in pairs {
        match (kind, String::from_utf8(value)) {
            ("ConfigMap", Ok(text)) => object["data"][key] = text.into(),
            ("ConfigMap", Err(bytes)) => {
                object["binaryData"][key] = STANDARD.encode(bytes.as_bytes()).into();
            }
            (_, Ok(text)) => object["data"][key] = STANDARD.encode(text).into(),
            (_, Err(bytes)) => object["data"][key] = STANDARD.encode(bytes.as_bytes()).into(),
        }
    }
    let mut hashed = true;
    for options in [common, &entry["options"]] {
        for field in ["labels", "annotations"] {
            for (key, value) in options[field].as_object().into_iter().flatten() {
                object["metadata"][field][key] = value.clone();
            }
        }
        if let Some(disabled) = options["disableNameSuffixHash"].as_bool() {
            hashed = !disabled;
        }
        if options["immutable"] == true {
            object["immutable"] = true.into();
        }
    }
    Ok(Item { object, original: name, hashed })
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| Failure::Plain(crate::print::io_text(&path.display().to_string(), &error)))
}

/// What is generated is new, or takes the place of what a base made, or is added to it.
fn join(items: &mut Vec<Item>, item: Item, behavior: &str) -> Outcome {
    let old = items
        .iter_mut()
        .find(|old| old.original == item.original && old.object["kind"] == item.object["kind"]);
    match (behavior, old) {
        ("create", None) => items.push(item),
        ("create", Some(_)) => {
            return Err(
                format!("id {} exists; behavior must be merge or replace", item.original).into()
            );
        }
        ("replace", Some(old)) => {
            let name = old.object["metadata"]["name"].clone();
            *old = item;
            old.object["metadata"]["name"] = name;
        }
        ("merge", Some(old)) => {
            for field in ["data", "binaryData"] {
                let more: Map<String, Value> =
                    item.object[field].as_object().cloned().unwrap_or_default();
                for (key, value) in more {
                    old.object[field][key] = value;
                }
            }
        }
        (behavior, None) => {
            return Err(format!("id {} does not exist; cannot {behavior}", item.original).into());
        }
        (other, Some(_)) => return Err(format!("unknown behavior {other}").into()),
    }
    Ok(())
}
