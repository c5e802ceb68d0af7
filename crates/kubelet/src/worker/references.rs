//! What a pod refers to, fetched for one look at it: ConfigMaps, Secrets and tokens. They are got
//! one by one, by name: that is all that a node may do.
use super::{Kubelet, Memory, SyncError};
use crate::container::env::References;
use crate::pod;
use client::source::Said;
use client::{Informer, NamespacedName};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub type Tokens = BTreeMap<(String, i64), Token>;

pub struct Token {
    pub text: String,
    /// When to ask for another: after four fifths of its life, or a day.
    refresh: Timestamp,
}

pub struct Fetched {
    config_maps: BTreeMap<String, Arc<ConfigMap>>,
    secrets: BTreeMap<String, Arc<Secret>>,
    services: Informer<Service>,
}

impl References for Fetched {
    fn config_map(&self, _: &str, name: &str) -> Option<Arc<ConfigMap>> {
        self.config_maps.get(name).cloned()
    }

    fn secret(&self, _: &str, name: &str) -> Option<Arc<Secret>> {
        self.secrets.get(name).cloned()
    }

    fn services(&self, namespace: &str) -> Vec<Arc<Service>> {
        self.services.read().in_namespace(namespace).map(|(_, service)| service.clone()).collect()
    }
}

impl Kubelet {
    pub(super) async fn fetch(&self, pod: &Pod, memory: &Memory) -> Result<Fetched, SyncError> {
        let namespace = pod::namespace(pod);
        let (mut config_maps, mut secrets) = (BTreeMap::new(), BTreeMap::new());
        let wrong = |error: api::codec::DecodeError| SyncError::Other(error.to_string());
        for (is_secret, name) in names(&serde_json::json!(pod.spec)) {
            if is_secret {
                if let Some(object) = self.look_up::<Secret>(memory, namespace, &name).await? {
                    secrets.insert(name, object.typed().map_err(wrong)?);
                }
            } else if let Some(object) = self.look_up::<ConfigMap>(memory, namespace, &name).await?
            {
                config_maps.insert(name, object.typed().map_err(wrong)?);
            }
        }
        Ok(Fetched { config_maps, secrets, services: self.services.clone() })
    }

    /// Tokens for the pod's volumes; those that are still good are kept.
    pub(super) async fn tokens(
        &self,
        pod: &Pod,
        memory: &Memory,
    ) -> Result<BTreeMap<(String, i64), String>, SyncError> {
        let mut texts = BTreeMap::new();
        for key in crate::volumes::tokens_wanted(pod) {
            let now = self.context.now();
            let kept = memory
                .notes
                .lock()
                .tokens
                .get(&key)
                .filter(|token| token.refresh > now)
                .map(|token| token.text.clone());
            let text = match kept {
                Some(text) => text,
                None => match self.request_token(pod, &key, now).await {
                    Ok(token) => {
                        let text = token.text.clone();
                        memory.notes.lock().tokens.insert(key.clone(), token);
                        text
                    }
                    // The old one is good for a while yet.
                    Err(error) => {
                        let old = memory.notes.lock().tokens.get(&key).map(|old| old.text.clone());
                        old.ok_or(error)?
                    }
                },
            };
            texts.insert(key, text);
        }
        Ok(texts)
    }

    async fn request_token(
        &self,
        pod: &Pod,
        (audience, seconds): &(String, i64),
        now: Timestamp,
    ) -> Result<Token, SyncError> {
        let status = self.token_status(pod, audience, *seconds).await?;
        let text = status["token"].as_str().unwrap_or_default().to_owned();
        let until =
            status["expirationTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let life =
            until.map_or(SignedDuration::from_secs(*seconds), |until| until.duration_since(now));
        let refresh =
            now.saturating_add((life / 5 * 4).min(SignedDuration::from_hours(24))).unwrap_or(now);
        Ok(Token { text, refresh })
    }

    /// A token of the pod's account, and until when it is good: the request's status.
    pub async fn token_status(
        &self,
        pod: &Pod,
        audience: &str,
        seconds: i64,
    ) -> Result<Value, SyncError> {
        let account = pod::spec(pod).service_account_name.as_deref().unwrap_or("default");
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: (!audience.is_empty()).then(|| vec![audience.to_owned()]),
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let of = NamespacedName::new(pod::namespace(pod), account);
        let said = self.client.post::<ServiceAccount>(&of, "token", &request).await?;
        let Said::Object(object) = said else {
            return Err(SyncError::Other(format!(
                "failed to fetch token for service account {of}"
            )));
        };
        let tree = object.tree().map_err(|error| SyncError::Other(error.to_string()))?;
        Ok(tree["status"].clone())
    }
}

/// Every ConfigMap (`false`) and Secret (`true`) that a specification names.
pub fn names(spec: &Value) -> BTreeSet<(bool, String)> {
    let mut names = BTreeSet::new();
    walk(spec, &mut names);
    names
}

fn walk(value: &Value, names: &mut BTreeSet<(bool, String)>) {
    let Value::Object(fields) = value else {
        value.as_array().into_iter().flatten().for_each(|item| walk(item, names));
        return;
    };
    for (field, value) in fields {
        let name = value["name"].as_str().or_else(|| value["secretName"].as_str());
        match (field.as_str(), name) {
            ("configMap" | "configMapRef" | "configMapKeyRef", Some(name)) => {
                names.extend([(false, name.to_owned())])
            }
            ("secret" | "secretRef" | "secretKeyRef", Some(name)) => {
                names.extend([(true, name.to_owned())])
            }
            ("imagePullSecrets", _) => {
                let all =
                    value.as_array().into_iter().flatten().filter_map(|one| one["name"].as_str());
                names.extend(all.map(|name| (true, name.to_owned())));
            }
            _ => walk(value, names),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_name_is_found() {
        let spec = json!({
            "imagePullSecrets": [{ "name": "pull" }],
            "containers": [{ "envFrom": [{ "configMapRef": { "name": "a" } }],
                "env": [{ "valueFrom": { "secretKeyRef": { "name": "b", "key": "k" } } }] }],
            "volumes": [{ "secret": { "secretName": "c" } }, { "projected": { "sources": [{ "configMap": { "name": "d" } }] } }]
        });
        let names: Vec<String> = names(&spec)
            .into_iter()
            .map(|(is_secret, name)| format!("{is_secret} {name}"))
            .collect();
        assert_eq!(names, ["false a", "false d", "true b", "true c", "true pull"]);
    }
}
