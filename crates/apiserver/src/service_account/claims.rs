//! What a token says, and whether it is still true.
use super::{Issuer, legacy};
use crate::authn::User;
use crate::objects;
use crate::resources::ApiServer;
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
        "jti": crate::verbs::uuid(), "sub": format!("system:serviceaccount:{namespace}:{name}"),
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
    if claims["sub"] != user || !exists(api, "ServiceAccount", &namespace, account).await {
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
        if must_exist && !exists(api, kind, place, bound).await {
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
async fn exists(api: &ApiServer, kind: &str, namespace: &str, claim: &Value) -> bool {
    let Some(resource) = find_kind("v1", kind) else { return false };
    let name = claim["name"].as_str().unwrap_or_default();
    match objects::get(api, resource, namespace, name).await {
        Ok(object) => {
            let going = kind != "ServiceAccount"
                && object["metadata"].get("deletionTimestamp").is_some_and(|time| {
                    // What is being deleted holds for a while: its last words must be heard.
                    let due = time.as_str().and_then(|time| api::time::parse(time).ok());
                    due.is_some_and(|(due, _)| Timestamp::now().as_second() > due + LEEWAY)
                });
            object["metadata"]["uid"] == claim["uid"] && !going
        }
        Err(_) => false,
    }
}
