//! What an `EncryptionConfiguration` may not say, in upstream's words.
use super::config::{Configuration, Key, Keys, Kms, ProviderRule, group_resource};
use api::field::{BadValue, Error, ErrorList, Path};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::HashSet;

const AES_KEYS: &[usize] = &[16, 24, 32];
const SECRETBOX_KEYS: &[usize] = &[32];
/// Kept beside the resources, and not one of them.
const NO_RESOURCES: &[&str] =
    &["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

pub fn validate(configuration: &Configuration, reload: bool) -> ErrorList {
    let root = Path::new("resources");
    if configuration.resources.is_empty() {
        return vec![Error::required(&root, "at least one resources is required")];
    }
    let mut errors = Vec::new();
    let mut names = HashSet::new();
    for (i, rule) in configuration.resources.iter().enumerate() {
        let row = root.index(i);
        let (resources, providers) = (row.child("resources"), row.child("providers"));
        let required =
            |path: &Path<'_>| Error::required(path, format!("at least one {path} is required"));
        if rule.resources.is_empty() {
            errors.push(required(&resources));
        }
        overlap(&rule.resources, &resources, &mut errors);
        for (j, name) in rule.resources.iter().enumerate() {
            let detail = resource(name);
            errors.extend(detail.map(|text| Error::invalid(&resources.index(j), name, text)));
        }
        if rule.providers.is_empty() {
            errors.push(required(&providers));
        }
        for (j, rule) in rule.providers.iter().enumerate() {
            let path = providers.index(j);
            one_of(rule, &path, &mut errors);
            if let Some(kms) = &rule.kms {
                plugin(kms, &path.child("kms"), reload, &mut names, &mut errors);
            } else if let Some(rule) = &rule.aesgcm {
                keys(rule, &path.child("aesgcm"), AES_KEYS, &mut errors);
            } else if let Some(rule) = &rule.aescbc {
                keys(rule, &path.child("aescbc"), AES_KEYS, &mut errors);
            } else if let Some(rule) = &rule.secretbox {
                keys(rule, &path.child("secretbox"), SECRETBOX_KEYS, &mut errors);
            }
        }
    }
    errors
}

fn overlap(resources: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    let all: Vec<_> = resources.iter().map(|text| group_resource(text)).collect();
    let pairs = || {
        all.iter().enumerate().flat_map(|(i, a)| {
            all.iter().enumerate().filter(move |(j, _)| *j != i).map(move |(_, b)| (a, b))
        })
    };
    let duplicate = pairs().any(|(a, b)| a == b);
    let masked = pairs()
        .filter(|(a, b)| a != b || *a == &("*", "*"))
        .any(|(a, b)| *a == ("*", "*") || a.0 == b.0 && (a.1 == "*" || b.1 == "*"));
    let mut invalid = |text| errors.push(Error::invalid(path, BadValue::json(resources), text));
    if duplicate {
        invalid("the same resource cannot be specified multiple times");
    }
    if masked {
        invalid(
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked",
        );
    }
}

fn resource(name: &str) -> Option<&'static str> {
    let (group, resource) = group_resource(name);
    match () {
        () if name.to_lowercase() != name => {
            Some("resource name should not contain capital letters")
        }
        () if name == "*" => Some(
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
        ),
        () if NO_RESOURCES.contains(&name) => {
            Some("resources which do not have REST API/s cannot be encrypted")
        }
        () if group == "events.k8s.io" => Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        ),
        () if group == "extensions" => {
            Some("'extensions' group has been removed and cannot be used for encryption")
        }
        () if group == "*" && resource != "*" => {
            Some("encrypting the same resource across groups is not supported")
        }
        () => None,
    }
}

fn one_of(rule: &ProviderRule, path: &Path<'_>, errors: &mut ErrorList) {
    let given = [
        rule.aesgcm.is_some(),
        rule.aescbc.is_some(),
        rule.secretbox.is_some(),
        rule.identity.is_some(),
        rule.kms.is_some(),
    ];
    let detail = match given.into_iter().filter(|given| *given).count() {
        1 => return,
        0 => {
            "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
        }
        _ => {
            "more than one provider specified in a single element, should split into different list elements"
        }
    };
    errors.push(Error::invalid(path, &shown(rule), detail));
}

