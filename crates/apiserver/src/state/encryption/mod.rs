//! Encryption at rest: what lies in the store is not what is written, for the resources that an
//! `EncryptionConfiguration` names.
//!
//! ```text
//!  file ─► config (parse, validate) ─► Rules: key prefix ─► Chain of providers
//!                                        │                    ├ identity
//!  store ── seal, open ──► Encryption ───┘                    ├ ciphers: aescbc aesgcm secretbox
//!             (by key)        ▲ reload                        └ kms: a plugin holds the key
//! ```
//! A value is written with the first provider of its resource's chain and read with whichever wrote
//! it; one that another than the first wrote is stale, and written anew with the next update. Names,
//! prefixes and layouts are upstream's, as is the data that is authenticated: the object's key in
//! the store. So upstream's server reads what this one wrote with the same configuration, and the
//! other way round; upstream's protobuf is taken for what it is ([`crate::state::stored::from_protobuf`]).
//!
//! **It may not know** what an object is, nor who asks for it.
mod chain;
mod ciphers;
mod config;
mod kms;
mod own;
mod reload;
mod validation;

pub use own::own_configuration;

use crate::state::stored;
use bytes::Bytes;
use chain::Chain;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use store::{Opened, Opening, Transformer};

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("error reading encryption provider configuration file {file:?}: {source}")]
    Read { file: PathBuf, source: std::io::Error },
    #[error("encryption provider configuration file {0:?} is empty")]
    Empty(PathBuf),
    #[error("error decoding encryption provider configuration file {file:?}: {cause}")]
    Decode { file: PathBuf, cause: String },
    #[error("{0}")]
    Invalid(String),
    #[error("failed to write the encryption key {file:?}: {source}")]
    Write { file: PathBuf, source: std::io::Error },
}

/// The transformation of everything that is stored.
#[derive(Default)]
pub struct Encryption {
    rules: RwLock<Arc<Rules>>,
}

/// What one configuration says.
#[derive(Default)]
struct Rules {
    /// What keys of a resource begin with; the longest first.
    prefixes: Vec<(String, Arc<Chain>)>,
    /// For custom resources that no prefix is for.
    rest: Option<Arc<Chain>>,
    plugins: Vec<Arc<kms::Plugin>>,
    /// Whether there is a health check, even without plugins.
    checked: bool,
    hash: Vec<u8>,
}

impl Encryption {
    /// Reads a configuration, and follows the file's changes if that is asked for.
    pub async fn open(file: &Path, automatic_reload: bool) -> Result<Arc<Encryption>, Error> {
        let rules = reload::load(file, automatic_reload).await?;
        let encryption = Encryption { rules: RwLock::new(Arc::new(rules)) };
        let encryption = Arc::new(encryption);
        if automatic_reload {
            reload::follow(Arc::downgrade(&encryption), file.to_owned());
        }
        Ok(encryption)
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn replace(&self, rules: Rules) {
        *self.rules.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Arc::new(rules);
    }

    /// Whether `kms-providers` is among the health checks.
    pub fn is_checked(&self) -> bool {
        self.rules().checked
    }

    /// Whether the plugins are well.
    pub async fn check(&self) -> Result<(), String> {
        let rules = self.rules();
        let mut failures = Vec::new();
        for (i, plugin) in rules.plugins.iter().enumerate() {
            if let Err(cause) = plugin.check().await {
                failures.push(format!("kms-provider-{i}: {cause}"));
            }
        }
        chain::aggregate(failures).map_or(Ok(()), Err)
    }
}

impl Rules {
    fn chain(&self, key: &[u8]) -> Option<&Arc<Chain>> {
        let found = self.prefixes.iter().find(|(prefix, _)| key.starts_with(prefix.as_bytes()));
        match (found, &self.rest) {
            (Some((_, chain)), _) => Some(chain),
            (None, Some(chain)) => is_custom(key).then_some(chain),
            (None, None) => None,
        }
    }
}

/// Groups of custom resources have a dot in their name; nothing else of the first level has.
fn is_custom(key: &[u8]) -> bool {
    let rest = key.strip_prefix(b"/registry/").unwrap_or_default();
    rest.split(|byte| *byte == b'/').next().is_some_and(|first| first.contains(&b'.'))
}

impl Transformer for Encryption {
    fn seal(&self, key: &[u8], value: &Bytes) -> Result<Option<Bytes>, String> {
        match self.rules().chain(key) {
            Some(chain) => chain.seal(key, value),
            None => Ok(None),
        }
    }

    /// Both what is encrypted and protobuf begin with `k8s`; JSON never does.
    fn is_plain(&self, key: &[u8], kept: &[u8]) -> bool {
        !kept.starts_with(b"k8s") && self.rules().chain(key).is_none_or(|chain| chain.is_plain())
    }

    fn open<'a>(&'a self, key: &'a [u8], kept: &'a Bytes) -> Opening<'a> {
        Box::pin(async move {
            let rules = self.rules();
            let mut opened = match rules.chain(key) {
                Some(chain) => chain.open(key, kept).await?,
                None => chain::identity(kept).map(|value| Opened { value, stale: false })?,
            };
            if let Some(json) = stored::from_protobuf(&opened.value) {
                opened = Opened { value: json?, stale: true };
            }
            Ok(opened)
        })
    }
}

#[cfg(test)]
mod tests;
