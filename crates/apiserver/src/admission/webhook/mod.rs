//! Admission webhooks: servers that a configuration names, asked before something is written.
//!
//! ```text
//!  configuration  the hooks of all configurations, followed in the store
//!  clients        as whom hooks are asked, if the configuration file says so
//!  matter         what a request is about, as hooks are told
//!  rules          whether a hook is to be asked, and about which version        (pure)
//!  review         the question, and what an answer may say                      (pure)
//!  call           one question to one hook
//!  counts         what is counted about it
//!  mutating       one after the other: each sees what those before it changed
//!  validating     all at once
//! ```
//! A write that loses its race against another is judged again on what the other left, hooks included:
//! they see the object that is stored, as upstream's do. A hook that cannot be asked refuses the request
//! unless its failure policy is `Ignore`.
mod call;
mod clients;
mod configuration;
mod counts;
mod matter;
mod mutating;
mod review;
mod rules;
#[cfg(test)]
mod tests;
mod validating;
mod versions;

pub use clients::{AskedAs, configure_mutating, configure_validating};
pub use configuration::{Hooks, start, take_manifests};
pub use matter::Named;
pub use mutating::admit;
pub use validating::validate;
pub use versions::{converted, read_again};

use crate::admission::Attributes;
use api::rules::REVIEWS;
use configuration::Hook;

/// Kinds that decide about admission: a hook that could stop its own removal could never be removed. Those of
/// manifests can, whatever is stored, and are asked about them.
const CONFIGURATIONS: &[&str] = &[
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];

/// Whether no hook is ever asked about a request.
fn is_exempt(attributes: &Attributes<'_>) -> bool {
    let resource = &attributes.call.resource;
    REVIEWS.contains(&(resource.group, resource.plural))
}

/// Whether a hook is among those that may be asked about a request.
fn may_be_asked(hook: &Hook, attributes: &Attributes<'_>) -> bool {
    let resource = &attributes.call.resource;
    let configures = |kind: &&str| resource.is("admissionregistration.k8s.io", kind);
    hook.is_manifest || !CONFIGURATIONS.iter().any(configures)
}
