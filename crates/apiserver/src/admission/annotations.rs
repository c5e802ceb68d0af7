//! What plugins leave for the audit log: a word or two beside the request.
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A request's annotations, by key.
#[derive(Debug, Default)]
pub struct Annotations(Mutex<BTreeMap<String, String>>);

impl Annotations {
    pub fn add(&self, key: &str, value: String) {
        tracing::debug!(key, value, "audit annotation");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), value);
    }

    /// All of them; what comes later is not among them.
    pub fn all(&self) -> BTreeMap<String, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
