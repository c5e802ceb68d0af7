//! Webhooks and policies that are files beside the server (`staticManifestsDir`), and in force before anybody
//! can reach its API: no client can change them, and they see what configures admission, too, which nothing
//! that is stored does (`apiserver/pkg/admission/plugin/manifest`).
//!
//! ```text
//!  configuration file ─► Folder ─► files: documents ─► read: objects by the API's rules ─► in force
//!                          └─► follow: read again when something changed
//! ```
//! A server whose manifests cannot be read does not start. What they say later and cannot be read is told of,
//! and what was in force stays.
mod files;
mod follow;
mod read;

pub use follow::start;

use crate::admission::configuration::Fault;
use api::field::{Error, Path as Field};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A plugin that may have manifests, and what is in them.
#[derive(Debug, PartialEq, Eq)]
pub struct Sort {
    pub plugin: &'static str,
    /// In the words of upstream's errors.
    what: &'static str,
    /// What it asks, and, of policies, what says where they count.
    kind: &'static str,
    binding: Option<&'static str>,
}

pub static MUTATING_POLICIES: Sort = Sort {
    plugin: "MutatingAdmissionPolicy",
    what: "policy",
    kind: "MutatingAdmissionPolicy",
    binding: Some("MutatingAdmissionPolicyBinding"),
};

pub static VALIDATING_POLICIES: Sort = Sort {
    plugin: "ValidatingAdmissionPolicy",
    what: "policy",
    kind: "ValidatingAdmissionPolicy",
    binding: Some("ValidatingAdmissionPolicyBinding"),
};

pub static MUTATING_WEBHOOKS: Sort = Sort {
    plugin: "MutatingAdmissionWebhook",
    what: "webhook",
    kind: "MutatingWebhookConfiguration",
    binding: None,
};

pub static VALIDATING_WEBHOOKS: Sort = Sort {
    plugin: "ValidatingAdmissionWebhook",
    what: "webhook",
    kind: "ValidatingWebhookConfiguration",
    binding: None,
};

/// What the manifests of a plugin say, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub objects: Vec<Value>,
    pub bindings: Vec<Value>,
    /// Of all that was read.
    pub hash: String,
}

/// A plugin's folder, and what was in it when the server started.
#[derive(Debug)]
pub struct Folder {
    pub sort: &'static Sort,
    path: PathBuf,
    pub said: Said,
}

impl Folder {
    /// The folder that a plugin is told of; none, if it is told of none.
    pub fn open(path: &str, sort: &'static Sort) -> Result<Option<Folder>, Fault> {
        if path.is_empty() {
            return Ok(None);
        }
        check(path)?;
        let said = Said::read(Path::new(path), sort).map_err(|cause| {
            let what = sort.what;
            Fault::Initialize(format!(
                "failed to load static {what} manifests from {path:?}: {cause}"
            ))
        })?;
        Ok(Some(Folder { sort, path: path.into(), said }))
    }
}

impl Said {
    fn read(folder: &Path, sort: &'static Sort) -> Result<Said, String> {
        let (documents, hash) = files::documents(folder)?;
        let (objects, bindings) = read::objects(&documents, sort)?;
        Ok(Said { objects, bindings, hash })
    }
}

fn check(path: &str) -> Result<(), String> {
    let wrong = |detail: String| {
        Err(Error::invalid(&Field::new("staticManifestsDir"), path, detail).to_string())
    };
    if !path.starts_with('/') {
        return wrong("must be an absolute file path".into());
    }
    match std::fs::metadata(path) {
        Err(error) => wrong(format!("unable to read: stat {path}: {}", files::in_words(&error))),
        Ok(found) if !found.is_dir() => wrong("must be a directory".into()),
        Ok(_) => Ok(()),
    }
}

/// The folders of all plugins.
#[derive(Debug, Default)]
pub struct Manifests {
    pub mutating_policies: Option<Folder>,
    pub validating_policies: Option<Folder>,
    pub mutating_webhooks: Option<Folder>,
    pub validating_webhooks: Option<Folder>,
}

impl Manifests {
    fn all(&self) -> impl Iterator<Item = &Folder> {
        let Manifests { mutating_policies, validating_policies, .. } = self;
        let Manifests { mutating_webhooks, validating_webhooks, .. } = self;
        let all = [mutating_policies, validating_policies, mutating_webhooks, validating_webhooks];
        all.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests;