/// The provider as upstream shows it, but for its secrets.
fn shown(rule: &ProviderRule) -> Value {
    let keys = |keys: &Option<Keys>| {
        keys.as_ref().map(|keys| {
            let shown = |key: &Key| json!({ "Name": key.name, "Secret": "REDACTED" });
            json!({ "Keys": keys.keys.iter().map(shown).collect::<Vec<_>>() })
        })
    };
    json!({
        "AESGCM": keys(&rule.aesgcm), "AESCBC": keys(&rule.aescbc),
        "Secretbox": keys(&rule.secretbox), "Identity": rule.identity.as_ref().map(|_| json!({})),
        "KMS": rule.kms,
    })
}

fn keys(rule: &Keys, path: &Path<'_>, lengths: &[usize], errors: &mut ErrorList) {
    let path = path.child("keys");
    if rule.keys.is_empty() {
        errors.push(Error::required(&path, "at least one keys is required"));
    }
    for (i, key) in rule.keys.iter().enumerate() {
        let path = path.index(i);
        if key.name.is_empty() {
            errors
                .push(Error::required(&path.child("name"), "name is a mandatory field for a key"));
        }
        let path = path.child("secret");
        if key.secret.is_empty() {
            errors.push(Error::required(&path, "secret is a mandatory field for a key"));
            continue;
        }
        match STANDARD.decode(&key.secret) {
            Err(_) => {
                errors.push(Error::invalid(&path, "REDACTED", "secrets must be base64 encoded"))
            }
            Ok(secret) if !lengths.contains(&secret.len()) => {
                let known: Vec<String> = lengths.iter().map(ToString::to_string).collect();
                let text = format!(
                    "secret is not of the expected length, got {}, expected one of [{}]",
                    secret.len(),
                    known.join(" ")
                );
                errors.push(Error::invalid(&path, "REDACTED", text));
            }
            Ok(_) => {}
        }
    }
}

fn plugin<'r>(
    rule: &'r Kms,
    path: &Path<'_>,
    reload: bool,
    names: &mut HashSet<&'r str>,
    errors: &mut ErrorList,
) {
    let (name, version) = (&rule.name, rule.version());
    let at = path.child("name");
    if name.is_empty() {
        errors.push(Error::required(&at, "name is a mandatory field for a provider"));
    }
    if version != "v1" && name.contains(':') {
        let text = format!("invalid KMS provider name {name}, must not contain ':'");
        errors.push(Error::invalid(&at, name, text));
    }
    if !names.insert(name) && (reload || version != "v1") {
        let text = format!("duplicate KMS provider name {name}, names must be unique");
        errors.push(Error::invalid(&at, name, text));
    }
    if rule.timeout().is_none_or(|timeout| timeout <= api::duration::Duration::default()) {
        let shown = rule.timeout.clone().unwrap_or_default();
        errors.push(Error::invalid(
            &path.child("timeout"),
            &shown,
            "timeout should be a positive value",
        ));
    }
    let at = path.child("endpoint");
    match rule.endpoint.split_once(':') {
        _ if rule.endpoint.is_empty() => {
            errors.push(Error::invalid(&at, "", "endpoint is a mandatory field for a kms"));
        }
        Some(("unix", _)) => {}
        other => {
            let scheme = other.map_or("", |(scheme, _)| scheme);
            let text =
                format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported");
            errors.push(Error::invalid(&at, &rule.endpoint, text));
        }
    }
    let at = path.child("cachesize");
    match rule.cachesize {
        Some(size) if version != "v1" => {
            errors.push(Error::invalid(&at, i64::from(size), "cachesize is not supported in v2"));
        }
        Some(0) => errors.push(Error::invalid(
            &at,
            0,
            "cachesize should be a positive value, or negative to disable",
        )),
        _ => {}
    }
    if !matches!(version, "v1" | "v2") {
        let text =
            "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
        errors.push(Error::invalid(&path.child("apiVersion"), version, text));
    }
}
