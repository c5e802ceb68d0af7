//! Where pods come from, and which of those have said theirs: what nobody has named yet may be
//! somebody's all the same, and goes on.
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The folder of manifests is read before anything else happens, so it needs no word here.
#[derive(Debug)]
pub struct Sources {
    api: AtomicBool,
    url: AtomicBool,
}

impl Sources {
    pub fn new(has_url: bool) -> Sources {
        Sources { api: AtomicBool::new(false), url: AtomicBool::new(!has_url) }
    }

    pub fn api_answered(&self) {
        self.api.store(true, SeqCst);
    }

    /// True for the first time.
    pub fn url_answered(&self) -> bool {
        !self.url.swap(true, SeqCst)
    }

    /// Whether the API server's pods and services are known.
    pub fn has_api(&self) -> bool {
        self.api.load(SeqCst)
    }

    /// Whether every pod that is wanted is known.
    pub fn are_complete(&self) -> bool {
        self.has_api() && self.url.load(SeqCst)
    }
}
