//! As whom the servers of configurations are asked: users of a kubeconfig, by the hosts that they are for
//! (`apiserver/pkg/util/webhook/authentication.go`). Whoever is not named there is asked as nobody.
use super::Place;
use api::kubeconfig::{Kubeconfig, User};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the server shows to those that it asks.
pub struct Credentials {
    /// Tells them from all others.
    id: String,
    certificate: Option<Arc<dyn ResolvesClientCert>>,
    headers: HeaderMap,
    /// A token that others renew.
    token_file: Option<PathBuf>,
}

/// The users of one kubeconfig.
#[derive(Default)]
pub struct Clients {
    users: HashMap<String, Result<Arc<Credentials>, String>>,
    /// Whoever a current context names.
    usual: Option<String>,
}

impl Clients {
    /// Reads the file, with what its users need of other files.
    pub fn read(file: &Path) -> Result<Clients, String> {
        let bytes = std::fs::read(file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                format!("stat {}: no such file or directory", file.display())
            }
            _ => format!("error loading config file {:?}: {error}", file.display()),
        })?;
        let read = Kubeconfig::parse(&bytes);
        let read = read.map_err(|error| format!("error loading config file {file:?}: {error}"))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        let mut contexts = read.contexts.iter();
        let context = contexts.find(|context| context.name == read.current_context);
        let usual = context.map(|context| context.entry.context.user.clone());
        let users = read.users.into_iter().map(|named| {
            let id = format!("{}#{}", file.display(), named.name);
            let user = named.entry.user.unwrap_or_default();
            (named.name, Credentials::of(id, &user, folder).map(Arc::new))
        });
        Ok(Clients { users: users.collect(), usual })
    }

    /// As whom a server is asked, if as anybody.
    pub fn of(&self, place: &Place) -> Result<Option<Arc<Credentials>>, String> {
        let names = named(&place.host, place.port);
        let names = names.iter().map(String::as_str).chain(["*"]).chain(self.usual.as_deref());
        let found = names.into_iter().find_map(|name| self.users.get(name));
        found.cloned().transpose()
    }
}

/// The names that a server's user may have, the nearest first: host and port, domains above them, and the same
/// without the port that everybody means.
fn named(host: &str, port: u16) -> Vec<String> {
    let bare = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let mut names = with_domains(&format!("{bare}:{port}"));
    if port == 443 {
        names.extend(with_domains(host));
    }
    names
}

fn with_domains(target: &str) -> Vec<String> {
    let above = target.match_indices('.').map(|(at, _)| format!("*{}", &target[at..]));
    [target.to_owned()].into_iter().chain(above).collect()
}

impl Credentials {
    fn of(id: String, user: &User, folder: &Path) -> Result<Credentials, String> {
        if user.exec.is_some() {
            return Err("a user of webhooks cannot be one whose credentials a program makes".into());
        }
        let mut headers = HeaderMap::new();
        let token_file = user.token_file.as_ref().map(|path| folder.join(path));
        let basic = user.username.is_some() || user.password.is_some();
        if let Some(token) = &user.token {
            headers.insert(header::AUTHORIZATION, secret(&format!("Bearer {token}"))?);
        } else if basic && token_file.is_none() {
            let part = |text: &Option<String>| text.clone().unwrap_or_default();
            let both = format!("{}:{}", part(&user.username), part(&user.password));
            let text = format!("Basic {}", STANDARD.encode(both));
            headers.insert(header::AUTHORIZATION, secret(&text)?);
        }
        if let Some(name) = &user.impersonate {
            let mut put = |name: &str, value: &str| -> Result<(), String> {
                let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
                headers.append(name, secret(value)?);
                Ok(())
            };
            put("impersonate-user", name)?;
            user.impersonate_uid.iter().try_for_each(|uid| put("impersonate-uid", uid))?;
            user.impersonate_groups.iter().try_for_each(|group| put("impersonate-group", group))?;
            for (key, values) in &user.impersonate_extra {
                let name = format!("impersonate-extra-{}", percent(key));
                values.iter().try_for_each(|value| put(&name, value))?;
            }
        }
        Ok(Credentials { id, certificate: certificate(user, folder)?, headers, token_file })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn certificate(&self) -> Option<Arc<dyn ResolvesClientCert>> {
        self.certificate.clone()
    }

    /// What a request says of its client, with the token as it is now.
    pub async fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = self.headers.clone();
        if let Some(path) = &self.token_file {
            let path = path.clone();
            let reading = tokio::task::spawn_blocking(move || {
                std::fs::read_to_string(&path)
                    .map_err(|error| format!("failed to read token file {path:?}: {error}"))
            });
            let token = reading.await.map_err(|error| error.to_string())??;
            headers.insert(header::AUTHORIZATION, secret(&format!("Bearer {}", token.trim()))?);
        }
        Ok(headers)
    }
}

