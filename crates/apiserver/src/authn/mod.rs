//! Who is asking.
//!
//! A connection may prove it once, with a client certificate; else a request does, with a bearer
//! token. Whoever proves nothing is `system:anonymous`; whoever tries and fails is refused.
mod impersonation;
mod x509;

pub use impersonation::apply as impersonate;
pub use x509::user_of;

use crate::resources::ApiServer;
use crate::service_account;
use api::status::Status;
use http::{HeaderMap, header};
use jiff::Timestamp;
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
    fn anonymous() -> User {
        User {
            name: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
            ..User::default()
        }
    }

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

/// The user of a request on a connection that may have proved one; whom it acts as is another
/// question ([`impersonate`]).
pub async fn identify(
    api: &ApiServer,
    connection: Option<&Arc<User>>,
    headers: &HeaderMap,
) -> Result<Arc<User>, Status> {
    match (connection, bearer(headers)) {
        (Some(user), _) => Ok(user.clone()),
        (None, None) => Ok(Arc::new(User::anonymous())),
        (None, Some(token)) => {
            let audiences = &api.issuer().audiences;
            let found =
                service_account::user_of(api, api.issuer(), token, audiences, Timestamp::now());
            let found = found.await.ok_or_else(|| Status::unauthorized("Unauthorized"))?;
            Ok(Arc::new(found.0))
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
