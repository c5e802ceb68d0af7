//! What a Kubernetes object is: its kinds, its schema, its encodings, the values inside it, and
//! the ways it may be changed.
//!
//! Everything above stands on this crate; it stands on nothing of ours. **It may not know** any
//! IO, any clock, any async runtime, nor who is calling: every function here is a pure function
//! of its arguments, so that all of it is tested as data.
//!
//! An object exists in three forms, and each has its place:
//! - **bytes** (JSON), as stored, cached and sent: the form that is kept;
//! - a **tree** (`serde_json::Value`), for work driven by the schema: strict decoding, pruning,
//!   protobuf, patches, server-side apply, custom resources. It is built for one operation and
//!   dropped;
//! - the **typed** form (`k8s-openapi`), for code that knows the kind: controllers, scheduler,
//!   kubelet, validation.
//!
//! [`schema`] is the one description of types that drives every tree operation; a built-in type
//! and a CustomResourceDefinition's schema are both compiled into it.
#![forbid(unsafe_code)]

mod atoi;
pub mod codec;
pub mod conform;
pub mod content;
pub mod convert;
pub mod custom;
pub mod depth;
pub mod discovery;
pub mod duration;
pub mod field;
pub mod group;
pub mod hash;
pub mod int_or_string;
pub mod jsonpath;
pub mod kinds;
pub mod kubeconfig;
pub mod meta;
pub mod names;
pub mod object;
pub mod openapi;
pub mod owner;
pub mod patch;
pub mod pem;
pub mod placement;
pub mod pool;
pub mod quantity;
pub mod quota;
pub mod quote;
pub mod regexp;
pub mod rules;
pub mod schema;
pub mod selector;
pub mod status;
pub mod template;
#[cfg(test)]
mod testing;
pub mod time;
pub mod url;
pub mod x509;

/// The version of Kubernetes whose API this is.
pub const VERSION: &str = "v1.37.0";
