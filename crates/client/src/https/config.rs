//! Where an API server is and who we are to it: from a kubeconfig, or from inside a pod.
use super::Policy;
use crate::http::proxy::{self, Proxy};
use crate::http::tls::{Believed, Pem};
use crate::http::{Dial, Others};
use ::http::{HeaderName, HeaderValue};
use api::kubeconfig::{self, Cluster, Exec, Kubeconfig, User};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read kubeconfig {file:?}: {source}")]
    Read { file: PathBuf, source: std::io::Error },
    #[error("invalid kubeconfig {file:?}: {source}")]
    Kubeconfig { file: PathBuf, source: kubeconfig::Error },
    #[error("invalid configuration of a client: {0}")]
    Invalid(String),
    #[error(
        "unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and \
         KUBERNETES_SERVICE_PORT must be defined"
    )]
    NotInCluster,
}

#[derive(Clone)]
pub struct Config {
    /// `https://host:port`, and maybe a path.
    pub server: String,
    pub believed: Believed,
    pub server_name: Option<String>,
    /// Where the server really is, whatever its name resolves to.
    pub address: Option<SocketAddr>,
    pub proof: Proof,
    /// Headers that say whom requests are made as.
    pub impersonation: Vec<(HeaderName, HeaderValue)>,
    /// The namespace that is meant when none is said.
    pub namespace: String,
    pub user_agent: HeaderValue,
    /// How long an answer may take, and its body once more; watches and logs may go on.
    pub timeout: Duration,
    pub http2: bool,
    /// Lists may be packed.
    pub compress: bool,
    /// How connections are made to a server in this process.
    pub dial: Option<Dial>,
    /// Other servers of the same cluster.
    pub others: Option<Others>,
    /// What is on the way. Who reads a kubeconfig, or is a pod, goes by the environment as everybody does who
    /// is built on client-go. Who is configured by us goes straight: nodes reach several servers, turn
    /// connections round, and have a proxy in their environment for images.
    pub proxy: Proxy,
    /// Who hears what the server wants people to know.
    pub on_warning: Option<OnWarning>,
}

pub type OnWarning = Arc<dyn Fn(&str) + Send + Sync>;

/// How we prove who we are; a certificate and a token may come together.
#[derive(Clone, Default)]
pub struct Proof {
    pub certificate: Option<(Pem, Pem)>,
    pub token: Option<Token>,
    pub basic: Option<(String, String)>,
    pub exec: Option<Exec>,
    /// Whether that may run.
    pub policy: Policy,
}

#[derive(Clone)]
pub enum Token {
    Given(String),
    /// Read again now and then: somebody renews it.
    File(PathBuf),
}

/// Where a pod finds what it needs.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Config {
    pub fn new(server: &str, believed: Believed, proof: Proof) -> Config {
        Config {
            server: server.to_owned(),
            believed,
            server_name: None,
            address: None,
            proof,
            impersonation: Vec::new(),
            namespace: "default".to_owned(),
            user_agent: user_agent("skiff"),
            timeout: Duration::from_secs(60),
            http2: true,
            compress: true,
            dial: None,
            others: None,
            proxy: Proxy::None,
            on_warning: None,
        }
    }

    /// The same, in the name of a component.
    #[must_use]
    pub fn for_component(self, name: &str) -> Config {
        Config { user_agent: user_agent(name), ..self }
    }

    /// From a file's current context, unless another is named.
    pub fn from_kubeconfig(file: &Path, context: Option<&str>) -> Result<Config, Error> {
        let bytes =
            std::fs::read(file).map_err(|source| Error::Read { file: file.into(), source })?;
        let invalid = |source| Error::Kubeconfig { file: file.into(), source };
        let kubeconfig = Kubeconfig::parse(&bytes).map_err(invalid)?;
        let (context, cluster, user) = kubeconfig.context(context).map_err(invalid)?;
        let folder = file.parent().unwrap_or(Path::new("."));
        let mut config = Config::of(&cluster, &user, folder).map_err(Error::Invalid)?;
        if let Some(namespace) = context.namespace.filter(|namespace| !namespace.is_empty()) {
            config.namespace = namespace;
        }
        Ok(config)
    }

    /// From the environment and files of a pod.
    pub fn in_cluster() -> Result<Config, Error> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST").ok_or(Error::NotInCluster)?;
        let port = variable("KUBERNETES_SERVICE_PORT").ok_or(Error::NotInCluster)?;
        Ok(Config::in_pod(&host, &port, Path::new(SERVICE_ACCOUNT)))
    }

    fn in_pod(host: &str, port: &str, folder: &Path) -> Config {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let believed = Believed::Authorities(Pem::File(folder.join("ca.crt")));
        let token = Some(Token::File(folder.join("token")));
        let proof = Proof { token, ..Proof::default() };
        let mut config = Config::new(&format!("https://{host}:{port}"), believed, proof);
        config.proxy = Proxy::Environment;
        if let Ok(namespace) = std::fs::read_to_string(folder.join("namespace")) {
            config.namespace = namespace.trim().to_owned();
        }
        config
    }

    /// Paths are relative to the folder of the file that named them.
    pub fn of(cluster: &Cluster, user: &User, folder: &Path) -> Result<Config, String> {
        if cluster.server.is_empty() {
            return Err("the cluster has no server".to_owned());
        }
        let proxy = match cluster.proxy_url.as_deref() {
            None | Some("") => Proxy::Environment,
            Some(url) => Proxy::Url(proxy::Url::parse(url)?),
        };
        let pem = |data: &Option<String>, file: &Option<PathBuf>| -> Result<Option<Pem>, String> {
            match (data, file) {
                (Some(data), _) if !data.is_empty() => {
                    let data = STANDARD.decode(data.trim()).map_err(|error| error.to_string())?;
                    Ok(Some(Pem::Data(data)))
                }
                (_, Some(file)) if !file.as_os_str().is_empty() => {
                    Ok(Some(Pem::File(folder.join(file))))
                }
                _ => Ok(None),
            }
        };
        let authority = pem(&cluster.certificate_authority_data, &cluster.certificate_authority)?;
        let believed = match (cluster.insecure_skip_tls_verify, authority) {
            (true, _) => Believed::Anyone,
            (false, Some(pem)) => Believed::Authorities(pem),
            (false, None) => Believed::System,
        };
        let certificate = pem(&user.client_certificate_data, &user.client_certificate)?;
        let key = pem(&user.client_key_data, &user.client_key)?;
        let certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("a client certificate and its key come together".to_owned()),
        };
        // A file is read again when it changes, so it counts first, as upstream's does.
        let token = match (&user.token_file, &user.token) {
            (Some(file), _) => Some(Token::File(folder.join(file))),
            (None, Some(token)) if !token.is_empty() => Some(Token::Given(token.clone())),
            _ => None,
        };
        let basic =
            user.username.clone().map(|name| (name, user.password.clone().unwrap_or_default()));
        let mut exec = user.exec.clone();
        if let Some(exec) = &mut exec
            && exec.command.contains('/')
        {
            exec.command = folder.join(&exec.command).to_string_lossy().into_owned();
        }
        let proof = Proof { certificate, token, basic, exec, policy: Policy::default() };
        let mut config = Config::new(&cluster.server, believed, proof);
        config.proxy = proxy;
        config.server_name = cluster.tls_server_name.clone().filter(|name| !name.is_empty());
        config.compress = !cluster.disable_compression;
        config.impersonation = impersonation(user)?;
        Ok(config)
    }
}

