//! What a registry is shown: from the pod's pull secrets, then from the node's own file. An entry is
//! for all images whose registry and path fit it, the longest first (`pkg/credentialprovider`).
use crate::runtime::cri;
use base64::Engine as _;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;

/// Something to show, and where it is from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Credential {
    pub auth: cri::AuthConfig,
    pub whose: Whose,
    /// Tells two apart without telling what they are.
    pub hash: String,
}

/// Who has it to show.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Whose {
    /// Everybody on the node.
    #[default]
    Node,
    Secret(Named),
    ServiceAccount(Named),
}

/// An object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Named {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

/// All that fit, in the order in which they are tried.
pub fn fitting(repository: &str, secrets: &[&Secret], node: Option<&Value>) -> Vec<Credential> {
    let mut found: Vec<Credential> = Vec::new();
    for secret in secrets {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let meta = &secret.metadata;
        let (uid, namespace, name) = (text(&meta.uid), text(&meta.namespace), text(&meta.name));
        let from = Whose::Secret(Named { uid, namespace, name });
        let Some(config) = config_of(secret) else { continue };
        found.extend(of_config(repository, &config, &from));
    }
    found.extend(node.into_iter().flat_map(|config| of_config(repository, config, &Whose::Node)));
    found
}

/// The node's own: `/var/lib/kubelet/config.json`.
pub fn of_node(root: &Path) -> Option<Value> {
    let text = std::fs::read(root.join("config.json")).ok()?;
    let config: Value = serde_json::from_slice(&text).ok()?;
    Some(config["auths"].clone())
}

/// Registries and what to show them: the same in both kinds of secrets, under different names.
fn config_of(secret: &Secret) -> Option<Value> {
    let data = secret.data.as_ref()?;
    let read = |key: &str| serde_json::from_slice::<Value>(&data.get(key)?.0).ok();
    match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => Some(read(".dockerconfigjson")?["auths"].clone()),
        Some("kubernetes.io/dockercfg") => read(".dockercfg"),
        _ => None,
    }
}

pub(super) fn of_config(repository: &str, config: &Value, whose: &Whose) -> Vec<Credential> {
    let entries = config.as_object().into_iter().flatten();
    let mut fitting: Vec<(String, &Value)> = entries
        .map(|(place, entry)| (plain(place), entry))
        .filter(|(place, _)| fits(place, repository))
        .collect();
    // What says more goes first.
    fitting.sort_by(|a, b| b.0.cmp(&a.0));
    fitting.iter().map(|(_, entry)| credential(repository, entry, whose.clone())).collect()
}

/// Without scheme and the version that old tools write: `https://index.docker.io/v1/`.
pub(super) fn plain(place: &str) -> String {
    let place = place.trim_start_matches("https://").trim_start_matches("http://");
    let place = place.trim_end_matches('/');
    let place = place.strip_suffix("/v1").or(place.strip_suffix("/v2")).unwrap_or(place);
    match place {
        "index.docker.io" => "docker.io".to_owned(),
        other => other.to_owned(),
    }
}

/// Parts of a host may be named by `*`, with a port of its own; a path is the beginning of one.
pub(super) fn fits(place: &str, repository: &str) -> bool {
    let split = |text: &str| {
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        let (name, port) = host.split_once(':').unwrap_or((host, ""));
        [name, port, path].map(str::to_owned)
    };
    let ([name, port, path], [own_name, own_port, own_path]) = (split(place), split(repository));
    let (parts, own): (Vec<&str>, Vec<&str>) =
        (name.split('.').collect(), own_name.split('.').collect());
    let part_fits = |(part, own): (&&str, &&str)| match part.split_once('*') {
        Some((first, last)) => {
            own.len() >= first.len() + last.len() && own.starts_with(first) && own.ends_with(last)
        }
        None => part == own,
    };
    port == own_port
        && parts.len() == own.len()
        && parts.iter().zip(&own).all(part_fits)
        && own_path.starts_with(&path)
}

fn credential(repository: &str, entry: &Value, whose: Whose) -> Credential {
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let decoded = base64::engine::general_purpose::STANDARD.decode(text("auth").trim());
    let decoded = String::from_utf8(decoded.unwrap_or_default()).unwrap_or_default();
    let (user, password) = decoded.split_once(':').unwrap_or_default();
    let or = |own: String, other: &str| if own.is_empty() { other.to_owned() } else { own };
    let auth = cri::AuthConfig {
        username: or(text("username"), user),
        password: or(text("password"), password),
        identity_token: text("identitytoken"),
        registry_token: text("registrytoken"),
        server_address: repository.split('/').next().unwrap_or_default().to_owned(),
        ..cri::AuthConfig::default()
    };
    let shown = [&auth.username, &auth.password, &auth.identity_token, &auth.registry_token];
    let mut digest = Sha256::new();
    for part in shown {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    let hash = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Credential { auth, whose, hash }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(name: &str, kind: &str, config: Value) -> Secret {
        let key = if kind == "dockercfg" { ".dockercfg" } else { ".dockerconfigjson" };
        let text = base64::engine::general_purpose::STANDARD.encode(config.to_string());
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}") },
            "type": format!("kubernetes.io/{kind}"), "data": { key: text },
        }))
        .unwrap()
    }

    fn check(places: &[&str], image: &str, expected: &str) {
        let entries: serde_json::Map<String, Value> = places
            .iter()
            .map(|place| (String::from(*place), json!({ "username": place, "password": "p" })))
            .collect();
        let secret = secret("s", "dockerconfigjson", json!({ "auths": entries }));
        let found = fitting(&super::super::repository(image), &[&secret], None);
        let names: Vec<&str> = found.iter().map(|one| one.auth.username.as_str()).collect();
        assert_eq!(names.join(" "), expected, "{image}");
    }

    #[test]
    fn an_entry_is_for_registries_and_paths_that_fit() {
        check(&["r.io"], "r.io/web", "r.io");
        check(&["r.io", "r.io/team", "r.io/other"], "r.io/team/web:1", "r.io/team r.io");
        check(&["r.io"], "r.io:5000/web", "");
        check(&["*.r.io"], "a.r.io/web", "*.r.io");
        check(&["*.r.io"], "a.b.r.io/web", "");
        check(&["https://index.docker.io/v1/"], "web", "https://index.docker.io/v1/");
        check(&["https://r.io/v2/"], "r.io/web", "https://r.io/v2/");
        check(&["other.io"], "r.io/web", "");
    }

    #[test]
    fn both_kinds_of_secrets_and_the_node_are_asked() {
        let old = secret("old", "dockercfg", json!({ "r.io": { "auth": "dTpwOnc=" } }));
        let broken = secret("broken", "dockerconfigjson", json!("nonsense"));
        let node = json!({ "r.io": { "username": "n", "password": "q" } });
        let found = fitting("r.io/web", &[&broken, &old], Some(&node));
        let shown: Vec<String> = found
            .iter()
            .map(|one| {
                let from = match &one.whose {
                    Whose::Secret(secret) => &secret.name,
                    _ => "node",
                };
                format!("{} {}:{}", from, one.auth.username, one.auth.password)
            })
            .collect();
        assert_eq!(shown, ["old u:p:w", "node n:q"]);
        assert_ne!(found[0].hash, found[1].hash);
    }
}
