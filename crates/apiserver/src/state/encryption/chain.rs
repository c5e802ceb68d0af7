//! The providers of a resource, in order: the first writes, any may read.
use super::ciphers::Cipher;
use super::kms::Plugin;
use bytes::Bytes;
use std::sync::Arc;
use store::Opened;

/// What no plain value begins with.
const ENCRYPTED: &[u8] = b"k8s:enc:";

#[derive(Default)]
pub struct Chain(pub Vec<Provider>);

pub enum Provider {
    Identity,
    /// Ciphers with keys from the file, by the keys' names; `family` is how errors call them.
    Keys {
        prefix: &'static str,
        family: &'static str,
        keys: Vec<(String, Box<dyn Cipher>)>,
    },
    Kms(Arc<Plugin>),
}

pub fn identity(kept: &Bytes) -> Result<Bytes, String> {
    match kept.starts_with(ENCRYPTED) {
        true => Err("identity transformer tried to read encrypted data".into()),
        false => Ok(kept.clone()),
    }
}

/// Several causes as one text, each once: upstream's aggregate.
pub fn aggregate(mut causes: Vec<String>) -> Option<String> {
    let mut known = std::collections::HashSet::new();
    causes.retain(|cause| known.insert(cause.clone()));
    match &causes[..] {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

impl Chain {
    /// Whether what is not encrypted is kept as it would be written now.
    pub fn is_plain(&self) -> bool {
        matches!(self.0.first(), Some(Provider::Identity) | None)
    }

    pub fn seal(&self, key: &[u8], value: &[u8]) -> Result<Option<Bytes>, String> {
        let Some(first) = self.0.first() else { return Ok(None) };
        // The prefix, a nonce, an authenticator, a block of padding.
        let mut out = Vec::with_capacity(value.len() + 256);
        match first {
            Provider::Identity => return Ok(None),
            Provider::Keys { prefix, keys, .. } => {
                let Some((name, cipher)) = keys.first() else { return Ok(None) };
                out.extend_from_slice(prefix.as_bytes());
                out.extend_from_slice(name.as_bytes());
                out.push(b':');
                cipher.seal(key, value, &mut out)?;
            }
            Provider::Kms(plugin) => plugin.seal(key, value, &mut out)?,
        }
        Ok(Some(out.into()))
    }

    /// Tries every provider that may have written the value: two may share a prefix and differ in
    /// their keys.
    pub async fn open(&self, key: &[u8], kept: &Bytes) -> Result<Opened, String> {
        let mut causes = Vec::new();
        for (i, provider) in self.0.iter().enumerate() {
            let opened = match provider {
                // Not its value: the next one's, perhaps.
                Provider::Identity => match identity(kept) {
                    Ok(value) => Ok(Opened { value, stale: false }),
                    Err(_) => continue,
                },
                Provider::Keys { prefix, family, keys } => {
                    match kept.strip_prefix(prefix.as_bytes()) {
                        Some(rest) => open_with(keys, key, rest, family),
                        None => continue,
                    }
                }
                Provider::Kms(plugin) => match kept.strip_prefix(plugin.prefix().as_bytes()) {
                    Some(rest) => plugin.open(key, rest).await,
                    None => continue,
                },
            };
            match opened {
                Ok(opened) => return Ok(Opened { stale: opened.stale || i > 0, ..opened }),
                Err(cause) => causes.push(cause),
            }
        }
        Err(aggregate(causes).unwrap_or_else(|| "no matching prefix found".into()))
    }
}

fn open_with(
    keys: &[(String, Box<dyn Cipher>)],
    key: &[u8],
    kept: &[u8],
    family: &str,
) -> Result<Opened, String> {
    let mut causes = Vec::new();
    for (i, (name, cipher)) in keys.iter().enumerate() {
        let rest = kept.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b":"));
        match rest.map(|rest| cipher.open(key, rest)) {
            Some(Ok(value)) => return Ok(Opened { value: value.into(), stale: i > 0 }),
            Some(Err(cause)) => causes.push(cause),
            None => {}
        }
    }
    let none = || format!("no matching key was found for the provided {family} transformer");
    Err(aggregate(causes).unwrap_or_else(none))
}
