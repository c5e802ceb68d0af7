//! Whether a plugin is well, and a new seed when its key has changed.
use super::proto::{StatusRequest, StatusResponse};
use super::{Plugin, State, key_id, within};
use crate::state::encryption::chain::aggregate;
use api::time;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a plugin is asked that is well, and one that is not.
const WELL: Duration = Duration::from_secs(60);
const UNWELL: Duration = Duration::from_secs(10);
/// How long its last answer is good enough for a health check.
const FRESH_WELL: Duration = Duration::from_secs(20);
const FRESH_UNWELL: Duration = Duration::from_secs(3);
/// How long the seed of a plugin that does not answer may still be written with.
const COASTING: Duration = Duration::from_secs(3 * 60);

/// What a plugin said last.
#[derive(Default)]
pub struct Last {
    answer: Option<(Instant, Result<(), String>)>,
    version: String,
}

pub async fn keep_in_step(plugin: Weak<Plugin>) {
    loop {
        let well = match plugin.upgrade() {
            Some(plugin) => plugin.check().await.is_ok(),
            None => return,
        };
        tokio::time::sleep(if well { WELL } else { UNWELL }).await;
    }
}

impl Plugin {
    pub async fn check(&self) -> Result<(), String> {
        let mut last = self.last.lock().await;
        if let Some((since, answer)) = &last.answer {
            let fresh = if answer.is_ok() { FRESH_WELL } else { FRESH_UNWELL };
            if since.elapsed() < fresh {
                return answer.clone();
            }
        }
        let mut client = self.client.clone();
        let name = &self.name;
        let answer = match within(self.timeout, client.status(StatusRequest {})).await {
            Err(cause) => Err(format!(
                "failed to perform status section of the healthz check for KMS Provider {name}, error: {cause}"
            )),
            Ok(status) => {
                let causes = self.judge(&mut last.version, status).await;
                let unwell =
                    |cause| Err(format!("kmsv2 Provider {name} is not healthy, error: {cause}"));
                aggregate(causes).map_or(Ok(()), unwell)
            }
        };
        last.answer = Some((Instant::now(), answer.clone()));
        answer
    }

    async fn judge(&self, known: &mut String, status: StatusResponse) -> Vec<String> {
        let mut causes = Vec::new();
        if status.healthz != "ok" {
            causes.push(format!("got unexpected healthz status: {}", status.healthz));
        }
        let version = &status.version;
        if !matches!(version.as_str(), "v2" | "v2beta1") {
            causes.push(format!("expected KMSv2 API version v2, got {version}"));
        } else if known.is_empty() {
            known.clone_from(version);
        } else if known != version {
            causes.push(format!("KMSv2 API version should not change after the initial status response version {known}, got {version}"));
        }
        match key_id(&status.key_id) {
            Err(cause) => {
                let hash = hash(&status.key_id);
                causes.push(format!("got invalid KMSv2 KeyID hash {hash:?}: {cause}"));
            }
            Ok(()) => causes.extend(self.rotate(&status.key_id).await.err()),
        }
        causes
    }

    /// Takes a new seed if the plugin has a new key; else the one in use is good for longer. When
    /// that fails, the old one remains until it expires.
    pub(in crate::state::encryption) async fn rotate(&self, wanted: &str) -> Result<(), String> {
        // Before the plugin is asked: it is an upper bound.
        let expires = SystemTime::now() + COASTING;
        let store = |state: State| {
            let mut place = self.state.write().unwrap_or_else(|poisoned| poisoned.into_inner());
            *place = Some(Arc::new(state));
        };
        let state = self.state();
        if let Some(state) = state.as_ref().filter(|state| state.template.key_id == wanted) {
            let (source, template) = (state.source.clone(), state.template.clone());
            store(State { source, template, expires });
            return Ok(());
        }
        let uid = crate::ground::uuid();
        let made = self.generate(&uid).await;
        let (failure, used) = match made {
            Ok((source, template)) if template.key_id == wanted => {
                store(State { source: Arc::new(source), template, expires });
                return Ok(());
            }
            Ok((_, template)) => ("<nil>".to_owned(), template.key_id),
            Err(cause) => (cause, String::new()),
        };
        let before = state.as_ref().map_or("", |state| &state.template.key_id);
        let missing = if state.is_some() { "<nil>" } else { "got unexpected nil transformer" };
        let until = state.as_ref().map_or_else(String::new, |state| time(state.expires));
        Err(format!(
            "failed to rotate DEK uid={uid:?}, useSeed=true, errState={missing}, errGen={failure}, statusKeyIDHash={:?}, encryptKeyIDHash={:?}, stateKeyIDHash={:?}, expirationTimestamp={until}",
            hash(wanted),
            hash(&used),
            hash(before)
        ))
    }
}

/// A key's name as it may be shown.
pub fn hash(key_id: &str) -> String {
    let mut out = String::new();
    if !key_id.is_empty() {
        out.push_str("sha256:");
        for byte in Sha256::digest(key_id) {
            // Writing to a String cannot fail.
            let _ = write!(out, "{byte:02x}");
        }
    }
    out
}

pub fn time(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    time::format(i64::try_from(seconds).unwrap_or(i64::MAX))
}
