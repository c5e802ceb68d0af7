//! Kubeconfig files: where clusters are, who one is to them, and which of both is meant.
//!
//! Only what the bytes say: files they name are for the caller to read, relative to the folder of
//! the kubeconfig. The words are those of upstream's `tools/clientcmd/api/v1`.
use crate::codec::yaml;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Unreadable(String),
    #[error("context {0:?} does not exist")]
    NoContext(String),
    #[error("no context is set: name one, or set current-context")]
    NoCurrent,
    #[error("cluster {0:?} does not exist")]
    NoCluster(String),
    #[error("auth info {0:?} does not exist")]
    NoUser(String),
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Kubeconfig {
    pub current_context: String,
    pub clusters: Vec<Named<ClusterEntry>>,
    pub contexts: Vec<Named<ContextEntry>>,
    pub users: Vec<Named<UserEntry>>,
}

/// An entry of a list: its name beside its content.
#[derive(Debug, Clone, Deserialize)]
pub struct Named<T> {
    pub name: String,
    #[serde(flatten)]
    pub entry: T,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ClusterEntry {
    pub cluster: Cluster,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ContextEntry {
    pub context: Context,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct UserEntry {
    pub user: Option<User>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Context {
    pub cluster: String,
    pub user: String,
    pub namespace: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Cluster {
    pub server: String,
    pub certificate_authority: Option<PathBuf>,
    /// Base64 of PEM.
    pub certificate_authority_data: Option<String>,
    pub insecure_skip_tls_verify: bool,
    pub tls_server_name: Option<String>,
    pub proxy_url: Option<String>,
    pub disable_compression: bool,
}

#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct User {
    pub client_certificate: Option<PathBuf>,
    pub client_certificate_data: Option<String>,
    pub client_key: Option<PathBuf>,
    pub client_key_data: Option<String>,
    pub token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub token_file: Option<PathBuf>,
    pub username: Option<String>,
    pub password: Option<String>,
    #[serde(rename = "as")]
    pub impersonate: Option<String>,
    #[serde(rename = "as-uid")]
    pub impersonate_uid: Option<String>,
    #[serde(rename = "as-groups")]
    pub impersonate_groups: Vec<String>,
    #[serde(rename = "as-user-extra")]
    pub impersonate_extra: BTreeMap<String, Vec<String>>,
    pub exec: Option<Exec>,
}

/// A program that says who one is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Exec {
    pub api_version: String,
    pub command: String,
    pub args: Option<Vec<String>>,
    pub env: Option<Vec<Variable>>,
    pub install_hint: Option<String>,
    pub provide_cluster_info: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

/// Its secrets are for nobody's log.
impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").finish_non_exhaustive()
    }
}

impl Kubeconfig {
    /// YAML or JSON.
    pub fn parse(bytes: &[u8]) -> Result<Kubeconfig, Error> {
        let tree =
            yaml::decode_untyped(bytes).map_err(|error| Error::Unreadable(error.to_string()))?;
        if tree.value.is_null() {
            return Ok(Kubeconfig::default());
        }
        serde_json::from_value(tree.value).map_err(|error| Error::Unreadable(error.to_string()))
    }

    /// Adds what another file says; what is there already stays.
    pub fn merge(&mut self, other: Kubeconfig) {
        if self.current_context.is_empty() {
            self.current_context = other.current_context;
        }
        add(&mut self.clusters, other.clusters);
        add(&mut self.contexts, other.contexts);
        add(&mut self.users, other.users);
    }

    /// What a context means: the current one, unless one is named.
    pub fn context(&self, name: Option<&str>) -> Result<(Context, Cluster, User), Error> {
        let name = name.unwrap_or(&self.current_context);
        if name.is_empty() {
            return Err(Error::NoCurrent);
        }
        let context =
            find(&self.contexts, name).ok_or_else(|| Error::NoContext(name.to_owned()))?;
        let context = context.context.clone();
        let cluster = find(&self.clusters, &context.cluster)
            .ok_or_else(|| Error::NoCluster(context.cluster.clone()))?;
        let user = match (&*context.user, find(&self.users, &context.user)) {
            ("", _) => User::default(),
            (_, Some(entry)) => entry.user.clone().unwrap_or_default(),
            (name, None) => return Err(Error::NoUser(name.to_owned())),
        };
        Ok((context, cluster.cluster.clone(), user))
    }
}

fn find<'a, T>(all: &'a [Named<T>], name: &str) -> Option<&'a T> {
    all.iter().find(|named| named.name == name).map(|named| &named.entry)
}

fn add<T>(all: &mut Vec<Named<T>>, more: Vec<Named<T>>) {
    for named in more {
        if find(all, &named.name).is_none() {
            all.push(named);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
apiVersion: v1
kind: Config
current-context: here
contexts:
- name: here
  context: {cluster: c, user: u, namespace: web}
- name: nowhere
  context: {cluster: missing}
- name: nobody
  context: {cluster: c, user: missing}
clusters:
- name: c
  cluster: {server: 'https://127.0.0.1:6443', certificate-authority: ca.crt}
users:
- name: u
  user:
    tokenFile: token
    as-groups: [g]
    exec: {apiVersion: client.authentication.k8s.io/v1, command: who, args: [am, i], env: null}
";

    #[test]
    fn a_context_leads_to_cluster_and_user() {
        let config = Kubeconfig::parse(FILE.as_bytes()).unwrap();
        let (context, cluster, user) = config.context(None).unwrap();
        assert_eq!(context.namespace.as_deref(), Some("web"));
        assert_eq!(cluster.server, "https://127.0.0.1:6443");
        assert_eq!(cluster.certificate_authority, Some("ca.crt".into()));
        assert_eq!(user.token_file, Some("token".into()));
        assert_eq!(user.impersonate_groups, ["g"]);
        assert_eq!(user.exec.unwrap().args.unwrap(), ["am", "i"]);
        let fault = |name| config.context(Some(name)).unwrap_err().to_string();
        assert_eq!(fault("x"), "context \"x\" does not exist");
        assert_eq!(fault("nowhere"), "cluster \"missing\" does not exist");
        assert_eq!(fault("nobody"), "auth info \"missing\" does not exist");
        assert_eq!(Kubeconfig::parse(b"").unwrap().context(None), Err(Error::NoCurrent));
        assert!(Kubeconfig::parse(b"clusters: 3").is_err());
    }

    #[test]
    fn the_first_file_counts() {
        let mut config =
            Kubeconfig::parse(b"clusters: [{name: c, cluster: {server: first}}]").unwrap();
        config.merge(Kubeconfig::parse(FILE.as_bytes()).unwrap());
        assert_eq!(config.context(None).unwrap().1.server, "first");
    }
}
