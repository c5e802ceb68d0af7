//! `cargo xtask gateway PATH`: regenerates the definitions of Gateway API's standard channel from a checkout
//! of kubernetes-sigs/gateway-api at `PATH`: one line of JSON each, without descriptions.
use serde_json::Value;
use std::path::Path;

const TARGET: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../ingress/src/gateway-definitions.jsonl");

pub fn run(root: &Path) -> Result<(), String> {
    let folder = root.join("config/crd/standard");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut lines = String::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|kind| kind == "yaml")) {
        let wrong = |error: String| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file).map_err(|e| wrong(e.to_string()))?;
        for document in api::codec::yaml::documents(&text) {
            let read = api::codec::yaml::decode_untyped(document.as_bytes());
            let mut tree = read.map_err(|e| wrong(e.to_string()))?.value;
            if tree["kind"] != "CustomResourceDefinition" {
                continue;
            }
            without_prose(&mut tree);
            lines.push_str(&tree.to_string());
            lines.push('\n');
        }
    }
    std::fs::write(TARGET, lines).map_err(|e| format!("{TARGET}: {e}"))
}

/// A property that is called `description` is an object, and stays.
fn without_prose(tree: &mut Value) {
    match tree {
        Value::Object(fields) => {
            fields.retain(|name, value| name != "description" || !value.is_string());
            fields.values_mut().for_each(without_prose);
        }
        Value::Array(items) => items.iter_mut().for_each(without_prose),
        _ => {}
    }
}
