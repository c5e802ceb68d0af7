//! Kubeconfig files: which ones count, what they say together, and how one is changed. They are
//! kept as trees, so that what we do not know survives a change.
use crate::failure::{Failure, Outcome};
use crate::flags::Arguments;
use api::codec::yaml;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The files in the order in which they count.
#[derive(Debug, Clone, PartialEq)]
pub struct Files {
    pub paths: Vec<PathBuf>,
    /// One was named, and has to be there.
    pub explicit: bool,
}

impl Files {
    /// By flag, environment, or the user's own.
    pub fn find(arguments: &Arguments) -> Files {
        let variable = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        match (arguments.some("kubeconfig"), variable) {
            (Some(path), _) => Files { paths: vec![path.into()], explicit: true },
            (None, Some(list)) => {
                let mut paths: Vec<PathBuf> = Vec::new();
                for path in std::env::split_paths(&list) {
                    if !path.as_os_str().is_empty() && !paths.contains(&path) {
                        paths.push(path);
                    }
                }
                Files { paths, explicit: false }
            }
            (None, None) => Files { paths: vec![home.join(".kube/config")], explicit: false },
        }
    }

    /// What they say together: of each entry the first that there is.
    pub fn merged(&self) -> Outcome<Value> {
        let mut all = empty();
        for path in &self.paths {
            match read(path) {
                Ok(Some(mut tree)) => {
                    resolve(&mut tree, path.parent().unwrap_or(Path::new(".")));
                    merge(&mut all, tree);
                }
                Ok(None) if self.explicit => {
                    let text = format!("stat {}: no such file or directory", path.display());
                    return Err(text.into());
                }
                Ok(None) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(all)
    }

    /// Where what is new goes: the first file that is there, or the last.
    pub fn default_file(&self) -> PathBuf {
        let there = self.paths.iter().find(|path| path.exists());
        there.or(self.paths.last()).cloned().unwrap_or_default()
    }

    /// The file that an entry is in.
    pub fn file_of(&self, list: &str, name: &str) -> Outcome<Option<PathBuf>> {
        for path in &self.paths {
            if let Some(tree) = read(path)?
                && entry(&tree, list, name).is_some()
            {
                return Ok(Some(path.clone()));
            }
        }
        Ok(None)
    }

    /// The file that says which context is current.
    pub fn file_of_current(&self) -> Outcome<PathBuf> {
        for path in &self.paths {
            if let Some(tree) = read(path)?
                && tree["current-context"].as_str().is_some_and(|name| !name.is_empty())
            {
                return Ok(path.clone());
            }
        }
        Ok(self.default_file())
    }
}

pub fn empty() -> Value {
    json!({ "apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": "",
        "clusters": [], "contexts": [], "users": [] })
}

/// None if there is no such file.
pub fn read(path: &Path) -> Outcome<Option<Value>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let text = format!("error loading config file \"{}\": {error}", path.display());
            return Err(text.into());
        }
    };
    let tree = yaml::decode_untyped(&bytes).map_err(|error| {
        Failure::Plain(format!("error loading config file \"{}\": {error}", path.display()))
    })?;
    Ok(Some(if tree.value.is_object() { tree.value } else { empty() }))
}

/// Writes a file that only its owner may read, at once or not at all.
pub fn write(path: &Path, tree: &Value) -> Outcome {
    use std::io::Write;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(yaml::encode(tree).as_bytes())?;
    file.persist(path).map_err(|error| Failure::Plain(error.to_string()))?;
    Ok(())
}

/// What a list's entries are called: `clusters` hold a `cluster` each.
fn inner(list: &str) -> &str {
    list.trim_end_matches('s')
}

/// The content of an entry.
pub fn entry<'t>(tree: &'t Value, list: &str, name: &str) -> Option<&'t Value> {
    let found = tree[list].as_array()?.iter().find(|item| item["name"] == name)?;
    Some(&found[inner(list)])
}

