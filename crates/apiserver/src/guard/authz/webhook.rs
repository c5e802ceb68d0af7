//! A service that is asked what somebody may do, with a `SubjectAccessReview`.
use super::conditions::Conditions;
use super::{Attributes, Opinion, What};
use crate::ground::kubeconfig::{Client, Error, Kubeconfig, PAUSE};
use crate::ground::remembered::Remembered;
use crate::guard::authn::User;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;

pub struct AuthorizationWebhook {
    client: Client,
    /// Of the review: `v1` or `v1beta1`.
    version: String,
    answers: Remembered<[u8; 32], Opinion>,
    allowed_ttl: Duration,
    refused_ttl: Duration,
    /// What must hold for it to be asked at all.
    pub conditions: Conditions,
    /// What it means that the service cannot be asked.
    pub fails_closed: bool,
}

impl AuthorizationWebhook {
    pub fn read(
        config: &Path,
        version: &str,
        (allowed_ttl, refused_ttl): (Duration, Duration),
    ) -> Result<AuthorizationWebhook, Error> {
        let client = Kubeconfig::read(config)?.client()?;
        let (version, answers) = (version.into(), Remembered::default());
        Ok(AuthorizationWebhook {
            client,
            version,
            answers,
            allowed_ttl,
            refused_ttl,
            conditions: Conditions::default(),
            fails_closed: false,
        })
    }

    pub async fn decide(&self, user: &User, attributes: &Attributes) -> Opinion {
        match self.conditions.hold(user, attributes) {
            Ok(true) => {}
            Ok(false) => return Opinion::none(""),
            Err(cause) => {
                tracing::warn!(cause, "conditions of an authorization webhook cannot be evaluated");
                return self.on_failure();
            }
        }
        let spec = spec(user, attributes);
        let key = Sha256::digest(spec.to_string()).into();
        if let Some(known) = self.answers.get(&key) {
            return known;
        }
        let review = json!({
            "kind": "SubjectAccessReview", "metadata": {}, "spec": spec,
            "apiVersion": format!("authorization.k8s.io/{}", self.version),
        });
        match self.client.review(&review, PAUSE).await {
            Ok(answer) => {
                let opinion = read(&answer["status"]);
                let allowed = matches!(opinion, Opinion::Allow(_));
                let ttl = if allowed { self.allowed_ttl } else { self.refused_ttl };
                self.answers.put(key, opinion.clone(), ttl);
                opinion
            }
            Err(cause) => {
                tracing::warn!(cause, "Failed to make webhook authorizer request");
                self.on_failure()
            }
        }
    }

    fn on_failure(&self) -> Opinion {
        if self.fails_closed { Opinion::Deny(String::new()) } else { Opinion::none("") }
    }
}

fn spec(user: &User, attributes: &Attributes) -> Value {
    let mut spec = json!({ "user": user.name, "groups": user.groups });
    if !user.uid.is_empty() {
        spec["uid"] = user.uid.clone().into();
    }
    if !user.extra.is_empty() {
        spec["extra"] = json!(user.extra);
    }
    let verb = &attributes.verb;
    match &attributes.what {
        What::Path(path) => spec["nonResourceAttributes"] = json!({ "path": path, "verb": verb }),
        What::Resource { group, version, resource, subresource, namespace, name } => {
            let all = [
                ("namespace", namespace),
                ("verb", verb),
                ("group", group),
                ("version", version),
                ("resource", resource),
                ("subresource", subresource),
                ("name", name),
            ];
            let said = all.iter().filter(|(_, value)| !value.is_empty());
            let mut wanted: Value =
                said.map(|(field, value)| ((*field).to_owned(), json!(value))).collect();
            attributes.selected.write_into(&mut wanted);
            spec["resourceAttributes"] = wanted;
        }
    }
    spec
}

fn read(status: &Value) -> Opinion {
    let reason = status["reason"].as_str().unwrap_or_default().to_owned();
    match (status["allowed"] == true, status["denied"] == true) {
        (true, false) => Opinion::Allow(reason),
        // One that says both knows not what it does: nobody is let in by it.
        (_, true) => Opinion::Deny(reason),
        (false, false) => Opinion::NoOpinion(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_says_only_what_is_known() {
        let user = User { name: "jane".into(), groups: vec!["dev".into()], ..User::default() };
        let attributes = Attributes::right("get", "", "pods", "ns", "");
        assert_eq!(
            spec(&user, &attributes),
            json!({ "user": "jane", "groups": ["dev"],
                "resourceAttributes": { "namespace": "ns", "verb": "get", "resource": "pods" } })
        );
    }

    #[test]
    fn an_answer_is_one_of_three() {
        for (status, opinion) in [
            (json!({ "allowed": true }), Opinion::Allow(String::new())),
            (json!({ "allowed": false, "reason": "r" }), Opinion::none("r")),
            (json!({ "allowed": false, "denied": true }), Opinion::Deny(String::new())),
            (json!({ "allowed": true, "denied": true }), Opinion::Deny(String::new())),
        ] {
            assert_eq!(read(&status), opinion, "{status}");
        }
    }
}
