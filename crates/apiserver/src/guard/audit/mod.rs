//! Audit: who asked for what, and what came of it, for those who have to know later.
//!
//! ```text
//!  request ─► Trail ─► policy: at which level? ─► Record ── stage ──► Event ─► backends
//!                                                  ▲ impersonated, decided,      ├ log: a file, rotated
//!                                                  │ annotate, objects           └ webhook: batches
//! ```
//! A [`Trail`] goes with a request whether or not it is recorded: it holds the request's audit ID. If
//! the policy's first matching rule says so, it has a [`Record`], which later stages add to, and from
//! which an event is written at each stage (`RequestReceived`, `ResponseStarted` for what runs long,
//! `ResponseComplete`, `Panic`).
//!
//! In batch mode an event is handed over and the request goes on; a buffer that is full drops it and
//! counts that. Otherwise the request waits until it is written.
//!
//! **It may not know** what a request does: it is told.
mod backend;
mod buffer;
mod event;
mod file;
mod policy;
mod record;
mod trail;
mod webhook;

pub use backend::{BatchOptions, LogOptions, Mode, Truncate, WebhookOptions};
pub use file::Rotation;
pub use policy::Policy;
pub use record::Record;
pub use trail::Trail;

use backend::Backend;
use event::Level;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("loading audit policy file: failed to read file path {file:?}: {source}")]
    Read { file: PathBuf, source: std::io::Error },
    #[error("loading audit policy file: {cause}: from file {file:?}")]
    Policy { file: PathBuf, cause: String },
    #[error("ensureLogFile: {source} ({file:?})")]
    Log { file: PathBuf, source: std::io::Error },
    #[error("initializing audit webhook: {0}")]
    Webhook(String),
}

/// What is recorded, and where it goes.
#[derive(Default)]
pub struct Audit {
    policy: Option<Policy>,
    backends: Vec<Backend>,
    pub(crate) counts: Counts,
}

#[derive(Default)]
pub struct Counts {
    pub events: AtomicU64,
    pub rejected: AtomicU64,
    /// Requests by level.
    pub levels: [AtomicU64; 4],
}

impl Audit {
    /// Without a policy nothing is recorded, as upstream does.
    pub fn new(
        policy: Option<Policy>,
        log: Option<LogOptions>,
        webhook: Option<WebhookOptions>,
    ) -> Result<Audit, Error> {
        let mut backends = Vec::new();
        if policy.is_some() {
            backends.extend(log.map(Backend::log).transpose()?);
            backends.extend(webhook.map(Backend::webhook).transpose()?);
        }
        Ok(Audit { policy, backends, counts: Counts::default() })
    }

    /// Whether anything is ever recorded.
    fn is_on(&self) -> bool {
        !self.backends.is_empty()
    }

    /// Waits until what was handed over is written.
    pub async fn flush(&self) {
        for backend in &self.backends {
            backend.flush().await;
        }
    }

    /// The counters, as lines of the metrics page.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let mut family = |name: &str, help: &str, rows: &[(String, u64)]| {
            out += &format!("# HELP {name} {help}\n# TYPE {name} counter\n");
            for (labels, value) in rows {
                out += &format!("{name}{labels} {value}\n");
            }
        };
        let plain = |count: &AtomicU64| [(String::new(), count.load(Relaxed))];
        family("apiserver_audit_event_total", "Audit events made.", &plain(&self.counts.events));
        family(
            "apiserver_audit_requests_rejected_total",
            "Requests refused because they could not be recorded.",
            &plain(&self.counts.rejected),
        );
        let rows: Vec<_> = self
            .backends
            .iter()
            .map(|b| (format!("{{plugin={:?}}}", b.name), b.errors.load(Relaxed)))
            .collect();
        family("apiserver_audit_error_total", "Audit events that were lost.", &rows);
        let rows: Vec<_> = Level::ALL
            .iter()
            .zip(&self.counts.levels)
            .map(|(level, count)| (format!("{{level=\"{level:?}\"}}"), count.load(Relaxed)))
            .collect();
        family("apiserver_audit_level_total", "Requests, by audit level.", &rows);
        out
    }
}

#[cfg(test)]
mod tests;
