//! Tokens that live in Secrets: those of service accounts, of old, and those that machines join by.
pub mod bootstrap_signer;
pub mod cleaner;
pub mod legacy;
pub mod legacy_cleaner;

use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Who signs the tokens of service accounts.
#[derive(Clone)]
pub struct Signer(pub Sign);

/// A token with these claims, if it can be signed.
pub type Sign = Arc<dyn Fn(&Value) -> Option<String> + Send + Sync>;

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

fn is_of(secret: &Secret, type_: &str) -> bool {
    secret.type_.as_deref() == Some(type_)
}

/// A secret's text; empty if there is none.
fn data<'a>(secret: &'a Secret, key: &str) -> &'a str {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    bytes.and_then(|bytes| std::str::from_utf8(&bytes.0).ok()).unwrap_or_default()
}

fn annotation<'a>(secret: &'a Secret, key: &str) -> &'a str {
    let annotations = secret.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(key)).map(String::as_str).unwrap_or_default()
}
