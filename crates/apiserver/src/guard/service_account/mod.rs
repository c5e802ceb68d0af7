//! Service accounts' tokens: signed by the server, believed by it as long as what they are bound to
//! exists.
//!
//! ```text
//!  TokenRequest ─► issue: claims ─► keys: sign        bearer ─► keys: verify ─► still true? ─► User
//! ```
mod claims;
mod discovery;
mod keys;
mod legacy;

pub use claims::{Bound, issue, user_of};
pub use discovery::{configuration, jwks};
pub use keys::{Keys, KeysError};

/// What an issuer is: its keys, its name, and whom its tokens are for.
pub struct Issuer {
    pub keys: Keys,
    /// The `iss` of new tokens; tokens of all are believed.
    pub names: Vec<String>,
    /// Whom a token is for that names nobody.
    pub audiences: Vec<String>,
    pub lifetimes: Lifetimes,
}

/// How long tokens are good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lifetimes {
    /// Whether one that a kubelet asked for on behalf of a pod is good for a year, and its late use only
    /// remarked.
    pub extended: bool,
    /// The longest that anybody may ask for, in seconds.
    pub longest: Option<i64>,
}

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        Lifetimes { extended: true, longest: None }
    }
}

impl Issuer {
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}
