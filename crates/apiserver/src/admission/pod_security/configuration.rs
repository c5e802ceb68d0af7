//! `PodSecurityConfiguration`: the policy of namespaces that say nothing, and who is exempt.
use super::policy::{Level, LevelVersion, Policy, Version};
use crate::admission::chain::Settings;
use crate::admission::configuration::typed;
use crate::admission::joined;
use api::field::{Error, ErrorList, Path};
use api::names::{dns1123_label, dns1123_subdomain};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

const GROUP: &str = "pod-security.admission.config.k8s.io";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

#[derive(Debug, Default)]
pub struct Configuration {
    pub defaults: Policy,
    pub usernames: Vec<String>,
    pub namespaces: Vec<String>,
    pub runtime_classes: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    defaults: BTreeMap<String, String>,
    exemptions: Exemptions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Exemptions {
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

pub fn configure(told: Option<Value>, settings: &mut Settings) -> Result<(), String> {
    let Some(told) = told else { return Ok(()) };
    let document: Document = typed(told, GROUP, &VERSIONS, "PodSecurityConfiguration")?;
    let mut errors = ErrorList::new();
    let mut defaults = Policy::default();
    let modes = [
        ("enforce", &mut defaults.enforce),
        ("warn", &mut defaults.warn),
        ("audit", &mut defaults.audit),
    ];
    for (word, mode) in modes {
        *mode = level_version(&document.defaults, word, &mut errors);
    }
    let modes =
        ["enforce", "audit", "warn"].map(|word| [word.to_owned(), format!("{word}-version")]);
    let known = modes.as_flattened();
    if let Some(other) = document.defaults.keys().find(|key| !known.contains(key)) {
        return Err(format!("strict decoding error: unknown field \"defaults.{other}\""));
    }
    let Exemptions { usernames, namespaces, runtime_classes } = document.exemptions;
    check_list("namespaces", &namespaces, dns1123_label, &mut errors);
    check_list("runtimeClasses", &runtime_classes, dns1123_subdomain, &mut errors);
    let named = |name: &str| match name {
        "" => vec!["username must not be empty".into()],
        _ => Vec::new(),
    };
    check_list("usernames", &usernames, named, &mut errors);
    if !errors.is_empty() {
        return Err(joined(&errors.iter().map(ToString::to_string).collect::<Vec<_>>()));
    }
    settings.pod_security = Configuration { defaults, usernames, namespaces, runtime_classes };
    Ok(())
}

fn level_version(
    defaults: &BTreeMap<String, String>,
    word: &str,
    errors: &mut ErrorList,
) -> LevelVersion {
    let path = Path::new("defaults");
    let mut mode = LevelVersion::default();
    let given = |key: &str| defaults.get(key).map(String::as_str).filter(|text| !text.is_empty());
    if let Some(text) = given(word) {
        match Level::parse(text) {
            Ok(level) => mode.level = level,
            Err(fault) => errors.push(Error::invalid(&path.child(word), text, fault)),
        }
    }
    let key = format!("{word}-version");
    if let Some(text) = given(&key) {
        match Version::parse(text) {
            Ok(version) => mode.version = version,
            Err(fault) => errors.push(Error::invalid(&path.child(&key), text, fault)),
        }
    }
    mode
}

fn check_list(
    field: &str,
    names: &[String],
    faults: impl Fn(&str) -> Vec<String>,
    errors: &mut ErrorList,
) {
    let path = Path::new("exemptions");
    let list = path.child(field);
    for (i, name) in names.iter().enumerate() {
        let faults = faults(name);
        if !faults.is_empty() {
            errors.push(Error::invalid(&list.index(i), name.as_str(), faults.join(", ")));
        } else if names[..i].contains(name) {
            errors.push(Error::duplicate(&list.index(i), name.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(defaults: Value, exemptions: Value) -> Result<Configuration, String> {
        let mut settings = Settings::default();
        let document = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "PodSecurityConfiguration",
            "defaults": defaults, "exemptions": exemptions});
        configure(Some(document), &mut settings)?;
        Ok(settings.pod_security)
    }

    #[test]
    fn defaults_and_exemptions_are_read() {
        let read = check(
            json!({"enforce": "baseline", "enforce-version": "v1.30", "warn": "restricted"}),
            json!({"namespaces": ["kube-system"]}),
        );
        let read = read.unwrap();
        assert_eq!(read.defaults.enforce.to_string(), "baseline:v1.30");
        assert_eq!(read.defaults.warn.to_string(), "restricted:latest");
        assert_eq!(read.defaults.audit.to_string(), "privileged:latest");
        assert_eq!(read.namespaces, ["kube-system"]);
    }

    #[test]
    fn faults_are_named() {
        assert_eq!(
            check(json!({"enforce": "x"}), json!({"usernames": ["", "a", "a"]})).unwrap_err(),
            "[defaults.enforce: Invalid value: \"x\": must be one of privileged, baseline, \
             restricted, exemptions.usernames[0]: Invalid value: \"\": username must not be empty, \
             exemptions.usernames[2]: Duplicate value: \"a\"]"
        );
    }
}
