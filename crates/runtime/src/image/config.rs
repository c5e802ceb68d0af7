//! Which hosts serve a registry's names, and how they are spoken to: `registries.yaml`.
//!
//! ```yaml
//! mirrors:
//!   docker.io: { endpoint: ["http://127.0.0.1:5000", "https://mirror.example"] }
//!   "*": { endpoint: ["https://everything.example"] }
//! configs:
//!   registry.example:5000:
//!     auth: { username: me, password: secret }
//!     tls: { ca_file: /etc/ca.pem, insecure_skip_verify: false }
//! ```
//! The spelling is the one that k3s users have already.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistriesConfig {
    pub mirrors: BTreeMap<String, Mirror>,
    pub configs: BTreeMap<String, Host>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mirror {
    pub endpoint: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    pub auth: Option<Credentials>,
    pub tls: Tls,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    pub ca_file: Option<PathBuf>,
    pub insecure_skip_verify: bool,
}

/// A name and password, or a token that stands for them.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct Credentials {
    pub username: String,
    pub password: String,
    /// `base64(username:password)`, as in a pull secret.
    pub auth: String,
    pub identity_token: String,
    pub registry_token: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(…)")
    }
}

impl Credentials {
    /// Name and password, whichever way they were given.
    pub fn pair(&self) -> Option<(String, String)> {
        if !self.username.is_empty() {
            return Some((self.username.clone(), self.password.clone()));
        }
        let text = String::from_utf8(STANDARD.decode(self.auth.trim()).ok()?).ok()?;
        let (name, password) = text.split_once(':')?;
        (!name.is_empty()).then(|| (name.to_owned(), password.trim_end_matches('\0').to_owned()))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("failed to read {}", path.display())]
pub struct ConfigError {
    path: PathBuf,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl RegistriesConfig {
    /// Reads the file; one that is not there says nothing.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let broken = |source| ConfigError { path: path.to_owned(), source };
        match std::fs::read_to_string(path) {
            Ok(text) => serde_saphyr::from_str(&text).map_err(|error| broken(Box::from(error))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(broken(Box::from(error))),
        }
    }

    /// The URLs to ask for `domain`, in order: its mirrors, then itself.
    pub fn endpoints(&self, domain: &str) -> Vec<String> {
        let mirror = self.mirrors.get(domain).or_else(|| self.mirrors.get("*"));
        let mut urls: Vec<String> = mirror.map(|m| m.endpoint.clone()).unwrap_or_default();
        for url in &mut urls {
            if !url.contains("://") {
                *url = format!("https://{url}");
            }
            *url = url.trim_end_matches('/').trim_end_matches("/v2").to_owned();
        }
        let host = if domain == "docker.io" { "registry-1.docker.io" } else { domain };
        // Nobody listens in on the loopback device.
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let local = name == "localhost"
            || name
                .trim_matches(['[', ']'])
                .parse()
                .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        let configured = self.configs.contains_key(domain);
        urls.push(format!("{}://{host}", if local && !configured { "http" } else { "https" }));
        urls.dedup();
        urls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_come_first_and_the_registry_itself_last() {
        let config: RegistriesConfig = serde_saphyr::from_str(
            "mirrors:\n  docker.io: {endpoint: ['http://127.0.0.1:5000/v2', cache.example]}\n",
        )
        .unwrap();
        for (domain, urls) in [
            (
                "docker.io",
                &["http://127.0.0.1:5000", "https://cache.example", "https://registry-1.docker.io"]
                    [..],
            ),
            ("quay.io", &["https://quay.io"]),
            ("localhost:5000", &["http://localhost:5000"]),
            ("[::1]:5000", &["http://[::1]:5000"]),
        ] {
            assert_eq!(config.endpoints(domain), urls, "{domain}");
        }
    }

    #[test]
    fn a_pull_secret_is_read_either_way() {
        let auth = Credentials { auth: STANDARD.encode("me:se:cret"), ..Default::default() };
        assert_eq!(auth.pair(), Some(("me".to_owned(), "se:cret".to_owned())));
        assert_eq!(Credentials::default().pair(), None);
    }
}
