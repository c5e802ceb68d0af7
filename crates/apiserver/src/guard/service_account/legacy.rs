//! Tokens of old, which live in a Secret: believed as long as that secret holds them.
use super::Issuer;
use crate::guard::authn::User;
use crate::server::ApiServer;
use crate::state::objects;
use api::kinds::find_kind;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Who signs them, whatever the server's own issuer is called.
pub const ISSUER: &str = "kubernetes/serviceaccount";
const CLAIM: &str = "kubernetes.io/serviceaccount/";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// The user of a token with these claims, which were signed by us. It is for the server itself.
pub async fn user_of(
    api: &ApiServer,
    issuer: &Issuer,
    token: &str,
    claims: &Value,
    audiences: &[String],
) -> Option<(User, Vec<String>)> {
    let claim = |name: &str| claims[format!("{CLAIM}{name}")].as_str().filter(|c| !c.is_empty());
    let (namespace, name) = (claim("namespace")?, claim("service-account.name")?);
    let (uid, secret_name) = (claim("service-account.uid")?, claim("secret.name")?);
    let user = format!("system:serviceaccount:{namespace}:{name}");
    let meant: Vec<String> =
        audiences.iter().filter(|audience| issuer.audiences.contains(audience)).cloned().collect();
    if claims["sub"] != user || meant.is_empty() {
        return None;
    }
    let secrets = find_kind("v1", "Secret")?;
    let secret = objects::get(api, secrets, namespace, secret_name).await.ok()?;
    let account =
        objects::get(api, find_kind("v1", "ServiceAccount")?, namespace, name).await.ok()?;
    let metadata = &secret["metadata"];
    let held = STANDARD.decode(secret["data"]["token"].as_str().unwrap_or_default()).ok()?;
    let good = Sha256::digest(&held) == Sha256::digest(token)
        && metadata.get("deletionTimestamp").is_none()
        && metadata["labels"].get(INVALID_SINCE).is_none()
        && account["metadata"].get("deletionTimestamp").is_none()
        && account["metadata"]["uid"] == uid;
    if !good {
        return None;
    }
    note_use(api, &secret, namespace, secret_name).await;
    let groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    Some((User { name: user, uid: uid.to_owned(), groups, ..User::default() }, meant))
}

/// The day of the last use is written on the secret, so that what nobody uses can be cleaned up.
async fn note_use(api: &ApiServer, secret: &Value, namespace: &str, name: &str) {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date().to_string();
    if secret["metadata"]["labels"][LAST_USED] == *today {
        return;
    }
    let Some(resource) = find_kind("v1", "Secret") else { return };
    let noted = objects::modify(api, resource, (namespace, name), false, |secret| {
        match &mut secret["metadata"]["labels"] {
            Value::Object(labels) => drop(labels.insert(LAST_USED.into(), today.clone().into())),
            none => *none = json!({ LAST_USED: today }),
        }
        Ok(())
    });
    if let Err(error) = noted.await {
        tracing::warn!(%error, namespace, name, "the use of a token could not be noted");
    }
}
