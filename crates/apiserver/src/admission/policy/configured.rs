//! What the configuration file says to the plugins of policies: upstream's are told of a folder of manifests and
//! of nothing else, and this server reads none. It says so and does not start: its writer counts on them.
use crate::admission::chain::Settings;
use crate::admission::configuration::{Fault, typed};
use serde::Deserialize;
use serde_json::Value;

const GROUP: &str = "apiserver.config.k8s.io";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Told {
    static_manifests_dir: String,
}

pub fn configure_mutating(told: Option<Value>, _: &mut Settings) -> Result<(), Fault> {
    Ok(read(told, "MutatingAdmissionPolicyConfiguration")?)
}

pub fn configure_validating(told: Option<Value>, _: &mut Settings) -> Result<(), Fault> {
    Ok(read(told, "ValidatingAdmissionPolicyConfiguration")?)
}

fn read(told: Option<Value>, kind: &str) -> Result<(), String> {
    let Some(told) = told else { return Ok(()) };
    let told: Told = typed(told, GROUP, &["v1"], kind)?;
    match told.static_manifests_dir.is_empty() {
        true => Ok(()),
        false => Err("staticManifestsDir: this server reads no manifests of admission".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_folder_of_manifests_is_refused() {
        let kind = "MutatingAdmissionPolicyConfiguration";
        let told = |folder: &str| {
            let told = json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": kind,
                "staticManifestsDir": folder });
            read(Some(told), kind)
        };
        assert_eq!((read(None, kind), told("")), (Ok(()), Ok(())));
        let refused = "staticManifestsDir: this server reads no manifests of admission";
        assert_eq!(told("/etc/x"), Err(refused.to_owned()));
    }
}
