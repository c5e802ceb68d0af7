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
mod impersonation;
mod peer;
pub mod token;
mod x509;

pub use front_proxy::FrontProxy;
pub use impersonation::apply as impersonate;
pub use peer::Peer;

use crate::resources::ApiServer;
use crate::tls::Trust;
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
    let proxied = authentication.front_proxy.as_ref().and_then(|proxy| proxy.user(peer, headers));
    if let Some(user) = proxied {
        Ok(Arc::new(authenticated(user)))
    } else if let Some(user) = peer.user() {
        Ok(user.clone())
    } else if let Some(token) = bearer(headers) {
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

/// The token of a request. A browser's WebSocket takes no header: it names it among its protocols.
fn bearer(headers: &HeaderMap) -> Option<String> {
    const PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        let token = token.trim();
        let is_bearer = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
        return is_bearer.then(|| token.to_owned());
    }
    let protocols = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let mut protocols =
        protocols.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    let token = protocols.find_map(|protocol| protocol.trim().strip_prefix(PROTOCOL))?;
    String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()
}

/// The key that the name of a header spells: it is percent-encoded, as a name takes no slash.
fn percent_decoded(key: &str) -> String {
    percent_encoding::percent_decode_str(key).decode_utf8_lossy().to_lowercase()
}
