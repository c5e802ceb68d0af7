//! Kustomizations: objects of other files, changed on the way.
use crate::builder::files;
use crate::failure::{Failure, Outcome};
use api::codec::yaml;
use serde_json::Value;
use std::path::{Path, PathBuf};

const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The objects that a folder's kustomization makes.
pub fn build(folder: &Path) -> Outcome<Vec<Value>> {
    let file = NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let Some(file) = file else {
        return Err(format!(
            "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'",
            std::path::absolute(folder).unwrap_or(folder.to_owned()).display()
        )
        .into());
    };
    let text = std::fs::read(&file)?;
    let kustomization = yaml::decode_untyped(&text)
        .map_err(|error| Failure::Plain(format!("invalid Kustomization: {error}")))?
        .value;
    resources(folder, &kustomization)
}

fn resources(folder: &Path, kustomization: &Value) -> Outcome<Vec<Value>> {
    let mut all = Vec::new();
    for list in ["resources", "bases"] {
        for entry in kustomization[list].as_array().into_iter().flatten() {
            let path: PathBuf = folder.join(entry.as_str().unwrap_or_default());
            if path.is_dir() {
                all.extend(build(&path)?);
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(|error| {
                let name = path.display().to_string();
                Failure::Plain(format!("accumulating resources: {}", crate::print::io_text(&name, &error)))
            })?;
            let mut found = Vec::new();
            files::read(&text, &path.display().to_string(), &mut found)?;
            all.extend(found.into_iter().map(|(object, _)| object));
        }
    }
    Ok(all)
}
