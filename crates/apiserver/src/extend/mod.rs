//! What others bring to the API: servers beside this one that are asked before something is written,
//! and that answer for groups of their own.
//!
//! ```text
//!  backend/      one client for all of them: where a service is, TLS, connections that are kept
//!  webhook/      admission webhooks: decide whom to ask (pure), ask, apply what they say
//!  conversion    a definition's objects in another of its versions, by its webhook
//!  aggregation/  groups that other servers answer for
//! ```
//! What they answer is believed as far as their configuration goes and no further: it is bounded in
//! size and time, no redirect of theirs is followed, and a service's address is never this machine's.
pub mod aggregation;
pub mod backend;
pub mod conversion;
pub mod webhook;

use aggregation::Aggregation;
use backend::Backends;
use conversion::Converters;
use webhook::Hooks;

/// What the server remembers of those others.
#[derive(Default)]
pub struct Extend {
    pub backends: Backends,
    /// The webhooks that are asked now.
    pub hooks: Hooks,
    /// The webhooks of definitions.
    pub converters: Converters,
    /// The servers that answer for groups of their own.
    pub aggregation: Aggregation,
}