/// The same to be changed; made if need be.
pub fn entry_mut<'t>(tree: &'t mut Value, list: &str, name: &str) -> &'t mut Value {
    if !tree.is_object() {
        *tree = empty();
    }
    if !tree[list].is_array() {
        tree[list] = json!([]);
    }
    let at = tree[list].as_array().and_then(|all| all.iter().position(|one| one["name"] == name));
    let at = at.unwrap_or_else(|| {
        let Some(all) = tree[list].as_array_mut() else { return 0 };
        all.push(json!({ "name": name, inner(list): {} }));
        all.len() - 1
    });
    let entry = &mut tree[list][at][inner(list)];
    if !entry.is_object() {
        *entry = json!({});
    }
    entry
}

/// True if there was one.
pub fn remove(tree: &mut Value, list: &str, name: &str) -> bool {
    let Some(all) = tree[list].as_array_mut() else { return false };
    let before = all.len();
    all.retain(|item| item["name"] != name);
    all.len() < before
}

pub fn names(tree: &Value, list: &str) -> Vec<String> {
    let all = tree[list].as_array().into_iter().flatten();
    let mut names: Vec<String> =
        all.filter_map(|item| item["name"].as_str().map(str::to_owned)).collect();
    names.sort();
    names
}

fn merge(all: &mut Value, more: Value) {
    if all["current-context"].as_str().is_none_or(str::is_empty)
        && more["current-context"].is_string()
    {
        all["current-context"] = more["current-context"].clone();
    }
    for list in ["clusters", "contexts", "users"] {
        let Some(items) = more[list].as_array() else { continue };
        for item in items {
            let Some(name) = item["name"].as_str() else { continue };
            if entry(all, list, name).is_none()
                && let Some(all) = all[list].as_array_mut()
            {
                all.push(item.clone());
            }
        }
    }
}

/// Paths are relative to the file that names them.
fn resolve(tree: &mut Value, folder: &Path) {
    let folder = std::path::absolute(folder).unwrap_or(folder.to_owned());
    let join = |fields: &mut Map<String, Value>, name: &str| {
        if let Some(path) = fields.get(name).and_then(Value::as_str).filter(|path| !path.is_empty())
        {
            let path = folder.join(path).display().to_string();
            fields.insert(name.to_owned(), path.into());
        }
    };
    for (list, fields) in [
        ("clusters", &["certificate-authority"][..]),
        ("users", &["client-certificate", "client-key", "tokenFile"]),
    ] {
        for item in tree[list].as_array_mut().into_iter().flatten() {
            let Some(content) = item[inner(list)].as_object_mut() else { continue };
            for field in fields {
                join(content, field);
            }
            if let Some(exec) = content.get_mut("exec").and_then(Value::as_object_mut)
                && exec.get("command").and_then(Value::as_str).is_some_and(|c| c.contains('/'))
            {
                join(exec, "command");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_that_says_something_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&a, "clusters: [{name: c, cluster: {server: first}}]").unwrap();
        let second = "current-context: x\nclusters: [{name: c, cluster: {server: second}}, \
                      {name: d, cluster: {certificate-authority: ca}}]\n";
        std::fs::write(&b, second).unwrap();
        let files =
            Files { paths: vec![folder.path().join("none"), a, b.clone()], explicit: false };
        let all = files.merged().unwrap();
        assert_eq!(entry(&all, "clusters", "c").unwrap()["server"], "first");
        let authority = entry(&all, "clusters", "d").unwrap()["certificate-authority"].as_str();
        assert_eq!(authority, folder.path().join("ca").to_str());
        assert_eq!(all["current-context"], "x");
        assert_eq!(files.file_of_current().unwrap(), b);
        assert_eq!(files.file_of("clusters", "d").unwrap(), Some(b));
    }

    #[test]
    fn entries_are_made_and_removed() {
        let mut tree = Value::Null;
        entry_mut(&mut tree, "users", "u")["token"] = "t".into();
        assert_eq!(entry(&tree, "users", "u"), Some(&json!({ "token": "t" })));
        assert!(remove(&mut tree, "users", "u") && !remove(&mut tree, "users", "u"));
    }
}
