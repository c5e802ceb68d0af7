//! What others bring to the API: definitions of kinds, and servers beside this one that are asked about
//! objects of those.
//!
//! ```text
//!  backend/      one client for all of them: where a service is, TLS, connections that are kept
//!  review        what a webhook answers, read as upstream reads it
//!  conversion    a definition's objects in another of its versions, by its webhook
//!  counts        what is counted of all this
//!  definitions/  rows of the registry that come and go
//! ```
//! What they answer is believed as far as their configuration goes and no further: it is bounded in
//! size and time, no redirect of theirs is followed, and a service's address is never this machine's.
pub mod backend;
pub mod conversion;
pub mod counts;
pub mod definitions;
pub mod review;
