//! Where an API server is and who we are to it, from a kubeconfig's current context.
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base64::Engine;
use http::{HeaderValue, Uri};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

/// An API server as one user sees it.
pub struct Endpoint {
    /// The context's name.
    pub name: String,
    pub server: Uri,
    pub tls: Arc<ClientConfig>,
    /// The value of the `Authorization` header, for users with a token.
    pub authorization: Option<HeaderValue>,
    /// Whom requests are made as, by one who may.
    pub acting_as: Option<HeaderValue>,
}

impl Endpoint {
    /// The same server, as somebody else sees it.
    pub fn acting_as(&self, user: &'static str) -> Endpoint {
        Endpoint {
            name: format!("{} as {user}", self.name),
            server: self.server.clone(),
            tls: self.tls.clone(),
            authorization: self.authorization.clone(),
            acting_as: Some(HeaderValue::from_static(user)),
        }
    }

    pub fn read(path: &Path, http2: bool) -> Result<Endpoint> {
        let folder = path.parent().unwrap_or(Path::new("."));
        Endpoint::of(&contents(path)?, folder, http2)
            .with_context(|| format!("kubeconfig {}", path.display()))
    }

    /// The same server, as somebody sees it who does not say who he is.
    pub fn nobody(path: &Path, http2: bool) -> Result<Endpoint> {
        let mut config = contents(path)?;
        for user in config["users"].as_array_mut().into_iter().flatten() {
            user["user"] = Value::Null;
        }
        Endpoint::of(&config, path.parent().unwrap_or(Path::new(".")), http2)
    }

    /// Paths in the file are relative to its folder.
    fn of(config: &Value, folder: &Path, http2: bool) -> Result<Endpoint> {
        let name = text(config, "current-context").context("there is no current context")?;
        let context = named(config, "contexts", "context", name)?;
        let cluster = text(context, "cluster").context("the context names no cluster")?;
        let cluster = named(config, "clusters", "cluster", cluster)?;
        let user = match text(context, "user") {
            Some(user) => named(config, "users", "user", user)?,
            None => &Value::Null,
        };
        let server = text(cluster, "server").context("the cluster has no server")?;
        let mut roots = RootCertStore::empty();
        let authority = pem(cluster, "certificate-authority", folder)?;
        for certificate in CertificateDer::pem_slice_iter(&authority.unwrap_or_default()) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let (certificate, key) =
            (pem(user, "client-certificate", folder)?, pem(user, "client-key", folder)?);
        let mut tls = match (certificate, key) {
            (Some(certificate), Some(key)) => {
                let chain =
                    CertificateDer::pem_slice_iter(&certificate).collect::<Result<_, _>>()?;
                tls.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&key)?)?
            }
            _ => tls.with_no_client_auth(),
        };
        let protocol: &[u8] = if http2 { b"h2" } else { b"http/1.1" };
        tls.alpn_protocols = vec![protocol.to_vec()];
        let token = match (text(user, "token"), text(user, "tokenFile")) {
            (Some(token), _) => Some(token.to_owned()),
            (None, Some(file)) => Some(std::fs::read_to_string(folder.join(file))?),
            (None, None) => None,
        };
        let bearer = |token: String| HeaderValue::try_from(format!("Bearer {}", token.trim()));
        Ok(Endpoint {
            name: name.to_owned(),
            server: server.parse().with_context(|| format!("the server {server:?} is no URL"))?,
            tls: Arc::new(tls),
            authorization: token.map(bearer).transpose()?,
            acting_as: None,
        })
    }
}

fn contents(path: &Path) -> Result<Value> {
    let bytes = std::fs::read(path)
        .with_context(|| format!("failed to read kubeconfig {}", path.display()))?;
    let config = ::api::codec::yaml::decode_untyped(&bytes);
    Ok(config.map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?.value)
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

/// The entry with a name in one of the file's lists.
fn named<'a>(config: &'a Value, list: &str, field: &str, name: &str) -> Result<&'a Value> {
    let entries = config[list].as_array().into_iter().flatten();
    match entries.into_iter().find(|entry| text(entry, "name") == Some(name)) {
        Some(entry) => Ok(&entry[field]),
        None => bail!("{name:?} is not among the {list}"),
    }
}

/// A certificate or key, in the file itself (`…-data`) or in one beside it.
fn pem(value: &Value, field: &str, folder: &Path) -> Result<Option<Vec<u8>>> {
    if let Some(data) = text(value, &format!("{field}-data")) {
        return Ok(Some(base64::engine::general_purpose::STANDARD.decode(data)?));
    }
    let Some(file) = text(value, field) else { return Ok(None) };
    let path = folder.join(file);
    Ok(Some(std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(user: Value) -> Value {
        json!({
            "current-context": "here",
            "contexts": [{ "name": "there", "context": {} },
                { "name": "here", "context": { "cluster": "c", "user": "u" } }],
            "clusters": [{ "name": "c", "cluster": { "server": "https://127.0.0.1:6443" } }],
            "users": [{ "name": "u", "user": user }],
        })
    }

    #[test]
    fn the_current_context_leads_to_server_and_user() {
        let folder = Path::new(".");
        let endpoint = Endpoint::of(&config(json!({ "token": "secret\n" })), folder, true).unwrap();
        assert_eq!((&*endpoint.name, endpoint.server.port_u16()), ("here", Some(6443)));
        assert_eq!(endpoint.authorization.unwrap(), "Bearer secret");
        assert_eq!(endpoint.tls.alpn_protocols, [b"h2"]);
        let endpoint = Endpoint::of(&config(json!({})), folder, false).unwrap();
        assert_eq!(
            (endpoint.authorization, &endpoint.tls.alpn_protocols[0][..]),
            (None, &b"http/1.1"[..])
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut config = config(json!({ "client-key": "/does/not/exist" }));
        let failure = |config: &Value| {
            Endpoint::of(config, Path::new("."), true).err().map(|e| e.to_string()).unwrap()
        };
        assert_eq!(failure(&config), "failed to read /does/not/exist");
        config["contexts"][1]["context"]["user"] = "nobody".into();
        assert_eq!(failure(&config), "\"nobody\" is not among the users");
    }
}
