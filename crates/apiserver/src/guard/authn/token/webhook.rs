//! A service that is asked about tokens nobody here knows, with a `TokenReview`.
use super::Authenticated;
use crate::ground::kubeconfig::{Client, Error, Kubeconfig, PAUSE};
use crate::ground::remembered::Remembered;
use crate::guard::authn::User;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;

pub struct TokenWebhook {
    client: Client,
    /// Of the review: `v1` or `v1beta1`.
    version: String,
    answers: Remembered<[u8; 32], Option<Authenticated>>,
    ttl: Duration,
}

impl TokenWebhook {
    pub fn read(config: &Path, version: &str, ttl: Duration) -> Result<TokenWebhook, Error> {
        let client = Kubeconfig::read(config)?.client()?;
        Ok(TokenWebhook { client, version: version.into(), answers: Remembered::default(), ttl })
    }

    pub async fn user_of(&self, token: &str, audiences: &[String]) -> Option<Authenticated> {
        let mut digest = Sha256::new_with_prefix(token);
        for audience in audiences {
            digest.update([0]);
            digest.update(audience);
        }
        let key = digest.finalize().into();
        if let Some(known) = self.answers.get(&key) {
            return known;
        }
        let review = json!({
            "kind": "TokenReview", "apiVersion": format!("authentication.k8s.io/{}", self.version),
            "metadata": {}, "spec": { "token": token, "audiences": audiences },
        });
        match self.client.review(&review, PAUSE).await {
            Ok(answer) => {
                let found = read(&answer["status"], audiences);
                self.answers.put(key, found.clone(), self.ttl);
                found
            }
            Err(cause) => {
                tracing::warn!(cause, "Failed to make webhook authenticator request");
                None
            }
        }
    }
}

fn read(status: &Value, asked: &[String]) -> Option<Authenticated> {
    if status["authenticated"] != true {
        return None;
    }
    let user = &status["user"];
    let text = |field: &str| user[field].as_str().unwrap_or_default().to_owned();
    let user = User {
        name: text("username"),
        uid: text("uid"),
        groups: serde_json::from_value(user["groups"].clone()).unwrap_or_default(),
        extra: serde_json::from_value(user["extra"].clone()).unwrap_or_default(),
    };
    // A service that knows no audiences speaks for this server's.
    let meant: Vec<String> = match status["audiences"].as_array() {
        Some(meant) if !meant.is_empty() => {
            asked.iter().filter(|a| meant.iter().any(|m| *m == **a)).cloned().collect()
        }
        _ => asked.to_vec(),
    };
    (!meant.is_empty()).then_some((user, meant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_who_it_is_and_for_whom() {
        let asked = ["api".to_owned()];
        let mut status = json!({ "authenticated": true,
            "user": { "username": "jane", "groups": ["dev"], "extra": { "k": ["v"] } } });
        let (user, meant) = read(&status, &asked).expect("a user");
        assert_eq!((&*user.name, &user.groups[..]), ("jane", &["dev".to_owned()][..]));
        assert_eq!((user.extra["k"].len(), &meant[..]), (1, &asked[..]));
        status["audiences"] = json!(["other"]);
        assert_eq!(read(&status, &asked), None);
        status["audiences"] = json!(["api", "other"]);
        assert!(read(&status, &asked).is_some());
        status["authenticated"] = false.into();
        assert_eq!(read(&status, &asked), None);
    }
}
