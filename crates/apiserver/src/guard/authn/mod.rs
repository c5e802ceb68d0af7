//! Who is asking.
//!
//! A connection may prove it once, with a client certificate; else a request does, with a bearer
//! token, or a proxy that is believed says it. Whoever proves nothing is `system:anonymous`, where
//! that is let in; whoever tries and fails is refused.
//!
//! ```text
//!  front proxy's headers ─► client certificate ─► bearer token ─► anonymous
//!                                                  └► file, service account, bootstrap, OpenID, webhook
//! ```
mod front_proxy;
mod headers;
mod impersonation;
mod peer;
pub mod token;
mod x509;

pub use front_proxy::FrontProxy;
pub use headers::remove_credentials;
pub use impersonation::{LastWays, apply as impersonate};
pub use peer::Peer;
pub use x509::user_of as certificate_user;

use crate::ground::tls::Trust;
use crate::server::ApiServer;
use api::status::Status;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that may say who somebody is, beside service accounts.
pub struct Authentication {
    /// The CA of client certificates.
    pub clients: Option<Trust>,
    pub front_proxy: Option<FrontProxy>,
    pub token_file: Option<token::file::TokenFile>,
    pub bootstrap_tokens: bool,
    pub oidc: Vec<token::oidc::Oidc>,
    pub webhook: Option<token::webhook::TokenWebhook>,
    pub anonymous: Anonymous,
    /// By which ways users came to act as others.
    pub last_ways: LastWays,
}

impl Default for Authentication {
    fn default() -> Self {
        Authentication {
            clients: None,
            front_proxy: None,
            token_file: None,
            bootstrap_tokens: false,
            oidc: Vec::new(),
            webhook: None,
            anonymous: Anonymous::Everywhere,
            last_ways: LastWays::default(),
        }
    }
}

/// Where those are let in who prove nothing; what they may do there is for authorization to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anonymous {
    Nowhere,
    Everywhere,
    /// At these paths only.
    At(Vec<String>),
}

impl Anonymous {
    fn admits(&self, path: &str) -> bool {
        match self {
            Anonymous::Nowhere => false,
            Anonymous::Everywhere => true,
            Anonymous::At(paths) => paths.iter().any(|allowed| allowed == path),
        }
    }
}

impl Authentication {
    /// What the certificates of a connection prove.
    pub fn peer(&self, chain: Option<&[rustls::pki_types::CertificateDer<'static>]>) -> Peer {
        let front_proxies = self.front_proxy.as_ref().map(|proxy| &proxy.trust);
        Peer::of(chain, self.clients.as_ref(), front_proxies)
    }
}

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

    /// Whether he has not said who he is.
    pub fn is_anonymous(&self) -> bool {
        self.name == "system:anonymous"
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
    peer: &Peer,
    headers: &HeaderMap,
    path: &str,
) -> Result<Arc<User>, Status> {
    let authentication = api.authentication();
    let proxied = match &authentication.front_proxy {
        Some(proxy) => proxy.user(peer, headers).map_err(refused)?,
        None => None,
    };
    if let Some(user) = proxied {
        Ok(Arc::new(authenticated(user)))
    } else if let Some(user) = peer.user() {
        Ok(user.clone())
    } else if let Some(token) = bearer(headers).map_err(refused)? {
        let found = Box::pin(token::user_of(api, &token, &api.issuer().audiences)).await;
        Ok(Arc::new(found.ok_or_else(unauthorized)?.0))
    } else if !peer.showed_certificate() && authentication.anonymous.admits(path) {
        Ok(Arc::new(User::anonymous()))
    } else {
        Err(unauthorized())
    }
}

fn unauthorized() -> Status {
    Status::unauthorized("Unauthorized")
}

/// Whoever has proved something is of one group more.
fn authenticated(mut user: User) -> User {
    let group = "system:authenticated";
    let known = |g: &String| g == group || g == "system:unauthenticated";
    if user.name != "system:anonymous" && !user.groups.iter().any(known) {
        user.groups.push(group.into());
    }
    user
}

/// Whoever tries to prove something and fails is told no more than that.
fn refused(cause: impl std::fmt::Display) -> Status {
    tracing::debug!(%cause, "Unable to authenticate the request");
    unauthorized()
}

/// The token of a request; none if it brings none. What is meant as one and cannot be read is not
/// the same as none: it proves nothing, and its sender is not anonymous.
fn bearer(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    const UNREADABLE: &str = "invalid bearer token";
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let mut words = value.as_bytes().trim_ascii().split(|byte| *byte == b' ');
        let scheme = words.next().unwrap_or_default();
        let token = words.next().unwrap_or_default();
        if scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty() {
            let token = std::str::from_utf8(token).map_err(|_| UNREADABLE)?;
            return Ok(Some(token.to_owned()));
        }
    }
    // A browser's WebSocket takes no header: it names the token among its protocols.
    let is_websocket = headers
        .get(header::UPGRADE)
        .is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let (tokens, others) = headers::protocols(headers);
    match tokens[..] {
        [] => Ok(None),
        _ if !is_websocket => Ok(None),
        // The server has to agree to one of them, and that is not the token.
        [_] if others.is_empty() => Err("missing additional subprotocol"),
        [token] => {
            let token = URL_SAFE_NO_PAD.decode(headers::token_of(token)).map_err(|_| UNREADABLE)?;
            let token = String::from_utf8(token).map_err(|_| UNREADABLE)?;
            Ok(Some(token).filter(|token| !token.is_empty()))
        }
        _ => Err("multiple base64.bearer.authorization tokens specified"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn check(lines: &[(&'static str, &[u8])], expected: Result<Option<&str>, &'static str>) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let value = HeaderValue::from_bytes(value).expect("a value");
            headers.append(HeaderName::from_static(name), value);
        }
        let found = bearer(&headers);
        assert_eq!(found, expected.map(|token| token.map(str::to_owned)), "{lines:?}");
    }

    #[test]
    fn a_token_that_cannot_be_read_is_not_none() {
        check(&[], Ok(None));
        check(&[("authorization", b"Bearer abc")], Ok(Some("abc")));
        check(&[("authorization", b"bearer abc more")], Ok(Some("abc")));
        check(&[("authorization", b"Basic abc")], Ok(None));
        check(&[("authorization", b"Bearer ")], Ok(None));
        check(&[("authorization", b"Bearer \xff")], Err("invalid bearer token"));
        check(&[("authorization", "Bearer ü".as_bytes())], Ok(Some("ü")));
        let upgrade = ("upgrade", &b"WebSocket"[..]);
        let protocol = |value: &'static str| ("sec-websocket-protocol", value.as_bytes());
        check(&[upgrade, protocol("a,base64url.bearer.authorization.k8s.io.eA")], Ok(Some("x")));
        check(&[protocol("a,base64url.bearer.authorization.k8s.io.eA")], Ok(None));
        for (value, fault) in [
            ("base64url.bearer.authorization.k8s.io.eA", "missing additional subprotocol"),
            ("a,base64url.bearer.authorization.k8s.io.e!", "invalid bearer token"),
            ("a,base64url.bearer.authorization.k8s.io._w", "invalid bearer token"),
            (
                "a,base64url.bearer.authorization.k8s.io.eA,base64url.bearer.authorization.k8s.io.eA",
                "multiple base64.bearer.authorization tokens specified",
            ),
        ] {
            check(&[upgrade, protocol(value)], Err(fault));
        }
    }
}
