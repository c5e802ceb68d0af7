//! The file that `--admission-control-config-file` names: `AdmissionConfiguration`, with what is
//! meant for each plugin inline or in a file of its own.
use api::codec::yaml;
use serde::Deserialize;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};

const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: [&str; 2] = ["v1", "v1alpha1"];
/// These two may have the whole file to themselves, as they had before there was a kind for it.
const LEGACY: [(&str, &str); 2] =
    [("imagePolicy", "ImagePolicyWebhook"), ("podNodeSelectorPluginConfig", "PodNodeSelector")];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Flags(String),
    #[error(
        "failed to read plugin config: unable to read admission control configuration from {path:?} [{source}]"
    )]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("failed to read plugin config: {0}")]
    Malformed(String),
    #[error("couldn't open admission plugin configuration {path}: {source}")]
    PluginFile { path: String, source: io::Error },
    #[error("couldn't init admission plugin {name:?}: {cause}")]
    Plugin { name: &'static str, cause: String },
}

/// What the file holds for each plugin.
#[derive(Debug, Default)]
pub struct Files {
    plugins: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AdmissionConfiguration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    plugins: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    path: String,
    configuration: Option<Value>,
}

impl Files {
    pub fn read(
        path: Option<&Path>,
        plugins: impl Iterator<Item = &'static str>,
    ) -> Result<Files, Error> {
        let Some(path) = path else { return Ok(Files::default()) };
        let bytes = std::fs::read(path)
            .map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
        let document = document(&bytes).map_err(Error::Malformed)?;
        if LEGACY.iter().any(|(field, _)| document.get(field).is_some()) {
            let legacy = plugins.filter(|name| LEGACY.iter().any(|(_, plugin)| plugin == name));
            let whole = |name: &str| Entry {
                name: name.to_owned(),
                path: String::new(),
                configuration: Some(document.clone()),
            };
            return Ok(Files { plugins: legacy.map(whole).collect() });
        }
        expect_type(&document, GROUP, &VERSIONS, "AdmissionConfiguration")
            .map_err(Error::Malformed)?;
        let configuration: AdmissionConfiguration =
            serde_json::from_value(document).map_err(|e| Error::Malformed(e.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut plugins = configuration.plugins;
        for entry in plugins.iter_mut().filter(|entry| !entry.path.is_empty()) {
            entry.path = folder.join(&entry.path).to_string_lossy().into_owned();
        }
        Ok(Files { plugins })
    }

    /// What a plugin is told, if anything.
    pub fn of(&self, plugin: &'static str) -> Result<Option<Value>, Error> {
        let Some(entry) = self.plugins.iter().find(|entry| entry.name == plugin) else {
            return Ok(None);
        };
        if let Some(configuration) = &entry.configuration {
            return Ok(Some(configuration.clone()));
        }
        if entry.path.is_empty() {
            return Ok(None);
        }
        let bytes = std::fs::read(&entry.path)
            .map_err(|source| Error::PluginFile { path: entry.path.clone(), source })?;
        let document = document(&bytes).map_err(|cause| Error::Plugin { name: plugin, cause })?;
        Ok(Some(document))
    }
}

fn document(bytes: &[u8]) -> Result<Value, String> {
    yaml::decode_untyped(bytes).map(|decoded| decoded.value).map_err(|error| error.to_string())
}

/// Refuses a document that is not of the kind, in one of the versions.
pub fn expect_type(
    document: &Value,
    group: &str,
    versions: &[&str],
    kind: &str,
) -> Result<(), String> {
    let text = |field: &str| document[field].as_str().unwrap_or_default();
    let (found, found_kind) = (text("apiVersion"), text("kind"));
    if found_kind.is_empty() {
        return Err("Object 'Kind' is missing".into());
    }
    if found.is_empty() {
        return Err("Object 'apiVersion' is missing".into());
    }
    let known = versions.iter().any(|version| found == format!("{group}/{version}"));
    match known && found_kind == kind {
        true => Ok(()),
        false => Err(format!("no kind {found_kind:?} is registered for version {found:?}")),
    }
}

/// Reads a plugin's configuration, which is of one kind and has no fields that it should not.
pub fn typed<T: serde::de::DeserializeOwned>(
    mut document: Value,
    group: &str,
    versions: &[&str],
    kind: &str,
) -> Result<T, String> {
    expect_type(&document, group, versions, kind)?;
    if let Value::Object(fields) = &mut document {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    serde_json::from_value(document).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(text: &str, plugin: &'static str) -> Result<Option<Value>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("other.yaml"), "a: 1\n").unwrap();
        let path = folder.path().join("admission.yaml");
        std::fs::write(&path, text).unwrap();
        let files = Files::read(Some(&path), [plugin].into_iter()).map_err(|e| e.to_string())?;
        files.of(plugin).map_err(|e| e.to_string())
    }

    #[test]
    fn a_plugin_is_told_inline_or_by_a_file_beside() {
        let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n\
                    - {name: A, configuration: {b: 2}}\n- {name: B, path: other.yaml}\n";
        assert_eq!(told(text, "A").unwrap(), Some(json!({"b": 2})));
        assert_eq!(told(text, "B").unwrap(), Some(json!({"a": 1})));
        assert_eq!(told(text, "C").unwrap(), None);
    }

    #[test]
    fn old_files_are_one_plugins_own() {
        let text = "podNodeSelectorPluginConfig: {default: a=b}\n";
        assert_eq!(
            told(text, "PodNodeSelector").unwrap(),
            Some(json!({"podNodeSelectorPluginConfig": {"default": "a=b"}}))
        );
        assert_eq!(told(text, "PodSecurity").unwrap(), None);
    }

    #[test]
    fn other_files_are_refused() {
        for (text, expected) in [
            ("a: 1", "failed to read plugin config: Object 'Kind' is missing"),
            (
                "{apiVersion: v1, kind: Pod}",
                "failed to read plugin config: no kind \"Pod\" is registered for version \"v1\"",
            ),
        ] {
            assert_eq!(told(text, "A").unwrap_err(), expected);
        }
    }
}
