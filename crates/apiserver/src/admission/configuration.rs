//! The file that `--admission-control-config-file` names: `AdmissionConfiguration`, with what is
//! meant for each plugin inline or in a file of its own.
pub use crate::ground::configuration::typed;
use crate::ground::configuration::{document, expect_type, strictly};
use serde::Deserialize;
use serde_json::Value;
use std::io;
use std::path::Path;

const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: [&str; 2] = ["v1", "v1alpha1"];
/// These two may have the whole file to themselves, as they had before there was a kind for it.
const LEGACY: [(&str, &str); 2] =
    [("imagePolicy", "ImagePolicyWebhook"), ("podNodeSelectorPluginConfig", "PodNodeSelector")];

/// Why the server does not start; upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Flags(String),
    #[error("failed to apply admission: failed to read plugin config: {0}")]
    File(String),
    #[error(
        "failed to apply admission: couldn't open admission plugin configuration {path}: {cause}"
    )]
    PluginFile { path: String, cause: String },
    #[error("failed to apply admission: couldn't init admission plugin {name:?}: {cause}")]
    Init { name: &'static str, cause: String },
    #[error("failed to apply admission: failed to initialize admission plugin {name:?}: {cause}")]
    Initialize { name: &'static str, cause: String },
}

/// What is wrong with what a plugin is told.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// It cannot be read.
    Init(String),
    /// It can be read, and makes no sense.
    Initialize(String),
}

impl Fault {
    pub fn of(self, name: &'static str) -> Error {
        match self {
            Fault::Init(cause) => Error::Init { name, cause },
            Fault::Initialize(cause) => Error::Initialize { name, cause },
        }
    }
}

impl From<String> for Fault {
    fn from(cause: String) -> Fault {
        Fault::Init(cause)
    }
}

/// As Go says it.
fn unreadable(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("open {}: no such file or directory", path.display()),
        _ => format!("open {}: {error}", path.display()),
    }
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
        let bytes = std::fs::read(path).map_err(|error| {
            let cause = unreadable(path, &error);
            Error::File(format!(
                "unable to read admission control configuration from {path:?} [{cause}]"
            ))
        })?;
        let document = document(&bytes).map_err(Error::File)?;
        if LEGACY.iter().any(|(field, _)| document.get(field).is_some()) {
            let legacy = plugins.filter(|name| LEGACY.iter().any(|(_, plugin)| plugin == name));
            let whole = |name: &str| Entry {
                name: name.to_owned(),
                path: String::new(),
                configuration: Some(document.clone()),
            };
            return Ok(Files { plugins: legacy.map(whole).collect() });
        }
        expect_type(&document, GROUP, &VERSIONS, "AdmissionConfiguration").map_err(Error::File)?;
        let configuration: AdmissionConfiguration = strictly(document).map_err(Error::File)?;
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
        let bytes = std::fs::read(&entry.path).map_err(|error| Error::PluginFile {
            path: entry.path.clone(),
            cause: unreadable(Path::new(&entry.path), &error),
        })?;
        let document = document(&bytes).map_err(|cause| Error::Init { name: plugin, cause })?;
        Ok(Some(document))
    }
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
            (
                "a: 1",
                "failed to apply admission: failed to read plugin config: Object 'Kind' is missing",
            ),
            (
                "{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugin: []}",
                "failed to apply admission: failed to read plugin config: strict decoding error: unknown field \"plugin\"",
            ),
            (
                "{apiVersion: v1, kind: Pod}",
                "failed to apply admission: failed to read plugin config: no kind \"Pod\" is registered for version \"v1\"",
            ),
        ] {
            assert_eq!(told(text, "A").unwrap_err(), expected);
        }
    }
}
