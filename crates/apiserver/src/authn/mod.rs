//! Who is asking.
//!
//! A connection may prove it once, with a client certificate; else a request does. Whoever proves
//! nothing is refused.
mod x509;

pub use x509::user_of;

use api::status::Status;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An identity, as every later stage sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// As `authentication.k8s.io/v1.UserInfo`.
    pub fn info(&self) -> Value {
        let mut info = json!({ "username": self.name, "groups": self.groups });
        if !self.uid.is_empty() {
            info["uid"] = self.uid.clone().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

/// The user of a request on a connection that may have proved one.
pub fn identify(connection: Option<&Arc<User>>) -> Result<Arc<User>, Status> {
    connection.cloned().ok_or_else(|| Status::unauthorized("Unauthorized"))
}
