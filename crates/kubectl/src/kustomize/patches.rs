//! `patches`, `patchesStrategicMerge`, `patchesJson6902`, and `replacements` of one value by another.
use super::Item;
use crate::builder::files;
use crate::failure::{Failure, Outcome};
use api::codec::yaml;
use api::patch::{json_patch, merge, strategic};
use api::regexp::Regexp;
use api::selector::label::Selector;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

pub fn apply(items: &mut Vec<Item>, folder: &Path, kustomization: &Value) -> Outcome {
    for entry in kustomization["patchesStrategicMerge"].as_array().into_iter().flatten() {
        let text = entry.as_str().unwrap_or_default();
        let path = folder.join(text);
        let text = match !text.contains('\n') && path.is_file() {
            true => std::fs::read_to_string(path)?,
            false => text.to_owned(),
        };
        apply_text(items, &text, &Value::Null)?;
    }
    for list in ["patches", "patchesJson6902"] {
        for entry in kustomization[list].as_array().into_iter().flatten() {
            let text = match (entry["path"].as_str(), entry["patch"].as_str()) {
                (Some(path), _) => {
                    let path = folder.join(path);
                    std::fs::read_to_string(&path).map_err(|error| {
                        let name = path.display().to_string();
                        Failure::Plain(crate::print::io_text(&name, &error))
                    })?
                }
                (None, Some(text)) => text.to_owned(),
                (None, None) => return Err("must specify one of patch and path in a patch".into()),
            };
            apply_text(items, &text, &entry["target"])?;
        }
    }
    Ok(())
}

fn apply_text(items: &mut Vec<Item>, text: &str, target: &Value) -> Outcome {
    let whole = yaml::decode_untyped(text.as_bytes()).map(|decoded| decoded.value);
    if let Ok(Value::Array(operations)) = whole {
        let limits = json_patch::Limits::default();
        let failed = |error: json_patch::Error| Failure::Plain(error.to_string());
        let patch = json_patch::Patch::decode(operations.into(), &limits).map_err(failed)?;
        let mut found = false;
        for item in items.iter_mut() {
            if is_target(item, target)? {
                found = true;
                item.object = patch.apply(item.object.clone(), &limits).map_err(failed)?;
            }
        }
        return if found { Ok(()) } else { Err(format!("no matches for {target}").into()) };
    }
    let mut patches = Vec::new();
    files::read(text, "patch", &mut patches)?;
    for (patch, _) in patches {
        merge_into(items, &patch, target)?;
    }
    Ok(())
}

fn merge_into(items: &mut Vec<Item>, patch: &Value, target: &Value) -> Outcome {
    let mut found = false;
    let mut kept = Vec::new();
    for mut item in items.drain(..) {
        let is_meant = match target.is_object() {
            true => is_target(&item, target)?,
            false => is_same(&item, patch),
        };
        if !is_meant {
            kept.push(item);
            continue;
        }
        found = true;
        if patch["$patch"] == "delete" {
            continue;
        }
        // What it is called is not for a patch to say.
        let (name, kind) = (item.object["metadata"]["name"].clone(), item.object["kind"].clone());
        let version = item.object["apiVersion"].clone();
        item.object = merged(item.object, patch)?;
        item.object["metadata"]["name"] = name;
        (item.object["kind"], item.object["apiVersion"]) = (kind, version);
        kept.push(item);
    }
    *items = kept;
    match found {
        true => Ok(()),
        false => Err(format!(
            "no matches for Id {}.{}; failed to find unique target for patch",
            patch["kind"].as_str().unwrap_or_default(),
            patch["metadata"]["name"].as_str().unwrap_or_default()
        )
        .into()),
    }
}

fn merged(object: Value, patch: &Value) -> Outcome<Value> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    match api::kinds::find_kind(&text("apiVersion"), &text("kind")) {
        Some(row) => strategic::merge(object, patch.clone(), row.ty())
            .map_err(|error| Failure::Plain(error.to_string())),
        None => {
            let mut object = object;
            merge::apply(&mut object, patch).map_err(|error| Failure::Plain(error.to_string()))?;
            Ok(object)
        }
    }
}

fn group_of(object: &Value) -> &str {
    object["apiVersion"]
        .as_str()
        .and_then(|version| version.split_once('/'))
        .map_or("", |parts| parts.0)
}

