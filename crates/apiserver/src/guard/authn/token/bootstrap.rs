//! Bootstrap tokens: secrets of `kube-system` with which a node introduces itself.
use crate::guard::authn::User;
use crate::server::ApiServer;
use crate::state::objects;
use api::kinds::find_kind;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

const GROUP: &str = "system:bootstrappers";

/// The user of a token whose secret still stands for it.
pub async fn user_of(api: &ApiServer, token: &str, now: Timestamp) -> Option<User> {
    let (id, secret) = parse(token)?;
    let resource = find_kind("v1", "Secret")?;
    let stored = objects::get(api, resource, "kube-system", &format!("bootstrap-token-{id}")).await;
    user(&stored.ok()?, id, secret, now)
}

/// `id.secret`, of six and sixteen characters.
fn parse(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

fn user(stored: &Value, id: &str, secret: &str, now: Timestamp) -> Option<User> {
    let data = |key: &str| {
        let bytes = STANDARD.decode(stored["data"][key].as_str().unwrap_or_default()).ok()?;
        String::from_utf8(bytes).ok()
    };
    // Digests are compared, so that the time it takes tells nothing.
    let same = Sha256::digest(data("token-secret")?) == Sha256::digest(secret);
    let fits = stored["type"] == "bootstrap.kubernetes.io/token"
        && stored["metadata"].get("deletionTimestamp").is_none()
        && same
        && data("token-id")? == id
        && data("usage-bootstrap-authentication")? == "true";
    if !fits {
        return None;
    }
    // One whose end cannot be read has ended.
    let end = data("expiration")?;
    if !end.is_empty() && !end.parse::<Timestamp>().is_ok_and(|end| now < end) {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    for group in data("auth-extra-groups")?.split(',').filter(|group| !group.is_empty()) {
        if !is_group(group) {
            return None;
        }
        groups.push(group.to_owned());
    }
    groups[1..].sort();
    groups.dedup();
    Some(User { name: format!("system:bootstrap:{id}"), groups, ..User::default() })
}

/// `system:bootstrappers:` and a name that does not end in a sign.
fn is_group(group: &str) -> bool {
    let Some(name) = group.strip_prefix("system:bootstrappers:") else { return false };
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= 256
        && name.bytes().all(|b| letter(b) || b == b':' || b == b'-')
        && name.bytes().last().is_some_and(letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = serde_json::Map::new();
        let base = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("expiration", "2026-01-02T00:00:00Z"),
            ("auth-extra-groups", "system:bootstrappers:workers"),
        ];
        for (key, value) in base.iter().chain(changes) {
            data.insert((*key).to_owned(), STANDARD.encode(value).into());
        }
        json!({ "type": "bootstrap.kubernetes.io/token", "metadata": {}, "data": data })
    }

    fn check(changes: &[(&str, &str)]) -> Option<User> {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        user(&secret(changes), "abcdef", "0123456789abcdef", now)
    }

    #[test]
    fn a_secret_stands_for_a_node_to_be() {
        let user = check(&[]).expect("a user");
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(user.groups, ["system:bootstrappers", "system:bootstrappers:workers"]);
    }

    #[test]
    fn whatever_does_not_fit_is_nobody() {
        for change in [
            ("token-secret", "0123456789abcdeg"),
            ("token-id", "abcdeg"),
            ("usage-bootstrap-authentication", "false"),
            ("expiration", "2025-12-31T00:00:00Z"),
            ("expiration", "tomorrow"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:"),
        ] {
            assert_eq!(check(&[change]), None, "{change:?}");
        }
    }

    #[test]
    fn other_tokens_are_not_looked_up() {
        for token in ["abcdef", "abcdef.short", "ABCDEF.0123456789abcdef", "a.b.c"] {
            assert_eq!(parse(token), None, "{token}");
        }
        assert_eq!(parse("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
    }
}
