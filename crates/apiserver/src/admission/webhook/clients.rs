//! What the configuration file says to the plugins of webhooks: as whom webhooks are asked, and in which folder
//! there are manifests of them.
use crate::admission::chain::Settings;
use crate::admission::configuration::{Fault, typed};
use crate::admission::manifests::{Folder, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
use crate::extend::backend::Clients;
use api::field::{Error, Path as Place};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

const GROUP: &str = "apiserver.config.k8s.io";

/// As whom hooks of either sort are asked.
#[derive(Default)]
pub struct AskedAs {
    pub mutating: Clients,
    pub validating: Clients,
}

/// What plugins of either sort may be told.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Told {
    kube_config_file: String,
    static_manifests_dir: String,
}

pub fn configure_mutating(told: Option<Value>, settings: &mut Settings) -> Result<(), Fault> {
    let (clients, folder) = read(told)?;
    settings.webhooks.mutating = clients;
    settings.manifests.mutating_webhooks = Folder::open(&folder, &MUTATING_WEBHOOKS)?;
    Ok(())
}

pub fn configure_validating(told: Option<Value>, settings: &mut Settings) -> Result<(), Fault> {
    let (clients, folder) = read(told)?;
    settings.webhooks.validating = clients;
    settings.manifests.validating_webhooks = Folder::open(&folder, &VALIDATING_WEBHOOKS)?;
    Ok(())
}

/// As whom they are asked, and the folder: empty if there is none.
fn read(told: Option<Value>) -> Result<(Clients, String), String> {
    let Some(told) = told else { return Ok((Clients::default(), String::new())) };
    let told: Told = typed(told, GROUP, &["v1"], "WebhookAdmissionConfiguration")?;
    let (file, folder) = (told.kube_config_file, told.static_manifests_dir);
    if file.is_empty() {
        return Ok((Clients::default(), folder));
    }
    if !file.starts_with('/') {
        let place = Place::new("kubeConfigFile");
        return Err(Error::invalid(&place, &*file, "must be an absolute file path").to_string());
    }
    Ok((Clients::read(Path::new(&file))?, folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_is_read_strictly() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, "apiVersion: v1\nkind: Config\nusers: []").expect("written");
        let check = |more: Value, expected: Result<(), &str>| {
            let mut told = json!({ "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration" });
            for (field, value) in more.as_object().into_iter().flatten() {
                told[field] = value.clone();
            }
            let read = read(Some(told)).map(drop);
            assert_eq!(read, expected.map_err(str::to_owned), "{more}");
        };
        check(json!({}), Ok(()));
        check(json!({ "kubeConfigFile": file }), Ok(()));
        check(
            json!({ "kubeConfigFile": "rel/ative" }),
            Err("kubeConfigFile: Invalid value: \"rel/ative\": must be an absolute file path"),
        );
        check(
            json!({ "kubeConfigFile": "/nowhere/at/all" }),
            Err("stat /nowhere/at/all: no such file or directory"),
        );
        check(
            json!({ "kubeconfigFile": "/x" }),
            Err("strict decoding error: unknown field \"kubeconfigFile\""),
        );
        check(
            json!({ "kind": "Other" }),
            Err("no kind \"Other\" is registered for version \"apiserver.config.k8s.io/v1\""),
        );
    }
}