/// `kubelet/v1.37.0 (linux/amd64) kubernetes/skiff`.
fn user_agent(name: &str) -> HeaderValue {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let (version, system) = (api::VERSION, std::env::consts::OS);
    let text = format!("{name}/{version} ({system}/{architecture}) kubernetes/skiff");
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("skiff"))
}

fn impersonation(user: &User) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::new();
    let mut add = |name: &str, value: &str| -> Result<(), String> {
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        headers.push((name, HeaderValue::try_from(value).map_err(|error| error.to_string())?));
        Ok(())
    };
    for name in user.impersonate.iter().filter(|name| !name.is_empty()) {
        add("impersonate-user", name)?;
    }
    if let Some(uid) = &user.impersonate_uid {
        add("impersonate-uid", uid)?;
    }
    for group in &user.impersonate_groups {
        add("impersonate-group", group)?;
    }
    for (key, values) in &user.impersonate_extra {
        for value in values {
            add(&format!("impersonate-extra-{key}"), value)?;
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_finds_its_server() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("namespace"), "n\n").unwrap();
        let config = Config::in_pod("fd00::1", "443", folder.path());
        assert_eq!((&*config.server, &*config.namespace), ("https://[fd00::1]:443", "n"));
    }

    #[test]
    fn files_are_beside_the_kubeconfig() {
        let cluster = Cluster {
            server: "https://h".into(),
            certificate_authority: Some("ca.crt".into()),
            ..Cluster::default()
        };
        let user = User {
            token_file: Some("token".into()),
            impersonate: Some("jane".into()),
            impersonate_groups: vec!["g".into(), "h".into()],
            ..User::default()
        };
        let config = Config::of(&cluster, &user, Path::new("/etc/k")).unwrap();
        assert!(
            matches!(&config.believed, Believed::Authorities(Pem::File(path)) if path == Path::new("/etc/k/ca.crt"))
        );
        assert!(
            matches!(&config.proof.token, Some(Token::File(path)) if path == Path::new("/etc/k/token"))
        );
        let sent: Vec<_> = config
            .impersonation
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect();
        assert_eq!(sent, ["impersonate-user=jane", "impersonate-group=g", "impersonate-group=h"]);
        let alone = User { client_key: Some("key".into()), ..User::default() };
        assert!(Config::of(&cluster, &alone, Path::new("/")).is_err());
    }

    #[test]
    fn a_kubeconfig_names_a_proxy_or_leaves_it_to_the_environment() {
        let proxy = |url: Option<&str>| {
            let proxy_url = url.map(str::to_owned);
            let cluster = Cluster { server: "https://h".into(), proxy_url, ..Cluster::default() };
            let config = Config::of(&cluster, &User::default(), Path::new("/"));
            config.map(|config| format!("{:?}", config.proxy)).unwrap_or_else(|text| text)
        };
        assert_eq!(proxy(None), "Environment");
        assert_eq!(proxy(Some("")), "Environment");
        assert_eq!(proxy(Some("socks5://p:1")), "Url(Socks p:1)");
        assert_eq!(
            proxy(Some("ftp://p")),
            "unsupported scheme \"ftp\", must be http, https, or socks5"
        );
        // Nodes and servers, which nobody gave a kubeconfig, go straight.
        let own = Config::new("https://h", Believed::System, Proof::default());
        assert_eq!(own.proxy, Proxy::None);
    }
}