fn is_same(item: &Item, patch: &Value) -> bool {
    let name = patch["metadata"]["name"].as_str().unwrap_or_default();
    item.object["kind"] == patch["kind"]
        && group_of(&item.object) == group_of(patch)
        && (item.original == name || item.object["metadata"]["name"] == name)
}

/// Whether an object is what a selector means: names are patterns.
fn is_target(item: &Item, target: &Value) -> Outcome<bool> {
    let object = &item.object;
    let fits = |pattern: &Value, texts: &[&str]| -> Outcome<bool> {
        let Some(pattern) = pattern.as_str().filter(|pattern| !pattern.is_empty()) else {
            return Ok(true);
        };
        let pattern = Regexp::compile(&format!("^(?:{pattern})$"))
            .map_err(|error| Failure::Plain(error.to_string()))?;
        Ok(texts.iter().any(|text| pattern.is_match(text)))
    };
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let version = version.rsplit('/').next().unwrap_or_default();
    let selects = |selector: &Value, labels: &Value| -> Outcome<bool> {
        let Some(selector) = selector.as_str() else { return Ok(true) };
        let selector =
            Selector::parse(selector).map_err(|error| Failure::Plain(error.to_string()))?;
        let labels: BTreeMap<String, String> = labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), text(value)))
            .collect();
        Ok(selector.matches(&labels))
    };
    let metadata = &object["metadata"];
    Ok(fits(&target["group"], &[group_of(object)])?
        && fits(&target["version"], &[version])?
        && fits(&target["kind"], &[&text(&object["kind"])])?
        && fits(&target["name"], &[&item.original, &text(&metadata["name"])])?
        && fits(&target["namespace"], &[&text(&metadata["namespace"])])?
        && selects(&target["labelSelector"], &metadata["labels"])?
        && selects(&target["annotationSelector"], &metadata["annotations"])?)
}

/// Values that are taken from one object and put into others.
pub fn replacements(items: &mut [Item], folder: &Path, kustomization: &Value) -> Outcome {
    for entry in kustomization["replacements"].as_array().into_iter().flatten() {
        let loaded;
        let entry = match entry["path"].as_str() {
            Some(path) => {
                let text = std::fs::read(folder.join(path))?;
                loaded = yaml::decode_untyped(&text)
                    .map_err(|error| Failure::Plain(error.to_string()))?
                    .value;
                &loaded
            }
            None => entry,
        };
        let source = &entry["source"];
        let mut value = None;
        for item in items.iter() {
            if is_target(item, source)? {
                let path = source["fieldPath"].as_str().unwrap_or("metadata.name");
                value = get(&item.object, path).cloned();
            }
        }
        let value = value.ok_or_else(|| Failure::Plain(format!("nothing selected by {source}")))?;
        for target in entry["targets"].as_array().into_iter().flatten() {
            for item in items.iter_mut() {
                if !is_target(item, &target["select"])? {
                    continue;
                }
                for path in super::texts(&target["fieldPaths"]) {
                    set(&mut item.object, path, &value, target["options"]["create"] == true);
                }
            }
        }
    }
    Ok(())
}

fn get<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(object, |value, step| match value {
        Value::Array(items) => match step.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
        {
            Some(pair) => {
                let (key, wanted) = pair.split_once('=')?;
                items.iter().find(|item| item[key] == wanted)
            }
            None => items.get(step.parse::<usize>().ok()?),
        },
        value => value.get(step),
    })
}

fn set(object: &mut Value, path: &str, value: &Value, create: bool) {
    let (step, rest) = path.split_once('.').map_or((path, None), |(step, rest)| (step, Some(rest)));
    let pair = step
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'))
        .and_then(|p| p.split_once('='));
    let mut places: Vec<&mut Value> = match object {
        Value::Array(items) => match (step, pair) {
            ("*", _) => items.iter_mut().collect(),
            (_, Some((key, wanted))) => {
                items.iter_mut().filter(|item| item[key] == wanted).collect()
            }
            (step, None) => {
                step.parse::<usize>().ok().and_then(|at| items.get_mut(at)).into_iter().collect()
            }
        },
        Value::Object(fields) if create || fields.contains_key(step) => {
            vec![fields.entry(step.to_owned()).or_insert(Value::Null)]
        }
        Value::Null if create => vec![&mut object[step]],
        _ => Vec::new(),
    };
    for place in &mut places {
        match rest {
            Some(rest) => set(place, rest, value, create),
            None => **place = value.clone(),
        }
    }
}
