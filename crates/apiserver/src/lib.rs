//! The API server: every verb over every kind of the registry, over HTTPS and within the process.
//!
//! One function reads as a request's life ([`serve`](doors::serve::serve)): authenticate → parse → audit →
//! authorize → fairness → decode → change → store → encode. Each stage is a module; a kind adds only
//! its own rules, and what it needs beyond them is a row ([`state::peculiar`]).
//!
//! ```text
//!  doors      HTTP (listen → serve → request) and within the process; documents
//!  pass       what others answer: kubelets, pods, services, aggregated servers
//!  verbs      get list watch create update patch delete
//!  admission  plugins, policies, webhooks
//!  extend     definitions and their conversion
//!  asked      a request that may be done, with all that came with it
//!  guard      authn, authz, fairness, audit
//!  answer     how an answer leaves: encodings, lists, gzip, budget
//!  state      objects as they are stored, caches, indexes, allocation, encryption
//!  call       what is asked for, and how it is to be done
//!  ground     files, certificates, clients, turns
//! ```
//! A layer uses those below it and none above (`tidy.rs` checks that). The handle on the server
//! ([`ApiServer`]) holds what each layer keeps and goes with every request.
//!
//! An object is kept as JSON without its resource version, which the store's revision is; lists,
//! watches and reads in JSON splice it into the shared bytes and decode nothing.
//!
//! Connections are polled in [`turns`](ground::turns), fairly among users, not by the runtime's own
//! order.
//!
//! **It may not know** schedulers, controllers or nodes. It alone knows the store.
#![forbid(unsafe_code)]

pub mod admission;
mod answer;
mod asked;
mod bootstrap;
mod call;
mod doors;
mod extend;
mod ground;
mod guard;
mod pass;
mod server;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tidy;
mod verbs;

pub use bootstrap::{advertise, bootstrap};
pub use doors::debug::Debug;
pub use doors::listen;
pub use doors::serve::serve;
pub use doors::within::Within;
pub use ground::{configuration, pki, tls};
pub use guard::authn::User;
pub use guard::{audit, authn, authz, service_account};
pub use server::{ApiServer, Options};
pub use state::encryption;
