//! ConfigMap, Secret and ServiceAccount: what pods are configured with.
use super::table::{AGE, Column, NAME, count, text, with};
use super::{Anew, Field, Kind, Part, Strategy, prepare};
use crate::field::{Error, Path};
use crate::names;
use crate::quote::json_type;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use serde_json::{Value, json};

/// What an object's data may weigh, in bytes.
const LIMIT: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";
const PLAIN: Strategy = Strategy::USUAL.without_status().without_generation();

impl Kind for ConfigMap {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = &[
        NAME,
        with("Data", |map, _| (map.at("data").len() + map.at("binaryData").len()).into()),
        AGE,
    ];

    fn validate(map: &Field<'_, '_>) {
        let (data, binary) = (map.at("data"), map.at("binaryData"));
        for (key, entry) in data.entries() {
            keyed(&entry, key);
            if binary.map().is_some_and(|binary| binary.contains_key(key)) {
                entry.invalid_as(key, "duplicate of key present in binaryData");
            }
        }
        for (key, entry) in binary.entries() {
            keyed(&entry, key);
        }
        let size: usize = data.entries().map(|(_, entry)| entry.text().len()).sum();
        let binary: usize = binary.entries().map(|(_, entry)| decoded(&entry).len()).sum();
        if size + binary > LIMIT {
            map.push(Error::too_long(&Path::new(""), LIMIT));
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        frozen(new, old, &["data", "binaryData"]);
        Self::validate(new);
    }
}

/// What is marked immutable stays as it is, the mark too.
fn frozen(new: &Field<'_, '_>, old: &Field<'_, '_>, fields: &[&'static str]) {
    if !old.at("immutable").flag() {
        return;
    }
    if !new.at("immutable").flag() {
        new.at("immutable").forbidden(FROZEN);
    }
    for field in fields {
        if new.at(field).value() != old.at(field).value() {
            new.at(field).forbidden(FROZEN);
        }
    }
}

fn keyed(entry: &Field<'_, '_>, key: &str) {
    names::config_map_key(key).into_iter().for_each(|fault| entry.invalid_as(key, fault));
}

fn decoded(entry: &Field<'_, '_>) -> Vec<u8> {
    STANDARD.decode(entry.text()).unwrap_or_default()
}

impl Kind for Secret {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] =
        &[NAME, text("Type", "type"), count("Data", "data").of("string"), AGE];

    fn prepare_create(secret: &mut Value) {
        prepare::create(secret, &Self::STRATEGY);
        merge_string_data(secret);
    }

    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
        merge_string_data(new);
        if new["type"].as_str().unwrap_or_default().is_empty() {
            prepare::put(new, "type", old.get("type"));
        }
    }

    fn validate(secret: &Field<'_, '_>) {
        let data = secret.at("data");
        for (key, entry) in data.entries() {
            keyed(&entry, key);
        }
        let size: usize = data.entries().map(|(_, entry)| decoded(&entry).len()).sum();
        if size > LIMIT {
            data.too_long(LIMIT);
        }
        let has = |key: &str| data.map().is_some_and(|data| data.contains_key(key));
        let require = |key: &str| {
            if !has(key) {
                data.push(Error::required(&data.path().key(key), ""));
            }
        };
        match secret.at("type").text() {
            "kubernetes.io/service-account-token" => {
                const ACCOUNT: &str = "kubernetes.io/service-account.name";
                let annotations = secret.at("metadata.annotations");
                if annotations.labels().get(ACCOUNT).is_none_or(String::is_empty) {
                    secret.push(Error::required(&annotations.path().key(ACCOUNT), ""));
                }
            }
            "kubernetes.io/dockercfg" => json_entry(&data, ".dockercfg"),
            "kubernetes.io/dockerconfigjson" => json_entry(&data, ".dockerconfigjson"),
            "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
                require("username");
                require("password");
            }
            "kubernetes.io/ssh-auth" => {
                let key = data.map().and_then(|data| data.get("ssh-privatekey"));
                if key.is_none_or(|key| *key == "") {
                    data.push(Error::required(&data.path().key("ssh-privatekey"), ""));
                }
            }
            "kubernetes.io/tls" => {
                require("tls.crt");
                require("tls.key");
            }
            _ => {}
        }
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, _: Part<'_>) {
        new.at("type").immutable(&old.at("type"));
        frozen(new, old, &["data"]);
        Self::validate(new);
    }

    fn warnings(new: &Field<'_, '_>, _: Option<&Field<'_, '_>>) -> Vec<String> {
        match new.at("type").text() {
            "kubernetes.io/tls" => tls_warnings(&new.at("data")),
            _ => Vec::new(),
        }
    }
}

/// The pair of a TLS secret should be one; only its form is looked at.
fn tls_warnings(data: &Field<'_, '_>) -> Vec<String> {
    for (key, what) in [("tls.crt", "certificate"), ("tls.key", "key")] {
        let entry = data.key(key);
        if !String::from_utf8_lossy(&decoded(&entry)).contains("-----BEGIN ") {
            return vec![format!("tls: failed to find any PEM data in {what} input")];
        }
    }
    Vec::new()
}

/// What is given as text goes to the data and wins.
fn merge_string_data(secret: &mut Value) {
    let texts = secret.get_mut("stringData").map(Value::take);
    prepare::put(secret, "stringData", None);
    let Some(Value::Object(texts)) = texts else { return };
    if !secret["data"].is_object() && !texts.is_empty() {
        secret["data"] = json!({});
    }
    for (key, text) in texts {
        secret["data"][key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
}

fn json_entry(data: &Field<'_, '_>, key: &'static str) {
    let path = data.path().key(key);
    match data.entries().find(|(name, _)| *name == key) {
        None => data.push(Error::required(&path, "")),
        Some((_, entry)) => {
            let bytes = decoded(&entry);
            let fault = match crate::codec::json::decode_untyped(&bytes) {
                Ok(read) if read.value.is_object() || read.value.is_null() => return,
                Ok(read) => format!(
                    "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                    json_type(&read.value)
                ),
                Err(error) => error.to_string(),
            };
            entry.invalid_as("<secret contents redacted>", fault);
        }
    }
}

impl Kind for ServiceAccount {
    const NAMED_ANEW: Anew = Anew::Last;
    const STRATEGY: Strategy = PLAIN;
    const COLUMNS: &[Column] = &[NAME, AGE];

    fn prepare_create(account: &mut Value) {
        only_names(account);
    }

    fn prepare_update(new: &mut Value, old: &Value, part: Part<'_>) {
        prepare::update(new, old, part, &Self::STRATEGY);
        only_names(new);
    }

    fn validate(_: &Field<'_, '_>) {}

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        const KEY: &str = "kubernetes.io/enforce-mountable-secrets";
        let has = |account: &Field<'_, '_>| account.at("metadata.annotations").key(KEY).exists();
        if !has(new) || old.is_some_and(has) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{KEY}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        )]
    }
}

/// Of the references to secrets only the names count.
fn only_names(account: &mut Value) {
    for secret in account.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = secret.get("name").cloned();
        *secret = json!({});
        prepare::put(secret, "name", name.as_ref());
    }
}
