//! What may not be used at all without a quota that covers it; and whose turn it is.
use super::scope::Selector;
use crate::admission::chain::Settings;
use crate::admission::configuration::typed;
use serde::Deserialize;
use serde_json::Value;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use tokio::sync::{Mutex, OwnedMutexGuard};

#[derive(Default)]
pub struct Configuration {
    pub limited: Vec<Limited>,
    pub turns: Turns,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Limited {
    pub api_group: String,
    pub resource: String,
    pub match_contains: Vec<String>,
    pub match_scopes: Vec<Selector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Document {
    limited_resources: Vec<Limited>,
}

pub fn configure(told: Option<Value>, settings: &mut Settings) -> Result<(), String> {
    let Some(told) = told else { return Ok(()) };
    let document: Document = match told["kind"].as_str() {
        Some("Configuration") => {
            let versions = ["v1beta1", "v1alpha1"];
            typed(told, "resourcequota.admission.k8s.io", &versions, "Configuration")?
        }
        _ => typed(told, "apiserver.config.k8s.io", &["v1"], "ResourceQuotaConfiguration")?,
    };
    let unnamed = document.limited_resources.iter().position(|limited| limited.resource.is_empty());
    if let Some(i) = unnamed {
        return Err(format!("limitedResources[{i}].resource: Required value"));
    }
    settings.resource_quota.limited = document.limited_resources;
    Ok(())
}

/// Locks by namespace; two that share one wait for each other, and nothing else happens.
pub struct Turns([Arc<Mutex<()>>; 64]);

impl Default for Turns {
    fn default() -> Self {
        Turns(std::array::from_fn(|_| Arc::default()))
    }
}

impl Turns {
    pub async fn take(&self, namespace: &str) -> OwnedMutexGuard<()> {
        let mut hasher = DefaultHasher::new();
        namespace.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % 64).expect("it is below 64");
        self.0[place].clone().lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn limited_resources_are_read() {
        let told = |version: &str, kind: &str, limited: Value| {
            let mut settings = Settings::default();
            let document =
                json!({"apiVersion": version, "kind": kind, "limitedResources": limited});
            configure(Some(document), &mut settings).map(|()| settings.resource_quota.limited)
        };
        let limited = json!([{"resource": "pods", "matchScopes": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}]);
        let read =
            told("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration", limited.clone());
        assert_eq!(read.unwrap()[0].match_scopes[0].to_string(), "{PriorityClass In [high]}");
        assert!(told("resourcequota.admission.k8s.io/v1beta1", "Configuration", limited).is_ok());
        assert_eq!(
            told("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration", json!([{}]))
                .unwrap_err(),
            "limitedResources[0].resource: Required value"
        );
    }
}
