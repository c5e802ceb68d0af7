//! What a token says, and whether it is still true.
use super::{Issuer, legacy};
use crate::guard::authn::User;
use crate::server::ApiServer;
use crate::state::objects;
use api::kinds::find_kind;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Clocks differ by so much.
const LEEWAY: i64 = 60;
const PRIVATE: &str = "kubernetes.io";

/// What a token is for beside its account: it dies with it.
#[derive(Debug, Default, Clone)]
pub struct Bound {
    /// `pod`, `secret` or `node`; name and uid.
    pub objects: Vec<(&'static str, String, String)>,
}

/// A token's claims. `warn_after` marks one that lives longer than was asked for.
pub fn issue(
    issuer: &Issuer,
    account: &Value,
    bound: &Bound,
    audiences: &[String],
    (lifetime, warn_after): (i64, Option<i64>),
    now: Timestamp,
) -> Result<(String, i64), ring::error::Unspecified> {
    let text = |field: &str| account["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let now = now.as_second();
    let mut private = json!({
        "namespace": namespace,
        "serviceaccount": { "name": name, "uid": text("uid") },
    });
    for (kind, name, uid) in &bound.objects {
        private[*kind] = json!({ "name": name, "uid": uid });
    }
    if let Some(after) = warn_after {
        private["warnafter"] = (now + after).into();
    }
    let claims = json!({
        "aud": audiences, "exp": now + lifetime, "iat": now, "nbf": now, "iss": issuer.name(),
        "jti": crate::ground::uuid(), "sub": format!("system:serviceaccount:{namespace}:{name}"),
        PRIVATE: private,
    });
    Ok((issuer.keys.sign(&claims)?, now + lifetime))
}

/// The user of a token that was signed by us, is for one of `audiences`, and still holds. With the
/// audiences that it is for.
pub async fn user_of(
    api: &ApiServer,
    issuer: &Issuer,
    token: &str,
    audiences: &[String],
    now: Timestamp,
) -> Option<(User, Vec<String>)> {
    let claims = issuer.keys.verify(token)?;
    if claims["iss"] == legacy::ISSUER {
        return legacy::user_of(api, issuer, token, &claims, audiences).await;
    }
    let now = now.as_second();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let known = issuer.names.iter().any(|name| claims["iss"] == *name);
    let alive = claims["exp"].as_i64().is_some_and(|end| now < end + LEEWAY)
        && claims["nbf"].as_i64().is_none_or(|start| now + LEEWAY >= start);
    let meant: Vec<String> = match &claims["aud"] {
        Value::String(one) => vec![one.clone()],
        many => serde_json::from_value(many.clone()).ok()?,
    };
    let meant: Vec<String> =
        meant.into_iter().filter(|audience| audiences.contains(audience)).collect();
    if !known || !alive || meant.is_empty() {
        return None;
    }
    let private = &claims[PRIVATE];
    let (namespace, account) = (text(&private["namespace"]), &private["serviceaccount"]);
    let name = text(&account["name"]);
    let user = format!("system:serviceaccount:{namespace}:{name}");
    if claims["sub"] != user || !exists(api, "ServiceAccount", &namespace, account, now).await {
        return None;
    }
    let mut extra = BTreeMap::new();
    let id = format!("JTI={}", text(&claims["jti"]));
    extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![id]);
    for (claim, kind) in [("secret", "Secret"), ("pod", "Pod"), ("node", "Node")] {
        let Some(bound) = private.get(claim) else { continue };
        let place = if kind == "Node" { "" } else { namespace.as_str() };
        // A pod's token may outlive its node's object: the node is only where it was.
        let must_exist = kind != "Node" || private.get("pod").is_none();
        if must_exist && !exists(api, kind, place, bound, now).await {
            return None;
        }
        if kind != "Secret" {
            for field in ["name", "uid"] {
                let key = format!("authentication.kubernetes.io/{claim}-{field}");
                extra.insert(key, vec![text(&bound[field])]);
            }
        }
    }
    let groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    Some((User { name: user, uid: text(&account["uid"]), groups, extra }, meant))
}

/// Whether the very object still exists: another of the same name is another.
async fn exists(api: &ApiServer, kind: &str, namespace: &str, claim: &Value, now: i64) -> bool {
    let Some(resource) = find_kind("v1", kind) else { return false };
    let name = claim["name"].as_str().unwrap_or_default();
    match objects::get(api, resource, namespace, name).await {
        Ok(object) => object["metadata"]["uid"] == claim["uid"] && !is_past(&object, now),
        Err(_) => false,
    }
}

/// Whether an object, of whatever kind, should have been gone for a while. What is being deleted
/// holds until then: its last words must be heard.
fn is_past(object: &Value, now: i64) -> bool {
    let Some(time) = object["metadata"].get("deletionTimestamp") else { return false };
    let due = time.as_str().and_then(|time| api::time::parse(time).ok());
    // A time that cannot be read is long ago.
    due.is_none_or(|(due, _)| due < now - LEEWAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_deleted_holds_for_a_minute() {
        let noon = api::time::parse("2030-01-01T12:00:00Z").expect("a time").0;
        let deleted = json!({ "metadata": { "deletionTimestamp": "2030-01-01T12:00:00Z" } });
        for (object, after, expected) in [
            (json!({ "metadata": {} }), 1000, false),
            (deleted.clone(), -30, false),
            (deleted.clone(), 60, false),
            (deleted, 61, true),
            (json!({ "metadata": { "deletionTimestamp": "soon" } }), 0, true),
        ] {
            assert_eq!(is_past(&object, noon + after), expected, "{object} {after}");
        }
    }
}