fn certificate(user: &User, folder: &Path) -> Result<Option<Arc<dyn ResolvesClientCert>>, String> {
    let bytes = |data: &Option<String>, path: &Option<PathBuf>| match (data, path) {
        (Some(data), _) => STANDARD.decode(data).map_err(|error| error.to_string()),
        (None, Some(path)) => {
            let path = folder.join(path);
            std::fs::read(&path).map_err(|error| format!("open {}: {error}", path.display()))
        }
        (None, None) => Ok(Vec::new()),
    };
    let chain = bytes(&user.client_certificate_data, &user.client_certificate)?;
    if chain.is_empty() {
        return Ok(None);
    }
    let key = bytes(&user.client_key_data, &user.client_key)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| error.to_string())?;
    let provider = rustls::crypto::ring::default_provider();
    let certified = CertifiedKey::from_der(chain, key, &provider);
    let certified = certified.map_err(|error| error.to_string())?;
    Ok(Some(Arc::new(SingleCertAndKey::from(certified))))
}

fn secret(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(text).map_err(|error| error.to_string())?;
    value.set_sensitive(true);
    Ok(value)
}

/// A key as the name of a header has it.
fn percent(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    let written = key.bytes().map(|byte| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    written.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_as_whoever_is_nearest() {
        let users = ["a.b.svc:443", "*.b.svc", "*.svc:8443", "plain.io", "*", "u"];
        let config: String =
            users.map(|name| format!("- {{name: '{name}', user: {{token: 't'}}}}\n")).concat();
        let contexts = "contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c";
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("kubeconfig");
        let check = |config: &str, service: &str, port: u16, expected: &str| {
            std::fs::write(&file, format!("apiVersion: v1\nkind: Config\n{config}\n{contexts}"))
                .expect("written");
            let clients = Clients::read(&file).expect("a kubeconfig");
            let (name, namespace) = service.split_once('.').expect("both");
            let place = Place::of_service(namespace, name, port, Vec::new());
            let found = clients.of(&place).expect("a user");
            let id = found.as_ref().map_or("", |credentials| credentials.id());
            assert_eq!(id.rsplit_once('#').map_or("", |(_, name)| name), expected, "{service}");
        };
        let all = format!("users:\n{config}");
        check(&all, "a.b", 443, "a.b.svc:443");
        check(&all, "x.b", 443, "*.b.svc");
        check(&all, "x.b", 8443, "*.svc:8443");
        check(&all, "x.c", 443, "*");
        check("users: [{name: u, user: {token: t}}]", "x.c", 443, "u");
        check("users: [{name: other, user: {token: t}}]", "x.c", 443, "");
        assert_eq!(named("::1", 443), ["[::1]:443", "::1"]);
    }

    #[tokio::test]
    async fn what_a_user_says_is_in_the_headers() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("token"), "new\n").expect("written");
        let said = async |user: User| {
            let credentials = Credentials::of("id".into(), &user, folder.path())?;
            let headers = credentials.headers().await?;
            let text = |(name, value): (&HeaderName, &HeaderValue)| {
                format!("{name}={}", value.to_str().unwrap_or("?"))
            };
            Ok::<String, String>(headers.iter().map(text).collect::<Vec<_>>().join(" "))
        };
        let some = |text: &str| Some(text.to_owned());
        let user = User { token: some("old"), ..User::default() };
        assert_eq!(said(user.clone()).await.as_deref(), Ok("authorization=Bearer old"));
        let user = User { token_file: Some("token".into()), ..user };
        assert_eq!(said(user).await.as_deref(), Ok("authorization=Bearer new"));
        let user = User { username: some("u"), password: some("p"), ..User::default() };
        assert_eq!(said(user).await.as_deref(), Ok("authorization=Basic dTpw"));
        let user = User { impersonate: some("jane"), ..User::default() };
        assert_eq!(said(user).await.as_deref(), Ok("impersonate-user=jane"));
        let user = User { token: some("two\nlines"), ..User::default() };
        assert!(said(user).await.is_err());
        assert_eq!(percent("acme.io/a"), "acme.io%2Fa");
    }
}
