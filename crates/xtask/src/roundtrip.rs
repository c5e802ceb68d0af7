//! `cargo xtask roundtrip PATH`: every sample object in a folder, in each of its encodings, is
//! decoded and encoded to the others; all must be the same object, and protobuf and YAML the same
//! bytes. Kubernetes keeps such a folder (`staging/src/k8s.io/api/testdata/HEAD`).
use api::codec::object::{self, Encoding, TypeMeta};
use api::schema::{TypeRef, builtin};
use serde_json::Value;
use std::path::{Path, PathBuf};

pub fn run(folder: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut samples: Vec<PathBuf> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    samples.sort();
    let mut failed = 0;
    for sample in &samples {
        if let Err(problem) = check(sample) {
            failed += 1;
            println!("{}: {problem}", sample.file_name().unwrap_or_default().to_string_lossy());
        }
    }
    println!("{} kinds passed, {failed} failed", samples.len() - failed);
    if failed > 0 || samples.is_empty() { Err("some samples differ".into()) } else { Ok(()) }
}

fn check(json: &Path) -> Result<(), String> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let text = read(json)?;
    let plain: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    let meta = TypeMeta::of(&plain);
    // A watch event does not say what it is; its file's name does.
    let kind = json.file_stem().unwrap_or_default().to_string_lossy();
    let kind = kind.rsplit('.').next().unwrap_or_default();
    let ty = meta
        .type_in(builtin())
        .or_else(|| builtin().named(&format!("meta/v1.{kind}")))
        .ok_or_else(|| format!("no facts about {meta:?}"))?;
    let decoded = object::decode(&text, Encoding::Json, ty).map_err(|e| format!("json: {e}"))?;
    if !decoded.problems.is_empty() {
        return Err(format!("json: {:?}", decoded.problems));
    }
    same("json", &decoded.value, &plain)?;
    check_form(&read(&json.with_extension("yaml"))?, Encoding::Yaml, ty, &plain)?;
    check_form(&read(&json.with_extension("pb"))?, Encoding::Protobuf, ty, &plain)
}

/// Decoding gives the object; encoding the object gives the sample's bytes.
fn check_form(
    bytes: &[u8],
    encoding: Encoding,
    ty: TypeRef<'_>,
    value: &Value,
) -> Result<(), String> {
    let decoded = object::decode(bytes, encoding, ty).map_err(|e| format!("{encoding:?}: {e}"))?;
    same(&format!("{encoding:?}"), &decoded.value, value)?;
    let encoded = object::encode(value, encoding, ty);
    if encoded == bytes {
        return Ok(());
    }
    let at = encoded.iter().zip(bytes).take_while(|(a, b)| a == b).count();
    let around = |b: &[u8]| {
        let part = &b[at.saturating_sub(40).min(b.len())..(at + 40).min(b.len())];
        String::from_utf8_lossy(part).into_owned()
    };
    Err(format!("{encoding:?}: byte {at} differs: {:?}, not {:?}", around(&encoded), around(bytes)))
}

fn same(what: &str, found: &Value, wanted: &Value) -> Result<(), String> {
    match difference(found, wanted, String::new()) {
        Some(path) => Err(format!("{what}: {path}")),
        None => Ok(()),
    }
}

/// The first place where two trees differ.
pub fn difference(found: &Value, wanted: &Value, path: String) -> Option<String> {
    match (found, wanted) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            names.into_iter().find_map(|name| {
                let path = format!("{path}.{name}");
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => difference(a, b, path),
                    (Some(a), None) => Some(format!("{path} is {a}, not absent")),
                    (None, b) => {
                        Some(format!("{path} is absent, not {}", b.unwrap_or(&Value::Null)))
                    }
                }
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs.into_iter().find_map(|(i, (a, b))| difference(a, b, format!("{path}[{i}]")))
        }
        _ => (found != wanted).then(|| format!("{path} is {found}, not {wanted}")),
    }
}
