//! What the configuration file says to the plugins of policies: in which folder there are manifests of them.
use crate::admission::chain::Settings;
use crate::admission::configuration::{Fault, typed};
use crate::admission::manifests::{Folder, MUTATING_POLICIES, VALIDATING_POLICIES};
use serde::Deserialize;
use serde_json::Value;

const GROUP: &str = "apiserver.config.k8s.io";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Told {
    static_manifests_dir: String,
}

pub fn configure_mutating(told: Option<Value>, settings: &mut Settings) -> Result<(), Fault> {
    let folder = folder(told, "MutatingAdmissionPolicyConfiguration")?;
    settings.manifests.mutating_policies = Folder::open(&folder, &MUTATING_POLICIES)?;
    Ok(())
}

pub fn configure_validating(told: Option<Value>, settings: &mut Settings) -> Result<(), Fault> {
    let folder = folder(told, "ValidatingAdmissionPolicyConfiguration")?;
    settings.manifests.validating_policies = Folder::open(&folder, &VALIDATING_POLICIES)?;
    Ok(())
}

/// Empty if there is none.
fn folder(told: Option<Value>, kind: &str) -> Result<String, String> {
    let Some(told) = told else { return Ok(String::new()) };
    let told: Told = typed(told, GROUP, &["v1"], kind)?;
    Ok(told.static_manifests_dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_configuration_is_of_its_own_plugin() {
        let kind = "MutatingAdmissionPolicyConfiguration";
        let told = json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": kind,
            "staticManifestsDir": "/x" });
        assert_eq!(folder(Some(told.clone()), kind).as_deref(), Ok("/x"));
        assert_eq!(folder(None, kind).as_deref(), Ok(""));
        let other = folder(Some(told), "ValidatingAdmissionPolicyConfiguration");
        let text = "no kind \"MutatingAdmissionPolicyConfiguration\" is registered for version \"apiserver.config.k8s.io/v1\"";
        assert_eq!(other, Err(text.to_owned()));
    }
}
