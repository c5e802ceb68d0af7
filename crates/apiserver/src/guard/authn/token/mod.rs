//! Bearer tokens: whoever holds one is who it stands for.
//!
//! The authenticators are asked in upstream's order, those that need nobody else first: the token
//! file, service accounts, bootstrap tokens, OpenID providers, a webhook.
pub mod bootstrap;
pub mod claims;
pub mod file;
mod jwk;
pub mod oidc;
pub mod webhook;

use super::{User, authenticated};
use crate::guard::service_account;
use crate::server::ApiServer;
use jiff::Timestamp;

/// Who a token stands for, and which of the audiences in question it is for.
pub type Authenticated = (User, Vec<String>);

/// The user of a token that is for one of `audiences`.
pub async fn user_of(api: &ApiServer, token: &str, audiences: &[String]) -> Option<Authenticated> {
    let (user, meant) = find(api, token, audiences).await?;
    Some((authenticated(user), meant))
}

async fn find(api: &ApiServer, token: &str, audiences: &[String]) -> Option<Authenticated> {
    let authentication = api.authentication();
    // Tokens that say nothing of an audience are for this server.
    let ours = &api.issuer().audiences;
    let for_us: Vec<String> = audiences.iter().filter(|a| ours.contains(a)).cloned().collect();
    let agnostic = |user: User| (!for_us.is_empty()).then(|| (user, for_us.clone()));
    if let Some(user) = authentication.token_file.as_ref().and_then(|file| file.user_of(token)) {
        return agnostic(user);
    }
    let now = Timestamp::now();
    let account = service_account::user_of(api, api.issuer(), token, audiences, now).await;
    if let Some(found) = account {
        return Some(found);
    }
    if authentication.bootstrap_tokens
        && let Some(user) = bootstrap::user_of(api, token, now).await
    {
        return agnostic(user);
    }
    for provider in &authentication.oidc {
        if let Some(user) = provider.user_of(token, now).await {
            return agnostic(user);
        }
    }
    authentication.webhook.as_ref()?.user_of(token, audiences).await
}
