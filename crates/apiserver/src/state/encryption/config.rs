//! The file: `EncryptionConfiguration` of `apiserver.config.k8s.io/v1`, and what is made of it.
use super::chain::{Chain, Provider};
use super::ciphers::{self, Make};
use super::{Error, Rules, kms, validation};
use api::duration::Duration;
use api::kinds::RESOURCES;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    pub api_version: String,
    pub kind: String,
    #[serde(default)]
    pub resources: Vec<ResourceRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceRule {
    #[serde(default)]
    pub resources: Vec<String>,
    #[serde(default)]
    pub providers: Vec<ProviderRule>,
}

/// One of these is given.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderRule {
    pub aesgcm: Option<Keys>,
    pub aescbc: Option<Keys>,
    pub secretbox: Option<Keys>,
    pub identity: Option<Identity>,
    pub kms: Option<Kms>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    pub keys: Vec<Key>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Key {
    pub name: String,
    pub secret: String,
}

/// The secret is for nobody's log.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kms {
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    pub name: String,
    pub cachesize: Option<i32>,
    pub endpoint: String,
    pub timeout: Option<String>,
}

impl Kms {
    pub fn version(&self) -> &str {
        if self.api_version.is_empty() { "v1" } else { &self.api_version }
    }

    /// Nothing if it is no duration.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout.as_deref().unwrap_or("3s").parse().ok()
    }
}

/// A resource as the file names it: `secrets`, `deployments.apps`, `*.apps`, `*.`, `*.*`.
pub fn group_resource(text: &str) -> (&str, &str) {
    match text.split_once('.') {
        Some((resource, group)) => (group, resource),
        None => ("", text),
    }
}

pub fn parse(file: &Path, bytes: &[u8], reload: bool) -> Result<Configuration, Error> {
    let decode = |cause: String| Error::Decode { file: file.to_owned(), cause };
    let tree = crate::ground::configuration::document(bytes).map_err(decode)?;
    let configuration: Configuration = serde_json::from_value(tree)
        .map_err(|error| decode(format!("strict decoding error: {error}")))?;
    let known = configuration.api_version == "apiserver.config.k8s.io/v1"
        && configuration.kind == "EncryptionConfiguration";
    if !known {
        return Err(decode(format!(
            "no kind {:?} is registered for version {:?}",
            configuration.kind, configuration.api_version
        )));
    }
    let errors = validation::validate(&configuration, reload);
    match api::field::aggregate(&errors) {
        Some(text) => Err(Error::Invalid(text)),
        None => Ok(configuration),
    }
}

/// Makes the providers; plugins are asked for their state once.
pub async fn build(configuration: &Configuration, bytes: &[u8]) -> Result<Rules, Error> {
    let mut plugins = Vec::new();
    let mut chains: HashMap<(&str, &str), Vec<Provider>> = HashMap::new();
    for rule in &configuration.resources {
        // Providers are made once for each resource: two resources share nothing but a plugin.
        let mut shared: HashMap<&str, Arc<kms::Plugin>> = HashMap::new();
        for rule in rule.providers.iter().filter_map(|provider| provider.kms.as_ref()) {
            let plugin = kms::Plugin::start(rule).await?;
            shared.insert(&rule.name, plugin.clone());
            plugins.push(plugin);
        }
        for text in &rule.resources {
            let (group, resource) = group_resource(text);
            for (group, resource) in [(group, "*"), ("*", "*")] {
                if chains.contains_key(&(group, resource)) {
                    return Err(Error::Invalid(format!(
                        "resource {:?} is masked by earlier rule {:?}",
                        text,
                        format!("{resource}.{group}")
                    )));
                }
            }
            let chain = chains.entry((group, resource)).or_default();
            for rule in &rule.providers {
                chain.push(provider(rule, &shared)?);
            }
        }
    }
    let mut rules = by_prefix(chains);
    rules.checked = !plugins.is_empty();
    rules.plugins = plugins;
    rules.hash = Sha256::digest(bytes).to_vec();
    Ok(rules)
}

fn provider(
    rule: &ProviderRule,
    plugins: &HashMap<&str, Arc<kms::Plugin>>,
) -> Result<Provider, Error> {
    if let Some(plugin) = rule.kms.as_ref().and_then(|kms| plugins.get(kms.name.as_str())) {
        return Ok(Provider::Kms(plugin.clone()));
    }
    type Row<'a> = (Option<&'a Keys>, &'static str, &'static str, Make);
    let rows: [Row<'_>; 3] = [
        (rule.aesgcm.as_ref(), "k8s:enc:aesgcm:v1:", "AES", ciphers::aesgcm),
        (rule.aescbc.as_ref(), "k8s:enc:aescbc:v1:", "AES", ciphers::aescbc),
        (rule.secretbox.as_ref(), "k8s:enc:secretbox:v1:", "Secretbox", ciphers::secretbox),
    ];
    for (keys, prefix, family, make) in rows {
        let Some(keys) = keys else { continue };
        let made: Result<Vec<_>, Error> = keys.keys.iter().map(|key| cipher(key, make)).collect();
        return Ok(Provider::Keys { prefix, family, keys: made? });
    }
    Ok(Provider::Identity)
}

fn cipher(key: &Key, make: Make) -> Result<(String, Box<dyn ciphers::Cipher>), Error> {
    let made = STANDARD.decode(&key.secret).ok().and_then(|secret| make(&secret));
    let cipher = made.ok_or_else(|| {
        Error::Invalid(format!("error while creating cipher for named key {}", key.name))
    })?;
    Ok((key.name.clone(), cipher))
}

/// Chains by where their resources are kept.
fn by_prefix(mut chains: HashMap<(&str, &str), Vec<Provider>>) -> Rules {
    let mut made: HashMap<(String, String), Arc<Chain>> = HashMap::new();
    for ((group, resource), providers) in chains.drain() {
        made.insert((group.to_owned(), resource.to_owned()), Arc::new(Chain(providers)));
    }
    let find = |group: &str, resource: &str| made.get(&(group.to_owned(), resource.to_owned()));
    let mut rules = Rules { rest: find("*", "*").cloned(), ..Rules::default() };
    for row in RESOURCES.iter().filter(|row| row.is_stored() && row.stored_as.is_none()) {
        let chain = find(row.group, row.plural).or_else(|| find(row.group, "*"));
        if let Some(chain) = chain.or(rules.rest.as_ref()) {
            rules.prefixes.push((row.key_prefix(), chain.clone()));
        }
    }
    // What is left names custom resources, by their group.
    for ((group, resource), chain) in &made {
        let prefix = match resource.as_str() {
            _ if !group.contains('.') => continue,
            "*" => format!("/registry/{group}/"),
            resource => format!("/registry/{group}/{resource}/"),
        };
        rules.prefixes.push((prefix, chain.clone()));
    }
    rules.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    rules
}
