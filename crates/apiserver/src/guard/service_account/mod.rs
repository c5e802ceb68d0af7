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
}

impl Issuer {
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}
